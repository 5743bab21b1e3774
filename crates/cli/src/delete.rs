//! `forebay delete`: drops an event.

use std::time::Instant;

use clap::Args;
use forebay_client::Class;
use forebay_types::{DecideOutcome, EventKey};

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  forebay delete 1920/17        drop event 17 of run 1920 with all of its fragments, whatever was decided on it

What is deleted stays deleted, and fragments of it that come later are dropped. Deleting it again is good.
Exit codes: 1 when the store has no such event; 3 when the deletion could not be made durable now.";

/// The options of `delete`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DeleteCommand {
    #[command(flatten)]
    ask: AskOptions,

    /// The event, RUN/EVENT, each decimal or 0x...
    #[arg(value_name = "RUN/EVENT")]
    event: EventKey,
}

/// Deletes the event.
///
/// # Errors
/// Why it is not deleted.
pub fn run(command: &DeleteCommand, output: &Output) -> Result<(), Failure> {
    let key = command.event;
    let mut client = command.ask.connect(Class::Mover)?;
    let start = Instant::now();
    let outcomes = client.delete(&[key])?;
    let seconds = start.elapsed().as_secs_f64();
    let outcome = outcomes.into_iter().next().expect("one outcome for one event");
    if !outcome.is_done() {
        return Err(Failure::decide(format_args!("event {key} was not deleted"), outcome));
    }
    let word = if outcome == DecideOutcome::AlreadyDone { "already-deleted" } else { "deleted" };
    output.object(&serde_json::json!({ "id": key.to_string(), "outcome": word, "seconds": seconds }));
    output.line(&format!("{key}: {} after {:.1} ms", word.replace('-', " "), seconds * 1e3));
    Ok(())
}
