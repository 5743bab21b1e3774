//! The server's process: control part, lanes and their connections, the machines that a real one has, carried by virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use forebay_engine::{
    Control, Lane, LaneEvent, LaneStatus, Loss, LossKind, Membership, OpenError, OpenPlan, OpenRequest, StoredEvent,
    plan_open,
};
use forebay_media::Completion;
use forebay_server::{Greeting, Pressure, Service, ServiceConfig, Step};
use forebay_types::{DriveNumber, EventId, EventKey, RunId, StoreUuid, Time, WallTime};

use crate::drives::{Drives, Queue};
use crate::faults::Fault;
use crate::network::{ConnectionId, Network, Side};
use crate::opening::{found_drives, lane_config};
use crate::pressure::PressureCheck;
use crate::scenario::Scenario;

/// So often connections that stand still are looked for.
const LOOK_ROUND: Duration = Duration::from_secs(1);

/// What the process says that the world must know.
#[derive(Debug)]
pub(crate) enum Told {
    DriveFailed {
        drive: DriveNumber,
        reason: String,
    },
    Failed {
        reason: String,
    },
    /// A lane slows other readers than before.
    Pressed {
        step: Pressure,
    },
}

struct LaneSide {
    lane: Lane,
    service: Service,
    completions: Vec<Completion>,
    mailbox: VecDeque<Membership>,
    /// Another lane told it something of files.
    has_news: bool,
    peers: BTreeMap<u64, ConnectionId>,
    next_id: u64,
    looked_round: Time,
    serving: bool,
    stopped: Option<bool>,
    /// More is gone than parity makes up for.
    may_lose: bool,
    /// Its drive stands for pools of a cluster.
    is_pool: bool,
    /// It is not fenced.
    may_answer: bool,
    /// Of what is read to where it is stored not all may come.
    knows_half_placed: bool,
    pressure: PressureCheck,
}

/// A process that serves the store.
pub(crate) struct Process {
    control: Control,
    control_since: Option<Time>,
    control_completions: Vec<Completion>,
    lane_events: VecDeque<(u16, LaneEvent)>,
    lanes: Vec<LaneSide>,
    plan: OpenPlan,
    nonce: u64,
    greeting: BTreeMap<ConnectionId, Greeting>,
    /// Its clock is so far ahead of the world's.
    ahead: Duration,
    stopping: bool,
    parity: usize,
    timeout: Duration,
}

impl Process {
    /// A process that opens the drives, without those of `without`, and with one that does not belong to them.
    pub(crate) fn start(
        drives: &mut Drives,
        scenario: &Scenario,
        without: &BTreeSet<DriveNumber>,
        stranger: Option<Fault>,
        nonce: u64,
    ) -> Result<Process, OpenError> {
        let mut found = found_drives(drives, without);
        if let (Some(fault @ (Fault::ForeignDrive | Fault::Clone)), Some(first)) = (stranger, found.first()) {
            let mut stranger = first.clone();
            if fault == Fault::ForeignDrive {
                stranger.superblock.store = StoreUuid::from_bytes([8; 16]);
                stranger.superblock.generation = 1;
            }
            found.push(stranger);
        }
        let plan = plan_open(&found, OpenRequest::default())?;
        Ok(Process {
            control: Control::start(&plan, nonce, scenario.shape.parity),
            control_since: None,
            control_completions: Vec::new(),
            lane_events: VecDeque::new(),
            lanes: Vec::new(),
            plan,
            nonce,
            greeting: BTreeMap::new(),
            ahead: Duration::ZERO,
            stopping: false,
            parity: usize::from(scenario.shape.parity),
            timeout: scenario.drive_timeout,
        })
    }

    /// Its clock.
    pub(crate) fn clock(&self, now: Time) -> Time {
        now + self.ahead
    }

    pub(crate) fn jump(&mut self, by: Duration) {
        self.ahead += by;
    }

    /// Who is a member, as far as it is durable.
    pub(crate) fn members(&self) -> BTreeSet<DriveNumber> {
        self.control.drives().into_iter().filter(|drive| drive.member).map(|drive| drive.number).collect()
    }

