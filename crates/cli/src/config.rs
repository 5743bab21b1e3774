//! The configuration file of `serve`.

use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::Path;

use forebay_server::ServerConfig;
use forebay_store::{StoreConfig, machine_memory_bytes};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Every key with its default and what it means.
pub const EXAMPLE: &str = include_str!("../forebay.example.toml");

/// A longer file is cut off: it is no configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A configuration file. What it does not say has the defaults; what is not known is refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct FileConfig {
    /// How the store is run.
    pub store: StoreConfig,
    /// How the server is run.
    pub server: ServerConfig,
}

impl FileConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or that says something that is not understood.
    pub fn load(path: &Path) -> Result<FileConfig, Failure> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| Failure::file("read the configuration", path, &error, "the server was not started"))?;
        FileConfig::parse(&text).and_then(|config| config.check(machine_memory_bytes()).map(|()| config)).map_err(|why| {
            let path = path.display();
            Failure::usage(format!("{path}: {why}\nThe server was not started and no drive was touched; `forebay serve --print-config` prints every key"))
        })
    }

    fn parse(text: &str) -> Result<FileConfig, String> {
        // The parser's message has the line, a drawing of it, and for an unknown key those that are known.
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }
}

/// A number of the configuration, and what it may be.
struct Number {
    key: &'static str,
    /// `None` where it is chosen by itself.
    value: fn(&FileConfig) -> Option<u64>,
    allowed: RangeInclusive<u64>,
    /// 0 is allowed too, with a meaning of its own.
    or_zero: bool,
}

/// Every number of a configuration file. The bounds keep out what can only be a slip: nothing works with such a value, or much is lost by
/// it, as drives are by a timeout that no drive keeps.
const NUMBERS: &[Number] = &[
    number("store.cache-bytes", |c| Some(c.store.cache_bytes), 0..=1 << 44),
    Number { or_zero: true, ..number("store.index-bytes", |c| Some(c.store.index_bytes), 1 << 20..=1 << 44) },
    number("store.flush-bytes", |c| c.store.flush_bytes, 64 << 10..=64 << 20),
    number("store.flush-depth", |c| c.store.flush_depth, 1..=64),
    number("store.flush-interval-us", |c| c.store.flush_interval_us, 0..=1_000_000),
    number("store.drive-timeout-ms", |c| c.store.drive_timeout_ms, 100..=600_000),
    number("store.incomplete-after-ms", |c| Some(c.store.incomplete_after_ms), 10..=86_400_000),
    number("store.lease-attempts-max", |c| Some(c.store.lease_attempts_max.into()), 1..=255),
    number("store.background-percent", |c| Some(c.store.background_percent.into()), 1..=100),
    number("store.rebuild-percent", |c| Some(c.store.rebuild_percent.into()), 1..=100),
    Number { or_zero: true, ..number("store.scrub-period-s", |c| Some(c.store.scrub_period_s), 60..=31_536_000) },
    number("server.staging-bytes", |c| Some(c.server.staging_bytes as u64), 2 << 20..=16 << 30),
    number("server.out-buffer-bytes", |c| Some(c.server.out_buffer_bytes as u64), 64 << 10..=1 << 30),
    number("server.credit-bytes", |c| Some(c.server.credit_bytes.into()), 1 << 20..=1 << 30),
    number("server.connections-max", |c| Some(c.server.connections_max as u64), 1..=1_000_000),
    number("server.stall-timeout-ms", |c| Some(c.server.stall_timeout_ms), 100..=3_600_000),
    number("server.filter-silent-s", |c| Some(c.server.filter_silent_s), 1..=2_592_000),
    number("server.recorder-stuck-s", |c| Some(c.server.recorder_stuck_s), 1..=2_592_000),
];

const fn number(key: &'static str, value: fn(&FileConfig) -> Option<u64>, allowed: RangeInclusive<u64>) -> Number {
    Number { key, value, allowed, or_zero: false }
}

impl Number {
    /// What it may be, in words.
    fn range(&self) -> String {
        let zero = if self.or_zero { "0, or from" } else { "From" };
        format!("{zero} {} to {}.", self.allowed.start(), self.allowed.end())
    }

    fn is_allowed(&self, value: u64) -> bool {
        self.allowed.contains(&value) || self.or_zero && value == 0
    }
}

