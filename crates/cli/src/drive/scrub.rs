//! `forebay drive scrub`: everything that is stored is looked at now.

use forebay_client::Client;
use serde::Deserialize;

use super::LOOK;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{counted, human_bytes};
use crate::status::parse;

/// The part of the status that is about it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    drives: Vec<Drive>,
    lanes: Vec<Lane>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Drive {
    number: u16,
    state: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lane {
    state: String,
    scrub: Sums,
    drive_health: Vec<Health>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Health {
    drive: u16,
    segments_alive: u64,
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
    let before = told(client)?.sums();
    // A server that mends nothing says so itself.
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
        bar.update((most - now.segments_asked) * 1000 / most, || {
            format!("{} left", counted(now.segments_asked, "segment"))
        });
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
        "all that is stored was looked at: {}, {read}; damage in {} was mended",
        counted(segments, "segment"),
        counted(mended, "flush")
    ));
    if not_mended + lost == 0 {
        return Ok(());
    }
    let away = told(client)?.needed_and_away();
    Err(Failure { told_json: true, ..Failure::data(describe(not_mended, lost, &away)) })
}

/// What was found and not mended, and what is to be done about it.
fn describe(not_mended: u64, lost: u64, away: &[u16]) -> String {
    let flushes = counted(not_mended, "flush");
    let rows = counted(lost, "row");
    let found = format!("{flushes} not mended, {rows} damaged on more drives than parity makes up for");
    if away.is_empty() {
        return format!("{found}: what lay there is lost. `forebay lost` names it");
    }
    let away = away.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "{found}. What is out (number {away}) may bring it: if it still works, put it back, start the server with it and type `forebay drive scrub` \
         again. `forebay lost` names what is missing"
    )
}

fn told(client: &mut Client) -> Result<Told, Failure> {
    parse(&client.status()?)
}

/// What all lanes say; each must serve, or it looks at nothing.
fn sums(client: &mut Client) -> Result<Sums, Failure> {
    let told = told(client)?;
    let at_rest = told.lanes.iter().enumerate().find(|(_, lane)| lane.state != "serving");
    match at_rest {
        Some((number, lane)) => Err(Failure::retry(format!(
            "lane {number} does not serve ({}): what it holds cannot be looked at now",
            lane.state
        ))),
        None => Ok(told.sums()),
    }
}

impl Told {
    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for Lane { scrub, .. } in &self.lanes {
            sums.segments_asked += scrub.segments_asked;
            sums.segments_checked += scrub.segments_checked;
            sums.bytes_read += scrub.bytes_read;
            sums.flushes_mended += scrub.flushes_mended;
            sums.flushes_not_mended += scrub.flushes_not_mended;
            sums.units_lost += scrub.units_lost;
        }
        sums
    }

    /// Drives that do not answer and on which something lives.
    fn needed_and_away(&self) -> Vec<u16> {
        let away = self.drives.iter().filter(|drive| matches!(drive.state.as_str(), "absent" | "failed"));
        let lives = |number: &u16| {
            let mut health = self.lanes.iter().flat_map(|lane| &lane.drive_health);
            health.any(|health| health.drive == *number && health.segments_alive > 0)
        };
        away.map(|drive| drive.number).filter(lives).collect()
    }
}
