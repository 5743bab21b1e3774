//! What is played: a seed, and what is left out of what it would do.

use std::fmt;

use clap::{Args, Parser};

use crate::faults::Fault;

/// A seed and what is changed of it. Its text is the options with which `forebay-sim` plays it.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Play {
    /// The seed; with several, the first; of a soak whose file is not there yet, too.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// In the second mode: more is lost at once than parity makes up for.
    #[arg(long)]
    pub beyond: bool,
    /// Leave this kind of fault out (its name with - between the words); again for more.
    #[arg(long, value_name = "FAULT")]
    pub without: Vec<Fault>,
    /// Write so many events at the most.
    #[arg(long)]
    pub events: Option<u64>,
    /// So many writers at the most.
    #[arg(long)]
    pub writers: Option<usize>,
    /// So many filters at the most.
    #[arg(long)]
    pub filters: Option<usize>,
    /// With clients that write files; not in the second mode.
    #[arg(long)]
    pub files: bool,
    /// With some who look on; not in the second mode.
    #[arg(long)]
    pub subscribers: bool,
    /// With clients that append to files and cut them, with much of that on its way at once; not in the second mode.
    #[arg(long)]
    pub appends: bool,
    /// With clients that fill lanes with files, and remove them when there is no room for more; not in the second mode.
    #[arg(long)]
    pub full: bool,
    /// With clients that declare, close, hold and discard runs; not in the second mode.
    #[arg(long)]
    pub runs: bool,
    /// On one drive that stands for the pools of a cluster; not in the second mode.
    #[arg(long)]
    pub pool: bool,
    /// Nothing goes wrong after so many milliseconds.
    #[arg(long, value_name = "MILLISECONDS")]
    pub trouble_ms: Option<u64>,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(flatten)]
    play: Play,
}

impl Play {
    /// A seed in the second mode.
    pub fn beyond(seed: u64) -> Play {
        Play { seed, beyond: true, ..Play::default() }
    }

    /// A seed as it is.
    pub fn of(seed: u64) -> Play {
        Play { seed, ..Play::default() }
    }

    /// From the options as they are typed.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_options(options: &str) -> Result<Play, String> {
        Words::try_parse_from(options.split_whitespace()).map(|words| words.play).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {}{}", self.seed, if self.beyond { " --beyond" } else { "" })?;
        f.write_str(if self.files { " --files" } else { "" })?;
        f.write_str(if self.subscribers { " --subscribers" } else { "" })?;
        f.write_str(if self.appends { " --appends" } else { "" })?;
        f.write_str(if self.full { " --full" } else { "" })?;
        f.write_str(if self.runs { " --runs" } else { "" })?;
        f.write_str(if self.pool { " --pool" } else { "" })?;
        self.without.iter().try_for_each(|fault| write!(f, " --without {}", fault.option()))?;
        let numbers = [
            ("events", self.events),
            ("writers", self.writers.map(|n| n as u64)),
            ("filters", self.filters.map(|n| n as u64)),
            ("trouble-ms", self.trouble_ms),
        ];
        let given = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
        given.into_iter().try_for_each(|(name, number)| write!(f, " --{name} {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_typed() {
        let play = Play {
            without: vec![Fault::BitRot, Fault::Crash],
            events: Some(3),
            writers: Some(1),
            filters: Some(2),
            trouble_ms: Some(40),
            beyond: true,
            files: true,
            subscribers: true,
            appends: true,
            full: true,
            runs: true,
            pool: true,
            ..Play::of(7)
        };
        let text = play.to_string();
        assert_eq!(
            text,
            "--seed 7 --beyond --files --subscribers --appends --full --runs --pool --without bit-rot --without crash --events 3 --writers 1 --filters 2 --trouble-ms 40"
        );
        assert_eq!(Play::from_options(&text).unwrap(), play);
        assert!(Play::from_options("--without nonsense").is_err());
    }
}
