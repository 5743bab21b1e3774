//! `forebay stream`: what streams are defined to be.

use clap::{Args, Subcommand};
use forebay_client::{Class, Client};
use forebay_types::{BlockRule, StreamDefinition, StreamName, StreamSources, StreamVersion};
use serde::Serialize;

use crate::connect::AskOptions;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::date_time;

const AFTER_HELP: &str = "\
Examples:
  forebay stream define physics --destination root://eos.example//raw --format mdf --priority 10
  forebay stream define calibration --sources 0-3 --prescale 100 --block-s 60
  forebay stream list                            the newest version of each
  forebay stream show physics                    every version of one

Each definition is a new version; earlier ones stay. A run has the versions that were newest when it was started (`forebay run show`).
The store applies the prescale: of the events that a filter accepts into the stream, those are in it whose number can be divided by it. All else is for whoever ships.
Events of streams that nobody defined go on as they always did.
Exit codes: 1 when there is no such stream; 2 when it cannot be defined so (nothing was changed); 3 when the server does not answer.";

/// The options of `stream`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct StreamCommand {
    #[command(flatten)]
    ask: AskOptions,

    #[command(subcommand)]
    command: StreamSubcommand,
}

/// What is done.
#[derive(Debug, Subcommand)]
enum StreamSubcommand {
    /// Define a stream, or define it anew from the next started run on
    Define(Box<DefineCommand>),
    /// List the streams that are defined
    List,
    /// Say what a stream is and was defined to be
    Show {
        /// The stream
        #[arg(value_name = "NAME")]
        name: StreamName,
    },
}

/// The options of `define`.
#[derive(Debug, Args)]
pub struct DefineCommand {
    /// The stream: up to 64 letters, digits, `_`, `-` and `.`
    #[arg(value_name = "NAME")]
    name: StreamName,

    /// The sources that it is shipped with: all, or some, such as 0-15,32
    #[arg(long, value_name = "all|LIST", default_value = "all")]
    sources: StreamSources,

    /// Keep one event in so many
    #[arg(long, value_name = "N", default_value_t = 1)]
    prescale: u32,

    /// The format of its files: faser, mdf, besiii, plain or parts, or as whoever ships it calls it [default: what its events are]
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    format: String,

    /// Streams with a higher one are shipped first
    #[arg(long, value_name = "P", default_value_t = 0)]
    priority: u16,

    /// Where it goes: an address, or the name of a destination of the mover's configuration [default: where the mover is told]
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    destination: String,

    /// A luminosity block has so many event numbers [default: a run is one block]
    #[arg(long, value_name = "EVENTS", conflicts_with = "block_s")]
    block: Option<u64>,

    /// A luminosity block lasts so many seconds [default: a run is one block]
    #[arg(long, value_name = "SECONDS")]
    block_s: Option<u64>,

    /// Who defines it, as it is kept with the version
    #[arg(long, value_name = "NAME", env = "USER", default_value = "")]
    by: String,
}

/// Defines or shows streams.
///
/// # Errors
/// Why it was not done.
pub fn run(command: &StreamCommand, output: &Output) -> Result<(), Failure> {
    let mut client = command.ask.connect(Class::Monitor)?;
    match &command.command {
        StreamSubcommand::Define(command) => define(command, &mut client, output),
        StreamSubcommand::List => list(&mut client, output),
        StreamSubcommand::Show { name } => show(name, &mut client, output),
    }
}

fn define(command: &DefineCommand, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let DefineCommand { name, sources, prescale, format, priority, destination, block, block_s, by } = command;
    let block = match (block, block_s) {
        (Some(events), _) => BlockRule::Events(*events),
        (None, Some(seconds)) => BlockRule::Seconds(*seconds),
        (None, None) => BlockRule::Run,
    };
    let definition = StreamDefinition {
        sources: sources.clone(),
        prescale: *prescale,
        format: format.clone(),
        priority: *priority,
        destination: destination.clone(),
        block,
    };
    definition.check().map_err(|error| Failure::usage(format!("{error}. Nothing was changed")))?;
    let version = client.define_stream(name, definition, by)?;
    output.object(&version);
    output.line(&format!("stream {name}: version {}, for runs that are started from now on", version.version));
    Ok(())
}

#[derive(Serialize)]
struct Listed<'a> {
    streams: &'a [StreamVersion],
}

fn list(client: &mut Client, output: &Output) -> Result<(), Failure> {
    let streams = client.stream_definitions()?;
    output.object(&Listed { streams: &streams });
    if streams.is_empty() {
        output.line("no stream is defined; events are accepted into whatever streams filters name");
    } else {
        tell(&streams, output);
    }
    Ok(())
}

fn show(name: &StreamName, client: &mut Client, output: &Output) -> Result<(), Failure> {
    let streams = client.stream_versions(name)?;
    if streams.is_empty() {
        return Err(Failure::data(format!(
            "stream {name} is not defined; filters may accept events into it all the same. `forebay stream define {name}` defines it"
        )));
    }
    output.object(&Listed { streams: &streams });
    tell(&streams, output);
    Ok(())
}

fn tell(streams: &[StreamVersion], output: &Output) {
    output.line(&format!(
        "{:<20}  {:>7}  {:>8}  {:>8}  {:<10}  {:<12}  {:<16}  {:<28}  {}",
        "stream", "version", "prescale", "priority", "format", "block", "sources", "defined", "destination"
    ));
    for StreamVersion { name, version, at_unix_ns, by, definition } in streams {
        let StreamDefinition { sources, prescale, format, priority, destination, block } = definition;
        let word = |text: &str| if text.is_empty() { "-".to_owned() } else { text.escape_debug().to_string() };
        let by = if by.is_empty() { String::new() } else { format!(" by {}", by.escape_debug()) };
        let defined = date_time(u64::try_from(*at_unix_ns).unwrap_or(0) / 1_000_000);
        output.line(&format!(
            "{:<20}  {version:>7}  {prescale:>8}  {priority:>8}  {:<10}  {:<12}  {:<16}  {:<28}  {}{by}",
            name.as_str(),
            word(format),
            block.to_string(),
            sources.to_string(),
            defined,
            word(destination)
        ));
    }
}
