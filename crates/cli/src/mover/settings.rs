//! What a mover is to do, wherever that was said: as options, or in a file.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_destinations::{Access, AddressError, Door, OtherCommand};
use forebay_mover::custody::Policy;
use forebay_mover::driver::{Config, Route, Target};
use forebay_mover::endpoint::{self, Asked, Destination, Registry};
use forebay_mover::events::EventKind;
use forebay_mover::journal::Journal;
use forebay_mover::local::{DirectorySource, Locks, check_mark, mark_of};
use forebay_mover::machine::{DestinationConfig, DestinationIndex, Merge, RouteConfig, StreamConfig, Template};
use forebay_types::{StoreUuid, StreamName, crc32c};

use super::defined::{self, Defined};
use super::places::{Origin, Place, check_apart, check_paths, parent_of};
use super::streams::{Streams, Watch};
use super::watch::Telling;
use super::{MoveOptions, file, journal_failure};
use crate::arguments::parse_networks;
use crate::failure::Failure;

/// Files of events are of this size where nothing else is said: what tapes like.
const STREAM_FILE_BYTES: u64 = 5_000_000_000;

/// What fails for so long is an alarm where nothing else is said.
const ALARM_AFTER: Duration = Duration::from_secs(300);

/// A route.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// Its name in the journal.
    pub name: String,
    /// Where from.
    pub from: Origin,
    /// Whether files that were moved are removed from a directory, rather than renamed.
    pub remove: bool,
    /// Where to, by the place among the destinations, and whether the source waits for it.
    pub to: Vec<(usize, bool)>,
    /// Whether files are merged.
    pub merge: Option<Merge>,
    /// Where the definitions of a stream lead, of all places of `to`; nothing where the route says it.
    pub defined: Option<Defined>,
    /// What accepted events become, whatever the definition of their stream says.
    pub kind: Option<EventKind>,
    /// Of accepted events: one that is not decided holds those behind it back for so long at most.
    pub order_wait: Duration,
    /// The level at which files are compressed, if they are.
    pub zstd: Option<i32>,
    /// Whether a `.json` lies beside each file.
    pub sidecar: bool,
    /// Where files are registered before they are let go, if they are.
    pub register: Option<Register>,
    /// Where destinations can fetch its files themselves.
    pub door: Option<Arc<Door>>,
    /// A file that nobody touched for so long is complete.
    pub settle: Duration,
    /// The time between the first and the second proof.
    pub recheck_after: Duration,
    /// The higher, the earlier.
    pub priority: i32,
    /// Files that are read or sent at once.
    pub streams: usize,
}

impl RouteSettings {
    /// The route, with its source leased.
    ///
    /// # Errors
    /// A store that cannot be moved from.
    pub fn route(
        &self,
        directory: Option<DirectorySource>,
        registry: Option<Arc<dyn Registry>>,
        token: u64,
        destinations: &[DestinationSettings],
    ) -> Result<Route, Failure> {
        let (origin, store) = match directory {
            Some(directory) => (endpoint::Origin::Files(Arc::new(directory)), None),
            None => self.from.lease(token, self.merge.is_some())?,
        };
        let door = self.door.clone().map(|door| door as Arc<dyn endpoint::Door>);
        let (from, space) = (self.from.to_string(), Some(self.from.space()));
        Ok(Route { config: route_config(self, store, destinations), origin, registry, door, from, space })
    }

    /// Which of its destinations fetch files themselves.
    fn pulls(&self, destinations: &[DestinationSettings]) -> impl Iterator<Item = usize> {
        let door = self.door.as_ref();
        let fetches = move |at: &usize| {
            door.is_some_and(|door| destinations[*at].place.address().is_some_and(|address| door.leads_to(address)))
        };
        self.to.iter().map(|(at, _)| *at).filter(fetches)
    }

