//! How far the kernel reads ahead. It begins with 128 KiB, asked for in requests no longer than that, and a mount cannot have more by asking: only the system's settings of the
//! device say so, which root may change.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// So many KiB: what is read ahead of it here is twice as much.
const READ_AHEAD_KIB: u32 = 1024;

/// Where the kernel says what is mounted where.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Has the kernel read further ahead in the mount on this directory. A user without the rights reads more slowly.
pub(crate) fn read_further_ahead(directory: &Path) {
    let set = std::fs::read(MOUNTS).and_then(|mounts| {
        let device = device_of(&mounts, directory).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB.to_string())
    });
    if let Err(error) = set {
        tracing::debug!(%error, "the kernel reads ahead as little as it does by itself: large files are read more slowly");
    }
}

/// The device of what is mounted on a directory, `MAJOR:MINOR`: of the last line that names it, as what was mounted last is what is seen.
fn device_of(mounts: &[u8], directory: &Path) -> Option<String> {
    let is_here = |line: &&[u8]| {
        line.split(|byte| *byte == b' ')
            .nth(4)
            .is_some_and(|place| unescaped(place) == directory.as_os_str().as_bytes())
    };
    let line = mounts.split(|byte| *byte == b'\n').rfind(is_here)?;
    let device = line.split(|byte| *byte == b' ').nth(2)?;
    let is_device = device.iter().all(|byte| byte.is_ascii_digit() || *byte == b':');
    is_device.then(|| String::from_utf8_lossy(device).into_owned())
}

/// A path as the kernel writes it there: blanks and the like as three octal digits behind a backslash.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((&first, behind)) = rest.split_first() {
        let is_octal = |digits: &&[u8; 3]| first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
        match behind.first_chunk::<3>().filter(is_octal) {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0')) as u8);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_what_is_seen_is_found() {
        let mounts = b"21 1 0:20 / / rw - ext4 /dev/vda rw\n\
            40 21 0:41 / /mnt/a\\040b rw,nosuid - fuse.forebay x rw\n\
            41 40 0:42 / /mnt/a\\040b rw,nosuid - fuse.forebay x rw\n\
            42 40 ../x / /odd rw - fuse x rw\nshort\n";
        let of = |directory: &str| device_of(mounts, Path::new(directory));
        assert_eq!(of("/mnt/a b").as_deref(), Some("0:42"));
        assert_eq!(of("/").as_deref(), Some("0:20"));
        assert_eq!(of("/mnt/a"), None);
        assert_eq!(of("/odd"), None, "no path is made of what is not a device");
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(unescaped(b"a\\134b\\04\\x\\"), b"a\\b\\04\\x\\");
    }
}
