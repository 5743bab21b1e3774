//! Where the demo works: a scratch directory for the drives and the server, and a directory for the shipped files.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::left;
use super::plan::Plan;
use super::{DATA, DemoCommand, PARITY};
use crate::failure::Failure;
use crate::output::Output;
use crate::size::human_bytes;

/// Memory as a file system, where there is one.
const MEMORY: &str = "/dev/shm";
/// Of the bytes that are written so much is shipped, with some room.
const SHIPPED_FRACTION: f64 = 0.15;
/// Room for logs and whatever else.
const SLACK_BYTES: u64 = 256 << 20;

/// The directories of a demo.
pub struct Place {
    scratch: TempDir,
    out: Option<PathBuf>,
    /// Says that the scratch directory is in use.
    lock: Option<File>,
}

impl Place {
    /// Makes the directories.
    ///
    /// # Errors
    /// A directory that cannot be used, or no room.
    pub fn make(command: &DemoCommand, plan: &Plan, output: &Output) -> Result<Place, Failure> {
        if let Some(out) = &command.out {
            prepare_out(out)?;
        }
        let drives = match command.pool.store() {
            None => u64::from(DATA + PARITY).saturating_mul(command.drive_bytes),
            Some(_) => 0,
        };
        let shipped = if command.out.is_some() { 0 } else { (plan.bytes as f64 * SHIPPED_FRACTION) as u64 };
        let needed = drives.saturating_add(shipped).saturating_add(SLACK_BYTES);
        // First, since they hold the room that is looked for.
        match &command.dir {
            Some(directory) => left::remove(directory, output),
            None => [Path::new(MEMORY), &std::env::temp_dir()].iter().for_each(|parent| left::remove(parent, output)),
        }
        let parent = parent(command, needed)?;
        let scratch = tempfile::Builder::new().prefix(left::PREFIX).tempdir_in(&parent);
        let scratch = scratch.map_err(|error| {
            Failure::file("make a directory in", &parent, &error, "nothing was started; name another one by --dir")
        })?;
        let lock = left::lock(scratch.path());
        let place = Place { scratch, out: command.out.clone(), lock };
        let out = place.out();
        fs::create_dir_all(&out).map_err(|error| Failure::file("make", &out, &error, "nothing was started"))?;
        Ok(place)
    }

    /// The scratch directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The drives of the store, by their numbers.
    pub fn drives(&self) -> Vec<PathBuf> {
        (0..DATA + PARITY).map(|number| self.scratch().join(format!("drive{number}"))).collect()
    }

    /// Where the files are shipped to.
    pub fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| self.scratch().join("out"))
    }

    /// The server's log.
    pub fn log(&self) -> PathBuf {
        self.scratch().join("server.log")
    }

    /// What the command of `--half-way` says.
    pub fn half_way_log(&self) -> PathBuf {
        self.scratch().join("half-way.log")
    }

    /// The server's configuration.
    pub fn config(&self) -> PathBuf {
        self.scratch().join("forebay.toml")
    }

    /// Copies the log to where it outlives the scratch directory.
    pub fn keep_log(&self) -> Option<PathBuf> {
        let kept = std::env::temp_dir().join(format!("forebay-demo-{}-server.log", std::process::id()));
        fs::copy(self.log(), &kept).ok().map(|_| kept)
    }

    /// Removes the scratch directory, or keeps it.
    pub fn finish(self, keep: bool, output: &Output) {
        if keep {
            let path = self.scratch.keep();
            left::unlock(&path, self.lock);
            output.note(&format!("kept {}", path.display()));
            return;
        }
        let path = self.scratch.path().to_owned();
        if let Err(error) = self.scratch.close() {
            output.note(&format!("forebay: {} could not be removed: {error}; remove it by hand", path.display()));
        }
    }
}

/// Where the scratch directory goes.
fn parent(command: &DemoCommand, needed: u64) -> Result<PathBuf, Failure> {
    if let Some(parent) = &command.dir {
        let free = free_bytes(parent).map_err(|error| {
            Failure::file("use", parent, &error, "nothing was started; name another directory by --dir")
        })?;
        return if free >= needed { Ok(parent.clone()) } else { Err(no_room(parent, needed, free)) };
    }
    let memory = Path::new(MEMORY);
    // A file system in memory is worth what is free of both.
    let fits = |free: u64| free >= needed && memory_free_bytes() >= needed.saturating_add(needed / 2);
    if free_bytes(memory).is_ok_and(fits) {
        return Ok(memory.to_owned());
    }
    let parent = std::env::temp_dir();
    let free = free_bytes(&parent).unwrap_or(0);
    if free >= needed { Ok(parent) } else { Err(no_room(&parent, needed, free)) }
}

fn no_room(place: &Path, needed: u64, free: u64) -> Failure {
    Failure::retry(format!(
        "{} has {} free and the demo needs {}; nothing was started. Name another directory by --dir, or take smaller drives by --drive-bytes",
        place.display(),
        human_bytes(free),
        human_bytes(needed)
    ))
}

fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Memory that can be had without pushing others out, as the kernel estimates it.
fn memory_free_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Refuses what holds other files or cannot be written, before anything starts.
fn prepare_out(out: &Path) -> Result<(), Failure> {
    let refuse = |error: &io::Error| {
        Failure::file("write into", out, error, "nothing was started; give --out a directory that you may write to")
    };
    fs::create_dir_all(out).map_err(|error| refuse(&error))?;
    let first = fs::read_dir(out).map_err(|error| refuse(&error))?.next();
    if let Some(entry) = first {
        let name = entry.map_err(|error| refuse(&error))?.file_name();
        return Err(Failure::usage(format!(
            "{} is not empty (it holds {}); nothing was started. Give --out a new or empty directory",
            out.display(),
            name.display()
        )));
    }
    tempfile::tempfile_in(out).map(drop).map_err(|error| refuse(&error))
}
