//! The thread of the control part: it carries what the lanes tell, and what became durable back to them.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_engine::{Control, DriveInfo, FoundDrive, LaneEvent, OpenPlan};
use forebay_format::Geometry;
use forebay_media::{FaultSwitch, Media, MediaConfig};
use forebay_types::{DriveNumber, DriveUuid, StoreUuid};
use serde::Serialize;

use crate::config::StoreConfig;
use crate::drives::{Command, Ordered, Replacement};
use crate::runner::{Mailbox, Message};

/// A start waits for so many timeouts when more drives are silent than may be missing, and is then given up.
const START_TIMEOUTS: u32 = 12;

/// What operators want is looked for so often.
const COMMANDS_LOOK: Duration = Duration::from_millis(50);

/// A drive, for an operator.
#[derive(Clone, Debug, Serialize)]
pub struct DriveStatus {
    /// Its number.
    pub number: u16,
    /// Its UUID.
    pub uuid: DriveUuid,
    /// Where it was found; absent when it was not.
    pub path: Option<String>,
    /// One of `member`, `failed` (taken out since the start), `retired` (taken out since the start by an operator, and read as long as
    /// something lives on it), `out` (taken out earlier), `absent`.
    pub state: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its slots.
    pub slots: u32,
    /// Why it was taken out.
    pub reason: Option<String>,
}

/// The state of a store beyond its lanes.
#[derive(Clone, Debug, Serialize)]
pub struct ControlStatus {
    /// The store.
    pub store: StoreUuid,
    /// The start that this is.
    pub epoch: u64,
    /// Data shards at full width.
    pub data_shards: u8,
    /// Parity shards.
    pub parity_shards: u8,
    /// Its drives.
    pub drives: Vec<DriveStatus>,
    /// Drives that failed since the start.
    pub drives_failed: u64,
    /// Lanes that serve.
    pub lanes_serving: u16,
    /// Lanes that have stopped.
    pub lanes_stopped: u16,
    /// The replacement of a drive that was begun last.
    pub replacement: Option<Replacement>,
    /// The stop is marked as clean on the drives.
    pub clean: bool,
    /// Whether the store was stopped in order before this start.
    pub started_clean: bool,
    /// What an operator should know.
    pub warnings: Vec<String>,
    /// Why nothing can be written.
    pub failure: Option<String>,
    /// The control thread has ended.
    pub ended: bool,
}

pub(crate) struct Shared {
    status: Mutex<ControlStatus>,
    changed: Condvar,
    switch: Option<FaultSwitch>,
    /// What an operator wants, for the thread.
    commands: Mutex<VecDeque<Ordered>>,
    pub(crate) geometry: Geometry,
    pub(crate) media: MediaConfig,
    pub(crate) read_only: bool,
}

impl Shared {
    pub(crate) fn order(&self, ordered: Ordered) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(ordered);
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, ControlStatus> {
        lock(&self.status)
    }

    /// Changes the state, and tells whoever waits for that.
    pub(crate) fn update(&self, change: impl FnOnce(&mut ControlStatus)) {
        change(&mut lock(&self.status));
        self.changed.notify_all();
    }
}

/// A way to the control part; cheap to copy.
#[derive(Clone)]
pub struct ControlHandle(pub(crate) Arc<Shared>);

impl ControlHandle {
    /// The state now.
    pub fn status(&self) -> ControlStatus {
        lock(&self.0.status).clone()
    }

    /// Makes every operation on a drive fail from now on.
    ///
    /// # Errors
    /// When the store was not opened for that, or has no such drive; what, in words.
    pub fn inject_fault(&self, drive: DriveNumber) -> Result<(), String> {
        self.switch_of(drive)?.fail(drive);
        Ok(())
    }

    /// Makes every operation on a drive take so much longer from now on.
    ///
    /// # Errors
    /// As [`ControlHandle::inject_fault`].
    pub fn inject_delay(&self, drive: DriveNumber, by: Duration) -> Result<(), String> {
        self.switch_of(drive)?.slow(drive, by);
        Ok(())
    }

