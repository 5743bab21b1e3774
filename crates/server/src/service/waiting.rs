//! What connections wait for, and how they go on.

use std::collections::BTreeMap;

use super::{Advance, Core, Step};
use crate::connection::{Connection, Place};
use crate::limits::{OUT_BUFFERS_MAX, OUT_BUFFERS_TOGETHER, REPLY_BYTES};
use crate::schedule::{CLASSES, class_place};

impl Core {
    /// Queues a connection for its turn.
    pub(super) fn queue(&mut self, id: u64, connection: &mut Connection) {
        connection.place = Place::Queued;
        self.schedule.push(connection.class, id);
    }

    /// How much a connection may have to send before it is not served further. When readers that do not read hold a lot together,
    /// each gets a frame at a time.
    pub(super) fn out_bytes_max(&self) -> usize {
        let together = self.out_bytes > OUT_BUFFERS_MAX.saturating_mul(self.config.out_buffer_bytes);
        if together { 1 } else { self.config.out_buffer_bytes.max(1) }
    }

    /// Whether more may be held for all connections together. When not, nobody is served what makes long replies until some of these are
    /// read; who reads none of them is given up soon.
    pub(super) fn has_room_for_replies(&self) -> bool {
        let frame = REPLY_BYTES + self.config.fragment_bytes_max as usize;
        self.out_bytes < OUT_BUFFERS_TOGETHER.saturating_mul(self.config.out_buffer_bytes).saturating_add(frame)
    }

    pub(super) fn wake_for_replies(&mut self, connections: &mut BTreeMap<u64, Connection>) {
        if !self.has_room_for_replies() {
            return;
        }
        while let Some(id) = self.for_replies.pop_front() {
            if let Some(connection) = connections.get_mut(&id) {
                self.queue(id, connection);
            }
        }
    }

    /// Whether a connection has so much to send that nothing more is read for it.
    pub(super) fn is_full(&self, connection: &Connection) -> bool {
        connection.out.len() + connection.reads_bytes >= self.out_bytes_max()
    }

    /// A connection that waited for its peer to read may go on when half of that is read.
    pub(super) fn wake_for_out(&mut self, id: u64, connection: &mut Connection) {
        let bytes = connection.out.len() + connection.reads_bytes;
        if connection.place == Place::Out && bytes < self.out_bytes_max().div_ceil(2) {
            self.queue(id, connection);
        }
    }

    pub(super) fn count_out(&mut self, connection: &mut Connection) {
        self.out_bytes = self.out_bytes - connection.out_counted + connection.out.len();
        connection.out_counted = connection.out.len();
    }

    /// Notes that a connection may have something new to send.
    pub(super) fn touch(&mut self, id: u64, connection: &mut Connection) {
        self.count_out(connection);
        if connection.out.is_empty() && !connection.closing {
            return;
        }
        connection.out_since.get_or_insert(self.now);
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Puts a connection where it waits.
    pub(super) fn settle(&mut self, id: u64, connection: &mut Connection, advance: Advance, readable: bool) -> Step {
        let awaited = if let Advance::Needs(unit) = advance { unit } else { 0 };
        let place = match advance {
            Advance::Done => unreachable!("what is done is followed by the next request"),
            Advance::Again => {
                self.queue(id, connection);
                // Until it goes on, which may be turns later, others read with what it needs no more of.
                connection.receive.settle(0, &mut self.staging);
                return Step::Again;
            }
            Advance::Needs(unit) => {
                if !readable {
                    connection.awaits_peer(self.now);
                    Place::Idle
                } else if connection.allowance == 0 {
                    self.queue(id, connection);
                    connection.receive.settle(awaited, &mut self.staging);
                    return Step::Again;
                } else if connection.receive.prepare(unit, &mut self.staging) {
                    connection.place = Place::Idle;
                    return Step::Read;
                } else {
                    self.wants_memory = !self.reclaimed;
                    Place::Staging
                }
            }
            Advance::Park(place) => place,
        };
        connection.place = place;
        // Who waits for anything but its peer keeps no larger buffer from others.
        connection.receive.settle(if place == Place::Idle { awaited } else { 0 }, &mut self.staging);
        if place != Place::Idle {
            connection.moved_on();
        }
        match place {
            Place::Busy => self.busy[usize::from(connection.worked > 0)].push_back(id),
            Place::Reads => self.for_reads[class_place(connection.class)].push_back(id),
            Place::Staging => self.for_staging.push_back(id),
            Place::Replies => self.for_replies.push_back(id),
            Place::Idle | Place::Out | Place::Answers => {}
            Place::Queued => unreachable!("nobody waits for being queued"),
        }
        Step::Wait
    }

    pub(super) fn has_busy(&self) -> bool {
        self.busy.iter().any(|busy| !busy.is_empty())
    }

    /// Those that the lane was too busy for have their turn before others.
    pub(super) fn wake_busy(&mut self, connections: &mut BTreeMap<u64, Connection>) {
        self.lane_is_busy = false;
        for id in self.busy.iter_mut().flat_map(|busy| busy.drain(..)).rev() {
            if let Some(connection) = connections.get_mut(&id) {
                connection.place = Place::Queued;
                self.schedule.push_front(connection.class, id);
            }
        }
    }

    pub(super) fn wake_for_reads(&mut self, connections: &mut BTreeMap<u64, Connection>) {
        for class in CLASSES {
            if !self.may_read(class) {
                continue;
            }
            while let Some(id) = self.for_reads[class_place(class)].pop_front() {
                if let Some(connection) = connections.get_mut(&id) {
                    self.queue(id, connection);
                }
            }
        }
    }

    /// Asks memory back: from connections that wait for their peers, which keep what arrived and no more, and from those that hold a
    /// larger buffer for a small rest.
    pub(super) fn reclaim(&mut self, connections: &mut BTreeMap<u64, Connection>) {
        (self.wants_memory, self.reclaimed) = (false, true);
        for connection in connections.values_mut() {
            let receive = &mut connection.receive;
            let gives = match connection.place {
                Place::Idle => receive.is_base(),
                Place::Queued => receive.is_oversized(),
                _ => false,
            };
            if gives {
                receive.shrink(&mut self.staging);
            }
        }
    }

    /// Those for whom there is still no room will wait again.
    pub(super) fn wake_for_staging(&mut self, connections: &mut BTreeMap<u64, Connection>) {
        if !self.staging.take_released() {
            return;
        }
        while let Some(id) = self.for_staging.pop_front() {
            if let Some(connection) = connections.get_mut(&id) {
                self.queue(id, connection);
            }
        }
    }
}
