//! The conformance suite over every implementation, and over every kind of drive that this machine has.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay_media::conformance::{self, ABSENT, DRIVE_BYTES_MIN, DRIVES};
use forebay_media::{
    Access, AlignedBuffer, BLOCK_BYTES, Backend, Contents, DirectIo, DriveFile, DriveKind, FaultSwitch, FaultyMedia,
    InspectError, Inspection, Media, MediaConfig, MediaError, MemoryDrives, MemoryMedia, OpenDriveError,
    OpenMediaError, Operation, OperationId, PatientMedia, SilentDrives, create_zeroed, inspect, open_media,
};
use forebay_types::DriveNumber;

type Drives = Vec<(DriveNumber, Option<Arc<DriveFile>>)>;

/// Prints why a test does not run; in CI a test that could run must.
fn skip(needs: &str) {
    println!("skipped: needs {needs}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have {needs}");
}

/// Prints why a test does not run that needs what no package brings. In CI it must run all the same wherever the machine could do it.
fn skip_unless(possible: bool, needs: &str) {
    println!("skipped: needs {needs}");
    assert!(!possible || std::env::var("CI").as_deref() != Ok("true"), "CI must do this here: {needs}");
}

/// The version of the running kernel.
fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux says what it is");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process has the right to mount, and the kernel knows the file system.
fn may_mount(file_system: &str) -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    effective >> CAP_SYS_ADMIN & 1 == 1 && known.split_whitespace().any(|word| word == file_system)
}

fn contents(path: &Path, magic: &[u8; 8]) -> Result<Contents, InspectError> {
    inspect(path, magic, &mut |_, _| ControlFlow::Continue(())).map(|found| found.contents)
}

/// A directory on the file system that the build is on.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn on_tmpfs() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in("/dev/shm").ok();
    if directory.is_none() {
        // Every Linux has it but some containers.
        skip_unless(Path::new("/dev/shm").is_dir(), "/dev/shm that can be written, which this machine does not have");
    }
    directory
}

/// Opens what one alone may have open, when others have let go of it: the kernel does when the last operation on a drive is over, which may be a moment after its media is
/// gone; and a program that another test starts has what is open here, too, until it begins, which may take long on a machine with much to do.
fn patiently<T, E>(mut open: impl FnMut() -> Result<T, E>, is_in_use: impl Fn(&E) -> bool) -> Result<T, E> {
    let mut tries = 0..1000;
    loop {
        match open() {
            Err(error) if is_in_use(&error) && tries.next().is_some() => thread::sleep(Duration::from_millis(10)),
            opened => return opened,
        }
    }
}

fn open_patiently(path: &Path, direct: DirectIo) -> Result<DriveFile, OpenDriveError> {
    let is_in_use = |error: &OpenDriveError| matches!(error, OpenDriveError::InUse { .. });
    patiently(|| DriveFile::open(path, direct, Access::Exclusive), is_in_use)
}

/// What is in a block device that nobody has any more.
fn inspect_patiently(device: &Path, magic: &[u8; 8]) -> Result<Inspection, InspectError> {
    let is_in_use = |error: &InspectError| matches!(error, InspectError::InUse { .. });
    patiently(|| inspect(device, magic, &mut |_, _| ControlFlow::Continue(())), is_in_use)
}

fn drives_at(paths: &[PathBuf], direct: DirectIo) -> Result<Drives, OpenDriveError> {
    let open = |path: &PathBuf| open_patiently(path, direct).map(Arc::new).map(Some);
    let mut drives: Drives = DRIVES.into_iter().zip(paths.iter().map(open).collect::<Result<Vec<_>, _>>()?).collect();
    drives.push((ABSENT, None));
    Ok(drives)
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = DRIVES.iter().map(|drive| directory.join(format!("drive-{drive}"))).collect();
    for path in &paths {
        create_zeroed(path, DRIVE_BYTES_MIN, &mut |_| {}).expect("space");
    }
    paths
}

/// The media, or `None` where the kernel refuses io_uring, which has then been said.
fn media_over(drives: &Drives, backend: Backend) -> Option<Box<dyn Media + Send>> {
    match open_media(drives, &MediaConfig { backend, ..MediaConfig::default() }) {
        Err(OpenMediaError::IoUring(error)) => {
            println!("io_uring is refused: {error}");
            skip("io_uring");
            None
        }
        opened => Some(opened.expect("opens")),
    }
}

