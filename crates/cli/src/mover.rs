//! `forebay move`: files to where they are kept for good, and their source lets them go once the destination has proven that it holds them.

mod defined;
mod file;
mod look;
mod places;
mod settings;
mod status;
mod streams;
mod watch;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, FromArgMatches};
use forebay_mover::driver::{self, Config, Control, Counts, Lookout, MoverError, Outcome, Progress};
use forebay_mover::journal::{Journal, JournalError};
use forebay_mover::local::Locks;
use forebay_mover::machine::Template;

use crate::arguments::{DEFAULT_ADDRESS, parse_address};
use crate::connect::{parse_positive_seconds, parse_seconds};
use crate::failure::{Exit, Failure};
use crate::interrupt::{Interrupt, Reload};
use crate::output::Output;
use crate::size::{human_bytes, human_count};
use settings::Settings;
pub use settings::usual_journal;
use watch::Show;

const AFTER_HELP: &str = "\
Examples:
  forebay move --from /data/daq --to /mnt/archive --once
      moves what is there now, waits for its proof, and ends
  forebay move --from forebay:/run17 --to root://eos.example.org//eos/run17 --merge 5GB
      moves sealed files of the store, merged, and takes their names away once they are proven
  forebay move --from stream:physics --to root://eos.example.org//eos/raw
      moves the accepted events of a stream, in files of 5 GB, and lets the store forget them once they are proven
  forebay move --from /data/daq --to /mnt/archive --to /mnt/second --remove
      moves what comes, to both, and removes it once both have proven that they hold it

A file is sent under a temporary name, asked for by size and checksum (read back whole, past the page cache), renamed, asked for again by its name, and once more
after --recheck-after. Only then its source lets it go. Killed at any point and started again with the same journal, each file ends up at each destination
once. What does not come back as it was sent is tried again a few times under other names, then kept where it is and told.
A file is complete when FILE.json (or its name with .json for its ending) is there, or when nobody touched it for --settle. Names that begin with a dot or end in
.copied, .part, .tmp or .lock are left alone.";

/// The options of `move`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct MoveCommand {
    #[command(subcommand)]
    look: Option<look::LookCommand>,

    #[command(flatten)]
    options: Option<MoveOptions>,
}

/// From where, where to, and how.
#[derive(Debug, Args)]
pub struct MoveOptions {
    /// The directory that files are moved from; forebay:/PATH is one of a store: its sealed files; stream:NAME: the accepted events of a stream, stream:A,B of several, stream:* of every one, also of those that come later [no default; this or --config is needed]
    #[arg(long, value_name = "DIR|stream:NAME", required_unless_present = "config")]
    from: Option<String>,

    /// Routes and destinations in a file, instead of --from and --to; SIGHUP has it read again [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "to", "remove", "merge", "settle", "zstd", "sidecar", "register", "register_command", "until", "until_command"])]
    config: Option<PathBuf>,

    /// The server of that store, HOST:PORT; all of its servers, with commas
    #[arg(long, value_name = "ADDR", env = "FOREBAY_SERVER", default_value = DEFAULT_ADDRESS)]
    server: String,

    /// Where files are moved to: a directory, root://HOST/PATH, https://HOST/PATH or s3://BUCKET/PATH; repeatable: all of them must prove that they hold a file [default: of a stream where it is defined to go; else this or --config is needed]
    #[arg(long, value_name = "DIR|URL")]
    to: Vec<String>,

    /// Move what is there now, then end: with 0 if all of it was proven and released [default: run until Ctrl-C]
    #[arg(long)]
    once: bool,

    /// A file that nobody touched for so many seconds is complete [default: 60, with --once 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    settle: Option<Duration>,

