//! Drives that do not answer.

use super::*;

impl World {
    /// The drives take operations and never answer.
    pub fn silence(&mut self, drives: &[u16], dead: bool) {
        for number in drives {
            self.drives.hold(DriveNumber(*number));
            if dead {
                self.lost.push(DriveNumber(*number));
            }
        }
    }

    /// They answer again.
    pub fn end_silence(&mut self, drives: &[u16]) {
        drives.iter().for_each(|number| self.drives.release(DriveNumber(*number)));
    }

    /// Puts a fragment that is new.
    pub fn put_new(&mut self) {
        self.model.newest_event += 1;
        let id = EventKey::new(1, self.model.newest_event).fragment(SourceId(0));
        let payload = payload(id, 5_000, false);
        for _ in 0..200 {
            if self.put_bytes(id, &payload) {
                return;
            }
            self.turn();
        }
        panic!("{id} is not taken: {:?}", self.lane().status());
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        let step = Duration::from_millis(5);
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + step;
            self.turn();
        }
    }

    /// The machine sleeps: time passes and nothing is done.
    pub fn stand_still(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turn();
    }

    pub fn puts_durable(&self) -> u64 {
        self.totals.puts_durable
    }

    pub fn members(&self) -> usize {
        self.infos.iter().filter(|info| info.member).count()
    }

    /// No drive has a checkpoint any more.
    pub fn corrupt_checkpoints(&mut self) {
        for info in &self.infos {
            for place in 0..2 {
                let start = self.geometry.layout(info.slots).checkpoint_offset(0, place);
                self.drives.corrupt(info.number, start..start + 4096, 1);
            }
        }
    }

    /// From the next start on.
    pub fn allow_less_parity(&mut self) {
        self.shape.parity_min = 0;
    }

    /// The lane may say that it cannot go on.
    pub fn expect_failure(&mut self) {
        self.may_fail = true;
    }

    /// What the lane said when it stopped.
    pub fn stopped_whole(&self) -> Option<bool> {
        self.stopped_whole
    }

    /// A drive fails for good: everything that it is asked.
    pub fn kill_drive(&mut self, drive: u16) {
        self.lost.push(DriveNumber(drive));
        self.drives.fail_drive(DriveNumber(drive));
    }

    /// A drive takes writes and fails every read; `taken_out`: the lane may take it out.
    pub fn make_unreadable(&mut self, drive: u16, taken_out: bool) {
        self.unreadable.push(DriveNumber(drive));
        if taken_out {
            self.lost.push(DriveNumber(drive));
        }
    }

    /// Its reads are answered again.
    pub fn make_readable(&mut self) {
        self.unreadable.clear();
    }

    /// Reads a fragment and says what that came to.
    pub fn read(&mut self, event: u64) -> ReadOutcome {
        let id = EventKey::new(1, event).fragment(SourceId(0));
        let token = self.token();
        let mut payload = Vec::new();
        if let Fetch::Done(outcome, _) = self.lane().get(token, id, &mut payload) {
            return outcome;
        }
        self.model.watch_read(token);
        for _ in 0..1000 {
            self.turn();
            if let Some(outcome) = self.model.watched_read() {
                return outcome;
            }
        }
        panic!("a read is never answered: {:?}", self.lane().status());
    }
}
