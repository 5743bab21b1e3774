//! The events that are written, one after the other: which template, under which numbers.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_rawdata::{InputError, RawEvent};
use forebay_types::EventKey;

use super::input::Passes;
use super::numbers::Runs;
use super::{ReadoutConfig, ReadoutError};

/// An event that is to be written.
pub(super) struct Planned {
    /// Counted over all, from 0.
    pub(super) index: u64,
    pub(super) template: Arc<RawEvent>,
    pub(super) key: EventKey,
    /// The events of the input are numbered by their position, whatever their bytes say.
    pub(super) by_position: bool,
}

pub(super) struct Sequence {
    /// Each with its share of the events; `None`: one pass.
    inputs: VecDeque<(Passes, Option<u64>)>,
    runs: Runs,
    index: u64,
    /// Of the present input.
    written: u64,
    damaged: Vec<(String, InputError)>,
}

impl Sequence {
    pub(super) fn new(config: &ReadoutConfig, mut runs: Runs) -> Sequence {
        let count = config.inputs.len() as u64;
        let share = |place: u64| config.events.map(|all| all / count + u64::from(place < all % count));
        let passes = config.inputs.iter().map(|input| Passes::new(input.clone(), config.cache_bytes));
        let inputs = passes.zip(0..).map(|(passes, place)| (passes, share(place))).collect();
        runs.next_input();
        Sequence { inputs, runs, index: 0, written: 0, damaged: Vec::new() }
    }

    /// The next event; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Planned>, ReadoutError> {
        while let Some((passes, share)) = self.inputs.front_mut() {
            if share.is_some_and(|share| self.written >= share) {
                self.next_input();
                continue;
            }
            match passes.next() {
                Ok(Some(template)) => {
                    let key = self.runs.rename(template.format, template.key, passes.is_first())?;
                    let index = self.index;
                    self.index += 1;
                    self.written += 1;
                    return Ok(Some(Planned { index, template, key, by_position: passes.by_position() }));
                }
                Ok(None) => {
                    if share.is_none() || !passes.again() {
                        self.next_input();
                    }
                }
                Err(error) => {
                    if !self.damaged.is_empty() {
                        // The first one is told by how the readout ends.
                        tracing::error!("{}: {error}", passes.input);
                    }
                    self.damaged.push((passes.input.to_string(), error));
                    self.next_input();
                }
            }
        }
        Ok(None)
    }

    fn next_input(&mut self) {
        self.inputs.pop_front();
        self.written = 0;
        self.runs.next_input();
    }

    /// The inputs that are damaged.
    pub(super) fn into_damaged(self) -> Vec<(String, InputError)> {
        self.damaged
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_rawdata::Format;
    use forebay_types::RunId;

    use super::super::{Generated, Input};
    use super::*;

    fn sequence(inputs: &[(u32, u64)], events: Option<u64>) -> Sequence {
        let input = |&(run, events): &(u32, u64)| {
            Input::Generated(Generated { format: Format::Faser, compressed: false, seed: 1, run: RunId(run), events })
        };
        let config = ReadoutConfig { events, ..ReadoutConfig::new("", inputs.iter().map(input).collect()) };
        Sequence::new(&config, Runs::new(BTreeSet::new(), false))
    }

    fn keys(mut sequence: Sequence) -> Vec<(u32, u64)> {
        let next = || sequence.next().expect("free numbers").map(|planned| (planned.key.run.0, planned.key.event.0));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn without_a_number_every_input_is_written_once() {
        assert_eq!(keys(sequence(&[(5, 2), (5, 1), (9, 2)], None)), [(5, 1), (5, 2), (6, 1), (9, 1), (9, 2)]);
    }

    #[test]
    fn with_a_number_the_inputs_share_it() {
        let shared = keys(sequence(&[(5, 2), (6, 10)], Some(7)));
        assert_eq!(shared, [(5, 1), (5, 2), (5, 3), (5, 4), (6, 1), (6, 2), (6, 3)]);
        assert_eq!(keys(sequence(&[(5, 0), (6, 1)], Some(4))), [(6, 1), (6, 2)]);
        assert!(keys(sequence(&[(5, 3)], Some(0))).is_empty());
    }
}