fn run(paths: &[PathBuf], direct: DirectIo, backend: Backend) {
    let drives = match drives_at(paths, direct) {
        Err(OpenDriveError::DirectRefused { path, .. }) => {
            // tmpfs has it since Linux 6.6; no package gives it to an older kernel, nor to other file systems that go without.
            const EXT: i64 = 0xEF53;
            const XFS: i64 = 0x5846_5342;
            const TMPFS: i64 = 0x0102_1994;
            let kind = rustix::fs::statfs(&path).expect("a file system").f_type as i64;
            let possible = matches!(kind, EXT | XFS) || kind == TMPFS && kernel() >= (6, 6);
            let name = path.display();
            skip_unless(possible, &format!("O_DIRECT on the file system of {name}, which this kernel does not have"));
            return;
        }
        opened => opened.expect("opens"),
    };
    let is_direct = drives.iter().flat_map(|(_, drive)| drive).all(|drive| drive.is_direct());
    assert_eq!(is_direct, direct == DirectIo::On);
    if media_over(&drives, backend).is_some() {
        conformance::run_all(|| media_over(&drives, backend).expect("opened before"));
    }
}

fn run_in(directory: &Path, direct: DirectIo, backend: Backend) {
    run(&files_in(directory), direct, backend);
}

#[test]
fn memory() {
    let drives = MemoryDrives::new(3, DRIVE_BYTES_MIN);
    conformance::run_all(|| Box::new(MemoryMedia::new(&drives)));
}

#[test]
fn a_fault_switch_that_is_off_changes_nothing() {
    let directory = on_disk();
    let drives = drives_at(&files_in(directory.path()), DirectIo::Auto).expect("opens");
    let inner = || media_over(&drives, Backend::Auto).expect("one of both works");
    conformance::run_all(|| Box::new(FaultyMedia::new(inner(), FaultSwitch::new())));
    conformance::run_all(|| Box::new(PatientMedia::new(inner(), Duration::from_secs(60), SilentDrives::default())));
}

#[test]
fn uring_direct() {
    run_in(on_disk().path(), DirectIo::On, Backend::IoUring);
}

#[test]
fn uring_buffered() {
    run_in(on_disk().path(), DirectIo::Off, Backend::IoUring);
}

#[test]
fn pool_direct() {
    run_in(on_disk().path(), DirectIo::On, Backend::ThreadPool);
}

#[test]
fn pool_buffered() {
    run_in(on_disk().path(), DirectIo::Off, Backend::ThreadPool);
}

#[test]
fn all_ways_on_tmpfs() {
    for direct in [DirectIo::On, DirectIo::Off] {
        for backend in [Backend::IoUring, Backend::ThreadPool] {
            let Some(directory) = on_tmpfs() else { return };
            run_in(directory.path(), direct, backend);
        }
    }
}

/// A switch on real drives: injected faults wake up whoever waits, as real ones do.
#[test]
fn injected_faults_on_real_drives_become_ready() {
    let directory = on_disk();
    let drives = drives_at(&files_in(directory.path()), DirectIo::Auto).expect("opens");
    let switch = FaultSwitch::new();
    for backend in [Backend::Auto, Backend::ThreadPool] {
        let mut media = FaultyMedia::new(media_over(&drives, backend).expect("opens"), switch.clone());
        switch.fail(DRIVES[1]);
        for (id, drive) in DRIVES.into_iter().enumerate() {
            let buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
            let operation = Operation::Read { drive, offset_bytes: 0, buffer, bytes: BLOCK_BYTES };
            media.submit(OperationId(id as u64), operation);
        }
        let mut done = Vec::new();
        while media.in_flight() > 0 {
            media.wait(Duration::from_secs(10), &mut done);
        }
        done.sort_by_key(|completion| completion.id);
        let results: Vec<_> = done.into_iter().map(|completion| completion.result).collect();
        assert_eq!(results, [Ok(()), Err(MediaError::Injected), Ok(())]);
    }
}