    /// The switch, if it may make this drive fail.
    fn switch_of(&self, drive: DriveNumber) -> Result<&FaultSwitch, String> {
        let Some(switch) = &self.0.switch else {
            return Err("this server was not started with fault injection".to_owned());
        };
        if !lock(&self.0.status).drives.iter().any(|d| d.number == drive.0) {
            return Err(format!("there is no drive {drive}"));
        }
        Ok(switch)
    }

    /// Waits until `done` holds for the state, for up to `timeout`; whether it does.
    pub fn wait_until(&self, timeout: Duration, done: impl Fn(&ControlStatus) -> bool) -> bool {
        let status = lock(&self.0.status);
        let waited = self.0.changed.wait_timeout_while(status, timeout, |status| !done(status));
        let (status, _) = waited.unwrap_or_else(PoisonError::into_inner);
        done(&status)
    }
}

fn lock(status: &Mutex<ControlStatus>) -> MutexGuard<'_, ControlStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The control part before it runs by itself.
pub(crate) struct ControlThread {
    control: Option<Control>,
    media: Box<dyn Media + Send>,
    mailboxes: Vec<Arc<Mailbox>>,
    drives: Vec<DriveInfo>,
    timeout: Duration,
    parity_shards: u8,
    /// No lane stopped before it had recovered, or with something that it could not write.
    all_whole: bool,
    shared: Arc<Shared>,
}

impl ControlThread {
    pub(crate) fn new(
        control: Option<Control>,
        media: Box<dyn Media + Send>,
        mailboxes: Vec<Arc<Mailbox>>,
        plan: &OpenPlan,
        found: &[FoundDrive],
        config: &StoreConfig,
        switch: Option<FaultSwitch>,
    ) -> Self {
        let path = |info: &DriveInfo| found.iter().find(|f| f.superblock.drive == info.uuid).map(|f| f.path.clone());
        let entry = |info: &DriveInfo| plan.superblock.drives.iter().find(|entry| entry.number == info.number);
        let drives = plan.drives.iter().map(|info| DriveStatus {
            number: info.number.0,
            uuid: info.uuid,
            path: path(info),
            state: match (info.member, info.present) {
                (_, false) => "absent",
                (true, true) => "member",
                (false, true) => "out",
            },
            bytes: entry(info).map_or(0, |entry| entry.bytes),
            slots: info.slots,
            reason: None,
        });
        let status = ControlStatus {
            store: plan.superblock.store,
            epoch: plan.superblock.epoch + u64::from(!config.read_only),
            data_shards: plan.superblock.geometry.data_shards,
            parity_shards: plan.superblock.geometry.parity_shards,
            drives: drives.collect(),
            drives_failed: 0,
            lanes_serving: 0,
            lanes_stopped: 0,
            replacement: None,
            clean: false,
            started_clean: plan.superblock.clean,
            warnings: plan.warnings.clone(),
            failure: None,
            ended: false,
        };
        let shared = Shared {
            status: Mutex::new(status),
            changed: Condvar::new(),
            switch,
            commands: Mutex::default(),
            geometry: plan.superblock.geometry,
            media: config.media,
            read_only: config.read_only,
        };
        // While lanes wait for it, a superblock is in no hurry: a drive is given up later than by a lane.
        let (drives, timeout) = (plan.drives.clone(), config.drive_timeout() * 5);
        let parity_shards = plan.superblock.geometry.parity_shards;
        ControlThread {
            control,
            media,
            mailboxes,
            drives,
            timeout,
            parity_shards,
            all_whole: true,
            shared: Arc::new(shared),
        }
    }

    /// Makes the start durable; gives the drives as the lanes are to see them.
    pub(crate) fn start_store(mut self) -> Result<(Self, Vec<DriveInfo>), String> {
        self.run_operations();
        let drives = match &self.control {
            None => self.drives.clone(),
            Some(control) if control.is_started() => control.drives(),
            Some(control) => return Err(control.no_quorum().unwrap_or("the drives do not answer").to_owned()),
        };
        Ok((self, drives))
    }