    /// That somebody fetches by its door.
    ///
    /// # Errors
    /// A door that no destination uses.
    pub fn check_door(&self, destinations: &[DestinationSettings], key: &str) -> Result<(), Failure> {
        if self.door.is_some() && self.pulls(destinations).next().is_none() {
            return Err(Failure::usage(format!(
                "{key}: no destination fetches by it: those at root:// do by a door root://, and those at https:// by one https://; nothing was moved"
            )));
        }
        Ok(())
    }
}

/// The door of a source, if it has one; `key`: what says it.
///
/// # Errors
/// What is no door, and a source of which nobody can fetch files.
pub fn door_of(
    url: Option<&str>,
    token_file: Option<&Path>,
    is_stream: bool,
    key: impl Fn(&str) -> String,
) -> Result<Option<Arc<Door>>, Failure> {
    let Some(url) = url else { return Ok(None) };
    let wrong = |why: String| Failure::usage(format!("{}: {why}; nothing was moved", key("door")));
    if is_stream {
        return Err(wrong("accepted events are put together on their way, and nobody can fetch them".to_owned()));
    }
    let address = url.parse().map_err(|error: AddressError| wrong(error.to_string()))?;
    let access = Access { token_file: token_file.map(Path::to_owned), ..Access::default() };
    Door::new(&address, &access).map(Arc::new).map(Some).map_err(|error| wrong(error.to_string()))
}

/// What is said of how files are merged.
pub struct Merging {
    /// Their size.
    pub bytes: Option<u64>,
    /// How long they wait to come to it.
    pub wait: Option<Duration>,
    /// Their names.
    pub name: Option<Template>,
}

impl Merging {
    /// How files become larger ones, if they do: events always.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub fn of(self, from: &Origin) -> Result<Option<Merge>, String> {
        let Merging { bytes, wait, name } = self;
        let wait_or = wait.unwrap_or(Duration::from_secs(600));
        if !from.is_of_events() {
            if bytes.is_none() && (wait.is_some() || name.is_some()) {
                return Err("how files are merged is said, and not that they are (--merge SIZE)".to_owned());
            }
            if let Some(name) = name.as_ref().filter(|name| name.is_of_events()) {
                return Err(format!("{name}: {{stream}} and {{block}} are for accepted events (stream:NAME)"));
            }
            return Ok(bytes.map(|bytes| Merge { bytes, wait: wait_or, name }));
        }
        if let Some(name) = name.as_ref().filter(|name| !StreamConfig::can_be_named(name)) {
            return Err(format!("names by {name} become too long for files of a stream; give a shorter template"));
        }
        Ok(Some(Merge { bytes: bytes.unwrap_or(STREAM_FILE_BYTES), wait: wait_or, name }))
    }
}

/// Where files are registered.
#[derive(Clone, Debug)]
pub enum Register {
    /// With a service, and how it is reached.
    Web(String, Box<Access>),
    /// With a program.
    Command(OtherCommand),
}

impl Register {
    /// What is said of it; `key`: what says it.
    ///
    /// # Errors
    /// A program that cannot be run, and both.
    pub fn of(
        url: Option<&String>,
        program: Option<&Path>,
        access: Access,
        key: impl Fn(&str) -> String,
    ) -> Result<Option<Register>, Failure> {
        match (url, program) {
            (None, None) => Ok(None),
            (Some(url), None) => Ok(Some(Register::Web(url.clone(), Box::new(access)))),
            (None, Some(program)) => command_of(program, &key("register-command")).map(Register::Command).map(Some),
            (Some(_), Some(_)) => {
                let (url, command) = (key("register"), key("register-command"));
                Err(Failure::usage(format!("{url} and {command} are both said: give one of them; nothing was moved")))
            }
        }
    }

    fn open(&self) -> Result<Arc<dyn Registry>, Failure> {
        match self {
            Register::Command(command) => Ok(Arc::new(command.clone())),
            Register::Web(url, access) => forebay_destinations::open_registry(url, access).map_err(|error| {
                Failure::usage(format!("files cannot be registered with {url}: {error}; nothing was moved"))
            }),
        }
    }
}

