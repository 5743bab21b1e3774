//! Standbys that die (kill -9) at each step of a takeover: another one takes over, and all that was acknowledged is there.
//!
//! Of two standbys the first one that comes to the step dies, when it says that it begins with it or a little later.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use forebay_client::{Client, ClientConfig};
use forebay_types::{EventId, EventKey, RunId};

use crate::CLUSTER;
use crate::ceph::Ceph;
use crate::common::load::{Random, from_environment, long_form};
use crate::common::owners::{FREE, assert_has, payload, put};
use crate::common::pools::{MEDIA, init};

/// As the log names them; the last three are those of a server that has the store and does not serve yet, and of one that does.
const STEPS: [&str; 9] = ["fence", "newest map", "list", "look again", "break", "lock", "places", "recover", "serving"];

const NAME: &str = "steps";

/// Puts of a round, and how many of those before stay: what is deleted is gone after the next takeover, too.
const PUTS: u64 = 40;
const ROUNDS_KEPT: u64 = 6;

/// What a standby says.
struct Standby {
    child: Child,
    /// Lines of its log; last, with `serving ` before it, its address.
    told: Receiver<String>,
    log: Vec<String>,
}

impl Standby {
    fn start(name: &str) -> Standby {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["serve", "--media", MEDIA, "--name", name, "--dead-after", "1", "--standby", "--listen", FREE]);
        command.env("FOREBAY_LOG", "info,forebay::rados=debug");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (tell, told) = channel();
        let tell_ready = tell.clone();
        let (stdout, stderr) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        // Whoever asked may have stopped listening.
        std::thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        });
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| drop(tell_ready.send(line)));
        });
        Standby { child, told, log: Vec::new() }
    }

    /// What it said since the last time; whether it has come to a step.
    fn has_come_to(&mut self, step: &str) -> bool {
        let new: Vec<String> = self.told.try_iter().collect();
        let found = match step {
            "serving" => new.iter().any(|line| address_in(line).is_some()),
            step => new.iter().any(|line| line.contains(&format!("step=\"{step}\""))),
        };
        self.log.extend(new);
        found
    }

    /// Waits until it serves, and where; nothing when it was taken for dead, as it may be on a machine that is slow.
    fn address(&mut self) -> Option<String> {
        loop {
            if let Some(address) = self.log.iter().find_map(|line| address_in(line)) {
                return Some(address);
            }
            match self.told.recv() {
                Ok(line) => self.log.push(line),
                Err(_) => {
                    assert_eq!(self.child.wait().expect("ours").code(), Some(3), "a standby ended by itself");
                    return None;
                }
            }
        }
    }

    fn was_taken_for_dead(&mut self) -> bool {
        let ended = self.child.try_wait().expect("ours");
        assert!(ended.is_none_or(|ended| ended.code() == Some(3)), "a standby ended by itself: {ended:?}");
        ended.is_some()
    }

    fn kill(mut self) {
        self.child.kill().expect("ours to kill");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.log.extend(self.told.try_iter());
            eprintln!("a standby's log:\n{}", self.log.join("\n"));
        }
    }
}

fn address_in(line: &str) -> Option<String> {
    let rest = line.strip_prefix("serving store ")?;
    Some(rest.split_once(" on ")?.1.split(',').next()?.to_owned())
}

/// A client of what serves the store in the end.
fn client_of(server: &mut Standby) -> Client {
    let address = loop {
        match server.address() {
            Some(address) => break address,
            None => *server = Standby::start(NAME),
        }
    };
    Client::connect(ClientConfig::new(address, "test").deadline(None)).expect("connected")
}

/// Kills the first of two that comes to a step; the other one is left.
fn kill_at(step: &str, after: Duration, mut two: [Standby; 2]) -> Standby {
    loop {
        for place in 0..2 {
            if two[place].has_come_to(step) {
                std::thread::sleep(after);
                let [first, second] = two;
                let (dies, lives) = if place == 0 { (first, second) } else { (second, first) };
                dies.kill();
                return lives;
            }
            if two[place].was_taken_for_dead() {
                two[place] = Standby::start(NAME);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_standby_may_die_at_each_step_of_a_takeover() {
    let Some(_ceph) = Ceph::of_hosts() else { return };
    let _together = CLUSTER.read();
    let rounds = from_environment("FOREBAY_KILL_ROUNDS").unwrap_or(if long_form() { 180 } else { 20 });
    let seed = from_environment("FOREBAY_KILL_SEED").unwrap_or(1);
    println!("seed {seed}, {rounds} rounds");
    let mut random = Random(seed);
    init(NAME).expect(0);
    let mut server = Standby::start(NAME);
    let (mut next, mut first_kept) = (0, 0);
    let mut killed_at = [0u64; STEPS.len()];
    for round in 0..rounds {
        let mut client = client_of(&mut server);
        assert_has(&mut client, first_kept..next);
        let mut gone = first_kept.saturating_sub(PUTS)..first_kept;
        assert!(gone.all(|event| client.get(crate::common::owners::id(event)).is_err()), "deleted");
        put(&mut client, next..next + PUTS);
        next += PUTS;
        if next - first_kept > ROUNDS_KEPT * PUTS {
            let old: Vec<EventKey> = (first_kept..first_kept + PUTS)
                .map(|event| EventKey { run: RunId(1), event: EventId(event) })
                .collect();
            assert!(client.delete(&old).expect("deleted").iter().all(|outcome| outcome.is_done()));
            first_kept += PUTS;
        }
        // Some that nobody waits for are on their way when it dies.
        for event in next..next + PUTS {
            client.put(crate::common::owners::id(event), 1, &payload(event)).expect("taken");
        }
        let two = [Standby::start(NAME), Standby::start(NAME)];
        server.kill();
        let step = round as usize % STEPS.len();
        let after = Duration::from_micros(if random.percent(50) { 0 } else { random.below(30_000) });
        server = kill_at(STEPS[step], after, two);
        killed_at[step] += 1;
    }
    let mut client = client_of(&mut server);
    assert_has(&mut client, first_kept..next);
    println!("standbys killed, at each of {STEPS:?}: {killed_at:?}; {next} puts");
    assert!(rounds < STEPS.len() as u64 || killed_at.iter().all(|kills| *kills > 0));
}
