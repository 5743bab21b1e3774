//! One file and one destination.

use forebay_types::Time;

use super::{Answer, DeliveryState, Failure, Kept, Policy, Step, What};
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::sums::{Sums, Told};

mod leaving;

use leaving::{InTheWay, Leaving};

/// What comes next; after a start it follows from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Ask what is under the final name before anything is sent.
    Look,
    /// The same of the name of its sidecar, where another name may be taken still.
    LookBeside,
    /// Take away what an attempt left half.
    Clean,
    Send,
    AskTemporary,
    Rename,
    /// Whether a renaming of which nobody knows may have been done: nothing has the temporary name.
    AskFinal {
        perhaps: bool,
    },
    AskAgain,
    /// Whether it is on tape.
    AskTape,
    /// Whether what is there by the final name was taken away: before that it may not be moved anew under another one.
    AskGone,
    /// Take away what is left over, the newest first.
    Sweep,
    /// Wait, then look again.
    Retry,
    /// Nothing, or nothing until a person says so.
    Rest,
}

impl Phase {
    /// What a delivery goes on with of which no more is known than its state.
    fn after(state: DeliveryState) -> Phase {
        match state {
            DeliveryState::Found => Phase::Look,
            DeliveryState::Sending => Phase::Clean,
            DeliveryState::Arrived => Phase::AskTemporary,
            DeliveryState::Verified => Phase::AskAgain,
            DeliveryState::Waiting => Phase::AskTape,
            DeliveryState::Proven => Phase::Rest,
            DeliveryState::Quarantined => Phase::Retry,
        }
    }
}

/// A file's way to one destination, as a machine.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The destination's address, as it is configured.
    pub destination: String,
    /// What is delivered.
    pub what: What,
    /// Whether the source waits for it.
    pub required: bool,
    /// Whether it is proven only when it is on tape.
    pub(crate) until_tape: bool,
    /// Whether its consignment may take another name where somebody else's file has this one.
    pub(super) may_give_way: bool,
    /// Whether a sidecar is to lie beside it then.
    pub(super) looks_beside: bool,
    /// Whether it is first asked to fetch the file itself.
    pub(crate) pulls: bool,
    kept: Kept,
    phase: Phase,
    due: Time,
    /// When it was proven; nobody knows after a start.
    proven_at: Option<Time>,
    /// How often it was asked in vain whether it is on tape.
    tape_asked: u32,
    /// It is on tape; whether with the right bytes is asked behind that.
    is_on_tape: bool,
    /// Its consignment is released or withdrawn: nothing is left to be done but to sweep.
    is_over: bool,
    /// Its consignment is to be withdrawn, or to take another name, if nothing of ours has its name there any more.
    leaving: Option<Leaving>,
    /// A renaming may have been begun of which nobody knows what became: what has its name there, whatever it is, may be ours.
    perhaps_named: bool,
    /// Somebody else's file has its name: it waits for another one.
    in_the_way: Option<InTheWay>,
    /// In a row, of those that say nothing of the file, and since when.
    failures: u32,
    failing_since: Option<Time>,
}

/// The names that a delivery uses at its destination.
pub(super) struct Names<'a> {
    pub(super) last: &'a Name,
    pub(super) beside: Option<&'a Name>,
    pub(super) temporary: &'a dyn Fn(u32) -> Name,
}

impl Delivery {
    /// A delivery of which nothing was done.
    pub fn new(destination: &str, what: What, required: bool) -> Delivery {
        Delivery::kept(destination, what, required, Kept::default())
    }

    /// Goes on with what the journal kept. Nobody knows what became of a step that was under way: so nothing is done before it was looked at.
    pub fn kept(destination: &str, what: What, required: bool, kept: Kept) -> Delivery {
        let phase = Phase::after(kept.state);
        let is_unnamed = matches!(kept.state, DeliveryState::Found | DeliveryState::Sending) && kept.left.is_empty();
        Delivery {
            perhaps_named: kept.ours || kept.attempts > 0 && !is_unnamed,
            destination: destination.to_owned(),
            what,
            required,
            until_tape: false,
            may_give_way: false,
            looks_beside: false,
            pulls: false,
            kept,
            phase,
            due: Time(0),
            proven_at: None,
            tape_asked: 0,
            is_on_tape: false,
            is_over: false,
            leaving: None,
            in_the_way: None,
            failures: 0,
            failing_since: None,
        }
    }

