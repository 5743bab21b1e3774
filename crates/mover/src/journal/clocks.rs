//! Since when files wait, as the journal has it.

use rusqlite::Connection;

use crate::monitor::Clocks;

const FOUND: &str = "SELECT route, id, (SELECT min(unix_ms) FROM transitions WHERE consignment = id) FROM consignments \
                     WHERE is_over = 0 AND stage NOT IN ('released', 'withdrawn')";
const HELD: &str = "SELECT route, id, (SELECT max(unix_ms) FROM transitions WHERE consignment = id AND destination IS NULL AND after = 'held') \
                    FROM consignments WHERE is_over = 0 AND held = 1";
const TAPE: &str = "SELECT route, consignment, (SELECT max(unix_ms) FROM transitions WHERE consignment = of.consignment \
                    AND destination = of.destination AND sidecar = (what = 'sidecar') AND after = 'waiting'), of.destination, what = 'sidecar' \
                    FROM deliveries AS of JOIN consignments ON id = consignment WHERE is_over = 0 AND state = 'waiting'";

pub(super) fn load(connection: &Connection) -> rusqlite::Result<Clocks> {
    let mut clocks = Clocks::default();
    for (query, is_held) in [(FOUND, false), (HELD, true)] {
        let mut select = connection.prepare(query)?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (route, id, unix_ms): (String, i64, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let of = clocks.0.entry(route).or_default();
            let into = if is_held { &mut of.held } else { &mut of.found };
            into.extend(unix_ms.map(|unix_ms| (id, unix_ms)));
        }
    }
    let mut select = connection.prepare(TAPE)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (route, id, unix_ms): (String, i64, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let delivery = (id, row.get(3)?, row.get(4)?);
        clocks.0.entry(route).or_default().tape.extend(unix_ms.map(|unix_ms| (delivery, unix_ms)));
    }
    Ok(clocks)
}
