//! The socket of a connection: by the network, or to a server on this machine.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;

use forebay_protocol::Part;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::local::LocalMemory;

/// Pieces written at once: a batch has two, or one for each payload that is shared with the caller.
const WRITE_PIECES: usize = 256;

/// Headers of parts and short parts that go to a server on this machine at once.
const OUT_BYTES: usize = 16 << 10;

/// Shorter pieces are copied behind the header of their part: a piece of its own costs more than that.
const COPIED_BYTES_MAX: usize = 2 << 10;

/// Bytes of a part, at most.
const PART_BYTES_MAX: usize = 64 << 20;

/// A connection that stands, or comes to.
pub(super) enum Connection {
    Network(TcpStream),
    Local(Local),
}

/// What came of a write.
pub(super) enum Wrote {
    /// So many of the bytes have left, or will.
    Bytes(usize),
    /// The socket takes nothing for now.
    Nothing,
}

impl Connection {
    /// Starts to connect to an address.
    pub(super) fn to(address: SocketAddr) -> io::Result<Connection> {
        TcpStream::connect(address).map(Connection::Network)
    }

    /// Connects to the server of this machine that has the socket of this name.
    pub(super) fn local(name: &str, memory: LocalMemory) -> io::Result<Connection> {
        let address = net::SocketAddr::from_abstract_name(name)?;
        let stream = UnixStream::connect_addr(&address)?;
        Ok(Connection::Local(Local { stream, memory, is_shared: false, out: Vec::new(), left: 0, part_bytes: 0 }))
    }

    pub(super) fn register(&mut self, index: usize, registry: &Registry) -> io::Result<()> {
        let source: &mut dyn Source = match self {
            Connection::Network(stream) => stream,
            Connection::Local(local) => &mut local.stream,
        };
        source.register(registry, Token(index), Interest::READABLE | Interest::WRITABLE)
    }

    /// Whether it stands; once it is writable it does, or never will.
    pub(super) fn stands(&self) -> io::Result<bool> {
        let Connection::Network(stream) = self else { return Ok(true) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        // Frames are written whole; waiting for more to fill a packet would only delay the last one.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
        Ok(true)
    }

    /// Where its server listens, if it came by the network.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Connection::Network(stream) => stream.peer_addr().ok(),
            Connection::Local(_) => None,
        }
    }

    /// Where it begins, if it goes by the network.
    pub(super) fn here(&self) -> Option<IpAddr> {
        match self {
            Connection::Network(stream) => stream.local_addr().ok().map(|address| address.ip()),
            Connection::Local(_) => None,
        }
    }

    /// Whether bytes that were said to have left are still here.
    pub(super) fn holds_some(&self) -> bool {
        matches!(self, Connection::Local(local) if local.left < local.out.len())
    }

    /// Writes what the socket takes of `pieces`.
    pub(super) fn write<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<Wrote> {
        let written = match self {
            Connection::Network(stream) => write_vectored(stream, pieces),
            Connection::Local(local) => local.write(pieces),
        };
        match written {
            Ok(bytes) => Ok(Wrote::Bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Wrote::Nothing),
            Err(error) => Err(error),
        }
    }

    pub(super) fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Connection::Network(stream) => stream.read(space),
            Connection::Local(local) => local.stream.read(space),
        }
    }
}

fn write_vectored<'a>(stream: &mut TcpStream, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); WRITE_PIECES];
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = IoSlice::new(piece);
        count += 1;
    }
    match stream.write_vectored(&slices[..count])? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        bytes => Ok(bytes),
    }
}

/// A connection to a server on this machine: what lies in shared memory is named, all else is sent.
pub(super) struct Local {
    stream: UnixStream,
    memory: LocalMemory,
    /// The server has the memory's descriptor.
    is_shared: bool,
    /// Headers of parts and short ones, and how much of them has left.
    out: Vec<u8>,
    left: usize,
    /// Behind these so many bytes of the pieces belong to the last part.
    part_bytes: usize,
}