    /// The seconds between the first proof of a destination and the second
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = parse_seconds)]
    recheck_after: Duration,

    /// Remove files that were moved, instead of renaming them to FILE.copied
    #[arg(long)]
    remove: bool,

    /// Merge files into larger ones of at most this size, as 5GB: events of a run behind each other, other files of a directory into an archive (tar) [default: each keeps its name; of a stream 5GB]
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse_bytes)]
    merge: Option<u64>,

    /// With --merge or a stream: what does not come to that size in so many seconds is moved as it is [default: 600, with --once at once]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    merge_wait: Option<Duration>,

    /// Of a stream: wait so many seconds at most for an undecided event, so that events are in order
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    order_wait: Duration,

    /// With --merge or a stream: the names of the files, with {directory}, {run}, {sequence}, {extension} and, of a stream, {stream} and {block} in it [default: {directory}/run{run}-{sequence}.{extension}, with -block{block} where runs have luminosity blocks]
    #[arg(long, value_name = "TEMPLATE")]
    name: Option<Template>,

    /// Of a stream: what events become, whatever its definition says: faser, mdf, besiii, plain (fragments behind each other) or parts [default: as defined, else what they are]
    #[arg(long, value_name = "KIND")]
    format: Option<String>,

    /// Compress files with zstd at this level, 1 to 19: FILE.zst, of frames of 4 MiB that stand alone; 3 where no level is said [default: as they are]
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, default_missing_value = "3", value_parser = clap::value_parser!(i32).range(1..=19))]
    zstd: Option<i32>,

    /// A FILE.json beside each file at each destination: its sums, events and parts; the file is proven only when that is, too [default: none]
    #[arg(long)]
    sidecar: bool,

    /// Post what a sidecar says to this http address before the source lets a file go [default: none]
    #[arg(long, value_name = "URL", conflicts_with = "register_command")]
    register: Option<String>,

    /// Give what a sidecar says to this program before the source lets a file go, on its standard input: it exits with 0, with 75 for later, or else refuses [default: none]
    #[arg(long, value_name = "PROGRAM")]
    register_command: Option<PathBuf>,

    /// The file with the bearer token for --register [default: none]
    #[arg(long, value_name = "FILE", requires = "register")]
    register_token_file: Option<PathBuf>,

    /// Where destinations can fetch files of --from themselves, root://HOST/PATH or https://HOST/PATH of its directory: those of the same kind do, for files that are moved as they are [default: all are sent]
    #[arg(long, value_name = "URL")]
    door: Option<String>,

    /// The file with the bearer token that destinations show at --door [default: none]
    #[arg(long, value_name = "FILE", requires = "door")]
    door_token_file: Option<PathBuf>,

    /// A file is proven only when it is `on-tape`, as root:// tells it; waits as long as that takes [default: not waited for]
    #[arg(long, value_name = "WHAT", value_parser = ["on-tape"], conflicts_with = "until_command")]
    until: Option<String>,

    /// A file is proven only when this program exits with 0, asked with its address; with 75 it is asked again later, else it refuses [default: none]
    #[arg(long, value_name = "PROGRAM")]
    until_command: Option<PathBuf>,

    /// Files that are read or sent at once
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,

    /// With --once: what cannot be reached for so many seconds is left for the next time
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    patience: Duration,

    /// A step that moves no byte for so many seconds counts as hanging, and is tried again
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_positive_seconds)]
    stall_after: Duration,

    /// Serve metrics for Prometheus over HTTP at /metrics of this address, IP:PORT; port 0 takes any free port [default: the configuration's, else none]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    metrics: Option<SocketAddr>,

    /// With --metrics: let machines of this network ask for them without asking who they are, IP/BITS; repeatable [default: this machine alone]
    #[arg(long, value_name = "CIDR")]
    insecure_network: Vec<String>,

    /// An alarm when a destination is away, a source cannot be looked at or registering fails for so many seconds; what takes its time is one after a multiple of that [default: the configuration's, else 300]
    #[arg(long, value_name = "SECONDS", value_parser = parse_positive_seconds)]
    alarm_after: Option<Duration>,

    /// Where the mover remembers what it has begun; never below --from or --to [default: one for each --from and --to in the user's state directory]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// The file with the bearer token for root:// and https:// [default: none]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Certificates (PEM) of who may vouch for a server, besides those of the system [default: none]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Where the S3 service listens, as https://HOST:PORT [default: Amazon's]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,

    /// The file with the keys of S3, as `aws configure` writes it [default: AWS_ACCESS_KEY_ID and its like]
    #[arg(long, value_name = "FILE")]
    s3_credentials_file: Option<PathBuf>,
}

