//! A tiny server of files and names on loopback, which does what the tests tell it to.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{ClientConfig, files::Files};
use forebay_protocol::*;
use forebay_types::{
    Attributes, FileNumber, FileOutcome, NameOutcome, NodeKind, NodeView, ReadOutcome, StoreUuid, crc32c,
};

pub const LANES: u16 = 3;
const ROOT: u64 = 1;
const OF_STORE: ReadOutcome = ReadOutcome::Found;

/// What a number stands for.
pub struct Entry {
    pub node: Node,
    pub entries: BTreeMap<Vec<u8>, u64>,
}

#[derive(Default)]
pub struct Stored {
    pub bytes: Vec<u8>,
    pub sealed: bool,
    pub written_unix_ns: i64,
    /// From there on nothing can be read, and why.
    pub unreadable: Option<(u64, ReadOutcome)>,
}

#[derive(Default)]
pub struct State {
    pub epoch: u64,
    /// What it says the number of its socket for clients on this machine is.
    pub local: u64,
    pub nodes: BTreeMap<u64, Entry>,
    pub files: BTreeMap<u64, Stored>,
    /// By file and client: the newest opening, and whether it writes.
    pub open: BTreeMap<(u64, u64), (u32, bool)>,
    changes: BTreeMap<(u64, u64), NodeReply>,
    /// Said to the next writes and changes of files.
    pub file_outcomes: VecDeque<FileOutcome>,
    /// Said to the next changes of names.
    pub name_outcomes: VecDeque<NameOutcome>,
    /// So many of the next reads come with a flipped bit, or with a byte more than asked for.
    pub flips: u32,
    pub too_long: u32,
    /// What came together is answered in the opposite order.
    pub reverses: bool,
    /// The store is started anew when so many more requests of these kinds came, without an answer to the last.
    pub restart_in: Option<(Kind, u32)>,
    /// What was done when the answer was lost is done.
    pub did_it: bool,
    pub page_max: usize,
    pub asked: Vec<Kind>,
    next: u64,
}

impl State {
    fn new() -> State {
        let mut state = State { next: 10, page_max: usize::MAX, did_it: true, ..State::default() };
        state.make(ROOT, b"", NodeKind::Directory, 0o755, b"");
        let root = state.nodes.remove(&10).expect("made");
        let node = Node { number: FileNumber(ROOT), parent: FileNumber(ROOT), ..root.node };
        state.nodes = BTreeMap::from([(ROOT, Entry { node, entries: BTreeMap::new() })]);
        state
    }

    fn make(&mut self, parent: u64, name: &[u8], kind: NodeKind, mode: u16, target: &[u8]) -> Node {
        let number = self.next;
        self.next += 37; // so that lanes take turns
        let attributes = Attributes { mode, written_unix_ns: 1_000, ..Attributes::default() };
        let view = NodeView { kind, attributes, links: 1, device: 0, target: target.to_vec() };
        let node = Node { number: FileNumber(number), parent: FileNumber(parent), view };
        if let Some(directory) = self.nodes.get_mut(&parent) {
            directory.entries.insert(name.to_vec(), number);
        }
        self.nodes.insert(number, Entry { node: node.clone(), entries: BTreeMap::new() });
        node
    }

    fn directory(&self, number: u64) -> Result<&Entry, NameOutcome> {
        let found = self.nodes.get(&number).ok_or(NameOutcome::NotFound)?;
        let is_directory = found.node.view.kind == NodeKind::Directory;
        if is_directory { Ok(found) } else { Err(NameOutcome::NotDirectory) }
    }

    fn entry(&self, directory: u64, name: &[u8]) -> Result<u64, NameOutcome> {
        self.directory(directory)?.entries.get(name).copied().ok_or(NameOutcome::NotFound)
    }

    fn remove(&mut self, directory: u64, name: &[u8]) {
        let number = self.nodes.get_mut(&directory).and_then(|entry| entry.entries.remove(name)).expect("looked up");
        if !self.nodes.values().any(|entry| entry.entries.values().any(|other| *other == number)) {
            self.nodes.remove(&number);
        }
    }

