//! Opening and closing: to the server the mount has a file open once, for reading or for writing.

use forebay_client::files::{WriteBehind, WriteConfig};
use forebay_protocol::Opener;
use forebay_types::{FileNumber, FileOutcome};
use fuser::Errno;

use super::{FILE_BYTES_MAX, Opening, Step, Writer, end_piece, outcome_of};
use crate::attributes::info_of;
use crate::machine::Machine;
use crate::{errors, requests};

impl Machine {
    pub(super) fn step_open(&mut self, number: FileNumber, opening: Opening) {
        let write = opening.write;
        let file = self.files.get_mut(&number).expect("a step is of a file");
        // Counted at once, so that the file is kept.
        *file.handles(write) += 1;
        let is_open = file.opener.is_some_and(|(_, for_writing)| for_writing || !write);
        let mut asked = vec![requests::stat(number)];
        let opener = if is_open { None } else { Some(self.new_opener()) };
        if let Some(opener) = opener {
            asked.insert(0, requests::open(number, opener, write));
        }
        self.ask_for_step(number, asked, move |machine, mut answers| {
            let info = answers.pop().expect("it was asked").and_then(info_of);
            let opened = match (opener, answers.pop()) {
                (Some(_), Some(answer)) => answer.map(outcome_of),
                _ => Ok(FileOutcome::Done),
            };
            let file = machine.files.get_mut(&number).expect("a handle has it");
            let result = match opened {
                Ok(outcome) if write && errors::may_change(outcome) => {
                    file.writers -= 1;
                    return machine.open_again(number, opening, outcome);
                }
                // What cannot be opened for now is read all the same.
                Ok(outcome) if !write && outcome != FileOutcome::Removed => info,
                Ok(outcome) => errors::of_file(outcome).and(info),
                Err(error) => Err(error),
            };
            match &result {
                Ok(info) => {
                    if let Some(opener) = opener {
                        machine.is_open(number, opener, write);
                    }
                    let file = machine.files.get_mut(&number).expect("a handle has it");
                    file.store_says_length(info.length);
                    if write {
                        machine.to_seal.remove(&number);
                    }
                }
                Err(_) => {
                    *file.handles(write) -= 1;
                    // Who is refused has nothing open any more, and had so before; who got no answer may have.
                    let again = match (opener, file.opener) {
                        (Some(_), Some((before, for_writing))) => Some(requests::open(number, before, for_writing)),
                        (Some(opener), None) => Some(requests::close(number, opener)),
                        (None, _) => None,
                    };
                    let lane = file.lane;
                    if let Some(request) = again {
                        machine.ask(lane, request, |_, _| ());
                    }
                }
            }
            (opening.then)(machine, result);
        });
    }

    fn open_again(&mut self, number: FileNumber, opening: Opening, outcome: FileOutcome) {
        match self.again_after(opening.since, opening.refusals) {
            Some(wait) => self.later(wait, move |machine| {
                machine.push_step(number, Step::Open(Opening { refusals: opening.refusals + 1, ..opening }));
            }),
            None => (opening.then)(self, errors::of_file(outcome).and(Err(Errno::EIO))),
        }
    }

    /// The server has it open so; an earlier opening ended with that.
    pub(super) fn is_open(&mut self, number: FileNumber, opener: Opener, write: bool) {
        let config = self.write_config(number, opener);
        let writer_number = self.take_number();
        let file = self.files.get_mut(&number).expect("a handle has it");
        file.opener = Some((opener, write));
        if write {
            file.writer = Some(Writer {
                machine: WriteBehind::new(config, self.written.clone()),
                number: writer_number,
                asked: 0,
                due: None,
            });
        }
    }

    fn write_config(&self, file: FileNumber, opener: Opener) -> WriteConfig {
        WriteConfig {
            file,
            opener,
            append: false,
            piece_bytes_max: self.config.piece_bytes_max,
            unanswered_bytes_max: FILE_BYTES_MAX,
            patience: Some(self.config.patience),
            seed: opener.client ^ u64::from(opener.opening),
        }
    }

    /// Whether the next step may be taken.
    pub(super) fn step_release(&mut self, number: FileNumber, write: bool) -> bool {
        let file = self.files.get_mut(&number).expect("a step is of a file");
        let is_last_writer = write && file.writers == 1;
        if is_last_writer && !file.is_idle() {
            end_piece(file);
            file.steps.push_front(Step::Release { write });
            return false;
        }
        if is_last_writer && let (Some(unix_ns), Some(_)) = (file.written_unix_ns, file.opener) {
            // A program that was killed closes without asking what became of its bytes.
            file.steps.push_front(Step::Release { write });
            let since = self.now;
            self.step_set_written(number, unix_ns, since, Box::new(|_, _| ()));
            return false;
        }
        *file.handles(write) -= 1;
        if is_last_writer {
            if let Some(failure) = file.failure.take() {
                tracing::warn!(
                    file = number.0,
                    "bytes of a file could not be written after the program that wrote them had closed it (error {}): they are lost, what was \
                     synchronised is safe. Write the file again",
                    failure.code()
                );
            }
            file.writer = None;
            self.seal_later(number);
        }
        self.tell_closed(number);
        true
    }

    /// The kernel asks for nothing any more: every handle is closed.
    pub(crate) fn close_all(&mut self) {
        let numbers: Vec<FileNumber> = self.files.keys().copied().collect();
        for number in numbers {
            for write in [true, false] {
                let count = self.files.get(&number).map_or(0, |file| file.handles_without_release(write));
                for _ in 0..count {
                    self.push_step(number, Step::Release { write });
                }
            }
        }
    }

    /// Tells the server that nobody has the file open any more, or nobody for writing.
    fn tell_closed(&mut self, number: FileNumber) {
        let file = self.files.get_mut(&number).expect("a step is of a file");
        let Some((opener, for_writing)) = file.opener else { return };
        let opener = file.opener_for_writing().unwrap_or(opener);
        let lane = file.lane;
        if file.readers == 0 && file.writers == 0 {
            file.opener = None;
            self.ask(lane, requests::close(number, opener), |_, _| ());
        } else if for_writing && file.writers == 0 {
            // Under another number it is another opening, and the one for writing ends.
            let opener = self.new_opener();
            self.files.get_mut(&number).expect("looked at above").opener = Some((opener, false));
            self.ask(lane, requests::open(number, opener, false), |_, _| ());
        }
    }

    /// Tells the server again what is open: it may have been started anew, or have lost sight of this client.
    pub(crate) fn tell_open(&mut self) {
        let open: Vec<_> = self
            .files
            .iter()
            .filter_map(|(number, file)| {
                let (opener, write) = file.opener?;
                Some((*number, file.lane, file.opener_for_writing().unwrap_or(opener), write))
            })
            .collect();
        for file in self.files.values_mut() {
            file.writer.iter_mut().for_each(|writer| writer.machine.server_was_away());
        }
        for (number, lane, opener, write) in open {
            self.ask(lane, requests::open(number, opener, write), |_, _| ());
        }
    }
}