impl MoveOptions {
    /// What these words mean behind `forebay`.
    ///
    /// # Errors
    /// Words that mean nothing.
    pub fn of_words(words: Vec<String>) -> Result<MoveOptions, Failure> {
        let matches = MoveOptions::augment_args(clap::Command::new("move")).try_get_matches_from(words);
        let options = matches.and_then(|matches| MoveOptions::from_arg_matches(&matches));
        options.map_err(|error| Failure::usage(error.to_string()))
    }

    /// The same with another journal.
    pub fn with_journal(self, journal: PathBuf) -> MoveOptions {
        MoveOptions { journal: Some(journal), ..self }
    }
}

/// Moves as these options say, until it is over or somebody ends it; `told` is told how much was done.
///
/// # Errors
/// What does not let it go on.
pub fn move_beside(command: &MoveOptions, control: &Control, told: &dyn Fn(&Counts)) -> Result<Outcome, Failure> {
    let settings = Settings::of(command)?;
    let (mut locks, mut journal) = (Locks::default(), None);
    let (config, _watch) = make_ready(&settings, command, &|_| (), (&mut locks, &mut journal))?;
    let journal = journal.as_mut().expect("it was opened");
    let mut lookout = settings.telling.lookout();
    let told = |progress: &Progress| told(progress.counts());
    driver::run(&config, journal, control, &mut lookout, &told).map_err(|error| mover_failure(&error))
}

/// Moves until it is over.
///
/// # Errors
/// Why not everything was moved.
pub fn run(command: &MoveCommand, output: &Output) -> Result<(), Failure> {
    match command {
        MoveCommand { look: Some(look), .. } => look::run(look, output),
        MoveCommand { options: Some(options), .. } => move_files(options, output),
        MoveCommand { .. } => Err(Failure::usage(
            "say from where (--from DIR) and where to (--to DIR), or what to look at (forebay move --help); nothing was moved",
        )),
    }
}

/// Moves as these options say.
///
/// # Errors
/// Why not everything was moved.
pub fn move_files(command: &MoveOptions, output: &Output) -> Result<(), Failure> {
    let start = Instant::now();
    let reload = command.config.as_ref().map(|_| Reload::catch()).transpose()?;
    let interrupt = if reload.is_some() { Interrupt::catch_but_reload()? } else { Interrupt::catch()? };
    let mut settings = Settings::of(command)?;
    let (mut lookout, _metrics) = settings.telling.start(output)?;
    let mut before = None;
    let mut earlier = Outcome::default();
    // Handed on: what hangs has them still.
    let (mut locks, mut journal) = (Locks::default(), None);
    loop {
        let ready = make_ready(&settings, command, &|text| output.note(text), (&mut locks, &mut journal));
        let is_ready = ready.is_ok();
        let moved = ready.and_then(|(config, _watch)| {
            let opened = (config, journal.as_mut().expect("it was opened"), &mut locks);
            move_by(&settings, opened, command, output, (&interrupt, reload.as_ref()), &mut lookout)
        });
        let (mut outcome, next) = match (moved, before.take()) {
            // Nothing was done by what was read again.
            (Err(failure), Some(before)) if !is_ready || failure.exit == Exit::Usage => {
                tracing::error!("{}. The mover goes on as before", failure.message);
                settings = before;
                continue;
            }
            (moved, _) => moved?,
        };
        outcome.add(&earlier);
        match next {
            Some(next) => {
                output.note("the configuration was read again; what was on its way goes on");
                before = Some(std::mem::replace(&mut settings, next));
                earlier = outcome;
            }
            None => return tell(command, output, &outcome, start.elapsed(), &settings.journal),
        }
    }
}

