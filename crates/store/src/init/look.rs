//! What the drives hold, before anything is written.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use forebay_media::{Contents, DriveIdentity, DriveKind, InspectError, Inspection, inspect};
use forebay_types::limits::BLOCK_BYTES;
use rustix::fs::Access;

use super::{InitError, InitOptions, InitProgress, MAGIC, Sampled};

/// A drive that is to be, before anything is written.
pub(super) struct NewDrive {
    pub path: PathBuf,
    /// Its size, whole blocks.
    pub bytes: u64,
    pub make: Make,
    pub kind: DriveKind,
    /// Said when not all of it was read.
    pub sampled: Option<Sampled>,
}

/// What has to be done to have a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Make {
    /// It is there, and has space for all that it may hold.
    Nothing,
    /// A new file.
    Create,
    /// A file that is there is written with zeros, all of it.
    Overwrite {
        /// Nothing else is in it now.
        holds_zeros: bool,
    },
}

/// Looks at all drives, at those of different devices at the same time. The first one, in their order, that cannot be taken is told.
pub(super) fn look(
    paths: &[PathBuf],
    options: &InitOptions,
    progress: &mut dyn FnMut(InitProgress),
) -> Result<Vec<NewDrive>, InitError> {
    // Disks that are read from several places at once are slow.
    let mut of_device: BTreeMap<Option<(bool, u64)>, Vec<usize>> = BTreeMap::new();
    for (at, path) in paths.iter().enumerate() {
        let device = match DriveIdentity::of(path) {
            Ok(DriveIdentity::Device(device)) => Some((true, device)),
            Ok(DriveIdentity::File { file_system, .. }) => Some((false, file_system)),
            Ok(DriveIdentity::Missing { .. }) | Err(_) => None,
        };
        of_device.entry(device).or_default().push(at);
    }
    let mut looks: Vec<Option<Result<NewDrive, InitError>>> = paths.iter().map(|_| None).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (tell, told) = channel();
        for drives in of_device.into_values() {
            let (tell, stop) = (tell.clone(), &stop);
            scope.spawn(move || look_at_each(drives, paths, options, &tell, stop));
        }
        drop(tell);
        let mut amounts = vec![(0, 0); paths.len()];
        for told in told {
            match told {
                Told::Read { at, read_bytes, total_bytes } => {
                    amounts[at] = (read_bytes, total_bytes);
                    let (read_bytes, total_bytes) =
                        amounts.iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
                    progress(InitProgress::Looking { read_bytes, total_bytes });
                }
                Told::Seen { at, drive } => looks[at] = Some(*drive),
            }
        }
    });
    let (mut drives, mut stopped) = (Vec::new(), None);
    for (look, path) in looks.into_iter().zip(paths) {
        match look.unwrap_or_else(|| Err(InspectError::Stopped { path: path.clone() }.into())) {
            Ok(drive) => drives.push(drive),
            // Another one was the reason.
            Err(error @ InitError::Inspect(InspectError::Stopped { .. })) => stopped = Some(error),
            Err(error) => return Err(error),
        }
    }
    stopped.map_or(Ok(drives), Err)
}

/// What a thread that looks at drives tells.
enum Told {
    Read { at: usize, read_bytes: u64, total_bytes: u64 },
    Seen { at: usize, drive: Box<Result<NewDrive, InitError>> },
}

fn look_at_each(drives: Vec<usize>, paths: &[PathBuf], options: &InitOptions, tell: &Sender<Told>, stop: &AtomicBool) {
    for at in drives {
        let path = &paths[at];
        let mut progress = |read_bytes, total_bytes| {
            // Whoever listens does so until all have ended.
            let _ = tell.send(Told::Read { at, read_bytes, total_bytes });
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let inspected = inspect(path, &MAGIC, &mut progress).map_err(InitError::from);
        let drive = inspected.and_then(|found| judge(path, found, options));
        if drive.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let _ = tell.send(Told::Seen { at, drive: Box::new(drive) });
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Whether a drive can be taken, and what has to be done for it.
fn judge(path: &Path, found: Inspection, options: &InitOptions) -> Result<NewDrive, InitError> {
    let block = BLOCK_BYTES as u64;
    let wanted = options.drive_bytes.map(|bytes| bytes / block * block);
    let kind = DriveKind::of(path);
    let drive = |bytes, make, sampled| Ok(NewDrive { path: path.to_owned(), bytes, make, kind, sampled });
    let what = match found.contents {
        Contents::Missing | Contents::Empty => {
            let bytes = wanted.ok_or_else(|| InitError::NoSize(path.to_owned()))?;
            check_writable(path, found.contents == Contents::Missing)?;
            return drive(bytes, Make::Create, None);
        }
        Contents::Zeroed => None,
        Contents::ForebayDrive => Some("a drive of a Forebay store".to_owned()),
        Contents::Known { what, offset } => Some(format!("{what} (its mark is at byte {offset})")),
        Contents::Unknown { first_nonzero_offset, first_bytes } => {
            let shown: Vec<String> = first_bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Some(format!("unknown data (from byte {first_nonzero_offset}: {})", shown.join(" ")))
        }
    };
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let holds_zeros = what.is_none() && found.is_whole;
    let other_size = wanted.filter(|wanted| is_file && *wanted != found.bytes);
    if !options.force {
        let refuse = |what| Err(InitError::NotEmpty { path: path.to_owned(), what });
        match (what, other_size) {
            (Some(what), _) => return refuse(what),
            (None, Some(wanted)) => {
                return refuse(format!("{} zero bytes, and --drive-bytes says {wanted}", found.bytes));
            }
            (None, None) => {}
        }
    }
    check_writable(path, false)?;
    let sampled = (!options.force && !found.is_whole).then(|| Sampled {
        path: path.to_owned(),
        bytes: found.bytes,
        read_bytes: found.read_bytes,
    });
    let bytes = other_size.unwrap_or(found.bytes / block * block);
    // What has no space of its own yet fails when its file system has none left, and all such drives fail together.
    let make = if is_file && (other_size.is_some() || found.has_holes) {
        Make::Overwrite { holds_zeros }
    } else {
        Make::Nothing
    };
    drive(bytes, make, sampled)
}

/// Whether this user may write to a drive, or make it.
fn check_writable(path: &Path, is_new: bool) -> Result<(), InitError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (place, rights) =
        if is_new { (directory, Access::WRITE_OK | Access::EXEC_OK) } else { (path, Access::WRITE_OK) };
    let shown = place.display();
    let refuse = |why: String, advice: &str| {
        Err(InitError::Place { path: path.to_owned(), why, advice: format!("{advice}, or name another place") })
    };
    if is_new && place.exists() && !place.is_dir() {
        return refuse(format!("{shown} is not a directory"), "Make a directory");
    }
    let Err(error) = rustix::fs::access(place, rights).map_err(io::Error::from) else { return Ok(()) };
    match error.kind() {
        io::ErrorKind::NotFound => refuse(format!("the directory {shown} does not exist"), "Make the directory"),
        io::ErrorKind::PermissionDenied => {
            let advice = "Change its permissions, run as a user who may";
            refuse(format!("this user has no permission to write to {shown}"), advice)
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            refuse(format!("{shown} is on a file system that is mounted read-only"), "Mount it for writing")
        }
        _ => refuse(format!("{shown} cannot be written to: {error}"), "See to that"),
    }
}
