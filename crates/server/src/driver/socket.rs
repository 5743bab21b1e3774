//! A connection's socket.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;

use mio::event::{Event, Source};
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use super::local::Parts;

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

/// What a client is connected by.
enum Stream {
    Network(TcpStream),
    /// A client on this machine.
    Local(UnixStream, Parts),
}

/// A socket, and what is known of it. Readiness is told once (edges), so it is kept here.
pub(crate) struct Socket {
    stream: Stream,
    pub(crate) readable: bool,
    writable: bool,
    /// The peer sends no more: the end is behind what can be read.
    ended: bool,
    /// What a client did that none does.
    trouble: Option<io::Error>,
}

impl Socket {
    fn new(stream: Stream) -> Socket {
        Socket { stream, readable: true, writable: true, ended: false, trouble: None }
    }

    /// Of a client somewhere in the network.
    pub(crate) fn of_network(stream: TcpStream) -> Socket {
        Socket::new(Stream::Network(stream))
    }

    /// Of a client on this machine.
    pub(crate) fn of_this_machine(stream: UnixStream) -> Socket {
        Socket::new(Stream::Local(stream, Parts::new()))
    }

    fn source(&mut self) -> &mut dyn Source {
        match &mut self.stream {
            Stream::Network(stream) => stream,
            Stream::Local(stream, _) => stream,
        }
    }

    /// Registers it as connection `id`. What was known of it may have changed since it was registered last.
    pub(crate) fn register(&mut self, id: u64, registry: &Registry) -> io::Result<()> {
        self.source().register(registry, Token(id as usize), Interest::READABLE | Interest::WRITABLE)?;
        (self.readable, self.writable) = (true, true);
        Ok(())
    }

    /// Takes the socket out of its poll.
    pub(crate) fn deregister(&mut self, registry: &Registry) {
        if let Err(error) = self.source().deregister(registry) {
            tracing::debug!(%error, "a socket was gone before it was taken out of its poll");
        }
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
            let read = match &mut self.stream {
                Stream::Network(stream) => stream.read(space),
                Stream::Local(stream, parts) => parts.read(stream, space),
            };
            match read {
                Ok(0) => return Got::Gone,
                Ok(bytes) => {
                    // Less than there is room for: what comes next is told anew, except the end.
                    self.readable = self.ended
                        || match &self.stream {
                            Stream::Network(_) => bytes == space.len(),
                            Stream::Local(_, parts) => parts.may_have_more(),
                        };
                    return Got::Bytes(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Got::Nothing;
                }
                Err(error) => {
                    self.note_trouble(error);
                    return Got::Gone;
                }
            }
        }
    }

    /// Only what a client does wrong is told: that it is gone is nothing strange.
    fn note_trouble(&mut self, error: io::Error) {
        if error.kind() == io::ErrorKind::InvalidData {
            self.trouble = Some(error);
        }
    }

    /// Says what this client did that none does, if that is why it is gone.
    pub(crate) fn tell_trouble(&self, client: &impl fmt::Display) {
        if let Some(trouble) = &self.trouble {
            tracing::warn!(
                "{client}: {trouble}. Its connection is closed, which frees what it held. Nothing that was acknowledged is concerned: the client connects again, by the \
                 network, and repeats what was not answered. If that comes again, update the older of the two"
            );
        }
    }

    /// How many bytes can be read now.
    pub(crate) fn arrived(&mut self) -> usize {
        match &mut self.stream {
            // A socket that does not say has nothing to be read at once.
            Stream::Network(stream) => {
                let bytes = rustix::io::ioctl_fionread(&*stream).unwrap_or(0);
                usize::try_from(bytes).unwrap_or(usize::MAX)
            }
            Stream::Local(stream, parts) => parts.arrived(stream),
        }
    }

    /// Reads until all of `parts` is full; whether it came to that. All of it has arrived.
    pub(crate) fn read_arrived(&mut self, parts: Vec<&mut [u8]>) -> bool {
        let mut slices: Vec<IoSliceMut<'_>> = parts.into_iter().map(IoSliceMut::new).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let most = rest.len().min(READ_PARTS);
            let read = match &mut self.stream {
                Stream::Network(stream) => stream.read_vectored(&mut rest[..most]),
                Stream::Local(stream, parts) => parts.read_arrived(stream, &mut rest[..most]),
            };
            match read {
                Ok(0) => return false,
                Ok(bytes) => IoSliceMut::advance_slices(&mut rest, bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::debug!(%error, "what had arrived could not be read");
                    self.note_trouble(error);
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
            let written = match &mut self.stream {
                Stream::Network(stream) => stream.write_vectored(&slices[..count]),
                Stream::Local(stream, _) => stream.write_vectored(&slices[..count]),
            };
            match written {
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
        let _ = match &self.stream {
            Stream::Network(stream) => stream.shutdown(Shutdown::Write),
            Stream::Local(stream, _) => stream.shutdown(Shutdown::Write),
        };
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
}
