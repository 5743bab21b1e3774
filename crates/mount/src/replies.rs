//! Threads that give the kernel what was read. To copy a MiB to where the kernel wants it takes as long as to take it from the server: the thread of the machine
//! does the one, these do the other.

use std::io;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use bytes::Bytes;
use fuser::ReplyData;

/// Fewer bytes are given by the thread that has them: to wake another one takes longer.
const BYTES_MIN: usize = 64 << 10;

/// Threads, at most, and never more than there are processors.
const THREADS_MAX: usize = 4;

/// Where to send what is given to the kernel. The threads end when nothing can be sent any more.
#[derive(Clone)]
pub(crate) struct Replies(Sender<(ReplyData, Bytes)>);

impl Replies {
    /// Starts the threads.
    pub(crate) fn start() -> io::Result<Replies> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        for _ in 0..threads {
            let receiver = Arc::clone(&receiver);
            std::thread::Builder::new().name("reply".to_owned()).spawn(move || serve(&receiver))?;
        }
        Ok(Replies(sender))
    }

    /// Answers a read.
    pub(crate) fn give(&self, reply: ReplyData, bytes: Bytes) {
        if bytes.len() < BYTES_MIN {
            return reply.data(&bytes);
        }
        if let Err(refused) = self.0.send((reply, bytes)) {
            let (reply, bytes) = refused.0;
            reply.data(&bytes);
        }
    }
}

/// One of them waits for the next answer, the others for their turn to.
fn serve(receiver: &Mutex<Receiver<(ReplyData, Bytes)>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((reply, bytes)) = next else { return };
        reply.data(&bytes);
    }
}
