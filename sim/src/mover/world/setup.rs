//! What a mover is told, drawn from the seed.

use std::time::Duration;

use forebay_mover::custody::Policy;
use forebay_mover::machine::{
    DestinationConfig, DestinationIndex, Merge, Mover, MoverConfig, RouteConfig, StreamConfig,
};
use forebay_types::Time;

use super::super::journal::Journal;
use super::super::runs::Runs;
use super::{PROOF_LASTS, RECHECK_AFTER};
use crate::random::Random;

/// The number of the journal.
pub(super) const TOKEN: u64 = 7;

pub(super) fn address_of(to: usize) -> String {
    format!("destination {to}")
}

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
    /// That stream is defined, and its runs are declared; its files go where that says; they wait until their runs are closed.
    pub(super) is_defined: bool,
    pub(super) goes_by_definition: bool,
    pub(super) waits_for_runs: bool,
    pub(super) zstd: Option<i32>,
    pub(super) sidecar: bool,
    pub(super) register: bool,
    /// Whether destinations fetch files themselves.
    pub(super) pulls: bool,
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
                StreamConfig { stream: "physics".parse().expect("a name"), order_wait, kind: None, defined: None },
                Merge { bytes, wait: random.millis(0..20_000), name: None },
            )
        });
        let is_defined = stream.is_some() && random.per_mille(600);
        Setup {
            is_defined,
            goes_by_definition: is_defined && random.per_mille(600),
            waits_for_runs: is_defined && random.per_mille(300),
            tape: required.iter().map(|_| random.per_mille(250)).collect(),
            required,
            routes: if random.per_mille(300) { 2 } else { 1 },
            settle: random.millis(0..3000),
            merge,
            stream,
            zstd: random.per_mille(250).then_some(3),
            sidecar: random.per_mille(500),
            register: random.per_mille(400),
            pulls: random.per_mille(300),
        }
    }

    /// The route of events, with what definitions say now.
    fn stream_by(&self, runs: &Runs) -> Option<(StreamConfig, Merge)> {
        let (mut stream, mut merge) = self.stream.clone()?;
        if self.goes_by_definition {
            let place = |to: &str| (0..self.required.len()).find(|at| address_of(*at) == to).map(DestinationIndex);
            stream.defined = Some(runs.destinations().into_iter().map(|to| (to.to_owned(), place(to))).collect());
        }
        if self.waits_for_runs {
            merge.wait = Duration::from_secs(100_000);
        }
        Some((stream, merge))
    }

    /// A mover that goes on with what the journal has.
    pub(super) fn start(&self, journal: &Journal, runs: &Runs, now: Time) -> Mover {
        let destination = |(to, until_tape): (usize, &bool)| DestinationConfig {
            address: address_of(to),
            streams_max: 2,
            until_tape: *until_tape,
        };
        let policy = Policy {
            recheck_after: RECHECK_AFTER,
            proof_lasts: PROOF_LASTS,
            strikes_max: 3,
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_secs(10),
            tape_wait_max: Duration::from_secs(10),
        };
        let to = |(to, required): (usize, &bool)| (DestinationIndex(to), *required);
        let stream = |number| self.stream_by(runs).filter(|_| number + 1 == self.routes);
        let by_definition = |number| self.goes_by_definition && number + 1 == self.routes;
        let to_all = |(to, _)| (DestinationIndex(to), true);
        let route = |number| RouteConfig {
            name: format!("route {number}"),
            destinations: if by_definition(number) {
                self.required.iter().enumerate().map(to_all).collect()
            } else {
                self.required.iter().enumerate().map(to).collect()
            },
            pulls: (0..self.required.len()).filter(|_| self.pulls).map(DestinationIndex).collect(),
            policy,
            settle: self.settle,
            merge: stream(number).map(|(_, merge)| merge).or(self.merge.clone()),
            events: stream(number).map(|(stream, _)| stream),
            zstd: self.zstd,
            sidecar: self.sidecar,
            register: self.register,
            scan_every: Duration::from_secs(1),
            priority: 0,
            streams_max: 3,
        };
        let config = MoverConfig {
            routes: (0..self.routes).map(route).collect(),
            destinations: self.tape.iter().enumerate().map(destination).collect(),
            streams_max: 4,
            once: false,
            patience: Duration::from_secs(60),
            token: TOKEN,
        };
        Mover::new(config, journal.at_work(), now)
    }
}
