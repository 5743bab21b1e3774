//! The `forebay` command.
//!
//! One file for each subcommand; what they share: [`failure`] (how a command ends badly), [`output`] (stdout,
//! stderr, progress) and [`size`]. Nothing here decides anything about data: that is in the crates below.

mod arguments;
mod config;
mod connect;
mod delete;
mod demo;
mod failure;
mod filter;
mod get;
mod init;
mod interrupt;
mod output;
mod put;
mod readout;
mod record;
mod serve;
mod size;
mod status;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::usage_error(&error),
    };
    let output = Output::new(arguments.json);
    output::start_logging(&arguments);
    let result = match &arguments.command {
        Command::Init(options) => init::run(options, &output),
        Command::Serve(options) => serve::run(options, &output),
        Command::Put(options) => put::run(options, &output),
        Command::Get(options) => get::run(options, &output),
        Command::Delete(options) => delete::run(options, &output),
        Command::Readout(options) => readout::run(options, &output),
        Command::Filter(options) => filter::run(options, &output),
        Command::Record(options) => record::run(options, &output),
        Command::Demo(options) => demo::run(options, &output),
        Command::Status(options) => status::run(options, &output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => finish(&failure, &output),
    }
}

fn finish(failure: &Failure, output: &Output) -> ExitCode {
    output.failure(failure);
    ExitCode::from(failure.exit as u8)
}
