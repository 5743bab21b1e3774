//! The server's side of some connections of a lane, which send what they like, in pieces, do not read, and go away; on the pretended lane
//! of the server's own tests, which refuses, is busy and answers late. An input is what the lane is like, then steps.
#![no_main]

#[path = "../../crates/server/tests/machine/fake.rs"]
#[allow(dead_code, reason = "the tests of the server use the rest")]
mod fake;

use std::collections::BTreeMap;

use fake::{Will, World};
use forebay_fuzz::{Parts, bounded, mend_frame};
use forebay_protocol::{Class, HEADER_BYTES, limits::FRAME_TABLE_BYTES_MAX};
use forebay_server::limits::{KEPT_BYTES, READ_BYTES};
use forebay_server::{LaneRequests, ServiceConfig};
use forebay_types::FragmentId;
use libfuzzer_sys::fuzz_target;

const CONNECTIONS_MAX: usize = 5;
const STEPS_MAX: usize = 300;

/// What a connection did.
#[derive(Default)]
struct Sent {
    /// The requests of whole frames, in order.
    requests: Vec<u64>,
    /// The requests that were answered to the end.
    answered: Vec<u64>,
    /// It sent bytes that are no frames, or it is gone: not everything need be answered.
    is_broken: bool,
}

struct Case {
    world: World,
    sent: BTreeMap<u64, Sent>,
    staging_max: usize,
}

impl Case {
    fn new(kind: u8) -> Case {
        let config = ServiceConfig {
            fragment_bytes_max: if kind & 1 == 0 { 1 << 20 } else { 600 },
            staging_bytes: if kind & 2 == 0 { 4 << 20 } else { 1 },
            out_buffer_bytes: if kind & 4 == 0 { 1 << 20 } else { 100 },
            credit_bytes: if kind & 8 == 0 { 16 << 20 } else { 1 },
            read_only: kind & 16 != 0,
            placed_bytes_min: if kind & 32 == 0 { 64 << 10 } else { 1 },
            ..fake::config()
        };
        // `Staging::new`: buffers, larger ones, and rests, of which those that take the place of a larger buffer always fit.
        let unit_bytes_max = (HEADER_BYTES + FRAME_TABLE_BYTES_MAX).max(config.fragment_bytes_max as usize);
        let budget = config.staging_bytes;
        let staging_max = (budget / 2).max(4 * READ_BYTES)
            + (budget / 4).max(unit_bytes_max)
            + budget / 4
            + CONNECTIONS_MAX * KEPT_BYTES;
        Case { world: World::new(config), sent: BTreeMap::new(), staging_max }
    }

    fn connect(&mut self, class: u8) {
        if self.sent.len() < CONNECTIONS_MAX {
            let id = self
                .world
                .connect([Class::Readout, Class::Filter, Class::Mover, Class::Monitor][usize::from(class % 4)]);
            self.sent.insert(id, Sent::default());
        }
    }

    fn step(&mut self, parts: &mut Parts<'_>) {
        let what = parts.byte();
        let id = 2 + u64::from(what >> 4) % self.sent.len() as u64;
        let (world, sent) = (&mut self.world, self.sent.get_mut(&id).expect("it was connected"));
        match what & 15 {
            0..=3 => {
                let frame = mend_frame(parts.piece());
                sent.requests.push(u64::from_le_bytes(frame[8..16].try_into().expect("eight bytes")));
                world.send(id, &frame);
            }
            4 => {
                sent.is_broken = true;
                world.send(id, parts.piece());
            }
            5 => world.turn(false),
            6 => world.turn(true),
            7 => {
                world.lane.settle();
                world.turn(true);
            }
            8 => {
                world.now.0 += u64::from(parts.byte()) * 40_000_000;
                for (id, _) in world.service.stalled(world.now) {
                    self.sent.get_mut(&id).expect("it was connected").is_broken = true;
                    self.leave(id);
                }
            }
            9 => {
                let peer = world.peers.get_mut(&id).expect("it was connected");
                peer.deaf = !peer.deaf;
            }
            10 => {
                sent.is_broken = true;
                self.leave(id);
            }
            11 => {
                let bits = parts.byte();
                let will = [Will::Take, Will::Refuse, Will::BeBusy, Will::Take];
                world.lane.will.extend((0..4).map(|at| will[usize::from(bits >> (2 * at) & 3)]));
            }
            12 => {
                let (event, source, bytes, is_cached) =
                    (parts.byte(), parts.byte() % 16, parts.u16(), parts.byte() & 1);
                let id = FragmentId::new(1, event.into(), source.into());
                world.lane.stored.insert(id, (vec![event; usize::from(bytes)], is_cached == 1));
            }
            13 => {
                let pieces = &mut world.peers.get_mut(&id).expect("it was connected").pieces;
                pieces.extend(parts.bytes(4).iter().map(|piece| usize::from(*piece)));
            }
            14 => match parts.byte() {
                0 => world.service.stop(),
                1 => world.lane.not_serving = !world.lane.not_serving,
                left => world.lane.segments_free = u64::from(left % 100),
            },
            _ => self.connect(parts.byte()),
        }
        self.take_frames();
    }

    fn leave(&mut self, id: u64) {
        self.world.service.close(id);
        let peer = self.world.peers.get_mut(&id).expect("it was connected");
        (peer.ended, peer.deaf) = (true, false);
        peer.wire.clear();
    }

    /// What was answered, and bounds that always hold.
    fn take_frames(&mut self) {
        for (id, sent) in &mut self.sent {
            sent.is_broken |= self.world.peers[id].ended;
            sent.answered.extend(self.world.take(*id).iter().filter(|frame| !frame.more).map(|frame| frame.request));
        }
        self.world.lane.given.clear();
        assert!(self.world.staging_most <= self.staging_max, "{} bytes of buffers", self.world.staging_most);
    }

    /// Everything that was asked is answered once, and nothing is held for it any more.
    fn end(mut self) {
        self.world.lane.will.clear();
        self.world.lane.not_serving = false;
        self.world.peers.values_mut().for_each(|peer| peer.deaf = false);
        self.world.run();
        self.take_frames();
        for sent in self.sent.values_mut().filter(|sent| !sent.is_broken) {
            sent.requests.sort_unstable();
            sent.answered.sort_unstable();
            assert_eq!(sent.answered, sent.requests, "each request is answered once");
        }
        let ids: Vec<u64> = self.sent.keys().copied().collect();
        ids.into_iter().for_each(|id| self.leave(id));
        // Then what its clients had open is given up, each in its time.
        while let Some(at) = self.world.service.next_retry() {
            assert!(at > self.world.now, "what is due is done");
            self.world.now = at;
            self.world.run();
        }
        assert!(self.world.lane.next_reply().is_none());
        assert_eq!((self.world.service.staging_bytes(), self.world.service.requests_pending()), (0, 0));
    }
}

fuzz_target!(|input: &[u8]| {
    // Receive buffers, answers that are not read, and what the pretended wire and lane hold.
    bounded(64 << 20, || {
        let mut parts = Parts::of(input);
        let mut case = Case::new(parts.byte());
        case.connect(parts.byte());
        for _ in 0..STEPS_MAX {
            if parts.is_empty() {
                break;
            }
            case.step(&mut parts);
        }
        case.end();
    });
});
