//! The thread of the control part: it carries what the lanes tell, and what became durable back to them.

mod newcomer;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_engine::{Control, DriveInfo, LaneEvent, OpenPlan, members_needed};
use forebay_format::{Geometry, Superblock};
use forebay_media::{DriveFile, DriveIdentity, FaultSwitch, Licence, Media, MediaConfig, RemoteDrive, RemoteReport};
use forebay_types::{DriveNumber, DriveUuid, StoreUuid, Time};
use serde::Serialize;

use crate::config::StoreConfig;
use crate::drives::{Command, Ordered, Replacement};
use crate::open::{Ground, parity_min};
use crate::runner::Mailbox;

/// A start waits for so many timeouts when more drives are silent than may be missing, and is then given up; and so is a new drive that does nothing.
const TIMEOUTS_MAX: u32 = 12;

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
    /// something lives on it), `out` (taken out earlier, and there), `absent` (a member that was not found at the start), `gone` (taken out earlier,
    /// and not there).
    pub state: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its slots.
    pub slots: u32,
    /// Why it was taken out.
    pub reason: Option<String>,
    /// The number of the drive that was put in for it since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<u16>,
    /// What was opened there; not known when the path leads nowhere.
    #[serde(skip)]
    pub(crate) identity: Option<DriveIdentity>,
}

/// How the cluster is that a store stands on, as far as it was asked lately.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStatus {
    /// What operators know the store by.
    pub name: String,
    /// In the cluster's own words: `HEALTH_OK`.
    pub health: Option<String>,
    /// What is wrong there, each in its own words.
    pub checks: Vec<String>,
    /// Bytes that the pool still takes.
    pub available_bytes: Option<u64>,
    /// Bytes that it holds.
    pub stored_bytes: Option<u64>,
    /// Seconds since it was asked last, and answered.
    pub asked_s_ago: Option<f64>,
}

impl ClusterStatus {
    fn of(drive: &dyn RemoteDrive) -> ClusterStatus {
        let RemoteReport { health, checks, available_bytes, stored_bytes, asked_at } = drive.report();
        let asked_s_ago = asked_at.map(|asked_at| Licence::now().since(asked_at).as_secs_f64());
        ClusterStatus { name: drive.name(), health, checks, available_bytes, stored_bytes, asked_s_ago }
    }
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
    /// Drives that failed since the start, or were given up by an operator.
    pub drives_failed: u64,
    /// The store is open for reading alone.
    pub read_only: bool,
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
    /// The cluster that it stands on, when it stands on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// Why nothing can be written.
    pub failure: Option<String>,
    /// The control thread has ended.
    pub ended: bool,
}