/// A drive that is removed is nobody's as soon as what had begun on it has come back, and its number may be another's.
#[test]
fn a_drive_that_is_removed_is_absent_and_free() {
    const READS: u64 = 300;
    for backend in [Backend::IoUring, Backend::ThreadPool] {
        let directory = on_disk();
        let paths = files_in(directory.path());
        let mut drives = drives_at(&paths, DirectIo::Auto).expect("opens");
        let (number, file) = drives.remove(2);
        let Some(media) = media_over(&drives, backend) else { return };
        let mut media = PatientMedia::new(media, Duration::from_secs(60), SilentDrives::default());
        media.add_drive(number, file.expect("opened")).expect("threads and descriptors");
        let read = |media: &mut PatientMedia<_>, count: u64, remove: bool| {
            for id in 0..count {
                let buffer = AlignedBuffer::zeroed(64 << 10);
                let operation = Operation::Read { drive: number, offset_bytes: 0, buffer, bytes: 64 << 10 };
                media.submit(OperationId(id), operation);
            }
            media.kick();
            if remove {
                media.remove_drive(number);
            }
            let mut done = Vec::new();
            while media.in_flight() > 0 {
                media.wait(Duration::from_secs(10), &mut done);
            }
            assert_eq!(done.len() as u64, count);
            done.into_iter().map(|completion| completion.result).collect::<Vec<_>>()
        };
        let results = read(&mut media, READS, true);
        assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(MediaError::Absent))), "{results:?}");
        assert!(results.contains(&Err(MediaError::Absent)), "more than a drive takes at once");
        assert_eq!(media.drive_bytes(number), None);
        assert_eq!(read(&mut media, 1, false), [Err(MediaError::Absent)]);
        let again = open_patiently(&paths[usize::from(number.0)], DirectIo::Auto).expect("it is free");
        media.add_drive(number, Arc::new(again)).expect("threads and descriptors");
        assert_eq!(read(&mut media, 3, false), [Ok(()), Ok(()), Ok(())]);
        media.remove_drive(number);
        open_patiently(&paths[usize::from(number.0)], DirectIo::Auto).expect("it is free");
    }
}

/// A file that somebody cuts off under a running server answers as a drive that ended.
#[test]
fn a_file_that_is_cut_off_is_short() {
    for backend in [Backend::IoUring, Backend::ThreadPool] {
        for direct in [DirectIo::Auto, DirectIo::Off] {
            let directory = on_disk();
            let paths = files_in(directory.path());
            let drives = drives_at(&paths, direct).expect("opens");
            let Some(mut media) = media_over(&drives, backend) else { return };
            File::options().write(true).open(&paths[0]).and_then(|file| file.set_len(6000)).expect("cut off");
            let buffer = AlignedBuffer::zeroed(4 * BLOCK_BYTES);
            let operation = Operation::Read { drive: DRIVES[0], offset_bytes: 0, buffer, bytes: 4 * BLOCK_BYTES };
            media.submit(OperationId(1), operation);
            let mut done = Vec::new();
            while done.is_empty() {
                media.wait(Duration::from_secs(10), &mut done);
            }
            let short = MediaError::Short { offset_bytes: 0, bytes: 4 * BLOCK_BYTES, moved: 6000 };
            assert_eq!(done[0].result, Err(short), "{backend:?} {direct:?}");
            assert_eq!(done[0].buffer.as_ref().map(|buffer| buffer.len()), Some(4 * BLOCK_BYTES));
        }
    }
}

/// Three block devices over files, for as long as this lives.
struct LoopDevices {
    devices: Vec<PathBuf>,
    files: Vec<PathBuf>,
    _directory: tempfile::TempDir,
}

impl LoopDevices {
    fn new() -> Option<Self> {
        let directory = on_disk();
        let files = files_in(directory.path());
        let mut loops = LoopDevices { devices: Vec::new(), files, _directory: directory };
        for file in &loops.files {
            let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
            match output {
                Ok(output) if output.status.success() => {
                    loops.devices.push(String::from_utf8_lossy(&output.stdout).trim().into());
                }
                _ => {
                    // A container may have none and a kernel may be built without: no package mends that. Where the kernel offers
                    // them to root, CI uses them.
                    let possible =
                        is_root() && File::options().read(true).write(true).open("/dev/loop-control").is_ok();
                    skip_unless(possible, "a loop device (root, losetup, and a kernel that gives them)");
                    return None;
                }
            }
        }
        Some(loops)
    }
}

impl Drop for LoopDevices {
    fn drop(&mut self) {
        for device in &self.devices {
            let detached = Command::new("losetup").arg("--detach").arg(device).status();
            assert!(
                thread::panicking() || detached.is_ok_and(|status| status.success()),
                "{} stays behind",
                device.display()
            );
        }
    }
}

/// A mounted file system that can be made to hang.
struct HangingFileSystem {
    mount: PathBuf,
    _loops: LoopDevices,
}

