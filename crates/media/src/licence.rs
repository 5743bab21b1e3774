//! Until when the owner of a remote drive may answer anybody.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::Time;
use rustix::time::{ClockId, clock_gettime};

const REVOKED: u64 = u64::MAX;

/// Until when a server may answer what it is asked. Another one may own what it serves after that.
#[derive(Debug, Default)]
pub struct Licence {
    until_ns: AtomicU64,
}

impl Licence {
    /// The time that licences go by. It runs on while the process stands still, and while the machine sleeps.
    pub fn now() -> Time {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
        Time(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }

    /// It holds until then, unless it was revoked.
    pub fn extend(&self, until: Time) {
        let keep_revoked = |known: u64| (known != REVOKED).then_some(until.0.min(REVOKED - 1));
        // One that is revoked stays so.
        let _ = self.until_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, keep_revoked);
    }

    /// It holds no more, for ever.
    pub fn revoke(&self) {
        self.until_ns.store(REVOKED, Ordering::Release);
    }

    /// Whether it holds no more for ever.
    pub fn is_revoked(&self) -> bool {
        self.until_ns.load(Ordering::Acquire) == REVOKED
    }

    /// Whether anybody may be answered now.
    pub fn is_valid(&self) -> bool {
        let until_ns = self.until_ns.load(Ordering::Acquire);
        until_ns != REVOKED && Licence::now().0 < until_ns
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_licence_ends_by_itself_or_at_once() {
        let licence = Licence::default();
        assert!(!licence.is_valid());
        licence.extend(Licence::now() + Duration::from_secs(3600));
        assert!(licence.is_valid());
        licence.extend(Licence::now());
        assert!(!licence.is_valid() && !licence.is_revoked());
        licence.extend(Licence::now() + Duration::from_secs(3600));
        licence.revoke();
        licence.extend(Licence::now() + Duration::from_secs(3600));
        assert!(!licence.is_valid() && licence.is_revoked());
    }
}
