//! From requests to answers, one change at a time: lanes learn first what takes something away from clients, then the change is kept, then lanes learn the rest.
//!
//! So what was answered holds in every lane: no lane takes a fragment of a run whose closing was answered, or frees something of one whose hold was. What takes nothing
//! away (the end of a hold) lanes learn when it is durable, and not before: a crash must not leave a hold that something went by.

use std::collections::{BTreeSet, VecDeque};

use forebay_types::{RunCounts, RunId, RunRecord, RunRequest, RunRule, StreamRequest, StreamVersion};

use crate::books::{Books, First};
use crate::record::Kept;
use crate::refusal::Refusal;

/// Refusals that are remembered, so that a copy of what was refused is not done later.
const REFUSED_MAX: usize = 1024;

/// Something that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Of a run.
    Run(RunRequest),
    /// Of a stream.
    Stream(StreamRequest),
}

impl Asked {
    fn token(&self) -> u64 {
        match self {
            Asked::Run(request) => request.token,
            Asked::Stream(request) => request.token,
        }
    }
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done: the run as it is now.
    Run(Box<RunRecord>),
    /// Done: the newest version.
    Stream(Box<StreamVersion>),
    /// Not done.
    Refused(Refusal),
}

/// What is to be done next, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Every lane goes by this rule from now on. When nothing of the run that the rule forbids is on its way there any more it says what it knows of the run
    /// ([`Registry::lane_goes_by`]).
    Tell {
        /// Which telling this is.
        serial: u64,
        /// The run.
        run: RunId,
        /// The rule.
        rule: RunRule,
    },
    /// This is to be kept; [`Registry::is_kept_at`] wants to know where.
    Keep(Kept),
    /// This is the answer to these requests.
    Answer {
        /// The numbers under which they were asked.
        requests: Vec<u64>,
        /// The answer.
        answer: Answer,
    },
}

/// A change under way.
struct Op {
    asked: Asked,
    requests: Vec<u64>,
    at_unix_ns: i64,
    /// By which rule the lanes go for it.
    told: Option<RunRule>,
}

enum Stage {
    /// Lanes go by a rule first; these have not said so.
    Asking { serial: u64, lanes: BTreeSet<u16>, counts: RunCounts },
    /// It is kept, and counts when that is durable; where, as soon as it is known.
    Keeping { position: Option<u64> },
    /// It is durable; these lanes do not go by it yet.
    Telling { serial: u64, lanes: BTreeSet<u16> },
}

/// The books, with what is asked of them.
pub struct Registry {
    books: Books,
    lanes: u16,
    queue: VecDeque<Op>,
    current: Option<(Op, Stage)>,
    serial: u64,
    actions: VecDeque<Action>,
    refused: VecDeque<(u64, Refusal)>,
    /// Up to where what is kept must be durable before the books may be told.
    stable_at: u64,
}

impl Registry {
    /// For a store of so many lanes.
    pub fn new(books: Books, lanes: u16) -> Registry {
        Registry {
            books,
            lanes,
            queue: VecDeque::new(),
            current: None,
            serial: 0,
            actions: VecDeque::new(),
            refused: VecDeque::new(),
            stable_at: 0,
        }
    }