    fn change(&mut self, what: &NameChange) -> Result<Option<Node>, NameOutcome> {
        match what {
            NameChange::Make { directory, name, new } => match self.entry(directory.0, name) {
                Err(NameOutcome::NotFound) => {
                    self.directory(directory.0)?;
                    Ok(Some(self.make(directory.0, name, new.kind, new.mode, &new.target)))
                }
                Ok(_) => Err(NameOutcome::Exists),
                Err(other) => Err(other),
            },
            NameChange::Link { number, directory, name } => {
                if self.entry(directory.0, name).is_ok() {
                    return Err(NameOutcome::Exists);
                }
                self.nodes.get_mut(&directory.0).ok_or(NameOutcome::NotFound)?.entries.insert(name.clone(), number.0);
                Ok(None)
            }
            NameChange::Remove { directory, name } | NameChange::RemoveDirectory { directory, name } => {
                let found = &self.nodes[&self.entry(directory.0, name)?];
                let is_directory = found.node.view.kind == NodeKind::Directory;
                match what {
                    NameChange::Remove { .. } if is_directory => return Err(NameOutcome::IsDirectory),
                    NameChange::RemoveDirectory { .. } if !is_directory => return Err(NameOutcome::NotDirectory),
                    _ if !found.entries.is_empty() => return Err(NameOutcome::NotEmpty),
                    _ => self.remove(directory.0, name),
                }
                Ok(None)
            }
            NameChange::Rename { from_directory, from, to_directory, to, replace } => {
                let number = self.entry(from_directory.0, from)?;
                if self.entry(to_directory.0, to).is_ok() {
                    if !replace {
                        return Err(NameOutcome::Exists);
                    }
                    self.remove(to_directory.0, to);
                }
                let entries =
                    |state: &mut State, at: u64| std::mem::take(&mut state.nodes.get_mut(&at).expect("there").entries);
                let mut names = entries(self, from_directory.0);
                names.remove(from);
                self.nodes.get_mut(&from_directory.0).expect("there").entries = names;
                let mut names = entries(self, to_directory.0);
                names.insert(to.clone(), number);
                self.nodes.get_mut(&to_directory.0).expect("there").entries = names;
                Ok(None)
            }
            NameChange::Set { number, set } => {
                let found = self.nodes.get_mut(&number.0).ok_or(NameOutcome::NotFound)?;
                let attributes = &mut found.node.view.attributes;
                attributes.mode = set.mode.unwrap_or(attributes.mode);
                attributes.written_unix_ns = set.written_unix_ns.unwrap_or(attributes.written_unix_ns);
                Ok(Some(found.node.clone()))
            }
        }
    }

    fn info(&self, file: FileNumber) -> FileInfo {
        let is_written = self.open.iter().any(|((number, _), (_, writes))| *number == file.0 && *writes);
        let stored = self.files.get(&file.0);
        let adler32 = |bytes: &[u8]| {
            let mut adler32 = forebay_types::Adler32::default();
            adler32.update(bytes);
            adler32.finish()
        };
        FileInfo {
            outcome: stored.map_or(ReadOutcome::NotFound, |_| OF_STORE),
            sealed: stored.is_some_and(|stored| stored.sealed),
            is_written,
            sums: stored.filter(|stored| stored.sealed).map(|stored| (crc32c(&stored.bytes), adler32(&stored.bytes))),
            length: stored.map_or(0, |stored| stored.bytes.len() as u64),
            written_unix_ns: stored.map_or(0, |stored| stored.written_unix_ns),
        }
    }

    fn write(&mut self, write: &FileWrite, bytes: &[u8]) -> (FileOutcome, u64) {
        let by = write.by.opener;
        let open = self.open.get(&(write.file.0, by.client));
        if open != Some(&(by.opening, true)) {
            return (FileOutcome::NotOpen, 0);
        }
        if crc32c(bytes) != write.crc {
            return (FileOutcome::ChecksumMismatch, 0);
        }
        let stored = self.files.entry(write.file.0).or_default();
        if stored.sealed {
            return (FileOutcome::Sealed, 0);
        }
        let start = write.start.unwrap_or(stored.bytes.len() as u64) as usize;
        stored.bytes.resize(stored.bytes.len().max(start + bytes.len()), 0);
        stored.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        stored.written_unix_ns += 1_000_000;
        (FileOutcome::Done, start as u64)
    }

    fn read(&mut self, read: &FileRead, request: u64, out: &mut Vec<u8>) {
        let Some(stored) = self.files.get(&read.file.0) else {
            return FileReadReply { outcome: ReadOutcome::NotFound, bytes: 0, crc: 0 }.encode(request, &[], out);
        };
        let (unreadable, why) = stored.unreadable.unwrap_or((u64::MAX, OF_STORE));
        if read.start >= unreadable {
            return FileReadReply { outcome: why, bytes: 0, crc: 0 }.encode(request, &[], out);
        }
        let end = (stored.bytes.len() as u64).min(read.start + u64::from(read.bytes)).min(unreadable) as usize;
        let mut bytes = stored.bytes[(read.start as usize).min(end)..end].to_vec();
        if self.too_long > 0 {
            self.too_long -= 1;
            bytes.resize(read.bytes as usize + 1, 0);
        }
        let crc = crc32c(&bytes);
        if self.flips > 0 && !bytes.is_empty() {
            self.flips -= 1;
            bytes[0] ^= 1;
        }
        FileReadReply { outcome: OF_STORE, bytes: bytes.len() as u32, crc }.encode(request, &bytes, out);
    }

