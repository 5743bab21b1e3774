//! How a server is run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// How a server is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where to listen, `IP:PORT`. Port 0 takes any free port. Until clients are authenticated, another address than one of this machine
    /// (127.0.0.0/8, ::1) needs `insecure-network`.
    pub listen: SocketAddr,
    /// Networks, `IP/BITS`, whose machines may connect although nobody checks who they are: whoever can send from there can read, write
    /// and delete everything. Machines outside of them are refused. This machine may always connect.
    pub insecure_network: Vec<IpNet>,
    /// Memory for what arrives and is not taken by a lane yet, in bytes, for each lane: half of it (at least 1 MiB) for what comes in
    /// small parts, a quarter (at least one largest fragment, and 1 MiB) for fragments of more than 256 KiB, a quarter for what connections keep
    /// between two reads.
    pub staging_bytes: usize,
    /// A connection that has so many bytes of replies to read is not served further until it has read half of them.
    pub out_buffer_bytes: usize,
    /// Bytes of puts that a writer may have unanswered when it is alone, which it holds in memory; many writers get less.
    pub credit_bytes: u32,
    /// Connections, all lanes together; more are refused retryably.
    pub connections_max: usize,
    /// A connection that stops in the middle of a frame for so many milliseconds is closed, which frees its share of the staging memory;
    /// so is one that reads nothing of its answers for six times as long.
    pub stall_timeout_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420),
            insecure_network: Vec::new(),
            staging_bytes: 16 << 20,
            out_buffer_bytes: 8 << 20,
            credit_bytes: 16 << 20,
            connections_max: 16_384,
            stall_timeout_ms: 10_000,
        }
    }
}

impl ServerConfig {
    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_millis(self.stall_timeout_ms.max(1))
    }

    /// Whether a machine may connect.
    pub(crate) fn admits(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_loopback() || self.insecure_network.iter().any(|network| network.contains(&peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_and_the_networks_that_were_named_are_let_in() {
        let config = ServerConfig {
            insecure_network: vec!["10.1.0.0/16".parse().expect("a network"), "fd00::/8".parse().expect("a network")],
            ..ServerConfig::default()
        };
        let admits = |peer: &str| config.admits(peer.parse().expect("an address"));
        assert!(admits("127.0.0.5") && admits("::1") && admits("::ffff:127.0.0.1"));
        assert!(admits("10.1.255.1") && admits("::ffff:10.1.0.1") && admits("fd12::1"));
        assert!(!admits("10.2.0.1") && !admits("192.0.2.1") && !admits("::ffff:10.2.0.1") && !admits("2001:db8::1"));
        assert!(!ServerConfig::default().admits("10.1.0.1".parse().expect("an address")));
    }
}