    /// What is known; it may be told when what is kept is durable up to [`Registry::stable_at`].
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// A position as that of [`Registry::is_kept_at`].
    pub fn stable_at(&self) -> u64 {
        match &self.current {
            // Where that will be is not known yet.
            Some((_, Stage::Keeping { position: None })) => u64::MAX,
            _ => self.stable_at,
        }
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Something is asked, under a number that no other request has.
    pub fn ask(&mut self, request: u64, asked: Asked, now_unix_ns: i64) {
        let waiting = self.current.as_mut().map(|(op, _)| op).into_iter().chain(&mut self.queue);
        // A client that lost its connection asks again.
        for op in waiting {
            if op.asked == asked {
                return op.requests.push(request);
            }
        }
        self.queue.push_back(Op { asked, requests: vec![request], at_unix_ns: now_unix_ns, told: None });
        self.go_on();
    }

    /// A lane goes by a rule, and knows so much of its run.
    pub fn lane_goes_by(&mut self, lane: u16, serial: u64, counts: RunCounts) {
        let Some((_, stage)) = &mut self.current else { return };
        let (Stage::Asking { serial: asked, lanes, .. } | Stage::Telling { serial: asked, lanes }) = stage else {
            return;
        };
        if *asked != serial || !lanes.remove(&lane) {
            return;
        }
        let is_last = lanes.is_empty();
        if let Stage::Asking { counts: sum, .. } = stage {
            *sum = sum.and(counts);
        }
        if is_last && let Some((op, stage)) = self.current.take() {
            match stage {
                Stage::Asking { counts, .. } => self.apply(op, counts),
                _ => self.is_done(op),
            }
        }
        self.go_on();
    }

    /// What was last to be kept stands there.
    pub fn is_kept_at(&mut self, at: u64) {
        if let Some((_, Stage::Keeping { position: position @ None })) = &mut self.current {
            *position = Some(at);
            self.stable_at = at;
        }
    }

    /// What is kept is durable up to there.
    pub fn is_durable(&mut self, durable: u64) {
        let is_over = matches!(&self.current, Some((_, Stage::Keeping { position: Some(at) })) if *at <= durable);
        if is_over && let Some((op, _)) = self.current.take() {
            self.is_kept(op);
            self.go_on();
        }
    }

    fn tell(&mut self, run: RunId, rule: RunRule) -> u64 {
        self.serial += 1;
        self.actions.push_back(Action::Tell { serial: self.serial, run, rule });
        self.serial
    }

    fn answer(&mut self, requests: Vec<u64>, answer: Answer) {
        self.actions.push_back(Action::Answer { requests, answer });
    }

    /// Begins what waits, as long as nothing else is under way.
    fn go_on(&mut self) {
        while self.current.is_none()
            && let Some(mut op) = self.queue.pop_front()
        {
            if let Some((_, refusal)) = self.refused.iter().find(|(token, _)| *token == op.asked.token()) {
                let refusal = refusal.clone();
                self.answer(op.requests, Answer::Refused(refusal));
                continue;
            }
            let first = match &op.asked {
                Asked::Run(request) => self.books.check(request),
                Asked::Stream(request) if self.books.defined_by(request).is_some() => Ok(First::Done),
                Asked::Stream(_) => Ok(First::Nothing),
            };
            match (first, &op.asked) {
                (Err(refusal), _) => self.refuse(op, refusal),
                (Ok(First::Done), _) => self.is_done(op),
                (Ok(First::Rule(rule)), Asked::Run(request)) => {
                    let serial = self.tell(request.run, rule.clone());
                    op.told = Some(rule);
                    let lanes = (0..self.lanes).collect();
                    self.current = Some((op, Stage::Asking { serial, lanes, counts: RunCounts::default() }));
                }
                (Ok(_), _) => self.apply(op, RunCounts::default()),
            }
        }
    }

    fn apply(&mut self, op: Op, counts: RunCounts) {
        let kept = match &op.asked {
            Asked::Run(request) => self.books.apply(request, counts, op.at_unix_ns),
            Asked::Stream(request) => self.books.define(request, op.at_unix_ns),
        };
        match kept {
            Ok(kept) => {
                self.actions.push_back(Action::Keep(kept));
                self.current = Some((op, Stage::Keeping { position: None }));
            }
            Err(refusal) => {
                if let (Some(_), Asked::Run(request)) = (&op.told, &op.asked) {
                    // They go on as before.
                    let (run, rule) = (request.run, self.books.rule(request.run));
                    self.tell(run, rule);
                }
                self.refuse(op, refusal);
            }
        }
    }

    fn refuse(&mut self, op: Op, refusal: Refusal) {
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back((op.asked.token(), refusal.clone()));
        self.answer(op.requests, Answer::Refused(refusal));
    }

    /// What was kept is durable.
    fn is_kept(&mut self, op: Op) {
        let Asked::Run(request) = &op.asked else { return self.is_done(op) };
        let (run, rule) = (request.run, self.books.rule(request.run));
        let is_new = match &op.told {
            Some(told) => *told != rule,
            // A start, a stop, the end of a hold.
            None => !rule.is_empty() || matches!(request.what, forebay_types::RunChange::EndHold),
        };
        if !is_new {
            return self.is_done(op);
        }
        let serial = self.tell(run, rule);
        if op.told.is_some() {
            // Lanes go by something stricter, or by the same, until they hear of it.
            return self.is_done(op);
        }
        self.current = Some((op, Stage::Telling { serial, lanes: (0..self.lanes).collect() }));
    }

    fn is_done(&mut self, op: Op) {
        let answer = match &op.asked {
            Asked::Run(request) => {
                let run = self.books.run(request.run).expect("what was done is in the books");
                Answer::Run(Box::new(run.clone()))
            }
            Asked::Stream(request) => {
                let version = self.books.defined_by(request).expect("what was done is in the books");
                Answer::Stream(Box::new(version.clone()))
            }
        };
        self.answer(op.requests, answer);
    }
}