impl FileConfig {
    /// Whether every value is one that a server can run with, on a machine with so much memory; all that are not.
    fn check(&self, memory_bytes: u64) -> Result<(), String> {
        let mut wrong = Vec::new();
        for number in NUMBERS {
            let value = (number.value)(self).filter(|value| !number.is_allowed(*value));
            wrong.extend(value.map(|value| format!("{} = {value} cannot be. {}", number.key, number.range())));
        }
        let (cache, index) = (self.store.cache_bytes, self.store.index_bytes());
        if wrong.is_empty() && cache.saturating_add(index) > memory_bytes {
            wrong.push(format!(
                "store.cache-bytes = {cache} and store.index-bytes = {} cannot be together: with {index} bytes for the index they are more \
                 than this machine's memory of {memory_bytes} bytes. Lower one of them",
                self.store.index_bytes
            ));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key of a table, with its path, and its value.
    fn keys(table: &toml::Table, prefix: &str, into: &mut Vec<(String, toml::Value)>) {
        for (key, value) in table {
            let path = format!("{prefix}{key}");
            match value {
                toml::Value::Table(inner) => keys(inner, &format!("{path}."), into),
                value => into.push((path, value.clone())),
            }
        }
    }

    fn keys_of(text: &str) -> Vec<(String, toml::Value)> {
        let mut found = Vec::new();
        keys(&text.parse().expect("TOML"), "", &mut found);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[test]
    fn the_example_names_every_key_with_its_default() {
        let defaults = toml::to_string(&FileConfig::default()).expect("serialises");
        assert_eq!(keys_of(EXAMPLE), keys_of(&defaults));
        let read = FileConfig::parse(EXAMPLE).expect("the example is read");
        assert_eq!(toml::to_string(&read).expect("serialises"), defaults);
    }

    #[test]
    fn every_key_of_the_example_is_explained() {
        let mut explained = false;
        for line in EXAMPLE.lines() {
            if line.contains(" = ") && !line.starts_with('#') {
                assert!(explained, "{line:?} has no comment before it");
                explained = false;
            } else if line.starts_with('#') {
                explained = true;
            } else if line.is_empty() {
                explained = false;
            }
        }
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        for (text, key) in [
            ("[store]\ncache-byte = 1\n", "cache-byte"),
            ("[server]\nport = 1\n", "port"),
            ("[sever]\n", "sever"),
            ("[store.media]\ndirectio = \"on\"\n", "directio"),
            ("[store]\nfault-injection = true\n", "fault-injection"),
        ] {
            let error = FileConfig::parse(text).expect_err(text);
            assert!(error.contains(key), "{error}");
        }
        assert!(FileConfig::parse("").is_ok());
    }

    #[test]
    fn every_number_of_the_example_has_bounds_and_they_are_explained() {
        let mut comment = String::new();
        let mut explained = Vec::new();
        let mut table = String::new();
        for line in EXAMPLE.lines() {
            if let Some(words) = line.strip_prefix("# ") {
                comment = format!("{comment} {words}");
            } else if let Some(name) = line.strip_prefix('[') {
                table = name.trim_end_matches(']').to_owned();
            } else if let Some((key, _)) = line.split_once(" = ") {
                explained.push((format!("{table}.{key}"), std::mem::take(&mut comment)));
            } else {
                comment.clear();
            }
        }
        for number in NUMBERS {
            let words = explained.iter().find(|(key, _)| key == number.key).map(|(_, words)| words.as_str());
            let words = words.unwrap_or_else(|| panic!("{} is not in the example", number.key));
            assert!(words.contains(&number.range()), "{}: {:?} is not in {words:?}", number.key, number.range());
        }
        let numbers = keys_of(EXAMPLE).into_iter().filter(|(_, value)| value.is_integer());
        for (key, _) in numbers {
            assert!(NUMBERS.iter().any(|number| number.key == key), "{key} has no bounds");
        }
    }

    #[test]
    fn numbers_out_of_their_bounds_are_refused_with_key_value_and_bounds() {
        const MEMORY: u64 = 1 << 50;
        for number in NUMBERS {
            let (table, key) = number.key.split_once('.').expect("a table");
            let (least, most) = (*number.allowed.start(), *number.allowed.end());
            let read = |value: u64| {
                let text = format!("[{table}]\n{key} = {value}\n");
                FileConfig::parse(&text).and_then(|config| config.check(MEMORY))
            };
            for allowed in [least, most].into_iter().chain(number.or_zero.then_some(0)) {
                assert_eq!(read(allowed), Ok(()), "{key} = {allowed}");
            }
            let outside = [least.checked_sub(1), Some(most + 1)];
            for value in outside.into_iter().flatten().filter(|value| !number.is_allowed(*value)) {
                let error = read(value).expect_err("out of bounds");
                assert_eq!(error, format!("{} = {value} cannot be. {}", number.key, number.range()));
            }
        }
        let both = FileConfig::parse("[store]\nflush-depth = 0\n[server]\nconnections-max = 0\n").expect("read");
        let error = both.check(MEMORY).expect_err("two");
        assert!(error.contains("flush-depth = 0") && error.contains("connections-max = 0"), "{error}");
    }

    #[test]
    fn memory_that_the_machine_does_not_have_is_refused() {
        let config = FileConfig::parse("[store]\ncache-bytes = 6000000\nindex-bytes = 3000000\n").expect("read");
        assert_eq!(config.check(9_000_000), Ok(()));
        let error = config.check(8_999_999).expect_err("too much");
        assert!(error.contains("cache-bytes = 6000000") && error.contains("8999999"), "{error}");
    }

    #[test]
    fn what_is_chosen_by_the_kind_of_the_drives_is_a_number_or_auto() {
        let store = |text: &str| FileConfig::parse(&format!("[store]\n{text}\n")).map(|config| config.store);
        let read = store("flush-bytes = 524288\nflush-interval-us = \"auto\"").expect("read");
        assert_eq!((read.flush_bytes, read.flush_interval_us), (Some(524_288), None));
        let error = store("flush-bytes = \"large\"").expect_err("no such word");
        assert!(error.contains("expected a number or \"auto\""), "{error}");
    }
}