    /// After a start: a wait that was begun begins anew, since only the clock of the calendar went on meanwhile.
    pub(super) fn start(&mut self, now: Time, policy: &Policy, salt: u64) {
        match self.phase {
            Phase::AskAgain => self.due = now + policy.recheck_after,
            // Nobody waits for tape any more.
            Phase::AskTape if !self.until_tape => (self.phase, self.due) = (Phase::AskAgain, now),
            Phase::Retry if self.kept.strikes >= policy.strikes_max => self.phase = Phase::Rest,
            Phase::Retry => self.due = now + policy.backoff(self.kept.strikes, salt),
            _ => {}
        }
    }

    /// What the journal keeps of it.
    pub fn row(&self) -> &Kept {
        &self.kept
    }

    /// How far it is.
    pub fn state(&self) -> DeliveryState {
        self.kept.state
    }

    /// When the next step is due; none when there is none.
    pub fn due(&self) -> Option<Time> {
        (self.phase != Phase::Rest).then_some(self.due)
    }

    /// Whether nothing of ours is left there under a temporary name.
    pub(super) fn is_swept(&self) -> bool {
        self.kept.partial.is_none() && self.kept.left.is_empty()
    }

    /// Whether no file of ours is known to have its name there.
    pub(super) fn is_nowhere(&self) -> bool {
        matches!(self.kept.state, DeliveryState::Found | DeliveryState::Sending) && !self.kept.ours
    }

    /// Whether nothing was done that cannot be taken back. What is left over came whole once: its renaming may have been begun, and be done late.
    pub(super) fn may_be_withdrawn(&self) -> bool {
        self.is_nowhere() && self.kept.left.is_empty()
    }

    /// Its consignment is given up or over: all that is left to do is to take away what is not needed.
    pub(super) fn only_sweep(&mut self, now: Time) {
        (self.is_over, self.leaving, self.in_the_way) = (true, None, None);
        self.kept.left.extend(self.kept.partial.take());
        (self.phase, self.due) = (Phase::Sweep, now);
        if self.kept.left.is_empty() {
            self.phase = Phase::Rest;
        }
    }

    /// The next step. What the last change said is durable.
    pub(super) fn step(&self, names: &Names) -> Option<Step> {
        let temporary = |attempt| (names.temporary)(attempt);
        let last = || names.last.clone();
        Some(match self.phase {
            Phase::Look | Phase::AskFinal { .. } | Phase::AskAgain | Phase::AskGone | Phase::Retry => {
                Step::Ask { name: last() }
            }
            Phase::LookBeside => Step::Ask { name: names.beside?.clone() },
            Phase::Clean => Step::Remove { name: temporary(self.kept.partial.unwrap_or(self.kept.attempts)) },
            Phase::Send if self.is_pulled() => Step::Pull { temporary: temporary(self.kept.attempts), last: last() },
            Phase::Send => Step::Send { temporary: temporary(self.kept.attempts), last: last() },
            Phase::AskTemporary => Step::Ask { name: temporary(self.kept.attempts) },
            Phase::AskTape => Step::AskTape { name: last() },
            // A file of ours that is wrong.
            Phase::Rename if self.kept.ours => Step::Replace { from: temporary(self.kept.attempts), to: last() },
            Phase::Rename => Step::Rename { from: temporary(self.kept.attempts), to: last() },
            Phase::Sweep => Step::Remove { name: temporary(*self.kept.left.last()?) },
            Phase::Rest => return None,
        })
    }

    /// Whether what is sent is fetched by the destination: the first time. If that comes to nothing, it is sent as ever.
    fn is_pulled(&self) -> bool {
        self.pulls && self.kept.attempts == 1
    }