    pub(crate) fn spawn(self, events: Receiver<(u16, LaneEvent)>) -> ControlHandle {
        let handle = ControlHandle(self.shared.clone());
        std::thread::Builder::new()
            .name("forebay-control".to_owned())
            .spawn(move || self.run(&events))
            .expect("a thread can be started");
        handle
    }

    fn run(mut self, events: &Receiver<(u16, LaneEvent)>) {
        loop {
            match events.recv_timeout(COMMANDS_LOOK) {
                Ok((lane, event)) => self.lane_event(lane, event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.run_operations();
            self.obey();
        }
        // Whoever waits for the end may open the drives at once: they are let go first.
        let shared = self.shared.clone();
        drop(self);
        lock(&shared.status).ended = true;
        shared.changed.notify_all();
    }

    fn lane_event(&mut self, lane: u16, event: LaneEvent) {
        let lanes = self.mailboxes.len();
        match event {
            LaneEvent::DriveFailed { drive, reason } => {
                self.update(|status| mark_failed(status, drive, &reason));
                let meaning = what_is_left(&lock(&self.shared.status));
                tracing::error!(lane, %drive, reason, "a drive failed: {meaning}");
                if let Some(control) = &mut self.control {
                    control.drive_failed(drive);
                }
            }
            LaneEvent::DamageFound { drive, places } => {
                tracing::warn!(
                    lane,
                    %drive,
                    places,
                    "damage was found on a drive: what lies there is not what was written. What can be computed from the other drives is \
                     written again; `forebay status` counts what cannot. When it happens again, replace the drive"
                );
                if let Some(control) = &mut self.control {
                    control.renew_superblocks();
                }
            }
            LaneEvent::Serving => self.update(|status| status.lanes_serving += 1),
            LaneEvent::Stopped { whole } => {
                self.all_whole &= whole;
                self.update(|status| status.lanes_stopped += 1);
                let all = usize::from(lock(&self.shared.status).lanes_stopped) == lanes;
                let sound = lock(&self.shared.status).failure.is_none();
                if all
                    && sound
                    && self.all_whole
                    && let Some(control) = &mut self.control
                {
                    control.stop_clean();
                }
            }
            LaneEvent::Failed { reason } => {
                tracing::error!(lane, reason, "a lane can write no more; what is acknowledged is safe");
                self.update(|status| status.failure = Some(reason));
            }
        }
    }

    /// Carries operations until none is on its way.
    fn run_operations(&mut self) {
        let Some(mut control) = self.control.take() else { return };
        let mut completions = Vec::new();
        let (mut since, mut timeouts) = (Instant::now(), 1);
        loop {
            let mut submitted = false;
            while let Some((id, operation)) = control.next_operation() {
                self.media.submit(id, operation);
                submitted = true;
            }
            if submitted {
                self.media.kick();
                (since, timeouts) = (Instant::now(), 1);
            }
            while let Some(message) = control.next_message() {
                self.mailboxes.iter().for_each(|mailbox| mailbox.send(Message::Membership(message.clone())));
            }
            if control.waiting_for().is_empty() {
                break;
            }
            self.media.wait(Duration::from_millis(20), &mut completions);
            for completion in completions.drain(..) {
                control.complete(&completion);
            }
            if since.elapsed() > self.timeout * timeouts {
                let late = control.waiting_for();
                // When more are late than may be missing, it is not the drives.
                let may_be_missing = late.len() <= usize::from(self.parity_shards);
                if may_be_missing || !control.is_started() && timeouts >= START_TIMEOUTS {
                    for drive in late {
                        control.give_up(drive);
                        self.update(|status| mark_failed(status, drive, "it did not take a superblock in time"));
                    }
                } else {
                    let seconds = since.elapsed().as_secs();
                    let late = late.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    tracing::warn!(
                        "drives {late} do not answer for {seconds} s, more than may be missing: none is taken out, they are waited for; see \
                         to what they have in common"
                    );
                    timeouts += 1;
                }
            }
        }
        self.tell_who_left(&control);
        let clean = control.is_clean();
        self.control = Some(control);
        self.update(|status| status.clean = clean);
    }

    /// A drive that refuses a superblock is left out by the control part itself, and no lane has a reason to say so.
    fn tell_who_left(&self, control: &Control) {
        for DriveInfo { number, .. } in control.drives().iter().filter(|info| !(info.member && info.present)) {
            let is_news = |drive: &DriveStatus| drive.number == number.0 && drive.state == "member";
            if !lock(&self.shared.status).drives.iter().any(is_news) {
                continue;
            }
            let reason = "it refused a superblock";
            self.update(|status| mark_failed(status, *number, reason));
            let meaning = what_is_left(&lock(&self.shared.status));
            tracing::error!(drive = %number, reason, "a drive failed: {meaning}");
        }
    }

    /// Does what operators want.
    fn obey(&mut self) {
        loop {
            let next = self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(Ordered { command, answer }) = next else { return };
            let done = self.carry_out(command);
            // Who asked may have stopped waiting.
            let _ = answer.try_send(done);
        }
    }

    fn carry_out(&mut self, command: Command) -> Result<DriveNumber, String> {
        let Some(control) = &mut self.control else {
            return Err("the store is open for reading alone; nothing was changed".to_owned());
        };
        match command {
            Command::Fail(drive) => {
                control.give_drive_up(drive)?;
                self.update(|status| mark(status, drive, "failed", "an operator gave it up"));
                self.run_operations();
                Ok(drive)
            }
            Command::Retire(drive) => {
                control.retire_drive(drive)?;
                self.update(|status| mark(status, drive, "retired", "an operator takes it out of use"));
                self.run_operations();
                Ok(drive)
            }
            Command::Add { uuid, file, slots } => {
                let bytes = file.bytes();
                let number = control.add_drive(uuid, slots, bytes)?;
                let file = Arc::new(file);
                if let Err(error) = self.media.add_drive(number, file.clone()) {
                    tracing::error!(drive = %number, %error, "a new drive cannot be reached: it is not taken in");
                }
                self.mailboxes.iter().for_each(|mailbox| mailbox.send(Message::Drive(number, file.clone())));
                self.run_operations();
                let joined = self.control.as_ref().and_then(|control| control.has_joined(number));
                if joined != Some(true) {
                    return Err("the new drive did not take its superblock: it is not a member".to_owned());
                }
                let path = Some(file.path().display().to_string());
                let state = "member";
                let drive = DriveStatus { number: number.0, uuid, path, state, bytes, slots, reason: None };
                self.update(|status| status.drives.push(drive));
                Ok(number)
            }
        }
    }

    fn update(&self, change: impl FnOnce(&mut ControlStatus)) {
        self.shared.update(change);
    }
}

/// What the drives that are gone mean for the data.
fn what_is_left(status: &ControlStatus) -> String {
    let gone = status.drives.iter().filter(|drive| matches!(drive.state, "absent" | "failed")).count();
    let parity = status.parity_shards;
    if gone > usize::from(parity) {
        format!(
            "{gone} drives are gone now, and parity makes up for {parity}: what has pieces on more than {parity} of them cannot be read; bring \
             them back as they are, wipe none"
        )
    } else {
        "it is taken out, what it held is computed from the other drives; replace it".to_owned()
    }
}

/// Says what became of a drive by the word of an operator.
fn mark(status: &mut ControlStatus, drive: DriveNumber, state: &'static str, reason: &str) {
    if let Some(entry) = status.drives.iter_mut().find(|d| d.number == drive.0) {
        (entry.state, entry.reason) = (state, Some(reason.to_owned()));
    }
}

fn mark_failed(status: &mut ControlStatus, drive: DriveNumber, reason: &str) {
    if let Some(entry) =
        status.drives.iter_mut().find(|d| d.number == drive.0 && matches!(d.state, "member" | "retired"))
    {
        entry.state = "failed";
        entry.reason = Some(reason.to_owned());
        status.drives_failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use forebay_engine::{OpenRequest, plan_open};
    use forebay_format::{DriveEntry, DriveState, FORMAT_VERSION, Geometry, ProgramVersion, Start, Superblock};
    use forebay_media::{Completion, FaultyMedia, MemoryDrives, MemoryMedia, Operation};

    use super::*;

    const DRIVES: u16 = 5;

    fn superblock_of(number: u16) -> Superblock {
        let entry = |number: u16| DriveEntry {
            uuid: DriveUuid::from_random_bytes([number as u8 + 1; 16]),
            number: DriveNumber(number),
            state: DriveState::Member,
            slots: 8,
            changed: 0,
            bytes: 16 << 20,
        };
        let geometry = Geometry {
            lanes: 1,
            data_shards: 4,
            parity_shards: 1,
            data_shards_min: 2,
            unit_bytes: 32 << 10,
            slot_bytes: 1 << 20,
            checkpoint_bytes: 256 << 10,
            fragment_bytes_max: 1 << 20,
        };
        Superblock {
            format_version: FORMAT_VERSION,
            program: ProgramVersion::default(),
            store: StoreUuid::from_random_bytes([9; 16]),
            drive: entry(number).uuid,
            number: DriveNumber(number),
            generation: 2,
            membership: 1,
            epoch: 1,
            nonce: 7,
            clean: true,
            created_unix_s: 0,
            geometry,
            history: vec![Start { epoch: 1, nonce: 7 }],
            drives: (0..DRIVES).map(entry).collect(),
        }
    }

    /// Whom the control part writes to, all of it being done.
    fn written_to(control: &mut Control) -> Vec<u16> {
        let operations: Vec<_> = std::iter::from_fn(|| control.next_operation()).collect();
        let mut drives = Vec::new();
        for (id, operation) in operations {
            let Operation::Write { drive, .. } = operation else {
                panic!("only superblocks are written: {operation:?}")
            };
            drives.push(drive.0);
            control.complete(&Completion { id, result: Ok(()), buffer: None });
        }
        drives
    }

    #[test]
    fn a_list_is_on_the_drive_that_joins_by_it_before_any_other_has_it() {
        let found: Vec<FoundDrive> =
            (0..DRIVES).map(|n| FoundDrive { path: format!("d{n}"), superblock: superblock_of(n) }).collect();
        let mut control = Control::start(&plan_open(&found, OpenRequest::default()).expect("a store"), 8, 1);
        let all: Vec<u16> = (0..DRIVES).collect();
        assert_eq!(
            (written_to(&mut control), written_to(&mut control)),
            (all.clone(), all.clone()),
            "confirmed and begun"
        );
        let new = control.add_drive(DriveUuid::from_random_bytes([99; 16]), 8, 16 << 20).expect("it is taken");
        assert_eq!((written_to(&mut control), control.has_joined(new)), (vec![new.0], None));
        assert_eq!((written_to(&mut control), control.has_joined(new)), (all, Some(true)));
    }

    #[test]
    fn a_drive_may_leave_as_long_as_new_data_get_the_parity_that_is_asked_for() {
        let leaves = |parity_min: u8| {
            let mut superblocks: Vec<Superblock> = (0..DRIVES).map(superblock_of).collect();
            superblocks.iter_mut().for_each(|superblock| superblock.geometry.data_shards_min = 4);
            let named = |superblock: Superblock| FoundDrive { path: format!("d{}", superblock.number), superblock };
            let found: Vec<FoundDrive> = superblocks.into_iter().map(named).collect();
            let plan = plan_open(&found, OpenRequest::default()).expect("a store");
            let mut control = Control::start(&plan, 8, parity_min);
            for _begun in 0..2 {
                written_to(&mut control);
            }
            control.retire_drive(DriveNumber(1))
        };
        let refused = leaves(1).expect_err("4+1 is the least, and there are five drives");
        assert!(refused.contains("4 of 5 members would be left and 5 are needed"), "{refused}");
        assert_eq!(leaves(0), Ok(()));
    }

    /// A start while some drives are silent: how it went, and the members that drive 0 then names.
    fn start_without(silent: &[u16]) -> (Result<(), String>, usize) {
        let found: Vec<FoundDrive> =
            (0..DRIVES).map(|n| FoundDrive { path: format!("d{n}"), superblock: superblock_of(n) }).collect();
        let plan = plan_open(&found, OpenRequest::default()).expect("a store");
        let drives = MemoryDrives::new(DRIVES, 16 << 20);
        silent.iter().for_each(|n| drives.hold(DriveNumber(*n)));
        let config = StoreConfig { drive_timeout_ms: Some(2), ..StoreConfig::default() };
        let media = Box::new(MemoryMedia::new(&drives));
        let control = Some(Control::start(&plan, 8, 1));
        let thread = ControlThread::new(control, media, Vec::new(), &plan, &found, &config, None);
        let started = thread.start_store().map(|_| ());
        silent.iter().for_each(|n| drives.release(DriveNumber(*n)));
        let contents = drives.contents(DriveNumber(0));
        let places = [0, forebay_format::SUPERBLOCK_STRIDE_BYTES as usize];
        let written = places.iter().filter_map(|place| Superblock::decode(&contents[*place..]).ok());
        let newest = written.max_by_key(|superblock| superblock.generation).expect("the start was written");
        let program = if started.is_ok() { ProgramVersion::OWN } else { ProgramVersion::default() };
        assert_eq!((newest.program, newest.format_version), (program, FORMAT_VERSION), "whoever starts it says so");
        (started, newest.drives.iter().filter(|drive| drive.state == DriveState::Member).count())
    }

    #[test]
    fn a_drive_that_refuses_a_superblock_is_told_to_have_failed() {
        let found: Vec<FoundDrive> =
            (0..DRIVES).map(|n| FoundDrive { path: format!("d{n}"), superblock: superblock_of(n) }).collect();
        let plan = plan_open(&found, OpenRequest::default()).expect("a store");
        let (drives, switch) = (MemoryDrives::new(DRIVES, 16 << 20), FaultSwitch::new());
        let media = Box::new(FaultyMedia::new(MemoryMedia::new(&drives), switch.clone()));
        let control = Some(Control::start(&plan, 8, 1));
        let config = StoreConfig::default();
        let thread = ControlThread::new(control, media, Vec::new(), &plan, &found, &config, None);
        let (mut thread, _) = thread.start_store().expect("all drives are well");
        assert_eq!(thread.shared.status().drives_failed, 0);
        switch.fail(DriveNumber(2));
        // Nothing is written but this: the lane only reads.
        thread.lane_event(0, LaneEvent::DamageFound { drive: DriveNumber(2), places: 1 });
        thread.run_operations();
        let status = thread.shared.status().clone();
        let states: Vec<&str> = status.drives.iter().map(|drive| drive.state).collect();
        assert_eq!((states, status.drives_failed), (vec!["member", "member", "failed", "member", "member"], 1));
        assert_eq!(status.drives[2].reason.as_deref(), Some("it refused a superblock"));
    }

    #[test]
    fn a_silent_drive_is_taken_out_by_the_start() {
        assert_eq!(start_without(&[3]), (Ok(()), 4));
        assert_eq!(start_without(&[]), (Ok(()), 5));
    }

    #[test]
    fn when_more_are_silent_than_may_be_missing_the_start_ends_and_none_is_taken_out() {
        let (started, members) = start_without(&[1, 3]);
        let why = started.expect_err("no quorum");
        assert!(why.starts_with("3 of 5 member drives are left and 4 are needed"), "{why}");
        assert_eq!(members, 5);
    }
}
