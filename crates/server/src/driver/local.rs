//! What a client on this machine sends: parts, of which some come through the socket and some lie in memory that it shares.
//!
//! That memory is never mapped here: it is read as a file is, so that whatever the client does to it meanwhile is an error of a read, or other bytes than their
//! sums say, and nothing worse.

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;

use forebay_protocol::{PART_HEADER_BYTES, Part, local_socket_name};
use mio::net::{UnixListener, UnixStream};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

/// What a socket may hold of replies that its client has not read. As much as on loopback by TCP: with less a reader is slower than there, as client and lane wait for each
/// other several times a MiB.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// With less, by the system's count, clients are better served by the network.
const SEND_BUFFER_BYTES_MIN: usize = 2 << 20;

/// A socket for clients on this machine of a server that listens at this port, and its number; number 0: there is none, and they come by the network.
pub(crate) fn listen(port: u16) -> (Option<UnixListener>, u64) {
    let listening = getrandom::u64().map_err(|error| io::Error::other(error.to_string())).and_then(|number| {
        let (probe, _) = UnixStream::pair()?;
        let granted = widen(&probe)?;
        if granted < SEND_BUFFER_BYTES_MIN {
            let least = SEND_BUFFER_BYTES_MIN / 2;
            return Err(io::Error::other(format!(
                "a socket may hold {granted} bytes (net.core.wmem_max; {least} or CAP_NET_ADMIN is needed)"
            )));
        }
        let number = number.max(1);
        let address = net::SocketAddr::from_abstract_name(local_socket_name(port, number))?;
        let socket = net::UnixListener::bind_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok((UnixListener::from_std(socket), number))
    });
    match listening {
        Ok((socket, number)) => (Some(socket), number),
        Err(error) => {
            tracing::info!(%error, "there is no socket for clients on this machine: they are served as those in the network are, and write more slowly");
            (None, 0)
        }
    }
}

/// Has a socket hold as much as it may; how many bytes that are, as the system counts them.
pub(crate) fn widen(socket: &UnixStream) -> io::Result<usize> {
    // Who may not go beyond the system's limit gets as much as that.
    if sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER_BYTES).is_err() {
        sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES)?;
    }
    Ok(sockopt::socket_send_buffer_size(socket)?)
}

/// What is read of the socket together with the header of a part: as much as an allocator has at hand, since whoever waits has none.
const BUFFER_BYTES: usize = 1 << 10;

/// What arrived of the parts of a client.
pub(crate) struct Parts {
    /// Empty while nothing is in it.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// What is left of the part that it is at.
    part: Option<Part>,
    memory: Option<OwnedFd>,
    /// It was said that the descriptor of the memory comes.
    is_shared: bool,
    /// The last read of the socket gave less than there was room for.
    is_drained: bool,
}

impl Parts {
    pub(crate) fn new() -> Parts {
        Parts {
            buffer: Box::default(),
            start: 0,
            end: 0,
            part: None,
            memory: None,
            is_shared: false,
            is_drained: false,
        }
    }

    /// Whether there may be more without a word of the poll.
    pub(crate) fn may_have_more(&self) -> bool {
        !self.is_drained || self.start < self.end || matches!(self.part, Some(Part::Memory { .. }))
    }

