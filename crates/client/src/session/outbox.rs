//! What is to be sent, in order, and how much of its first has left.

use std::collections::VecDeque;

use super::payload::Payload;

/// A frame on its way out. The bytes of requests stay with the requests, which may need them again.
pub(super) enum Sending {
    /// A frame that is needed once.
    Bytes(Vec<u8>),
    /// The request of that number.
    Call(u64),
    /// The batch of that number.
    Put(u64),
}

impl Sending {
    fn is(&self, request: u64) -> bool {
        matches!(self, Sending::Call(number) | Sending::Put(number) if *number == request)
    }
}

/// The bytes of a frame, where they lie.
#[derive(Clone, Copy, Default)]
pub(super) struct FrameBytes<'a> {
    pub(super) head: &'a [u8],
    pub(super) payload: Option<&'a Payload>,
}

impl<'a> FrameBytes<'a> {
    pub(super) fn len(self) -> usize {
        self.head.len() + self.payload.map_or(0, Payload::len)
    }

    fn pieces(self) -> impl Iterator<Item = &'a [u8]> {
        let payload = self.payload.map_or(&[][..], Payload::pieces);
        std::iter::once(self.head).chain(payload.iter().map(|piece| &piece[..]))
    }
}

#[derive(Default)]
pub(super) struct Outbox {
    queue: VecDeque<Sending>,
    /// Bytes of the first that have left.
    left: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, sending: Sending) {
        self.queue.push_back(sending);
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.left = 0;
    }

    /// Whether a part of this request's frame has left and a part has not.
    fn is_sending(&self, request: u64) -> bool {
        self.left > 0 && self.queue.front().is_some_and(|first| first.is(request))
    }

    /// Whether this request's frame has not left whole.
    pub(super) fn holds(&self, request: u64) -> bool {
        self.queue.iter().any(|sending| sending.is(request))
    }

    /// The pieces still to be sent; `bytes_of` gives those of each frame.
    pub(super) fn pieces<'a>(
        &'a self,
        bytes_of: impl Fn(&'a Sending) -> FrameBytes<'a>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let mut skip = self.left;
        self.queue.iter().flat_map(move |sending| bytes_of(sending).pieces()).filter_map(move |piece| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            (skipped < piece.len()).then(|| &piece[skipped..])
        })
    }

    /// That `bytes` more have left; `length_of` gives the length of each frame.
    pub(super) fn advance(&mut self, bytes: usize, length_of: impl Fn(&Sending) -> usize) {
        self.left += bytes;
        while let Some(first) = self.queue.front() {
            let length = length_of(first);
            if self.left < length {
                return;
            }
            self.left -= length;
            self.queue.pop_front();
        }
        assert_eq!(self.left, 0, "more was sent than there was to send");
    }

    /// The request was given up. If a part of its frame has left, the rest follows: what comes next must
    /// start at a frame.
    pub(super) fn forget_frame(&mut self, request: u64, head: Vec<u8>, payload: &Payload) {
        if self.is_sending(request) {
            let mut frame = head;
            payload.pieces().iter().for_each(|piece| frame.extend_from_slice(piece));
            self.forget(request, frame);
        } else {
            self.forget(request, Vec::new());
        }
    }

    fn forget(&mut self, request: u64, frame: Vec<u8>) {
        if self.is_sending(request) {
            self.queue[0] = Sending::Bytes(frame);
        } else {
            self.queue.retain(|sending| !sending.is(request));
        }
    }
}
