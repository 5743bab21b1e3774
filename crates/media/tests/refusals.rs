//! Kernels and sandboxes that refuse io_uring, O_DIRECT or RWF_DSYNC, played by a seccomp filter on one thread.

#![cfg(all(target_os = "linux", target_endian = "little"))]

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use forebay_media::conformance::{self, ABSENT, DRIVE_BYTES_MIN, DRIVES};
use forebay_media::{
    Access, Backend, DirectIo, DriveFile, MediaConfig, OpenDriveError, OpenMediaError, create_zeroed, open_media,
};

/// A system call that is to fail from now on, in this thread and in those that it starts.
struct Refusal {
    call: libc::c_long,
    errno: i32,
    /// Only when one of these bits is in the third argument (a part of it that is in its low half).
    only_with_bits: Option<i32>,
}

const NO_URING: Refusal = Refusal { call: libc::SYS_io_uring_setup, errno: libc::EPERM, only_with_bits: None };
const NO_WRITE_FLAGS: Refusal = Refusal { call: libc::SYS_pwritev2, errno: libc::EOPNOTSUPP, only_with_bits: None };
const NO_DIRECT: Refusal =
    Refusal { call: libc::SYS_openat, errno: libc::EINVAL, only_with_bits: Some(libc::O_DIRECT) };

/// Installs a filter for each. False when there is no seccomp here either.
fn refuse(refusals: &[Refusal]) -> bool {
    refusals.iter().all(|refusal| {
        let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let unless_skip = |code: u32, k: u32, skip: u8| libc::sock_filter { code: code as u16, jt: 0, jf: skip, k };
        // Offsets in seccomp_data: the number of the call, and its third argument.
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let bits = refusal.only_with_bits.unwrap_or(0);
        let (bits_code, bits_k) = match refusal.only_with_bits {
            Some(bits) => (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, bits.cast_unsigned()),
            None => (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, bits.cast_unsigned()),
        };
        let mut filter = [
            statement(load, 0),
            unless_skip(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, refusal.call as u32, 3),
            statement(load, 32),
            unless_skip(bits_code, bits_k, 1),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | refusal.errno.cast_unsigned()),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: both calls only read their arguments, which live until they return; the filter's length is its own.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        }
    })
}

/// Runs `test` in a thread for which these calls are refused. It is given a directory, and gives back what was logged.
fn with_refused(refusals: &'static [Refusal], test: impl FnOnce(&Path) + Send + 'static) -> Option<String> {
    let thread = thread::spawn(move || {
        if !refuse(refusals) {
            println!("skipped: needs seccomp");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have seccomp");
            return None;
        }
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        tracing::subscriber::with_default(subscriber, || test(directory.path()));
        let logged = log.0.lock().expect("no panic").clone();
        Some(String::from_utf8(logged).expect("text"))
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs the suite over three files, everything chosen by itself; says whether they are direct.
fn run_chosen(directory: &Path) -> bool {
    let mut drives = Vec::from([(ABSENT, None)]);
    let mut direct = true;
    for number in DRIVES {
        let path = directory.join(format!("drive-{number}"));
        create_zeroed(&path, DRIVE_BYTES_MIN, &mut |_| {}).expect("space");
        let drive = DriveFile::open(&path, DirectIo::Auto, Access::Exclusive).expect("opens");
        direct &= drive.is_direct();
        drives.push((number, Some(Arc::new(drive))));
    }
    conformance::run_all(|| open_media(&drives, &MediaConfig::default()).expect("opens"));
    direct
}

#[test]
fn without_io_uring_threads_take_over() {
    let log = with_refused(&[NO_URING], |directory| {
        run_chosen(directory);
        let forced = MediaConfig { backend: Backend::IoUring, ..MediaConfig::default() };
        let error = open_media(&[], &forced).err().expect("refused");
        assert!(matches!(error, OpenMediaError::IoUring(_)), "{error}");
        assert!(error.to_string().contains("backend = \"auto\""), "{error}");
    });
    let Some(log) = log else { return };
    assert!(log.contains("no io_uring here: drives are reached by threads"), "{log}");
}

#[test]
fn without_direct_io_the_page_cache_is_used() {
    let log = with_refused(&[NO_DIRECT], |directory| {
        assert!(!run_chosen(directory));
        let path = directory.join("drive-0");
        let error = DriveFile::open(&path, DirectIo::On, Access::Exclusive).expect_err("refused");
        assert!(matches!(error, OpenDriveError::DirectRefused { .. }), "{error}");
    });
    let Some(log) = log else { return };
    assert!(log.contains("no O_DIRECT here: going through the page cache"), "{log}");
    assert!(log.contains("direct=false"), "{log}");
}

#[test]
fn without_anything_modern_the_same_promises_hold() {
    with_refused(&[NO_URING, NO_WRITE_FLAGS, NO_DIRECT], |directory| assert!(!run_chosen(directory)));
}