    fn answer(&mut self, frame: &Frame<'_>, lane: &mut Option<u16>, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let (table, payload, request) = (frame.table, frame.payload, frame.header.request);
        let kind = frame.kind().expect("a known kind");
        self.asked.push(kind);
        let here = |file: FileNumber| assert_eq!(Some(lane_of(file.key(), LANES)), *lane, "{file} in a wrong lane");
        let changed = |outcome, out: &mut Vec<u8>| FileReply { outcome, start: 0 }.encode(request, out);
        match kind {
            Kind::Hello => {
                *lane = Some(Hello::decode(table, payload)?.lane);
                let reply = HelloReply {
                    protocol_version: PROTOCOL_VERSION,
                    lanes: LANES,
                    lane: lane.expect("just said"),
                    read_only: false,
                    store: StoreUuid::from_bytes([7; 16]),
                    epoch: self.epoch,
                    fragment_bytes_max: 64 << 10,
                    frame_payload_bytes_max: 2 << 20,
                    credit_bytes: 64 << 10,
                    server: "peer".to_owned(),
                    local: self.local,
                };
                reply.encode(request, out);
            }
            Kind::Ping => Done.encode(request, out),
            Kind::FileOpen => {
                let FileOpen { file, by, write } = FileOpen::decode(table, payload)?;
                here(file);
                let sealed = self.files.get(&file.0).is_some_and(|stored| stored.sealed);
                let newest = self.open.get(&(file.0, by.client)).map_or(0, |(opening, _)| *opening);
                let outcome = self.file_outcomes.pop_front().unwrap_or(match write && sealed {
                    true => FileOutcome::Sealed,
                    false if newest > by.opening => FileOutcome::NotOpen,
                    false => FileOutcome::Done,
                });
                if outcome == FileOutcome::Done {
                    self.open.insert((file.0, by.client), (by.opening, write));
                }
                changed(outcome, out);
            }
            Kind::FileClose => {
                let FileClose { file, by } = FileClose::decode(table, payload)?;
                here(file);
                let was_open = self.open.remove(&(file.0, by.client)).is_some();
                changed(if was_open { FileOutcome::Done } else { FileOutcome::NotOpen }, out);
            }
            Kind::FileSet => {
                let set = FileSet::decode(table, payload)?;
                here(set.file);
                let stored = self.files.entry(set.file.0).or_default();
                stored.bytes.resize(set.length.map_or(stored.bytes.len(), |length| length as usize), 0);
                stored.written_unix_ns = set.written_unix_ns.unwrap_or(stored.written_unix_ns);
                changed(FileOutcome::Done, out);
            }
            Kind::FileSeal => {
                let stored = self.files.entry(FileSeal::decode(table, payload)?.file.0).or_default();
                let before = std::mem::replace(&mut stored.sealed, true);
                changed(if before { FileOutcome::Sealed } else { FileOutcome::Done }, out);
            }
            Kind::FileWrite => {
                let write = FileWrite::read_table(table, payload.len())?;
                here(write.file);
                assert!(payload.len() <= 64 << 10, "a piece of {} bytes", payload.len());
                let refused = self.file_outcomes.pop_front().filter(|outcome| *outcome != FileOutcome::Done);
                let (outcome, start) = match refused {
                    Some(outcome) => (outcome, 0),
                    None => self.write(&write, payload),
                };
                FileReply { outcome, start }.encode(request, out);
            }
            Kind::FileRead => {
                let read = FileRead::decode(table, payload)?;
                here(read.file);
                self.read(&read, request, out);
            }
            Kind::FileStat => {
                let files = FileStat::decode(table, payload)?.files;
                files.iter().for_each(|file| here(*file));
                FileStatReply { files: files.iter().map(|file| self.info(*file)).collect() }.encode(request, out);
            }
            Kind::NameLookup => {
                let NameLookup { directory, name } = NameLookup::decode(table, payload)?;
                let directory = directory.map_or(ROOT, |directory| directory.0);
                let found = if name.is_empty() { Ok(directory) } else { self.entry(directory, &name) };
                let node = found.and_then(|number| self.nodes.get(&number).ok_or(NameOutcome::NotFound));
                let node = node.map(|entry| entry.node.clone());
                let outcome = node.as_ref().err().copied().unwrap_or(NameOutcome::Done);
                NodeReply { outcome, node: node.ok() }.encode(request, out);
            }
            Kind::NameList => {
                let NameList { directory, after, max } = NameList::decode(table, payload)?;
                let found = self.directory(directory.map_or(ROOT, |directory| directory.0));
                let max = self.page_max.min(max as usize);
                let all: Vec<_> = found.map_or(Vec::new(), |entry| {
                    entry.entries.iter().filter(|(name, _)| after.is_empty() || **name > after).collect()
                });
                let entry = |(name, number): &(&Vec<u8>, &u64)| NameEntry {
                    number: FileNumber(**number),
                    kind: self.nodes[*number].node.view.kind,
                    name: name.to_vec(),
                };
                let (more, entries) = (all.len() > max, all.iter().take(max).map(entry).collect());
                ListReply { outcome: NameOutcome::Done, more, entries }.encode(request, out);
            }
            Kind::ChangeName => {
                let ChangeName { client, change, what, .. } = ChangeName::decode(table, payload)?;
                let reply = match self.changes.get(&(client, change)) {
                    Some(reply) => reply.clone(),
                    None => {
                        let refused = self.name_outcomes.pop_front().filter(|outcome| *outcome != NameOutcome::Done);
                        let node = refused.map_or_else(|| self.change(&what), Err);
                        let outcome = node.as_ref().err().copied().unwrap_or(NameOutcome::Done);
                        NodeReply { outcome, node: node.unwrap_or(None) }
                    }
                };
                self.changes.insert((client, change), reply.clone());
                reply.encode(request, out);
            }
            other => panic!("the peer has no answer to {other}"),
        }
        Ok(())
    }

