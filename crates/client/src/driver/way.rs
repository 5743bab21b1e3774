//! By which way lanes of a server are reached: the network, or its socket on this machine.

use std::net::{IpAddr, SocketAddr};

use forebay_protocol::local_socket_name;

/// What is known of the socket. It decides without sockets.
#[derive(Debug)]
pub(super) struct Way {
    /// Whether a socket on this machine may be used at all.
    may_be_local: bool,
    local: Option<String>,
    /// One that did not serve, or lost a connection: another start of its server has another.
    avoided: Option<String>,
}

impl Way {
    pub(super) fn new(may_be_local: bool) -> Way {
        Way { may_be_local, local: None, avoided: None }
    }

    /// The socket to connect lanes to; `None`: they go by the network.
    pub(super) fn local(&self) -> Option<&str> {
        self.local.as_deref()
    }

    /// A server greeted on a connection by the network, between these addresses, and named the socket of this number, or none (0).
    pub(super) fn greeted(&mut self, here: Option<IpAddr>, server: Option<SocketAddr>, number: u64) {
        let server = server.filter(|server| self.may_be_local && number != 0 && Some(server.ip()) == here);
        let name = server.map(|server| local_socket_name(server.port(), number));
        self.local = name.filter(|name| self.avoided.as_ref() != Some(name));
    }

    /// This socket cannot be connected to, or lost a connection.
    pub(super) fn does_not_serve(&mut self, name: String) {
        self.local.take_if(|local| *local == name);
        self.avoided = Some(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "10.0.0.5";

    fn greeted(way: &mut Way, server: &str, number: u64) -> Option<String> {
        way.greeted(Some(HERE.parse().expect("an address")), Some(server.parse().expect("an address")), number);
        way.local().map(str::to_owned)
    }

    #[test]
    fn a_server_on_this_machine_is_reached_by_its_socket() {
        let mut way = Way::new(true);
        assert_eq!(greeted(&mut way, "10.0.0.5:7420", 3).as_deref(), Some("forebay-7420-0000000000000003"));
        assert_eq!(greeted(&mut way, "10.0.0.6:7420", 3), None, "another machine");
        assert_eq!(greeted(&mut way, "10.0.0.5:7420", 0), None, "it has none");
        way.greeted(None, None, 3);
        assert_eq!(way.local(), None, "nobody knows where it is");
        assert_eq!(greeted(&mut Way::new(false), "10.0.0.5:7420", 3), None, "it shall not be");
    }

    #[test]
    fn one_that_does_not_serve_is_left_alone_until_its_server_names_another() {
        let mut way = Way::new(true);
        let name = greeted(&mut way, "10.0.0.5:7420", 3).expect("it is here");
        way.does_not_serve(name.clone());
        assert_eq!(way.local(), None);
        assert_eq!(greeted(&mut way, "10.0.0.5:7420", 3), None);
        let other = greeted(&mut way, "10.0.0.5:7420", 4);
        assert!(other.is_some());
        way.does_not_serve(name);
        assert_eq!(way.local(), other.as_deref(), "what another lane learns late concerns the other one");
    }
}
