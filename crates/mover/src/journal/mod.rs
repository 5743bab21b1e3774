//! The journal: what a mover must not forget, in one SQLite file that lies in neither a source nor a destination.
//!
//! What is written together is durable together, when the call returns: `synchronous = FULL`, with a write-ahead log. The file is locked for as long as it is open,
//! so that two movers never go on with the same consignments.
#![expect(clippy::disallowed_types, reason = "this module writes down what the machine decides")]

mod events;
mod load;
mod schema;
mod view;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_types::WallTime;
use rusqlite::{Connection, Transaction, params};
use rustix::fs::{FlockOperation, flock};

pub use view::{Action, ConsignmentView, DeliveryView, EventsView, View};

use crate::audit::Transition;
use crate::custody::{Change, Changed, Consignment, ConsignmentId, Kept, Part, Stage};
use crate::machine::Record;
use crate::recipe::Recipe;
use crate::sums::Sums;

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

    /// What is not over.
    ///
    /// # Errors
    /// A damaged journal.
    pub fn at_work(&self) -> Result<AtWork, JournalError> {
        load::at_work(&self.connection, &self.path)
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
                Record::Planned { id, route, name, recipe, series, deliveries } => {
                    let route = &routes[route.0];
                    planned(&transaction, *id, route, name.as_str(), recipe, deliveries).map_err(failed)?;
                    series
                        .as_ref()
                        .map_or(Ok(()), |series| write_series(&transaction, route, series))
                        .map_err(failed)?;
                    Some((*id, None, None, "found", String::new()))
                }
                Record::Change(change) => changed(&transaction, change).map_err(failed)?,
            };
            let Some((consignment, destination, before, after, words)) = transition else { continue };
            transaction
                .prepare_cached(
                    "INSERT INTO transitions (unix_ms, consignment, destination, before, after, words) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )
                .and_then(|mut insert| {
                    insert.execute(params![now.0 as i64, consignment.0 as i64, destination, before, after, words])
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

type Told = (ConsignmentId, Option<String>, Option<&'static str>, &'static str, String);

fn planned(
    transaction: &Transaction,
    id: ConsignmentId,
    route: &str,
    name: &str,
    recipe: &Recipe,
    deliveries: &[(String, bool)],
) -> rusqlite::Result<()> {
    let id = id.0 as i64;
    transaction
        .prepare_cached("INSERT INTO consignments (id, route, name, form, stage) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![id, route, name, recipe.form.name(), Stage::Found.name()])?;
    if let Some(events) = recipe.events() {
        events::insert(transaction, id, events)?;
    }
    let mut insert = transaction.prepare_cached("INSERT INTO parts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (place, Part { name, identity, changed_ns }) in recipe.parts().iter().enumerate() {
        let (bytes, inode) = (identity.bytes as i64, identity.inode as i64);
        insert.execute(params![id, place as i64, name.as_str(), bytes, identity.modified_ns, inode, changed_ns])?;
    }
    let mut insert = transaction
        .prepare_cached("INSERT INTO deliveries (consignment, place, destination, required) VALUES (?1, ?2, ?3, ?4)")?;
    for (place, (destination, required)) in deliveries.iter().enumerate() {
        insert.execute(params![id, place as i64, destination, required])?;
    }
    Ok(())
}

fn write_series(transaction: &Transaction, route: &str, (series, next): &(String, u64)) -> rusqlite::Result<()> {
    transaction.prepare_cached("INSERT OR REPLACE INTO series VALUES (?1, ?2, ?3)")?.execute(params![
        route,
        series,
        *next as i64
    ])?;
    Ok(())
}

fn changed(transaction: &Transaction, change: &Change) -> rusqlite::Result<Option<Told>> {
    let id = change.consignment.0 as i64;
    let told = match &change.of {
        Changed::Stage { from, to, held, let_go, content } => {
            let Sums { bytes, adler32, crc32c } = content.unwrap_or(Sums { bytes: 0, adler32: 0, crc32c: 0 });
            let known = content.is_some();
            transaction
                .prepare_cached(
                    "UPDATE consignments SET stage = ?2, held = ?3, let_go = ?9, bytes = iif(?4, ?5, NULL), adler32 = iif(?4, ?6, NULL), \
                     crc32c = iif(?4, ?7, NULL), words = ?8 WHERE id = ?1",
                )?
                .execute(params![id, to.name(), held, known, bytes as i64, adler32, crc32c, change.why, let_go])?;
            let after = match to {
                _ if *held => "held",
                Stage::Proven if *let_go => "let go",
                to => to.name(),
            };
            Some((change.consignment, None, Some(from.name()), after, change.why.clone()))
        }
        Changed::Delivery { place, from, to, destination } => {
            write_delivery(transaction, id, *place as i64, to)?;
            let moved = from.state != to.state || from.attempts != to.attempts;
            moved.then(|| {
                (
                    change.consignment,
                    Some(destination.clone()),
                    Some(from.state.name()),
                    to.state.name(),
                    change.why.clone(),
                )
            })
        }
    };
    // Nothing is to be done for what the source let go, once nothing of ours lies about.
    transaction
        .prepare_cached(
            "UPDATE consignments SET is_over = 1 WHERE id = ?1 AND stage IN ('released', 'withdrawn') AND NOT EXISTS \
             (SELECT 1 FROM deliveries WHERE consignment = ?1 AND (partial IS NOT NULL OR left_over != ''))",
        )?
        .execute([id])?;
    Ok(told)
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
mod tests {
    use super::*;
    use forebay_types::{EventKey, RunId};

    use crate::custody::{DeliveryState, PartIdentity};
    use crate::events::{EventKind, Events};
    use crate::machine::RouteIndex;
    use crate::recipe::Form;

    fn planned(id: u64) -> Record {
        let name: crate::Name = format!("run7/file{id}").parse().expect("a name");
        let identity = PartIdentity { bytes: u64::MAX - id, modified_ns: -5, inode: u64::MAX };
        Record::Planned {
            id: ConsignmentId(id),
            route: RouteIndex(0),
            recipe: Recipe::of_files(Form::Tar, vec![Part { name: name.clone(), identity, changed_ns: 9 }]),
            series: Some(("run7/file{}".to_owned(), id + 1)),
            name,
            deliveries: vec![("/first".to_owned(), true), ("/second".to_owned(), false)],
        }
    }

    fn events(id: u64) -> Events {
        Events {
            run: RunId(7),
            kind: EventKind::Besiii,
            numbered: true,
            sequence: id as u32,
            event_bytes: 1 << 40,
            list: [1, 2, 3, 500, u64::MAX].into_iter().collect(),
            incomplete: [500].into_iter().collect(),
        }
    }

    #[test]
    fn a_file_of_events_is_a_row_and_is_found_by_each_of_its_events() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut journal = opened(&directory);
        let planned = |id| Record::Planned {
            id: ConsignmentId(id),
            route: RouteIndex(0),
            recipe: Recipe::of_events(events(id)),
            series: None,
            name: format!("physics/{id}").parse().expect("a name"),
            deliveries: vec![("/first".to_owned(), true)],
        };
        let routes = ["stream".to_owned()];
        journal.write(&[planned(1)], &routes, WallTime(1)).expect("written");
        let at_work = journal.at_work().expect("read");
        assert_eq!(at_work.consignments[0].1.recipe, Recipe::of_events(events(1)));
        let view = View::open(journal.path()).expect("opened");
        let with = |event| view.with_event(EventKey::new(7, event)).expect("read").len();
        assert_eq!([with(1), with(3), with(4), with(500), with(u64::MAX), with(0)], [1, 1, 0, 1, 1, 0]);
        let seen = view.at_work(None).expect("read")[0].events.clone().expect("it has some");
        assert_eq!((seen.run, seen.events, seen.first, seen.last), (7, 5, 1, u64::MAX));
        // A row that does not fit together is damage.
        journal.connection.execute("UPDATE events SET events = 6", []).expect("edited");
        assert!(matches!(journal.at_work(), Err(JournalError::Damaged { .. })));
        assert!(matches!(view.with_event(EventKey::new(7, 1)), Err(JournalError::Damaged { .. })));
    }

    fn delivery(id: u64, to: Kept) -> Record {
        let (from, to) = (Box::new(Kept::default()), Box::new(to));
        let of = Changed::Delivery { place: 1, destination: "/second".to_owned(), from, to };
        Record::Change(Change { consignment: ConsignmentId(id), of, why: "it said so".to_owned() })
    }

    fn stage(id: u64, from: Stage, to: Stage, content: Option<Sums>) -> Record {
        let of = Changed::Stage { from, to, held: false, let_go: false, content };
        Record::Change(Change { consignment: ConsignmentId(id), of, why: String::new() })
    }

    fn opened(directory: &tempfile::TempDir) -> Journal {
        Journal::open(&directory.path().join("journal.sqlite")).expect("opened")
    }

    #[test]
    fn what_was_written_is_there_after_a_start() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut journal = opened(&directory);
        let token = journal.token();
        let sums = Sums { bytes: u64::MAX - 2, adler32: u32::MAX, crc32c: 7 };
        let left = Kept {
            state: DeliveryState::Arrived,
            attempts: 9,
            strikes: 2,
            ours: true,
            partial: Some(9),
            left: vec![3, 8],
            words: "ü".to_owned(),
        };
        let records = [
            planned(1),
            planned(2),
            planned(3),
            stage(2, Stage::Found, Stage::Delivering, Some(sums)),
            delivery(2, left.clone()),
            stage(1, Stage::Found, Stage::Delivering, Some(sums)),
            stage(1, Stage::Delivering, Stage::Released, Some(sums)),
            // The source let it go, and something of ours lies about still.
            delivery(3, left.clone()),
            stage(3, Stage::Found, Stage::Withdrawn, None),
        ];
        let transitions = journal.write(&records, &["daq".to_owned()], WallTime(5)).expect("written");
        assert_eq!(transitions.len(), records.len());
        let steps = |transitions: &[Transition]| -> Vec<(i64, i64, Option<String>, String)> {
            let step = |t: &Transition| (t.number, t.consignment, t.destination.clone(), t.after.clone());
            transitions.iter().map(step).collect()
        };
        assert_eq!(steps(&transitions), steps(&journal.transitions_after(0).expect("read")));
        assert!(matches!(Journal::open(journal.path()), Err(JournalError::Locked { .. })));
        drop(journal);
        let journal = opened(&directory);
        assert_eq!(journal.token(), token);
        let AtWork { consignments, series, next } = journal.at_work().expect("read");
        assert_eq!((next, series), (4, vec![("daq".to_owned(), "run7/file{}".to_owned(), 4)]));
        let ids: Vec<u64> = consignments.iter().map(|(_, consignment)| consignment.id.0).collect();
        assert_eq!(ids, [2, 3], "1 is over");
        let (route, second) = &consignments[0];
        assert_eq!((route.as_str(), second.stage(), second.content()), ("daq", Stage::Delivering, Some(&sums)));
        assert_eq!(
            second.recipe.parts()[0].identity,
            PartIdentity { bytes: u64::MAX - 2, modified_ns: -5, inode: u64::MAX }
        );
        assert_eq!((second.deliveries[1].row(), second.deliveries[1].required), (&left, false));
        assert_eq!(second.deliveries[0].row(), &Kept::default());
        // What is over is forgotten, and its number is not given again.
        let mut journal = journal;
        assert_eq!(journal.forget_before(WallTime(5)).expect("written"), 0);
        assert_eq!(journal.forget_before(WallTime(6)).expect("written"), 1);
        journal
            .write(&[planned(4), stage(4, Stage::Found, Stage::Withdrawn, None)], &["daq".to_owned()], WallTime(5))
            .expect("written");
        assert_eq!(journal.forget_before(WallTime(6)).expect("written"), 1);
        let AtWork { consignments, next, .. } = journal.at_work().expect("read");
        assert_eq!((consignments.len(), next), (2, 5));
        assert_eq!(journal.transitions_after(0).expect("read").last().map(|last| last.consignment), Some(3));
    }

    #[test]
    fn rows_that_no_mover_wrote_are_damage() {
        for (damage, words) in [
            ("UPDATE deliveries SET state = 'gone'", "no delivery is"),
            ("UPDATE deliveries SET left_over = '1 x'", "are no attempts"),
            ("UPDATE deliveries SET left_over = '1 2 3'", "left something"),
            ("UPDATE consignments SET name = '../secret'", "leads elsewhere"),
            ("UPDATE parts SET name = '/etc/passwd'", "is empty"),
            ("UPDATE consignments SET stage = 'proven'", "without sums"),
            ("DELETE FROM parts", "what it is made of is not there"),
            ("UPDATE consignments SET form = 'zip'", "no form is"),
            ("UPDATE series SET next = -1", "names of it"),
            ("UPDATE consignments SET stage = 'proven', bytes = 1, adler32 = 1, crc32c = 1", "not proven"),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let mut journal = opened(&directory);
            journal.write(&[planned(1)], &["daq".to_owned()], WallTime(5)).expect("written");
            journal.connection.execute_batch(damage).expect("done");
            let error = journal.at_work().expect_err("it is damaged").to_string();
            assert!(error.contains("damaged") && error.contains(words), "{damage}: {error}");
        }
    }
}
