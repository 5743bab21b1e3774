//! A connection's socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// Pieces that are written at once.
const WRITE_PIECES: usize = 64;

/// Parts that are read to at once: those of a MiB, and more.
const READ_PARTS: usize = 64;

/// What came of a read.
pub(crate) enum Got {
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The connection is gone.
    Gone,
}

/// A socket, and what is known of it. Readiness is told once (edges), so it is kept here.
pub(crate) struct Socket {
    stream: TcpStream,
    pub(crate) readable: bool,
    writable: bool,
    /// The peer sends no more: the end is behind what can be read.
    ended: bool,
}

impl Socket {
    /// Registers `stream` as connection `id`.
    pub(crate) fn new(stream: std::net::TcpStream, id: u64, registry: &Registry) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        registry.register(&mut stream, Token(id as usize), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Socket { stream, readable: true, writable: true, ended: false })
    }

    /// Takes in what the poll said.
    pub(crate) fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.ended |= event.is_read_closed();
    }

    pub(crate) fn read(&mut self, space: &mut [u8]) -> Got {
        debug_assert!(!space.is_empty(), "an empty read looks like the end");
        loop {
            match self.stream.read(space) {
                Ok(0) => return Got::Gone,
                Ok(bytes) => {
                    // Less than there is room for: what comes next is told anew, except the end.
                    self.readable = bytes == space.len() || self.ended;
                    return Got::Bytes(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Got::Nothing;
                }
                Err(_) => return Got::Gone,
            }
        }
    }

    /// How many bytes can be read now.
    pub(crate) fn arrived(&self) -> usize {
        // A socket that does not say has nothing to be read at once.
        let bytes = rustix::io::ioctl_fionread(&self.stream).unwrap_or(0);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Reads until all of `parts` is full; whether it came to that. All of it has arrived.
    pub(crate) fn read_arrived(&mut self, parts: Vec<&mut [u8]>) -> bool {
        let mut slices: Vec<IoSliceMut<'_>> = parts.into_iter().map(IoSliceMut::new).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let most = rest.len().min(READ_PARTS);
            match self.stream.read_vectored(&mut rest[..most]) {
                Ok(0) => return false,
                Ok(bytes) => IoSliceMut::advance_slices(&mut rest, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::debug!(%error, "what had arrived could not be read");
                    return false;
                }
            }
        }
        true
    }

    /// Writes what the socket takes of `pieces`; `None`: the connection is gone.
    pub(crate) fn write<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
        if !self.writable {
            return Some(0);
        }
        let mut slices = [IoSlice::new(&[]); WRITE_PIECES];
        let (mut count, mut bytes) = (0, 0);
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            (count, bytes) = (count + 1, bytes + piece.len());
        }
        loop {
            match self.stream.write_vectored(&slices[..count]) {
                Ok(written) => {
                    self.writable = written == bytes;
                    return Some(written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Some(0);
                }
                Err(_) => return None,
            }
        }
    }

    /// Sends the end; what the peer still sends is to be dropped, or it would not read what it was told last.
    pub(crate) fn end(&mut self) {
        // A peer that is gone already needs no end.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Drops what arrived; whether the peer has come to its end too.
    pub(crate) fn drain(&mut self) -> bool {
        let mut space = [0; 16 << 10];
        // A peer that never stops is cut off by time.
        for _ in 0..16 {
            match self.read(&mut space) {
                Got::Bytes(_) => {}
                Got::Nothing => return false,
                Got::Gone => return true,
            }
        }
        false
    }

    /// Takes the socket out of its poll.
    pub(crate) fn remove(mut self, registry: &Registry) -> std::net::TcpStream {
        if let Err(error) = registry.deregister(&mut self.stream) {
            tracing::debug!(%error, "a socket was gone before it was taken out of its poll");
        }
        self.stream.into()
    }
}
