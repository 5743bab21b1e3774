//! The library as programs find it: installed in a directory of the test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::libraries;

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];

/// Where it is installed.
pub struct Installed {
    place: tempfile::TempDir,
}

/// What a program printed, once it has ended well.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout.into_owned()
}

impl Installed {
    pub fn new() -> Installed {
        let place = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(Path::new(ROOT).join("../../tools/install-c.sh"));
        let prefix = place.path().join("usr");
        command.env("PREFIX", &prefix).env_remove("DESTDIR").env("FOREBAY_C_LIBRARIES", libraries());
        assert!(run(&mut command).contains("libforebay 0."));
        Installed { place }
    }

    pub fn place(&self) -> &Path {
        self.place.path()
    }

    pub fn prefix(&self) -> PathBuf {
        self.place.path().join("usr")
    }

    pub fn pkg_config(&self, wanted: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig")).args(wanted).arg("forebay");
        run(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles an example; the program.
    pub fn compile(&self, compiler: &str, standard: &str, source: &str) -> PathBuf {
        let program = self.place.path().join(source.replace('.', "-"));
        let mut command = Command::new(compiler);
        command.arg(format!("-std={standard}")).args(STRICT).arg("-o").arg(&program);
        command.arg(Path::new(ROOT).join("examples").join(source)).args(self.pkg_config(&["--cflags", "--libs"]));
        run(&mut command);
        program
    }

    /// Runs a program that finds the library where it is installed.
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(&self, program: &Path, words: &[S]) -> String {
        run(Command::new(program).env("LD_LIBRARY_PATH", self.prefix().join("lib")).args(words))
    }
}
