//! The journal: what a mover must not forget, in one SQLite file that lies in neither a source nor a destination.
//!
//! What is written together is durable together, when the call returns: `synchronous = FULL`, with a write-ahead log. The file is locked for as long as it is open,
//! so that two movers never go on with the same consignments.
#![expect(clippy::disallowed_types, reason = "this module writes down what the machine decides")]

mod clocks;
mod events;
mod load;
mod schema;
mod view;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_types::{RunId, WallTime};
use rusqlite::{Connection, OpenFlags, Transaction, params};
use rustix::fs::{FlockOperation, flock};

pub use view::{Action, ConsignmentView, DeliveryView, EventsView, View};

use crate::audit::Transition;
use crate::custody::{Change, Changed, Consignment, ConsignmentId, Kept, Part, Series, Stage, Standing, What};
use crate::machine::Record;
use crate::monitor::Clocks;
use crate::name::Name;
use crate::recipe::Recipe;

/// So long another process that reads the journal, to show it, is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// SQLite or the operating system refused something.
    #[error(
        "the mover's journal {} could not be {action}: {source}. Nothing was released because of it, and what is on its way is gone on with by the next start. Look at \
         the file system it lies on, then start again", .path.display()
    )]
    Sqlite {
        /// Its path.
        path: PathBuf,
        /// What was to be done.
        action: &'static str,
        /// Why not.
        source: rusqlite::Error,
    },
    /// The operating system refused something.
    #[error("the mover's journal {} could not be {action}: {source}. Nothing was moved or released. Choose another place with --journal, or make this one usable", .path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// What was to be done.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// Another mover has it open.
    #[error("another mover works with the journal {}; this one did nothing. Wait for it, or stop it first", .path.display())]
    Locked {
        /// Its path.
        path: PathBuf,
    },
    /// It is something else.
    #[error(
        "{} is no journal of a mover of this version: {what}. It was not changed, and nothing was moved or released. Use the version that made it, or another file", .path.display()
    )]
    Foreign {
        /// Its path.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// A row says what no mover wrote.
    #[error(
        "the mover's journal {} is damaged: {what}. Nothing was released because of it. Keep the file, and start with a new one (--journal): what is at the \
         destinations already is recognised by its checksum and not sent again, but for what was merged and not yet released: that would be there twice", .path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// The journal, open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    connection: Connection,
    token: u64,
    /// Locked against other movers.
    _lock: File,
}

/// What a start goes on with.
#[derive(Debug, Default)]
pub struct AtWork {
    /// The consignments that are not over, with the names of their routes.
    pub consignments: Vec<(String, Consignment)>,
    /// The series of names, with those of their routes, and the first number that none of each has.
    pub series: Vec<(String, String, u64)>,
    /// The first number that no consignment had.
    pub next: u64,
    /// How many events of a run are, or were, in consignments of a route.
    pub events: Vec<(String, RunId, u64)>,
}

