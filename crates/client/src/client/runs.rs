//! Runs and streams as objects of the store.

use std::collections::BTreeMap;

use forebay_protocol::{ChangeRun, DefineStream, RunList, StreamList};
use forebay_types::{
    RunChange, RunCounts, RunId, RunRecord, RunRequest, StreamDefinition, StreamName, StreamRequest, StreamVersion,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Client, unexpected};
use crate::error::ClientError;
use crate::session::{Answer, Request};

/// The lane in which the books lie.
const BOOKS_LANE: u16 = 0;

/// Who asks for something that is done with a run or a stream, and why. Both may be empty where no reason is demanded; they are kept with what is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Who; at most 128 bytes.
    pub by: String,
    /// Why; at most 1024 bytes.
    pub reason: String,
}

/// Runs that were declared.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RunPage {
    /// The runs, ascending.
    pub runs: Vec<RunRecord>,
    /// Whether there are more behind the last.
    pub more: bool,
}

/// A run with what the store knows of it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownRun {
    /// What is kept of it.
    #[serde(flatten)]
    pub record: RunRecord,
    /// Events that are known now, over all lanes.
    pub known: RunCounts,
}

#[derive(Deserialize)]
struct StreamPage {
    streams: Vec<StreamVersion>,
}

impl Client {
    /// Does something with a run, durably, and gives the run as it is then. It is done as far as the run is as it was when this call looked at it: somebody else's
    /// change in between is not overrun.
    ///
    /// # Errors
    /// [`ClientError::Refused`], with what is so and what to do, when the run must not be changed so: nothing was changed then. When the server gives no answer,
    /// [`Client::run`] says whether it was done.
    pub fn change_run(&mut self, run: RunId, what: RunChange, signature: &Signature) -> Result<RunRecord, ClientError> {
        let changes = match &what {
            // What is known of the number already the server says best.
            RunChange::Declare { .. } => 0,
            _ => self.run(run)?.map_or(0, |run| run.changes),
        };
        let Signature { by, reason } = signature.clone();
        let token = self.token()?;
        self.ask_json(Request::ChangeRun(ChangeRun(RunRequest { run, changes, token, by, reason, what })))
    }

    /// A run; `None` when it was never declared.
    ///
    /// # Errors
    /// When the server gives no answer, or has no runs.
    pub fn run(&mut self, run: RunId) -> Result<Option<RunRecord>, ClientError> {
        let page: RunPage =
            self.ask_json(Request::RunList(RunList { after: run.0.checked_sub(1).map(RunId), max: 1 }))?;
        Ok(page.runs.into_iter().find(|found| found.run == run))
    }

    /// Runs that were declared, behind this one, ascending; the server gives no more than it likes at once.
    ///
    /// # Errors
    /// When the server gives no answer, or has no runs.
    pub fn run_records(&mut self, after: Option<RunId>) -> Result<RunPage, ClientError> {
        let page: RunPage = self.ask_json(Request::RunList(RunList { after, max: u32::MAX }))?;
        let ascend = page.runs.windows(2).all(|pair| pair[0].run < pair[1].run);
        let behind = page.runs.first().is_none_or(|first| after.is_none_or(|after| first.run > after));
        if !ascend || !behind || page.more && page.runs.is_empty() {
            return Err(ClientError::Broken {
                address: self.address(),
                what: "runs were listed out of order".to_owned(),
            });
        }
        Ok(page)
    }

    /// The runs that were declared, ascending, from this number on, each with what the store knows of it now.
    ///
    /// # Errors
    /// As [`Client::run_records`].
    pub fn known_runs(&mut self, from: Option<RunId>) -> Result<Vec<KnownRun>, ClientError> {
        let mut records: Vec<RunRecord> = Vec::new();
        let mut after = from.and_then(|from| from.0.checked_sub(1)).map(RunId);
        loop {
            let page = self.run_records(after)?;
            after = page.runs.last().map(|last| last.run);
            records.extend(page.runs);
            if !page.more {
                break;
            }
        }
        let counts = self.run_counts()?;
        let known = |record: RunRecord| {
            let known = counts.get(&record.run).copied().unwrap_or_default();
            KnownRun { record, known }
        };
        Ok(records.into_iter().map(known).collect())
    }

