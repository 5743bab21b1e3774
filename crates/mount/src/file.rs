//! Files that somebody has open through the mount: what is asked of one is done in the order in which it comes.
//!
//! To the server the mount has a file open once, for reading or for writing, however many handles there are. Writes are taken at once and sent behind; whatever needs
//! to know what became of them ([`Step::Settle`]) waits until all are answered.

mod opening;

use std::collections::VecDeque;

use bytes::Bytes;
use forebay_client::files::{WriteBehind, WriteFailure};
use forebay_client::{Answer, SessionError};
use forebay_protocol::{Changer, FileInfo, Opener};
use forebay_types::{FileNumber, FileOutcome, Time};
use fuser::Errno;

use crate::attributes::{info_of, unexpected};
use crate::errors;
use crate::machine::{Machine, Reply};
use crate::requests;

/// Bytes of one file that were taken and are not answered, but for a piece that fills.
const FILE_BYTES_MAX: usize = 8 << 20;

/// The same of all files.
pub(crate) const ALL_BYTES_MAX: usize = 64 << 20;

/// Goes on when a step is over.
pub(crate) type Then<T> = Box<dyn FnOnce(&mut Machine, Result<T, Errno>) + Send>;

/// What is asked of an open file.
pub(crate) enum Step {
    Open(Opening),
    Write(Write),
    /// All that was taken is answered, and what failed is told, or it is not (`tells`).
    Settle {
        tells: bool,
        then: Then<()>,
    },
    /// The length is set, by whoever has the file open for writing.
    SetLength {
        length: u64,
        since: Time,
        refusals: u32,
        then: Then<()>,
    },
    /// When it was written is said.
    SetWritten {
        unix_ns: i64,
        since: Time,
        then: Then<()>,
    },
    /// A handle is closed.
    Release {
        write: bool,
    },
}

/// Bytes are taken, of which some may have been.
pub(crate) struct Write {
    /// Behind so many bytes of the file; `None`: where it ends, behind all that others wrote.
    pub(crate) offset: Option<u64>,
    pub(crate) bytes: Bytes,
    pub(crate) taken: usize,
    /// Answered when all of it is durable.
    pub(crate) is_synchronous: bool,
    pub(crate) reply: Reply<u32>,
}

/// A handle is opened.
pub(crate) struct Opening {
    pub(crate) write: bool,
    /// When it was asked for, and how often it was refused for now since then.
    pub(crate) since: Time,
    pub(crate) refusals: u32,
    /// Takes what is known of the file then.
    pub(crate) then: Then<FileInfo>,
}

/// A file that is open.
pub(crate) struct OpenFile {
    lane: u16,
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    /// Who has it open to the server, and whether for writing.
    opener: Option<(Opener, bool)>,
    writer: Option<Writer>,
    steps: VecDeque<Step>,
    /// The first step waits for an answer.
    is_asking: bool,
    /// Written since the store was told when.
    written_unix_ns: Option<i64>,
    /// What failed and was not told yet.
    failure: Option<Errno>,
    /// Counts changes made here: what was read ahead before one is not used.
    pub(crate) changes: u64,
    cuts: u64,
    /// Of the bytes of all files without an answer, so many are of this one.
    counted_bytes: usize,
    /// How long it is, as far as is known.
    pub(crate) length: u64,
    /// Something was appended, or failed, since the store was asked where it ends.
    is_end_unsure: bool,
}

/// What is written behind.
struct Writer {
    machine: WriteBehind,
    /// Answers to what an earlier writer asked mean nothing.
    number: u64,
    /// Requests on their way.
    asked: usize,
    /// A timer is set to go on then.
    due: Option<Time>,
}

impl OpenFile {
    fn new(lane: u16) -> OpenFile {
        OpenFile {
            lane,
            readers: 0,
            writers: 0,
            opener: None,
            writer: None,
            steps: VecDeque::new(),
            is_asking: false,
            written_unix_ns: None,
            failure: None,
            changes: 0,
            cuts: 0,
            counted_bytes: 0,
            length: 0,
            is_end_unsure: false,
        }
    }

