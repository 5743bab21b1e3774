//! How many files this program may have open: each connection of a client is one, and each client has one more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as it may be raised.
///
/// # Panics
/// When that is not enough for `wanted`.
pub fn raise(wanted: usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("a limit may be raised up to its maximum");
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(files >= wanted as u64, "this needs {wanted} open files, and may have {files}: ulimit -Hn raises that");
}
