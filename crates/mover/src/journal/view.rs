//! A journal as people look at it, beside the mover that has it, and what they ask for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_types::EventKey;
use rusqlite::{Connection, OpenFlags, Row, params};
use serde::Serialize;

use super::{BUSY_TIMEOUT, JournalError, check, failed};
use crate::audit::Transition;
use crate::custody::{DeliveryState, What};
use crate::events::Events;
use crate::monitor::Clocks;

/// What a person asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Try again what is quarantined.
    Retry,
    /// Do nothing more with it.
    Hold,
    /// Go on with what was held.
    GoOn,
    /// Let the source have it back unproven: somebody answers for it.
    Release,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 4] = [Action::Retry, Action::Hold, Action::GoOn, Action::Release];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Retry => "retry",
            Action::Hold => "hold",
            Action::GoOn => "go-on",
            Action::Release => "release",
        }
    }
}

/// A delivery, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeliveryView {
    /// Where to.
    pub destination: String,
    /// Of the `file`, or of its `sidecar`.
    pub what: String,
    /// How far.
    pub state: String,
    /// Since when it waits for tape, in milliseconds since 1970, if it does.
    pub waits_since_unix_ms: Option<i64>,
    /// Attempts that were begun.
    pub attempts: u32,
    /// How often it was other than it should be, since a person last looked.
    pub strikes: u32,
    /// What was said last.
    pub words: String,
}

/// The events of a file, as people see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventsView {
    /// Their run.
    pub run: u32,
    /// How many.
    pub events: i64,
    /// The smallest.
    pub first: u64,
    /// The largest.
    pub last: u64,
}

/// A consignment, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConsignmentView {
    /// Its number.
    pub id: i64,
    /// Its route.
    pub route: String,
    /// Its name at every destination.
    pub name: String,
    /// The least of the states of its deliveries, or that of the whole.
    pub state: String,
    /// How many files of the source it is made of.
    pub parts: i64,
    /// The events that it is made of, where it is one of accepted events.
    pub events: Option<EventsView>,
    /// What its bytes come to, once they were checked; before, what was found.
    pub bytes: i64,
    /// Their Adler-32, in hexadecimal digits, once they were checked.
    pub adler32: Option<String>,
    /// Whether it was registered.
    pub registered: bool,
    /// What was said last about the whole.
    pub words: String,
    /// Its deliveries.
    pub deliveries: Vec<DeliveryView>,
}

/// A journal that is looked at.
#[derive(Debug)]
pub struct View {
    path: PathBuf,
    connection: Connection,
}

const COLUMNS: &str = "SELECT id, route, name, stage, held, coalesce(bytes, (SELECT sum(bytes) FROM parts WHERE consignment = id)), adler32, words, (SELECT count(*) FROM parts WHERE consignment = id), registered, run, events, first, last FROM consignments LEFT JOIN events ON consignment = id";