/// Opens all that these settings name.
fn make_ready(
    settings: &Settings,
    command: &MoveOptions,
    note: &dyn Fn(&str),
    (locks, journal): (&mut Locks, &mut Option<Journal>),
) -> Result<(Config, streams::Watch), Failure> {
    let failed = |error| journal_failure(&error);
    let known = match journal {
        Some(journal) => journal.places(),
        None => Journal::places_of(&settings.journal),
    };
    let known = known.map_err(failed)?;
    let opened = settings.open_places(&known, locks)?;
    let journal = match journal {
        Some(journal) => journal,
        None => {
            note(&format!("the journal is {}", settings.journal.display()));
            journal.insert(Journal::open(&settings.journal).map_err(failed)?)
        }
    };
    settings.remember_places(&known, journal)?;
    settings.config(opened, journal, command)
}

/// Moves by these settings until it is over, or others are to be gone on with.
fn move_by(
    settings: &Settings,
    (config, journal, locks): (Config, &mut Journal, &mut Locks),
    command: &MoveOptions,
    output: &Output,
    (interrupt, reload): (&Interrupt, Option<&Reload>),
    lookout: &mut Lookout,
) -> Result<(Outcome, Option<Settings>), Failure> {
    let control = Control::default();
    let next = Mutex::new(None);
    let show = Mutex::new(Show::new(output));
    let locks = Cell::new(Some(locks));
    let told = |progress: &Progress| {
        // It moves: what was moved from before, and is not now, is anybody's.
        if let Some(locks) = locks.take() {
            locks.keep_only(&settings.origins().iter().filter_map(|origin| origin.directory()).collect::<Vec<_>>());
        }
        if interrupt.is_set() {
            control.stop();
        } else if reload.is_some_and(Reload::take) {
            match Settings::of(command) {
                Ok(next) if next.journal != settings.journal => tracing::error!(
                    "{} is another journal than {}, and what is on its way is in this one: stop the mover to begin with another. The mover goes on as before",
                    next.journal.display(),
                    settings.journal.display()
                ),
                Ok(next) if next.telling != settings.telling => {
                    tracing::error!(
                        "how the mover tells of itself (metrics, insecure-network, alarm-after-s) is another; that needs a new start. The mover goes on as before"
                    );
                }
                Ok(settings) => {
                    *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
                    control.drain();
                }
                Err(failure) => tracing::error!("{}. The mover goes on as before", failure.message),
            }
        }
        show.lock().unwrap_or_else(PoisonError::into_inner).update(progress);
    };
    let outcome = driver::run(&config, journal, &control, lookout, &told).map_err(|error| mover_failure(&error))?;
    let next = next.into_inner().unwrap_or_else(PoisonError::into_inner);
    let next = next.or_else(|| outcome.wants_destinations.then(|| with_new_destinations(settings, command)));
    let goes_on = outcome.end.is_none() && !interrupt.is_set();
    Ok((outcome, next.filter(|_| goes_on)))
}

/// What the command says now that streams are defined to go elsewhere.
fn with_new_destinations(settings: &Settings, command: &MoveOptions) -> Settings {
    Settings::of(command).unwrap_or_else(|failure| {
        tracing::error!("{}. The mover goes on as before, and tries that again", failure.message);
        settings.clone()
    })
}

