//! `forebay run`: runs as objects of the store.

mod change;
mod show;

use clap::{Args, Subcommand};
use forebay_client::Class;
use forebay_types::RunId;

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  forebay run declare 1920 --sources 0-15,32     take the number, for a run of these sources
  forebay run start 1920                         data are taken; the run has the streams that are defined now
  forebay run stop 1920 --events 100000          no more are taken; the run control counted so many events
  forebay run close 1920                         all of them are here and decided: no fragment is taken any more
  forebay run hold 1920 --reason \"to be looked at\"   nothing of it is freed until `forebay run hold 1920 --end`
  forebay run discard 1920 --reason \"a test\" --name 1920   delete what is left of it, for good
  forebay run list                               every run that was declared
  forebay run show 1920                          all that is known of one

Runs that nobody declares go on as they always did. A number is used once, whatever became of its run.
Exit codes: 1 when there is no such run; 2 when it cannot be done (it says why and what to do, and nothing was changed); 3 when the server does not answer.";

/// The options of `run`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RunCommand {
    #[command(flatten)]
    ask: AskOptions,

    #[command(subcommand)]
    command: RunSubcommand,
}

/// What is done.
#[derive(Debug, Subcommand)]
enum RunSubcommand {
    /// Take a run number, with the sources that are expected
    Declare(change::DeclareCommand),
    /// Take data from now on
    Start(change::StartCommand),
    /// Take no more, and say what was counted
    Stop(change::StopCommand),
    /// Take no fragment any more, once all events that were counted are here and decided
    Close(change::CloseCommand),
    /// Free nothing of a run, until that ends
    Hold(change::HoldCommand),
    /// Delete what is left of a run, and take no fragment of it any more
    Discard(change::DiscardCommand),
    /// List the runs that were declared
    List(show::ListCommand),
    /// Say all that is known of a run
    Show(show::ShowCommand),
}

/// A run, as the only argument of a command.
#[derive(Debug, Args)]
pub struct RunNumber {
    /// The number of the run, decimal or 0x...
    #[arg(value_name = "RUN")]
    run: RunId,
}

/// Changes or shows runs.
///
/// # Errors
/// Why it was not done.
pub fn run(command: &RunCommand, output: &Output) -> Result<(), Failure> {
    let mut client = command.ask.connect(Class::Monitor)?;
    match &command.command {
        RunSubcommand::Declare(command) => change::declare(command, &mut client, output),
        RunSubcommand::Start(command) => change::start(command, &mut client, output),
        RunSubcommand::Stop(command) => change::stop(command, &mut client, output),
        RunSubcommand::Close(command) => change::close(command, &mut client, output),
        RunSubcommand::Hold(command) => change::hold(command, &mut client, output),
        RunSubcommand::Discard(command) => change::discard(command, &mut client, output),
        RunSubcommand::List(command) => show::list(command, &mut client, output),
        RunSubcommand::Show(command) => show::show(command, &mut client, output),
    }
}
