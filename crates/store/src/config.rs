//! How a store is run.

use std::sync::Arc;
use std::time::Duration;

use forebay_media::{DriveKind, Licence, MediaConfig};
use serde::{Deserialize, Serialize};

use crate::profile::Profile;

/// How a store is run; nothing of it is stored on the drives.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Memory for the data of recent flushes, all lanes together, in bytes: what a filter that follows closely reads without touching a drive. The
    /// buffers of flushes that fill and are on their way are part of it; they alone take up to `flush_bytes` and a unit times k+m times
    /// `flush_depth` + 1 in each lane, whatever is said here.
    pub cache_bytes: u64,
    /// Memory for the index (all that is known of events, flushes and segments), all lanes together, in bytes; puts are refused retryably when it is full. 0: a quarter of the machine's memory.
    pub index_bytes: u64,
    /// What the drives are. When not said, what the operating system says of them: one disk among them makes it a store on disks.
    #[serde(with = "kind")]
    pub drive_kind: Option<Profile>,
    /// Payload of a full flush on each drive, in bytes; its table has up to a unit beside it. By the kind of the drives when not said: 512 KiB, 4 MiB on disks, and in pools 4 to
    /// 16 MiB, as many as half of the memory for data has room for.
    #[serde(with = "auto")]
    pub flush_bytes: Option<u64>,
    /// Flushes of a lane on their way at once. By the kind of the drives when not said: 4, and 2 in pools.
    #[serde(with = "auto")]
    pub flush_depth: Option<u64>,
    /// The least time between two flushes that are not full, in microseconds. By the kind of the drives when not said: 0, and 20000 on
    /// disks, which turn once for each.
    #[serde(with = "auto")]
    pub flush_interval_us: Option<u64>,
    /// A drive that does not answer for so many milliseconds is taken out, as long as nothing that is stored comes out of reach by it. By the
    /// kind of the drives when not said: 1000, and 10000 on disks, which try for seconds before they give up on a sector.
    #[serde(with = "auto")]
    pub drive_timeout_ms: Option<u64>,
    /// An event with missing fragments is offered to filters after so many milliseconds.
    pub incomplete_after_ms: u64,
    /// After so many leases that nobody answered an event is accepted into the stream `debug`.
    pub lease_attempts_max: u16,
    /// Of the time so much goes to what nobody waits for (scrub, compaction) while requests come, in percent; while none come, all of it. 100:
    /// it does not yield.
    pub background_percent: u8,
    /// And so much to what brings protection back (rebuild, mending).
    pub rebuild_percent: u8,
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
    /// Until when anybody may be answered, of drives that other servers reach too. What they stand on protects what they hold, and is waited for.
    #[serde(skip)]
    pub licence: Option<Arc<Licence>>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            cache_bytes: 256 << 20,
            index_bytes: 0,
            drive_kind: None,
            flush_bytes: None,
            flush_depth: None,
            flush_interval_us: None,
            drive_timeout_ms: None,
            incomplete_after_ms: 5000,
            lease_attempts_max: 5,
            background_percent: 50,
            rebuild_percent: 80,
            scrub_period_s: 7 * 86_400,
            media: MediaConfig::default(),
            parity_min: None,
            read_only: false,
            fault_injection: false,
            licence: None,
        }
    }
}

impl StoreConfig {
    /// Memory for the index in bytes.
    pub fn index_bytes(&self) -> u64 {
        if self.index_bytes > 0 { self.index_bytes } else { machine_memory_bytes() / 4 }
    }

    /// What is chosen by the kind of the drives, which are of these kinds as the operating system says.
    pub(crate) fn profile(&self, kinds: impl IntoIterator<Item = DriveKind>) -> Profile {
        self.drive_kind.unwrap_or_else(|| Profile::of(kinds))
    }

    /// Flushes of a lane on their way at once.
    pub(crate) fn flush_depth(&self, profile: Profile) -> u32 {
        let said = self.flush_depth.map(|depth| u32::try_from(depth).unwrap_or(u32::MAX));
        said.unwrap_or(profile.flush_depth()).max(1)
    }

