//! Time, processor time and medians.

use std::time::{Duration, Instant};

/// Wall and processor time of a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Wall time in seconds.
    pub seconds: f64,
    /// User and system time of this process, kernel workers included, in seconds.
    pub cpu_seconds: f64,
}

/// Runs a piece of work.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (wall, cpu) = (Instant::now(), cpu_time());
    let result = work();
    let cost = Cost { seconds: wall.elapsed().as_secs_f64(), cpu_seconds: (cpu_time() - cpu).as_secs_f64() };
    (result, cost)
}

fn cpu_time() -> Duration {
    cpu_time_of(libc::RUSAGE_SELF)
}

/// User and system time of all programs that this one has started and that have ended, with those that they started and waited for.
pub fn children_cpu_seconds() -> f64 {
    cpu_time_of(libc::RUSAGE_CHILDREN).as_secs_f64()
}

fn cpu_time_of(whose: libc::c_int) -> Duration {
    // SAFETY: an all-zero `rusage` is valid, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &mut usage);
        usage
    };
    let duration = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// The median of some numbers.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Of the last minute: how many wanted to run at once.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN)
}
