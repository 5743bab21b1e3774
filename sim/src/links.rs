//! The connections of one client: a session for each lane, on the pretended network.

use std::time::Duration;

use forebay_client::{Class, PutResult, Session, SessionConfig, SessionEvent};
use forebay_types::Time;

use crate::network::{ConnectionId, Network, Side};

/// Bytes given to the network at once.
const SEND_BYTES: usize = 32 << 10;

pub(crate) struct Link {
    session: Session,
    connection: Option<ConnectionId>,
    /// When the session is due, as it said after it was last touched.
    due: Option<Time>,
    /// It was asked for something since it was driven last.
    touched: bool,
    /// The network took less than it was given.
    blocked: bool,
}

pub(crate) struct Links {
    pub(crate) lanes: Vec<Link>,
    /// What each session is made with.
    configs: Vec<SessionConfig>,
    /// Connections of a process that is no more.
    left: Vec<ConnectionId>,
}

impl Links {
    pub(crate) fn new(lanes: u16, class: Class, name: &str, deadline: Option<Duration>, seed: u64, now: Time) -> Links {
        let config = |lane| SessionConfig {
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
        let configs: Vec<SessionConfig> = (0..lanes).map(config).collect();
        Links { lanes: configs.iter().map(|config| Link::new(config, now)).collect(), configs, left: Vec::new() }
    }

    /// The client's process ends, and its connections with it; another one begins.
    pub(crate) fn hang_up(&mut self, now: Time) {
        self.left.extend(self.lanes.iter().filter_map(|link| link.connection));
        self.lanes = self.configs.iter().map(|config| Link::new(config, now)).collect();
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.lanes.iter().filter_map(Link::next_deadline).min()
    }

    /// Carries bytes to and fro. `up`: whether something listens at the server's address.
    pub(crate) fn drive(&mut self, now: Time, network: &mut Network, up: bool) {
        self.left.drain(..).for_each(|id| network.close(now, id, Side::Client));
        self.lanes.iter_mut().for_each(|link| link.drive(now, network, up));
    }
}

impl Link {
    fn new(config: &SessionConfig, now: Time) -> Link {
        let session = Session::new(config.clone(), now);
        Link { due: session.next_deadline(), session, connection: None, touched: false, blocked: false }
    }

    /// The session, to ask it for something.
    pub(crate) fn asked(&mut self) -> &mut Session {
        self.touched = true;
        &mut self.session
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn take_event(&mut self) -> Option<SessionEvent> {
        self.session.take_event()
    }

    pub(crate) fn take_put_results(&mut self, into: &mut Vec<PutResult>) {
        self.session.take_put_results(into);
    }

    fn next_deadline(&self) -> Option<Time> {
        // What was asked leaves at once.
        if self.touched { Some(Time(0)) } else { self.due }
    }

    fn drive(&mut self, now: Time, network: &mut Network, up: bool) {
        let due = self.due.is_some_and(|due| due <= now);
        let news = self.connection.is_some_and(|id| network.has_news(now, id));
        let room = self.blocked && self.connection.is_none_or(|id| network.has_room(id));
        if !(due || news || self.touched || room) {
            return;
        }
        (self.touched, self.blocked) = (false, false);
        self.move_on(now, network, up);
        self.due = self.session.next_deadline();
    }

    fn move_on(&mut self, now: Time, network: &mut Network, up: bool) {
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
                self.blocked = true;
                return;
            }
            self.session.sent(now, sent);
        }
    }
}