    /// How many handles write to it, or only read it.
    fn handles(&mut self, of_writers: bool) -> &mut u32 {
        if of_writers { &mut self.writers } else { &mut self.readers }
    }

    /// Whether all that was taken is answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.writer.as_ref().is_none_or(|writer| writer.machine.is_idle())
    }

    /// Whether nothing is to be done before what comes next.
    pub(crate) fn is_settled(&self) -> bool {
        self.steps.is_empty() && self.is_idle()
    }

    /// Behind the last byte that was taken, while something is not answered; else the store knows.
    pub(crate) fn unanswered_end(&self) -> u64 {
        self.writer.as_ref().filter(|writer| !writer.machine.is_idle()).map_or(0, |writer| writer.machine.end())
    }

    /// The store has said where it ends, of what is durable.
    fn store_says_length(&mut self, length: u64) {
        self.length = length.max(self.unanswered_end());
        self.is_end_unsure = false;
        if let Some(writer) = self.writer.as_mut().filter(|writer| writer.machine.is_idle()) {
            writer.machine.has_length(length);
        }
    }

    /// How often it was cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// When it was written last, if the store was not told so yet.
    pub(crate) fn unsaid_written_unix_ns(&self) -> Option<i64> {
        self.written_unix_ns
    }

    fn unanswered_bytes(&self) -> usize {
        self.writer.as_ref().map_or(0, |writer| writer.machine.unanswered_bytes())
    }

    /// Handles that nobody has asked to close yet.
    fn handles_without_release(&self, of_writers: bool) -> usize {
        let is_release = |step: &&Step| matches!(step, Step::Release { write } if *write == of_writers);
        let count = if of_writers { self.writers } else { self.readers } as usize;
        count.saturating_sub(self.steps.iter().filter(is_release).count())
    }

    fn opener_for_writing(&self) -> Option<Opener> {
        self.writer.as_ref().map(|writer| writer.machine.opener())
    }

    /// Who makes the next change of the file that no write is, if it is open for writing. Nothing may be on its way.
    fn next_changer(&mut self) -> Option<Changer> {
        self.writer.as_mut().map(|writer| writer.machine.changer())
    }
}

impl Machine {
    /// Has something done with a file, behind what was asked before.
    pub(crate) fn push_step(&mut self, number: FileNumber, step: Step) {
        let lane = self.lane(number);
        self.files.entry(number).or_insert_with(|| OpenFile::new(lane)).steps.push_back(step);
        self.pump_file(number);
    }

    /// Goes on with a file as far as that goes.
    fn pump_file(&mut self, number: FileNumber) {
        loop {
            self.send_writes(number);
            if !self.run_step(number) {
                break;
            }
        }
        self.send_writes(number);
        self.count(number);
        let is_over = |file: &OpenFile| {
            file.readers == 0 && file.writers == 0 && file.is_settled() && !file.is_asking && file.opener.is_none()
        };
        if self.files.get(&number).is_some_and(is_over) {
            self.files.remove(&number);
        }
    }

    /// Counts what is not answered of a file.
    fn count(&mut self, number: FileNumber) {
        if let Some(file) = self.files.get_mut(&number) {
            let bytes = file.unanswered_bytes();
            self.unanswered_bytes = self.unanswered_bytes - std::mem::replace(&mut file.counted_bytes, bytes) + bytes;
        }
    }