    /// The step given last is done.
    pub(super) fn answer(&mut self, answer: Answer, content: Option<&Sums>, now: Time, policy: &Policy, salt: u64) {
        let failure = match answer {
            Answer::Failed(failure) => failure,
            answer => {
                // To clean up is no success: what fails is what comes behind it.
                if self.phase != Phase::Clean {
                    (self.failures, self.failing_since) = (0, None);
                    self.kept.words.clear();
                }
                self.due = now;
                match (self.phase, content) {
                    (Phase::Sweep, _) => self.swept(),
                    (_, Some(content)) => self.answered(answer, content, now, policy, salt),
                    (phase, None) => panic!("{phase:?} before the content was checked"),
                }
                return;
            }
        };
        match (self.phase, failure) {
            // It is of no use to anybody, and the source is not held back by it.
            (Phase::Sweep, Failure::Refused(words)) => {
                self.swept();
                self.kept.words = format!("a file that is not needed could not be taken away: {words}");
            }
            (Phase::AskGone, Failure::Refused(words)) => {
                self.kept.words = words;
                self.leaving = None;
                self.phase = Phase::after(self.kept.state);
            }
            // It may be the source's door that refuses.
            (Phase::Send, Failure::Refused(words)) if self.is_pulled() => {
                self.kept.words = format!("it could not fetch the file itself, and gets it sent: {words}");
                (self.phase, self.due) = (Phase::Clean, now);
            }
            (_, Failure::Refused(words)) => self.strike(words, now, policy, salt),
            (phase, Failure::NotNow(words) | Failure::Unknown(words)) => {
                self.failed(now, policy, salt);
                self.kept.words = words;
                if phase == Phase::Rename && planted(Planted::UnknownTakenForDone) {
                    self.kept.partial = None;
                    return self.verified(now, policy);
                }
                self.is_unheard();
            }
        }
    }

    /// Nobody hears what became of the step under way: what is there is looked at before anything else.
    pub(super) fn is_unheard(&mut self) {
        self.phase = match self.phase {
            Phase::Send => Phase::Clean,
            Phase::Rename => {
                self.perhaps_named = true;
                Phase::AskTemporary
            }
            phase => phase,
        };
    }

    fn answered(&mut self, answer: Answer, content: &Sums, now: Time, policy: &Policy, salt: u64) {
        match (self.phase, answer) {
            (Phase::Look | Phase::Retry, Answer::Told(told)) => self.looked(told, content, now, policy, salt),
            (Phase::LookBeside, Answer::Told(told)) => self.looked_beside(told),
            (Phase::Clean, Answer::Done) => {
                self.kept.partial = None;
                self.begin();
            }
            (Phase::Send, Answer::Pulled) => {
                self.kept.state = DeliveryState::Arrived;
                self.phase = Phase::AskTemporary;
            }
            (Phase::Send, Answer::Sent(sums)) if sums == *content => {
                self.kept.state = DeliveryState::Arrived;
                self.phase = Phase::AskTemporary;
            }
            (Phase::Send, Answer::Sent(sums)) => {
                self.strike(
                    format!("the source gave {sums} when it was sent, and {content} when it was checked"),
                    now,
                    policy,
                    salt,
                );
            }
            (Phase::AskTemporary, Answer::Told(None)) => self.phase = Phase::AskFinal { perhaps: true },
            (Phase::AskTemporary, Answer::Told(Some(told))) if told.proves(content) => self.phase = Phase::Rename,
            (Phase::AskTemporary, Answer::Told(Some(told))) => {
                self.kept.left.extend(self.kept.partial.take());
                self.strike(mismatch("before it had its name", content, &told), now, policy, salt);
            }
            (Phase::Rename, Answer::Done) => {
                (self.kept.partial, self.kept.ours) = (None, true);
                self.phase = Phase::AskFinal { perhaps: false };
                if planted(Planted::BelievedUnasked) {
                    self.kept.state = DeliveryState::Proven;
                    self.proven_at = Some(now);
                    self.phase = Phase::Rest;
                }
            }
            (Phase::Rename, Answer::Taken) => self.phase = Phase::AskFinal { perhaps: false },
            (Phase::AskFinal { perhaps }, Answer::Told(told)) => self.asked(perhaps, told, content, now, policy, salt),
            (Phase::AskGone, Answer::Told(told)) => self.asked_gone(told, content),
            (Phase::AskAgain, Answer::Told(told)) => self.asked_again(told, content, now, policy, salt),
            (Phase::AskTape, Answer::OnTape(on_tape)) => self.asked_tape(on_tape, now, policy),
            (Phase::AskTape, Answer::Told(None)) => {
                self.is_missing("when it was asked whether it is on tape", content, now, policy, salt)
            }
            (phase, answer) => panic!("{answer:?} is no answer to what {phase:?} asks for"),
        }
    }