    /// The version of the list of members.
    pub(crate) fn membership(&self) -> u64 {
        self.control.superblock().membership
    }

    pub(crate) fn is_member(&self, drive: DriveNumber) -> bool {
        self.control.drives().iter().any(|known| known.number == drive && known.member)
    }

    /// The control part, for an operator.
    pub(crate) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    pub(crate) fn is_serving(&self) -> bool {
        !self.lanes.is_empty() && self.lanes.iter().all(|side| side.serving)
    }

    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        self.lanes.iter_mut().for_each(|side| side.service.stop());
    }

    /// After [`Process::stop`]: how it ended, when it has.
    pub(crate) fn has_stopped(&self) -> Option<bool> {
        let stopped = !self.lanes.is_empty() && self.lanes.iter().all(|side| side.stopped.is_some());
        let whole = self.lanes.iter().all(|side| side.stopped == Some(true));
        (stopped && (!whole || self.control.is_clean() || self.control.no_quorum().is_some())).then_some(whole)
    }

    /// The lanes, for whoever wants to know what lies where.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().map(|side| &side.lane)
    }

    /// Whose reads each lane slows.
    pub(crate) fn pressure(&self) -> Vec<Pressure> {
        self.lanes.iter().map(|side| side.service.pressure()).collect()
    }

    pub(crate) fn status(&self) -> Vec<LaneStatus> {
        self.lanes.iter().map(|side| side.lane.status()).collect()
    }

    /// What its lanes know to be lost or out of reach.
    pub(crate) fn losses(&mut self) -> Vec<Loss> {
        self.lanes.iter_mut().flat_map(|side| side.lane.losses(0, u32::MAX).losses).collect()
    }

    /// The first events that are stored, for people.
    pub(crate) fn stored_events(&self) -> Vec<StoredEvent> {
        let first = EventKey { run: RunId(0), event: EventId(0) };
        self.lanes.iter().flat_map(|side| side.lane.stored_events(first, 10)).collect()
    }

    /// Everything is to be looked at.
    pub(crate) fn scrub_all(&mut self) {
        self.lanes.iter_mut().for_each(|side| side.lane.scrub_all());
    }

    pub(crate) fn take_completion(&mut self, queue: Queue, completion: Completion) {
        match queue {
            Queue::Control => self.control_completions.push(completion),
            Queue::Lane(lane) => self.lanes[usize::from(lane)].completions.push(completion),
        }
    }

    pub(crate) fn next_wakeup(&self, now: Time) -> Option<Time> {
        if self.lanes.iter().any(|side| side.service.has_work() || side.has_news) {
            return Some(now);
        }
        let own = self.lanes.iter().flat_map(|side| [side.lane.next_wakeup(), side.service.next_retry()]);
        let own = own.flatten().min().map(|at| now + at.since(self.clock(now)));
        let round = self.lanes.iter().map(|side| side.looked_round + LOOK_ROUND).min();
        let control = match self.control_since {
            Some(_) => Some(now + self.timeout),
            None => self.control.next_look().map(|at| now + at.since(self.clock(now))),
        };
        [own, round, control].into_iter().flatten().min()
    }

    /// One turn of every thread that it has.
    pub(crate) fn turn(
        &mut self,
        now: Time,
        wall: WallTime,
        drives: &mut Drives,
        network: &mut Network,
        scenario: &Scenario,
    ) -> Vec<Told> {
        let mut told = Vec::new();
        self.turn_control(now, drives, &mut told);
        if self.lanes.is_empty() && self.control.is_started() {
            self.start_lanes(now, scenario);
        }
        self.greet(now, network);
        for number in 0..self.lanes.len() {
            self.lanes[number].lane.set_wall_time(wall);
            self.turn_lane(number, now, drives, network, &mut told);
        }
        told
    }

    fn turn_control(&mut self, now: Time, drives: &mut Drives, told: &mut Vec<Told>) {
        for completion in std::mem::take(&mut self.control_completions) {
            self.control.complete(&completion);
        }
        // It reads what lanes tell only while nothing of its own is on its way.
        while self.control.waiting_for().is_empty()
            && let Some((_, event)) = self.lane_events.pop_front()
        {
            match event {
                LaneEvent::DriveFailed { drive, reason } => {
                    self.control.drive_failed(drive);
                    told.push(Told::DriveFailed { drive, reason });
                }
                LaneEvent::Failed { reason } => told.push(Told::Failed { reason }),
                LaneEvent::DamageFound { .. } => self.control.renew_superblocks(),
                LaneEvent::Serving | LaneEvent::Stopped { .. } => {}
            }
            self.submit_control(now, drives);
        }
        if self.control.waiting_for().is_empty() {
            self.control.look_at_drives(self.clock(now));
        }
        if self.stopping && self.lanes.iter().all(|side| side.stopped == Some(true)) && !self.lanes.is_empty() {
            self.control.stop_clean();
        }
        let late = self.control_since.is_some_and(|since| now >= since + self.timeout);
        if late && self.control.waiting_for().len() <= self.parity {
            for drive in self.control.waiting_for() {
                self.control.give_up(drive);
                told.push(Told::DriveFailed { drive, reason: "it did not take a superblock in time".to_owned() });
            }
        }
        self.submit_control(now, drives);
        if let Some(reason) = self.control.no_quorum() {
            told.push(Told::Failed { reason: reason.to_owned() });
        }
        while let Some(message) = self.control.next_message() {
            self.lanes.iter_mut().for_each(|side| side.mailbox.push_back(message.clone()));
        }
        if self.control.waiting_for().is_empty() {
            self.control_since = None;
        }
    }

    fn submit_control(&mut self, now: Time, drives: &mut Drives) {
        while let Some((id, operation)) = self.control.next_operation() {
            drives.submit(now, Queue::Control, id, operation);
            self.control_since = Some(now);
        }
    }

    fn start_lanes(&mut self, now: Time, scenario: &Scenario) {
        let drives = self.control.drives();
        for lane in 0..scenario.lanes {
            let config = lane_config(scenario, &self.plan.superblock, lane, drives.clone(), self.nonce);
            let service = ServiceConfig {
                store: config.store,
                epoch: config.epoch,
                lanes: scenario.lanes,
                lane,
                fragment_bytes_max: config.geometry.fragment_bytes_max,
                read_only: false,
                has_files: config.has_files,
                staging_bytes: 1 << 20,
                out_buffer_bytes: 256 << 10,
                credit_bytes: 1 << 20,
                stall_timeout: Duration::from_secs(10),
                placed_bytes_min: scenario.placed_bytes_min,
                local: 0,
            };
            self.lanes.push(LaneSide {
                lane: Lane::new(config, self.clock(now)),
                service: Service::new(service),
                completions: Vec::new(),
                mailbox: VecDeque::new(),
                has_news: false,
                peers: BTreeMap::new(),
                next_id: 0,
                looked_round: now,
                serving: false,
                stopped: None,
                may_lose: scenario.beyond_after_events.is_some(),
                is_pool: scenario.pool,
                may_answer: true,
                knows_half_placed: scenario.knows(Fault::HalfPlaced),
                pressure: PressureCheck::default(),
            });
        }
        if self.stopping {
            self.stop();
        }
    }

    /// Takes connections and reads what they begin with.
    fn greet(&mut self, now: Time, network: &mut Network) {
        while let Some(id) = network.accept() {
            self.greeting.insert(id, Greeting::default());
        }
        if self.lanes.is_empty() {
            return;
        }
        let lanes = self.lanes.len() as u16;
        let ids: Vec<ConnectionId> = self.greeting.keys().copied().collect();
        for id in ids {
            let greeting = self.greeting.get_mut(&id).expect("listed just now");
            let Some(arrived) = network.arrived(now, id, Side::Server) else {
                self.greeting.remove(&id);
                continue;
            };
            let mut greeted = None;
            while !arrived.is_empty() && greeted.is_none() {
                let space = greeting.space();
                let bytes = space.len().min(arrived.len());
                space[..bytes].copy_from_slice(&arrived[..bytes]);
                arrived.drain(..bytes);
                greeted = greeting.filled(bytes, lanes).expect("clients greet as they should");
            }
            if let Some((hello, request)) = greeted {
                self.greeting.remove(&id);
                let side = &mut self.lanes[usize::from(hello.lane)];
                side.next_id += 1;
                side.peers.insert(side.next_id, id);
                side.service.open(side.next_id, hello.class, request);
                side.service.readable(side.next_id);
            } else if network.is_over(now, id, Side::Server) {
                self.greeting.remove(&id);
                network.close(now, id, Side::Server);
            }
        }
    }

    fn turn_lane(
        &mut self,
        number: usize,
        now: Time,
        drives: &mut Drives,
        network: &mut Network,
        told: &mut Vec<Told>,
    ) {
        let clock = self.clock(now);
        let stopping = self.stopping;
        let side = &mut self.lanes[number];
        side.has_news = false;
        if stopping {
            side.lane.stop();
        }
        let queue = Queue::Lane(number as u16);
        let events = &mut self.lane_events;
        let moved = side.run(now, clock, queue, drives, events);
        side.service.take_replies(&mut side.lane, clock, moved);
        let step = side.pressure.replies_taken(clock, &side.lane, &side.service);
        told.extend(step.map(|step| Told::Pressed { step }));
        side.note_readable(now, network);
        side.may_answer = !drives.is_fenced();
        side.write(now, network);
        let worked = side.work(now, network);
        if side.service.tend_files(&mut side.lane) || worked {
            let moved = side.run(now, clock, queue, drives, events);
            side.service.take_replies(&mut side.lane, clock, moved);
        }
        self.carry_messages(number);
        let side = &mut self.lanes[number];
        side.write(now, network);
        PressureCheck::turn_ended(&side.service);
        if now >= side.looked_round + LOOK_ROUND {
            side.looked_round = now;
            if !side.may_lose && !drives.is_fenced() {
                side.assert_nothing_is_lost();
            }
            for (id, _) in side.service.stalled(clock) {
                side.close(now, id, network);
            }
        }
    }
}

