//! What is known of the file system that a drive lies on.

use std::fs::File;

/// File systems that reach their data over a network or through another process, by the magic numbers that `statfs` gives (`linux/magic.h`,
/// and of those that are no part of Linux their own headers).
const REMOTE: [u32; 10] = [
    0x6573_5546, // FUSE
    0x0000_6969, // NFS
    0x00C3_6400, // CephFS
    0x0BD0_0BD0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0xFE53_4D42, // SMB 2 and 3
    0xFF53_4D42, // CIFS
    0x0102_1997, // 9P
    0x786F_4256, // VirtualBox shared folders
];

/// Whether a request past the page cache may wait for its answer in the thread that submits it, whatever that thread asked for.
///
/// On block devices and the file systems that lie on them the kernel goes on, or hands the request to a thread of its own.
pub(crate) fn submitting_may_wait(file: &File) -> bool {
    // The numbers have 32 bits; the field is wider, and signed on some machines.
    rustix::fs::fstatfs(file).is_ok_and(|found| REMOTE.contains(&(found.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_system_does_not_make_submitters_wait() {
        for directory in ["/dev/shm", "/proc/self"] {
            let Ok(file) = File::open(directory) else { continue };
            assert!(!submitting_may_wait(&file), "{directory}");
        }
    }
}
