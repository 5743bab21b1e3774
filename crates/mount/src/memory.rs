//! What is told from memory when the store does not answer soon. Whoever looks at the mount as a whole, to unmount it say, does not wait for a server that is away.

use std::collections::BTreeMap;
use std::time::Duration;

use fuser::Errno;

use crate::machine::{Machine, Reply};

/// So long the store has to answer.
const WAIT: Duration = Duration::from_millis(500);

/// What was known last, and who waits for what is known now.
pub(crate) struct Memory<T> {
    known: T,
    waiting: BTreeMap<u64, Reply<T>>,
}

impl<T: Clone + Send + 'static> Memory<T> {
    pub(crate) fn new(known: T) -> Memory<T> {
        Memory { known, waiting: BTreeMap::new() }
    }
}

impl Machine {
    /// Somebody waits; gives the number under which to say what is known now.
    pub(crate) fn wait_or_remember<T: Clone + Send + 'static>(
        &mut self,
        of: fn(&mut Machine) -> &mut Memory<T>,
        reply: Reply<T>,
    ) -> u64 {
        let number = self.take_number();
        of(self).waiting.insert(number, reply);
        self.later(WAIT, move |machine| {
            let memory = of(machine);
            if let Some(reply) = memory.waiting.remove(&number) {
                reply(Ok(memory.known.clone()));
            }
        });
        number
    }

    /// What is known now, for whoever still waits.
    pub(crate) fn remember<T: Clone + Send + 'static>(
        &mut self,
        of: fn(&mut Machine) -> &mut Memory<T>,
        number: u64,
        known: Result<T, Errno>,
    ) {
        let memory = of(self);
        if let Ok(known) = &known {
            memory.known = known.clone();
        }
        if let Some(reply) = memory.waiting.remove(&number) {
            reply(known);
        }
    }
}
