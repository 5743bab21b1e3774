//! Ctrl-C, SIGTERM and a terminal that goes away, for commands that work for a while: the first asks them to end in order, the second
//! ends them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Exit, Failure};

/// Whether a signal asked for the end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// When the system does not let them be caught.
    pub fn catch() -> Result<Interrupt, Failure> {
        Interrupt::catch_these(signals())
    }

    /// The same where a terminal that goes away, or whoever says so, means something else ([`Reload`]).
    ///
    /// # Errors
    /// When the system does not let them be caught.
    pub fn catch_but_reload() -> Result<Interrupt, Failure> {
        Interrupt::catch_these(vec![SIGINT, SIGTERM])
    }

    fn catch_these(signals: Vec<i32>) -> Result<Interrupt, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        let failed = |error| Failure::retry(format!("signals cannot be caught: {error}; nothing was started"));
        for signal in signals {
            // In this order: what sees the flag set by the first signal ends the process at the second. A terminal that goes
            // away may say so twice.
            if signal != SIGHUP {
                let exit = i32::from(Exit::Retry.code());
                signal_hook::flag::register_conditional_shutdown(signal, exit, flag.clone()).map_err(failed)?;
            }
            signal_hook::flag::register(signal, flag.clone()).map_err(failed)?;
        }
        Ok(Interrupt(flag))
    }

    /// Whether one came.
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Whether SIGHUP asked for the configuration to be read again.
#[derive(Clone, Debug)]
pub struct Reload(Arc<AtomicBool>);

impl Reload {
    /// Catches the signal from now on.
    ///
    /// # Errors
    /// When the system does not let it be caught.
    pub fn catch() -> Result<Reload, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, flag.clone())
            .map_err(|error| Failure::retry(format!("signals cannot be caught: {error}; nothing was started")))?;
        Ok(Reload(flag))
    }

    /// Whether it came since this was asked last.
    pub fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

/// The signals that ask for the end.
pub fn signals() -> Vec<i32> {
    // Whoever had it ignored (nohup) wants the command to outlive the terminal.
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hang_up).collect()
}

/// Whether the process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = text.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
