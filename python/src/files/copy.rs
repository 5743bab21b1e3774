//! A copy within the store.

use forebay_client::files::{FileError, Files, Owner, ReadOptions, WriteOptions};

/// What is read and written at once.
const BLOCK_BYTES: usize = 1 << 20;

/// Copies a file, seals the copy, and says whether both have the same sums, as far as they are known. With `replace` the copy is made beside what has the name, and
/// takes its place when it is whole. What is not whole is removed.
pub fn copy(files: &Files, source: &[u8], target: &[u8], owner: &Owner, replace: bool) -> Result<bool, FileError> {
    let is_there = files.lookup_link(target).is_ok();
    if is_there && !replace {
        return Err(FileError::Exists { path: forebay_client::files::escape(target) });
    }
    let beside = if is_there { beside(target) } else { target.to_vec() };
    let options = WriteOptions { owner: *owner, ..WriteOptions::default() };
    let mut reader = files.open_read(source, &ReadOptions::default())?;
    let mut writer = files.create(&beside, &options)?;
    let mut copied = || -> Result<bool, FileError> {
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let count = reader.read(&mut block)?;
            if count == 0 {
                break;
            }
            writer.write(&block[..count])?;
        }
        writer.close()?;
        is_same(files, source, &beside)
    };
    let is_same = match copied() {
        Ok(true) => is_there.then(|| files.rename(&beside, target, true)).transpose().map(|_| true),
        other => other,
    };
    if !matches!(is_same, Ok(true)) {
        // What went wrong is told; that its rest stays as well would hide it.
        let _ = writer.abandon();
        let _ = files.remove(&beside);
    }
    is_same
}

fn is_same(files: &Files, source: &[u8], copy: &[u8]) -> Result<bool, FileError> {
    let (source, copy) = (files.stat(source)?, files.stat(copy)?);
    let sums = |status: &forebay_client::files::FileStatus| status.info.as_ref().and_then(|info| info.sums);
    Ok(match (sums(&source), sums(&copy)) {
        (Some(source), Some(copy)) => source == copy,
        _ => !source.is_sealed() || source.length() == copy.length(),
    })
}

/// A name that nobody else takes, in the same directory.
fn beside(path: &[u8]) -> Vec<u8> {
    let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let unique = format!(".forebay-{}-{:x}.part", std::process::id(), now_ns());
    [&path[..at], unique.as_bytes()].concat()
}

fn now_ns() -> u128 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos())
}
