//! Hello and its reply.

use forebay_types::StoreUuid;

use super::Message;
use crate::error::FrameError;
use crate::kind::{Class, Kind};
use crate::limits::PEER_NAME_BYTES_MAX;
use crate::wire::{Reader, Write, cut};

/// The greeting of a client, the first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version that the client speaks.
    pub protocol_version: u16,
    /// The lane whose events the connection is for, or [`crate::LANE_CONTROL`].
    pub lane: u16,
    /// What the client is for.
    pub class: Class,
    /// A short name for the logs; cut to [`PEER_NAME_BYTES_MAX`] bytes.
    pub name: String,
}

impl Message for Hello {
    const KIND: Kind = Kind::Hello;

    fn write_table(&self, table: &mut Vec<u8>) {
        let name = cut(&self.name, PEER_NAME_BYTES_MAX);
        table.put_u16(self.protocol_version);
        table.put_u16(self.lane);
        table.put_u8(self.class.code());
        table.put_u8(name.len() as u8);
        table.put_u16(0);
        table.extend_from_slice(name.as_bytes());
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let (protocol_version, lane) = (reader.u16()?, reader.u16()?);
        let class = reader.u8()?;
        let class = reader.coded("class", class, Class::from_code(class))?;
        let name_bytes = usize::from(reader.u8()?);
        reader.u16()?;
        let name = reader.text("name", name_bytes, PEER_NAME_BYTES_MAX)?.to_owned();
        Ok(Hello { protocol_version, lane, class, name })
    }
}

/// What the client must know of store and connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloReply {
    /// The version that is spoken from now on.
    pub protocol_version: u16,
    /// The lanes of the store; an event's is [`forebay_types::placement::lane_of`].
    pub lanes: u16,
    /// The lane of this connection, as the client named it.
    pub lane: u16,
    /// Whether puts, decisions and releases are refused.
    pub read_only: bool,
    /// The store.
    pub store: StoreUuid,
    /// Counts the starts of the store.
    pub epoch: u64,
    /// The largest fragment that this store takes.
    pub fragment_bytes_max: u32,
    /// The largest payload of a frame that this server takes.
    pub frame_payload_bytes_max: u32,
    /// Bytes of puts that this connection may have unanswered; see [`super::PutReply`].
    pub credit_bytes: u32,
    /// Name and version of the server; cut to [`PEER_NAME_BYTES_MAX`] bytes.
    pub server: String,
    /// The number of the socket that takes clients of the same machine ([`crate::local_socket_name`]); 0: there is none, as of servers that do not know of it.
    pub local: u64,
}

const READ_ONLY: u16 = 1;

impl Message for HelloReply {
    const KIND: Kind = Kind::HelloReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        let server = cut(&self.server, PEER_NAME_BYTES_MAX);
        table.put_u16(self.protocol_version);
        table.put_u16(self.lanes);
        table.put_u16(self.lane);
        table.put_u16(if self.read_only { READ_ONLY } else { 0 });
        table.extend_from_slice(&self.store.to_bytes());
        table.put_u64(self.epoch);
        table.put_u32(self.fragment_bytes_max);
        table.put_u32(self.frame_payload_bytes_max);
        table.put_u32(self.credit_bytes);
        table.put_u32(server.len() as u32);
        table.extend_from_slice(server.as_bytes());
        table.put_u64(self.local);
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let protocol_version = reader.u16()?;
        let lanes = reader.u16()?;
        if lanes == 0 || usize::from(lanes) > forebay_types::limits::LANES_MAX {
            return reader.bad("number of lanes", lanes);
        }
        let lane = reader.u16()?;
        let read_only = reader.u16()? & READ_ONLY != 0;
        let store = StoreUuid::from_bytes(reader.array()?);
        let epoch = reader.u64()?;
        let (fragment_bytes_max, frame_payload_bytes_max) = (reader.u32()?, reader.u32()?);
        let credit_bytes = reader.u32()?;
        let server_bytes = reader.count("bytes of the server's name", PEER_NAME_BYTES_MAX)?;
        let server = reader.text("server's name", server_bytes, PEER_NAME_BYTES_MAX)?.to_owned();
        let local = if reader.is_at_end() { 0 } else { reader.u64()? };
        Ok(HelloReply {
            protocol_version,
            lanes,
            lane,
            read_only,
            store,
            epoch,
            fragment_bytes_max,
            frame_payload_bytes_max,
            credit_bytes,
            server,
            local,
        })
    }
}