    /// What lies under the final name before anything is sent.
    fn looked(&mut self, told: Option<Told>, content: &Sums, now: Time, policy: &Policy, salt: u64) {
        if self.phase == Phase::Retry {
            // Its renaming may have been begun.
            self.kept.left.extend(self.kept.partial.take());
        }
        match told {
            None => {
                (self.kept.state, self.kept.ours) = (DeliveryState::Found, false);
                if self.looks_beside {
                    self.phase = Phase::LookBeside;
                } else {
                    self.begin_clean();
                }
            }
            Some(told) if planted(Planted::AdoptedBySize) && told.bytes == content.bytes => {
                self.kept.state = DeliveryState::Proven;
                self.proven_at = Some(now);
                self.phase = Phase::Rest;
            }
            Some(told) if told.proves(content) => {
                self.kept.words = format!("it was there already: {told}");
                self.verified(now, policy);
            }
            Some(_) if self.kept.ours => {
                self.kept.state = DeliveryState::Found;
                self.begin_clean();
            }
            Some(told) => self.foreign(&told, content, now, policy, salt),
        }
    }

    fn begin_clean(&mut self) {
        match self.kept.partial {
            Some(_) => self.phase = Phase::Clean,
            None => self.begin(),
        }
    }

    /// A new attempt, under a name that none had before.
    fn begin(&mut self) {
        self.perhaps_named &= !self.kept.left.is_empty();
        self.kept.attempts += 1;
        self.kept.state = DeliveryState::Sending;
        self.kept.partial = Some(self.kept.attempts);
        self.phase = Phase::Send;
    }

    fn asked(&mut self, perhaps: bool, told: Option<Told>, content: &Sums, now: Time, policy: &Policy, salt: u64) {
        match told {
            Some(told) if told.proves(content) => {
                // A name that was taken is another's, with the right content.
                self.kept.ours |= perhaps && self.kept.partial.is_some();
                self.verified(now, policy);
            }
            Some(told) if self.kept.ours => {
                self.strike(mismatch("as soon as it had its name", content, &told), now, policy, salt);
            }
            Some(told) => self.foreign(&told, content, now, policy, salt),
            None => self.strike(format!("it was sent, and is not there; expected {content}"), now, policy, salt),
        }
    }

    fn asked_again(&mut self, told: Option<Told>, content: &Sums, now: Time, policy: &Policy, salt: u64) {
        let waited = policy.recheck_after.as_secs_f64();
        match told {
            Some(told) if told.proves(content) => {
                if self.until_tape && !self.is_on_tape {
                    (self.kept.state, self.phase, self.tape_asked) = (DeliveryState::Waiting, Phase::AskTape, 0);
                } else {
                    (self.kept.state, self.phase) = (DeliveryState::Proven, Phase::Rest);
                    self.proven_at = Some(now);
                }
                self.is_on_tape = false;
            }
            Some(told) if self.kept.ours => {
                self.strike(mismatch(&format!("{waited} s later"), content, &told), now, policy, salt)
            }
            Some(told) => self.foreign(&told, content, now, policy, salt),
            None => self.is_missing(&format!("{waited} s later"), content, now, policy, salt),
        }
    }

    fn is_missing(&mut self, when: &str, content: &Sums, now: Time, policy: &Policy, salt: u64) {
        self.kept.ours = false;
        self.strike(format!("it was there, and is not {when}; expected {content}"), now, policy, salt);
    }

    /// Tape takes as long as it takes: that is no strike, and no failure. What went to tape may have been another file by then: so its sums are asked for once more.
    fn asked_tape(&mut self, on_tape: bool, now: Time, policy: &Policy) {
        if on_tape || planted(Planted::DiskTakenForTape) {
            (self.is_on_tape, self.phase) = (true, Phase::AskAgain);
        } else {
            self.due = now + policy.tape_wait(self.tape_asked);
            self.tape_asked += 1;
            self.kept.words = "it is not on tape yet".to_owned();
        }
    }

