//! What a client is told, and what it learns in the greeting.

use std::time::Duration;

use forebay_protocol::{Class, HelloReply};
use forebay_types::StoreUuid;

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The server, `HOST:PORT`; or several with commas between them, of which one has the store at a time: another one is tried when one does not answer.
    pub address: String,
    /// The name in the server's log.
    pub name: String,
    /// What the client is for; a busy server serves the first classes first.
    pub class: Class,
    /// A batch of puts leaves when it has so many bytes (default 1 MiB).
    pub batch_bytes: usize,
    /// A batch of puts leaves when its first put is so old (default 2 ms).
    pub batch_delay: Duration,
    /// How long a request is repeated before it is given up, counted from the last part of its answer that came (default 60 s); `None`: for
    /// ever.
    pub deadline: Option<Duration>,
    /// How long connecting and greeting may take before they are tried again (default 5 s).
    pub connect_timeout: Duration,
    /// Whether [`crate::Client::connect`] ends at once when nothing listens at the address, instead of trying until the deadline (default: no). Where several
    /// servers are named it tries in any case: when the one that has the store dies, nothing listens until another has taken it over.
    pub must_listen: bool,
    /// Whether a server on the same machine is reached by a socket of that machine, and large pieces of files by memory that is shared with it, instead of the network
    /// (default: yes).
    pub local: bool,
    /// Spreads the waits of clients that lost the same server; any number, best another for each client.
    pub seed: u64,
}

impl ClientConfig {
    /// The defaults, as [`Class::Readout`].
    pub fn new(address: impl Into<String>, name: impl Into<String>) -> Self {
        ClientConfig {
            address: address.into(),
            name: name.into(),
            class: Class::Readout,
            batch_bytes: 1 << 20,
            batch_delay: Duration::from_millis(2),
            deadline: Some(Duration::from_secs(60)),
            connect_timeout: Duration::from_secs(5),
            must_listen: false,
            local: true,
            seed: u64::from(std::process::id()),
        }
    }

    /// Whether the address is a list: of a store that one of several servers has.
    pub(crate) fn has_several_servers(&self) -> bool {
        self.address.contains(',')
    }

    /// The same for another class.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        ClientConfig { class, ..self }
    }

    /// The same with another deadline.
    #[must_use]
    pub fn deadline(self, deadline: Option<Duration>) -> Self {
        ClientConfig { deadline, ..self }
    }
}

/// What the server said of itself in the last greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The store.
    pub store: StoreUuid,
    /// Counts the starts of the store.
    pub epoch: u64,
    /// The lanes of the store.
    pub lanes: u16,
    /// The largest fragment that it takes, in bytes.
    pub fragment_bytes_max: u32,
    /// The largest payload of a frame that the server takes, in bytes.
    pub frame_payload_bytes_max: u32,
    /// Whether puts, decisions and releases are refused.
    pub read_only: bool,
    /// Name and version of the server.
    pub server: String,
    /// The version of the protocol that is spoken.
    pub protocol_version: u16,
}

impl From<&HelloReply> for ServerInfo {
    fn from(reply: &HelloReply) -> Self {
        ServerInfo {
            store: reply.store,
            epoch: reply.epoch,
            lanes: reply.lanes,
            fragment_bytes_max: reply.fragment_bytes_max,
            frame_payload_bytes_max: reply.frame_payload_bytes_max,
            read_only: reply.read_only,
            server: reply.server.clone(),
            protocol_version: reply.protocol_version,
        }
    }
}
