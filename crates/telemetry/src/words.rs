//! Numbers and lists in the words of an operator.

use std::time::Duration;

/// A time.
pub fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// One thing, or several, by their names.
pub fn list<T: ToString>(one: &str, many: &str, what: impl IntoIterator<Item = T>) -> String {
    let what: Vec<String> = what.into_iter().map(|one| one.to_string()).collect();
    match &what[..] {
        [only] => format!("{one} {only}"),
        all => format!("{many} {}", all.join(", ")),
    }
}