impl Process {
    /// What lanes tell each other of files arrives at once.
    fn carry_messages(&mut self, from: usize) {
        let mut messages = Vec::new();
        self.lanes[from].service.take_messages(&mut messages);
        for (lane, message) in messages {
            let side = &mut self.lanes[usize::from(lane)];
            side.service.message(message, &mut side.lane);
            side.has_news = true;
        }
    }
}

impl LaneSide {
    /// No more goes wrong than parity makes up for: nothing may be told as lost, though it may be out of reach for a while.
    fn assert_nothing_is_lost(&mut self) {
        let lost = |loss: &Loss| matches!(loss.kind, LossKind::Lost | LossKind::LostOrUnknown);
        let page = self.lane.losses(0, u32::MAX);
        let lost: Vec<&Loss> = page.losses.iter().filter(|loss| lost(loss)).collect();
        assert!(
            lost.is_empty() && page.not_remembered == 0,
            "no more went wrong than parity makes up for, and lost is {lost:?}"
        );
    }

    /// As `LaneRunner::turn`.
    fn run(
        &mut self,
        now: Time,
        clock: Time,
        queue: Queue,
        drives: &mut Drives,
        events: &mut VecDeque<(u16, LaneEvent)>,
    ) -> bool {
        let mut moved = false;
        for completion in self.completions.drain(..) {
            self.lane.complete(clock, completion);
            moved = true;
        }
        while let Some(message) = self.mailbox.pop_front() {
            self.lane.membership(&message);
            moved = true;
        }
        self.lane.set_media_full(self.is_pool && drives.is_filled_by_others(now));
        self.lane.pump(clock);
        while let Some((_, offset, _)) = self.lane.next_freed() {
            drives.discard(now, offset);
        }
        while let Some((id, operation)) = self.lane.next_operation() {
            drives.submit(now, queue, id, operation);
        }
        let Queue::Lane(number) = queue else { unreachable!("a lane has a lane's queue") };
        while let Some(event) = self.lane.next_event() {
            match event {
                LaneEvent::Serving => {
                    self.serving = true;
                    let status = self.lane.status();
                    let lost = (status.flushes_lost, status.segments_unreadable);
                    assert!(self.may_lose || lost == (0, 0), "recovery found less than was there: {status:?}");
                }
                LaneEvent::Stopped { whole } => self.stopped = Some(whole),
                LaneEvent::DriveFailed { .. } | LaneEvent::Failed { .. } | LaneEvent::DamageFound { .. } => {}
            }
            events.push_back((number, event));
        }
        moved
    }

