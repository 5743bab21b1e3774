//! The socket of a connection: by the network, or to a server on this machine.

use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;

use forebay_protocol::Part;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use crate::local::LocalMemory;

/// Pieces written at once: a batch has two, or one for each payload that is shared with the caller.
const WRITE_PIECES: usize = 256;

/// What is copied to be written at once to a server on this machine.
const OUT_BYTES: usize = 64 << 10;

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
        Ok(Connection::Local(Local { stream, memory, is_shared: false, out: Vec::new(), left: 0 }))
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

    /// Where on this machine its server listens, if it came by the network and the server is here.
    pub(super) fn ends_here(&self) -> Option<SocketAddr> {
        let Connection::Network(stream) = self else { return None };
        let here = stream.local_addr().ok()?;
        stream.peer_addr().ok().filter(|there| there.ip() == here.ip())
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
    /// Parts that are on their way, and how much of them has left.
    out: Vec<u8>,
    left: usize,
}

impl Local {
    /// Takes some of `pieces`, none before what was taken last has left.
    fn write<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        self.send_rest()?;
        let mut taken = 0;
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            if self.out.len() >= OUT_BYTES {
                break;
            }
            let Some(offset) = self.memory.place_of(piece) else {
                let count = piece.len().min(OUT_BYTES);
                self.out.extend_from_slice(&Part::Bytes(count as u32).encode());
                self.out.extend_from_slice(&piece[..count]);
                taken += count;
                if count < piece.len() {
                    break;
                }
                continue;
            };
            if !self.is_shared {
                // The descriptor goes behind what was taken before.
                if !self.out.is_empty() {
                    break;
                }
                self.share()?;
            }
            let bytes = u32::try_from(piece.len()).expect("a piece is no longer than a frame");
            self.out.extend_from_slice(&Part::Memory { offset, bytes }.encode());
            taken += piece.len();
        }
        match self.send_rest() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Err(error) => Err(error),
            Ok(()) => Ok(taken),
        }
    }

    fn send_rest(&mut self) -> io::Result<()> {
        while self.left < self.out.len() {
            self.left += send(&self.stream, &self.out[self.left..], SendFlags::NOSIGNAL)?;
        }
        self.out.clear();
        self.left = 0;
        Ok(())
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
