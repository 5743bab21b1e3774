//! The judge of custody, `tools/judge-custody.py`: it shares no code with what it judges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// What a judge needs to know: a copy of everything that was put, and where to look.
pub struct Judge {
    /// What was ever put, once more.
    put: PathBuf,
    arguments: Vec<String>,
}

/// Whether there is one: it is a program in Python.
pub fn is_here() -> bool {
    let is_here = Command::new("python3").arg("--version").output().is_ok_and(|ended| ended.status.success());
    if !is_here {
        println!("skipped: needs python3");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have python3");
    }
    is_here
}

fn text(path: &Path) -> String {
    path.to_str().expect("text").to_owned()
}

impl Judge {
    /// A judge of files.
    pub fn of_files(put: PathBuf, source: &Path, destinations: &[PathBuf]) -> Judge {
        let memory = text(&put.with_extension("memory"));
        let arguments = ["files", "--source", &text(source), "--memory", &memory].map(str::to_owned).to_vec();
        Judge { put, arguments }.at(destinations)
    }

    /// A judge of events that were accepted in a store.
    pub fn of_events(put: PathBuf, server: &str, destinations: &[PathBuf]) -> Judge {
        let program = env!("CARGO_BIN_EXE_forebay");
        let arguments = ["events", "--server", server, "--forebay", program].map(str::to_owned).to_vec();
        Judge { put, arguments }.at(destinations)
    }

    fn at(mut self, destinations: &[PathBuf]) -> Judge {
        self.arguments.extend(["--put".to_owned(), text(&self.put)]);
        for destination in destinations {
            self.arguments.extend(["--destination".to_owned(), text(destination)]);
        }
        self
    }

    /// Further options.
    pub fn with(mut self, more: &[&str]) -> Judge {
        self.arguments.extend(more.iter().map(|more| (*more).to_owned()));
        self
    }

    /// Notes what is put.
    pub fn note(&self, name: &str, bytes: &[u8]) {
        let path = self.put.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).and_then(|()| fs::write(&path, bytes)).expect("written");
    }

    /// Judges; with `all` when nothing is on its way any more. What it counted.
    #[track_caller]
    pub fn judge(&self, all: bool) -> Value {
        let ended = self.run(all);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        serde_json::from_slice(&ended.stdout).expect("JSON")
    }

    /// It finds a fault, and names it so.
    #[track_caller]
    pub fn condemns(&self, all: bool, words: &str) {
        let ended = self.run(all);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(1) && said.contains("judge: ") && said.contains(words), "{said}");
    }

    fn run(&self, all: bool) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/judge-custody.py");
        let mut command = Command::new("python3");
        command.arg(script).args(&self.arguments).args(all.then_some("--all"));
        command.output().expect("needs python3")
    }
}
