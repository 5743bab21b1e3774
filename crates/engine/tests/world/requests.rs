//! What is asked of the lane, and what must be true in the end.

use super::*;

impl World {
    pub(super) fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    pub(super) fn some_key(&mut self) -> EventKey {
        // Few events near the front of the numbers: collisions are what is wanted.
        let newest = self.model.newest_event;
        let event = newest.saturating_sub(self.random.below(40)) + self.random.below(4);
        self.model.newest_event = newest.max(event);
        EventKey::new(1, event)
    }

    pub(super) fn put(&mut self) {
        let key = self.some_key();
        let id = key.fragment(SourceId(self.random.below(3) as u32));
        let bytes = match self.random.below(10) {
            0 => 0,
            1 => self.geometry.fragment_bytes_max as u64,
            2..5 => self.random.below(300),
            _ => self.random.below(12_000),
        };
        let other = self.random.chance(3);
        let payload = payload(id, self.model.size_of(id, bytes as usize), other);
        self.put_bytes(id, &payload);
    }

    pub(super) fn put_bytes(&mut self, id: FragmentId, payload: &[u8]) -> bool {
        let token = self.token();
        let put = Put { id, expected: 3, crc: crc32c(payload) };
        self.totals.puts += 1;
        match self.lane().put(token, &put, payload) {
            Admission::Busy => false,
            Admission::Pending => {
                self.model.put_pending(token, id, payload);
                true
            }
            Admission::Done(outcome) => self.model.put_done(id, payload, outcome, &mut self.totals),
        }
    }

    /// Puts until there is no space.
    pub(super) fn fill(&mut self) {
        if !self.random.chance(20) {
            return;
        }
        for _ in 0..3000 {
            let key = EventKey::new(1, self.model.newest_event + 1);
            self.model.newest_event += 1;
            let id = key.fragment(SourceId(0));
            let payload = payload(id, 40_000, false);
            let before = self.totals.puts_refused;
            self.put_bytes(id, &payload);
            self.turn();
            if self.totals.puts_refused > before {
                self.totals.fills += 1;
                break;
            }
        }
        if self.random.chance(50) {
            // It stays full for a while.
            self.totals.decisions_in_full += 1;
            return;
        }
        // A full store can be emptied.
        let keys: Vec<EventKey> = self.model.undecided();
        for key in keys {
            let token = self.token();
            for _ in 0..200 {
                match self.lane().delete(token, key) {
                    Admission::Busy => self.turn(),
                    Admission::Pending => {
                        self.model.decision_pending(token, key, Decided::Gone);
                        self.turn();
                        break;
                    }
                    Admission::Done(outcome) => {
                        self.model.decision_done(key, Decided::Gone, outcome);
                        break;
                    }
                }
            }
        }
    }

    pub(super) fn decide(&mut self) {
        let key = self.some_key();
        let accept = self.random.chance(40);
        let verdict = if accept { Verdict::Accept(self.streams()) } else { Verdict::Reject };
        let token = self.token();
        let decided =
            if let Verdict::Accept(streams) = &verdict { Decided::Accepted(streams.clone()) } else { Decided::Gone };
        match self.lane().decide(token, key, &verdict, false) {
            Admission::Busy => {}
            Admission::Pending => self.model.decision_pending(token, key, decided),
            Admission::Done(outcome) => self.model.decision_done(key, decided, outcome),
        }
    }

    fn streams(&mut self) -> Vec<StreamName> {
        let names = ["physics", "calibration", "express"];
        let first = self.random.below(3) as usize;
        let mut streams: Vec<StreamName> = vec![names[first].parse().expect("a stream")];
        if self.random.chance(40) {
            streams.push(names[(first + 1) % 3].parse().expect("a stream"));
        }
        streams
    }

    pub(super) fn release(&mut self) {
        let Some((key, stream)) = self.model.some_accepted(self.random.next()) else { return };
        let token = self.token();
        match self.lane().release(token, key, &stream) {
            Admission::Busy => {}
            Admission::Pending => self.model.decision_pending(token, key, Decided::Released(stream)),
            Admission::Done(outcome) => self.model.decision_done(key, Decided::Released(stream), outcome),
        }
    }

    pub(super) fn delete(&mut self) {
        let key = self.some_key();
        let token = self.token();
        match self.lane().delete(token, key) {
            Admission::Busy => {}
            Admission::Pending => self.model.decision_pending(token, key, Decided::Gone),
            Admission::Done(outcome) => self.model.decision_done(key, Decided::Gone, outcome),
        }
    }

    pub(super) fn get(&mut self) {
        let id = self.some_key().fragment(SourceId(self.random.below(3) as u32));
        self.get_one(id);
        self.get_whole(id.key());
    }

    fn get_one(&mut self, id: FragmentId) {
        self.totals.reads += 1;
        let token = self.token();
        let mut payload = Vec::new();
        match self.lane().get(token, id, &mut payload) {
            Fetch::Done(outcome, _) => self.model.check_read(id, outcome, &payload),
            Fetch::Pending { .. } => self.model.read_pending(token, id),
        }
    }

    /// Reads an event at once, if it lies in one record.
    fn get_whole(&mut self, key: EventKey) {
        let token = self.token();
        if !self.lane().event(key).is_some_and(|view| matches!(view.fragments, EventFragments::Whole { .. })) {
            return;
        }
        self.totals.wholes += 1;
        let mut payload = Vec::new();
        match self.lane().get_whole(token, key, &mut payload) {
            FetchEvent::Done(outcome, fragments) => self.model.check_event(key, outcome, &fragments, &payload),
            FetchEvent::Pending { .. } => self.model.read_event_pending(token, key),
        }
    }

    pub(super) fn lease(&mut self) {
        let mut events: Vec<LeasedEvent> = Vec::new();
        let now = self.now;
        self.lane().lease(3, Duration::from_micros(200), None, &mut events);
        for event in events {
            self.model.leased(event.key, now);
        }
    }

    pub(super) fn read_everything(&mut self) {
        for id in self.model.everything_put() {
            self.get_one(id);
            self.get_whole(id.key());
            for _ in 0..3 {
                self.turn();
            }
        }
        self.settle();
        self.model.assert_all_read();
        let accepted = self.model.accepted_events();
        for (stream, events) in accepted {
            let page = self.lane().accepted(&stream, None, usize::MAX);
            let listed: Vec<EventKey> = page.events.iter().map(|e| e.key).collect();
            assert_eq!(listed, events, "accepted events of {stream}");
        }
    }

    /// All events are deleted: all of the space comes back.
    pub(super) fn empty_the_store(&mut self) {
        let keys = self.model.unfinished();
        for key in keys {
            let mut turns = 0;
            while let Admission::Busy = self.lane().delete(Token::NONE, key) {
                self.turn();
                turns += 1;
                assert!(turns < 10_000, "a deletion is never taken: {:?}", self.lane().status());
            }
            self.turn();
        }
        self.settle();
        self.stop();
        self.settle();
        let status = self.lane().status();
        assert_eq!((status.events, status.fragments, status.segments), (0, 0, 0), "{status:?}");
        assert_eq!(status.slots_free, status.slots_total, "all space is back: {status:?}");
    }
}
