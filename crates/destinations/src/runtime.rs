//! What drives connections while a job waits for them.

use std::future::Future;
use std::io;

/// Two threads for all connections of a destination; a job's own thread reads the source meanwhile.
#[derive(Debug)]
pub(crate) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub(crate) fn new() -> io::Result<Runtime> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("destination").enable_all().build().map(|runtime| Runtime(Some(runtime)))
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.as_ref().expect("it is there until it is dropped").block_on(future)
    }
}

impl Drop for Runtime {
    /// Waits for nobody: the look-up of a name may hang for minutes.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
