//! What the tests of the library share.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod abi;
pub mod credentials;
pub mod door;
pub mod installed;
pub mod process;
pub mod world;

use std::path::PathBuf;

/// Where the libraries lie that were built with this test.
pub fn libraries() -> PathBuf {
    std::env::current_exe().expect("this test").parent().expect("a directory").to_owned()
}

/// Whether a program is there; says so when it is not.
pub fn needs(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
        return true;
    }
    println!("skipped: needs {program}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have {program}");
    false
}
