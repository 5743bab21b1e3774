//! Owners and standbys in worlds of their own: a cluster whose drives learn of a fence one by one, or a file system with a lock that a command fences; operations that
//! arrive late, fences that fail, or succeed though they were said to fail, processes that stand still and are killed at any step, and a clock that runs. What was
//! promised is asserted after each event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use forebay_takeover::{Answer, Owner, Patience, Renewal, Seen, Standby, Step, Timing};
use forebay_types::Time;

/// Groups of drives, each of which learns of the newest map by itself, or from whoever asks it and has it.
const GROUPS: usize = 4;

type Client = u32;

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// An object that an owner writes.
    Write {
        group: usize,
        object: u64,
    },
    Pulse,
    Look,
    Fence(Client),
    Map,
    List {
        group: usize,
    },
    Break(Client),
    Lock,
}

/// What the store lies on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ground {
    /// Pools: each group of drives takes things from a fenced client until it knows the map. The lock is broken for everybody.
    #[default]
    Pools,
    /// Files: who is fenced is shut out at once. The lock is one of the file system, which goes with its process; the owner is whoever is written down.
    Files,
}

/// The cluster.
#[derive(Default)]
struct Cluster {
    ground: Ground,
    /// Of files: who has the lock of the file system.
    file_lock: Option<Client>,
    /// Who is fenced since which map.
    fenced: BTreeMap<Client, u64>,
    map: u64,
    /// What each group knows.
    known: [u64; GROUPS],
    objects: BTreeSet<u64>,
    holder: Option<Client>,
    pulse: u64,
    changes: u64,
}

/// What the cluster says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Done,
    Refused,
    Held,
    /// It was not done, or nobody says that it was.
    Failed,
    Seen(Option<Client>, u64),
    Map(u64),
}

impl Cluster {
    fn is_fenced(&self, client: Client, group: usize) -> bool {
        self.fenced.get(&client).is_some_and(|since| *since <= self.known[group])
    }

    /// `map` is the newest that the client knows. Group 0 has the lock.
    fn take(&mut self, client: Client, map: u64, operation: Operation) -> Said {
        let group = match operation {
            Operation::Write { group, .. } | Operation::List { group } => group,
            _ => 0,
        };
        if !matches!(operation, Operation::Map | Operation::Fence(_)) {
            self.known[group] = self.known[group].max(map);
            if self.is_fenced(client, group) {
                return Said::Refused;
            }
        }
        if self.ground == Ground::Files
            && let Some(said) = self.take_on_files(client, operation)
        {
            return said;
        }
        match operation {
            Operation::Write { object, .. } => {
                self.objects.insert(object);
            }
            Operation::Pulse if self.holder != Some(client) => return Said::Refused,
            Operation::Pulse => {
                self.changes += 1;
                self.pulse = self.changes;
            }
            Operation::Look => return Said::Seen(self.holder, self.pulse),
            Operation::Fence(other) => {
                self.map += 1;
                self.fenced.entry(other).or_insert(self.map);
            }
            Operation::Map => return Said::Map(self.map),
            Operation::List { .. } => {}
            Operation::Break(other) => self.holder = self.holder.filter(|holder| *holder != other),
            Operation::Lock => match self.holder {
                Some(holder) if holder != client => return Said::Held,
                _ => {
                    self.holder = Some(client);
                    self.changes += 1;
                    self.pulse = self.changes;
                }
            },
        }
        Said::Done
    }
}

impl Cluster {
    /// What is different where the store lies in files; nothing where it is not.
    fn take_on_files(&mut self, client: Client, operation: Operation) -> Option<Said> {
        match operation {
            Operation::Look if self.holder != Some(client) => self.unlock(client),
            Operation::Fence(other) => {
                self.map += 1;
                self.fenced.entry(other).or_insert(self.map);
                self.known = [self.map; GROUPS];
                self.unlock(other);
                return Some(Said::Done);
            }
            Operation::Break(other) => {
                let is_free = self.file_lock.is_none() && self.holder == Some(other);
                if is_free {
                    self.file_lock = Some(client);
                }
                return Some(if is_free { Said::Done } else { Said::Failed });
            }
            Operation::Lock => {
                let may = self.file_lock == Some(client) || (self.file_lock.is_none() && self.holder.is_none());
                if !may {
                    return Some(Said::Held);
                }
                (self.file_lock, self.holder) = (Some(client), None);
            }
            _ => {}
        }
        None
    }

