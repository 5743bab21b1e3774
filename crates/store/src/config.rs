//! How a store is run.

use std::time::Duration;

use forebay_media::MediaConfig;
use serde::{Deserialize, Serialize};

/// How a store is run; nothing of it is stored on the drives.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Memory for the data of recent flushes, all lanes together, in bytes: what a filter that follows closely reads without touching a drive. The
    /// buffers of flushes that fill and are on their way are part of it; they alone take up to `flush_bytes` times k+m times `flush_depth` + 1 in
    /// each lane, whatever is said here.
    pub cache_bytes: u64,
    /// Memory for the index (all that is known of events, flushes and segments), all lanes together, in bytes; puts are refused retryably when it is full. 0: a quarter of the machine's memory.
    pub index_bytes: u64,
    /// Bytes of a full flush on each drive. By the kind of the drives when not said: 512 KiB, 1 MiB on disks.
    #[serde(with = "auto")]
    pub flush_bytes: Option<u64>,
    /// Flushes of a lane on their way at once.
    pub flush_depth: u32,
    /// The least time between two flushes that are not full, in microseconds. By the kind of the drives when not said: 0, and 5000 on
    /// disks, whose heads would move for each.
    #[serde(with = "auto")]
    pub flush_interval_us: Option<u64>,
    /// A drive that does not answer for so many milliseconds is taken out, as long as nothing that is stored comes out of reach by it.
    pub drive_timeout_ms: u64,
    /// An event with missing fragments is offered to filters after so many milliseconds.
    pub incomplete_after_ms: u64,
    /// After so many leases that nobody answered an event is accepted into the stream `debug`.
    pub lease_attempts_max: u16,
    /// Of the time so much goes to what nobody waits for (rebuild, scrub) while requests come, in percent; while none come, all of it. 100: it
    /// does not yield.
    pub background_percent: u8,
    /// Every closed segment is read whole, and mended where it is damaged, once in so many seconds; 0: never.
    pub scrub_period_s: u64,
    /// How drives are reached.
    pub media: MediaConfig,
    /// The fewest parities that new data may have when drives are missing. As many as the store was made with when not said.
    #[serde(skip)]
    pub parity_min: Option<u8>,
    /// Nothing is written.
    #[serde(skip)]
    pub read_only: bool,
    /// Drives can be made to fail by a request. For tests and the demo.
    #[serde(skip)]
    pub fault_injection: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            cache_bytes: 256 << 20,
            index_bytes: 0,
            flush_bytes: None,
            flush_depth: 4,
            flush_interval_us: None,
            drive_timeout_ms: 1000,
            incomplete_after_ms: 5000,
            lease_attempts_max: 5,
            background_percent: 50,
            scrub_period_s: 7 * 86_400,
            media: MediaConfig::default(),
            parity_min: None,
            read_only: false,
            fault_injection: false,
        }
    }
}

impl StoreConfig {
    /// Memory for the index in bytes.
    pub fn index_bytes(&self) -> u64 {
        if self.index_bytes > 0 { self.index_bytes } else { machine_memory_bytes() / 4 }
    }

    /// Bytes of a full flush on each drive, of a store on disks or on anything else.
    pub(crate) fn flush_bytes(&self, on_disks: bool) -> u64 {
        self.flush_bytes.unwrap_or(if on_disks { 1 << 20 } else { 512 << 10 })
    }

    /// The least time between two flushes that are not full.
    pub(crate) fn flush_interval(&self, on_disks: bool) -> Duration {
        Duration::from_micros(self.flush_interval_us.unwrap_or(if on_disks { 5000 } else { 0 }))
    }

    pub(crate) fn drive_timeout(&self) -> Duration {
        Duration::from_millis(self.drive_timeout_ms)
    }
}

/// A number, or `"auto"` for the one that fits.
mod auto {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number or \"auto\"")]
    enum Setting {
        Number(u64),
        Word(Word),
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        Auto,
    }

    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(number) => serializer.serialize_u64(*number),
            None => serializer.serialize_str("auto"),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Ok(match Setting::deserialize(deserializer)? {
            Setting::Number(number) => Some(number),
            Setting::Word(Word::Auto) => None,
        })
    }
}

/// The machine's memory, in bytes.
pub fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_large_and_rare_on_disks_unless_configured() {
        let chosen = StoreConfig::default();
        assert_eq!((chosen.flush_bytes(false), chosen.flush_interval(false)), (512 << 10, Duration::ZERO));
        assert_eq!((chosen.flush_bytes(true), chosen.flush_interval(true)), (1 << 20, Duration::from_millis(5)));
        let said = StoreConfig { flush_bytes: Some(64 << 10), flush_interval_us: Some(0), ..chosen };
        assert_eq!((said.flush_bytes(true), said.flush_interval(true)), (64 << 10, Duration::ZERO));
    }
}
