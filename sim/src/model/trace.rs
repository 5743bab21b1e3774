//! What a trace of an event says, compared with what is known of it.

use std::collections::BTreeSet;

use forebay_types::{EventKey, SourceId, StreamName, WallTime, crc32c};
use serde_json::Value;

use super::{Event, Model, Moment, Snapshot, payload};

impl Model {
    /// `before`: what was known when it was asked for, at the moment `asked`.
    pub(crate) fn traced(&mut self, key: EventKey, before: &Snapshot, asked: Moment, trace: &Value) {
        self.tell(|| format!("trace {key}: {}", trace["state"]));
        self.answers.traces += 1;
        for flush in trace["flushes"].as_array().expect("a list") {
            let written = flush["written_unix_ms"].as_u64().map(WallTime);
            let was_shown = written.is_none_or(|at| self.calendar.has_shown(at));
            assert!(was_shown, "{key}: a flush was written when no calendar showed that: {flush}");
        }
        let calm = self.calm;
        let event = self.event(key);
        let state = trace["state"].as_str().expect("a trace has a state");
        assert!(!before.over || state == "over", "{key}: it is over, and traced as {state}");
        let since = |at: Option<Moment>| at.is_none_or(|at| at > asked);
        match state {
            "unknown" => assert!(before.durable.is_empty(), "{key} was acknowledged, and a trace does not know it"),
            "undecided" | "leased" => {
                assert!(since(event.decided_at), "{key} was decided, and is traced as {state}");
                check_place(key, before, event, trace, calm);
            }
            "accepted" => {
                assert!(since(event.over_at), "{key} was over, and is traced as accepted");
                check_streams(key, event, trace);
                check_place(key, before, event, trace, calm);
            }
            "over" => {
                assert!(event.may_be_over(), "{key} is traced as over, and nobody asked for it");
                check_end(key, event, trace);
                event.over = true;
                self.note(key);
            }
            other => panic!("{key} is traced as {other}"),
        }
    }
}

/// How it ended must be what somebody asked for.
fn check_end(key: EventKey, event: &Event, trace: &Value) {
    match trace["end"].as_str() {
        None => {}
        Some("rejected" | "deleted") => {
            assert!(event.end_asked, "{key} was rejected or deleted, and nobody asked for it")
        }
        Some("released") => {
            let asked = !event.release_asked.is_empty() && !event.accept_asked.is_empty();
            assert!(
                asked && event.accepted.is_subset(&event.release_asked),
                "{key} was released, and not by all of its streams"
            );
        }
        Some(other) => panic!("{key} ended as {other}"),
    }
}

fn check_streams(key: EventKey, event: &Event, trace: &Value) {
    let mut streams: BTreeSet<StreamName> = BTreeSet::new();
    for stream in trace["streams"].as_array().expect("a list") {
        let name: StreamName = stream["name"].as_str().and_then(|name| name.parse().ok()).expect("a name");
        assert!(event.accept_asked.contains(&name), "{key} is traced as accepted into {name}, and nobody said so");
        let is_released = stream["is_released"].as_bool().expect("told");
        assert!(
            !is_released || event.release_asked.contains(&name),
            "{key} is traced as released by {name}, which did not say so"
        );
        streams.insert(name);
    }
    assert!(!streams.is_empty(), "{key} is accepted into no stream");
    assert!(event.accepted.is_empty() || event.accepted == streams, "{key} was accepted into others than {streams:?}");
}

/// What was acknowledged is there with its sum, in a flush of the segment that it names, on enough drives when nothing is wrong.
fn check_place(key: EventKey, before: &Snapshot, event: &Event, trace: &Value, calm: bool) {
    let list = |of: &Value| of.as_array().expect("a list").clone();
    let flushes = list(&trace["flushes"]);
    let mut durable = BTreeSet::new();
    for fragment in list(&trace["fragments"]) {
        let source = SourceId(fragment["source"].as_u64().expect("a source") as u32);
        let id = key.fragment(source);
        let crc = fragment["crc32c"].as_u64();
        let asked = event.fragments.get(&source).map(|fragment| &fragment.asked);
        let is_right = |variant: &u8| crc == Some(crc32c(&payload(id, *variant)).into());
        assert!(
            asked.is_some_and(|asked| asked.iter().any(is_right)),
            "{id} is traced with a sum of bytes that nobody put"
        );
        assert_eq!(
            fragment["is_lost"], false,
            "{id} is traced as lost, and no more went wrong than parity makes up for"
        );
        if fragment["is_durable"] == false {
            continue;
        }
        if let Some(variant) = before.durable.get(&source) {
            assert!(is_right(variant), "{id} is traced with another sum than was acknowledged");
        }
        durable.insert(source);
        let holds = |flush: &&Value| flush["segment"] == fragment["segment"] && flush["flush"] == fragment["flush"];
        let flush =
            flushes.iter().find(holds).unwrap_or_else(|| panic!("{id} lies in a flush that is not told: {trace}"));
        let there =
            flush["shards"].as_array().expect("a list").iter().filter(|shard| shard["state"] == "there").count() as u64;
        // A header that one drive has is the one of this flush, by its segment and number, or it would not count.
        assert!(!calm || Some(there) >= flush["data_shards"].as_u64(), "{id}: too few drives hold its flush: {flush}");
        assert!(there == 0 || flush["written_unix_ms"].is_u64(), "{id}: nobody knows when its flush was written");
    }
    for source in before.durable.keys() {
        assert!(durable.contains(source), "{key}: source {source} was acknowledged, and a trace does not have it");
    }
}
