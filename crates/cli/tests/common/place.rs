//! A directory to move from, and what becomes of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use forebay_types::Adler32;
use serde_json::Value;
use tempfile::TempDir;

use super::running::{MARK, Running};
use super::{Ran, forebay, scratch};

/// `daq` is moved to `archive`, with a journal beside them.
pub struct Place(pub TempDir);

impl Place {
    /// With nothing in it.
    pub fn new() -> Place {
        let place = Place(scratch());
        fs::create_dir(place.path("daq")).expect("made");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, bytes).expect("written");
    }

    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.path(name)).ok()
    }

    /// A program of somebody else's.
    pub fn program(&self, script: &str) -> String {
        self.write("program", format!("#!/bin/sh\n{script}\n").as_bytes());
        fs::set_permissions(self.path("program"), fs::Permissions::from_mode(0o755)).expect("changed");
        self.text("program")
    }

    /// Those of a mover to another destination.
    pub fn arguments_to(&self, to: &str, more: &[&str]) -> Vec<String> {
        let (from, journal) = (self.text("daq"), self.text("journal.sqlite"));
        let all = ["move", "--from", &from, "--to", to, "--journal", &journal, "--json"];
        all.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    pub fn arguments(&self, more: &[&str]) -> Vec<String> {
        self.arguments_to(&self.text("archive"), more)
    }

    /// Once, with a tenth of a second between the proofs.
    pub fn once(&self, more: &[&str]) -> Ran {
        forebay(self.arguments(&[&["--once", "--recheck-after", "0.1"], more].concat()))
    }

    /// One that runs until it is told to end.
    pub fn start(&self, more: &[&str]) -> Running {
        Running::start(self.arguments(more), Stdio::null())
    }

    /// The same, without waits.
    pub fn start_at_once(&self, more: &[&str]) -> Running {
        self.start(&[&["--settle", "0", "--recheck-after", "0.1"], more].concat())
    }

    /// `forebay move` with these words, of the journal.
    pub fn ask(&self, words: &[&str]) -> Ran {
        let (first, rest) = words.split_first().expect("a word");
        forebay([&["move", first, "--journal", &self.text("journal.sqlite"), "--json"], rest].concat())
    }

    /// What is known of a file; nothing before it was found.
    pub fn show(&self, name: &str) -> Value {
        if !self.path("journal.sqlite").exists() {
            return Value::Null;
        }
        let shown = self.ask(&["show", name]);
        if shown.exit == 0 { shown.json()["files"][0]["file"].clone() } else { Value::Null }
    }

    pub fn sidecar(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(&format!("archive/{name}.json")).expect("a sidecar")).expect("JSON")
    }

    /// What lies in the archive, hidden files too, but for the mark.
    pub fn archived(&self) -> Vec<PathBuf> {
        let walk = walkdir::WalkDir::new(self.path("archive")).into_iter().flatten();
        let files = walk.filter(|entry| !entry.file_type().is_dir() && entry.file_name() != MARK);
        files.map(walkdir::DirEntry::into_path).collect()
    }
}

/// As sidecars have it.
pub fn adler32(bytes: &[u8]) -> String {
    let mut sum = Adler32::default();
    sum.update(bytes);
    format!("{:08x}", sum.finish())
}