impl Journal {
    /// Opens the journal, making it when it is not there.
    ///
    /// # Errors
    /// A file that is something else, that another mover has, or that cannot be written.
    pub fn open(path: &Path) -> Result<Journal, JournalError> {
        refuse_others(path)?;
        let lock = lock(path)?;
        let sqlite = |action| move |source| failed(path, action, source);
        let connection = Connection::open(path).map_err(sqlite("opened"))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite("opened"))?;
        set_up(&connection).map_err(sqlite("opened"))?;
        let made = make(&connection, path)?;
        if made {
            sync_parent(path).map_err(|source| JournalError::Io {
                path: path.to_owned(),
                action: "made durable",
                source,
            })?;
        }
        let token: i64 =
            connection.query_row("SELECT token FROM about", [], |row| row.get(0)).map_err(sqlite("read"))?;
        Ok(Journal { path: path.to_owned(), connection, token: token as u64, _lock: lock })
    }

    /// The number that is in every temporary name of this journal.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directories that were moved from or to, and by what each is known again.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn places(&self) -> Result<BTreeMap<String, u64>, JournalError> {
        places(&self.connection).map_err(|source| failed(&self.path, "read", source))
    }

    /// The same of a journal that is not opened yet; of none, nothing.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn places_of(path: &Path) -> Result<BTreeMap<String, u64>, JournalError> {
        refuse_others(path)?;
        if !path.exists() {
            return Ok(BTreeMap::new());
        }
        let sqlite = |source| failed(path, "read", source);
        // Not read-only: of a mover that was killed the log beside it is put in first.
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sqlite)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
        if check(&connection, path)? { places(&connection).map_err(sqlite) } else { Ok(BTreeMap::new()) }
    }

    /// By what a directory is known again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remember_place(&mut self, path: &str, mark: u64) -> Result<(), JournalError> {
        let written =
            self.connection.execute("INSERT OR REPLACE INTO places VALUES (?1, ?2)", params![path, mark as i64]);
        written.map(|_| ()).map_err(|source| failed(&self.path, "written", source))
    }

    /// What is not over.
    ///
    /// # Errors
    /// A damaged journal.
    pub fn at_work(&self) -> Result<AtWork, JournalError> {
        load::at_work(&self.connection, &self.path)
    }

    /// Since when what is not over waits.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn clocks(&self) -> Result<Clocks, JournalError> {
        clocks::load(&self.connection).map_err(|source| failed(&self.path, "read", source))
    }

    /// Writes what must be durable, all of it or nothing, and gives back the transitions that it is, for the audit log.
    ///
    /// # Errors
    /// When it is not durable; whether it is, the next start tells.
    pub fn write(
        &mut self,
        records: &[Record],
        routes: &[String],
        now: WallTime,
    ) -> Result<Vec<Transition>, JournalError> {
        let path = &self.path;
        let failed = |source| failed(path, "written", source);
        let transaction = self.connection.transaction().map_err(failed)?;
        let mut transitions = Vec::new();
        for record in records {
            let transition = match record {
                Record::Planned { id, route, name, recipe, series, settings, priority, deliveries } => {
                    let (id, settings, priority) = (*id, *settings, *priority);
                    let route = &routes[route.0];
                    let new = New { id, name, recipe, settings, priority, deliveries };
                    planned(&transaction, route, &new).map_err(failed)?;
                    if let Some(series) = series {
                        named(&transaction, id, route, name.as_str(), series).map_err(failed)?;
                    }
                    Some(Told { consignment: id, of: None, before: None, after: "found", words: String::new() })
                }
                Record::Renamed { id, route, name, series, why } => {
                    named(&transaction, *id, &routes[route.0], name.as_str(), series).map_err(failed)?;
                    Some(Told {
                        consignment: *id,
                        of: None,
                        before: Some("delivering"),
                        after: "renamed",
                        words: why.clone(),
                    })
                }
                Record::Change(change) => changed(&transaction, change).map_err(failed)?,
            };
            let Some(told) = transition else { continue };
            let (destination, sidecar) = told.of.map_or((None, false), |(to, what)| (Some(to), what == What::Sidecar));
            transaction
                .prepare_cached(
                    "INSERT INTO transitions (unix_ms, consignment, destination, sidecar, before, after, words) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )
                .and_then(|mut insert| {
                    let id = told.consignment.0 as i64;
                    insert.execute(params![now.0 as i64, id, destination, sidecar, told.before, told.after, told.words])
                })
                .map_err(failed)?;
            transitions.push(Transition::read(&transaction, transaction.last_insert_rowid()).map_err(failed)?);
        }
        transaction.commit().map_err(failed)?;
        Ok(transitions)
    }

    /// What people asked for, in order, with its numbers.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn requests(&self) -> Result<Vec<(i64, ConsignmentId, Action, String)>, JournalError> {
        let failed = |source| failed(&self.path, "read", source);
        let columns = "SELECT number, consignment, action, reason FROM requests ORDER BY number";
        let mut select = self.connection.prepare_cached(columns).map_err(failed)?;
        let rows = select.query_map([], |row| {
            let (action, id): (String, i64) = (row.get(2)?, row.get(1)?);
            let known = Action::ALL.into_iter().find(|known| known.name() == action).ok_or(action);
            Ok((row.get(0)?, ConsignmentId(id as u64), known, row.get(3)?))
        });
        let rows: rusqlite::Result<Vec<_>> = rows.and_then(Iterator::collect);
        let parse = |(number, id, action, reason): (i64, ConsignmentId, Result<Action, String>, String)| {
            let damaged =
                |action| JournalError::Damaged { path: self.path.clone(), what: format!("nobody asks for {action:?}") };
            Ok((number, id, action.map_err(damaged)?, reason))
        };
        rows.map_err(failed)?.into_iter().map(parse).collect()
    }

    /// What was asked for up to this number is done, durably.
    ///
    /// # Errors
    /// A journal that cannot be written.
    pub fn requests_done(&mut self, up_to: i64) -> Result<(), JournalError> {
        let done = self.connection.execute("DELETE FROM requests WHERE number <= ?1", [up_to]);
        done.map(|_| ()).map_err(|source| failed(&self.path, "written", source))
    }

    /// Forgets what is over for so long, which the audit log keeps. Their numbers are not given again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn forget_before(&mut self, before: WallTime) -> Result<usize, JournalError> {
        let forget = "DELETE FROM consignments WHERE is_over = 1 AND NOT EXISTS \
                      (SELECT 1 FROM transitions WHERE consignment = id AND unix_ms >= ?1)";
        let forgotten = self.connection.execute(forget, [before.0 as i64]);
        forgotten.map_err(|source| failed(&self.path, "written", source))
    }

    /// The transitions behind the one of this number, in order.
    ///
    /// # Errors
    /// A journal that cannot be read.
    pub fn transitions_after(&self, number: i64) -> Result<Vec<Transition>, JournalError> {
        let failed = |source| failed(&self.path, "read", source);
        let mut select = self
            .connection
            .prepare("SELECT number FROM transitions WHERE number > ?1 ORDER BY number")
            .map_err(failed)?;
        let numbers: Vec<i64> = select
            .query_map([number], |row| row.get(0))
            .and_then(|rows| rows.collect::<rusqlite::Result<_>>())
            .map_err(failed)?;
        numbers.into_iter().map(|number| Transition::read(&self.connection, number).map_err(failed)).collect()
    }
}