impl Local {
    /// Takes some of `pieces`, which begin where those that were taken end.
    fn write<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut all = [&[][..]; WRITE_PIECES];
        let mut count = 0;
        for (place, piece) in all.iter_mut().zip(pieces) {
            *place = piece;
            count += 1;
        }
        let mut pieces = &all[..count];
        let mut taken = 0;
        if self.part_bytes == 0 {
            taken = self.add_parts(&mut pieces)?;
        }
        match self.send(pieces) {
            Ok(sent) => Ok(taken + sent),
            // What was taken is kept here.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Err(error) => Err(error),
        }
    }

    /// Makes parts of the first of `pieces`, which are taken from these, but for those of the last part; how many bytes they have.
    fn add_parts(&mut self, pieces: &mut &[&[u8]]) -> io::Result<usize> {
        let mut taken = 0;
        while self.out.len() < OUT_BYTES
            && let Some((piece, rest)) = pieces.split_first()
        {
            if let Some(offset) = self.memory.place_of(piece) {
                if !self.is_shared {
                    // The descriptor goes behind what was taken before.
                    if !self.out.is_empty() {
                        break;
                    }
                    self.share()?;
                }
                let bytes = u32::try_from(piece.len()).expect("a piece is no longer than a frame");
                self.out.extend_from_slice(&Part::Memory { offset, bytes }.encode());
            } else if piece.len() <= COPIED_BYTES_MAX {
                self.out.extend_from_slice(&Part::Bytes(piece.len() as u32).encode());
                self.out.extend_from_slice(piece);
            } else {
                let sent = pieces.iter().take_while(|piece| self.memory.place_of(piece).is_none());
                self.part_bytes = sent.map(|piece| piece.len()).sum::<usize>().min(PART_BYTES_MAX);
                self.out.extend_from_slice(&Part::Bytes(self.part_bytes as u32).encode());
                break;
            }
            taken += piece.len();
            *pieces = rest;
        }
        Ok(taken)
    }

    /// Sends what is kept here, and behind it what the last part has of `pieces`; how many bytes of these have left.
    fn send(&mut self, pieces: &[&[u8]]) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            let mut slices = [IoSlice::new(&[]); 1 + WRITE_PIECES];
            slices[0] = IoSlice::new(&self.out[self.left..]);
            let (mut count, mut skipped, mut room) = (1, sent, self.part_bytes);
            for piece in pieces {
                let from = skipped.min(piece.len());
                let to = piece.len().min(from + room);
                (skipped, room) = (skipped - from, room - (to - from));
                if from < to {
                    slices[count] = IoSlice::new(&piece[from..to]);
                    count += 1;
                }
            }
            if self.left == self.out.len() && count == 1 {
                break;
            }
            let result =
                sendmsg(&self.stream, &slices[..count], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
            let bytes = match result {
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error.into()),
            };
            let of_out = bytes.min(self.out.len() - self.left);
            self.left += of_out;
            (sent, self.part_bytes) = (sent + bytes - of_out, self.part_bytes - (bytes - of_out));
        }
        self.out.clear();
        self.left = 0;
        Ok(sent)
    }

    /// Gives the server the memory's descriptor.
    fn share(&mut self) -> io::Result<()> {
        let descriptors = [self.memory.descriptor().expect("something lies in it")];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one");
        let header = Part::Descriptor.encode();
        let sent = sendmsg(&self.stream, &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.is_shared = true;
        // What is left of so few bytes goes as all else does.
        self.out.extend_from_slice(&header[sent..]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use forebay_protocol::PART_HEADER_BYTES;
    use proptest::prelude::*;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};

    use super::*;
    use crate::blocks::Blocks;

    /// What a server makes of what arrives.
    struct Receiver {
        socket: UnixStream,
        arrived: Vec<u8>,
        memory: Option<OwnedFd>,
        bytes: Vec<u8>,
        /// Of these, those that came through the socket.
        sent_bytes: usize,
    }

    impl Receiver {
        /// Takes all that is there.
        fn receive(&mut self) {
            let mut room = vec![0; 100_000];
            loop {
                let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let slices = &mut [std::io::IoSliceMut::new(&mut room)];
                let Ok(received) = recvmsg(&self.socket, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) else {
                    break;
                };
                let count = received.bytes;
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                        assert!(self.memory.replace(descriptors.next().expect("one")).is_none(), "it comes once");
                    }
                }
                self.arrived.extend_from_slice(&room[..count]);
            }
            while let Some((header, rest)) = self.arrived.split_first_chunk::<PART_HEADER_BYTES>() {
                let taken = match Part::decode(header).expect("it is sound") {
                    Part::Bytes(bytes) if (bytes as usize) <= rest.len() => {
                        self.bytes.extend_from_slice(&rest[..bytes as usize]);
                        self.sent_bytes += bytes as usize;
                        bytes as usize
                    }
                    Part::Bytes(_) => break,
                    Part::Memory { offset, bytes } => {
                        let mut read = vec![0; bytes as usize];
                        let memory = self.memory.as_ref().expect("it is shared before");
                        assert_eq!(rustix::io::pread(memory, &mut read, offset), Ok(read.len()));
                        self.bytes.extend_from_slice(&read);
                        0
                    }
                    Part::Descriptor => {
                        assert!(self.memory.is_some(), "it comes with that");
                        0
                    }
                };
                self.arrived.drain(..PART_HEADER_BYTES + taken);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever lies where, and however little the socket takes at once: the bytes are the same, and those in shared memory are not sent.
        #[test]
        fn bytes_arrive_as_they_are_and_those_of_shared_memory_are_not_sent(
            pieces in prop::collection::vec((any::<bool>(), prop_oneof![0usize..200, 1_500usize..2_500, 1usize..400_000]), 1..24),
            buffer_bytes in 1usize..200_000,
        ) {
            let memory = LocalMemory::default();
            memory.want(true);
            let blocks = Blocks::shared(1 << 20, 2, memory.clone());
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            sockopt::set_socket_send_buffer_size(&ours, buffer_bytes).expect("set");
            let mut receiver = Receiver { socket: theirs, arrived: Vec::new(), memory: None, bytes: Vec::new(), sent_bytes: 0 };
            let mut local = Local { stream: ours, memory, is_shared: false, out: Vec::new(), left: 0, part_bytes: 0 };
            let pieces: Vec<bytes::Bytes> = pieces.into_iter().enumerate().map(|(number, (in_memory, bytes))| {
                let content = vec![number as u8; bytes];
                let mut block = blocks.take();
                if in_memory { block.extend(&content); block.share() } else { content.into() }
            }).collect();
            let all = pieces.concat();
            let mut taken = 0;
            while taken < all.len() || local.left < local.out.len() {
                let mut skip = taken;
                let rest = pieces.iter().filter_map(|piece| {
                    let skipped = skip.min(piece.len());
                    skip -= skipped;
                    (skipped < piece.len()).then(|| &piece[skipped..])
                });
                match local.write(rest) {
                    Ok(bytes) => taken += bytes,
                    Err(error) => prop_assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
                receiver.receive();
            }
            prop_assert!(receiver.bytes == all, "{} bytes came of {}", receiver.bytes.len(), all.len());
            let heap = pieces.iter().filter(|piece| local.memory.place_of(piece).is_none());
            prop_assert_eq!(receiver.sent_bytes, heap.map(|piece| piece.len()).sum::<usize>());
        }
    }
}
