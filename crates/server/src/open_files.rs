//! How many files the process may have open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside connections: drives, polls, the log.
const OTHER_FILES: u64 = 512;

/// Raises the limit on open files as far as it may be raised, and says so when it is too low for so many connections.
pub(crate) fn raise_open_files(connections_max: usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
    let (files, wanted) = (open_files_max(), (connections_max as u64).saturating_add(OTHER_FILES));
    if files < wanted {
        tracing::warn!(
            "the process may have {files} files open, {wanted} are needed for connections-max = {connections_max}: clients beyond that will \
             wait. Raise it (LimitNOFILE= of systemd, ulimit -n), or configure fewer connections"
        );
    }
}

/// How many files the process may have open.
pub(crate) fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_be() {
        raise_open_files(usize::MAX);
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
