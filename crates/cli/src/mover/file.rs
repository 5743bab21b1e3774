//! Routes and destinations in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_destinations::Access;
use forebay_mover::machine::Template;
use forebay_mover::recipe::ZSTD_LEVELS;
use serde::Deserialize;

use super::MoveOptions;
use super::defined;
use super::places::{Origin, Place};
use super::settings::{
    DestinationSettings, Merging, Register, RouteSettings, Settings, Until, door_of, kind_of, settle, telling,
};
use crate::arguments::DEFAULT_ADDRESS;
use crate::connect::{parse_positive_seconds, parse_seconds};
use crate::failure::Failure;
use crate::size::parse_bytes;

/// A longer file is cut off: it is no configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A configuration file. What is not known is refused.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct MoveFile {
    journal: Option<PathBuf>,
    #[serde(default = "four")]
    streams: u16,
    metrics: Option<SocketAddr>,
    #[serde(default)]
    insecure_network: Vec<String>,
    alarm_after_s: Option<f64>,
    #[serde(default)]
    destination: BTreeMap<String, DestinationFile>,
    #[serde(default)]
    route: BTreeMap<String, RouteFile>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct DestinationFile {
    address: String,
    streams: Option<u16>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    s3_endpoint: Option<String>,
    s3_credentials_file: Option<PathBuf>,
    until: Option<String>,
    until_command: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RouteFile {
    from: String,
    server: Option<String>,
    #[serde(default)]
    to: Vec<String>,
    #[serde(default)]
    optional: Vec<String>,
    #[serde(default)]
    remove: bool,
    settle_s: Option<f64>,
    recheck_after_s: Option<f64>,
    merge: Option<String>,
    merge_wait_s: Option<f64>,
    order_wait_s: Option<f64>,
    format: Option<String>,
    name: Option<String>,
    zstd: Option<i32>,
    #[serde(default)]
    sidecar: bool,
    register: Option<String>,
    register_command: Option<PathBuf>,
    register_token_file: Option<PathBuf>,
    register_ca_file: Option<PathBuf>,
    door: Option<String>,
    door_token_file: Option<PathBuf>,
    #[serde(default)]
    priority: i32,
    streams: Option<u16>,
}

const fn four() -> u16 {
    4
}

/// Reads a file.
///
/// # Errors
/// A file that cannot be read, or that says what is not understood or cannot be.
pub fn load(path: &Path, command: &MoveOptions) -> Result<Settings, Failure> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| Failure::file("read the configuration", path, &error, "nothing was moved"))?;
    let wrong = |why: String| {
        Failure::usage(format!("{}: {why}\nNothing was moved; docs/mover.md has an example", path.display()))
    };
    // The parser's message has the line, a drawing of it, and for an unknown key those that are known.
    let file: MoveFile = toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    let journal = command.journal.clone().or(file.journal);
    let journal = journal.ok_or_else(|| wrong("it has no journal, and no --journal was said".to_owned()))?;
    let names: Vec<&String> = file.destination.keys().collect();
    let routes: Result<Vec<RouteSettings>, Failure> =
        file.route.iter().map(|(name, route)| settings_of(name, route, &names, command, &wrong)).collect();
    let mut routes = routes?;
    // The next definition of a stream may lead to any of them.
    let used = |at: usize| routes.iter().any(|route| goes_by_definition(route) || leads_to(route, at));
    if let Some(name) = (0..names.len()).find(|at| !used(*at)).map(|at| names[at]) {
        return Err(wrong(format!("no route leads to the destination {name}")));
    }
    if routes.is_empty() {
        return Err(wrong("it has no route".to_owned()));
    }
    let streams = check_streams("streams", file.streams).map_err(wrong)?;
    let alarm_after = file.alarm_after_s.map(|seconds| parse_positive_seconds(&seconds.to_string())).transpose();
    let alarm_after = alarm_after.map_err(|why| wrong(format!("alarm-after-s: {why}")))?;
    let telling = telling(command, file.metrics, &file.insecure_network, alarm_after)?;
    let destination = |(name, destination): (String, DestinationFile)| {
        let of_its_own = destination.streams.map(|count| check_streams(&format!("destination.{name}.streams"), count));
        let place = Place::parse(&destination.address)?;
        let key = |key: &str| format!("destination.{name}.{key}");
        Ok(DestinationSettings {
            until: Until::of(destination.until.as_ref(), destination.until_command.as_deref(), &place, key)?,
            place,
            access: Access {
                token_file: destination.token_file,
                ca_file: destination.ca_file,
                s3_endpoint: destination.s3_endpoint,
                s3_credentials_file: destination.s3_credentials_file,
            },
            streams: of_its_own.transpose().map_err(wrong)?.unwrap_or(streams),
        })
    };
    let names: Vec<String> = file.destination.keys().cloned().collect();
    let mut destinations = file.destination.into_iter().map(destination).collect::<Result<Vec<_>, Failure>>()?;
    for route in routes.iter_mut().filter(|route| goes_by_definition(route)) {
        look_up(route, &names, streams, &mut destinations)?;
    }
    for route in &routes {
        route.check_door(&destinations, &format!("route.{}.door", route.name))?;
    }
    Ok(Settings { routes, destinations, streams, journal, telling })
}

/// Whether a route of events says nothing of where it leads.
fn goes_by_definition(route: &RouteSettings) -> bool {
    route.from.stream().is_some() && route.to.iter().all(|(_, required)| !required)
}

fn leads_to(route: &RouteSettings, at: usize) -> bool {
    route.to.iter().any(|(to, _)| *to == at)
}