    fn note_readable(&mut self, now: Time, network: &mut Network) {
        let ids: Vec<(u64, ConnectionId)> = self.peers.iter().map(|(id, connection)| (*id, *connection)).collect();
        for (id, connection) in ids {
            match network.arrived(now, connection, Side::Server).map(|arrived| arrived.is_empty()) {
                None => self.close(now, id, network),
                Some(false) => self.service.readable(id),
                Some(true) if network.is_over(now, connection, Side::Server) => self.close(now, id, network),
                Some(true) => {}
            }
        }
    }

    fn work(&mut self, now: Time, network: &mut Network) -> bool {
        let mut worked = false;
        while let Some(id) = self.service.next_connection() {
            worked = true;
            let Some(connection) = self.peers.get(&id).copied() else { continue };
            while let Some(arrived) = network.arrived(now, connection, Side::Server) {
                if self.service.work(id, &mut self.lane, !arrived.is_empty()) != Step::Read {
                    break;
                }
                match self.read_piece(id, arrived) {
                    Some(true) => continue,
                    Some(false) => {
                        network.counts.fire_and_meet(Fault::HalfPlaced);
                        self.close(now, id, network);
                        break;
                    }
                    None => {}
                }
                let space = self.service.read_space(id);
                let bytes = space.len().min(arrived.len());
                space[..bytes].copy_from_slice(&arrived[..bytes]);
                arrived.drain(..bytes);
                if bytes > 0 {
                    self.service.received(id, bytes);
                }
            }
        }
        worked
    }