impl View {
    /// Opens a journal that is there.
    ///
    /// # Errors
    /// A file that is none, or cannot be read.
    pub fn open(path: &Path) -> Result<View, JournalError> {
        let sqlite = |source| failed(path, "opened", source);
        // Not read-only: of a mover that was killed the log beside it is put in first.
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sqlite)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(sqlite)?;
        if !check(&connection, path)? {
            return Err(JournalError::Foreign { path: path.to_owned(), what: "it is empty".to_owned() });
        }
        Ok(View { path: path.to_owned(), connection })
    }

    /// What is not over, ascending; `state`: of this one alone.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn at_work(&self, state: Option<&str>) -> Result<Vec<ConsignmentView>, JournalError> {
        let all = self.select("WHERE is_over = 0 ORDER BY id", [])?;
        Ok(all.into_iter().filter(|consignment| state.is_none_or(|state| consignment.state == state)).collect())
    }

    /// All that had this name, the newest last.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn named(&self, name: &str) -> Result<Vec<ConsignmentView>, JournalError> {
        self.select("WHERE name = ?1 ORDER BY id", [name])
    }

    /// All in which a file of the source is, the newest last.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn made_of(&self, part: &str) -> Result<Vec<ConsignmentView>, JournalError> {
        self.select("WHERE id IN (SELECT consignment FROM parts WHERE name = ?1) ORDER BY id", [part])
    }

    /// All in which an event is, the newest last.
    ///
    /// # Errors
    /// A journal that cannot be read, or is damaged.
    pub fn with_event(&self, key: EventKey) -> Result<Vec<ConsignmentView>, JournalError> {
        // A number of 64 bits may be negative in a row: those of its run are looked at.
        let ids =
            self.numbers("SELECT consignment FROM events WHERE run = ?1 ORDER BY consignment", i64::from(key.run.0))?;
        let mut with = Vec::new();
        for id in ids {
            let events = super::events::load(&self.connection, id).map_err(|source| self.failed(source))?;
            let damaged =
                |what| JournalError::Damaged { path: self.path.clone(), what: format!("consignment {id}: {what}") };
            let events = events.transpose().map_err(damaged)?;
            let has = |events: Events| {
                events.list.ranges_from(key.event.0).next().is_some_and(|(first, _)| first <= key.event.0)
            };
            if events.is_some_and(has) {
                with.extend(self.select("WHERE id = ?1", [id])?);
            }
        }
        Ok(with)
    }

    /// How many are in each state, those that are over too, and their bytes.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn counts(&self) -> Result<BTreeMap<String, (u64, u64)>, JournalError> {
        let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let over = "SELECT stage, count(*), coalesce(sum(bytes), 0) FROM consignments WHERE is_over = 1 GROUP BY stage";
        let mut select = self.connection.prepare(over).map_err(|source| self.failed(source))?;
        let rows =
            select.query_map([], |row| Ok((row.get(0)?, (row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)? as u64))));
        let rows: rusqlite::Result<Vec<(String, (u64, u64))>> = rows.and_then(Iterator::collect);
        counts.extend(rows.map_err(|source| self.failed(source))?);
        for consignment in self.at_work(None)? {
            let count = counts.entry(consignment.state).or_default();
            *count = (count.0 + 1, count.1 + consignment.bytes as u64);
        }
        Ok(counts)
    }

    /// Since when what is not over waits.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn clocks(&self) -> Result<Clocks, JournalError> {
        super::clocks::load(&self.connection).map_err(|source| self.failed(source))
    }

    /// What became of a consignment, in order.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn transitions(&self, id: i64) -> Result<Vec<Transition>, JournalError> {
        let numbers = self.numbers("SELECT number FROM transitions WHERE consignment = ?1 ORDER BY number", id)?;
        let read = |number| Transition::read(&self.connection, number).map_err(|source| self.failed(source));
        numbers.into_iter().map(read).collect()
    }

    /// Asks the mover for something; it takes it up within a second, or when it starts.
    ///
    /// # Errors
    /// A journal that cannot be written.
    pub fn ask(&self, ids: &[i64], action: Action, reason: &str) -> Result<(), JournalError> {
        let insert = "INSERT INTO requests (consignment, action, reason) VALUES (?1, ?2, ?3)";
        let transaction = self.connection.unchecked_transaction().map_err(|source| self.failed(source))?;
        for id in ids {
            transaction.execute(insert, params![id, action.name(), reason]).map_err(|source| self.failed(source))?;
        }
        transaction.commit().map_err(|source| self.failed(source))
    }

    fn select(&self, which: &str, values: impl rusqlite::Params) -> Result<Vec<ConsignmentView>, JournalError> {
        let mut select =
            self.connection.prepare(&format!("{COLUMNS} {which}")).map_err(|source| self.failed(source))?;
        let rows = select.query_map(values, |row| {
            let (stage, held): (String, bool) = (row.get(3)?, row.get(4)?);
            let deliveries = self.deliveries(row.get(0)?)?;
            let state = if held { "held".to_owned() } else { state_of(stage, &deliveries) };
            Ok(ConsignmentView {
                id: row.get(0)?,
                route: row.get(1)?,
                name: row.get(2)?,
                state,
                bytes: row.get::<_, Option<i64>>(5)?.unwrap_or(0),
                adler32: row.get::<_, Option<u32>>(6)?.map(|sum| format!("{sum:08x}")),
                words: row.get(7)?,
                parts: row.get(8)?,
                registered: row.get(9)?,
                events: row.get::<_, Option<u32>>(10)?.map(|run| events_of(run, row)).transpose()?,
                deliveries: deliveries.into_iter().map(|(_, delivery)| delivery).collect(),
            })
        });
        rows.and_then(Iterator::collect).map_err(|source| self.failed(source))
    }

    /// The deliveries of a consignment, and whether they are required.
    fn deliveries(&self, id: i64) -> rusqlite::Result<Vec<(bool, DeliveryView)>> {
        let columns = "SELECT required, destination, state, attempts, strikes, words, what, iif(state = 'waiting', (SELECT max(unix_ms) FROM transitions \
                       WHERE consignment = ?1 AND destination = of.destination AND sidecar = (what = 'sidecar') AND after = 'waiting'), NULL) \
                       FROM deliveries AS of WHERE consignment = ?1 ORDER BY place";
        let mut select = self.connection.prepare_cached(columns)?;
        let rows = select.query_map([id], |row| {
            let delivery = DeliveryView {
                destination: row.get(1)?,
                what: row.get(6)?,
                state: row.get(2)?,
                waits_since_unix_ms: row.get(7)?,
                attempts: row.get(3)?,
                strikes: row.get(4)?,
                words: row.get(5)?,
            };
            Ok((row.get(0)?, delivery))
        });
        rows?.collect()
    }

    fn numbers(&self, query: &str, id: i64) -> Result<Vec<i64>, JournalError> {
        let mut select = self.connection.prepare(query).map_err(|source| self.failed(source))?;
        let rows = select.query_map([id], |row| row.get(0));
        rows.and_then(Iterator::collect).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> JournalError {
        failed(&self.path, "read", source)
    }
}

fn events_of(run: u32, row: &Row) -> rusqlite::Result<EventsView> {
    let (first, last): (i64, i64) = (row.get(12)?, row.get(13)?);
    Ok(EventsView { run, events: row.get(11)?, first: first as u64, last: last as u64 })
}

/// On its way: as far as the required delivery that is least far.
fn state_of(stage: String, deliveries: &[(bool, DeliveryView)]) -> String {
    let state = |delivery: &DeliveryView| {
        let mut known = DeliveryState::ALL.into_iter().filter(|known| known.name() == delivery.state);
        let what = if delivery.what == What::Sidecar.name() { What::Sidecar } else { What::File };
        known.next().map(|state| state.as_far_as(what))
    };
    let least = deliveries.iter().filter(|(required, _)| *required).filter_map(|(_, delivery)| state(delivery)).min();
    match least {
        Some(least) if stage == "delivering" => least.name().to_owned(),
        _ => stage,
    }
}