    /// The file system takes the lock from whoever is gone.
    fn unlock(&mut self, client: Client) {
        self.file_lock = self.file_lock.filter(|holder| *holder != client);
    }
}

enum Role {
    Standby(Box<Standby<Client>>),
    Owner { owner: Owner, next_object: u64 },
    Gone,
}

struct Process {
    client: Client,
    map: u64,
    role: Role,
    /// Runs again at this time.
    stands_still_until: Time,
    lock_asked_at: Time,
    lists_left: usize,
}

enum Event {
    /// An operation reaches the cluster.
    Arrives(usize, Client, Operation),
    /// The answer reaches its process.
    Answered(usize, Client, Operation, Said),
}

struct World {
    rng: Rng,
    now: Time,
    timing: Timing,
    cluster: Cluster,
    processes: Vec<Process>,
    events: Vec<(Time, u64, Event)>,
    sequence: u64,
    next_client: Client,
    next_object: u64,
    /// What owners were told is written.
    acknowledged: BTreeSet<u64>,
    takeovers: u64,
    log: VecDeque<String>,
}

impl World {
    fn new(seed: u64, ground: Ground) -> World {
        let mut world = World {
            rng: Rng::with_seed(seed),
            now: Time::default() + Duration::from_secs(100),
            timing: Timing::new(Duration::from_secs(9)).expect("times that work"),
            cluster: Cluster { ground, ..Cluster::default() },
            processes: Vec::new(),
            events: Vec::new(),
            sequence: 0,
            next_client: 0,
            next_object: 0,
            acknowledged: BTreeSet::new(),
            takeovers: 0,
            log: VecDeque::new(),
        };
        for _ in 0..3 {
            world.begin();
        }
        world
    }

    fn begin(&mut self) {
        let patience = match self.rng.u8(0..10) {
            0 => Patience::None,
            1 => Patience::UntilSeenAlive,
            _ => Patience::ForEver,
        };
        self.next_client += 1;
        let standby = Standby::new(self.timing, patience, self.now);
        self.processes.push(Process {
            client: self.next_client,
            map: self.cluster.map,
            role: Role::Standby(Box::new(standby)),
            stands_still_until: Time::default(),
            lock_asked_at: Time::default(),
            lists_left: 0,
        });
    }

    /// Mostly soon, sometimes very late.
    fn delay(&mut self) -> Duration {
        match self.rng.u8(0..40) {
            0 => Duration::from_millis(self.rng.u64(0..30_000)),
            1..4 => Duration::from_millis(self.rng.u64(0..3000)),
            _ => Duration::from_micros(self.rng.u64(100..20_000)),
        }
    }

    fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.events.push((time, self.sequence, event));
    }

    fn ask(&mut self, process: usize, operation: Operation) {
        let client = self.processes[process].client;
        let at = self.now + self.delay();
        self.at(at, Event::Arrives(process, client, operation));
    }

    /// The next event, or a step of time.
    fn turn(&mut self) {
        let next = self.events.iter().enumerate().min_by_key(|(_, (at, sequence, _))| (*at, *sequence));
        let step = self.now + Duration::from_millis(50);
        match next.map(|(place, (at, ..))| (place, *at)) {
            Some((place, at)) if at <= step => {
                let (at, _, event) = self.events.swap_remove(place);
                self.now = self.now.max(at);
                self.happen(event);
            }
            _ => self.now = step,
        }
        self.disturb();
        for process in 0..self.processes.len() {
            if self.now >= self.processes[process].stands_still_until {
                self.run(process);
            }
        }
        self.check();
    }

    fn disturb(&mut self) {
        let process = self.rng.usize(0..self.processes.len());
        match self.rng.u32(0..6000) {
            0..6 => {
                // kill -9: what it asked for is still on its way.
                self.kill(process);
            }
            6..18 => {
                // SIGSTOP, and SIGCONT later.
                let still = Duration::from_millis(self.rng.u64(0..40_000));
                self.processes[process].stands_still_until = self.now + still;
            }
            18..200 => {
                // Drives tell each other of the newest map.
                let group = self.rng.usize(0..GROUPS);
                self.cluster.known[group] = self.cluster.map;
            }
            _ => {}
        }
    }

    fn kill(&mut self, process: usize) {
        self.cluster.unlock(self.processes[process].client);
        self.processes[process].role = Role::Gone;
        self.begin();
    }

    /// A fence that reaches the cluster. One in three fails, and of these some have done what they were to do.
    fn fence(&mut self, process: usize, client: Client, other: Client) -> Said {
        let luck = self.rng.u8(0..12);
        if luck < 3 {
            return Said::Failed;
        }
        let said = self.cluster.take(client, self.processes[process].map, Operation::Fence(other));
        // The command of an operator ends the process, or keeps it from the file system.
        let fenced = self.processes.iter().position(|own| own.client == other && !matches!(own.role, Role::Gone));
        if let Some(fenced) = fenced.filter(|_| self.cluster.ground == Ground::Files && self.rng.bool()) {
            self.kill(fenced);
        }
        if luck < 4 { Said::Failed } else { said }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives(process, client, operation) => {
                let map = self.processes[process].map;
                let said = match operation {
                    Operation::Fence(other) => self.fence(process, client, other),
                    _ => self.cluster.take(client, map, operation),
                };
                if let (Operation::Write { object, .. }, Said::Done) = (operation, said) {
                    self.assert_not_replaced(client, object);
                }
                let at = self.now + self.delay();
                self.at(at, Event::Answered(process, client, operation, said));
            }
            Event::Answered(process, client, operation, said) => {
                let still = self.processes[process].stands_still_until;
                if still > self.now {
                    return self.at(still, Event::Answered(process, client, operation, said));
                }
                self.answer(process, operation, said);
            }
        }
    }

    /// Nothing of an earlier owner comes after a later one has its list.
    fn assert_not_replaced(&self, client: Client, object: u64) {
        let later = self.processes.iter().find(|other| {
            other.client != client
                && matches!(other.role, Role::Owner { .. })
                && self.cluster.holder == Some(other.client)
        });
        if let Some(later) = later {
            panic!(
                "object {object} of client {client} came after client {} owns the store\n{}",
                later.client,
                self.told()
            );
        }
    }

    fn answer(&mut self, process: usize, operation: Operation, said: Said) {
        let (now, timing) = (self.now, self.timing);
        let own = &mut self.processes[process];
        match &mut own.role {
            Role::Gone => {}
            Role::Owner { owner, .. } => match (operation, said) {
                (Operation::Pulse, said) => {
                    let renewal = match said {
                        Said::Done => Renewal::Written,
                        _ => Renewal::NotOwner,
                    };
                    self.log.push_back(format!("{now:?} client {}: pulse {renewal:?}", own.client));
                    owner.pulsed(now, renewal);
                }
                (Operation::Write { object, .. }, Said::Done) if owner.may_answer(now) => {
                    self.acknowledged.insert(object);
                }
                _ => {}
            },
            Role::Standby(standby) => {
                if let Said::Map(map) = said {
                    own.map = own.map.max(map);
                }
                if matches!(operation, Operation::List { .. }) && said == Said::Done && own.lists_left > 1 {
                    own.lists_left -= 1;
                    return;
                }
                let answer = match (operation, said) {
                    (_, Said::Refused | Said::Failed) => Answer::Unknown,
                    (_, Said::Held) => Answer::Held,
                    (_, Said::Seen(holder, pulse)) => {
                        Answer::Seen(Seen { holder, pulse: pulse.to_le_bytes().to_vec() })
                    }
                    _ => Answer::Done,
                };
                if let Some(step) = standby.answered(now, answer) {
                    self.log.push_back(format!("{now:?} client {}: {step:?}", own.client));
                    if self.log.len() > 400 {
                        self.log.drain(..200);
                    }
                    if step == Step::Own {
                        own.role = Role::Owner { owner: Owner::new(timing, own.lock_asked_at), next_object: 0 };
                        let client = own.client;
                        return self.owns(client);
                    }
                    self.take_step(process, step);
                }
            }
        }
    }

    /// What it must find when it owns the store.
    fn owns(&mut self, client: Client) {
        self.takeovers += 1;
        let missing: Vec<_> = self.acknowledged.difference(&self.cluster.objects).collect();
        assert!(missing.is_empty(), "{missing:?} were acknowledged, and are not there for client {client}");
    }

    fn take_step(&mut self, process: usize, step: Step<Client>) {
        if self.cluster.ground == Ground::Files && matches!(step, Step::AwaitNewestMap | Step::List) {
            // Nothing to be done, and no time passes.
            self.processes[process].lists_left = 1;
            return self.answer(process, Operation::List { group: 0 }, Said::Done);
        }
        let operation = match step {
            Step::Look => Operation::Look,
            Step::Fence(holder) => Operation::Fence(holder),
            Step::AwaitNewestMap => Operation::Map,
            Step::List => {
                self.processes[process].lists_left = GROUPS;
                (1..GROUPS).for_each(|group| self.ask(process, Operation::List { group }));
                Operation::List { group: 0 }
            }
            Step::Break(holder) => Operation::Break(holder),
            Step::Lock => {
                self.processes[process].lock_asked_at = self.now;
                Operation::Lock
            }
            Step::Own => return,
            Step::LeaveAlone(_) => {
                self.processes[process].role = Role::Gone;
                return self.begin();
            }
        };
        self.ask(process, operation);
    }

    fn run(&mut self, process: usize) {
        let now = self.now;
        match &mut self.processes[process].role {
            Role::Gone => {}
            Role::Standby(standby) => {
                if let Some(step) = standby.next_step(now) {
                    self.take_step(process, step);
                }
            }
            Role::Owner { owner, .. } if owner.is_replaced() => {
                // It ends, as the server does.
                self.processes[process].role = Role::Gone;
                self.begin();
            }
            Role::Owner { owner, next_object } => {
                *next_object += 1;
                let writes = *next_object % 5 == 0;
                if owner.next_pulse(now).is_some() {
                    self.ask(process, Operation::Pulse);
                }
                if writes {
                    self.next_object += 1;
                    let (group, object) = (self.rng.usize(0..GROUPS), self.next_object);
                    self.ask(process, Operation::Write { group, object });
                }
            }
        }
    }

    /// At no time may two of them answer, stopped ones included: they could go on at any moment.
    fn check(&self) {
        let answering: Vec<Client> = self
            .processes
            .iter()
            .filter(|process| matches!(&process.role, Role::Owner { owner, .. } if owner.may_answer(self.now)))
            .map(|process| process.client)
            .collect();
        assert!(answering.len() <= 1, "clients {answering:?} may answer at once\n{}", self.told());
    }

    fn told(&self) -> String {
        self.log.iter().rev().take(60).rev().cloned().collect::<Vec<_>>().join("\n")
    }
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("FOREBAY_TAKEOVER_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(300);
    0..count
}