fn tell(
    command: &MoveOptions,
    output: &Output,
    outcome: &Outcome,
    took: Duration,
    journal: &Path,
) -> Result<(), Failure> {
    let counts = &outcome.counts;
    output.line(&format!("{} in {:.1} s", words(counts), took.as_secs_f64()));
    for left in &outcome.left {
        let why = if left.words.is_empty() { String::new() } else { format!(": {}", left.words) };
        output.line(&format!("  {:<12} {}{}", left.state, left.name, plain(&why)));
    }
    for (route, of) in outcome.by_route.iter().filter(|_| outcome.by_route.len() > 1) {
        output.line(&format!("  {route}: {}", released(of)));
    }
    let more = outcome.left_files - outcome.left.len();
    if more > 0 {
        output.line(&format!("  and {more} more"));
    }
    let left: Vec<_> = outcome
        .left
        .iter()
        .map(|left| serde_json::json!({ "name": left.name, "state": left.state, "words": left.words }))
        .collect();
    let route = |(route, of): (&String, &Counts)| {
        let (files, bytes, events) = (of.released, of.released_bytes, of.released_events);
        (route.clone(), serde_json::json!({ "released": files, "released_bytes": bytes, "released_events": events }))
    };
    let routes: serde_json::Map<_, _> = outcome.by_route.iter().map(route).collect();
    let mut object = serde_json::json!({
        "found": counts.found,
        "released": counts.released,
        "released_bytes": counts.released_bytes,
        "released_events": counts.released_events,
        "fragments_lost": counts.fragments_lost,
        "routes": routes,
        "withdrawn": counts.withdrawn,
        "left_files": outcome.left_files,
        "left": left,
        "seconds": took.as_secs_f64(),
        "journal": journal.display().to_string(),
    });
    let failure = outcome.end.as_ref().map_or_else(
        || {
            command.once.then(|| {
                Failure::retry(
                    "interrupted; nothing was released that is not proven, and what is on its way is gone on with by the next start with the same journal",
                )
            })
        },
        |end| match (end.quarantined, end.failing) {
            (0, 0) if end.left_alone > 0 => Some(Failure::data(format!(
                "{} files or directories were left alone, for what is told above; they are still at the source. Do what is said there, then start again",
                end.left_alone
            ))),
            (0, 0) if end.held > 0 => Some(Failure::data(format!(
                "{} files are held by somebody, and were not released; `forebay move go-on` lets them go on",
                end.held
            ))),
            (0, 0) if end.blocked > 0 => Some(Failure::data(format!(
                "{} files wait for another one of their name at one of their destinations; `forebay move list` has it",
                end.blocked
            ))),
            (0, 0) if counts.fragments_lost > 0 => Some(Failure::data(format!(
                "{} fragments of accepted events are lost in the store: these events were moved without them, and released; sidecars mark them. `forebay lost` has all \
                 that is lost; look at the drives of the store (forebay status)",
                counts.fragments_lost
            ))),
            (0, 0) => None,
            (0, failing) => Some(Failure::retry(format!(
                "{failing} files or sources could not be reached for {} s; nothing of them was released. Look at what is said above, then start again",
                command.patience.as_secs()
            ))),
            (quarantined, _) => Some(Failure::data(format!(
                "{quarantined} files are quarantined: they are still at the source, and were not released. Look at what is said above; the audit log \
                 {}.audit.jsonl has every step",
                journal.display()
            ))),
        },
    );
    output.result(&mut object, failure)
}

fn mover_failure(error: &MoverError) -> Failure {
    match error {
        MoverError::Journal(error) => journal_failure(error),
        MoverError::Audit { .. } => Failure::retry(error),
        MoverError::RouteMissing { .. } | MoverError::DestinationMissing { .. } => Failure::usage(error),
    }
}

fn journal_failure(error: &JournalError) -> Failure {
    match error {
        JournalError::Locked { .. } | JournalError::Sqlite { .. } => Failure::retry(error),
        JournalError::Io { .. } | JournalError::Foreign { .. } => Failure::usage(error),
        JournalError::Damaged { .. } => Failure::data(error),
    }
}

/// Words of others, without what a terminal would act on.
fn plain(words: &str) -> String {
    words.chars().map(|character| if character.is_control() { '\u{FFFD}' } else { character }).collect()
}

fn words(counts: &Counts) -> String {
    let lost = match counts.fragments_lost {
        0 => String::new(),
        lost => format!(", {} fragments lost in the store", human_count(lost)),
    };
    format!("{} files found, {}{lost}", human_count(counts.found), released(counts))
}

fn released(counts: &Counts) -> String {
    let events = match counts.released_events {
        0 => String::new(),
        events => format!(" with {} events", human_count(events)),
    };
    let (files, bytes) = (human_count(counts.released), human_bytes(counts.released_bytes));
    format!("{files}{events} moved, proven and released, {bytes}")
}
