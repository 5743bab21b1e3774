//! Ctrl-C and SIGTERM for commands that work for a while: the first asks them to end in order, the second ends them at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use signal_hook::consts::{SIGINT, SIGTERM};

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
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: what sees the flag set by the first signal ends the process at the second.
            signal_hook::flag::register_conditional_shutdown(signal, Exit::Retry as i32, flag.clone())
                .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
                .map_err(|error| Failure::retry(format!("signals cannot be caught: {error}; nothing was started")))?;
        }
        Ok(Interrupt(flag))
    }

    /// Whether one came.
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}