    /// Takes the first step if it can be taken now; whether the next one may be.
    fn run_step(&mut self, number: FileNumber) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return false };
        if file.is_asking {
            return false;
        }
        let Some(step) = file.steps.pop_front() else { return false };
        match step {
            Step::Open(opening) => self.step_open(number, opening),
            Step::Write(write) => return self.step_write(number, write),
            Step::Settle { tells, then } => {
                if !file.is_idle() {
                    end_piece(file);
                    file.steps.push_front(Step::Settle { tells, then });
                    return false;
                }
                let failure = if tells { file.failure.take() } else { None };
                then(self, failure.map_or(Ok(()), Err));
            }
            Step::SetLength { length, since, refusals, then } => {
                if !file.is_idle() {
                    end_piece(file);
                    file.steps.push_front(Step::SetLength { length, since, refusals, then });
                    return false;
                }
                self.step_set_length(number, length, since, refusals, then);
            }
            Step::SetWritten { unix_ns, since, then } => {
                if !file.is_idle() {
                    end_piece(file);
                    file.steps.push_front(Step::SetWritten { unix_ns, since, then });
                    return false;
                }
                self.step_set_written(number, unix_ns, since, then);
            }
            Step::Release { write } => return self.step_release(number, write),
        }
        true
    }

    /// Asks for the first step; what comes after it waits.
    fn ask_for_step(
        &mut self,
        number: FileNumber,
        asked: Vec<forebay_client::Request>,
        then: impl FnOnce(&mut Machine, Vec<Result<Answer, Errno>>) + Send + 'static,
    ) {
        let Some(file) = self.files.get_mut(&number) else { return };
        file.is_asking = true;
        let lane = file.lane;
        self.ask_all(asked.into_iter().map(|request| (lane, request)).collect(), move |machine, answers| {
            if let Some(file) = machine.files.get_mut(&number) {
                file.is_asking = false;
            }
            then(machine, answers);
            machine.pump_file(number);
        });
    }

    // ---- writing ----

    fn step_write(&mut self, number: FileNumber, mut write: Write) -> bool {
        let is_full = self.unanswered_bytes >= ALL_BYTES_MAX;
        let now_unix_ns = self.now_unix_ns;
        let file = self.files.get_mut(&number).expect("a step is of a file");
        if let Some(failure) = file.failure.take() {
            (write.reply)(Err(failure));
            return true;
        }
        let Some(writer) = &mut file.writer else {
            (write.reply)(Err(Errno::EBADF));
            return true;
        };
        // Behind what is on its way nobody else can have appended without a conflict.
        if write.offset.is_none() && file.is_end_unsure && writer.machine.is_idle() {
            file.steps.push_front(Step::Write(write));
            self.look_where_it_ends(number);
            return false;
        }
        if is_full && !writer.machine.is_idle() {
            self.wait_for_room.insert(number);
            file.steps.push_front(Step::Write(write));
            return false;
        }
        writer.machine.set_appends(write.offset.is_none());
        while write.taken < write.bytes.len() {
            // What others append moves on where it ends.
            let end = file.length.max(writer.machine.end());
            let at = write.offset.map_or(end, |offset| offset + write.taken as u64);
            match writer.machine.offer_shared(at, &write.bytes.slice(write.taken..)) {
                Ok(0) => break,
                Ok(more) => {
                    write.taken += more;
                    file.length = end.max(at + more as u64);
                }
                Err(outcome) => {
                    (write.reply)(Err(errors::of_file(outcome).err().unwrap_or(Errno::EFBIG)));
                    return true;
                }
            }
        }
        file.changes += 1;
        file.written_unix_ns = Some(now_unix_ns);
        file.is_end_unsure |= write.offset.is_none();
        if write.taken < write.bytes.len() {
            // What overlaps bytes without an answer waits for these, and these must leave.
            writer.machine.end_piece();
            file.steps.push_front(Step::Write(write));
            return false;
        }
        let (count, reply) = (write.bytes.len() as u32, write.reply);
        if write.is_synchronous {
            let then = Box::new(move |_: &mut Machine, settled: Result<(), Errno>| reply(settled.map(|()| count)));
            file.steps.push_front(Step::Settle { tells: true, then });
        } else {
            reply(Ok(count));
        }
        true
    }

    /// Sends what is to be sent, and what is filling if nothing is on its way.
    fn send_writes(&mut self, number: FileNumber) {
        let now = self.now;
        loop {
            let Some(file) = self.files.get_mut(&number) else { return };
            let lane = file.lane;
            let Some(writer) = &mut file.writer else { return };
            if let Some(failure) = writer.machine.take_failure() {
                self.writing_failed(number, &failure);
                continue;
            }
            if writer.machine.wants_opening() {
                let opener = self.new_opener();
                let file = self.files.get_mut(&number).expect("looked at above");
                let writer = file.writer.as_mut().expect("looked at above");
                writer.machine.open_as(opener);
                file.opener = Some((opener, true));
                continue;
            }
            if writer.asked == 0 && !writer.machine.has_ready() {
                writer.machine.end_piece();
            }
            let writer_number = writer.number;
            let Some((request_number, request)) = writer.machine.next_request(now) else { break };
            writer.asked += 1;
            self.ask(lane, request, move |machine, answer| {
                machine.written(number, writer_number, request_number, answer);
            });
        }
        self.write_when_due(number);
    }

    fn write_when_due(&mut self, number: FileNumber) {
        let now = self.now;
        let writer = self.files.get_mut(&number).and_then(|file| file.writer.as_mut());
        let Some(writer) = writer else { return };
        let Some(due) =
            writer.machine.next_due(now).filter(|due| writer.due.is_none_or(|set| set <= now || *due < set))
        else {
            return;
        };
        writer.due = Some(due);
        self.later(due.since(now), move |machine| machine.pump_file(number));
    }

    fn written(
        &mut self,
        number: FileNumber,
        writer_number: u64,
        request_number: u64,
        answer: Result<Answer, SessionError>,
    ) {
        let now = self.now;
        let Some(file) = self.files.get_mut(&number) else { return };
        let Some(writer) = file.writer.as_mut().filter(|writer| writer.number == writer_number) else { return };
        writer.asked -= 1;
        writer.machine.answered(now, request_number, answer);
        self.pump_file(number);
        self.go_on_writing();
    }

    /// Files whose bytes waited for there to be fewer in all.
    fn go_on_writing(&mut self) {
        if self.unanswered_bytes < ALL_BYTES_MAX {
            std::mem::take(&mut self.wait_for_room).into_iter().for_each(|number| self.pump_file(number));
        }
    }

    /// What was not answered is given up: it is told to whoever asks next. From now on another opening writes, so that nothing of this one lands late.
    fn writing_failed(&mut self, number: FileNumber, failure: &WriteFailure) {
        let error = match failure {
            WriteFailure::Session(error) => self.failed(error),
            failure => errors::of_write_failure(failure),
        };
        let file = self.files.get_mut(&number).expect("it was written");
        let (lane, lost) = (file.lane, file.unanswered_bytes());
        tracing::debug!(file = number.0, lost, ?failure, "bytes were given up");
        file.failure = Some(error);
        file.is_end_unsure = true;
        file.changes += 1;
        file.cuts += 1;
        let opener = self.new_opener();
        self.is_open(number, opener, true);
        self.ask(lane, requests::open(number, opener, true), |_, _| ());
    }

    // ---- length and time ----

    /// Before bytes are appended behind what failed: else there would be a hole in its place.
    fn look_where_it_ends(&mut self, number: FileNumber) {
        self.ask_for_step(number, vec![requests::stat(number)], move |machine, mut answers| {
            let info = answers.pop().expect("it was asked").and_then(info_of);
            let Some(file) = machine.files.get_mut(&number) else { return };
            match info {
                Ok(info) => file.store_says_length(info.length),
                Err(error) => file.failure = Some(error),
            }
        });
    }

    fn step_set_length(&mut self, number: FileNumber, length: u64, since: Time, refusals: u32, then: Then<()>) {
        let file = self.files.get_mut(&number).expect("a step is of a file");
        let Some(by) = file.next_changer() else { return then(self, Err(Errno::EBADF)) };
        self.ask_for_step(number, vec![requests::set_length(number, by, length)], move |machine, mut answers| {
            let outcome = answers.pop().expect("it was asked").map(outcome_of);
            if let Ok(outcome) = outcome
                && (errors::may_change(outcome) || outcome == FileOutcome::NotOpen)
                && let Some(wait) = machine.again_after(since, refusals)
            {
                if outcome == FileOutcome::NotOpen {
                    machine.open_anew(number);
                }
                let again = Step::SetLength { length, since, refusals: refusals + 1, then };
                return machine.step_again(number, again, wait);
            }
            let result = outcome.and_then(errors::of_file);
            if result.is_ok()
                && let Some(file) = machine.files.get_mut(&number)
            {
                (file.length, file.changes, file.cuts) = (length, file.changes + 1, file.cuts + 1);
                // The store has said itself when that was.
                file.written_unix_ns = None;
                if let Some(writer) = &mut file.writer {
                    writer.machine.has_length(length);
                }
            }
            then(machine, result);
        });
    }

    /// The same step again, after a while and before those that came after it.
    fn step_again(&mut self, number: FileNumber, step: Step, wait: std::time::Duration) {
        let Some(file) = self.files.get_mut(&number) else { return };
        file.steps.push_front(step);
        file.is_asking = true;
        self.later(wait, move |machine| {
            if let Some(file) = machine.files.get_mut(&number) {
                file.is_asking = false;
            }
            machine.pump_file(number);
        });
    }

    /// The server does not know who has the file open for writing, of which nothing is on its way.
    fn open_anew(&mut self, number: FileNumber) {
        let opener = self.new_opener();
        let Some(file) = self.files.get_mut(&number) else { return };
        let Some(writer) = file.writer.as_mut().filter(|writer| writer.machine.is_idle()) else { return };
        writer.machine.was_opened_as(opener);
        file.opener = Some((opener, true));
        let lane = file.lane;
        self.ask(lane, requests::open(number, opener, true), |_, _| ());
    }

    fn step_set_written(&mut self, number: FileNumber, unix_ns: i64, since: Time, then: Then<()>) {
        let file = self.files.get_mut(&number).expect("a step is of a file");
        file.written_unix_ns = None;
        let by = file.next_changer();
        self.ask_for_step(number, vec![requests::set_written(number, by, unix_ns)], move |machine, mut answers| {
            let outcome = answers.pop().expect("it was asked").map(outcome_of);
            if outcome == Ok(FileOutcome::NotOpen)
                && let Some(wait) = machine.again_after(since, 0)
            {
                machine.open_anew(number);
                return machine.step_again(number, Step::SetWritten { unix_ns, since, then }, wait);
            }
            then(machine, outcome.and_then(errors::of_file));
        });
    }

    /// Waits until all that was taken is durable.
    pub(crate) fn synchronise(&mut self, number: FileNumber, reply: Reply<()>) {
        self.push_step(number, Step::Settle { tells: true, then: Box::new(move |_, settled| reply(settled)) });
    }

    /// The same for whoever closes the file, which says when it was written.
    pub(crate) fn settle(&mut self, number: FileNumber, reply: Reply<()>) {
        let then: Then<()> = Box::new(move |machine, settled| {
            let unsaid = machine.files.get(&number).and_then(OpenFile::unsaid_written_unix_ns);
            match (settled, unsaid) {
                (Ok(()), Some(unix_ns)) => {
                    // Before whatever was asked since. The bytes are safe, also when there is no room to say when they came.
                    let then: Then<()> = Box::new(move |_, _| reply(Ok(())));
                    let since = machine.now;
                    let file = machine.files.get_mut(&number).expect("it has a time");
                    file.steps.push_front(Step::SetWritten { unix_ns, since, then });
                }
                (settled, _) => reply(settled),
            }
        });
        self.push_step(number, Step::Settle { tells: true, then });
    }
}

fn end_piece(file: &mut OpenFile) {
    if let Some(writer) = &mut file.writer {
        writer.machine.end_piece();
    }
}

/// What became of a change of a file.
pub(crate) fn outcome_of(answer: Answer) -> FileOutcome {
    match answer {
        Answer::File(reply) => reply.outcome,
        other => unexpected(&other),
    }
}
