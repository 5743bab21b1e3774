//! What a start does with files when all that is stored was met: what was appended behind something that a crash took is cut, what a hole hid stays hidden,
//! and sealed files get the sums that they lack.

use forebay_types::ReadOutcome;

use super::Lane;
use crate::api::Token;
use crate::flush::NewRecord;
use crate::lane::State;
use crate::lane::write::{Replay, Waiter};

impl Lane {
    /// Every record was met, and what was torn is durable elsewhere: what must be written so that further starts find the same is written before anything is served.
    pub(in crate::lane) fn settle_files(&mut self) {
        let mut files = std::mem::take(&mut self.files);
        // What is missing of a file that may be among what is out of reach was perhaps acknowledged.
        let mends = files.settle(|file| self.outcome_of_hidden(file.key()) == ReadOutcome::NotFound);
        self.files = files;
        if matches!(self.state, State::Preparing) {
            let replay = |record: forebay_format::FileRecord| Replay {
                record: NewRecord::of(&record.entry()),
                payload: Vec::new(),
                old: None,
                waiter: Waiter::Put(Token::NONE),
                repeated: Vec::new(),
            };
            self.writer.replay.extend(mends.into_iter().map(replay));
            if self.writer.replay.is_empty() {
                self.keep_reserve();
            }
            self.summing.begin_all(self.files.without_sums());
        } else {
            mends.iter().for_each(|mend| self.files.hide(mend, &mut self.segments));
        }
    }
}
