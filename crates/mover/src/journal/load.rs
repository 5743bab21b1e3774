//! What a start reads from the journal. Its rows are not trusted: a file can be damaged, or edited.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, Row};

use super::{AtWork, JournalError, failed};
use crate::about::{About, Checked};
use crate::custody::{
    Consignment, ConsignmentId, Delivery, DeliveryState, Kept, Part, PartIdentity, Series, Stage, Standing, What,
};
use crate::events::Events;
use crate::name::Name;
use crate::recipe::{Form, Recipe, ZSTD_LEVELS};
use crate::sidecar;
use crate::sums::Sums;

/// More attempts that left something are damage.
const LEFT_MAX: usize = 10_000;

pub(super) fn at_work(connection: &Connection, path: &Path) -> Result<AtWork, JournalError> {
    let sqlite = |source| failed(path, "read", source);
    let mut parts = grouped(
        connection,
        "SELECT consignment, parts.name, parts.bytes, modified_ns, inode, changed_ns FROM parts JOIN consignments ON id = consignment AND is_over = 0 ORDER BY consignment, place",
        part,
    )
    .map_err(sqlite)?;
    let mut deliveries = grouped(
        connection,
        "SELECT consignment, destination, required, state, attempts, strikes, ours, partial, left_over, deliveries.words, what \
         FROM deliveries JOIN consignments ON id = consignment AND is_over = 0 ORDER BY consignment, place",
        delivery,
    )
    .map_err(sqlite)?;
    let mut select = connection
        .prepare("SELECT id, route, name, stage, held, bytes, adler32, crc32c, words, let_go, form, settings, about, registered, refusals, zstd, priority, series, series_number FROM consignments WHERE is_over = 0 ORDER BY id")
        .map_err(sqlite)?;
    let mut rows = select.query([]).map_err(sqlite)?;
    let mut consignments = Vec::new();
    while let Some(row) = rows.next().map_err(sqlite)? {
        let id: i64 = row.get(0).map_err(sqlite)?;
        let (parts, deliveries) = (parts.remove(&id).unwrap_or_default(), deliveries.remove(&id).unwrap_or_default());
        let events = super::events::load(connection, id).map_err(sqlite)?;
        let consignment = consignment(row, id, (parts, events), deliveries).map_err(sqlite)?;
        let damaged = |what| JournalError::Damaged { path: path.to_owned(), what: format!("consignment {id}: {what}") };
        consignments.push(consignment.map_err(damaged)?);
    }
    let newest = "SELECT max((SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'consignments'), (SELECT coalesce(max(id), 0) FROM consignments))";
    let newest: i64 = connection.query_row(newest, [], |row| row.get(0)).map_err(sqlite)?;
    let events = super::events::of_runs(connection).map_err(sqlite)?;
    Ok(AtWork { consignments, series: series(connection, path)?, next: newest as u64 + 1, events })
}

fn series(connection: &Connection, path: &Path) -> Result<Vec<(String, String, u64)>, JournalError> {
    let sqlite = |source| failed(path, "read", source);
    let mut select =
        connection.prepare("SELECT route, series, next FROM series ORDER BY route, series").map_err(sqlite)?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?)));
    let rows: rusqlite::Result<Vec<(String, String, i64)>> = rows.and_then(Iterator::collect);
    let parse = |(route, series, next): (String, String, i64)| match u64::try_from(next) {
        Ok(next) => Ok((route, series, next)),
        Err(_) => Err(JournalError::Damaged {
            path: path.to_owned(),
            what: format!("{series}: {next} names of it were given"),
        }),
    };
    rows.map_err(sqlite)?.into_iter().map(parse).collect()
}

/// The rows of a query, by their first column.
fn grouped<T>(
    connection: &Connection,
    query: &str,
    parse: impl Fn(&Row) -> rusqlite::Result<Result<T, String>>,
) -> rusqlite::Result<BTreeMap<i64, Vec<Result<T, String>>>> {
    let mut select = connection.prepare(query)?;
    let mut rows = select.query([])?;
    let mut groups: BTreeMap<i64, Vec<Result<T, String>>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        groups.entry(row.get(0)?).or_default().push(parse(row)?);
    }
    Ok(groups)
}

