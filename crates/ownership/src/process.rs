//! Which process it is, so that others can say whether it is gone.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// A process, as far as others know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// The name of its machine.
    pub(crate) host: String,
    /// What the machine's installation calls itself; empty when it has no name.
    pub(crate) machine_id: String,
    /// Another one after each start of the machine.
    pub(crate) boot_id: String,
    /// Where its number means it.
    pub(crate) pid_namespace: u64,
    pub(crate) pid: u32,
    /// When it was started, in ticks of its machine: numbers of processes are used again.
    pub(crate) started: u64,
    /// The number of the file system, on its machine, by which it reaches the drive.
    pub(crate) file_system: u64,
}

impl Process {
    /// This one, which reaches the drive by this file system.
    pub(crate) fn own(file_system: u64) -> Process {
        let read = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let pid = std::process::id();
        Process {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            machine_id: read("/etc/machine-id"),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino()),
            pid,
            started: started(pid).unwrap_or_default(),
            file_system,
        }
    }

    /// Whether it is known here that this process runs no more: it ran on this machine, and is not there; or the machine was started anew since. What it had asked of
    /// the file system is over only when its locks are gone, too. Of a process of another machine nothing is known.
    pub(crate) fn is_known_gone(&self, here: &Process) -> bool {
        if self.boot_id.is_empty() || here.boot_id.is_empty() {
            return false;
        }
        if self.boot_id == here.boot_id {
            let is_visible = (self.pid_namespace, self.file_system) == (here.pid_namespace, here.file_system);
            return is_visible && here.pid_namespace != 0 && started(self.pid) != Some(self.started);
        }
        !self.machine_id.is_empty() && self.machine_id == here.machine_id && self.host == here.host
    }
}

/// When a process that runs was started; nothing when there is none, or it has ended and nobody has asked how.
fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // The state is field 3, the start field 22.
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_to_be_gone_only_where_it_would_be_seen() {
        let here = Process::own(7);
        assert!(here.started > 0 && !here.is_known_gone(&here), "{here:?}");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("it runs");
        let of_child = Process { pid: child.id(), started: started(child.id()).expect("it runs"), ..here.clone() };
        assert!(!of_child.is_known_gone(&here));
        child.kill().expect("ours");
        // Until somebody asks how it ended, it is a zombie.
        while !of_child.is_known_gone(&here) {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
        assert!(of_child.is_known_gone(&here));
        let recycled = Process { started: here.started + 1, ..here.clone() };
        assert!(recycled.is_known_gone(&here), "another process has its number now");
        for other in [
            Process { file_system: 8, ..of_child.clone() },
            Process { pid_namespace: 1, ..of_child.clone() },
            Process { boot_id: "b".to_owned(), machine_id: "m".to_owned(), ..of_child.clone() },
            Process { boot_id: String::new(), ..of_child.clone() },
        ] {
            assert!(!other.is_known_gone(&here), "{other:?}");
        }
    }

    #[test]
    fn a_machine_that_was_started_anew_has_none_of_its_processes() {
        let known = Process {
            machine_id: "m".to_owned(),
            boot_id: "b1".to_owned(),
            host: "h".to_owned(),
            ..Process::default()
        };
        let here = Process { boot_id: "b2".to_owned(), ..known.clone() };
        assert!(known.is_known_gone(&here));
        for here in [
            Process { host: "clone".to_owned(), ..here.clone() },
            Process { machine_id: "n".to_owned(), ..here.clone() },
            Process { boot_id: String::new(), ..here.clone() },
        ] {
            assert!(!known.is_known_gone(&here), "{here:?}");
        }
        let nameless = Process { machine_id: String::new(), ..known };
        assert!(!nameless.is_known_gone(&Process { boot_id: "b2".to_owned(), ..nameless.clone() }));
    }
}
