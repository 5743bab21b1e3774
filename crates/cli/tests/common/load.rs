//! Fragments whose bytes follow from their ids: whoever knows an id knows what must be read.

use forebay_client::{Client, PutResult};
use forebay_types::{DecideOutcome, EventKey, FragmentId, ReadOutcome, RunId};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        // These tests are compiled without optimising: word by word it is fast all the same.
        let mut bytes = vec![0; count];
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
        bytes
    }
}

/// A number of the tester's environment.
pub fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().unwrap_or_else(|_| panic!("{name}={number} is no number")))
}

/// Whether the long form of a test was asked for.
pub fn long_form() -> bool {
    std::env::var_os("FOREBAY_TEST_ALL").is_some()
}

/// Up to 2000 bytes.
pub fn payload(id: FragmentId) -> Vec<u8> {
    let mut random = Random(u64::from(id.run.0) << 40 ^ id.event.0 << 8 ^ u64::from(id.source.0));
    let count = 1 + random.below(2000) as usize;
    random.bytes(count)
}

/// The first fragments of a run, eight of each event.
pub fn ids_of_run(run: u32, count: u64) -> Vec<FragmentId> {
    (0..count).map(|number| FragmentId::new(run, number / 8, (number % 8) as u32)).collect()
}

/// Puts fragments; all of them are acknowledged when it returns.
pub fn put_all(client: &mut Client, ids: &[FragmentId]) {
    for id in ids {
        client.put(*id, 8, &payload(*id)).expect("taken");
    }
    client.flush().expect("answered");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    assert!(results.iter().all(|result| result.outcome.is_acknowledged()), "{:?}", results.first());
    assert_eq!(results.len(), ids.len());
}

/// Gives the number of results that there were.
pub fn take_acknowledged(client: &mut Client, acknowledged: &mut Vec<FragmentId>) -> usize {
    let mut results: Vec<PutResult> = Vec::new();
    client.take_put_results(&mut results);
    acknowledged.extend(results.iter().filter(|result| result.outcome.is_acknowledged()).map(|result| result.id));
    results.len()
}

/// Reads what was acknowledged and compares it; how much that was.
#[track_caller]
pub fn verify(client: &mut Client, ids: &[FragmentId]) -> u64 {
    let (verified, missing) = compare(client, ids);
    assert!(missing.is_empty(), "acknowledged, and not there: {}", missing[..missing.len().min(10)].join(", "));
    verified
}

/// Reads fragments and compares those that are found; how many these were, and what is said of the others.
#[track_caller]
pub fn compare(client: &mut Client, ids: &[FragmentId]) -> (u64, Vec<String>) {
    let (mut verified, mut missing) = (0, Vec::new());
    for batch in ids.chunks(1000) {
        let found = client.get_many(batch).expect("the server answers");
        for (id, (outcome, bytes)) in batch.iter().zip(found) {
            if outcome == ReadOutcome::Found {
                assert!(bytes == payload(*id), "{id} has other bytes than were put");
                verified += 1;
            } else {
                missing.push(format!("{id} ({outcome})"));
            }
        }
    }
    (verified, missing)
}

/// Deletes all events of a run: what was acknowledged, and what may have come without an acknowledgement.
pub fn delete_run(client: &mut Client, run: RunId) {
    let known = client.runs().expect("answered").into_iter().find(|info| info.run == run);
    let last_event = known.unwrap_or_else(|| panic!("run {run} is not there")).last_event;
    let events: Vec<EventKey> = (0..=last_event.0).map(|event| EventKey::new(run.0, event)).collect();
    for (key, outcome) in events.iter().zip(client.delete(&events).expect("answered")) {
        assert!(outcome.is_done() || outcome == DecideOutcome::NotFound, "{key}: {outcome}");
    }
}

/// Sees that what was deleted has stayed so.
#[track_caller]
pub fn expect_deleted(client: &mut Client, ids: &[FragmentId]) {
    for (id, (outcome, _)) in ids.iter().zip(client.get_many(ids).expect("the server answers")) {
        assert_eq!(outcome, ReadOutcome::Deleted, "{id}");
    }
}
