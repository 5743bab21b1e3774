//! Reading takes several steps that wait for drives. Each such piece of work is a future that is polled by hand when one of its operations
//! has come back: the compiler writes the state machine, nothing here runs by itself.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Work that waits for drives.
pub(crate) type Task<T> = Pin<Box<dyn Future<Output = T>>>;

/// The tasks of a lane.
pub(crate) struct Tasks<T> {
    places: Vec<Option<Task<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Tasks<T> {
    fn default() -> Self {
        Tasks { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Tasks<T> {
    /// A number for a task that is about to be made.
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        })
    }

    /// Starts a task under its number; its output if it needs no waiting.
    pub(crate) fn start(&mut self, number: usize, task: Task<T>) -> Option<T> {
        assert!(self.places[number].is_none(), "a task's number is given once");
        self.places[number] = Some(task);
        self.poll(number)
    }

    /// Goes on with a task; its output when it is over.
    pub(crate) fn poll(&mut self, number: usize) -> Option<T> {
        let task = self.places.get_mut(number)?.as_mut()?;
        match poll_once(task) {
            Poll::Pending => None,
            Poll::Ready(output) => {
                self.places[number] = None;
                self.free.push(number);
                Some(output)
            }
        }
    }
}

/// Polls a task; nobody is woken, the caller knows when to poll again.
pub(crate) fn poll_once<T>(task: &mut Task<T>) -> Poll<T> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}