    /// It is there, by its name. What is left over goes before that counts: a renaming that was cut off, and is done late after all, finds nothing then.
    fn verified(&mut self, now: Time, policy: &Policy) {
        self.kept.left.extend(self.kept.partial.take());
        if !self.kept.left.is_empty() && !planted(Planted::ProvenAtOneLook) {
            self.kept.state = DeliveryState::Arrived;
            self.phase = Phase::Sweep;
            return;
        }
        self.kept.state = DeliveryState::Verified;
        (self.phase, self.due) = (Phase::AskAgain, now + policy.recheck_after);
        if planted(Planted::AskedAgainAtOnce) {
            self.due = now;
        }
        if planted(Planted::ProvenAtOneLook) {
            self.kept.state = DeliveryState::Proven;
            self.proven_at = Some(now);
            self.phase = Phase::Rest;
        }
    }

    fn swept(&mut self) {
        self.kept.left.pop();
        if self.kept.left.is_empty() {
            self.phase = match (self.is_over, self.leaving.is_some()) {
                (true, _) => Phase::Rest,
                (false, true) => Phase::AskGone,
                (false, false) => Phase::AskFinal { perhaps: false },
            };
        }
    }

    fn foreign(&mut self, told: &Told, content: &Sums, now: Time, policy: &Policy, salt: u64) {
        if planted(Planted::ForeignReplaced) {
            self.kept.ours = true;
            return self.begin_clean();
        }
        let words = format!(
            "another file has its name there, and was left alone: {told}; ours is {content}. Move one of them, then retry"
        );
        if self.may_give_way && !self.kept.ours {
            self.in_the_way = Some(InTheWay { words, is_beside: false });
            self.phase = Phase::Rest;
            return;
        }
        self.strike(words, now, policy, salt);
    }

    /// Something is not as it should be: kept, told, and tried again so often.
    fn strike(&mut self, words: String, now: Time, policy: &Policy, salt: u64) {
        self.kept.strikes += 1;
        self.is_on_tape = false;
        self.kept.state = DeliveryState::Quarantined;
        self.kept.words = words;
        let over = self.kept.strikes >= policy.strikes_max;
        self.phase = if over { Phase::Rest } else { Phase::Retry };
        self.due = now + policy.backoff(self.kept.strikes, salt);
    }

    /// Whether it was proven not too long ago.
    pub(super) fn is_fresh(&self, now: Time, policy: &Policy) -> bool {
        let fresh = |at| now.since(at) <= policy.proof_lasts;
        self.kept.state == DeliveryState::Proven
            && (self.proven_at.is_some_and(fresh) || planted(Planted::ProofForEver))
    }

    /// It was proven too long ago: asked once more, so that a destination that dropped the file since is not believed. Whether it was.
    pub(super) fn ask_once_more(&mut self, now: Time, policy: &Policy) -> bool {
        if self.kept.state != DeliveryState::Proven || self.is_fresh(now, policy) {
            return false;
        }
        self.kept.state = DeliveryState::Verified;
        (self.phase, self.due, self.is_on_tape) = (Phase::AskAgain, now, false);
        true
    }

    /// A person says that it shall be tried again.
    pub(super) fn retry(&mut self, now: Time) {
        if self.leaving.take().is_some() || self.in_the_way.take().is_some() {
            (self.phase, self.due) = (Phase::after(self.kept.state), now);
        }
        if self.kept.state == DeliveryState::Quarantined {
            self.kept.strikes = 0;
            (self.phase, self.due) = (Phase::Retry, now);
        }
    }

    /// The source could not be read: the step again, later.
    pub(super) fn source_failed(&mut self, words: String, now: Time, policy: &Policy, salt: u64) {
        self.failed(now, policy, salt);
        self.kept.words = words;
        self.phase = Phase::Clean;
    }

    fn failed(&mut self, now: Time, policy: &Policy, salt: u64) {
        self.failures += 1;
        self.failing_since.get_or_insert(now);
        self.due = now + policy.backoff(self.failures, salt);
    }

    /// Since when every step failed for a reason that may pass.
    pub fn failing_since(&self) -> Option<Time> {
        self.failing_since
    }
}

fn mismatch(when: &str, content: &Sums, told: &Told) -> String {
    format!("{when} the destination holds {told}; expected {content}")
}