#[test]
fn no_two_servers_own_a_store_in_pools_and_nothing_that_was_acknowledged_is_missing() {
    play(Ground::Pools);
}

#[test]
fn no_two_servers_own_a_store_in_files_and_nothing_that_was_acknowledged_is_missing() {
    play(Ground::Files);
}

fn play(ground: Ground) {
    let mut takeovers = 0;
    for seed in seeds() {
        let mut world = World::new(seed, ground);
        for _ in 0..20_000 {
            world.turn();
        }
        takeovers += world.takeovers;
    }
    let seeds = seeds().count() as u64;
    println!("{ground:?}: {seeds} seeds, {takeovers} takeovers");
    assert!(takeovers > 5 * seeds, "{takeovers} takeovers in {seeds} worlds: nothing was tried");
}

#[test]
fn a_holder_that_cannot_be_fenced_keeps_the_store_and_is_tried_later_each_time() {
    let timing = Timing::new(Duration::from_secs(9)).expect("times that work");
    let mut now = Time::default() + Duration::from_secs(100);
    let mut standby: Standby<Client> = Standby::new(timing, Patience::ForEver, now);
    let mut pulse = 1;
    let seen = |pulse: u8| Answer::Seen(Seen { holder: Some(7), pulse: vec![pulse] });
    let mut fenced_at = Vec::new();
    // Looks until it is to be fenced, and fails to be.
    let mut until_fenced = |standby: &mut Standby<Client>, now: &mut Time, pulse: u8| loop {
        *now = standby.next_wakeup().expect("nothing is on its way");
        assert_eq!(standby.next_step(*now), Some(Step::Look));
        if standby.answered(*now, seen(pulse)) == Some(Step::Fence(7)) {
            fenced_at.push(*now);
            assert_eq!(standby.answered(*now, Answer::Unknown), None, "nothing is taken");
            return;
        }
    };
    (0..8).for_each(|_| until_fenced(&mut standby, &mut now, pulse));
    // It comes back to life, and dies.
    pulse += 1;
    (0..2).for_each(|_| until_fenced(&mut standby, &mut now, pulse));
    let pauses_ms: Vec<u128> = fenced_at.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
    assert_eq!(pauses_ms, [500, 1000, 2000, 4000, 8000, 9000, 9000, 18_000, 500]);
}
