//! What a mover is told, drawn from the seed.

use std::time::Duration;

use forebay_mover::custody::Policy;
use forebay_mover::machine::{
    DestinationConfig, DestinationIndex, Merge, Mover, MoverConfig, RouteConfig, StreamConfig,
};
use forebay_types::{StoreUuid, Time};

use super::super::journal::Journal;
use super::{PROOF_LASTS, RECHECK_AFTER};
use crate::random::Random;

/// The number of the journal.
pub(super) const TOKEN: u64 = 7;

pub(super) struct Setup {
    /// Whether each destination is required.
    pub(super) required: Vec<bool>,
    /// Whether each waits for tape.
    pub(super) tape: Vec<bool>,
    pub(super) routes: usize,
    pub(super) settle: Duration,
    pub(super) merge: Option<Merge>,
    /// The last route is one of events.
    pub(super) stream: Option<(StreamConfig, Merge)>,
    pub(super) zstd: Option<i32>,
    pub(super) sidecar: bool,
    pub(super) register: bool,
}

impl Setup {
    pub(super) fn of(random: &mut Random) -> Setup {
        let destinations = random.within(1..4) as usize;
        let mut required: Vec<bool> = (0..destinations).map(|_| random.per_mille(800)).collect();
        required[0] = true;
        let merge = random.per_mille(400).then(|| Merge {
            bytes: if random.per_mille(500) { random.within(20..200) } else { random.within(2000..8000) },
            wait: random.millis(0..20_000),
            name: None,
        });
        let stream = random.per_mille(400).then(|| {
            let bytes = if random.per_mille(700) { random.within(20..400) } else { random.within(2000..8000) };
            let order_wait = random.millis(0..10_000);
            (
                StreamConfig {
                    store: StoreUuid::from_bytes([7; 16]),
                    stream: "physics".parse().expect("a name"),
                    order_wait,
                },
                Merge { bytes, wait: random.millis(0..20_000), name: None },
            )
        });
        Setup {
            tape: required.iter().map(|_| random.per_mille(250)).collect(),
            required,
            routes: if random.per_mille(300) { 2 } else { 1 },
            settle: random.millis(0..3000),
            merge,
            stream,
            zstd: random.per_mille(250).then_some(3),
            sidecar: random.per_mille(500),
            register: random.per_mille(400),
        }
    }

    /// A mover that goes on with what the journal has; so many of the routes are known to it.
    pub(super) fn start(&self, routes: usize, journal: &Journal, now: Time) -> Mover {
        let destination = |(to, until_tape): (usize, &bool)| DestinationConfig {
            address: format!("destination {to}"),
            streams_max: 2,
            until_tape: *until_tape,
        };
        let config = MoverConfig {
            routes: (0..routes).map(|number| self.route(number)).collect(),
            destinations: self.tape.iter().enumerate().map(destination).collect(),
            streams_max: 4,
            once: false,
            patience: Duration::from_secs(60),
            token: TOKEN,
        };
        Mover::new(config, journal.at_work(), now)
    }

    pub(super) fn route(&self, number: usize) -> RouteConfig {
        let policy = Policy {
            recheck_after: RECHECK_AFTER,
            proof_lasts: PROOF_LASTS,
            strikes_max: 3,
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_secs(10),
            tape_wait_max: Duration::from_secs(10),
        };
        let to = |(to, required): (usize, &bool)| (DestinationIndex(to), *required);
        let stream = self.stream.as_ref().filter(|_| number + 1 == self.routes);
        RouteConfig {
            name: format!("route {number}"),
            destinations: self.required.iter().enumerate().map(to).collect(),
            policy,
            settle: self.settle,
            merge: stream.map(|(_, merge)| merge.clone()).or(self.merge.clone()),
            events: stream.map(|(stream, _)| stream.clone()),
            zstd: self.zstd,
            sidecar: self.sidecar,
            register: self.register,
            scan_every: Duration::from_secs(1),
            priority: 0,
            streams_max: 3,
        }
    }
}
