//! `forebay move`: files to where they are kept for good, and their source lets them go once the destination has proven that it holds them.

mod look;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use forebay_destinations::{Access, Address};
use forebay_mover::custody::Policy;
use forebay_mover::driver::{self, Config, Control, Counts, MoverError, Outcome, Route, Target};
use forebay_mover::endpoint::Destination;
use forebay_mover::journal::{Journal, JournalError};
use forebay_mover::local::{DirectoryDestination, DirectorySource, Disposal};
use forebay_mover::machine::{DestinationConfig, DestinationIndex, RouteConfig};
use forebay_types::crc32c;

use crate::connect::{parse_positive_seconds, parse_seconds};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::size::{human_bytes, human_count};

const AFTER_HELP: &str = "\
Examples:
  forebay move --from /data/daq --to /mnt/archive --once
      moves what is there now, waits for its proof, and ends
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

    // Beside the others: an optional group in which another group lies is never taken for given.
    #[command(flatten)]
    access: AccessOptions,
}

/// From where, where to, and how.
#[derive(Debug, Args)]
pub struct MoveOptions {
    /// The directory that files are moved from
    #[arg(long, value_name = "DIR")]
    from: PathBuf,

    /// Where files are moved to: a directory, root://HOST/PATH, https://HOST/PATH or s3://BUCKET/PATH; repeatable: all of them must prove that they hold a file
    #[arg(long, value_name = "DIR|URL", required = true)]
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

    /// Files that are read or sent at once
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,

    /// With --once: what cannot be reached for so many seconds is left for the next time
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    patience: Duration,

    /// A step that moves no byte for so many seconds counts as hanging, and is tried again
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_positive_seconds)]
    stall_after: Duration,

    /// Where the mover remembers what it has begun; never below --from or --to [default: one for each --from and --to in the user's state directory]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

/// How destinations are reached over the network. Secrets come from files, which are read again when they change.
#[derive(Debug, Args)]
struct AccessOptions {
    /// The file with the bearer token for root:// and https://
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Certificates (PEM) of who may vouch for a server, besides those of the system
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Where the S3 service listens, as https://HOST:PORT [default: Amazon's]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,

    /// The file with the keys of S3, as `aws configure` writes it
    #[arg(long, value_name = "FILE")]
    s3_credentials_file: Option<PathBuf>,
}

impl AccessOptions {
    fn access(&self) -> Access {
        Access {
            token_file: self.token_file.clone(),
            ca_file: self.ca_file.clone(),
            s3_endpoint: self.s3_endpoint.clone(),
            s3_credentials_file: self.s3_credentials_file.clone(),
        }
    }
}

/// Moves until it is over.
///
/// # Errors
/// Why not everything was moved.
pub fn run(command: &MoveCommand, output: &Output) -> Result<(), Failure> {
    match command {
        MoveCommand { look: Some(look), .. } => look::run(look, output),
        MoveCommand { options: Some(options), access, .. } => move_files(options, access, output),
        MoveCommand { .. } => Err(Failure::usage(
            "say from where (--from DIR) and where to (--to DIR), or what to look at (forebay move --help); nothing was moved",
        )),
    }
}