/// What is waited for at a destination besides its proofs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// As the destination tells it.
    OnTape,
    /// As a program does.
    Command(OtherCommand),
}

impl Until {
    /// What is said of it for a place; `key`: what says it.
    ///
    /// # Errors
    /// A destination that cannot say, a program that cannot be run, and both.
    pub fn of(
        what: Option<&String>,
        program: Option<&Path>,
        place: &Place,
        key: impl Fn(&str) -> String,
    ) -> Result<Option<Until>, Failure> {
        let (until, command) = (key("until"), key("until-command"));
        match (what.map(String::as_str), program) {
            (None, None) => Ok(None),
            (None, Some(program)) => command_of(program, &command).map(Until::Command).map(Some),
            (Some(_), Some(_)) => {
                Err(Failure::usage(format!("{until} and {command} are both said: give one of them; nothing was moved")))
            }
            (Some("on-tape"), None) if place.tells_of_tape() => Ok(Some(Until::OnTape)),
            (Some("on-tape"), None) => Err(Failure::usage(format!(
                "{until}: {place} cannot say whether a file is on tape; root:// alone can. Give {command} with a program that knows it; nothing was moved"
            ))),
            (Some(what), None) => Err(Failure::usage(format!(
                "{until}: {what:?} is nothing that is waited for. It may be on-tape; nothing was moved"
            ))),
        }
    }
}

fn command_of(program: &Path, key: &str) -> Result<OtherCommand, Failure> {
    OtherCommand::new(program).map_err(|error| Failure::usage(format!("{key}: {error}; nothing was moved")))
}

/// A destination.
#[derive(Clone, Debug)]
pub struct DestinationSettings {
    /// Where it is.
    pub place: Place,
    /// How it is reached.
    pub access: Access,
    /// What is waited for there besides its proofs.
    pub until: Option<Until>,
    /// Files that are sent there at once.
    pub streams: usize,
}

/// What a mover is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its routes.
    pub routes: Vec<RouteSettings>,
    /// Their destinations.
    pub destinations: Vec<DestinationSettings>,
    /// Files that are read or sent at once, over all routes.
    pub streams: usize,
    /// Where it remembers what it has begun.
    pub journal: PathBuf,
    /// How it tells of itself.
    pub telling: Telling,
}

/// Places of this machine that are locked and ready.
pub struct Opened {
    /// Of each route; nothing where the source is a store's, which is leased by the token of the journal.
    sources: Vec<Option<DirectorySource>>,
    destinations: Vec<Arc<dyn Destination>>,
    /// Of each route.
    registries: Vec<Option<Arc<dyn Registry>>>,
}

impl Settings {
    /// What the command says, or its file.
    ///
    /// # Errors
    /// What cannot be.
    pub fn of(command: &MoveOptions) -> Result<Settings, Failure> {
        let settings = match &command.config {
            Some(path) => file::load(path, command)?,
            None => Settings::of_options(command)?,
        };
        check_paths(&settings.origins(), &settings.places())?;
        Ok(Settings { journal: settings.journal_beside_all()?, ..settings })
    }

