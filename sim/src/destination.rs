//! A directory that recorded files go to: it does what it is asked for, and forgets or turns what was not let go yet when that is to happen.

use std::collections::{BTreeMap, BTreeSet};

use forebay_mover::custody::{Answer, Failure, Step};
use forebay_mover::events::parts::{Part, PartsReader};
use forebay_mover::sidecar::{self, Sidecar};
use forebay_mover::{Name, Sums};
use forebay_types::{EventKey, StreamName};

use crate::random::Random;

/// The directory of all streams.
#[derive(Default)]
pub(crate) struct Destination {
    files: BTreeMap<Name, Vec<u8>>,
    /// What they came to when they were let go: from then on nothing happens to them.
    kept: BTreeSet<Name>,
    rotten: BTreeSet<Name>,
}

impl Destination {
    /// Does a step; `bytes`: what is sent. Whether it told of a file that came back wrong.
    pub(crate) fn does(&mut self, step: &Step, bytes: &[u8]) -> (Answer, bool) {
        match step {
            Step::Ask { name } => {
                let told = self.files.get(name).map(|bytes| Sums::of(bytes).into());
                return (Answer::Told(told), self.rotten.contains(name));
            }
            Step::Send { temporary, .. } => {
                assert!(!self.files.contains_key(temporary), "{temporary} is given twice");
                self.put(temporary.clone(), bytes.to_vec());
                return (Answer::Sent(Sums::of(bytes)), false);
            }
            Step::Rename { to, .. } if self.files.contains_key(to) => return (Answer::Taken, false),
            Step::Rename { from, to } | Step::Replace { from, to } => {
                let Some(bytes) = self.files.remove(from) else {
                    return (Answer::Failed(Failure::Unknown("no such file".to_owned())), false);
                };
                let is_rotten = self.rotten.remove(from);
                assert!(!self.kept.contains(to), "{to} was let go, and another one comes in its place");
                self.put(to.clone(), bytes);
                self.rotten.extend(is_rotten.then(|| to.clone()));
            }
            Step::Remove { name } => {
                assert!(!self.kept.contains(name), "{name} was let go, and is taken away");
                self.remove(name);
            }
            Step::AskTape { .. } | Step::Pull { .. } => unreachable!("nobody waits for tape, or fetches files"),
        }
        (Answer::Done, false)
    }

    fn put(&mut self, name: Name, bytes: Vec<u8>) {
        self.rotten.remove(&name);
        self.files.insert(name, bytes);
    }

    /// Somebody takes a file away, or the destination forgets it.
    pub(crate) fn remove(&mut self, name: &Name) {
        self.rotten.remove(name);
        self.files.remove(name);
    }

    /// Of what is sent a part is there.
    pub(crate) fn send_in_part(&mut self, name: &Name, bytes: &[u8], random: &mut Random) {
        let there = random.below(bytes.len() as u64 + 1) as usize;
        self.put(name.clone(), bytes[..there].to_vec());
    }

    /// A bit of a file turns.
    pub(crate) fn rot(&mut self, name: &Name, random: &mut Random) {
        let Some(bytes) = self.files.get_mut(name).filter(|bytes| !bytes.is_empty()) else { return };
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        self.rotten.insert(name.clone());
    }

    /// The power goes: some of what was not let go yet is not there any more. Whether anything is not.
    pub(crate) fn power_cut(&mut self, random: &mut Random) -> bool {
        let names: Vec<Name> = self.files.keys().filter(|name| !self.kept.contains(*name)).cloned().collect();
        let lost: Vec<Name> = names.into_iter().filter(|_| random.per_mille(400)).collect();
        lost.iter().for_each(|name| self.remove(name));
        !lost.is_empty()
    }

    /// The events of a file which is there, as it was announced, with a sidecar that fits.
    ///
    /// # Panics
    /// When it is not all of that.
    pub(crate) fn announced(&self, name: &Name) -> Vec<(EventKey, Vec<Part>)> {
        let file = |name: &Name| self.files.get(name).unwrap_or_else(|| panic!("{name} is not there")).as_slice();
        let bytes = file(name);
        let sidecar = Sidecar::parse(file(&sidecar::name_of(name).expect("it has room"))).expect("a sidecar");
        assert_eq!((&sidecar.name, sidecar.sums()), (name, Sums::of(bytes)), "{name} is not what its sidecar says");
        let events: Result<Vec<_>, _> = PartsReader::new(bytes).collect();
        let events = events.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(events.is_sorted_by(|(a, _), (b, _)| a < b), "{name} is not in order");
        assert!(
            sidecar.keys().eq(events.iter().map(|(key, _)| *key)),
            "{name} does not hold the events of its sidecar"
        );
        events
    }

    /// Its events are let go: from now on it must stay.
    pub(crate) fn keep(&mut self, name: &Name) {
        self.kept.extend([name.clone(), sidecar::name_of(name).expect("it has room")]);
    }

    /// The files of a stream that anybody who looks takes for complete.
    pub(crate) fn complete_files(&self, stream: &StreamName) -> Vec<Name> {
        let is_complete = |name: &&Name| {
            let has_sidecar = || sidecar::name_of(name).is_ok_and(|sidecar| self.files.contains_key(&sidecar));
            name.directory() == Some(stream.as_str()) && !name.file().starts_with('.') && has_sidecar()
        };
        self.files.keys().filter(is_complete).cloned().collect()
    }
}
