//! The doors by which programs of the field reach a store: stock XRootD servers over it beside the same over a plain directory, and what a client takes for a GB by each.

mod clients;
mod cpu;
mod prefix;
mod rates;
mod sides;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::measure::load_average;
use prefix::Prefix;
use sides::Sides;

/// What is measured of them, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Doors<'a> {
    /// Bytes of each measurement.
    pub payload_bytes: u64,
    /// Where the plug-in and the library for C are installed.
    pub xrootd_prefix: &'a Path,
    /// Further lines for the server over the plain directory alone.
    pub plain_lines: &'a str,
    /// A Python that has the module.
    pub python: Option<&'a PathBuf>,
    /// One part alone, by its name in the result.
    pub only: Option<&'a str>,
}

/// Everything.
pub fn doors(directory: &Path, pairs: usize, options: Doors<'_>) -> Value {
    let Doors { payload_bytes, xrootd_prefix, plain_lines, python, only } = options;
    let prefix = Prefix::at(xrootd_prefix);
    let sides = Sides::start(directory, &prefix, plain_lines, payload_bytes);
    let mut result = json!({
        "benchmark": "doors",
        "width": "4+1",
        "payload_bytes": payload_bytes,
        "plain_lines": plain_lines,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "load_average_before": load_average(),
    });
    let mut part = |name: &str, measure: &dyn Fn() -> Value| {
        if only.is_none_or(|only| only == name) {
            result[name] = measure();
        }
    };
    part("rates", &|| rates::rates(&sides, pairs));
    part("cpu", &|| cpu::cpu(&sides, &prefix, python, pairs));
    result["load_average_after"] = load_average().into();
    result
}
