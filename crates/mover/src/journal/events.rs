//! Which events a file is made of, as a journal keeps it: a row for a file, whatever their number.

use forebay_types::RunId;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::events::{EventKind, EventList, Events};

pub(super) fn insert(transaction: &Transaction, consignment: i64, events: &Events) -> rusqlite::Result<()> {
    let Events { run, kind, numbered, sequence, event_bytes, list, incomplete } = events;
    let mut insert =
        transaction.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?;
    insert.execute(params![
        consignment,
        run.0,
        kind.name(),
        numbered,
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
    let columns = "SELECT run, kind, numbered, sequence, event_bytes, events, list, incomplete FROM events WHERE consignment = ?1";
    connection.prepare_cached(columns)?.query_row([consignment], parse).optional()
}

fn parse(row: &Row) -> rusqlite::Result<Result<Events, String>> {
    let (run, kind, numbered, sequence): (u32, String, bool, u32) =
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    let (event_bytes, count): (i64, i64) = (row.get(4)?, row.get(5)?);
    let (list, incomplete): (Vec<u8>, Vec<u8>) = (row.get(6)?, row.get(7)?);
    let parse = || {
        let kind = EventKind::from_name(&kind).ok_or_else(|| format!("no events are {kind:?}"))?;
        let decode = |bytes: &[u8]| EventList::decode(bytes).map_err(|error| error.to_string());
        let (list, incomplete) = (decode(&list)?, decode(&incomplete)?);
        if list.is_empty() || list.len() != count as u64 {
            return Err(format!("its list has {} events, and it has {count}", list.len()));
        }
        Ok(Events { run: RunId(run), kind, numbered, sequence, event_bytes: event_bytes as u64, list, incomplete })
    };
    Ok(parse())
}