    /// A run with what the store knows of it now; `None` when it was never declared.
    ///
    /// # Errors
    /// As [`Client::run`].
    pub fn known_run(&mut self, run: RunId) -> Result<Option<KnownRun>, ClientError> {
        let Some(record) = self.run(run)? else { return Ok(None) };
        let known = self.run_counts()?.get(&run).copied().unwrap_or_default();
        Ok(Some(KnownRun { record, known }))
    }

    /// How many events the store knows of each run, declared or not, over all lanes.
    ///
    /// # Errors
    /// When the server gives no answer.
    pub fn run_counts(&mut self) -> Result<BTreeMap<RunId, RunCounts>, ClientError> {
        let runs = self.runs()?.into_iter();
        let counts = |events, undecided, finished| RunCounts { events, undecided, finished };
        Ok(runs.map(|info| (info.run, counts(info.events, info.undecided, info.finished))).collect())
    }

    /// Defines a stream, durably, and gives the version that this is. Runs that are started from then on have it.
    ///
    /// # Errors
    /// As [`Client::change_run`].
    pub fn define_stream(
        &mut self,
        name: &StreamName,
        definition: StreamDefinition,
        by: &str,
    ) -> Result<StreamVersion, ClientError> {
        let version = self.stream_versions(name)?.last().map_or(0, |newest| newest.version);
        let (name, by, token) = (name.clone(), by.to_owned(), self.token()?);
        self.ask_json(Request::DefineStream(DefineStream(StreamRequest { name, version, token, by, definition })))
    }

    /// The newest definition of each stream that is defined, by name.
    ///
    /// # Errors
    /// When the server gives no answer, or has no runs and streams.
    pub fn stream_definitions(&mut self) -> Result<Vec<StreamVersion>, ClientError> {
        let page: StreamPage = self.ask_json(Request::StreamList(StreamList { stream: None }))?;
        Ok(page.streams)
    }

    /// All versions of the definition of a stream, the oldest first; none when it is not defined.
    ///
    /// # Errors
    /// As [`Client::stream_definitions`].
    pub fn stream_versions(&mut self, name: &StreamName) -> Result<Vec<StreamVersion>, ClientError> {
        let page: StreamPage = self.ask_json(Request::StreamList(StreamList { stream: Some(name.clone()) }))?;
        Ok(page.streams)
    }

    /// The definitions of streams that hold for a run: of the versions that it was started with. For one that was not declared, or not started yet, these are the newest.
    ///
    /// # Errors
    /// As [`Client::stream_definitions`].
    pub fn streams_of_run(&mut self, run: RunId) -> Result<Vec<StreamVersion>, ClientError> {
        let Some(record) = self.run(run)?.filter(|record| record.started.is_some()) else {
            return self.stream_definitions();
        };
        let mut definitions = Vec::with_capacity(record.streams.len());
        for stream in &record.streams {
            let versions = self.stream_versions(&stream.name)?;
            definitions.extend(versions.into_iter().find(|version| version.version == stream.version));
        }
        Ok(definitions)
    }

    /// A number that no other request has.
    fn token(&self) -> Result<u64, ClientError> {
        getrandom::u64().map_err(|error| ClientError::System {
            address: self.address(),
            source: std::io::Error::other(format!("no random numbers: {error}")),
        })
    }

    fn ask_json<T: DeserializeOwned>(&mut self, request: Request) -> Result<T, ClientError> {
        match self.ask_one(BOOKS_LANE, request)? {
            Answer::Status(json) => serde_json::from_str(&json).map_err(|error| ClientError::Broken {
                address: self.address(),
                what: format!("its JSON cannot be read: {error}"),
            }),
            other => unexpected(&other),
        }
    }
}