fn places(connection: &Connection) -> rusqlite::Result<BTreeMap<String, u64>> {
    let mut select = connection.prepare("SELECT path, mark FROM places")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    rows.collect()
}

/// A transition that is to be written.
struct Told {
    consignment: ConsignmentId,
    of: Option<(String, What)>,
    before: Option<&'static str>,
    after: &'static str,
    words: String,
}

/// A consignment that was just planned.
struct New<'a> {
    id: ConsignmentId,
    name: &'a Name,
    recipe: &'a Recipe,
    settings: u64,
    priority: u16,
    deliveries: &'a [(String, What, bool)],
}

fn planned(transaction: &Transaction, route: &str, new: &New) -> rusqlite::Result<()> {
    let New { id, name, recipe, settings, priority, deliveries } = *new;
    let id = id.0 as i64;
    let (form, stage) = (recipe.form.name(), Stage::Found.name());
    transaction
        .prepare_cached(
            "INSERT INTO consignments (id, route, name, form, zstd, settings, priority, stage) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![id, route, name.as_str(), form, recipe.zstd, settings as i64, priority, stage])?;
    if let Some(events) = recipe.events() {
        events::insert(transaction, id, events)?;
    }
    let mut insert = transaction.prepare_cached("INSERT INTO parts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (place, Part { name, identity, changed_ns }) in recipe.parts().iter().enumerate() {
        let (bytes, inode) = (identity.bytes as i64, identity.inode as i64);
        insert.execute(params![id, place as i64, name.as_str(), bytes, identity.modified_ns, inode, changed_ns])?;
    }
    let mut insert = transaction.prepare_cached(
        "INSERT INTO deliveries (consignment, place, destination, what, required) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (place, (destination, what, required)) in deliveries.iter().enumerate() {
        insert.execute(params![id, place as i64, destination, what.name(), required])?;
    }
    Ok(())
}

/// It has a name of a series; what comes later gets a higher number.
fn named(transaction: &Transaction, id: ConsignmentId, route: &str, name: &str, of: &Series) -> rusqlite::Result<()> {
    let (series, number) = (&of.names, of.number as i64);
    transaction
        .prepare_cached("UPDATE consignments SET name = ?2, series = ?3, series_number = ?4 WHERE id = ?1")?
        .execute(params![id.0 as i64, name, series, number])?;
    transaction
        .prepare_cached(
            "INSERT INTO series VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET next = max(next, excluded.next)",
        )?
        .execute(params![route, series, number + 1])?;
    Ok(())
}

fn changed(transaction: &Transaction, change: &Change) -> rusqlite::Result<Option<Told>> {
    let id = change.consignment.0 as i64;
    let told = match &change.of {
        Changed::Standing { from, to } => {
            write_standing(transaction, id, to)?;
            let after = match to.stage {
                _ if to.held => "held",
                Stage::Proven if to.let_go => "let go",
                Stage::Proven | Stage::Delivering if to.registered && !from.registered => "registered",
                stage => stage.name(),
            };
            Some((None, from.stage.name(), after))
        }
        Changed::Delivery { place, from, to, destination, what } => {
            write_delivery(transaction, id, *place as i64, to)?;
            let moved = from.state != to.state || from.attempts != to.attempts;
            moved.then(|| (Some((destination.clone(), *what)), from.state.name(), to.state.name()))
        }
    };
    // Nothing is to be done for what the source let go, once nothing of ours lies about.
    transaction
        .prepare_cached(
            "UPDATE consignments SET is_over = 1 WHERE id = ?1 AND stage IN ('released', 'withdrawn') AND NOT EXISTS \
             (SELECT 1 FROM deliveries WHERE consignment = ?1 AND (partial IS NOT NULL OR left_over != ''))",
        )?
        .execute([id])?;
    let (consignment, words) = (change.consignment, &change.why);
    Ok(told.map(|(of, before, after)| Told { consignment, of, before: Some(before), after, words: words.clone() }))
}

fn write_standing(transaction: &Transaction, id: i64, standing: &Standing) -> rusqlite::Result<()> {
    let Standing { stage, held, let_go, content, registered, refusals, words } = standing;
    let sums = content.as_ref().map(|checked| checked.sums);
    let about =
        content.as_ref().map(|checked| serde_json::to_string(checked.about.as_ref()).expect("text and numbers"));
    transaction
        .prepare_cached(
            "UPDATE consignments SET stage = ?2, held = ?3, let_go = ?4, bytes = ?5, adler32 = ?6, crc32c = ?7, about = ?8, registered = ?9, \
             refusals = ?10, words = ?11 WHERE id = ?1",
        )?
        .execute(params![
            id,
            stage.name(),
            held,
            let_go,
            sums.map(|sums| sums.bytes as i64),
            sums.map(|sums| sums.adler32),
            sums.map(|sums| sums.crc32c),
            about,
            registered,
            refusals,
            words
        ])?;
    Ok(())
}

fn write_delivery(transaction: &Transaction, id: i64, place: i64, kept: &Kept) -> rusqlite::Result<()> {
    let left: Vec<String> = kept.left.iter().map(u32::to_string).collect();
    transaction
        .prepare_cached(
            "UPDATE deliveries SET state = ?3, attempts = ?4, strikes = ?5, ours = ?6, partial = ?7, left_over = ?8, words = ?9 \
             WHERE consignment = ?1 AND place = ?2",
        )?
        .execute(params![
            id,
            place,
            kept.state.name(),
            kept.attempts,
            kept.strikes,
            kept.ours,
            kept.partial,
            left.join(" "),
            kept.words
        ])?;
    Ok(())
}

/// Before anything is made beside it.
fn refuse_others(path: &Path) -> Result<(), JournalError> {
    let mut first = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut first));
    match read {
        Ok(read) if read > 0 && first != *b"SQLite format 3\0" => {
            Err(JournalError::Foreign { path: path.to_owned(), what: "it is no SQLite file".to_owned() })
        }
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(JournalError::Io { path: path.to_owned(), action: "read", source: error })
        }
        _ => Ok(()),
    }
}

