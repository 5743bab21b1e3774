//! Which events a file is made of, as a journal keeps it: a row for a file, whatever their number.

use forebay_types::{RunId, StreamSources};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::events::{EventKind, EventList, Events, Making};

pub(super) fn insert(transaction: &Transaction, consignment: i64, events: &Events) -> rusqlite::Result<()> {
    let Events { run, kind, numbered, making, block, sequence, event_bytes, list, incomplete } = events;
    let mut insert =
        transaction.prepare_cached("INSERT INTO events (consignment, run, kind, numbered, sources, wanted, block, sequence, event_bytes, events, first, last, list, incomplete) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)")?;
    insert.execute(params![
        consignment,
        run.0,
        kind.name(),
        numbered,
        making.sources.to_string(),
        making.kind.map(EventKind::name),
        block.map(|block| block as i64),
        sequence,
        *event_bytes as i64,
        list.len() as i64,
        list.first().map(|event| event as i64),
        list.last().map(|event| event as i64),
        list.encode(),
        incomplete.encode(),
    ])?;
    Ok(())
}

/// Those of a consignment, if it has any. The row is not trusted.
pub(super) fn load(
    connection: &rusqlite::Connection,
    consignment: i64,
) -> rusqlite::Result<Option<Result<Events, String>>> {
    let columns = "SELECT run, kind, numbered, sequence, event_bytes, events, list, incomplete, sources, wanted, block FROM events WHERE consignment = ?1";
    connection.prepare_cached(columns)?.query_row([consignment], parse).optional()
}

fn parse(row: &Row) -> rusqlite::Result<Result<Events, String>> {
    let (run, kind, numbered, sequence): (u32, String, bool, u32) =
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    let (event_bytes, count): (i64, i64) = (row.get(4)?, row.get(5)?);
    let (list, incomplete): (Vec<u8>, Vec<u8>) = (row.get(6)?, row.get(7)?);
    let (sources, wanted, block): (String, Option<String>, Option<i64>) = (row.get(8)?, row.get(9)?, row.get(10)?);
    let parse = || {
        let kind_of = |name: &str| EventKind::from_name(name).ok_or_else(|| format!("no events are {name:?}"));
        let kind = kind_of(&kind)?;
        let sources = sources.parse::<StreamSources>().map_err(|error| error.to_string())?;
        let making = Making { sources, kind: wanted.as_deref().map(kind_of).transpose()? };
        let block = block.map(|block| block as u64);
        let decode = |bytes: &[u8]| EventList::decode(bytes).map_err(|error| error.to_string());
        let (list, incomplete) = (decode(&list)?, decode(&incomplete)?);
        if list.is_empty() || list.len() != count as u64 {
            return Err(format!("its list has {} events, and it has {count}", list.len()));
        }
        let (run, event_bytes) = (RunId(run), event_bytes as u64);
        Ok(Events { run, kind, numbered, making, block, sequence, event_bytes, list, incomplete })
    };
    Ok(parse())
}

/// How many events of each run are, or were, in files of each route; what was withdrawn is in others.
pub(super) fn of_runs(connection: &rusqlite::Connection) -> rusqlite::Result<Vec<(String, RunId, u64)>> {
    let sums = "SELECT route, run, sum(events) FROM events JOIN consignments ON id = consignment AND stage != 'withdrawn' GROUP BY route, run";
    let mut select = connection.prepare(sums)?;
    let row = |row: &Row| Ok((row.get(0)?, RunId(row.get(1)?), row.get::<_, i64>(2)? as u64));
    select.query_map([], row)?.collect()
}