/// Asks the store where the stream of a route is defined to go.
fn look_up(
    route: &mut RouteSettings,
    names: &[String],
    streams: usize,
    destinations: &mut Vec<DestinationSettings>,
) -> Result<(), Failure> {
    let Origin::Stream { server, stream } = &route.from else { return Ok(()) };
    let add = |place| Ok(DestinationSettings { place, access: Access::default(), until: None, streams });
    let names: Vec<&String> = names.iter().collect();
    let defined = defined::look_up((server, stream), &names, destinations, &add)?;
    let places: BTreeSet<usize> = defined.values().copied().flatten().collect();
    route.to.extend(places.into_iter().map(|at| (at, true)));
    route.defined = Some(defined);
    Ok(())
}

fn settings_of(
    name: &str,
    route: &RouteFile,
    destinations: &[&String],
    command: &MoveOptions,
    wrong: &dyn Fn(String) -> Failure,
) -> Result<RouteSettings, Failure> {
    let here = |what: &str| format!("route.{name}.{what}");
    let place = |required: bool| {
        move |to: &String| {
            let at = destinations.iter().position(|known| *known == to);
            let unknown =
                || wrong(format!("{}: there is no destination {to:?}", here(if required { "to" } else { "optional" })));
            at.map(|at| (at, required)).ok_or_else(unknown)
        }
    };
    let to = route.to.iter().map(place(true)).chain(route.optional.iter().map(place(false)));
    let to: Vec<(usize, bool)> = to.collect::<Result<_, _>>()?;
    let from = Origin::parse(&route.from, route.server.as_deref().unwrap_or(DEFAULT_ADDRESS))?;
    let is_stream = from.stream().is_some();
    if route.to.is_empty() && is_stream && !route.optional.is_empty() {
        return Err(wrong(format!(
            "{} goes with to: where a stream is defined to go, its files go there alone",
            here("optional")
        )));
    }
    if route.to.is_empty() && !is_stream {
        return Err(wrong(format!("{} names no destination: nothing would prove that a file is anywhere", here("to"))));
    }
    if (0..to.len()).any(|at| to[..at].iter().any(|(before, _)| *before == to[at].0)) {
        return Err(wrong(format!("{} and optional name a destination twice", here("to"))));
    }
    let seconds = |key: &str, value: Option<f64>, usual: Duration| {
        let parsed = value.map(|value| parse_seconds(&value.to_string()));
        parsed.transpose().map(|value| value.unwrap_or(usual)).map_err(|why| wrong(format!("{}: {why}", here(key))))
    };
    if route.remove && from.directory().is_none() {
        return Err(wrong(format!("{}: what is in a store is always removed when it is proven", here("remove"))));
    }
    if route.merge.is_none() && !is_stream && (route.name.is_some() || route.merge_wait_s.is_some()) {
        return Err(wrong(format!("{} is missing: merge-wait-s and name are for what is merged", here("merge"))));
    }
    if route.order_wait_s.is_some() && !is_stream {
        return Err(wrong(format!("{} is for accepted events (from = \"stream:NAME\")", here("order-wait-s"))));
    }
    let bytes = route.merge.as_ref().map(|size| parse_bytes(size)).transpose();
    let bytes = bytes.map_err(|why| wrong(format!("{}: {why}", here("merge"))))?;
    let template = route.name.as_ref().map(|name| name.parse::<Template>()).transpose();
    let template = template.map_err(|error| wrong(format!("{}: {error}", here("name"))))?;
    let wait = route.merge_wait_s.map(|_| seconds("merge-wait-s", route.merge_wait_s, Duration::ZERO)).transpose()?;
    let merge = Merging { bytes, wait, name: template }.of(&from);
    if let Some(level) = route.zstd.filter(|level| !ZSTD_LEVELS.contains(level)) {
        return Err(wrong(format!("{} = {level} cannot be. From 1 to 19.", here("zstd"))));
    }
    if route.register.is_none() && (route.register_token_file.is_some() || route.register_ca_file.is_some()) {
        return Err(wrong(format!("{} is missing: the files are for reaching it", here("register"))));
    }
    let access = Access {
        token_file: route.register_token_file.clone(),
        ca_file: route.register_ca_file.clone(),
        ..Access::default()
    };
    Ok(RouteSettings {
        name: name.to_owned(),
        from,
        remove: route.remove,
        to,
        merge: merge.map_err(|why| wrong(format!("{}: {why}", here("name"))))?,
        defined: None,
        kind: kind_of(route.format.as_deref(), is_stream, &here("format")).map_err(wrong)?,
        order_wait: seconds("order-wait-s", route.order_wait_s, command.order_wait)?,
        zstd: route.zstd,
        sidecar: route.sidecar,
        register: Register::of(route.register.as_ref(), route.register_command.as_deref(), access, here)?,
        door: door_of(route.door.as_deref(), route.door_token_file.as_deref(), is_stream, here)?,
        settle: seconds("settle-s", route.settle_s, settle(command))?,
        recheck_after: seconds("recheck-after-s", route.recheck_after_s, command.recheck_after)?,
        priority: route.priority,
        streams: check_streams(&here("streams"), route.streams.unwrap_or(command.streams)).map_err(wrong)?,
    })
}

fn check_streams(key: &str, streams: u16) -> Result<usize, String> {
    if (1..=256).contains(&streams) {
        Ok(streams.into())
    } else {
        Err(format!("{key} = {streams} cannot be. From 1 to 256."))
    }
}
