//! Where the plug-in of XRootD and the library for C are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

const BUILT_SO: &str = "make install-c PREFIX=/usr/local
cmake -S plugins/xrootd -B /tmp/forebay-xrootd -DCMAKE_INSTALL_PREFIX=/usr/local -DCMAKE_PREFIX_PATH=/usr/local -DCMAKE_INSTALL_LIBDIR=lib
cmake --build /tmp/forebay-xrootd && cmake --install /tmp/forebay-xrootd";

/// A directory with `lib` and `include`.
pub struct Prefix(PathBuf);

impl Prefix {
    /// One that has both.
    ///
    /// # Panics
    /// Where something is missing; it says how that is made.
    pub fn at(path: &Path) -> Prefix {
        for name in ["lib/libXrdForebay-5.so", "lib/pkgconfig/forebay.pc", "include/forebay.hpp"] {
            let there = path.join(name);
            assert!(
                there.exists(),
                "{} is missing. With --xrootd-prefix, or below /usr/local, there must be what this installs:\n{BUILT_SO}",
                there.display()
            );
        }
        Prefix(path.to_owned())
    }

    /// The storage system for XRootD, as its configuration names it.
    pub fn plugin(&self) -> String {
        self.0.join("lib/libXrdForebay.so").display().to_string()
    }

    /// Compiles a program of C++ over the library.
    ///
    /// # Panics
    /// Where that fails.
    pub fn compile(&self, source: &Path, program: &Path) {
        let lib = self.0.join("lib");
        let mut flags = Command::new("pkg-config");
        flags.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).args(["--cflags", "--libs", "forebay"]);
        let flags = flags.output().expect("needs pkg-config");
        let flags = String::from_utf8(flags.stdout).expect("text");
        let mut compile = Command::new("c++");
        compile.args(["-std=c++17", "-O2", "-o"]).arg(program).arg(source).args(flags.split_whitespace());
        compile.arg(format!("-Wl,-rpath,{}", lib.display()));
        assert!(compile.status().expect("needs c++").success(), "{} is not compiled", source.display());
    }
}
