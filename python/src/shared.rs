//! What several threads of Python may use at once: one after the other, and without keeping those from running that do not.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::errors;

/// A value behind a lock that is waited for, and used, while other threads of Python run.
pub struct Shared<T: Send> {
    value: Mutex<Option<T>>,
    /// The process that made it: a fork has the same sockets, and two who read from one get halves of answers.
    process: u32,
}

impl<T: Send> Shared<T> {
    pub fn new(value: T) -> Self {
        Shared { value: Mutex::new(Some(value)), process: std::process::id() }
    }

    /// Uses it. When it was taken away, that is said as Python's files say it.
    pub fn run<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut T) -> R + Send) -> PyResult<R> {
        self.check_process()?;
        let done = py.detach(|| self.value.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(work));
        done.ok_or_else(errors::closed)
    }

    /// Takes it away, if it is still there.
    pub fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.check_process()?;
        Ok(py.detach(|| self.value.lock().unwrap_or_else(PoisonError::into_inner).take()))
    }

    /// Whether it was taken away.
    pub fn is_taken(&self, py: Python<'_>) -> bool {
        py.detach(|| self.value.lock().unwrap_or_else(PoisonError::into_inner).is_none())
    }

    fn check_process(&self) -> PyResult<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(errors::forked()) }
    }
}

impl<T: Send> Drop for Shared<T> {
    /// Letting go waits for who uses the same connection: not while other threads wait for this one.
    fn drop(&mut self) {
        let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(value) = value else { return };
        if self.process != std::process::id() {
            // Locks that other threads of the parent held are never let go in a fork.
            std::mem::forget(value);
            return;
        }
        let mut value = Some(value);
        Python::try_attach(|py| py.detach(|| drop(value.take())));
    }
}