fn part(row: &Row) -> rusqlite::Result<Result<Part, String>> {
    let (name, bytes, modified_ns, inode): (String, i64, i64, i64) =
        (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
    let identity = PartIdentity { bytes: bytes as u64, modified_ns, inode: inode as u64 };
    let changed_ns = row.get(5)?;
    Ok(name.parse::<Name>().map(|name| Part { name, identity, changed_ns }).map_err(|error| error.to_string()))
}

fn delivery(row: &Row) -> rusqlite::Result<Result<Delivery, String>> {
    let (destination, required, state): (String, bool, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let (attempts, strikes, ours): (u32, u32, bool) = (row.get(4)?, row.get(5)?, row.get(6)?);
    let (partial, left, words): (Option<u32>, String, String) = (row.get(7)?, row.get(8)?, row.get(9)?);
    let what: String = row.get(10)?;
    let parse = || {
        let known = What::ALL.into_iter().find(|known| known.name() == what);
        let what = known.ok_or_else(|| format!("no delivery is of a {what:?}"))?;
        let known = DeliveryState::ALL.into_iter().find(|known| known.name() == state);
        let state = known.ok_or_else(|| format!("no delivery is {state:?}"))?;
        let numbers = left.split_ascii_whitespace().map(str::parse::<u32>);
        let left: Vec<u32> = numbers.collect::<Result<_, _>>().map_err(|_| format!("{left:?} are no attempts"))?;
        let named = left.iter().chain(&partial);
        if left.len() > LEFT_MAX || named.clone().any(|attempt| *attempt > attempts) {
            return Err(format!("{} attempts left something, of {attempts}", named.count()));
        }
        let kept = Kept { state, attempts, strikes, ours, partial, left, words };
        Ok(Delivery::kept(&destination, what, required, kept))
    };
    Ok(parse())
}

type Parsed<T> = Vec<Result<T, String>>;

fn consignment(
    row: &Row,
    id: i64,
    (parts, events): (Parsed<Part>, Option<Result<Events, String>>),
    deliveries: Parsed<Delivery>,
) -> rusqlite::Result<Result<(String, Consignment), String>> {
    let (route, name, stage): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
    let (held, words, let_go): (bool, String, bool) = (row.get(4)?, row.get(8)?, row.get(9)?);
    let (form, settings, about): (String, i64, Option<String>) = (row.get(10)?, row.get(11)?, row.get(12)?);
    let (registered, refusals): (bool, u32) = (row.get(13)?, row.get(14)?);
    let (zstd, priority): (Option<i32>, u16) = (row.get(15)?, row.get(16)?);
    let series: (Option<String>, Option<i64>) = (row.get(17)?, row.get(18)?);
    let sums: (Option<i64>, Option<u32>, Option<u32>) = (row.get(5)?, row.get(6)?, row.get(7)?);
    let parse = || {
        let name: Name = name.parse().map_err(|error: crate::NameError| error.to_string())?;
        let known = Stage::ALL.into_iter().find(|known| known.name() == stage);
        let stage = known.ok_or_else(|| format!("none is {stage:?}"))?;
        let parts = parts.into_iter().collect::<Result<Vec<Part>, _>>()?;
        let known = Form::ALL.into_iter().find(|known| known.name() == form);
        let form = known.ok_or_else(|| format!("no form is {form:?}"))?;
        if let Some(level) = zstd.filter(|level| !ZSTD_LEVELS.contains(level)) {
            return Err(format!("compressed at level {level}"));
        }
        let deliveries = deliveries.into_iter().collect::<Result<Vec<_>, _>>()?;
        if id < 1 || deliveries.is_empty() {
            return Err(format!("{} deliveries", deliveries.len()));
        }
        let recipe = match (form, events.transpose()?) {
            (Form::Events, Some(events)) if parts.is_empty() => Recipe::of_events(events, zstd),
            (form, None) if form != Form::Events && !parts.is_empty() => Recipe::of_files(form, parts, zstd),
            (form, _) => return Err(format!("what it is made of is not there ({})", form.name())),
        };
        let content = match sums {
            (Some(bytes), Some(adler32), Some(crc32c)) => {
                let sums = Sums { bytes: bytes as u64, adler32, crc32c };
                let about = about.as_deref().unwrap_or_default();
                Some(Checked { sums, about: about_of(about, recipe.parts().len(), zstd.is_some())? })
            }
            (None, None, None) => None,
            _ => return Err("half of its sums".to_owned()),
        };
        let series = match series {
            (Some(names), Some(number)) => {
                Some(Series { names, number: number.try_into().map_err(|_| format!("its number is {number}"))? })
            }
            (None, None) => None,
            _ => return Err("half of a series".to_owned()),
        };
        let has_sidecar = deliveries.iter().any(|delivery| delivery.what == What::Sidecar);
        if content.is_some() && has_sidecar && sidecar::name_of(&name).is_err() {
            return Err("its sidecar can have no name".to_owned());
        }
        let checked = !matches!(stage, Stage::Found | Stage::Quarantined | Stage::Withdrawn);
        if checked && content.is_none() {
            return Err(format!("{} without sums", stage.name()));
        }
        let proven = |delivery: &Delivery| !delivery.required || delivery.state() == DeliveryState::Proven;
        if stage == Stage::Proven && !let_go && !deliveries.iter().all(proven) {
            return Err("a required destination has not proven what may be let go".to_owned());
        }
        let standing = Standing { stage, held, let_go, content, registered, refusals, words };
        let id = ConsignmentId(id as u64);
        let mut consignment = Consignment::kept(id, name, recipe, settings as u64, deliveries, series, standing);
        consignment.priority = priority;
        Ok((route, consignment))
    };
    Ok(parse())
}

/// What a check found besides sums.
fn about_of(text: &str, parts: usize, is_compressed: bool) -> Result<Arc<About>, String> {
    let about: About = serde_json::from_str(text).map_err(|error| format!("what is known of it: {error}"))?;
    if about.uncompressed.is_some() != is_compressed {
        return Err("its sums are of another form".to_owned());
    }
    if about.parts.len() != parts {
        return Err(format!("{parts} parts, and {} are described", about.parts.len()));
    }
    Ok(Arc::new(about))
}
