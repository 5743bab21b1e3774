//! Carries out the steps of a server that would own a store.

use std::time::Duration;

use forebay_media::Licence;
use forebay_takeover::{Answer, Owner, Patience, Standby, Step, Timing};

/// A look at whether somebody wants to stop waiting.
pub(crate) const STOP_LOOK: Duration = Duration::from_millis(100);

/// Why a store is not owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOwned<H> {
    /// Its owner lives.
    Alive(H),
    /// Whoever waited was stopped.
    Stopped,
}

/// Comes to own a store: waits for it as `patience` says, and takes it over from an owner that is dead. `take` does what a step says; what fails it tells by itself.
///
/// # Errors
/// [`NotOwned`].
pub fn own<H: Clone + Eq>(
    (timing, patience): (Timing, Patience),
    is_stopped: &dyn Fn() -> bool,
    take: &mut dyn FnMut(&Step<H>) -> Answer<H>,
) -> Result<Owner, NotOwned<H>> {
    let mut standby: Standby<H> = Standby::new(timing, patience, Licence::now());
    let mut asked_at = Licence::now();
    let mut step = None;
    loop {
        let Some(next) = step.take().or_else(|| standby.next_step(Licence::now())) else {
            if is_stopped() {
                return Err(NotOwned::Stopped);
            }
            let pause = standby.next_wakeup().map_or(STOP_LOOK, |at| at.since(Licence::now()));
            std::thread::sleep(pause.min(STOP_LOOK));
            continue;
        };
        match next {
            Step::Own => return Ok(Owner::new(timing, asked_at)),
            Step::LeaveAlone(holder) => return Err(NotOwned::Alive(holder)),
            Step::Lock => asked_at = Licence::now(),
            _ => {}
        }
        let answer = take(&next);
        step = standby.answered(Licence::now(), answer);
    }
}