    fn of_options(command: &MoveOptions) -> Result<Settings, Failure> {
        let origins = Origin::parse_all(command.from.as_deref().unwrap_or_default(), &command.server)?;
        let from = &origins[0];
        if command.remove && from.directory().is_none() {
            return Err(Failure::usage(
                "what is in a store is always removed when it is proven: leave --remove out; nothing was moved",
            ));
        }
        let merge = Merging { bytes: command.merge, wait: command.merge_wait, name: command.name.clone() };
        let merge = merge.of(from).map_err(|why| Failure::usage(format!("{why}; nothing was moved")))?;
        let (streams, is_stream) = (usize::from(command.streams), from.is_of_events());
        let access = Access {
            token_file: command.token_file.clone(),
            ca_file: command.ca_file.clone(),
            s3_endpoint: command.s3_endpoint.clone(),
            s3_credentials_file: command.s3_credentials_file.clone(),
        };
        let option = |name: &str| format!("--{name}");
        let destination = |place: Place| {
            let until = Until::of(command.until.as_ref(), command.until_command.as_deref(), &place, option)?;
            Ok::<_, Failure>(DestinationSettings { place, access: access.clone(), until, streams })
        };
        let said = command.to.iter().map(|text| destination(Place::parse(text)?));
        let mut destinations: Vec<DestinationSettings> = said.collect::<Result<_, _>>()?;
        let to: Vec<String> = destinations.iter().map(|destination| destination.place.to_string()).collect();
        let defined = match (from.store_of_events(), to.is_empty()) {
            (Some(server), true) => {
                let streams: Vec<&StreamName> = origins.iter().filter_map(Origin::stream).collect();
                Some(defined::look_up((server, &streams), &[], &mut destinations, &destination)?)
            }
            (None, true) => return Err(Failure::usage("say where to (--to DIR); nothing was moved")),
            (_, false) => None,
        };
        let to_register = Access {
            token_file: command.register_token_file.clone(),
            ca_file: command.ca_file.clone(),
            ..Access::default()
        };
        let to = if defined.is_some() { "as defined".to_owned() } else { to.join(", ") };
        let to_all = format!(" -> {to}");
        let journal = || usual_journal("move", &format!("{}{to_all}", join(&origins)));
        let journal = command.journal.clone().map_or_else(journal, Ok)?;
        let route = RouteSettings {
            name: format!("{from}{to_all}"),
            from: from.clone(),
            remove: command.remove,
            to: (0..destinations.len()).map(|at| (at, true)).collect(),
            merge,
            defined,
            kind: kind_of(command.format.as_deref(), is_stream, "--format")
                .map_err(|why| Failure::usage(format!("{why}; nothing was moved")))?,
            order_wait: command.order_wait,
            zstd: command.zstd,
            sidecar: command.sidecar,
            register: Register::of(
                command.register.as_ref(),
                command.register_command.as_deref(),
                to_register,
                option,
            )?,
            door: door_of(command.door.as_deref(), command.door_token_file.as_deref(), is_stream, option)?,
            settle: command.settle.unwrap_or(settle(command)),
            recheck_after: command.recheck_after,
            priority: 0,
            streams,
        };
        route.check_door(&destinations, "--door")?;
        let telling = telling(command, None, &[], None)?;
        let of = |from: &Origin| RouteSettings { name: format!("{from}{to_all}"), from: from.clone(), ..route.clone() };
        let routes = origins.iter().map(of).collect();
        Ok(Settings { routes, destinations, streams, journal, telling })
    }

    /// Where from, of each route.
    pub fn origins(&self) -> Vec<&Origin> {
        self.routes.iter().map(|route| &route.from).collect()
    }

    fn places(&self) -> Vec<&Place> {
        self.destinations.iter().map(|destination| &destination.place).collect()
    }

    /// The journal's path without links on the way, in none of the places.
    fn journal_beside_all(&self) -> Result<PathBuf, Failure> {
        let path = &self.journal;
        let parent = fs::canonicalize(parent_of(path)).map_err(|error| {
            let advice = "nothing was moved. The journal needs a directory that is there";
            Failure::file("use", parent_of(path), &error, advice)
        })?;
        let (origins, places) = (self.origins(), self.places());
        let origins = origins.iter().filter_map(|origin| origin.directory());
        let mut all = origins.chain(places.iter().filter_map(|place| place.directory()));
        if let Some(place) = all.find(|place| parent.starts_with(place)) {
            return Err(Failure::usage(format!(
                "the journal {} would lie in {}; nothing was moved. It must survive whatever becomes of the files: give another place with --journal FILE",
                path.display(),
                place.display()
            )));
        }
        Ok(parent.join(path.file_name().unwrap_or_default()))
    }

