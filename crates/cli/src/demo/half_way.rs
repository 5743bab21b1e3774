//! The command that a demo runs when half of its events are acknowledged.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use super::place::Place;
use crate::failure::{Exit, Failure};

/// Of what it said so much is told when it fails.
const TOLD_BYTES: usize = 4096;

/// The command while it runs. Dropped, it is killed.
pub struct HalfWay {
    child: Child,
    command: String,
}

impl HalfWay {
    /// Starts it.
    ///
    /// # Errors
    /// The machine has no shell, or no room for what it says.
    pub fn start(command: &str, place: &Place, server: &str) -> Result<HalfWay, Failure> {
        let said = place.half_way_log();
        let failed = |error| Failure::file("write", &said, &error, "the command of --half-way was not run");
        // A file, not a pipe: what the command leaves running may hold that open for ever.
        let log = File::create(&said).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let started = Command::new("sh")
            .args(["-c", command])
            .env("FOREBAY_SERVER", server)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        let child =
            started.map_err(|error| Failure::retry(format!("the command of --half-way cannot be run: sh: {error}")))?;
        Ok(HalfWay { child, command: command.to_owned() })
    }

    /// Whether it has ended, and well.
    ///
    /// # Errors
    /// It failed: with its exit code, and what it said.
    pub fn is_done(&mut self, place: &Place) -> Result<bool, Failure> {
        let ended = self.child.try_wait();
        let status = ended.map_err(|error| Failure::retry(format!("the command of --half-way: {error}")))?;
        let Some(status) = status else { return Ok(false) };
        if status.success() {
            return Ok(true);
        }
        let said = fs::read(place.half_way_log()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(TOLD_BYTES)..]).into_owned();
        let words =
            format!("the command of --half-way ended with {status}, and the demo with it: {}\n{said}", self.command);
        let exit = status.code().and_then(|code| u8::try_from(code).ok()).map_or(Exit::Retry, Exit::Of);
        Err(Failure { exit, ..Failure::retry(words.trim_end()) })
    }
}

impl Drop for HalfWay {
    fn drop(&mut self) {
        // One that has ended is nobody's any more, which the standard library knows.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