impl HangingFileSystem {
    fn new() -> Option<Self> {
        let loops = LoopDevices::new()?;
        let mount = loops._directory.path().join("mount");
        fs::create_dir(&mount).expect("a directory");
        let device = &loops.devices[0];
        let make = Command::new(tool("mkfs.ext2")?).arg("-q").arg(device).status();
        let mounted = make.is_ok_and(|status| status.success())
            && Command::new("mount").arg(device).arg(&mount).status().is_ok_and(|status| status.success());
        if !mounted {
            // Root of a container may have devices and no right to mount them, and a kernel may not know ext2: no package mends that.
            skip_unless(may_mount("ext2"), "to mount an ext2 file system (root, and a kernel that knows it)");
            return None;
        }
        Some(HangingFileSystem { mount, _loops: loops })
    }

    fn freeze(&self, option: &str) -> bool {
        Command::new("fsfreeze").arg(option).arg(&self.mount).status().is_ok_and(|status| status.success())
    }
}

impl Drop for HangingFileSystem {
    fn drop(&mut self) {
        // Not hanging any more, unless the test ended in between.
        let _ = Command::new("fsfreeze").arg("--unfreeze").arg(&self.mount).output();
        let unmounted = Command::new("umount").arg(&self.mount).status();
        assert!(
            thread::panicking() || unmounted.is_ok_and(|status| status.success()),
            "{} stays behind",
            self.mount.display()
        );
    }
}

/// However much is in flight on a drive that hangs: starting it takes no time, and the other drives go on.
#[test]
fn a_drive_that_hangs_holds_up_no_other() {
    for backend in [Backend::IoUring, Backend::ThreadPool] {
        for direct in [DirectIo::Auto, DirectIo::Off] {
            let Some(hanging) = HangingFileSystem::new() else { return };
            let directory = on_disk();
            let mut paths = files_in(directory.path());
            paths[0] = hanging.mount.join("drive");
            create_zeroed(&paths[0], 1 << 20, &mut |_| {}).expect("space");
            let drives = drives_at(&paths, direct).expect("opens");
            let Some(mut media) = media_over(&drives, backend) else { return };
            if !hanging.freeze("--freeze") {
                // It was mounted, and every ext2 can be frozen.
                skip("fsfreeze");
                return;
            }
            let buffer = Arc::new(AlignedBuffer::zeroed(BLOCK_BYTES));
            let mut write = |id: u64, drive| {
                let offset_bytes = id % 100 * BLOCK_BYTES as u64;
                let buffer = Arc::clone(&buffer);
                media.submit(OperationId(id), Operation::Write { drive, offset_bytes, buffer, bytes: BLOCK_BYTES });
            };
            (0..500).for_each(|id| write(id, DRIVES[0]));
            (500..1000).for_each(|id| write(id, DRIVES[1]));
            (1000..1500).for_each(|id| write(id, DRIVES[2]));
            let mut done = Vec::new();
            media.kick();
            let mut waits = 0;
            while done.len() < 1000 && waits < 5000 {
                media.wait(Duration::from_millis(20), &mut done);
                waits += 1;
            }
            let done_meanwhile = done.len();
            assert!(hanging.freeze("--unfreeze"));
            assert_eq!(done_meanwhile, 1000, "{backend:?} {direct:?}: other drives wait for the one that hangs");
            assert!(done.iter().all(|completion| completion.id.0 >= 500 && completion.result.is_ok()));
            while media.in_flight() > 0 {
                media.wait(Duration::from_secs(10), &mut done);
            }
            assert!(done.iter().all(|completion| completion.result.is_ok()) && done.len() == 1500);
            drop(media);
            assert_eq!(Arc::strong_count(&buffer), 1);
            drop(drives);
        }
    }
}

#[test]
fn all_ways_on_block_devices() {
    let Some(loops) = LoopDevices::new() else { return };
    for direct in [DirectIo::On, DirectIo::Off] {
        for backend in [Backend::IoUring, Backend::ThreadPool] {
            run(&loops.devices, direct, backend);
        }
    }
}

