//! The command line as a whole.

use std::net::SocketAddr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use forebay_telemetry::reach::IpNet;

use crate::failure::Failure;
use crate::{
    delete, demo, doctor, drive, file, filter, get, init, lost, mount, mover, put, readout, record, run, serve, status,
    stream, subscribe, takeover, trace, upgrade,
};

/// The environment variable that says what is logged.
pub const LOG_VARIABLE: &str = "FOREBAY_LOG";

/// Where a server listens, and clients look for it, when nothing is said.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7420";

const AFTER_HELP: &str = "\
First steps:
  forebay demo                                   the whole path on this machine, in about 20 s

A store of your own, of five files:
  forebay init --data 4 --parity 1 --drive-bytes 1GiB /data/d0 /data/d1 /data/d2 /data/d3 /data/d4
  forebay serve /data/d0 /data/d1 /data/d2 /data/d3 /data/d4
  echo hello | forebay put 1/7/256 -
  forebay get 1/7/256 -
  forebay status

Exit codes:
  0  good
  1  data are lost, damaged, mismatched, or not there
  2  the command cannot be done as it was given
  3  try again: server not reachable, no space, drives missing";

/// The buffer between a detector and permanent storage.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Print one JSON object on one line of stdout and nothing else there (`subscribe`: one a line) [default: words]
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,

    /// Log more to stderr; twice, much more (FOREBAY_LOG, such as "info,forebay_server=debug", overrules it)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Output")]
    pub verbose: u8,

    /// Log less to stderr, and show no progress; errors of the command itself are always printed
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Output")]
    pub quiet: u8,
}

impl Arguments {
    /// Reads the command line.
    ///
    /// # Errors
    /// What is wrong with it; help and version too.
    pub fn read() -> Result<Arguments, clap::Error> {
        let mut command = Arguments::command().mut_subcommands(take_negative_numbers);
        match command.try_get_matches_from_mut(std::env::args_os()) {
            Ok(matches) => Arguments::from_arg_matches(&matches),
            Err(error) => Err(negative_number(&error, &mut command).unwrap_or(error)),
        }
    }
}

/// A number below 0 is a wrong value, not an unknown option; so in commands of commands.
fn take_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| {
        let takes_value = argument.get_action().takes_values();
        argument.allow_negative_numbers(takes_value)
    });
    command.mut_subcommands(take_negative_numbers)
}

/// What is wrong with the name of an event or a fragment that begins with such a number: it looks like an option.
fn negative_number(error: &clap::Error, command: &mut clap::Command) -> Option<clap::Error> {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return None };
    let begins_so = found.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if error.kind() != ErrorKind::UnknownArgument || !begins_so {
        return None;
    }
    let given = std::env::args().find(|argument| argument.starts_with(found)).unwrap_or_else(|| found.clone());
    let words = format!("invalid value '{given}': runs, events, sources and drives have numbers from 0 on");
    Some(command.error(ErrorKind::ValueValidation, words))
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a store on drives: block devices or files
    Init(init::InitCommand),
    /// Serve a store to the network until SIGTERM or Ctrl-C
    Serve(Box<serve::ServeCommand>),
    /// Store one fragment
    Put(put::PutCommand),
    /// Read one fragment
    Get(get::GetCommand),
    /// Delete an event with all of its fragments
    Delete(delete::DeleteCommand),
    /// List, copy, rename and remove the files of a store
    File(file::FileCommand),
    /// Print the end of a file, and follow it while it is written
    Tail(file::TailCommand),
    /// Write events as a detector's read-out does (emulator)
    Readout(Box<readout::ReadoutCommand>),
    /// Read, verify and decide events as an event filter does (emulator)
    Filter(Box<filter::FilterCommand>),
    /// Write accepted events into verified files, stream by stream, and let the store forget them
    Record(record::RecordCommand),
    /// Move files to where they are kept for good, and let them go once they are proven to be there
    Move(Box<mover::MoveCommand>),
    /// Look on at some events while they arrive, best effort
    Subscribe(subscribe::SubscribeCommand),
    /// Show the whole path on this machine: events in, a drive dies, verified files out, nothing lost
    Demo(demo::DemoCommand),
    /// Say how a server and its store are
    Status(status::StatusCommand),
    /// Say what happened to an event: what arrived when, where it lies, what was decided, in which files it is
    Trace(trace::TraceCommand),
    /// Say exactly what is lost, and why
    Lost(lost::LostCommand),
    /// Show the files of a store as a directory (FUSE)
    Mount(mount::MountCommand),
    /// Declare, start, stop, close, hold and discard runs
    Run(Box<run::RunCommand>),
    /// Define streams
    Stream(Box<stream::StreamCommand>),
    /// List a server's drives, and take them out of use or put new ones in while it serves
    Drive(drive::DriveCommand),
    /// Say what lies on the drives of a stopped server, and write what can be read into files
    Doctor(doctor::DoctorCommand),
    /// Give a stopped store the newest format version, which has files, runs and streams
    Upgrade(upgrade::UpgradeCommand),
    /// Take a store that several servers reach from the one that has it
    Takeover(takeover::TakeoverCommand),
}

impl Command {
    /// Whether it is one that runs until it is stopped and is watched by its log.
    pub fn runs_long(&self) -> bool {
        matches!(self, Command::Serve(_) | Command::Record(_) | Command::Move(_) | Command::Mount(_))
    }
}

/// Reads an address.
///
/// # Errors
/// What is expected.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, as in 127.0.0.1:7420".to_owned())
}

/// Reads the networks whose machines may connect.
///
/// # Errors
/// One that is none.
pub fn parse_networks(networks: &[String]) -> Result<Vec<IpNet>, Failure> {
    let parse = |network: &String| {
        network.parse().map_err(|error| {
            Failure::usage(format!(
                "--insecure-network {network}: {error}; nothing was started. Give IP/BITS, as in 10.1.0.0/16"
            ))
        })
    };
    networks.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    /// `--help` alone must tell what an option takes: every option has words, and says its default or that it has none.
    #[test]
    fn every_option_is_described() {
        for command in Arguments::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{} says what it does", command.get_name());
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let place = format!("{} {}", command.get_name(), argument.get_id());
                assert!(!help.is_empty(), "{place} says what it is");
                let takes_value = argument.get_num_args().is_none_or(|range| range.takes_values());
                let told = !argument.get_default_values().is_empty()
                    || argument.is_required_set()
                    || argument.is_positional()
                    || help.contains("default")
                    || !matches!(argument.get_action(), clap::ArgAction::Set | clap::ArgAction::Append)
                    || !takes_value;
                assert!(told, "{place} says its default: {help}");
            }
        }
    }
}
