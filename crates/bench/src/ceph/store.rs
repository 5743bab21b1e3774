//! Stores in the pools of a cluster.

use super::cluster::{Cluster, PLACES, POOL};
use crate::process::{Starting, binary};

/// What a store may hold.
const BYTES: &str = "16GiB";
/// Lanes of each store.
const LANES: &str = "2";

/// A store, made anew.
pub struct Store<'a> {
    cluster: &'a Cluster,
    name: String,
    place: tempfile::TempDir,
}

impl<'a> Store<'a> {
    /// Makes it with slots of so many bytes, or of its own choice.
    ///
    /// # Panics
    /// When it cannot be made: then the program beside this one was built without the feature `rados`.
    pub fn make(cluster: &'a Cluster, name: &str, slot_bytes: Option<u64>) -> Store<'a> {
        let store =
            Store { cluster, name: name.to_owned(), place: tempfile::tempdir().expect("a directory can be made") };
        let mut init = cluster.program(binary().to_str().expect("a path of text"));
        init.arg("init").args(store.options()).args(["--drive-bytes", BYTES, "--lanes", LANES, "--force"]);
        init.args(slot_bytes.map(|bytes| format!("--slot-bytes={bytes}")));
        let status = init.stdout(std::io::stderr()).status().expect("the program is there");
        assert!(status.success(), "no store: needs `cargo build --release -p forebay --features rados`");
        store
    }

    fn options(&self) -> Vec<String> {
        ["--media", &format!("rados:{POOL},{PLACES}"), "--name", &self.name].map(str::to_owned).to_vec()
    }

    /// Starts a server of it, with further options.
    pub fn serve(&self, cache_bytes: u64, more: &[&str]) -> Starting {
        let options = self.options().into_iter().chain(more.iter().map(|word| (*word).to_owned()));
        Starting::start(self.place.path(), cache_bytes, options, &[("CEPH_CONF", &self.cluster.config())])
    }
}
