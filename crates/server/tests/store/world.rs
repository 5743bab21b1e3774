//! A store in a directory of its own, a server on it, and raw connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use forebay_client::{Class, Client, ClientConfig, PutResult};
use forebay_protocol::{Frame, FrameBuffer, Hello, HelloReply, Kind, Message, PROTOCOL_VERSION};
use forebay_server::{Server, ServerConfig, Stopped};
use forebay_store::{InitOptions, OpenedStore, StoreConfig, init, open};
use forebay_types::FragmentId;

pub struct World {
    directory: tempfile::TempDir,
    pub config: ServerConfig,
    pub store: StoreConfig,
    /// Data and parity shards of the store; it has a drive for each.
    pub shards: (u8, u8),
    server: Option<Server>,
}

impl World {
    /// A store of 3+1 drives of 32 MiB with so many lanes, served.
    pub fn new(lanes: u16) -> World {
        World::with(lanes, |_| {})
    }

    pub fn with(lanes: u16, configure: impl FnOnce(&mut World)) -> World {
        let directory = tempfile::tempdir().expect("a directory");
        let listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let config = ServerConfig { listen, ..ServerConfig::default() };
        let store = StoreConfig {
            cache_bytes: 16 << 20,
            index_bytes: 64 << 20,
            flush_bytes: Some(256 << 10),
            fault_injection: true,
            // The machine of a test may stand still for a while.
            drive_timeout_ms: Some(60_000),
            ..StoreConfig::default()
        };
        let mut world = World { directory, config, store, shards: (3, 1), server: None };
        configure(&mut world);
        let (data, parity) = world.shards;
        let options = InitOptions {
            lanes: Some(lanes),
            drive_bytes: Some(32 << 20),
            slot_bytes: Some(2 << 20),
            ..InitOptions::new(data, parity)
        };
        init(&world.drives(), &options, &mut |_| {}).expect("a store can be made");
        world.start();
        world
    }

    pub fn drives(&self) -> Vec<PathBuf> {
        (0..self.shards.0 + self.shards.1).map(|drive| self.directory.path().join(format!("drive{drive}"))).collect()
    }

    pub fn opened(&self) -> OpenedStore {
        open(&self.drives(), &self.store).expect("the store opens")
    }

    pub fn start(&mut self) {
        let listener = Server::bind(&self.config).expect("the address is free");
        let opened = self.opened();
        let lanes = opened.info.lanes;
        let server = Server::start(opened, listener).expect("the server starts");
        // A stop before that would be none in order.
        while !server.control().wait_until(Duration::from_secs(1), |status| status.lanes_serving == lanes) {}
        self.server = Some(server);
    }

    pub fn stop(&mut self) -> Stopped {
        self.server.take().expect("running").stop().expect("a stop in order")
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("running")
    }

    pub fn address(&self) -> SocketAddr {
        self.server().local_addr()
    }

    pub fn client(&self, class: Class) -> Client {
        Client::connect(ClientConfig::new(self.address().to_string(), "test").class(class)).expect("connects")
    }

    /// A connection that greeted for a lane.
    pub fn raw(&self, lane: u16, class: Class) -> Raw {
        let mut raw = Raw::new(self.address());
        raw.ask(1, &Hello { protocol_version: PROTOCOL_VERSION, lane, class, name: "raw".to_owned() });
        let reply: HelloReply = raw.receive().expect("greeted").message();
        assert_eq!(reply.lane, lane);
        raw
    }
}

/// A frame that came.
pub struct Answer {
    pub kind: Kind,
    pub request: u64,
    table: Vec<u8>,
    payload: Vec<u8>,
}

impl Answer {
    pub fn message<M: Message>(&self) -> M {
        assert_eq!(self.kind, M::KIND);
        M::decode(&self.table, &self.payload).expect("sound")
    }
}

/// A connection without a client's manners.
pub struct Raw {
    pub stream: TcpStream,
    received: FrameBuffer,
}

impl Raw {
    pub fn new(address: SocketAddr) -> Raw {
        Raw { stream: TcpStream::connect(address).expect("connects"), received: FrameBuffer::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    pub fn ask(&mut self, request: u64, message: &impl Message) {
        let mut bytes = Vec::new();
        message.encode(request, &mut bytes);
        self.send(&bytes);
    }

    /// The next frame; `None` when the server has closed the connection.
    pub fn receive(&mut self) -> Option<Answer> {
        loop {
            if let Some(Frame { header, table, payload }) = self.received.next_frame().expect("sound frames") {
                let kind = Kind::from_code(header.kind).expect("known");
                let (table, payload) = (table.to_vec(), payload.to_vec());
                return Some(Answer { kind, request: header.request, table, payload });
            }
            let space = self.received.spare(64 << 10);
            match self.stream.read(space) {
                Ok(0) => return None,
                Ok(bytes) => self.received.filled(bytes),
                Err(error) => panic!("the connection broke: {error}"),
            }
        }
    }
}

/// The bytes of a fragment.
pub fn payload(id: FragmentId, bytes: usize) -> Vec<u8> {
    let seed = id.event.0 * 131 + u64::from(id.source.0) * 7 + u64::from(id.run.0);
    (0..bytes as u64).map(|at| (at.wrapping_mul(seed | 1) >> 3) as u8).collect()
}

/// Flushes and takes all results.
pub fn results(client: &mut Client) -> Vec<PutResult> {
    client.flush().expect("answered");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    results
}