fn move_files(command: &MoveOptions, access: &AccessOptions, output: &Output) -> Result<(), Failure> {
    let (from, to) = places(command)?;
    let path = journal_path(command, &from, &to)?;
    let source = open_source(command)?;
    let targets = to.iter().map(|place| open_place(place, access)).collect::<Result<_, _>>()?;
    check_apart(&from, &to)?;
    output.note(&format!("the journal is {}", path.display()));
    let mut journal = Journal::open(&path).map_err(|error| journal_failure(&error))?;
    let config = config(command, source, targets, &from, &to);
    let (control, interrupt, start) = (Control::default(), Interrupt::catch()?, Instant::now());
    let bar = std::sync::Mutex::new((output.progress(0, "move {spinner} {msg}"), Instant::now(), None));
    let told = |counts: &Counts| {
        if interrupt.is_set() {
            control.stop();
        }
        let mut bar = bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Days may pass without a file.
        let shown = Counts { moved_bytes: 0, ..*counts };
        if bar.1.elapsed() >= Duration::from_millis(100) && bar.2 != Some(shown) {
            bar.0.update(0, || words(counts));
            (bar.1, bar.2) = (Instant::now(), Some(shown));
        }
    };
    let outcome = driver::run(&config, &mut journal, &control, &told);
    drop(bar);
    let outcome = outcome.map_err(|error| match &error {
        MoverError::Journal(error) => journal_failure(error),
        MoverError::Audit { .. } => Failure::retry(&error),
        MoverError::RouteMissing { .. } => Failure::usage(&error),
    })?;
    tell(command, output, &outcome, start.elapsed(), &path)
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
    let more = outcome.left_files - outcome.left.len();
    if more > 0 {
        output.line(&format!("  and {more} more"));
    }
    let left: Vec<_> = outcome
        .left
        .iter()
        .map(|left| serde_json::json!({ "name": left.name, "state": left.state, "words": left.words }))
        .collect();
    let mut object = serde_json::json!({
        "found": counts.found,
        "released": counts.released,
        "released_bytes": counts.released_bytes,
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

fn open_source(command: &MoveOptions) -> Result<DirectorySource, Failure> {
    let disposal = if command.remove { Disposal::Remove } else { Disposal::Rename };
    let from = command.from.as_path();
    DirectorySource::open(from, disposal).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Failure::retry(format!(
            "another mover has {}; this one did nothing. Wait for it, or stop it first",
            from.display()
        )),
        _ => Failure::file(
            "use",
            from,
            &error,
            "nothing was moved. Give a directory that this user can read and write with --from",
        ),
    })
}

/// Where files are moved to.
#[derive(Clone, Debug)]
enum Place {
    /// A directory, without links on the way.
    Directory(PathBuf),
    /// What is reached over the network.
    Remote(Address),
}

impl Place {
    fn directory(&self) -> Option<&Path> {
        match self {
            Place::Directory(path) => Some(path),
            Place::Remote(_) => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(path) => path.display().fmt(f),
            Place::Remote(address) => address.fmt(f),
        }
    }
}

fn open_place(place: &Place, access: &AccessOptions) -> Result<Arc<dyn Destination>, Failure> {
    match place {
        Place::Directory(path) => match DirectoryDestination::open(path) {
            Ok(directory) => Ok(Arc::new(directory)),
            Err(error) => Err(Failure::file(
                "use",
                path,
                &error,
                "nothing was moved. Give a directory that this user can write with --to; its parent must be there",
            )),
        },
        Place::Remote(address) => forebay_destinations::open(address, &access.access())
            .map_err(|error| Failure::usage(format!("{address} cannot be used: {error}; nothing was moved"))),
    }
}

/// Where from and where to; nothing is made yet. No directory may lie in another: what arrives would be moved again.
fn places(command: &MoveOptions) -> Result<(PathBuf, Vec<Place>), Failure> {
    let failed = |path: &Path, error| Failure::file("look at", path, &error, "nothing was moved");
    let from = fs::canonicalize(&command.from).map_err(|error| {
        Failure::file("look at", &command.from, &error, "nothing was moved. Give a directory that is there with --from")
    })?;
    // One that is not there is made in a directory that is.
    let real = |path: &PathBuf| match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let parent = fs::canonicalize(parent).map_err(|error| {
                Failure::file(
                    "use",
                    parent,
                    &error,
                    "nothing was moved. The directory in which one is to be made with --to must be there",
                )
            })?;
            Ok(parent.join(path.file_name().unwrap_or_default()))
        }
        real => real.map_err(|error| failed(path, error)),
    };
    let place = |text: &String| {
        if !Address::is_meant(text) {
            return real(&PathBuf::from(text)).map(Place::Directory);
        }
        let address = text.parse().map_err(|error| {
            Failure::usage(format!(
                "{error}. Give a directory, root://HOST/PATH, https://HOST/PATH or s3://BUCKET/PATH; nothing was moved"
            ))
        });
        address.map(Place::Remote)
    };
    let to: Vec<Place> = command.to.iter().map(place).collect::<Result<_, _>>()?;
    check_remotes(&to)?;
    let all: Vec<&Path> = std::iter::once(from.as_path()).chain(to.iter().filter_map(Place::directory)).collect();
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            if at != other_at && one.starts_with(other) {
                return Err(Failure::usage(format!(
                    "{} lies in {}, or is the same; nothing was moved. What arrives there would be taken for what is to be moved: give other directories",
                    one.display(),
                    other.display()
                )));
            }
        }
    }
    Ok((from, to))
}