    /// All directories that are moved from or to.
    fn directories(&self) -> Vec<&Path> {
        let origins = self.routes.iter().filter_map(|route| route.from.directory());
        origins.chain(self.destinations.iter().filter_map(|to| to.place.directory())).collect()
    }

    /// Locks the directories that are moved from, and makes those that are moved to. `known`: by what the journal knows them again.
    ///
    /// # Errors
    /// What cannot be used, and what is not what it was.
    pub fn open_places(&self, known: &BTreeMap<String, u64>, locks: &mut Locks) -> Result<Opened, Failure> {
        for path in self.directories() {
            if let Some(mark) = known.get(&path.display().to_string()) {
                check_mark(path, *mark).map_err(|error| Failure::retry(&error))?;
            }
        }
        let mut sources = Vec::new();
        for route in &self.routes {
            sources.push(route.from.open_directory(route.remove, route.merge.is_some(), locks)?);
        }
        let open = |destination: &DestinationSettings| destination.place.open(&destination.access);
        let destinations = self.destinations.iter().map(open).collect::<Result<_, _>>()?;
        check_apart(&self.origins(), &self.places())?;
        let register = |route: &RouteSettings| route.register.as_ref().map(Register::open).transpose();
        let registries = self.routes.iter().map(register).collect::<Result<_, _>>()?;
        Ok(Opened { sources, destinations, registries })
    }

    /// Has the journal remember by what the directories are known again.
    ///
    /// # Errors
    /// A directory with a mark that is none, and a journal that cannot be written.
    pub fn remember_places(&self, known: &BTreeMap<String, u64>, journal: &mut Journal) -> Result<(), Failure> {
        for path in self.directories() {
            let text = path.display().to_string();
            if known.contains_key(&text) {
                continue;
            }
            match mark_of(path) {
                Ok(mark) => journal.remember_place(&text, mark).map_err(|error| journal_failure(&error))?,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    let advice = "nothing was moved. Look whose it is; without it another one is made";
                    return Err(Failure::file("use", path, &error, advice));
                }
                // Files may be moved from or to directories below it all the same.
                Err(error) => tracing::warn!(
                    "{text} cannot be marked ({error}): a start does not notice when its file system is not mounted. Let this user write there, then start again"
                ),
            }
        }
        Ok(())
    }

    /// What the driver does, with stores leased for this journal, and who looks for streams that come later.
    ///
    /// # Errors
    /// A store that cannot be moved from.
    pub fn config(&self, opened: Opened, journal: &Journal, command: &MoveOptions) -> Result<(Config, Watch), Failure> {
        let Opened { sources, destinations, registries } = opened;
        let mut routes = Vec::new();
        let mut streams = Vec::new();
        for ((settings, directory), registry) in self.routes.iter().zip(sources).zip(registries) {
            if let Origin::Streams { server } = &settings.from {
                let of_this = Streams::new(settings.clone(), server, registry, journal.token());
                streams.push(of_this);
                continue;
            }
            routes.push(settings.route(directory, registry, journal.token(), &self.destinations)?);
        }
        for streams in &mut streams {
            routes.extend(streams.known(journal)?);
        }
        let target = |(settings, destination): (&DestinationSettings, Arc<dyn Destination>)| Target {
            config: DestinationConfig {
                address: settings.place.to_string(),
                streams_max: settings.streams,
                until_tape: settings.until.is_some(),
            },
            destination,
            asked: match &settings.until {
                Some(Until::Command(command)) => Some(Arc::new(command.clone()) as Arc<dyn Asked>),
                Some(Until::OnTape) | None => None,
            },
        };
        let (watch, more_routes) = Watch::begin(streams)?;
        let config = Config {
            routes,
            more_routes,
            targets: self.destinations.iter().zip(destinations).map(target).collect(),
            streams_max: self.streams,
            once: command.once,
            patience: command.patience,
            stall_after: command.stall_after,
        };
        Ok((config, watch))
    }
}

