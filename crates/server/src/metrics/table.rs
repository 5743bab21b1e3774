//! The metrics, one after the other.

use forebay_engine::{LaneCounters, LaneStatus};
use forebay_store::{ClusterStatus, DriveCounts};
use forebay_telemetry::metrics::{ALARM_LABELS, Sample, alarms, count_words, one, perhaps, sample};
use forebay_telemetry::metrics_table;

use super::Seen;
use crate::alarm::Alarm;
use crate::monitor::DriveFinding;
use crate::status::{LaneReport, NamesReport, RunsReport};

/// One of several counters under one name, and the word that tells it from the others.
type Count = (&'static str, fn(&LaneCounters) -> u64);

/// One of each lane that answered: the others are left out, so that no sum jumps back.
fn lanes(seen: &Seen, of: impl Fn(&LaneReport) -> Option<f64>) -> Vec<Sample> {
    let lanes = seen.snapshot.lanes.iter().flatten();
    lanes.filter_map(|lane| Some(sample(lane.lane(), of(lane)?))).collect()
}

fn states(seen: &Seen, of: impl Fn(&LaneStatus) -> u64) -> Vec<Sample> {
    lanes(seen, |lane| Some(of(&lane.status) as f64))
}

/// Those of lane 0, which has the names of all.
fn names(seen: &Seen, of: impl Fn(&NamesReport) -> u64) -> Vec<Sample> {
    perhaps(seen.snapshot.lanes.first().and_then(Option::as_ref).map(|lane| of(&lane.names) as f64))
}

/// Those of lane 0, which has the books of all.
fn runs(seen: &Seen) -> Vec<Sample> {
    let Some(lane) = seen.snapshot.lanes.first().and_then(Option::as_ref) else { return Vec::new() };
    let RunsReport { declared, running, stopped, closed, discarded, .. } = lane.runs;
    let states = [
        ("declared", declared),
        ("running", running),
        ("stopped", stopped),
        ("closed", closed),
        ("discarded", discarded),
    ];
    states.into_iter().map(|(state, count)| sample(state, count as f64)).collect()
}

fn counts(seen: &Seen, of: impl Fn(&LaneCounters) -> u64) -> Vec<Sample> {
    states(seen, |status| of(&status.counters))
}

fn drives(seen: &Seen, of: impl Fn(&DriveCounts) -> f64) -> Vec<Sample> {
    seen.snapshot.counts.iter().map(|(drive, counts)| sample(drive, of(counts))).collect()
}

fn findings(seen: &Seen, of: impl Fn(&DriveFinding) -> Option<f64>) -> Vec<Sample> {
    let found = &seen.snapshot.findings.drives;
    found.iter().filter_map(|(drive, finding)| Some(sample(drive, of(finding)?))).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn puts(seen: &Seen) -> Vec<Sample> {
    const OUTCOMES: [Count; 6] = [
        ("repeated", |c| c.puts_repeated),
        ("late", |c| c.puts_late),
        ("conflict", |c| c.puts_conflict),
        ("no-space", |c| c.puts_no_space),
        ("index-full", |c| c.puts_index_full),
        ("damaged", |c| c.puts_damaged),
    ];
    labelled(seen, &OUTCOMES)
}

fn events(seen: &Seen) -> Vec<Sample> {
    const ENDS: [Count; 5] = [
        ("accepted", |c| c.events_accepted),
        ("rejected", |c| c.events_rejected),
        ("incomplete", |c| c.events_incomplete),
        ("deleted", |c| c.events_deleted),
        ("released", |c| c.events_released),
    ];
    labelled(seen, &ENDS)
}

fn labelled(seen: &Seen, of: &[Count]) -> Vec<Sample> {
    let lanes = seen.snapshot.lanes.iter().flatten();
    let samples = lanes.flat_map(|lane| {
        of.iter().map(move |(word, count)| Sample {
            labels: vec![lane.lane().to_string(), (*word).to_owned()],
            value: count(&lane.status.counters) as f64,
        })
    });
    samples.collect()
}

fn drive_states(seen: &Seen) -> Vec<Sample> {
    let states = count_words(seen.snapshot.control.drives.iter().map(|drive| drive.state));
    states.into_iter().map(|(state, count)| sample(state, count as f64)).collect()
}

fn lane_states(seen: &Seen) -> Vec<Sample> {
    let state = |lane: &Option<LaneReport>| lane.as_ref().map_or("not answering", |lane| lane.status.state);
    let states = count_words(seen.snapshot.lanes.iter().map(state));
    states.into_iter().map(|(state, count)| sample(state, count as f64)).collect()
}

/// Of the cluster that the store stands on, when it stands on one.
fn cluster(seen: &Seen, of: impl Fn(&ClusterStatus) -> Option<f64>) -> Vec<Sample> {
    perhaps(seen.snapshot.control.cluster.as_ref().and_then(of))
}

fn cluster_checks(seen: &Seen) -> Vec<Sample> {
    let checks = seen.snapshot.control.cluster.iter().flat_map(|cluster| &cluster.checks);
    checks.map(|check| sample(check.split(':').next().unwrap_or_default(), 1.0)).collect()
}

fn connections(seen: &Seen) -> Vec<Sample> {
    let counts = seen.snapshot.connections();
    let classes =
        [("readout", counts.readout), ("filter", counts.filter), ("mover", counts.mover), ("monitor", counts.monitor)];
    classes.into_iter().map(|(class, count)| sample(class, count as f64)).collect()
}

fn streams(seen: &Seen, of: impl Fn(&crate::status::StreamReport) -> u64) -> Vec<Sample> {
    let lanes = seen.snapshot.lanes.iter().flatten();
    let samples =
        lanes.flat_map(|lane| lane.streams.iter().map(move |stream| (lane.lane(), stream))).map(|(lane, stream)| {
            Sample { labels: vec![lane.to_string(), stream.name.to_string()], value: of(stream) as f64 }
        });
    samples.collect()
}

fn drive_operations(seen: &Seen, of: [fn(&DriveCounts) -> f64; 2]) -> Vec<Sample> {
    let both = |(drive, counts): (&u16, &DriveCounts)| {
        let drive = drive.to_string();
        [("write", of[0](counts)), ("read", of[1](counts))]
            .map(|(operation, value)| Sample { labels: vec![drive.clone(), operation.to_owned()], value })
    };
    seen.snapshot.counts.iter().flat_map(both).collect()
}

const LANE: &[&str] = &["lane"];
const DRIVE: &[&str] = &["drive"];

metrics_table! { pub(super) METRICS: Seen;
    "forebay_build_info" Gauge &["version", "store"], "1, with the version of the server and the store that it serves" => |seen| {
        let labels = vec![env!("CARGO_PKG_VERSION").to_owned(), seen.snapshot.control.store.to_string()];
        vec![Sample { labels, value: 1.0 }]
    };
    "forebay_uptime_seconds" Gauge &[], "Time since the server started" => |seen| one(seen.snapshot.uptime.as_secs_f64());
    "forebay_look_age_seconds" Gauge &[], "Age of everything told here: the server is looked at once a second" => |seen| one(seen.age.as_secs_f64());
    "forebay_alarm" Gauge ALARM_LABELS, "1 while the alarm is raised; docs/runbook.md says what to do" => |seen| alarms::<Alarm>(&seen.snapshot.findings.alarms);

    "forebay_parity_shards" Gauge &[], "Drives that may fail when all are well" => |seen| one(f64::from(seen.snapshot.control.parity_shards));
    "forebay_failures_left" Gauge LANE, "Drives that may still fail before something stored is out of reach; absent while nothing is stored" => |seen| lanes(seen, |lane| lane.status.failures_left.map(f64::from));
    "forebay_drives" Gauge &["state"], "Drives by state: member, failed, retired, out (left earlier, and there), absent (a member that was not found), gone (left earlier, and not there)" => drive_states;
    "forebay_lanes" Gauge &["state"], "Lanes by state; all should be serving" => lane_states;
    "forebay_flushes_possibly_lost" Gauge LANE, "Flushes of the last moments before an unclean stop that need absent drives: perhaps acknowledged" => |seen| states(seen, |status| status.flushes_possibly_lost);
    "forebay_flushes_lost" Gauge LANE, "Acknowledged flushes that are damaged on more drives than parity can mend" => |seen| states(seen, |status| status.flushes_lost);
    "forebay_flushes_unavailable" Gauge LANE, "Acknowledged flushes that the start could not read because drives were absent: out of reach, not lost" => |seen| states(seen, |status| status.flushes_unavailable);
    "forebay_segments_out_of_reach" Gauge LANE, "Segments with something alive of which too few drives answer now: out of reach, not lost" => |seen| states(seen, |status| status.out_of_reach.segments);
    "forebay_out_of_reach_bytes" Gauge LANE, "Payload in them" => |seen| states(seen, |status| status.out_of_reach.bytes);
    "forebay_segments_unreadable" Gauge LANE, "Segments that could not be read at the start, for want of drives or because they are damaged" => |seen| states(seen, |status| status.segments_unreadable);
    "forebay_fragments_lost" Counter LANE, "Fragments found damaged beyond repair" => |seen| counts(seen, |c| c.fragments_lost);
    "forebay_fragments_known_lost" Gauge LANE, "Fragments that are known to be lost, of events that are not over; `forebay lost` names them" => |seen| states(seen, |status| status.fragments_known_lost);
    "forebay_rebuild_shards_missing" Gauge LANE, "Shards that lie on no member" => |seen| states(seen, |status| status.rebuild.shards_missing);
    "forebay_rebuild_left_bytes" Gauge LANE, "Bytes that are to be written to make them anew, about" => |seen| states(seen, |status| status.rebuild.bytes_left);
    "forebay_rebuild_written_bytes" Counter LANE, "Bytes written to make shards anew" => |seen| states(seen, |status| status.rebuild.bytes_written);
    "forebay_rebuild_left_seconds" Gauge LANE, "Time until all that can be made anew is, at the rate of the last minute; absent while nothing is made" => |seen| lanes(seen, |lane| lane.rebuild_left_s);
    "forebay_rebuild_segments_stuck" Gauge LANE, "Segments of which something is missing that the drives that answer do not give" => |seen| states(seen, |status| status.rebuild.segments_stuck);
    "forebay_scrub_read_bytes" Counter LANE, "Bytes read to look at what is stored" => |seen| states(seen, |status| status.scrub.bytes_read);
    "forebay_scrub_round_segments" Gauge LANE, "Closed segments that this round looks at" => |seen| states(seen, |status| status.scrub.round_segments);
    "forebay_scrub_round_segments_checked" Gauge LANE, "Those of them that were looked at in this round, or written since it began" => |seen| states(seen, |status| status.scrub.round_segments_checked);
    "forebay_scrub_round_ended_seconds" Gauge LANE, "Time since the last whole round; absent when none has ended since the start" => |seen| lanes(seen, |lane| lane.status.scrub.round_ended_s);

    "forebay_flushes_mended" Counter LANE, "Flushes in which everything damaged was written again" => |seen| states(seen, |status| status.scrub.flushes_mended);
    "forebay_flushes_not_mended" Counter LANE, "Times that something damaged in a flush could not be written again" => |seen| states(seen, |status| status.scrub.flushes_not_mended);
    "forebay_compaction_running" Gauge LANE, "1 while a segment is emptied to make room" => |seen| states(seen, |status| status.compaction.is_running.into());
    "forebay_compaction_moved_bytes" Counter LANE, "Bytes written elsewhere to make room" => |seen| states(seen, |status| status.compaction.bytes_moved);
    "forebay_compaction_fragments_moved" Counter LANE, "Fragments that were written elsewhere, as records of their own" => |seen| states(seen, |status| status.compaction.fragments_moved);
    "forebay_compaction_events_joined" Counter LANE, "Accepted events that were written elsewhere, each as one record" => |seen| states(seen, |status| status.compaction.events_joined);
    "forebay_compaction_segments_stuck" Gauge LANE, "Segments that are not emptied because something in them cannot be read" => |seen| states(seen, |status| status.compaction.segments_stuck);

    "forebay_capacity_bytes" Gauge LANE, "Payload that fits, about" => |seen| states(seen, |status| status.capacity_bytes);
    "forebay_free_bytes" Gauge LANE, "Payload that still fits, about" => |seen| states(seen, |status| status.free_bytes);
    "forebay_time_to_full_seconds" Gauge LANE, "Time until the lane is full at the rates of the last minute; absent while it does not fill" => |seen| lanes(seen, |lane| lane.time_left_s);
    "forebay_pressure_step" Gauge LANE, "Whose reads from the drives are slowed as the lane fills: 0 nobody's, 1 monitors', 2 movers' too, 3 filters' too" => |seen| lanes(seen, |lane| Some(f64::from(lane.pressure as u8)));
    "forebay_put_wait_seconds" Gauge LANE, "How long writers are asked to wait after each put as the lane fills" => |seen| lanes(seen, |lane| Some(f64::from(lane.put_wait_ms) / 1e3));
    "forebay_put_replies_busy" Counter LANE, "Answers to puts that asked the writer to wait" => |seen| lanes(seen, |lane| Some(lane.put_replies_busy as f64));
    "forebay_index_bytes" Gauge LANE, "Memory of the index" => |seen| states(seen, |status| status.index_bytes);
    "forebay_index_max_bytes" Gauge LANE, "What the memory of the index may become" => |seen| states(seen, |status| status.index_bytes_max);
    "forebay_cache_bytes" Gauge LANE, "Memory of the cache" => |seen| states(seen, |status| status.cache_bytes);
    "forebay_cache_max_bytes" Gauge LANE, "What the memory of the cache may become" => |seen| states(seen, |status| status.cache_bytes_max);
    "forebay_staging_bytes" Gauge LANE, "Memory of what arrived and no lane has taken yet" => |seen| lanes(seen, |lane| Some(lane.staging_bytes as f64));
    "forebay_reply_bytes" Gauge LANE, "Memory of answers that their clients have not read yet" => |seen| lanes(seen, |lane| Some(lane.reply_bytes as f64));

    "forebay_fragments" Gauge LANE, "Fragments that are stored" => |seen| states(seen, |status| status.fragments);
    "forebay_fragment_bytes" Gauge LANE, "Payload that is stored" => |seen| states(seen, |status| status.fragment_bytes);
    "forebay_files" Gauge LANE, "Files that are stored, those included that keep the names of all others" => |seen| states(seen, |status| status.files);
    "forebay_files_unsealed" Gauge LANE, "Of these, files that are not sealed" => |seen| states(seen, |status| status.files_unsealed);
    "forebay_file_bytes" Gauge LANE, "Bytes of files that are stored" => |seen| states(seen, |status| status.file_bytes);
    "forebay_files_open" Gauge LANE, "Files that clients have open, each counted for each client" => |seen| lanes(seen, |lane| Some(lane.files_open as f64));
    "forebay_names" Gauge &[], "Names of files, directories and links" => |seen| names(seen, |names| names.names);
    "forebay_names_bytes" Gauge &[], "Memory of the names, beside the index" => |seen| names(seen, |names| names.names_bytes);
    "forebay_names_max_bytes" Gauge &[], "What the memory of the names may become" => |seen| names(seen, |names| names.names_bytes_max);
    "forebay_runs" Gauge &["state"], "Runs that were declared, by state; stopped ones are not closed" => runs;
    "forebay_runs_held" Gauge &[], "Of all of these, runs that somebody holds: nothing of them is freed" => |seen| perhaps(seen.snapshot.lanes.first().and_then(Option::as_ref).map(|lane| lane.runs.held as f64));
    "forebay_events_undecided" Gauge LANE, "Events that wait for a decision" => |seen| states(seen, |status| status.events_undecided);
    "forebay_events_accepted" Gauge LANE, "Events that are accepted and not shipped" => |seen| states(seen, |status| status.events_accepted);
    "forebay_oldest_undecided_seconds" Gauge &[], "The oldest event without a decision has waited for at least so long; absent when there is none" => |seen| perhaps(seen.snapshot.findings.oldest_undecided.map(|age| age.as_secs_f64()));
    "forebay_oldest_accepted_seconds" Gauge &[], "The oldest accepted event that is not shipped was accepted at least so long ago; absent when there is none" => |seen| perhaps(seen.snapshot.findings.oldest_accepted.map(|age| age.as_secs_f64()));
    "forebay_stream_events_waiting" Gauge &["lane", "stream"], "Accepted events that the stream has not released" => |seen| streams(seen, |stream| stream.events_waiting);
    "forebay_stream_events_released" Counter &["lane", "stream"], "Releases that recorders of the stream told" => |seen| streams(seen, |stream| stream.events_released);
    "forebay_connections" Gauge &["class"], "Connections by what their clients are for" => connections;

    "forebay_fragments_stored" Counter LANE, "Fragments made durable" => |seen| counts(seen, |c| c.fragments_stored);
    "forebay_payload_stored_bytes" Counter LANE, "Payload made durable, of fragments and files" => |seen| counts(seen, LaneCounters::payload_bytes_stored);
    "forebay_fragments_stored_degraded" Counter LANE, "Fragments made durable at less than the full width" => |seen| counts(seen, |c| c.fragments_stored_degraded);
    "forebay_fragments_stored_less_parity" Counter LANE, "Fragments made durable with fewer parities, as --parity-min allows" => |seen| counts(seen, |c| c.fragments_stored_less_parity);
    "forebay_puts" Counter &["lane", "outcome"], "Puts that stored nothing, by why" => puts;
    "forebay_events" Counter &["lane", "end"], "Events that were decided, deleted or released; incomplete ones were decided without all of their fragments" => events;
    "forebay_events_leased" Counter LANE, "Events that were lent to filters" => |seen| lanes(seen, |lane| Some(lane.events_leased as f64));
    "forebay_leases_expired" Counter LANE, "Leases that ended without a decision" => |seen| counts(seen, |c| c.leases_expired);
    "forebay_events_told" Counter LANE, "Events that subscribers were told of, for each of them" => |seen| lanes(seen, |lane| Some(lane.told.events as f64));
    "forebay_events_told_gone" Counter LANE, "Events that subscribers wanted and that were over before they asked" => |seen| lanes(seen, |lane| Some(lane.told.gone as f64));
    "forebay_events_told_dropped" Counter LANE, "Events that were forgotten before a subscriber asked, wanted or not" => |seen| lanes(seen, |lane| Some(lane.told.dropped as f64));
    "forebay_fragments_read" Counter LANE, "Fragments read" => |seen| counts(seen, |c| c.fragments_read);
    "forebay_fragments_read_cached" Counter LANE, "Of these, from memory" => |seen| counts(seen, |c| c.fragments_read_cached);
    "forebay_fragments_read_degraded" Counter LANE, "Of these, with the help of parity" => |seen| counts(seen, |c| c.fragments_read_degraded);
    "forebay_file_stored_bytes" Counter LANE, "Bytes of files made durable" => |seen| counts(seen, |c| c.file_bytes_stored);
    "forebay_file_read_bytes" Counter LANE, "Bytes of files read" => |seen| counts(seen, |c| c.file_bytes_read);
    "forebay_file_read_cached_bytes" Counter LANE, "Of these, from memory" => |seen| counts(seen, |c| c.file_bytes_read_cached);
    "forebay_units_damaged" Counter LANE, "Units that were found damaged, those that stay so once more whenever they are met" => |seen| counts(seen, |c| c.units_damaged);
    "forebay_reads_failed" Counter LANE, "Reads of a drive that failed; the other drives stood in" => |seen| counts(seen, |c| c.reads_failed);
    "forebay_flushes" Counter LANE, "Flushes written" => |seen| counts(seen, |c| c.flushes);
    "forebay_checkpoints" Counter LANE, "Checkpoints written" => |seen| counts(seen, |c| c.checkpoints);

    "forebay_drive_written_bytes" Counter DRIVE, "Bytes written to the drive, of everything" => |seen| drives(seen, |c| c.bytes_written as f64);
    "forebay_drive_read_bytes" Counter DRIVE, "Bytes read from the drive" => |seen| drives(seen, |c| c.bytes_read as f64);
    "forebay_drive_written_bytes_per_payload_byte" Gauge DRIVE, "Bytes written to the drive for each byte of payload made durable, both since the start; absent before the first" => |seen| {
        let drives = seen.snapshot.counts.keys();
        drives.filter_map(|drive| Some(sample(drive, seen.snapshot.written_per_payload_byte(*drive)?))).collect()
    };
    "forebay_drive_operations" Counter &["drive", "operation"], "Operations that succeeded" => |seen| drive_operations(seen, [|c| c.writes as f64, |c| c.reads as f64]);
    "forebay_drive_operation_seconds" Counter &["drive", "operation"], "Time that these operations took, added up" => |seen| drive_operations(seen, [|c| seconds(c.write_ns), |c| seconds(c.read_ns)]);
    "forebay_drive_errors" Counter &["drive", "operation"], "Operations that failed" => |seen| drive_operations(seen, [|c| c.write_errors as f64, |c| c.read_errors as f64]);
    "forebay_drive_operations_slow" Counter DRIVE, "Operations that took longer than 250 ms" => |seen| drives(seen, |c| c.operations_slow as f64);
    "forebay_drive_units_damaged" Counter DRIVE, "Units that were found damaged on the drive, those that stay so once more whenever they are met" => |seen| {
        seen.snapshot.control.drives.iter().map(|drive| sample(drive.number, seen.snapshot.units_damaged(drive.number) as f64)).collect()
    };
    "forebay_drive_units_mended" Counter DRIVE, "Damaged units and headers on the drive that were written again" => |seen| {
        seen.snapshot.control.drives.iter().map(|drive| sample(drive.number, seen.snapshot.units_mended(drive.number) as f64)).collect()
    };
    "forebay_drive_lifetime_written_bytes" Gauge DRIVE, "Bytes ever written to the drive, as it says itself; absent when it does not" => |seen| findings(seen, |drive| drive.is_lifetime_known.then_some(drive.lifetime_written_bytes as f64));
    "forebay_drive_rated_bytes" Gauge DRIVE, "Bytes that may be written to the drive in its life, as configured" => |seen| findings(seen, |drive| drive.rated_bytes.map(|bytes| bytes as f64));
    "forebay_drive_life_used_ratio" Gauge DRIVE, "The part of its life that is over, as the drive says itself" => |seen| findings(seen, |drive| drive.used_percent.map(|percent| f64::from(percent) / 100.0));
    "forebay_drive_power_on_seconds" Gauge DRIVE, "Time that the drive was powered on, as it says itself" => |seen| findings(seen, |drive| drive.power_on_hours.map(|hours| hours as f64 * 3600.0));
    "forebay_drive_worn_out_in_seconds" Gauge DRIVE, "Time until the drive has written what it was made for, at the rate of the last day" => |seen| findings(seen, |drive| drive.worn_out_in_s);

    "forebay_cluster_is_healthy" Gauge &[], "1 while the cluster that the store stands on says HEALTH_OK; absent without one, or until it has answered" => |seen| cluster(seen, |cluster| Some(f64::from(u8::from(cluster.health.as_ref()? == "HEALTH_OK"))));
    "forebay_cluster_check" Gauge &["check"], "1 for each of its health checks that is raised" => cluster_checks;
    "forebay_cluster_available_bytes" Gauge &[], "Bytes that the pool still takes" => |seen| cluster(seen, |cluster| Some(cluster.available_bytes? as f64));
    "forebay_cluster_stored_bytes" Gauge &[], "Bytes that the pool holds" => |seen| cluster(seen, |cluster| Some(cluster.stored_bytes? as f64));
    "forebay_cluster_answer_age_seconds" Gauge &[], "Time since a monitor answered last" => |seen| cluster(seen, |cluster| cluster.asked_s_ago);
}
