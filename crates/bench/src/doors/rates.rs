//! Rates through the servers, in turn.

use std::time::Instant;

use serde_json::{Value, json};

use super::clients::{CLIENTS, Client, all};
use super::sides::{STREAMS, Side, Sides, read_name, written_name};
use crate::measure::{children_cpu_seconds, median};

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

/// What one side took for all files.
#[derive(Clone, Copy)]
struct Run {
    seconds: f64,
    client_cpu_seconds: f64,
    server_cpu_seconds: f64,
}

struct Setting<'a> {
    sides: &'a Sides,
    client: Client,
    direction: Direction,
    streams: usize,
}

impl Setting<'_> {
    fn run(&self, side: &Side) -> Run {
        let (begin, client, server) = (Instant::now(), children_cpu_seconds(), side.cpu_seconds());
        all((0..self.streams).map(|stream| match self.direction {
            Direction::Read => self.client.get(side, &read_name(self.streams, stream)),
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

    /// Of the store and of the directory; which comes first alternates.
    fn pair(&self, number: usize) -> [Run; 2] {
        let Sides { store, plain, .. } = self.sides;
        if number.is_multiple_of(2) {
            [self.run(store), self.run(plain)]
        } else {
            let plain = self.run(plain);
            [self.run(store), plain]
        }
    }
}

/// Reads and writes by each client, in 1 and 8 streams.
pub fn rates(sides: &Sides, pairs: usize) -> Value {
    sides.fill();
    let mut rows = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
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
    setting.pair(0);
    let all: Vec<[Run; 2]> = (0..pairs).map(|number| setting.pair(number)).collect();
    let bytes = setting.sides.payload_bytes as f64;
    let of = |side: usize, value: fn(&Run) -> f64| median(all.iter().map(|pair| value(&pair[side])).collect());
    let rate = |side| bytes / of(side, |run| run.seconds);
    let client = |side| of(side, |run| run.client_cpu_seconds) / (bytes / 1e9);
    let server = |side| of(side, |run| run.server_cpu_seconds) / (bytes / 1e9);
    let ratios: Vec<f64> = all.iter().map(|[store, plain]| plain.seconds / store.seconds).collect();
    json!({
        "client": setting.client.name(),
        "direction": if setting.direction == Direction::Read { "read" } else { "write" },
        "streams": setting.streams,
        "pairs": pairs,
        "store_to_plain": median(ratios.clone()),
        "store_bytes_per_s": rate(0),
        "plain_bytes_per_s": rate(1),
        "client_cpu_seconds_per_gb_of_store": client(0),
        "client_cpu_seconds_per_gb_of_plain": client(1),
        "server_cpu_seconds_per_gb_of_store": server(0),
        "server_cpu_seconds_per_gb_of_plain": server(1),
        "all": { "store_to_plain": ratios },
    })
}
