//! Bytes of files that are read to where they are stored, and not copied there.

use crate::lane_requests::LaneRequests;
use crate::request::{Body, FileWriteBody};

use super::Service;

impl Service {
    /// How many bytes of the write that a connection is at have not arrived, after [`super::Step::Read`]: when all of them are there they may be read to
    /// [`Service::place_of_piece`] instead of [`Service::read_space`]. `None`: they may not.
    pub fn awaited_of_piece(&mut self, id: u64) -> Option<usize> {
        let piece_bytes = self.core.config.placed_bytes_min..=self.core.piece_bytes_max();
        let may = !self.core.lane_is_busy;
        let arrived = self.connections.get(&id)?.receive.len();
        // Where an append goes, and whether it goes there at all, is found when it is asked for.
        let write = self.write_of(id).filter(|body| may && body.write.start.is_some())?.write;
        let bytes = Some(write.bytes as usize).filter(|bytes| piece_bytes.contains(bytes))?;
        bytes.checked_sub(arrived).filter(|awaited| *awaited > 0)
    }

    /// Where these bytes are to be read to, part by part, if the lane has a place for them now. Nothing else may be done before [`Service::piece_is_placed`] and
    /// [`Service::work`]. A connection of which not all could be read is to be closed.
    pub fn place_of_piece<'a>(&mut self, id: u64, lane: &'a mut impl LaneRequests) -> Option<Vec<&'a mut [u8]>> {
        let body = self.write_of(id)?;
        let mut parts = lane.place_of_write(&body.asked(), body.write.bytes as usize)?;
        let mut arrived = self.connections.get(&id)?.receive.bytes();
        for part in &mut parts {
            let (first, rest) = arrived.split_at(arrived.len().min(part.len()));
            let (to, after) = std::mem::take(part).split_at_mut(first.len());
            to.copy_from_slice(first);
            (*part, arrived) = (after, rest);
        }
        parts.retain(|part| !part.is_empty());
        Some(parts)
    }

    /// That all of them were read.
    pub fn piece_is_placed(&mut self, id: u64) {
        let connection = self.connections.get_mut(&id).expect("only open connections are read");
        let arrived = connection.receive.len();
        connection.receive.consume(arrived);
        self.write_of(id).expect("it had a place").is_placed = true;
    }

    /// The write that a connection is at.
    fn write_of(&mut self, id: u64) -> Option<&mut FileWriteBody> {
        let current = self.connections.get(&id)?.current?;
        match &mut self.requests.get_mut(&current)?.body {
            Body::FileWrite(body) => Some(body),
            _ => None,
        }
    }
}
