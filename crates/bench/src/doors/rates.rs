//! Rates through the servers, in turn.

use std::time::Instant;

use serde_json::{Value, json};

use super::clients::{CLIENTS, Client, all};
use super::sides::{STREAMS, Side, Sides, read_name, written_name};
use crate::measure::{children_cpu_seconds, median};

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Of files that were read before.
    Read,
    /// Of files that the store's server meets for the first time.
    FirstRead,
    Write,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::FirstRead => "first read",
            Direction::Write => "write",
        }
    }
}

/// What one side took for all files.
#[derive(Clone, Copy)]
struct Run {
    seconds: f64,
    client_cpu_seconds: f64,
    server_cpu_seconds: f64,
}

/// Where the sides stand among the runs of a turn.
const STORE: usize = 0;
const PLAIN: usize = 1;
const PROXY: usize = 2;

struct Setting<'a> {
    sides: &'a Sides,
    client: Client,
    direction: Direction,
    streams: usize,
}

impl Setting<'_> {
    fn run(&self, side: &Side) -> Run {
        if self.direction == Direction::FirstRead {
            self.sides.renew(side, self.streams);
        }
        let (begin, client, server) = (Instant::now(), children_cpu_seconds(), side.cpu_seconds());
        all((0..self.streams).map(|stream| match self.direction {
            Direction::Read | Direction::FirstRead => self.client.get(side, &read_name(self.streams, stream)),
            Direction::Write => self.client.put(side, &self.sides.source(self.streams, stream), &written_name(stream)),
        }));
        let run = Run {
            seconds: begin.elapsed().as_secs_f64(),
            client_cpu_seconds: children_cpu_seconds() - client,
            server_cpu_seconds: side.cpu_seconds() - server,
        };
        if self.direction == Direction::Write {
            let bytes = self.sides.file_bytes(self.streams);
            (0..self.streams).for_each(|stream| side.remove(&written_name(stream), bytes));
        }
        run
    }

    /// Of the store, of the directory and of the proxy; which comes first takes turns.
    fn turn(&self, number: usize) -> [Run; 3] {
        let Sides { store, plain, proxy, .. } = self.sides;
        let sides = [store, plain, proxy];
        let mut runs = [None; 3];
        for at in 0..3 {
            let side = (number + at) % 3;
            runs[side] = Some(self.run(sides[side]));
        }
        runs.map(|run| run.expect("each had its turn"))
    }
}

/// Reads and writes by each client, in 1 and 8 streams.
pub fn rates(sides: &Sides, pairs: usize) -> Value {
    sides.fill();
    let mut rows = Vec::new();
    for direction in [Direction::Read, Direction::FirstRead, Direction::Write] {
        for client in CLIENTS {
            for streams in STREAMS {
                let row = measure(&Setting { sides, client, direction, streams }, pairs);
                eprintln!("{row}");
                rows.push(row);
            }
        }
    }
    Value::Array(rows)
}

fn measure(setting: &Setting<'_>, pairs: usize) -> Value {
    // The first of each pays for the memory of all.
    setting.turn(0);
    let all: Vec<[Run; 3]> = (0..pairs).map(|number| setting.turn(number)).collect();
    let bytes = setting.sides.payload_bytes as f64;
    let of = |side: usize, value: fn(&Run) -> f64| median(all.iter().map(|runs| value(&runs[side])).collect());
    let rate = |side| bytes / of(side, |run| run.seconds);
    let client = |side| of(side, |run| run.client_cpu_seconds) / (bytes / 1e9);
    let server = |side| of(side, |run| run.server_cpu_seconds) / (bytes / 1e9);
    let ratios =
        |side: usize| -> Vec<f64> { all.iter().map(|runs| runs[side].seconds / runs[STORE].seconds).collect() };
    json!({
        "client": setting.client.name(),
        "direction": setting.direction.name(),
        "streams": setting.streams,
        "pairs": pairs,
        "store_to_plain": median(ratios(PLAIN)),
        "store_to_proxy": median(ratios(PROXY)),
        "store_bytes_per_s": rate(STORE),
        "plain_bytes_per_s": rate(PLAIN),
        "proxy_bytes_per_s": rate(PROXY),
        "client_cpu_seconds_per_gb_of_store": client(STORE),
        "client_cpu_seconds_per_gb_of_plain": client(PLAIN),
        "client_cpu_seconds_per_gb_of_proxy": client(PROXY),
        "server_cpu_seconds_per_gb_of_store": server(STORE),
        "server_cpu_seconds_per_gb_of_plain": server(PLAIN),
        "server_cpu_seconds_per_gb_of_proxy": server(PROXY),
        "all": { "store_to_plain": ratios(PLAIN), "store_to_proxy": ratios(PROXY) },
    })
}