    /// Reads what comes next, as one reads a socket: 0 bytes are the end.
    pub(crate) fn read(&mut self, socket: &mut UnixStream, space: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.part {
                Some(Part::Memory { offset, bytes }) => {
                    let count = space.len().min(bytes as usize);
                    let read = self.read_memory(offset, &mut [IoSliceMut::new(&mut space[..count])])?;
                    self.took(read);
                    return Ok(read);
                }
                Some(Part::Bytes(bytes)) => {
                    let count = space.len().min(bytes as usize);
                    let read = self.read_bytes(socket, &mut space[..count])?;
                    self.took(read);
                    return Ok(read);
                }
                _ => {
                    if !self.find_part(socket)? {
                        return Ok(0);
                    }
                }
            }
        }
    }

    /// How many bytes can be read now, of the part that comes next.
    pub(crate) fn arrived(&mut self, socket: &mut UnixStream) -> usize {
        // What is wrong is met again by whoever reads.
        let _ = self.part.is_some() || self.find_part(socket).unwrap_or(false);
        match self.part {
            Some(Part::Memory { bytes, .. }) => bytes as usize,
            Some(Part::Bytes(bytes)) => {
                let unread = rustix::io::ioctl_fionread(&*socket).unwrap_or(0);
                let unread = usize::try_from(unread).unwrap_or(usize::MAX);
                (bytes as usize).min(unread.saturating_add(self.end - self.start))
            }
            _ => 0,
        }
    }

    /// Reads some of what has arrived to `slices`, which are not longer than that.
    pub(crate) fn read_arrived(&mut self, socket: &mut UnixStream, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(Part::Memory { offset, .. }) = self.part else { return self.read(socket, &mut slices[0]) };
        let read = self.read_memory(offset, slices)?;
        self.took(read);
        Ok(read)
    }

    /// So many bytes of the part were taken.
    fn took(&mut self, taken: usize) {
        let rest = |bytes: u32| bytes.checked_sub(taken as u32).expect("no more is read than the part has");
        self.part = match self.part {
            Some(Part::Memory { offset, bytes }) => {
                Some(Part::Memory { offset: offset + taken as u64, bytes: rest(bytes) }).filter(|_| rest(bytes) > 0)
            }
            Some(Part::Bytes(bytes)) => Some(Part::Bytes(rest(bytes))).filter(|_| rest(bytes) > 0),
            other => other,
        };
        if self.start == self.end {
            (self.buffer, self.start, self.end) = (Box::default(), 0, 0);
        }
    }

    /// Finds the next part that has bytes. `false`: the client sends no more.
    fn find_part(&mut self, socket: &mut UnixStream) -> io::Result<bool> {
        loop {
            let Some(header) = self.buffer[self.start..self.end].first_chunk::<PART_HEADER_BYTES>() else {
                if self.fill(socket)? == 0 {
                    return if self.start == self.end { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
                }
                continue;
            };
            let part = Part::decode(header).map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))?;
            if part != Part::Descriptor {
                self.start += PART_HEADER_BYTES;
                self.part = Some(part);
                return Ok(true);
            }
            if self.memory.is_none() {
                return Err(invalid("it sent a descriptor of its memory that did not arrive, or is of something else"));
            }
            // Who sends nothing else would keep the lane from its work.
            if std::mem::replace(&mut self.is_shared, true) {
                return Err(invalid("it sent a second descriptor of its memory"));
            }
            self.start += PART_HEADER_BYTES;
        }
    }

    /// Reads the socket to the buffer, and takes the descriptor that may come with it.
    fn fill(&mut self, socket: &UnixStream) -> io::Result<usize> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let room = self.buffer.len() - self.end;
        let slices = &mut [IoSliceMut::new(&mut self.buffer[self.end..])];
        let received = recvmsg(socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        let bytes = received.as_ref().map_or(0, |received| received.bytes);
        self.end += bytes;
        if self.end == 0 {
            self.buffer = Box::default();
        }
        received?;
        let descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptor = descriptors.flatten().next();
        // What comes with a descriptor ends a read, whatever is behind it.
        self.is_drained = bytes < room && descriptor.is_none();
        if let Some(memory) = descriptor.filter(|_| self.memory.is_none()) {
            // Of what is no memory a read may wait, for ever.
            self.memory = rustix::fs::fcntl_get_seals(&memory).is_ok().then_some(memory);
        }
        Ok(bytes)
    }

    /// Bytes of a part that come through the socket.
    fn read_bytes(&mut self, socket: &mut UnixStream, space: &mut [u8]) -> io::Result<usize> {
        let held = space.len().min(self.end - self.start);
        if held > 0 {
            space[..held].copy_from_slice(&self.buffer[self.start..self.start + held]);
            self.start += held;
            return Ok(held);
        }
        let bytes = socket.read(space)?;
        self.is_drained = bytes < space.len();
        if bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    fn read_memory(&self, offset: u64, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let memory = self.memory.as_ref().ok_or_else(|| invalid("it sent bytes of memory that it does not share"))?;
        match rustix::io::preadv(memory, slices, offset) {
            Ok(0) => Err(invalid("it sent bytes that are beyond the memory that it shares")),
            Ok(bytes) => Ok(bytes),
            // It is no socket: nothing will say when it can be read.
            Err(Errno::AGAIN) => Err(invalid("the memory that it shares cannot be read")),
            Err(error) => Err(error.into()),
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::os::fd::AsFd;

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;
    use crate::driver::socket::{Got, Socket};

    /// A client of which every byte is made by hand.
    struct Client {
        socket: UnixStream,
        memory: OwnedFd,
    }

    fn connected(memory_bytes: &[u8]) -> (Client, Socket) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let memory = memfd_create(c"test", MemfdFlags::CLOEXEC).expect("memory");
        rustix::io::pwrite(&memory, memory_bytes, 0).expect("written");
        (Client { socket: theirs, memory }, Socket::of_this_machine(ours))
    }

    impl Client {
        fn send(&mut self, bytes: &[u8]) {
            self.socket.write_all(bytes).expect("there is room");
        }

        fn share(&self, what: impl AsFd) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let descriptors = [what.as_fd()];
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
            let header = Part::Descriptor.encode();
            let sent = sendmsg(&self.socket, &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL);
            assert_eq!(sent, Ok(PART_HEADER_BYTES));
        }
    }

    /// All that can be read now, in pieces of at most so many bytes; and whether the connection is gone then. It is left only when the poll would say that there is more.
    fn read_all(socket: &mut Socket, most: usize) -> (Vec<u8>, bool) {
        let (mut read, mut space) = (Vec::new(), vec![0; most]);
        while socket.readable {
            match socket.read(&mut space) {
                Got::Bytes(bytes) => read.extend_from_slice(&space[..bytes]),
                Got::Nothing => break,
                Got::Gone => return (read, true),
            }
        }
        (read, false)
    }

    const MEMORY_BYTES: usize = 100_000;

    fn memory() -> Vec<u8> {
        (0..MEMORY_BYTES).map(|at| (at / 3) as u8).collect()
    }

    proptest! {
        /// Whatever parts it comes in, however these arrive, and however they are read: the bytes are the same, and none waits for what does not come.
        #[test]
        fn bytes_come_as_they_were_sent(
            parts in prop::collection::vec((any::<bool>(), 1usize..20_000, 0usize..80_000), 1..12),
            cuts in prop::collection::vec(1usize..9_000, 1..30),
            most in 1usize..30_000,
            share_first: bool,
        ) {
            let memory = memory();
            let (mut client, mut socket) = connected(&memory);
            let (mut expected, mut read, mut cuts) = (Vec::new(), Vec::new(), cuts.into_iter().cycle());
            let mut is_shared = share_first;
            if share_first {
                client.share(&client.memory);
            }
            for (in_memory, bytes, offset) in parts {
                if in_memory && !std::mem::replace(&mut is_shared, true) {
                    client.share(&client.memory);
                }
                let place = offset..offset + bytes;
                let sent = if in_memory {
                    Part::Memory { offset: offset as u64, bytes: bytes as u32 }.encode().to_vec()
                } else {
                    [&Part::Bytes(bytes as u32).encode(), &memory[place.clone()]].concat()
                };
                expected.extend_from_slice(&memory[place]);
                let mut rest = &sent[..];
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(rest.len().min(cuts.next().expect("they go round")));
                    client.send(now);
                    rest = later;
                    // As the poll says.
                    socket.readable = true;
                    read.extend(read_all(&mut socket, most).0);
                }
            }
            prop_assert_eq!(&read, &expected);
            drop(client);
            socket.readable = true;
            prop_assert_eq!(read_all(&mut socket, most), (Vec::new(), true));
        }

        /// Nothing that a client sends does more than end its connection.
        #[test]
        fn arbitrary_bytes_are_the_end_at_worst(bytes in prop::collection::vec(any::<u8>(), 0..200), parts in prop::collection::vec((0u32..5, 0u32..9, 0u64..200_000), 0..9)) {
            let (mut client, mut socket) = connected(&memory());
            client.share(&client.memory);
            for (kind, count, offset) in parts {
                client.send(&[&kind.to_le_bytes()[..], &count.to_le_bytes(), &offset.to_le_bytes()].concat());
            }
            client.send(&bytes);
            drop(client);
            socket.arrived();
            prop_assert!(read_all(&mut socket, 1000).1);
        }
    }

    #[test]
    fn a_part_of_memory_has_arrived_as_a_whole_and_is_read_to_its_places() {
        let memory = memory();
        let (mut client, mut socket) = connected(&memory);
        client.share(&client.memory);
        client.send(
            &[&Part::Bytes(5).encode()[..], b"table", &Part::Memory { offset: 10, bytes: 50_000 }.encode()].concat(),
        );
        let mut table = [0; 5];
        assert!(matches!(socket.read(&mut table), Got::Bytes(5)));
        assert_eq!((&table, socket.arrived()), (b"table", 50_000));
        let (mut one, mut other) = (vec![0; 20_000], vec![0; 30_000]);
        assert!(socket.read_arrived(vec![&mut one, &mut other]));
        assert_eq!([one, other].concat(), memory[10..50_010]);
        assert_eq!(socket.arrived(), 0);
        client.send(&[&Part::Bytes(9).encode()[..], b"two", b"parts"].concat());
        assert_eq!(socket.arrived(), 8, "of what comes through the socket, what is there");
        let mut read = [0; 8];
        assert!(socket.read_arrived(vec![&mut read]));
        assert_eq!(&read, b"twoparts");
    }

    #[test]
    fn what_is_no_memory_and_what_lies_beyond_it_is_refused() {
        let gone = |share: Option<OwnedFd>, part: Part| {
            let (mut client, mut socket) = connected(&memory());
            match share {
                Some(other) => client.share(other),
                None => client.share(&client.memory),
            }
            client.send(&part.encode());
            read_all(&mut socket, 1000) == (Vec::new(), true)
        };
        let within = Part::Memory { offset: 0, bytes: 10 };
        let (pipe, _writes) = std::io::pipe().expect("a pipe");
        assert!(gone(Some(pipe.into()), within), "a read of a pipe waits");
        let file = tempfile::tempfile().expect("a file");
        assert!(
            rustix::fs::fcntl_get_seals(&file).is_ok() || gone(Some(file.into()), within),
            "a drive may make a read wait"
        );
        assert!(gone(None, Part::Memory { offset: MEMORY_BYTES as u64, bytes: 1 }));
        assert!(gone(None, Part::Memory { offset: u64::MAX - 1, bytes: 1 }), "further than a file may have bytes");
        let (mut client, mut socket) = connected(&memory());
        client.send(&within.encode());
        assert!(read_all(&mut socket, 1000).1, "nothing was shared");
        let (mut client, mut socket) = connected(&memory());
        client.send(&Part::Descriptor.encode());
        assert!(read_all(&mut socket, 1000).1, "no descriptor came");
        let (client, mut socket) = connected(&memory());
        client.share(&client.memory);
        client.share(&client.memory);
        assert!(read_all(&mut socket, 1000).1, "a client that sends nothing else would keep its lane");
    }

    #[test]
    fn memory_that_gets_shorter_is_the_end_of_its_connection() {
        let (mut client, mut socket) = connected(&memory());
        client.share(&client.memory);
        client.send(&Part::Memory { offset: 0, bytes: MEMORY_BYTES as u32 }.encode());
        let mut space = vec![0; 10_000];
        assert!(matches!(socket.read(&mut space), Got::Bytes(10_000)));
        rustix::fs::ftruncate(&client.memory, 15_000).expect("cut");
        assert_eq!(socket.arrived(), 90_000, "as it was said");
        assert!(!socket.read_arrived(vec![&mut space]), "of which a half is there");
        assert!(matches!(socket.read(&mut space), Got::Gone));
    }

    #[test]
    fn a_connection_that_waits_holds_no_buffer() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        let (mut parts, mut space) = (Parts::new(), [0; 100]);
        theirs.write_all(&[&Part::Bytes(4).encode()[..], b"four"].concat()).expect("there is room");
        assert_eq!(parts.read(&mut ours, &mut space).expect("read"), 4);
        assert!(parts.buffer.is_empty() && !parts.may_have_more());
        assert_eq!(parts.arrived(&mut ours), 0);
        assert_eq!(parts.read(&mut ours, &mut space).expect_err("nothing came").kind(), io::ErrorKind::WouldBlock);
        assert!(parts.buffer.is_empty());
    }
}