    /// Payload of a full flush on each drive, in bytes, in a store of so many lanes, whose slots have so many bytes.
    pub(crate) fn flush_bytes(&self, profile: Profile, lanes: u16, slot_bytes: u64) -> u64 {
        let lane_cache_bytes = self.cache_bytes / u64::from(lanes.max(1));
        let wanted =
            self.flush_bytes.unwrap_or_else(|| profile.flush_bytes(lane_cache_bytes, self.flush_depth(profile)));
        // A flush leaves room in its slot for others and for the closing flush.
        wanted.min(slot_bytes / 4)
    }

    /// The least time between two flushes that are not full.
    pub(crate) fn flush_interval(&self, profile: Profile) -> Duration {
        self.flush_interval_us.map_or(profile.flush_interval(), Duration::from_micros)
    }

    /// Once it is known what the drives are.
    pub(crate) fn drive_timeout(&self) -> Duration {
        let profile = self.drive_kind.unwrap_or(Profile::SolidState);
        if self.licence.is_some() {
            return crate::remote::PATIENCE;
        }
        self.drive_timeout_ms.map_or(profile.drive_timeout(), Duration::from_millis)
    }
}

/// A kind of drives, or `"auto"` for what the operating system says.
mod kind {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::profile::Profile;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        Auto,
        Disk,
        SolidState,
    }

    pub fn serialize<S: Serializer>(kind: &Option<Profile>, serializer: S) -> Result<S::Ok, S::Error> {
        let word = match kind {
            None => Word::Auto,
            Some(Profile::Disk) => Word::Disk,
            Some(Profile::SolidState) => Word::SolidState,
            // What a store stands on that has no drives is not configured.
            Some(Profile::Pool) => Word::Auto,
        };
        word.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Profile>, D::Error> {
        Ok(match Word::deserialize(deserializer)? {
            Word::Auto => None,
            Word::Disk => Some(Profile::Disk),
            Word::SolidState => Some(Profile::SolidState),
        })
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
        let of =
            |config: &StoreConfig, profile| (config.flush_bytes(profile, 2, 64 << 20), config.flush_interval(profile));
        assert_eq!(of(&chosen, Profile::SolidState), (512 << 10, Duration::ZERO));
        assert_eq!(of(&chosen, Profile::Disk), (4 << 20, Duration::from_millis(20)));
        let said = StoreConfig { flush_bytes: Some(64 << 10), flush_interval_us: Some(0), ..chosen };
        assert_eq!(of(&said, Profile::Disk), (64 << 10, Duration::ZERO));
    }

    #[test]
    fn flushes_to_pools_are_as_large_as_memory_allows_and_few() {
        let of = |cache_mib: u64, lanes, depth| {
            let config = StoreConfig { cache_bytes: cache_mib << 20, flush_depth: depth, ..StoreConfig::default() };
            (config.flush_bytes(Profile::Pool, lanes, 64 << 20) >> 20, config.flush_depth(Profile::Pool))
        };
        assert_eq!(of(256, 2, None), (16, 2), "half of 128 MiB is room for three of 21");
        assert_eq!(of(256, 4, None), (8, 2));
        assert_eq!(of(256, 2, Some(7)), (8, 7));
        assert_eq!(of(0, 8, None), (4, 2), "no smaller ones");
        assert_eq!(of(1 << 20, 1, None), (16, 2), "no larger ones");
        assert_eq!(StoreConfig::default().flush_depth(Profile::Disk), 4);
        assert_eq!(StoreConfig::default().flush_bytes(Profile::Pool, 2, 4 << 20), 1 << 20, "a quarter of a slot");
    }

    #[test]
    fn one_disk_makes_it_a_store_on_disks_unless_somebody_knows_better() {
        let mixed = [DriveKind::SolidState, DriveKind::Rotational, DriveKind::Unknown];
        let mut config = StoreConfig::default();
        assert_eq!(config.profile(mixed), Profile::Disk);
        assert_eq!(config.profile([DriveKind::SolidState, DriveKind::Unknown]), Profile::SolidState);
        config.drive_kind = Some(Profile::SolidState);
        assert_eq!(config.profile(mixed), Profile::SolidState);
        assert_eq!(config.drive_timeout(), Duration::from_secs(1));
        config.drive_kind = Some(Profile::Disk);
        assert_eq!(config.drive_timeout(), Duration::from_secs(10));
        config.drive_timeout_ms = Some(500);
        assert_eq!(config.drive_timeout(), Duration::from_millis(500));
    }
}