    /// Whether the store is started anew now.
    fn restarts(&mut self, kind: Option<Kind>) -> bool {
        let Some((restarting, left)) = &mut self.restart_in else { return false };
        if kind != Some(*restarting) {
            return false;
        }
        *left = left.saturating_sub(1);
        if *left > 0 {
            return false;
        }
        self.restart_in = None;
        true
    }

    fn restart(&mut self) {
        self.epoch += 1;
        self.open.clear();
        self.changes.clear();
    }
}

/// A running server.
pub struct Peer {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub fn start() -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(State::new()));
        let (stopping, sockets) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (for_all, stop, all) = (state.clone(), stopping.clone(), sockets.clone());
        let thread = std::thread::spawn(move || {
            let mut workers = Vec::new();
            while let Ok((socket, _)) = listener.accept() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                all.lock().expect("sockets").push(socket.try_clone().expect("a second handle"));
                let (state, all) = (for_all.clone(), all.clone());
                workers.push(std::thread::spawn(move || drop(serve(socket, &state, &all))));
            }
            workers.into_iter().for_each(|worker| worker.join().expect("a connection's thread"));
        });
        Peer { state, address, stopping, sockets, thread: Some(thread) }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("state")
    }

    pub fn connect(&self) -> Files {
        self.connect_with(Duration::from_secs(20))
    }

    pub fn connect_with(&self, deadline: Duration) -> Files {
        let config = ClientConfig::new(self.address.to_string(), "test");
        Files::connect(config.deadline(Some(deadline))).expect("the server runs")
    }

    /// What a file holds.
    pub fn bytes_of(&self, file: FileNumber) -> Vec<u8> {
        self.state().files.get(&file.0).map_or(Vec::new(), |stored| stored.bytes.clone())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        for socket in self.sockets.lock().expect("sockets").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(TcpStream::connect(self.address)); // wakes accept
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join).filter(|_| !std::thread::panicking()) {
            std::panic::resume_unwind(panic);
        }
    }
}

fn serve(mut socket: TcpStream, state: &Mutex<State>, all: &Mutex<Vec<TcpStream>>) -> std::io::Result<()> {
    let (mut buffer, mut lane) = (FrameBuffer::new(), None);
    loop {
        let bytes = socket.read(buffer.spare(256 << 10))?;
        if bytes == 0 {
            return Ok(());
        }
        buffer.filled(bytes);
        let (mut answers, mut restarts) = (Vec::new(), false);
        let mut state = state.lock().expect("state");
        while let Some(frame) = buffer.next_frame().expect("the client sends sound frames") {
            let mut out = Vec::new();
            restarts = state.restarts(frame.kind());
            if !restarts || state.did_it {
                state.answer(&frame, &mut lane, &mut out).expect("sound messages");
            }
            if restarts {
                // What was done was done by the one that is gone.
                state.restart();
                break;
            }
            answers.push(out);
        }
        if state.reverses {
            answers.reverse();
        }
        drop(state);
        if restarts {
            for socket in all.lock().expect("sockets").drain(..) {
                let _ = socket.shutdown(Shutdown::Both);
            }
            return Ok(());
        }
        socket.write_all(&answers.concat())?;
    }
}
