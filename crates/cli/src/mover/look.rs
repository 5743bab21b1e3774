//! `forebay move status|list|show|retry|hold|go-on|release`: what a mover's journal says, and what people ask of the mover.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use forebay_mover::journal::{Action, ConsignmentView, EventsView, View};
use forebay_types::EventKey;

use super::{journal_failure, plain, status};
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{human_bytes, human_count};

/// Which journal.
#[derive(Clone, Debug, Args)]
pub struct JournalOption {
    /// The journal of the mover (its first words say where it lies)
    #[arg(long, value_name = "FILE")]
    journal: PathBuf,
}

/// What is looked at or asked for.
#[derive(Debug, Subcommand)]
pub enum LookCommand {
    /// How a mover is: what waits, how fast it goes, how long the space lasts, what is wrong
    Status(JournalOption),
    /// The files that are on their way
    List {
        #[command(flatten)]
        journal: JournalOption,
        /// Only those in this state
        #[arg(long, value_name = "STATE", value_parser = ["found", "sending", "arrived", "verified", "waiting", "proven", "quarantined", "held"])]
        state: Option<String>,
    },
    /// All that is known of a file, and every step of it
    Show {
        #[command(flatten)]
        journal: JournalOption,
        /// Its name at the destinations or at the source, or an event that is in it, as RUN/EVENT
        name: String,
    },
    /// Try again what is quarantined
    Retry {
        #[command(flatten)]
        journal: JournalOption,
        /// The files, by their names at the destinations
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All that are quarantined
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Do nothing more with a file until somebody says that it goes on
    Hold {
        #[command(flatten)]
        journal: JournalOption,
        /// The file, by its name at the destinations
        name: String,
        /// Why, for those who ask later
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Go on with a file that was held
    GoOn {
        #[command(flatten)]
        journal: JournalOption,
        /// The file, by its name at the destinations
        name: String,
    },
    /// Let the source have a file back though it is not proven: you answer for it
    Release {
        #[command(flatten)]
        journal: JournalOption,
        /// The file, by its exact name at the destinations
        #[arg(long, value_name = "EXACT")]
        name: String,
        /// Why, for those who ask later
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// Looks, or asks.
///
/// # Errors
/// A journal that cannot be read, or a file that it does not have on its way.
pub fn run(command: &LookCommand, output: &Output) -> Result<(), Failure> {
    match command {
        LookCommand::Status(journal) => status::show(&open(journal)?, &journal.journal, output),
        LookCommand::List { journal, state } => list(&open(journal)?, state.as_deref(), output),
        LookCommand::Show { journal, name } => show(&open(journal)?, name, output),
        LookCommand::Retry { journal, names, all } => {
            let view = open(journal)?;
            let files = if *all { at_work(&view, Some("quarantined"))? } else { find(&view, names)? };
            if let Some(file) = files.iter().find(|file| file.state != "quarantined") {
                return Err(Failure::data(format!(
                    "{:?} is {} and not quarantined; nothing was asked for. What fails for now is tried again by itself",
                    file.name, file.state
                )));
            }
            ask(&view, &files, Action::Retry, "", output)
        }
        LookCommand::Hold { journal, name, reason } => one(&open(journal)?, name, Action::Hold, reason, output),
        LookCommand::GoOn { journal, name } => one(&open(journal)?, name, Action::GoOn, "", output),
        LookCommand::Release { journal, name, reason } => one(&open(journal)?, name, Action::Release, reason, output),
    }
}

fn open(journal: &JournalOption) -> Result<View, Failure> {
    if !journal.journal.exists() {
        return Err(Failure::usage(format!(
            "there is no journal {}; nothing was asked for. Give that of the mover with --journal",
            journal.journal.display()
        )));
    }
    View::open(&journal.journal).map_err(|error| journal_failure(&error))
}

pub(super) fn at_work(view: &View, state: Option<&str>) -> Result<Vec<ConsignmentView>, Failure> {
    view.at_work(state).map_err(|error| journal_failure(&error))
}

/// Those on their way with these names; the newest of each.
fn find(view: &View, names: &[String]) -> Result<Vec<ConsignmentView>, Failure> {
    let find = |name: &String| {
        let named = view.named(name).map_err(|error| journal_failure(&error))?;
        let is_over = |file: &ConsignmentView| file.state == "released" || file.state == "withdrawn";
        let mut at_work: Vec<ConsignmentView> = named.into_iter().filter(|file| !is_over(file)).collect();
        if at_work.len() > 1 {
            let routes: Vec<&str> = at_work.iter().map(|file| file.route.as_str()).collect();
            return Err(Failure::data(format!(
                "{} files {name:?} are on their way, by the routes {}; nothing was asked for. Wait until the others are over",
                at_work.len(),
                routes.join(" and ")
            )));
        }
        at_work.pop().ok_or_else(|| {
            Failure::data(format!(
                "no file {name:?} is on its way; nothing was asked for. `forebay move list` has the names of those that are"
            ))
        })
    };
    names.iter().map(find).collect()
}

fn one(view: &View, name: &str, action: Action, reason: &str, output: &Output) -> Result<(), Failure> {
    let files = find(view, &[name.to_owned()])?;
    ask(view, &files, action, reason, output)
}

fn ask(view: &View, files: &[ConsignmentView], action: Action, reason: &str, output: &Output) -> Result<(), Failure> {
    if files.is_empty() {
        output.line("nothing is quarantined");
        output.object(&serde_json::json!({ "action": action.name(), "names": [] }));
        return Ok(());
    }
    let ids: Vec<i64> = files.iter().map(|file| file.id).collect();
    view.ask(&ids, action, reason).map_err(|error| journal_failure(&error))?;
    for file in files {
        output.line(&format!("{}: {} is noted", file.name, action.name()));
    }
    output.note("the mover takes it up within a second, or when it starts");
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    output.object(&serde_json::json!({ "action": action.name(), "names": names }));
    Ok(())
}

fn list(view: &View, state: Option<&str>, output: &Output) -> Result<(), Failure> {
    let files = at_work(view, state)?;
    for file in &files {
        output.line(&format!("{:<12} {:>12}  {}", file.state, human_bytes(file.bytes as u64), file.name));
    }
    output.object(&serde_json::json!({ "files": files }));
    Ok(())
}

fn show(view: &View, name: &str, output: &Output) -> Result<(), Failure> {
    let mut files = view.named(name).map_err(|error| journal_failure(&error))?;
    if files.is_empty() {
        files = view.made_of(name).map_err(|error| journal_failure(&error))?;
    }
    if let (true, Ok(event)) = (files.is_empty(), name.parse::<EventKey>()) {
        files = view.with_event(event).map_err(|error| journal_failure(&error))?;
    }
    if files.is_empty() {
        return Err(Failure::data(format!(
            "the journal knows no file {name:?}. It may not have been found yet, or was moved more than 30 days ago: the audit log beside the journal has it then"
        )));
    }
    let mut objects = Vec::new();
    for file in &files {
        let steps = view.transitions(file.id).map_err(|error| journal_failure(&error))?;
        let sum = file.adler32.as_deref().map_or(String::new(), |sum| format!(", adler32 {sum}"));
        output.line(&format!("{}: {}, {} bytes{sum}", file.name, file.state, file.bytes));
        let merged = match &file.events {
            Some(EventsView { run, events, first, last }) => {
                format!(", {} events of run {run}, {first} to {last}", human_count(*events as u64))
            }
            None if file.parts == 1 => String::new(),
            None => format!(", of {} files", file.parts),
        };
        output.line(&format!("  by {}{merged}", file.route));
        for delivery in &file.deliveries {
            let words = if delivery.words.is_empty() { String::new() } else { format!(": {}", plain(&delivery.words)) };
            let what = if delivery.what == "file" { String::new() } else { format!(", its {}", delivery.what) };
            let since = delivery.waits_since_unix_ms.map_or(String::new(), |at| format!(", since {}", time(at)));
            output.line(&format!(
                "  {:<12} {}{what} (attempt {}{since}){words}",
                delivery.state, delivery.destination, delivery.attempts
            ));
        }
        if file.registered {
            output.line("  registered");
        }
        if !file.words.is_empty() {
            output.line(&format!("  {}", plain(&file.words)));
        }
        for step in &steps {
            let of = step.destination.as_deref().unwrap_or("-");
            let what = if step.sidecar { " its sidecar" } else { "" };
            output.line(&format!("    {} {:<12} {of}{what} {}", time(step.unix_ms), step.after, plain(&step.words)));
        }
        objects.push(serde_json::json!({ "file": file, "steps": steps }));
    }
    output.object(&serde_json::json!({ "files": objects }));
    Ok(())
}

/// As `date --utc` writes it.
pub(super) fn time(unix_ms: i64) -> String {
    let at = time::OffsetDateTime::from_unix_timestamp(unix_ms / 1000).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (date, clock) = (at.date(), at.time());
    format!("{date} {:02}:{:02}:{:02}Z", clock.hour(), clock.minute(), clock.second())
}