pub(crate) struct Shared {
    status: Mutex<ControlStatus>,
    changed: Condvar,
    pub(crate) switch: Option<FaultSwitch>,
    /// What an operator wants, for the thread.
    commands: Mutex<VecDeque<Ordered>>,
    pub(crate) geometry: Geometry,
    pub(crate) media: MediaConfig,
    pub(crate) read_only: bool,
    /// What the store stands on, when that is no drives.
    remote: Option<Arc<dyn RemoteDrive>>,
    /// Drives without which nothing can be written: for the least data shards, and the parity that an operator asks for.
    width_min: usize,
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
        let cluster = self.0.remote.as_deref().map(ClusterStatus::of);
        ControlStatus { cluster, ..lock(&self.0.status).clone() }
    }

    /// Whether writing goes on when one more member leaves.
    pub fn may_lose_a_member(&self) -> bool {
        let listed = lock(&self.0.status).drives.iter().filter(|drive| drive.state == "member").count();
        let needed = members_needed(listed, self.0.geometry.parity_shards).max(self.0.width_min);
        listed > needed
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
    /// A drive that is being put in: no lane knows it before it is a member.
    newcomer: Option<(DriveNumber, Arc<DriveFile>)>,
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
        ground: &Ground,
        config: &StoreConfig,
        switch: Option<FaultSwitch>,
    ) -> Self {
        let entry = |info: &DriveInfo| plan.superblock.drives.iter().find(|entry| entry.number == info.number);
        let place = |info: &DriveInfo| ground.place_of(info.number);
        let drives = plan.drives.iter().map(|info| DriveStatus {
            number: info.number.0,
            uuid: info.uuid,
            path: place(info).map(|(path, _)| path),
            state: match (info.member, info.present) {
                (true, true) => "member",
                (true, false) => "absent",
                (false, true) => "out",
                (false, false) => "gone",
            },
            bytes: entry(info).map_or(0, |entry| entry.bytes),
            slots: info.slots,
            reason: None,
            replaced_by: None,
            identity: place(info).and_then(|(_, identity)| identity),
        });
        let status = ControlStatus {
            store: plan.superblock.store,
            epoch: plan.superblock.epoch + u64::from(!config.read_only),
            data_shards: plan.superblock.geometry.data_shards,
            parity_shards: plan.superblock.geometry.parity_shards,
            drives: drives.collect(),
            drives_failed: 0,
            read_only: config.read_only,
            lanes_serving: 0,
            lanes_stopped: 0,
            replacement: None,
            clean: false,
            started_clean: plan.superblock.clean,
            warnings: plan.warnings.clone(),
            cluster: None,
            failure: None,
            ended: false,
        };
        let parity_min = parity_min(config, &plan.superblock.geometry);
        let shared = Shared {
            status: Mutex::new(status),
            changed: Condvar::new(),
            switch,
            commands: Mutex::default(),
            geometry: plan.superblock.geometry,
            media: config.media,
            read_only: config.read_only,
            remote: ground.remote().cloned(),
            width_min: usize::from(plan.superblock.geometry.data_shards_min) + usize::from(parity_min),
        };
        // While lanes wait for it, a superblock is in no hurry: a drive is given up later than by a lane.
        let (drives, timeout) = (plan.drives.clone(), config.drive_timeout() * 5);
        let parity_shards = plan.superblock.geometry.parity_shards;
        ControlThread {
            control,
            media,
            mailboxes,
            drives,
            newcomer: None,
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

    /// The superblock that is durable, of a store that is open for writing.
    pub(crate) fn superblock(&self) -> Option<&Superblock> {
        self.control.as_ref().map(Control::superblock)
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
        let begin = Instant::now();
        loop {
            match events.recv_timeout(COMMANDS_LOOK) {
                Ok((lane, event)) => self.lane_event(lane, event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = Time(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
            self.control.iter_mut().for_each(|control| control.look_at_drives(now));
            self.run_operations();
            self.obey();
            self.shared.give_up_replacement(self.timeout * TIMEOUTS_MAX);
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
                self.tell_failed(drive, &reason);
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
                self.tell_lanes(message);
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
                if may_be_missing || !control.is_started() && timeouts >= TIMEOUTS_MAX {
                    for drive in late {
                        control.give_up(drive);
                        self.tell_failed(drive, "it did not take a superblock in time");
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
        for info in control.drives().iter().filter(|info| !(info.member && info.present)) {
            let is_news = |drive: &DriveStatus| drive.number == info.number.0 && drive.state == "member";
            let is_news = self.shared.status().drives.iter().any(is_news);
            if is_news {
                self.tell_failed(info.number, "it refused a superblock");
            }
        }
    }

    /// A drive is out from now on: operators are told once, whoever notices it.
    fn tell_failed(&self, drive: DriveNumber, reason: &str) {
        let mut is_news = false;
        self.update(|status| is_news = mark_failed(status, drive, reason));
        if is_news {
            let meaning = what_is_left(&self.shared.status());
            tracing::error!(%drive, reason, "a drive failed: {meaning}");
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
                self.update(|status| mark(status, drive, "failed", Some("an operator gave it up")));
                self.run_operations();
                Ok(drive)
            }
            Command::Retire(drive) => {
                control.retire_drive(drive)?;
                // Before it leaves: one that leaves without a word has refused something.
                self.update(|status| mark(status, drive, "retired", Some("an operator takes it out of use")));
                self.run_operations();
                self.has_left(drive)
                    .inspect_err(|_| self.update(|status| mark(status, drive, "member", None)))
                    .map(|()| drive)
            }
            Command::Add { uuid, file, slots } => self.add_drive(uuid, file, slots),
        }
    }

    /// Whether a drive that was to be taken out of use is no member any more; else why.
    fn has_left(&self, drive: DriveNumber) -> Result<(), String> {
        let control = self.control.as_ref().expect("it was asked to take the drive out");
        if !control.is_member(drive) {
            return Ok(());
        }
        Err(match control.no_quorum() {
            Some(reason) => reason.to_owned(),
            None => format!(
                "another drive failed at this moment, and without both too few would be left for writing: drive {drive} stays a member, and \
                 nothing on it was touched. `forebay drive list` shows which one failed; replace that first"
            ),
        })
    }

    fn update(&self, change: impl FnOnce(&mut ControlStatus)) {
        self.shared.update(change);
    }
}

/// What the drives that are gone mean for the data.
fn what_is_left(status: &ControlStatus) -> String {
    // Of those that left before this start, what they held may lie elsewhere by now: the alarms tell when it does not.
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
fn mark(status: &mut ControlStatus, drive: DriveNumber, state: &'static str, reason: Option<&str>) {
    if let Some(entry) = status.drives.iter_mut().find(|d| d.number == drive.0) {
        status.drives_failed += u64::from(state == "failed" && entry.state != "failed");
        (entry.state, entry.reason) = (state, reason.map(str::to_owned));
    }
}

/// Whether it had not been said before.
fn mark_failed(status: &mut ControlStatus, drive: DriveNumber, reason: &str) -> bool {
    let mut drives = status.drives.iter_mut();
    let Some(entry) = drives.find(|d| d.number == drive.0 && matches!(d.state, "member" | "retired")) else {
        return false;
    };
    entry.state = "failed";
    entry.reason = Some(reason.to_owned());
    status.drives_failed += 1;
    true
}

#[cfg(test)]
mod tests;
