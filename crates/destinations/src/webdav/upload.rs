//! The body of a request: bytes that come block by block, and must come to what was announced.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{Notify, mpsc};

/// The source gave less than was announced, or nobody waits any more. The connection ends with it, so that the server cannot take the beginning for all.
#[derive(Debug, thiserror::Error)]
#[error("it was cut off on this side")]
pub(super) struct CutOff;

/// A body of a length that is known.
pub(super) struct Upload {
    blocks: mpsc::Receiver<Bytes>,
    left_bytes: u64,
    begun: Arc<Notify>,
}

impl Upload {
    /// A body, where its blocks are put in, and what is told when the request itself was sent.
    pub(super) fn new(bytes: u64) -> (Upload, mpsc::Sender<Bytes>, Arc<Notify>) {
        let (sender, blocks) = mpsc::channel(1);
        let begun = Arc::new(Notify::new());
        (Upload { blocks, left_bytes: bytes, begun: Arc::clone(&begun) }, sender, begun)
    }

    pub(super) fn empty() -> Upload {
        Upload::new(0).0
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        self.begun.notify_one();
        Poll::Ready(match ready!(self.blocks.poll_recv(context)) {
            Some(block) => match self.left_bytes.checked_sub(block.len() as u64) {
                Some(left_bytes) => {
                    self.left_bytes = left_bytes;
                    Some(Ok(Frame::data(block)))
                }
                None => Some(Err(CutOff)),
            },
            None if self.left_bytes == 0 => None,
            None => Some(Err(CutOff)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}
