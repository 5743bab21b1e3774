//! Programs that run beside a test, and what is in directories then.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process};

/// A `forebay` that runs; killed when it is dropped.
pub struct Running(pub Child);

impl Running {
    /// Starts one, whose words nobody hears, or a file.
    pub fn start(arguments: Vec<String>, stderr: Stdio) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        // XRootD's programs ask for the machine's own name, which not every name server answers.
        command.env("RES_OPTIONS", "timeout:1 attempts:1");
        Running(command.spawn().expect("it starts"))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// SIGTERM; how it ended.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.0.wait().expect("it ends").code()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill().expect("ours to kill");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so.
pub fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// By what a mover knows a directory again.
pub const MARK: &str = ".forebay-place";

/// All files below a directory, by their names there, but for the mark by which a mover knows it again. What gets another name meanwhile is looked for again.
pub fn files_below(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    loop {
        match read_below(directory) {
            Ok(files) => return files,
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory.exists() => {}
            Err(error) => panic!("{}: {error}", directory.display()),
        }
    }
}

fn read_below(directory: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in walkdir::WalkDir::new(directory) {
        let entry = entry?;
        if entry.file_type().is_file() && entry.file_name() != MARK {
            let name = entry.path().strip_prefix(directory).expect("below").to_str().expect("text").to_owned();
            files.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(files)
}
