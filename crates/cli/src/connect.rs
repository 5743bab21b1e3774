//! How commands reach a server.

use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use forebay_client::files::Files;
use forebay_client::{Class, Client, ClientConfig};

use crate::arguments::DEFAULT_ADDRESS;
use crate::failure::Failure;

/// The options of every command that talks to a server; of one that has commands of its own, before and behind these.
#[derive(Clone, Debug, Args)]
pub struct ServerOptions {
    /// The server, HOST:PORT; of a store in a cluster all of its servers, with commas: the one that has it is found
    #[arg(long, value_name = "ADDR", env = "FOREBAY_SERVER", default_value = DEFAULT_ADDRESS, global = true)]
    pub server: String,
}

/// The options of commands that ask once.
#[derive(Clone, Debug, Args)]
pub struct AskOptions {
    /// Where to ask.
    #[command(flatten)]
    pub server: ServerOptions,

    /// Give up after so many seconds without an answer; where nothing listens at the only server named, at once
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_positive_seconds, global = true)]
    pub timeout: Duration,
}

impl AskOptions {
    /// A client that gives up after the timeout.
    ///
    /// # Errors
    /// When no server answers.
    pub fn connect(&self, class: Class) -> Result<Client, Failure> {
        connect(&self.server, self.timeout, class)
    }
}

/// The options of commands that work with files, which go on when the server is started anew meanwhile.
#[derive(Clone, Debug, Args)]
pub struct FilesOptions {
    /// Where they lie.
    #[command(flatten)]
    pub server: ServerOptions,

    /// Give up after so many seconds without an answer, or without room; where nothing listens at first at the only server named, at once
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_positive_seconds, global = true)]
    pub timeout: Duration,
}

impl FilesOptions {
    /// The files of the store, of a client that gives up after the timeout.
    ///
    /// # Errors
    /// When no server answers.
    pub fn connect(&self, class: Class) -> Result<Files, Failure> {
        Ok(Files::new(connect(&self.server, self.timeout, class)?)?)
    }
}

/// A client of this class that gives up after `timeout`.
///
/// # Errors
/// When no server answers.
pub fn connect(server: &ServerOptions, timeout: Duration, class: Class) -> Result<Client, Failure> {
    let mut config = ClientConfig::new(&server.server, "forebay").class(class).deadline(Some(timeout));
    config.connect_timeout = config.connect_timeout.min(timeout);
    config.must_listen = true;
    Ok(Client::connect(config)?)
}

/// Threads or connections of one command: at least one, and not so many that they only stand in each other's way.
pub fn parse_threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=256)
}

/// Reads a time in seconds, such as `0.5` or `30`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0 && *seconds <= 1e9);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds, such as 0.5 or 30".to_owned())
}

/// As [`parse_seconds`], for what would end before it has begun with no time at all.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_positive_seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "expected seconds above 0, such as 0.5 or 30".to_owned())
}
