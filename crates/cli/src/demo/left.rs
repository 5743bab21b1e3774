//! Scratch directories that demos left which were killed: they hold gigabytes, often of memory.
//!
//! A demo holds a lock in its directory for as long as it lives. Where nobody holds it, nobody needs the directory.

use std::fs::{self, DirEntry, File};
use std::path::Path;

use crate::output::Output;

/// How the names of scratch directories begin.
pub const PREFIX: &str = "forebay-demo-";

const LOCK: &str = "demo.lock";

/// Says that the directory is in use. A file system without locks has none: what is left there is removed by hand.
pub fn lock(scratch: &Path) -> Option<File> {
    // It is held before it has the name that is looked for.
    let part = scratch.join("demo.lock.part");
    let file = File::create_new(&part).ok()?;
    file.try_lock().ok()?;
    fs::rename(part, scratch.join(LOCK)).ok()?;
    Some(file)
}

/// Says that the directory is to stay.
pub fn unlock(scratch: &Path, lock: Option<File>) {
    if lock.is_some() {
        // While it is held still. What cannot be removed is told nobody: the next demo would say why.
        let _ = fs::remove_file(scratch.join(LOCK));
    }
}

/// Removes what demos that are dead have left in a directory.
pub fn remove(parent: &Path, output: &Output) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(is_abandoned) {
        let path = entry.path();
        let path = path.display();
        output.note(&match fs::remove_dir_all(entry.path()) {
            Ok(()) => format!("forebay: removed {path}, which a demo that was killed had left"),
            Err(error) => format!("forebay: a demo that was killed has left {path}: {error}; remove it by hand"),
        });
    }
}

/// Whether this is the directory of a demo that is not there any more. One that was kept has no lock.
fn is_abandoned(entry: &DirEntry) -> bool {
    let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
    let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
    named && is_directory && File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_whose_lock_nobody_holds_are_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).expect("made");
            path
        };
        let dead = make("forebay-demo-dead");
        drop(lock(&dead).expect("locked"));
        fs::write(dead.join("drive0"), b"bytes").expect("written");
        let alive = make("forebay-demo-alive");
        let held = lock(&alive).expect("locked");
        let kept = make("forebay-demo-kept");
        unlock(&kept, lock(&kept));
        let other = make("something-else");
        drop(lock(&other).expect("locked"));
        remove(parent.path(), &Output::new(true, true));
        assert_eq!([&dead, &alive, &kept, &other].map(|path| path.exists()), [false, true, true, true]);
        drop(held);
        remove(parent.path(), &Output::new(true, true));
        assert!(!alive.exists());
    }
}
