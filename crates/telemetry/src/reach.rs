//! Who may reach an address: as long as nobody is asked who he is, this machine, and the networks that a person names.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

pub use ipnet::IpNet;

/// Connections that the system holds until they are accepted: all writers of a detector connect at the same moment. The system may hold fewer
/// (`net.core.somaxconn`); those beyond try again after a second.
const CONNECTIONS_WAITING: i32 = 4096;

/// Why nobody listens. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Others could connect, and nobody would check who they are.
    #[error(
        "{option} {listen} can be reached from other machines and clients are not authenticated yet: nothing was started. Use 127.0.0.1, or say \
         --insecure-network CIDR for each network whose machines may {may}"
    )]
    Insecure {
        /// Where it was to listen.
        listen: SocketAddr,
        /// The option that says so.
        option: &'static str,
        /// What whoever reaches it can do.
        may: &'static str,
    },
    /// The address is taken, or not one of this machine.
    #[error("cannot listen on {listen}: {source}; nothing was started. {}", advice(.source.kind(), *.listen, .option))]
    Taken {
        /// Where it was to listen.
        listen: SocketAddr,
        /// The option that says so.
        option: &'static str,
        /// Why not.
        source: io::Error,
    },
}

fn advice(kind: io::ErrorKind, listen: SocketAddr, option: &str) -> String {
    match kind {
        io::ErrorKind::AddrInUse => {
            format!(
                "Another program listens there (`ss -ltnp sport = :{}`): stop it, or pick another {option}",
                listen.port()
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("That is no address of this machine (`ip address`): pick another {option}")
        }
        io::ErrorKind::PermissionDenied => format!("Ports below 1024 need a privilege: pick another {option}"),
        _ => format!("Pick another {option}"),
    }
}

impl ListenError {
    /// Whether another program has the address, which may be over later.
    pub fn is_in_use(&self) -> bool {
        matches!(self, ListenError::Taken { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

/// Whether a machine may connect.
pub fn admits(networks: &[IpNet], peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || networks.iter().any(|network| network.contains(&peer))
}

/// Takes an address, which the option `option` says; whoever reaches it `may` do so much.
///
/// # Errors
/// See [`ListenError`].
pub fn listen(
    listen: SocketAddr,
    networks: &[IpNet],
    option: &'static str,
    may: &'static str,
) -> Result<TcpListener, ListenError> {
    if !listen.ip().to_canonical().is_loopback() {
        if networks.is_empty() {
            return Err(ListenError::Insecure { listen, option, may });
        }
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let networks = networks.join(", ");
        tracing::warn!(%listen, networks, "INSECURE: clients are not authenticated: every machine of these networks can {may}");
    }
    let failed = |source| ListenError::Taken { listen, option, source };
    let socket = TcpListener::bind(listen).map_err(failed)?;
    rustix::net::listen(&socket, CONNECTIONS_WAITING).map_err(|error| failed(error.into()))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_this_machine_and_the_networks_that_were_named_are_let_in() {
        let networks = ["10.1.0.0/16".parse().expect("a network"), "fd00::/8".parse().expect("a network")];
        let admits = |peer: &str| super::admits(&networks, peer.parse().expect("an address"));
        assert!(admits("127.0.0.5") && admits("::1") && admits("::ffff:127.0.0.1"));
        assert!(admits("10.1.255.1") && admits("::ffff:10.1.0.1") && admits("fd12::1"));
        assert!(!admits("10.2.0.1") && !admits("192.0.2.1") && !admits("::ffff:10.2.0.1") && !admits("2001:db8::1"));
        assert!(!super::admits(&[], "10.1.0.1".parse().expect("an address")));
    }
}