fn join(origins: &[Origin]) -> String {
    origins.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn route_config(
    settings: &RouteSettings,
    store: Option<StoreUuid>,
    destinations: &[DestinationSettings],
) -> RouteConfig {
    RouteConfig {
        name: settings.name.clone(),
        destinations: settings.to.iter().map(|(at, required)| (DestinationIndex(*at), *required)).collect(),
        pulls: settings.pulls(destinations).map(DestinationIndex).collect(),
        policy: Policy { recheck_after: settings.recheck_after, ..Policy::default() },
        settle: settings.settle,
        merge: settings.merge.clone(),
        events: settings.from.stream().zip(store).map(|(stream, store)| StreamConfig {
            store,
            stream: stream.clone(),
            order_wait: settings.order_wait,
            kind: settings.kind,
            defined: settings.defined.as_ref().map(|defined| {
                let lead = |(text, at): (&String, &Option<usize>)| (text.clone(), at.map(DestinationIndex));
                defined.iter().map(lead).collect()
            }),
        }),
        zstd: settings.zstd,
        sidecar: settings.sidecar,
        register: settings.register.is_some(),
        scan_every: Duration::from_secs(1),
        priority: settings.priority,
        streams_max: settings.streams,
    }
}

/// How a mover tells of itself: what an option says counts before the same in a file.
///
/// # Errors
/// A network that is none.
pub fn telling(
    command: &MoveOptions,
    metrics: Option<SocketAddr>,
    networks: &[String],
    alarm_after: Option<Duration>,
) -> Result<Telling, Failure> {
    Ok(Telling {
        metrics: command.metrics.or(metrics),
        networks: parse_networks(&[networks, &command.insecure_network].concat())?,
        alarm_after: command.alarm_after.or(alarm_after).unwrap_or(ALARM_AFTER),
    })
}

/// What accepted events become, where that is said.
///
/// # Errors
/// A format that no file has, or one of files that are moved as they are.
pub fn kind_of(text: Option<&str>, is_stream: bool, key: &str) -> Result<Option<EventKind>, String> {
    let Some(text) = text else { return Ok(None) };
    if !is_stream {
        return Err(format!("{key} is for accepted events (stream:NAME): files are moved as they are"));
    }
    let known = || EventKind::ALL.map(EventKind::name).join(", ");
    EventKind::from_name(text).map(Some).ok_or_else(|| format!("{key}: {text:?} is no format; there are {}", known()))
}

/// How long a file is left alone where nothing else is said.
pub fn settle(command: &MoveOptions) -> Duration {
    if command.once { Duration::ZERO } else { Duration::from_secs(60) }
}

/// A journal for each pair of source and destinations, in the user's state directory.
///
/// # Errors
/// No such directory.
pub fn usual_journal(kind: &str, of: &str) -> Result<PathBuf, Failure> {
    let given = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || given("HOME").map(|home| home.join(".local/state"));
    let state = given("XDG_STATE_HOME").or_else(home).ok_or_else(|| {
        Failure::usage("neither XDG_STATE_HOME nor HOME is set: say where the journal is to be, with --journal FILE; nothing was moved")
    })?;
    let directory = state.join("forebay");
    make_all(&directory)?;
    Ok(directory.join(format!("{kind}-{:08x}.sqlite", crc32c(of.as_bytes()))))
}

fn make_all(directory: &Path) -> Result<(), Failure> {
    let advice = "nothing was moved. Say where the journal is to be, with --journal FILE";
    fs::create_dir_all(directory).map_err(|error| Failure::file("make", directory, &error, advice))
}