/// A completed write has been flushed by the device, not only taken by it.
#[test]
fn completed_writes_are_flushed() {
    let Some(loops) = LoopDevices::new() else { return };
    let name = loops.devices[0].file_name().expect("a name");
    // The 16th field counts flushes, since Linux 5.5.
    let flushes = || -> Option<u64> {
        let counts = fs::read_to_string(Path::new("/sys/block").join(name).join("stat")).ok()?;
        counts.split_whitespace().nth(15)?.parse().ok()
    };
    if flushes().is_none() {
        skip_unless(kernel() >= (5, 5), "the kernel to count flushes (Linux 5.5)");
        return;
    }
    for direct in [DirectIo::On, DirectIo::Off] {
        for backend in [Backend::IoUring, Backend::ThreadPool] {
            let drives = drives_at(&loops.devices, direct).expect("opens");
            let Some(mut media) = media_over(&drives, backend) else { return };
            let mut done = Vec::new();
            for round in 1..5 {
                let before = flushes();
                let buffer = Arc::new(AlignedBuffer::copied(&[round; BLOCK_BYTES]));
                let operation = Operation::Write { drive: DRIVES[0], offset_bytes: 0, buffer, bytes: BLOCK_BYTES };
                media.submit(OperationId(1), operation);
                while media.in_flight() > 0 {
                    media.wait(Duration::from_secs(10), &mut done);
                }
                assert!(flushes() > before, "{direct:?} {backend:?}: no flush for write {round}");
            }
            assert!(done.iter().all(|completion| completion.result.is_ok()));
        }
    }
}

#[test]
fn a_block_device_is_opened_by_one_and_its_file_by_nobody() {
    const MAGIC: [u8; 8] = *b"MEDIATST";
    let Some(loops) = LoopDevices::new() else { return };
    let (device, file) = (&loops.devices[0], &loops.files[0]);
    let free = inspect_patiently(device, &MAGIC).expect("free");
    assert_eq!((free.contents, free.bytes, free.read_bytes), (Contents::Zeroed, DRIVE_BYTES_MIN, DRIVE_BYTES_MIN));
    assert!(free.is_whole && !free.has_holes);
    let error = contents(file, &MAGIC).expect_err("behind the device");
    assert!(error.to_string().contains("behind /dev/loop"), "{error}");

    let drive = open_patiently(device, DirectIo::Auto).expect("free");
    assert_eq!(drive.bytes(), DRIVE_BYTES_MIN);
    assert_ne!(drive.kind(), DriveKind::Unknown, "the kernel says for every block device");
    let error = DriveFile::open(device, DirectIo::Auto, Access::Exclusive).expect_err("taken");
    assert!(matches!(error, OpenDriveError::InUse { .. }), "{error}");
    let error = contents(device, &MAGIC).expect_err("taken");
    assert!(matches!(error, InspectError::InUse { .. }), "{error}");
    drive.write_at(0, &AlignedBuffer::copied(&MAGIC), BLOCK_BYTES).expect("writes");
    drop(drive);
    assert_eq!(inspect_patiently(device, &MAGIC).expect("free").contents, Contents::ForebayDrive);
}

fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = places.map(|place| place.join(name)).find(|tool| tool.is_file());
    if found.is_none() {
        skip(name);
    }
    found
}

/// What the real tools write is recognised, not only what this crate believes that they write.
#[test]
fn what_real_tools_make_is_recognised() {
    let directory = on_disk();
    let cases: [(&str, &[&str], &str); 6] = [
        ("mkfs.ext2", &["-q"], "ext2 file system"),
        ("mkfs.ext3", &["-q"], "ext3 file system"),
        ("mkfs.ext4", &["-q"], "ext4 file system"),
        ("mkswap", &[], "swap space"),
        ("gzip", &["-k"], "gzip file"),
        ("tar", &["-cf"], "tar archive"),
    ];
    for (name, arguments, wanted) in cases {
        let Some(tool) = tool(name) else { continue };
        let mut path = directory.path().join(name);
        create_zeroed(&path, 16 << 20, &mut |_| {}).expect("space");
        let mut command = Command::new(tool);
        command.args(arguments);
        if name == "tar" {
            let archive = directory.path().join("archive");
            command.arg(&archive).arg("-C").arg(directory.path()).arg("tar");
            path = archive;
        } else {
            command.arg(&path);
        }
        let output = command.output().expect("runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        if name == "gzip" {
            path.set_extension("gz");
        }
        let found = contents(&path, b"MEDIATST").expect("readable");
        assert!(matches!(&found, Contents::Known { what, .. } if what == wanted), "{name}: {found:?}");
    }
}

#[test]
fn this_program_is_no_drive() {
    let path = std::env::current_exe().expect("a path");
    let mut first = [0; 8];
    File::open(&path).and_then(|file| file.read_exact_at(&mut first, 0)).expect("reads");
    let known = Contents::Known { what: "ELF program or library".into(), offset: 0 };
    assert_eq!(contents(&path, b"MEDIATST").expect("readable"), known);
    assert_eq!(contents(&path, &first).expect("readable"), Contents::ForebayDrive);
}
