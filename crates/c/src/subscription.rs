//! Those who look on.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::time::Duration;

use ::forebay_client::Subscription;
use forebay_types::{Fraction, RunId};

use crate::call::{free, run};
use crate::client::{forebay_client, with};
use crate::events::stream_of;
use crate::failure::Failure;
use crate::fetched::forebay_events;
use crate::raw::{give, give_handle, given, lock};

/// Somebody who looks on while events arrive: best effort, and nothing waits for it. It is used with the client that made it.
pub struct forebay_subscription(Mutex<Subscription>);

/// What became of the events of a subscription so far.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forebay_subscription_counts {
    /// Events that were wanted and told.
    pub told: u64,
    /// Of these, those that were read.
    pub read: u64,
    /// Events that were wanted and were over before they could be told, or read.
    pub gone: u64,
    /// Events that were told and could not be read.
    pub unreadable: u64,
    /// Events that the server forgot before it was asked, wanted or not.
    pub dropped: u64,
    /// How often it was seen that the server had been started anew.
    pub restarts: u64,
}

/// Looks on from now on: at events of a run (`run` null: of all), when they are accepted into `stream` (null: as soon as filters may have them), and of these at so many of a
/// million. The client should be of `FOREBAY_CLASS_MONITOR`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_client_subscribe(
    client: Option<&forebay_client>,
    run_number: Option<&u32>,
    stream: *const c_char,
    fraction_millionths: u32,
    subscription: Option<&mut MaybeUninit<*mut forebay_subscription>>,
) -> i32 {
    run(|| {
        let stream = match stream.is_null() {
            true => None,
            // SAFETY: the caller keeps to the rule of `raw`.
            false => Some(unsafe { stream_of(stream) }?),
        };
        let fraction = Fraction::from_millionths(fraction_millionths)
            .ok_or_else(|| Failure::invalid(format!("{fraction_millionths} millionths are no fraction")))?;
        let run = run_number.map(|run| RunId(*run));
        give_handle(subscription, || {
            let made = with(client, |held| Ok(held.client.subscribe(run, stream, fraction)?))?;
            Ok(forebay_subscription(Mutex::new(made)))
        })
    })
}

/// The next events, read: some MiB at once, the others with the next call. It waits for the first of them for `longest_ms`, and gives none when there were none.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_subscription_next(
    client: Option<&forebay_client>,
    subscription: Option<&forebay_subscription>,
    longest_ms: u64,
    events: Option<&mut MaybeUninit<*mut forebay_events>>,
) -> i32 {
    run(|| {
        give_handle(events, || {
            let mut subscription = lock(&given(subscription, "the subscription")?.0)?;
            let longest = Duration::from_millis(longest_ms);
            with(client, |held| Ok(forebay_events(held.client.next_events(&mut subscription, longest)?)))
        })
    })
}

/// What became of everything so far.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_subscription_get_counts(
    subscription: Option<&forebay_subscription>,
    counts: Option<&mut MaybeUninit<forebay_subscription_counts>>,
) -> i32 {
    run(|| {
        let known = lock(&given(subscription, "the subscription")?.0)?.counts();
        give(
            counts,
            forebay_subscription_counts {
                told: known.told,
                read: known.read,
                gone: known.gone,
                unreadable: known.unreadable,
                dropped: known.dropped,
                restarts: known.restarts,
            },
        )
    })
}

/// Frees it; null is nothing to free. The server knows nothing of it that would have to end.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_subscription_free(subscription: Option<Box<forebay_subscription>>) {
    free(subscription);
}
