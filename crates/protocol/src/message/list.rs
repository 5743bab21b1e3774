//! Streams and Runs.

use forebay_types::limits::{BATCH_RECORDS_MAX, STREAMS_MAX};
use forebay_types::{EventId, RunId, StreamName};

use super::Message;
use crate::error::FrameError;
use crate::kind::Kind;
use crate::wire::{Reader, Write};

/// Bytes of a [`RunInfo`] on the wire.
pub(crate) const RUN_INFO_BYTES: usize = 48;

/// Asks for the streams of the connection's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams;

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: StreamName,
    /// Events accepted into it and not released by it.
    pub accepted: u64,
}

/// The streams of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsReply {
    /// All of them, at most [`STREAMS_MAX`].
    pub streams: Vec<StreamInfo>,
}

/// Asks for the runs of the connection's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs;

/// A run, as one lane sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// The run.
    pub run: RunId,
    /// Events that are known: undecided, accepted or finished.
    pub events: u64,
    /// Events without a decision.
    pub undecided: u64,
    /// Events that were rejected, deleted, or released by all of their streams.
    pub finished: u64,
    /// The smallest event that is not finished; 0 when all are.
    pub first_event: EventId,
    /// The largest event that is not finished; 0 when all are.
    pub last_event: EventId,
}

/// The runs of a lane; with [`crate::FLAG_MORE`] more follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunsReply {
    /// The runs, at most [`BATCH_RECORDS_MAX`] in a frame, each once.
    pub runs: Vec<RunInfo>,
}

macro_rules! empty {
    ($name:ident) => {
        impl Message for $name {
            const KIND: Kind = Kind::$name;

            fn write_table(&self, _table: &mut Vec<u8>) {}

            fn read_table(_table: &[u8]) -> Result<Self, FrameError> {
                Ok($name)
            }
        }
    };
}
pub(super) use empty;

empty!(Streams);
empty!(Runs);

impl Message for StreamsReply {
    const KIND: Kind = Kind::StreamsReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.streams.len() <= STREAMS_MAX, "{} streams exceed a store's", self.streams.len());
        table.put_count(self.streams.len());
        table.put_u32(0);
        for stream in &self.streams {
            table.put_u64(stream.accepted);
            table.put_u8(stream.name.as_str().len() as u8);
            table.extend_from_slice(stream.name.as_str().as_bytes());
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("streams", STREAMS_MAX)?;
        reader.u32()?;
        let mut streams = Vec::new();
        for _ in 0..count {
            let accepted = reader.u64()?;
            let name_bytes = usize::from(reader.u8()?);
            streams.push(StreamInfo { name: reader.stream(name_bytes)?, accepted });
        }
        Ok(StreamsReply { streams })
    }
}

impl Message for RunsReply {
    const KIND: Kind = Kind::RunsReply;

    fn write_table(&self, table: &mut Vec<u8>) {
        assert!(self.runs.len() <= BATCH_RECORDS_MAX, "{} runs exceed a frame", self.runs.len());
        table.put_count(self.runs.len());
        table.put_u32(0);
        for run in &self.runs {
            table.put_u32(run.run.0);
            table.put_u32(0);
            table.put_u64(run.events);
            table.put_u64(run.undecided);
            table.put_u64(run.finished);
            table.put_u64(run.first_event.0);
            table.put_u64(run.last_event.0);
        }
    }

    fn read_table(table: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(table, Self::KIND.name());
        let count = reader.count("runs", BATCH_RECORDS_MAX)?;
        reader.u32()?;
        let runs = reader.list(count, RUN_INFO_BYTES, |entry| {
            let run = RunId(entry.u32()?);
            entry.u32()?;
            let (events, undecided, finished) = (entry.u64()?, entry.u64()?, entry.u64()?);
            let (first_event, last_event) = (EventId(entry.u64()?), EventId(entry.u64()?));
            Ok(RunInfo { run, events, undecided, finished, first_event, last_event })
        })?;
        Ok(RunsReply { runs })
    }
}
