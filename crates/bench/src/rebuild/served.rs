//! A rebuild beside puts as writers meet it: through a server, on loopback.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use forebay_client::{ChangeDrive, Client, DriveChange};
use forebay_types::DriveNumber;
use serde_json::{Value, json};

use super::{FRAGMENT_BYTES, timed};
use crate::measure::median;
use crate::process::{DATA, Drives};
use crate::requests::{payload, put_all, status};

const CACHE_BYTES: u64 = 256 << 20;

/// How one round went, in bytes a second, as in the lane alone.
struct Round {
    alone: f64,
    puts_alone: f64,
    puts_beside: f64,
    beside: f64,
}

/// A drive is lost and replaced twice: once while nothing else happens, once under puts at full rate.
pub(super) fn served(directory: &Path, rounds: usize, payload_bytes: u64) -> Value {
    let all: Vec<Round> = (0..rounds.max(1)).map(|_| one(directory, payload_bytes)).collect();
    let of = |value: fn(&Round) -> f64| -> Vec<f64> { all.iter().map(value).collect() };
    let (puts, beside) = (of(|round| round.puts_beside / round.puts_alone), of(|round| round.beside / round.alone));
    json!({
        "puts_bytes_per_s": median(of(|round| round.puts_alone)),
        "rebuild_bytes_per_s": median(of(|round| round.alone)),
        "puts_beside_rebuild_ratio": median(puts.clone()),
        "puts_beside_rebuild_ratios": puts,
        "rebuild_beside_puts_ratio": median(beside.clone()),
        "rebuild_beside_puts_ratios": beside,
    })
}

fn one(directory: &Path, payload_bytes: u64) -> Round {
    let drive_bytes = (payload_bytes / u64::from(DATA) * 3).next_multiple_of(1 << 20) + (256 << 20);
    let drives = Drives::new(directory, drive_bytes, 1);
    let server = drives.serve(CACHE_BYTES);
    let (mut writer, mut operator) = (server.client(), server.client());
    let (payload, count) = (payload(FRAGMENT_BYTES as usize), payload_bytes / FRAGMENT_BYTES);
    let part = count * 2 / 3;
    let mut put = |run, count| timed(|| _ = put_all(&mut writer, run, count, &payload), count * FRAGMENT_BYTES);
    put(1, count);
    let puts_alone = put(2, part);

    replace(&mut operator, DriveNumber(2), &drives.further("first"));
    let (before, begin) = (rebuilt(&mut operator), Instant::now());
    let whole = loop {
        let now = rebuilt(&mut operator);
        if now.is_whole {
            break now;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let alone = (whole.bytes - before.bytes) as f64 / begin.elapsed().as_secs_f64();

    replace(&mut operator, DriveNumber(3), &drives.further("second"));
    let (before, begin) = (rebuilt(&mut operator), Instant::now());
    let puts_beside = put(3, part);
    let (seconds, now) = (begin.elapsed().as_secs_f64(), rebuilt(&mut operator));
    assert!(!now.is_whole, "the rebuild was over before the puts were: store more");
    let beside = (now.bytes - before.bytes) as f64 / seconds;
    eprintln!(
        "through a server: rebuild {:.2} GB/s, beside puts {:.2} GB/s; puts {:.2} GB/s, beside rebuild {:.2} GB/s",
        alone / 1e9,
        beside / 1e9,
        puts_alone / 1e9,
        puts_beside / 1e9
    );
    Round { alone, puts_alone, puts_beside, beside }
}

/// How far a rebuild is.
struct Rebuilt {
    /// Read and written.
    bytes: u64,
    is_whole: bool,
}

fn rebuilt(operator: &mut Client) -> Rebuilt {
    let rebuild = status(operator)["lanes"][0]["rebuild"].take();
    let number = |name: &str| rebuild[name].as_u64().expect("lanes say it");
    Rebuilt { bytes: number("bytes_read") + number("bytes_written"), is_whole: rebuild["is_whole"] == true }
}

/// Gives a drive up and puts an empty one in; comes back when its rebuild may begin.
fn replace(operator: &mut Client, drive: DriveNumber, path: &Path) {
    let path = path.to_str().expect("a path of this benchmark is text").to_owned();
    for change in [DriveChange::Fail { force: false }, DriveChange::Replace { path, force: false }] {
        operator.change_drive(ChangeDrive { drive, change }).expect("the server does it");
    }
    loop {
        let replacement = status(operator)["replacement"].take();
        assert_ne!(replacement["state"], "failed", "{replacement}");
        if replacement["state"] == "done" && replacement["drive"] == drive.0 {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