fn failed(path: &Path, action: &'static str, source: rusqlite::Error) -> JournalError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => JournalError::Damaged { path, what: source.to_string() },
        Some(rusqlite::ErrorCode::NotADatabase) => {
            JournalError::Foreign { path, what: "it is no SQLite file".to_owned() }
        }
        _ => JournalError::Sqlite { path, action, source },
    }
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Makes the tables in a file that has none; whether it did.
fn make(connection: &Connection, path: &Path) -> Result<bool, JournalError> {
    let sqlite = |source| failed(path, "made", source);
    if check(connection, path)? {
        connection.pragma_update(None, "journal_mode", "WAL").map_err(sqlite)?;
        return Ok(false);
    }
    let mut token = [0; 8];
    getrandom::fill(&mut token).map_err(|error| JournalError::Io {
        path: path.to_owned(),
        action: "given a number",
        source: std::io::Error::other(error.to_string()),
    })?;
    let token = i64::from_le_bytes(token);
    let (application, version) = (schema::APPLICATION, schema::VERSION);
    let text = format!(
        "PRAGMA journal_mode = WAL; BEGIN; {} INSERT INTO about VALUES ({token}); PRAGMA application_id = {application}; PRAGMA user_version = {version}; COMMIT;",
        schema::TABLES
    );
    connection.execute_batch(&text).map_err(sqlite)?;
    Ok(true)
}

/// Whether a file is a journal of this version; an empty one is not yet.
fn check(connection: &Connection, path: &Path) -> Result<bool, JournalError> {
    let sqlite = |source| failed(path, "read", source);
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id").map_err(sqlite)?, number("user_version").map_err(sqlite)?);
    if (application, version) == (schema::APPLICATION, schema::VERSION) {
        return Ok(true);
    }
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sqlite)?;
    if application != 0 || version != 0 || tables != 0 {
        let what = format!("application {application:#x}, version {version}, {tables} tables");
        return Err(JournalError::Foreign { path: path.to_owned(), what });
    }
    Ok(false)
}

/// SQLite's own locks are taken for each transaction; this one for as long as the mover lives. It is on a file beside, as closing any handle of the journal
/// itself would drop SQLite's (POSIX locks).
fn lock(path: &Path) -> Result<File, JournalError> {
    let io = |action| move |source| JournalError::Io { path: path.to_owned(), action, source };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(Path::new(&beside)).map_err(io("locked"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(JournalError::Locked { path: path.to_owned() }),
        Err(error) => Err(io("locked")(error.into())),
    }
}

fn sync_parent(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests;
