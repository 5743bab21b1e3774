//! The connections of one client: a session for each lane, on the pretended network.

use std::time::Duration;

use forebay_client::{Class, Session, SessionConfig};
use forebay_types::Time;

use crate::network::{ConnectionId, Network, Side};

/// Bytes given to the network at once.
const SEND_BYTES: usize = 32 << 10;

pub(crate) struct Link {
    pub(crate) session: Session,
    connection: Option<ConnectionId>,
}

pub(crate) struct Links {
    pub(crate) lanes: Vec<Link>,
}

impl Links {
    pub(crate) fn new(lanes: u16, class: Class, name: &str, deadline: Option<Duration>, seed: u64, now: Time) -> Links {
        let link = |lane| {
            let config = SessionConfig {
                lane,
                class,
                name: name.to_owned(),
                batch_bytes: 6000,
                batch_delay: Duration::from_micros(500),
                deadline,
                connect_timeout: Duration::from_secs(2),
                silence_timeout: Duration::from_secs(3),
                seed: seed ^ u64::from(lane),
                store: None,
            };
            Link { session: Session::new(config, now), connection: None }
        };
        Links { lanes: (0..lanes).map(link).collect() }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.lanes.iter().filter_map(|link| link.session.next_deadline()).min()
    }

    /// Carries bytes to and fro. `up`: whether something listens at the server's address.
    pub(crate) fn drive(&mut self, now: Time, network: &mut Network, up: bool) {
        self.lanes.iter_mut().for_each(|link| link.drive(now, network, up));
    }
}

impl Link {
    fn drive(&mut self, now: Time, network: &mut Network, up: bool) {
        if self.session.next_deadline().is_some_and(|due| due <= now) {
            self.session.tick(now);
        }
        if let Some(id) = self.connection {
            self.receive(now, id, network);
        }
        if let Some(id) = self.connection
            && !self.session.wants_connection()
        {
            network.close(now, id, Side::Client);
            self.connection = None;
        }
        if self.session.should_connect(now) {
            self.session.connecting(now);
            if up {
                self.connection = Some(network.connect());
                self.session.connected(now);
            } else {
                self.session.disconnected(now, "nobody listens");
            }
        }
        if let Some(id) = self.connection {
            self.send(now, id, network);
        }
    }

    fn receive(&mut self, now: Time, id: ConnectionId, network: &mut Network) {
        if let Some(arrived) = network.arrived(now, id, Side::Client)
            && !arrived.is_empty()
        {
            let bytes = std::mem::take(arrived);
            self.session.received(now, &bytes);
        }
        if network.is_over(now, id, Side::Client) {
            network.close(now, id, Side::Client);
            self.connection = None;
            self.session.disconnected(now, "the connection ended");
        }
    }

    fn send(&mut self, now: Time, id: ConnectionId, network: &mut Network) {
        loop {
            let piece = self.session.to_send();
            if piece.is_empty() {
                return;
            }
            let sent = network.send(now, id, Side::Client, &piece[..piece.len().min(SEND_BYTES)]);
            if sent == 0 {
                return;
            }
            self.session.sent(now, sent);
        }
    }
}
