//! Shows that an owner lives, and says until when it may answer anybody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use forebay_media::Licence;
use forebay_takeover::{Owner, Renewal};

/// How one pulse is written.
pub trait Beat: Send + 'static {
    /// Writes this one, and waits for it.
    fn beat(&mut self, count: u64) -> Renewal;
}

/// Keeps a store for its owner, in a thread of its own, until it is ended or the store is lost.
pub struct Pulse<B> {
    shared: Arc<Shared>,
    licence: Arc<Licence>,
    thread: Option<JoinHandle<B>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl<B: Beat> Pulse<B> {
    /// Starts it. `lost` is called, once, when the store is lost: nobody may be answered any more.
    ///
    /// # Panics
    /// When the process may have no more threads.
    pub fn start(owner: Owner, mut beat: B, lost: impl FnOnce() + Send + 'static) -> Pulse<B> {
        let (shared, licence) = (Arc::new(Shared::default()), Arc::new(Licence::default()));
        licence.extend(owner.answers_until());
        let (of_thread, its_licence) = (Arc::clone(&shared), Arc::clone(&licence));
        let run = move || {
            pulse_on(owner, &mut beat, &of_thread, &its_licence, lost);
            beat
        };
        let thread = std::thread::Builder::new().name("forebay-owner".to_owned()).spawn(run).expect("a thread");
        Pulse { shared, licence, thread: Some(thread) }
    }
}

impl<B> Pulse<B> {
    /// Until when anybody may be answered.
    pub fn licence(&self) -> &Arc<Licence> {
        &self.licence
    }

    /// Ends it: nobody is answered any more. Gives what wrote it; nothing when it was ended before.
    ///
    /// # Panics
    /// When its thread did.
    pub fn end(&mut self) -> Option<B> {
        self.shared.is_over.store(true, Ordering::Release);
        let alone = self.shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.changed.notify_all();
        drop(alone);
        let beat = self.thread.take().map(|thread| thread.join().expect("the pulse does not panic"));
        self.licence.revoke();
        beat
    }
}

impl<B> Drop for Pulse<B> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

fn pulse_on(mut owner: Owner, beat: &mut impl Beat, shared: &Shared, licence: &Licence, lost: impl FnOnce()) {
    loop {
        if shared.is_over.load(Ordering::Acquire) {
            return;
        }
        let now = Licence::now();
        if owner.is_replaced() || licence.is_revoked() {
            licence.revoke();
            return lost();
        }
        if let Some(pulse) = owner.next_pulse(now) {
            let renewal = beat.beat(pulse);
            owner.pulsed(Licence::now(), renewal);
            licence.extend(owner.answers_until());
            continue;
        }
        let pause = owner.next_wakeup().since(now);
        let alone = shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !shared.is_over.load(Ordering::Acquire) {
            drop(shared.changed.wait_timeout(alone, pause));
        }
    }
}
