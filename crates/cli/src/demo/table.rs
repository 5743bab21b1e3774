//! The ledger for a person.

use std::fmt::Write;

use super::ledger::Books;
use crate::size::{human_bytes, human_count};

/// The ledger as a table, and one line of judgement.
pub fn table(books: &Books) -> String {
    let ledger = &books.ledger;
    let mut text = String::from("\n");
    let mut row = |name: &str, count: u64, words: &str| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {name:<22} {:>14}  {words}", human_count(count));
    };
    row("events written", books.events_written, &human_bytes(books.bytes_written));
    row("fragments written", ledger.fragments_written, "");
    row("fragments acknowledged", ledger.fragments_acknowledged, &degraded(books.fragments_degraded));
    row("events built", ledger.events_built, &format!("{} incomplete", human_count(ledger.events_incomplete)));
    row("events rejected", ledger.events_rejected, "");
    row("events accepted", ledger.events_accepted, "an event in two streams counts once");
    for (name, stream) in &books.streams {
        let words = format!("shipped {}, {} files", human_count(stream.shipped), stream.files);
        row(&format!("  {name}"), stream.accepted, &format!("{words}, {}", human_bytes(stream.bytes)));
    }
    row("events shipped", ledger.events_shipped, "each compared with the hash taken before it was written");
    row("bytes shipped", ledger.bytes_shipped, &human_bytes(ledger.bytes_shipped));
    row("drives failed", ledger.drives_failed, "");
    row("fragments from parity", ledger.fragments_from_parity, "read, and computed since the drive with them was lost");
    row("lost", ledger.lost, "");
    row("mismatched", ledger.mismatched, "");
    let rate = human_bytes((books.bytes_written as f64 / ledger.seconds.max(0.001)) as u64);
    let end = if books.wrong.is_empty() { "the books balance" } else { "THE BOOKS DO NOT BALANCE" };
    let _ = write!(text, "\n  {:.1} s, {rate}/s in; {end}", ledger.seconds);
    text
}

fn degraded(count: u64) -> String {
    if count == 0 { String::new() } else { format!("{} of them after the drive was lost", human_count(count)) }
}
