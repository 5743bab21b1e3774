//! The `forebay` command.
//!
//! One file for each subcommand; what they share: [`failure`] (how a command ends badly), [`output`] (stdout,
//! stderr, progress) and [`size`]. Nothing here decides anything about data: that is in the crates below.

mod arguments;
mod config;
mod connect;
mod delete;
mod demo;
mod doctor;
mod drive;
mod failure;
mod file;
mod filter;
mod get;
mod init;
mod interrupt;
mod lost;
mod mount;
mod mover;
mod output;
mod owned;
mod pool;
mod put;
#[cfg(feature = "rados")]
mod rados;
mod readout;
mod record;
mod run;
mod serve;
mod shared;
mod size;
mod status;
mod stream;
mod subscribe;
mod takeover;
mod trace;
mod upgrade;

use std::panic::catch_unwind;
use std::process::ExitCode;

use arguments::{Arguments, Command};
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => return output::usage_error(&error),
    };
    let output = Output::new(arguments.json, arguments.quiet > 0);
    output::start_logging(&arguments);
    // What a command holds is given back on the way here, by a panic too.
    let result = catch_unwind(|| run(&arguments.command, &output)).unwrap_or_else(|_| {
        Err(Failure::retry(
            "the program ended by a mistake of its own, told above. What the store acknowledged is safe; please report it with these words",
        ))
    });
    let code = finish(result, &output);
    #[cfg(feature = "rados")]
    rados::leave(code);
    ExitCode::from(code)
}

fn run(command: &Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Init(options) => init::run(options, output),
        Command::Serve(options) => serve::run(options, output),
        Command::Put(options) => put::run(options, output),
        Command::Get(options) => get::run(options, output),
        Command::Delete(options) => delete::run(options, output),
        Command::Readout(options) => readout::run(options, output),
        Command::Filter(options) => filter::run(options, output),
        Command::Record(options) => record::run(options, output),
        Command::Move(options) => mover::run(options, output),
        Command::Demo(options) => demo::run(options, output),
        Command::File(options) => file::run(options, output),
        Command::Tail(options) => file::tail(options, output),
        Command::Subscribe(options) => subscribe::run(options, output),
        Command::Status(options) => status::run(options, output),
        Command::Trace(options) => trace::run(options, output),
        Command::Lost(options) => lost::run(options, output),
        Command::Mount(options) => mount::run(options, output),
        Command::Run(options) => run::run(options, output),
        Command::Stream(options) => stream::run(options, output),
        Command::Drive(options) => drive::run(options, output),
        Command::Doctor(options) => doctor::run(options, output),
        Command::Upgrade(options) => upgrade::run(options, output),
        Command::Takeover(options) => takeover::run(options, output),
    }
}

/// Tells what went wrong, with the command and with what it prints; gives the exit code.
fn finish(result: Result<(), Failure>, output: &Output) -> u8 {
    let failure = result.err();
    if let Some(failure) = &failure {
        output.failure(failure);
    }
    let unprinted = output::stdout_failure();
    if let Some(failure) = unprinted {
        output.note(&format!("forebay: {}", failure.message));
    }
    failure.as_ref().or(unprinted).map_or(0, |failure| failure.exit.code())
}
