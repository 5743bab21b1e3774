//! A store whose server is killed and started again.

use super::{Drives, Ran, Server};

pub struct Store {
    pub drives: Drives,
    pub server: Server,
}

impl Store {
    pub fn start() -> Store {
        let drives = Drives::five();
        let mut server = drives.serve();
        server.collect_log();
        Store { drives, server }
    }

    /// SIGKILL, and a new server at the same address.
    pub fn restart(&mut self) {
        self.server.replace_killed(&[], &self.drives.paths);
        self.server.collect_log();
    }

    /// A command of it, its words with spaces between.
    pub fn ask(&self, words: &str) -> Ran {
        self.server.run(&words.split(' ').collect::<Vec<_>>())
    }
}
