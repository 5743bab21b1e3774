//! `forebay subscribe`: looks on while events arrive.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use forebay_client::{Class, Client, EventState, FetchedEvent, Subscription, SubscriptionCounts};
use forebay_types::{EventKey, Fraction, ReadOutcome, RunId, StreamName};

use crate::connect::{ServerOptions, connect, parse_positive_seconds};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{Output, stdout_failure};
use crate::size::{counted, human_bytes, human_count};

/// So long is waited for events before it is looked whether to end.
const LOOK: Duration = Duration::from_millis(200);

const AFTER_HELP: &str = "\
Examples:
  forebay subscribe --run 1920 --fraction 0.1              every tenth event of a run, as soon as filters may have it
  forebay subscribe --stream physics --out /tmp/monitor    what is accepted into a stream, with the bytes, in files
  forebay subscribe --count 1000 --json | monitor          an object for each of 1000 events, and a last one with the counts

Best effort, from now on, until Ctrl-C: no put and no decision waits for it. What it missed is told at the end: events that were gone before they
could be read, and events that were dropped because it did not look in time (of all runs, whatever --run and --fraction say). Which events belong to a
fraction is the same for all who ask for it. It goes on when the server is started anew, for as long as --timeout says.

With --out the fragments of an event are DIR/runRRRRRRRR/eventEEEEEEEEEEEE/SSSSSSSS.bin, decimal but for the source; the directory of an event appears with
all of them. With --json each event is one object on a line, and the last line has the counts.
Exit codes: 0 when it was ended, or has --count events; 3 when the server does not answer.";

/// The options of `subscribe`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SubscribeCommand {
    #[command(flatten)]
    server: ServerOptions,

    /// Give up after so many seconds without an answer; where nothing listens at first at the only server named, at once
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_positive_seconds)]
    timeout: Duration,

    /// Events of this run alone [default: of all]
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,

    /// Events when they are accepted into this stream [default: as soon as filters may have them, decided or not]
    #[arg(long, value_name = "NAME")]
    stream: Option<StreamName>,

    /// So many of them, from 0.000001 to 1
    #[arg(long, value_name = "FRACTION", default_value = "1")]
    fraction: Fraction,

    /// End after so many events [default: run until Ctrl-C]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// An empty or new directory for their bytes [default: they are read, and not kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Looks on until it is over.
///
/// # Errors
/// When the server does not answer any more, or the bytes cannot be written.
pub fn run(command: &SubscribeCommand, output: &Output) -> Result<(), Failure> {
    if let Some(out) = &command.out {
        make_empty(out).map_err(|error| unwritable("use", out, &error))?;
    }
    let mut client = connect(&command.server, command.timeout, Class::Monitor)?;
    let interrupt = Interrupt::catch()?;
    let mut subscription = client.subscribe(command.run, command.stream.clone(), command.fraction)?;
    if !output.quiet {
        output.note("forebay: looks on from now on");
    }
    let result = look_on(command, &mut client, &mut subscription, &interrupt, output);
    let counts = subscription.counts();
    output.note(&words(&counts));
    let mut object = serde_json::json!({
        "told": counts.told,
        "read": counts.read,
        "gone": counts.gone,
        "unreadable": counts.unreadable,
        "dropped": counts.dropped,
        "restarts": counts.restarts,
    });
    output.result(&mut object, result.err())
}

fn look_on(
    command: &SubscribeCommand,
    client: &mut Client,
    subscription: &mut Subscription,
    interrupt: &Interrupt,
    output: &Output,
) -> Result<(), Failure> {
    let mut left = command.count.unwrap_or(u64::MAX);
    while left > 0 && !interrupt.is_set() && stdout_failure().is_none() {
        for event in client.next_events(subscription, LOOK)? {
            if left == 0 {
                break;
            }
            left -= 1;
            if let Some(out) = &command.out {
                write(out, &event).map_err(|error| unwritable("write to", out, &error))?;
            }
            tell(&event, output);
        }
    }
    Ok(())
}

fn tell(event: &FetchedEvent, output: &Output) {
    let bytes: usize = event.fragments.iter().map(|fragment| fragment.payload.len()).sum();
    let unreadable = event.fragments.iter().filter(|fragment| fragment.outcome != ReadOutcome::Found).count();
    let state = match event.state {
        EventState::Accepted => "accepted",
        EventState::Leased => "leased",
        _ => "undecided",
    };
    output.object(&serde_json::json!({
        "run": event.key.run,
        "event": event.key.event,
        "state": state,
        "expected": event.expected,
        "fragments": event.fragments.len(),
        "unreadable": unreadable,
        "bytes": bytes,
    }));
    let fragments = counted(event.fragments.len() as u64, "fragment");
    let missing = u64::from(event.expected).saturating_sub(event.fragments.len() as u64);
    let missing = if missing > 0 { format!(", {missing} missing") } else { String::new() };
    let unreadable = if unreadable > 0 { format!(", {unreadable} unreadable") } else { String::new() };
    output.line(&format!("{}: {fragments}, {}, {state}{missing}{unreadable}", event.key, human_bytes(bytes as u64)));
}

/// What was seen and what was missed.
fn words(counts: &SubscriptionCounts) -> String {
    let mut words = format!(
        "forebay: {} read; {} gone before they could be read; {} dropped, as nobody looked in time",
        counted(counts.read, "event"),
        human_count(counts.gone),
        human_count(counts.dropped)
    );
    if counts.unreadable > 0 {
        words += &format!("; {} could not be read (see `forebay status`)", human_count(counts.unreadable));
    }
    if counts.restarts > 0 {
        let starts = counted(counts.restarts, "time");
        words += &format!("; the server was started anew {starts}, and what was not told by then is not counted");
    }
    words
}

// ---- files ----

fn make_empty(out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    match fs::read_dir(out)?.next() {
        None => Ok(()),
        Some(_) => Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "it is not empty")),
    }
}

fn unwritable(action: &str, out: &Path, error: &io::Error) -> Failure {
    Failure::file(action, out, error, "the events are in the store as long as they would be; name another directory")
}

/// Writes the fragments to a directory that then gets its name. An event that was written before stays as it is.
fn write(out: &Path, event: &FetchedEvent) -> io::Result<()> {
    let EventKey { run, event: number } = event.key;
    let of_run = out.join(format!("run{:08}", run.0));
    let directory = of_run.join(format!("event{:012}", number.0));
    if directory.exists() {
        return Ok(());
    }
    fs::create_dir_all(&of_run)?;
    let part = tempfile::Builder::new().prefix(".forebay-").suffix(".part").tempdir_in(&of_run)?;
    for (source, bytes) in event.found() {
        fs::write(part.path().join(format!("{:08x}.bin", source.0)), bytes)?;
    }
    // As readable as any directory that the user makes, where it was made for its owner alone.
    fs::set_permissions(part.path(), fs::metadata(&of_run)?.permissions())?;
    fs::rename(part.path(), &directory)?;
    // It has another name now: there is nothing to remove.
    let _ = part.keep();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_name_what_there_was() {
        let none = words(&SubscriptionCounts::default());
        assert!(none.contains("0 events read") && !none.contains("anew") && !none.contains("status"), "{none}");
        let some = SubscriptionCounts { read: 1, dropped: 7, unreadable: 2, restarts: 1, ..Default::default() };
        let some = words(&some);
        assert!(some.contains("1 event read") && some.contains("7 dropped") && some.contains("anew 1 time"), "{some}");
    }
}