    /// Reads the rest of a piece of a file to where it is stored, if all of it has arrived and has a place; whether all of it came.
    fn read_piece(&mut self, id: u64, arrived: &mut Vec<u8>) -> Option<bool> {
        let awaited = self.service.awaited_of_piece(id).filter(|awaited| *awaited <= arrived.len())?;
        let parts = self.service.place_of_piece(id, &mut self.lane)?;
        let comes = if self.knows_half_placed && awaited % 8 == 3 { awaited / 2 } else { awaited };
        let mut rest = &arrived[..comes];
        for part in parts {
            let (of_part, after) = rest.split_at(rest.len().min(part.len()));
            part[..of_part.len()].copy_from_slice(of_part);
            rest = after;
        }
        arrived.drain(..comes);
        if comes == awaited {
            self.service.piece_is_placed(id);
        }
        Some(comes == awaited)
    }

    /// As a server looks at its licence before each write to a socket.
    fn write(&mut self, now: Time, network: &mut Network) {
        if !self.may_answer {
            return;
        }
        let mut ids = Vec::new();
        self.service.take_dirty(&mut ids);
        let waiting = self.peers.keys().filter(|id| self.service.has_to_send(**id));
        ids.extend(waiting);
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            self.write_to(now, id, network);
        }
    }

    fn write_to(&mut self, now: Time, id: u64, network: &mut Network) {
        let Some(connection) = self.peers.get(&id).copied() else { return };
        loop {
            let piece =
                self.service.pieces_to_send(id).next().map(|piece| network.send(now, connection, Side::Server, piece));
            match piece {
                None | Some(0) => break,
                Some(sent) => self.service.sent(id, sent),
            }
        }
        if self.service.is_closing(id) && !self.service.has_to_send(id) {
            self.close(now, id, network);
        }
    }

    fn close(&mut self, now: Time, id: u64, network: &mut Network) {
        self.service.close(id);
        if let Some(connection) = self.peers.remove(&id) {
            network.close(now, connection, Side::Server);
        }
    }
}