/// That each address is given once: one copy is not two.
fn check_remotes(to: &[Place]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    let twice = to.iter().find(|place| matches!(place, Place::Remote(address) if !seen.insert(address)));
    twice.map_or(Ok(()), |place| Err(Failure::usage(format!("{place} is given twice; nothing was moved"))))
}

/// That no two of the directories are one, by whatever way they are reached: a copy on itself is none.
fn check_apart(from: &Path, to: &[Place]) -> Result<(), Failure> {
    let mut seen: BTreeMap<(u64, u64), &Path> = BTreeMap::new();
    for path in std::iter::once(from).chain(to.iter().filter_map(Place::directory)) {
        let metadata =
            fs::metadata(path).map_err(|error| Failure::file("look at", path, &error, "nothing was moved"))?;
        if let Some(other) = seen.insert((metadata.dev(), metadata.ino()), path) {
            return Err(Failure::usage(format!(
                "{} and {} are the same directory (a mount of it?); nothing was moved. Give other directories",
                other.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

fn journal_path(command: &MoveOptions, from: &Path, to: &[Place]) -> Result<PathBuf, Failure> {
    let path = match &command.journal {
        Some(path) => path.clone(),
        None => {
            let state = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
            let home = || {
                std::env::var_os("HOME")
                    .filter(|path| !path.is_empty())
                    .map(|home| Path::new(&home).join(".local/state"))
            };
            let state = state.or_else(home).ok_or_else(|| {
                Failure::usage("neither XDG_STATE_HOME nor HOME is set: say where the journal is to be, with --journal FILE; nothing was moved")
            })?;
            let directory = state.join("forebay");
            fs::create_dir_all(&directory).map_err(|error| {
                Failure::file(
                    "make",
                    &directory,
                    &error,
                    "nothing was moved. Say where the journal is to be, with --journal FILE",
                )
            })?;
            directory.join(format!("move-{:08x}.sqlite", crc32c(route_name(from, to).as_bytes())))
        }
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = fs::canonicalize(parent).map_err(|error| {
        Failure::file("use", parent, &error, "nothing was moved. The journal needs a directory that is there")
    })?;
    for place in std::iter::once(from).chain(to.iter().filter_map(Place::directory)) {
        if parent.starts_with(place) {
            return Err(Failure::usage(format!(
                "the journal {} would lie in {}; nothing was moved. It must survive whatever becomes of the files: give another place with --journal FILE",
                path.display(),
                place.display()
            )));
        }
    }
    Ok(parent.join(path.file_name().unwrap_or_default()))
}

fn route_name(from: &Path, to: &[Place]) -> String {
    let to: Vec<String> = to.iter().map(Place::to_string).collect();
    format!("{} -> {}", from.display(), to.join(", "))
}

fn config(
    command: &MoveOptions,
    source: DirectorySource,
    targets: Vec<Arc<dyn Destination>>,
    from: &Path,
    to: &[Place],
) -> Config {
    let streams_max = usize::from(command.streams);
    let settle = if command.once { Duration::ZERO } else { Duration::from_secs(60) };
    let route = RouteConfig {
        name: route_name(from, to),
        destinations: (0..to.len()).map(|at| (DestinationIndex(at), true)).collect(),
        policy: Policy { recheck_after: command.recheck_after, ..Policy::default() },
        settle: command.settle.unwrap_or(settle),
        scan_every: Duration::from_secs(1),
        priority: 0,
        streams_max,
    };
    let target = |(destination, place): (Arc<dyn Destination>, &Place)| Target {
        config: DestinationConfig { address: place.to_string(), streams_max },
        destination,
    };
    Config {
        routes: vec![Route { config: route, source: Arc::new(source) }],
        targets: targets.into_iter().zip(to).map(target).collect(),
        streams_max,
        once: command.once,
        patience: command.patience,
        stall_after: command.stall_after,
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
    format!(
        "{} files found, {} moved, proven and released, {}",
        human_count(counts.found),
        human_count(counts.released),
        human_bytes(counts.released_bytes)
    )
}
