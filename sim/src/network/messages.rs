//! Messages on a connection, told apart so that something may happen to each.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_protocol::{FrameHeader, HEADER_BYTES, decode_header};
use forebay_types::Time;

use super::Pipe;
use crate::faults::{Fault, FaultCounts};
use crate::random::Random;

/// Finds messages in what is sent.
#[derive(Default)]
pub(super) struct Messages {
    /// The beginning of one that is not sent whole yet.
    partial: Vec<u8>,
    /// Requests of whose answer a part was sent, and not the last.
    in_parts: BTreeSet<u64>,
}

/// A frame as it was sent.
pub(super) struct Message {
    bytes: Vec<u8>,
    /// One part of an answer of several: such an answer is one message, and nothing happens to it.
    is_part: bool,
}

impl Messages {
    /// The frames that are whole now.
    pub(super) fn split(&mut self, bytes: &[u8]) -> Vec<Message> {
        self.partial.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(header) = self.next_header() {
            let rest = self.partial.split_off(header.frame_bytes());
            let bytes = std::mem::replace(&mut self.partial, rest);
            let had_parts = match header.more() {
                true => !self.in_parts.insert(header.request),
                false => self.in_parts.remove(&header.request),
            };
            messages.push(Message { bytes, is_part: header.more() || had_parts });
        }
        messages
    }

    fn next_header(&self) -> Option<FrameHeader> {
        let header = decode_header(self.partial.first_chunk::<HEADER_BYTES>()?).expect("both sides send frames alone");
        (self.partial.len() >= header.frame_bytes()).then_some(header)
    }

    /// What is no whole message.
    pub(super) fn rest(self) -> Vec<u8> {
        self.partial
    }
}

impl Message {
    /// Puts the message on its way, to arrive then, unless something happens to it.
    pub(super) fn send(
        self,
        pipe: &mut Pipe,
        mut due: Time,
        knows: &BTreeSet<Fault>,
        random: &mut Random,
        counts: &mut FaultCounts,
    ) {
        let mut happens = |fault, per_mille, random: &mut Random| {
            let happens = !self.is_part && knows.contains(&fault) && random.per_mille(per_mille);
            if happens {
                counts.fire(fault);
            }
            happens
        };
        if happens(Fault::LostMessage, 4, random) {
            counts.meet(Fault::LostMessage);
            return;
        }
        if happens(Fault::RepeatedMessage, 20, random) {
            let after = if random.per_mille(500) { random.micros(1..3000) } else { random.millis(3..4000) };
            pipe.push(due + after, self.bytes.clone(), true);
        }
        if happens(Fault::OvertakenMessage, 30, random) {
            due = due + random.micros(100..20_000).max(Duration::from_micros(1));
        }
        pipe.push(due, self.bytes, false);
    }
}

#[cfg(test)]
mod tests {
    use forebay_protocol::{FLAG_MORE, Kind, encode_frame};

    use super::*;

    fn frame(request: u64, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_frame(Kind::GetReply, flags, request, b"table", &[payload], &mut bytes);
        bytes
    }

    #[test]
    fn messages_are_found_whatever_the_pieces_and_parts_of_an_answer_are_known() {
        let frames = [frame(1, FLAG_MORE, b"a"), frame(2, 0, b"whole"), frame(1, 0, b"b"), frame(1, 0, b"again")];
        let all = frames.concat();
        for piece in 1..all.len() {
            let mut messages = Messages::default();
            let found: Vec<Message> = all.chunks(piece).flat_map(|bytes| messages.split(bytes)).collect();
            let expected = frames.iter().zip([true, false, true, false]);
            assert!(found.iter().map(|message| (&message.bytes, message.is_part)).eq(expected), "pieces of {piece}");
            assert!(messages.rest().is_empty());
        }
    }

    #[test]
    fn what_happens_to_messages_leaves_whole_messages() {
        let knows = BTreeSet::from([Fault::LostMessage, Fault::RepeatedMessage, Fault::OvertakenMessage]);
        let (mut pipe, mut random, mut counts) = (Pipe::default(), Random::new(1), FaultCounts::default());
        let mut messages = Messages::default();
        for number in 0..2000 {
            for message in messages.split(&frame(number, 0, b"payload")) {
                message.send(&mut pipe, Time(number * 1_000_000), &knows, &mut random, &mut counts);
            }
        }
        pipe.deliver(Time(u64::MAX), &mut counts);
        let arrived: Vec<Message> = Messages::default().split(&pipe.arrived);
        let lost = counts.fired(Fault::LostMessage);
        assert_eq!(arrived.len() as u64, 2000 - lost + counts.fired(Fault::RepeatedMessage));
        assert!(knows.iter().all(|fault| counts.met(*fault) > 0), "{counts:?}");
    }
}
