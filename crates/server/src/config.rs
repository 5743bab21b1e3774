//! How a server is run.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use forebay_telemetry::reach::admits;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::monitor::MonitorConfig;

/// How a server is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where to listen, `IP:PORT`. Port 0 takes any free port. Until clients are authenticated, another address than one of this machine
    /// (127.0.0.0/8, ::1) needs `insecure-network`.
    pub listen: SocketAddr,
    /// Networks, `IP/BITS`, whose machines may connect although nobody checks who they are: whoever can send from there can read, write
    /// and delete everything. Machines outside of them are refused. This machine may always connect.
    pub insecure_network: Vec<IpNet>,
    /// Memory for what arrives and is not taken by a lane yet, in bytes, for each lane: half of it (at least 1 MiB) for what comes in
    /// small parts, a quarter (at least one largest fragment, and 1 MiB) for fragments of more than 256 KiB, a quarter for what connections keep
    /// between two reads.
    pub staging_bytes: usize,
    /// A connection that has so many bytes of replies to read is not served further until it has read half of them.
    pub out_buffer_bytes: usize,
    /// Bytes of puts that a writer may have unanswered when it is alone, which it holds in memory; many writers get less.
    pub credit_bytes: u32,
    /// Connections, all lanes together; more are refused retryably.
    pub connections_max: usize,
    /// A connection that stops in the middle of a frame for so many milliseconds is closed, which frees its share of the staging memory;
    /// so is one that reads nothing of its answers for six times as long.
    pub stall_timeout_ms: u64,
    /// Where metrics are served over HTTP at `/metrics`, IP:PORT. Nowhere when not said. The rule of `listen` holds: another address than one of
    /// this machine needs `insecure-network`, and machines outside of these networks are refused.
    #[serde(with = "off")]
    pub metrics: Option<SocketAddr>,
    /// The alarm `filter-silent` is raised when events wait for a decision and no filter has said a word for so many seconds.
    pub filter_silent_s: u64,
    /// The alarm `recorder-stuck` is raised when accepted events of a stream wait and none was released for so many seconds.
    pub recorder_stuck_s: u64,
    /// How much may be written to the drives in their life, as their makers say; the day when they are worn out is told from it.
    pub rated_writes_tb: Vec<RatedWrites>,
    /// Files are asked for their wear as block devices are. For tests.
    #[serde(skip)]
    pub smart_of_files: bool,
}

/// How much may be written to a drive in its life: `TB` for all drives, `DRIVE:TB` for one, in units of 10^12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RatedWrites {
    /// The number of the drive; all that are not named otherwise, when absent.
    pub drive: Option<u16>,
    /// Units of 10^12 bytes.
    pub terabytes: u64,
}

impl FromStr for RatedWrites {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} says no rated writes: expected TB for all drives or DRIVE:TB for one, as in 600 or 3:1200, from 1 to 1000000 TB"
            )
        };
        let (drive, terabytes) = match text.split_once(':') {
            Some((drive, terabytes)) => (Some(drive.parse().map_err(|_| wrong())?), terabytes),
            None => (None, text),
        };
        let terabytes = terabytes.parse().ok().filter(|terabytes| (1..=1_000_000).contains(terabytes));
        Ok(RatedWrites { drive, terabytes: terabytes.ok_or_else(wrong)? })
    }
}

impl TryFrom<String> for RatedWrites {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RatedWrites> for String {
    fn from(rated: RatedWrites) -> String {
        rated.to_string()
    }
}

impl fmt::Display for RatedWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.drive {
            Some(drive) => write!(f, "{drive}:{}", self.terabytes),
            None => write!(f, "{}", self.terabytes),
        }
    }
}

/// An address, or `"off"` for none.
mod off {
    use std::net::SocketAddr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(address: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
        match address {
            Some(address) => serializer.collect_str(address),
            None => serializer.serialize_str("off"),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "off" => Ok(None),
            address => address
                .parse()
                .map(Some)
                .map_err(|_| D::Error::custom(format!("expected IP:PORT or \"off\", found {address:?}"))),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7420),
            insecure_network: Vec::new(),
            staging_bytes: 16 << 20,
            out_buffer_bytes: 8 << 20,
            credit_bytes: 16 << 20,
            connections_max: 16_384,
            stall_timeout_ms: 10_000,
            metrics: None,
            filter_silent_s: 60,
            recorder_stuck_s: 600,
            rated_writes_tb: Vec::new(),
            smart_of_files: false,
        }
    }
}

impl ServerConfig {
    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_millis(self.stall_timeout_ms.max(1))
    }

    pub(crate) fn monitor(&self) -> MonitorConfig {
        MonitorConfig {
            filter_silent: Duration::from_secs(self.filter_silent_s),
            recorder_stuck: Duration::from_secs(self.recorder_stuck_s),
        }
    }

    /// What may be written to each of these drives in its life, in bytes; the last word on a drive counts.
    pub(crate) fn rated_bytes(&self, drives: impl Iterator<Item = u16>) -> BTreeMap<u16, u64> {
        let rated = |drive: u16| {
            let last = |wanted: Option<u16>| self.rated_writes_tb.iter().rev().find(|rated| rated.drive == wanted);
            last(Some(drive))
                .or_else(|| last(None))
                .map(|rated| (drive, rated.terabytes.saturating_mul(1_000_000_000_000)))
        };
        drives.filter_map(rated).collect()
    }

    /// Whether a machine may connect.
    pub(crate) fn admits(&self, peer: IpAddr) -> bool {
        admits(&self.insecure_network, peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rated_writes_are_those_of_a_drive_or_of_all() {
        let rated = |words: &[&str]| {
            let rated_writes_tb = words.iter().map(|word| word.parse().expect("understood")).collect();
            ServerConfig { rated_writes_tb, ..ServerConfig::default() }.rated_bytes([0, 3].into_iter())
        };
        assert_eq!(rated(&[]), BTreeMap::new());
        assert_eq!(rated(&["3:1200"]), BTreeMap::from([(3, 1_200_000_000_000_000)]));
        assert_eq!(rated(&["3:1200", "1"]), BTreeMap::from([(0, 1_000_000_000_000), (3, 1_200_000_000_000_000)]));
        for wrong in ["", "0", "-1", "3:", ":3", "70000:1", "1000001", "1.5"] {
            let told = wrong.parse::<RatedWrites>().expect_err(wrong);
            assert!(told.contains("DRIVE:TB"), "{told}");
        }
    }
}
