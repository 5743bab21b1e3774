//! `forebay drive scrub`: everything that is stored is looked at now.

use forebay_client::Client;
use serde::Deserialize;

use super::LOOK;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::human_bytes;
use crate::status::parse;

/// The part of the status that is about it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lanes {
    lanes: Vec<Lane>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lane {
    state: String,
    scrub: Sums,
}

/// What a lane has looked at since the start; here summed over them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Sums {
    segments_asked: u64,
    segments_checked: u64,
    bytes_read: u64,
    flushes_mended: u64,
    flushes_not_mended: u64,
    units_lost: u64,
}

/// Asks for it, waits for its end unless that is not wanted, and says what was found.
pub(super) fn scrub(client: &mut Client, no_wait: bool, output: &Output) -> Result<(), Failure> {
    let before = sums(client)?;
    client.scrub()?;
    if no_wait {
        output.object(&serde_json::json!({ "done": "begun" }));
        output.line("everything that is stored is being looked at; `forebay drive list` shows how much is left");
        return Ok(());
    }
    let mut bar = output.progress(1000, "{msg} [{bar:40}]");
    let (mut now, mut most) = (sums(client)?, 1);
    while now.segments_asked > 0 {
        most = most.max(now.segments_asked);
        bar.update((most - now.segments_asked) * 1000 / most, || format!("{} segments are left", now.segments_asked));
        std::thread::sleep(LOOK);
        now = sums(client)?;
    }
    drop(bar);
    let since = |sum: fn(&Sums) -> u64| sum(&now).saturating_sub(sum(&before));
    let (segments, read_bytes) = (since(|sums| sums.segments_checked), since(|sums| sums.bytes_read));
    let (mended, not_mended) = (since(|sums| sums.flushes_mended), since(|sums| sums.flushes_not_mended));
    let lost = since(|sums| sums.units_lost);
    output.object(&serde_json::json!({
        "done": "scrubbed",
        "segments_checked": segments,
        "bytes_read": read_bytes,
        "flushes_mended": mended,
        "flushes_not_mended": not_mended,
        "units_lost": lost,
    }));
    let read = human_bytes(read_bytes);
    output.line(&format!(
        "all that is stored was looked at: {segments} segments, {read}; damage in {mended} flushes was mended"
    ));
    if not_mended + lost == 0 {
        return Ok(());
    }
    let what = format!(
        "{not_mended} flushes could not be mended, and {lost} rows are damaged on more drives than parity makes up for: put back drives that are \
         out, if they still work, and type `forebay drive scrub` again"
    );
    Err(Failure { told_json: true, ..Failure::data(what) })
}

/// What all lanes say; each must serve, or it looks at nothing.
fn sums(client: &mut Client) -> Result<Sums, Failure> {
    let told: Lanes = parse(&client.status()?)?;
    let mut sums = Sums::default();
    for (number, lane) in told.lanes.iter().enumerate() {
        if lane.state != "serving" {
            let words = format!("lane {number} does not serve ({}): what it holds cannot be looked at now", lane.state);
            return Err(Failure::retry(words));
        }
        sums.segments_asked += lane.scrub.segments_asked;
        sums.segments_checked += lane.scrub.segments_checked;
        sums.bytes_read += lane.scrub.bytes_read;
        sums.flushes_mended += lane.scrub.flushes_mended;
        sums.flushes_not_mended += lane.scrub.flushes_not_mended;
        sums.units_lost += lane.scrub.units_lost;
    }
    Ok(sums)
}
