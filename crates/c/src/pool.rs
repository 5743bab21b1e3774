//! The connections of a `forebay_files`: threads that use different ones do not wait for each other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::ClientError;
use forebay_client::files::Files;

use crate::config::forebay_config;

/// Connections, made when they are needed, as many as the config says.
pub(crate) struct Pool {
    config: forebay_config,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Each with how many use it.
    open: Vec<(Files, usize)>,
    /// So many are being made.
    opening: usize,
}

/// The use of one of the connections, until it is dropped.
pub(crate) struct Seat {
    pool: Arc<Pool>,
    number: usize,
    pub(crate) files: Files,
}

impl Pool {
    /// Makes the first connection.
    pub(crate) fn connect(config: &forebay_config) -> Result<Arc<Pool>, ClientError> {
        let pool = Arc::new(Pool { config: config.copy(), places: Mutex::default() });
        pool.seat()?;
        Ok(pool)
    }

    pub(crate) fn config(&self) -> &forebay_config {
        &self.config
    }

    /// A connection that nobody uses: one that is there, a new one while there may be more, or else the one that the fewest use.
    pub(crate) fn seat(self: &Arc<Pool>) -> Result<Seat, ClientError> {
        let mut places = self.lock();
        let least = places.least_used();
        let may_connect = places.open.len() + places.opening < self.config.connections;
        if let Some(number) = least.filter(|number| places.open[*number].1 == 0 || !may_connect) {
            return Ok(self.sit(&mut places, number));
        }
        places.opening += 1;
        drop(places);
        let connected = Files::connect(self.config.of_next_client());
        let mut places = self.lock();
        places.opening -= 1;
        match (connected, least) {
            (Ok(files), _) => {
                places.open.push((files, 0));
                let number = places.open.len() - 1;
                Ok(self.sit(&mut places, number))
            }
            // The system has no more sockets: those that are there serve, too.
            (Err(ClientError::System { .. }), Some(number)) => Ok(self.sit(&mut places, number)),
            (Err(error), _) => Err(error),
        }
    }

    fn sit(self: &Arc<Pool>, places: &mut Places, number: usize) -> Seat {
        let (files, users) = &mut places.open[number];
        *users += 1;
        Seat { pool: Arc::clone(self), number, files: files.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        // Nothing that can panic runs while it is held.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn least_used(&self) -> Option<usize> {
        (0..self.open.len()).min_by_key(|number| self.open[*number].1)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.pool.lock().open[self.number].1 -= 1;
    }
}
