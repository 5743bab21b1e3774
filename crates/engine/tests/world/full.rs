//! A lane that is filled, and what is asked of it then.

use forebay_engine::Admission;
use forebay_types::DecideOutcome;

use super::*;

impl World {
    /// Puts events of one fragment until there is no space.
    pub fn fill_up(&mut self) {
        let before = self.totals.puts_refused;
        let mut turns = 0;
        while self.totals.puts_refused == before {
            let bytes = if self.random.chance(70) { 40_000 } else { 2_000 };
            self.put_event(bytes);
            self.turn();
            turns += 1;
            assert!(turns < 20_000, "it is never full: {:?}", self.lane().status());
        }
        self.wait();
    }

    /// Puts fragments of so many bytes until one is refused.
    pub fn fill_up_with(&mut self, bytes: usize) {
        let before = self.totals.puts_refused;
        while self.totals.puts_refused == before {
            self.put_event(bytes);
            self.turn();
        }
        self.wait();
    }

    /// Puts small fragments one after the other, each durable before the next one comes, until one is refused.
    pub fn fill_up_slowly(&mut self) {
        let before = self.totals.puts_refused;
        while self.totals.puts_refused == before {
            self.put_event(200);
            (0..8).for_each(|_| self.turn());
        }
        self.wait();
    }

    /// Lets so much time pass that everything is looked at some times.
    pub fn rest(&mut self) {
        for _ in 0..15 {
            self.wait();
            self.now = self.now + Duration::from_millis(200);
        }
    }

    fn put_event(&mut self, bytes: usize) {
        self.model.newest_event += 1;
        let id = EventKey::new(1, self.model.newest_event).fragment(SourceId(0));
        let payload = payload(id, bytes, false);
        self.put_bytes(id, &payload);
    }

    pub fn put_few(&mut self, count: usize) {
        for _ in 0..count {
            self.put_event(3_000);
            self.turn();
        }
    }

    pub fn wait(&mut self) {
        for _ in 0..300 {
            self.turn();
        }
    }

    /// Ends the oldest events: enough for a segment or more.
    pub fn free_a_little(&mut self) {
        let ended = self.random.below(12) as usize;
        for key in self.model.unfinished().into_iter().take(ended) {
            self.delete_now(key);
        }
        let turns = self.random.below(100);
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Puts until there is no space, and waits for nothing.
    pub fn put_until_refused(&mut self) {
        let before = self.totals.puts_refused;
        for _ in 0..self.random.below(400) {
            if self.totals.puts_refused > before + 2 {
                return;
            }
            let bytes = if self.random.chance(50) { 40_000 } else { 1_000 };
            self.put_event(bytes);
            if self.random.chance(30) {
                self.turn();
            }
        }
    }

    pub fn crash_and_start(&mut self) {
        self.crash();
        let again = self.random.chance(50);
        self.start(again);
    }

    pub fn lose_one(&mut self) {
        self.lose_a_drive();
        let turns = self.random.below(200);
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Asks until the lane takes it; what it must not say is that there is no space.
    fn decide_now(&mut self, key: EventKey, decided: Decided) {
        let token = self.token();
        for _ in 0..20_000 {
            let lane = self.lane();
            let admission = match &decided {
                Decided::Accepted(streams) => lane.decide(token, key, &Verdict::Accept(streams.clone()), false),
                Decided::Released(stream) => lane.release(token, key, stream),
                Decided::Gone if key.event.0.is_multiple_of(2) => lane.delete(token, key),
                Decided::Gone => lane.decide(token, key, &Verdict::Reject, false),
            };
            match admission {
                Admission::Busy => self.turn(),
                Admission::Pending => return self.model.decision_pending(token, key, decided),
                Admission::Done(DecideOutcome::NotFound) if !self.model.is_durable(key) => return,
                Admission::Done(outcome) => return self.model.decision_done(key, decided, outcome),
            }
        }
        panic!("{decided:?} on {key} is never taken: {:?}", self.lane().status());
    }

    fn delete_now(&mut self, key: EventKey) {
        for _ in 0..20_000 {
            match self.lane().delete(Token::NONE, key) {
                Admission::Busy => self.turn(),
                Admission::Pending => return self.model.deleted(key),
                Admission::Done(outcome) => {
                    let never_there = outcome == DecideOutcome::NotFound && !self.model.is_durable(key);
                    assert!(outcome.is_done() || never_there, "{key}: {outcome:?}");
                    return self.model.deleted(key);
                }
            }
        }
        panic!("a deletion of {key} is never taken: {:?}", self.lane().status());
    }

    fn two_streams() -> Vec<StreamName> {
        ["physics", "express"].map(|name| name.parse().expect("a stream")).to_vec()
    }

    pub fn accept_many(&mut self) {
        for key in self.model.undecided() {
            if self.random.chance(70) {
                self.decide_now(key, Decided::Accepted(Self::two_streams()));
            }
        }
        let turns = self.random.below(300);
        for _ in 0..turns {
            self.turn();
        }
    }

    pub fn accept_one(&mut self) {
        let keys = self.model.undecided();
        if let Some(key) = keys.first() {
            self.decide_now(*key, Decided::Accepted(Self::two_streams()));
        }
        self.wait_a_little();
    }

    pub fn release_one(&mut self) {
        if let Some((key, stream)) = self.model.some_accepted(self.random.next()) {
            self.decide_now(key, Decided::Released(stream));
        }
        self.wait_a_little();
    }

    fn wait_a_little(&mut self) {
        let turns = self.random.below(60);
        for _ in 0..turns {
            self.turn();
        }
    }

    /// One of the two streams releases about half of the events.
    pub fn release_half(&mut self) {
        let stream = Self::two_streams()[self.random.below(2) as usize].clone();
        for key in self.model.accepted() {
            if self.random.chance(50) {
                self.decide_now(key, Decided::Released(stream.clone()));
            }
        }
        let turns = self.random.below(300);
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Every accepted event is released by both streams, every other one rejected or deleted: all space comes back.
    pub fn decide_everything(&mut self) {
        for key in self.model.accepted() {
            for stream in Self::two_streams() {
                self.decide_now(key, Decided::Released(stream));
            }
        }
        for key in self.model.undecided() {
            self.decide_now(key, Decided::Gone);
        }
        self.settle();
        // Decisions that nobody was told of before a crash may stand against these.
        for key in self.model.unfinished() {
            self.delete_now(key);
        }
        self.settle();
        let status = self.lane().status();
        let left = (status.events, status.fragments);
        assert_eq!(left, (0, 0), "everything is decided: {status:?}");
    }

    pub fn finish(&mut self) {
        self.settle();
        self.read_everything();
        self.empty_the_store();
    }
}
