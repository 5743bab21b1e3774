//! Every stream of a store: which there are, and which come later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{Class, Client, ClientConfig, ClientError};
use forebay_mover::driver::Route;
use forebay_mover::endpoint::Registry;
use forebay_mover::journal::Journal;
use forebay_types::StreamName;

use super::journal_failure;
use super::places::Origin;
use super::settings::RouteSettings;
use crate::failure::Failure;

/// The time between two looks for streams that are new.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long one look waits for a server that is away.
const DEADLINE: Duration = Duration::from_secs(4);

impl RouteSettings {
    /// The route of one stream of these: named as it is alone.
    pub fn of_stream(&self, stream: &StreamName, from: Origin) -> RouteSettings {
        let name = match self.name.strip_prefix(&self.from.to_string()) {
            Some(to) => format!("{from}{to}"),
            None => format!("{}/{stream}", self.name),
        };
        RouteSettings { name, from, ..self.clone() }
    }
}

/// Every stream of a store.
pub struct Streams {
    settings: RouteSettings,
    server: String,
    registry: Option<Arc<dyn Registry>>,
    /// The journal's.
    token: u64,
    client: Option<Client>,
    /// Those that have a route.
    begun: BTreeSet<StreamName>,
    /// Those of which it was told that they cannot have one now.
    told: BTreeSet<StreamName>,
}

impl Streams {
    /// Nothing is asked yet.
    pub fn new(settings: RouteSettings, server: &str, registry: Option<Arc<dyn Registry>>, token: u64) -> Streams {
        let (begun, told) = (BTreeSet::new(), BTreeSet::new());
        Streams { settings, server: server.to_owned(), registry, token, client: None, begun, told }
    }

    /// Routes of those that there are, and of those of which the journal has something on its way.
    ///
    /// # Errors
    /// No server, a stream that another mover has, and a journal that cannot be read.
    pub fn known(&mut self, journal: &Journal) -> Result<Vec<Route>, Failure> {
        let mut names = self.list(true)?;
        for (route, consignment) in journal.at_work().map_err(|error| journal_failure(&error))?.consignments {
            let stream = consignment.recipe.events().map(|events| &events.stream);
            names.extend(stream.filter(|stream| self.of(stream).name == route).cloned());
        }
        names.into_iter().map(|stream| self.begin(stream)).collect()
    }

    fn of(&self, stream: &StreamName) -> RouteSettings {
        self.settings.of_stream(stream, Origin::Stream { server: self.server.clone(), stream: stream.clone() })
    }

    fn begin(&mut self, stream: StreamName) -> Result<Route, Failure> {
        let route = self.of(&stream).route(None, self.registry.clone(), self.token, &[])?;
        self.begun.insert(stream);
        Ok(route)
    }

    fn list(&mut self, must_listen: bool) -> Result<BTreeSet<StreamName>, ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let mut config = ClientConfig::new(&self.server, "forebay move").class(Class::Monitor);
                config.must_listen = must_listen;
                Client::connect(config.deadline(Some(DEADLINE)))?
            }
        };
        let streams = client.streams()?.into_iter().map(|stream| stream.name).collect();
        self.client = Some(client);
        Ok(streams)
    }

    /// Routes of those that came since. A server that is away is told of by the routes that there are.
    fn look(&mut self) -> Vec<Route> {
        let new: Vec<StreamName> =
            self.list(false).unwrap_or_default().into_iter().filter(|name| !self.begun.contains(name)).collect();
        let mut routes = Vec::new();
        for stream in new {
            match self.begin(stream.clone()) {
                Ok(route) => {
                    tracing::info!("stream {stream} is new, and moved, too");
                    routes.push(route);
                }
                Err(failure) if self.told.insert(stream) => {
                    tracing::warn!("{}. It is tried again", failure.message);
                }
                Err(_) => {}
            }
        }
        routes
    }
}

/// Looks for streams that come later, until it is dropped.
pub struct Watch(Option<(Sender<()>, JoinHandle<()>)>);

impl Watch {
    /// Begins to look, where there is something to look for, and gives what comes.
    ///
    /// # Errors
    /// No thread.
    pub fn begin(mut all: Vec<Streams>) -> Result<(Watch, Option<Receiver<Route>>), Failure> {
        if all.is_empty() {
            return Ok((Watch(None), None));
        }
        let ((end, ended), (sender, routes)) = (channel(), channel());
        let thread = std::thread::Builder::new().name("mover streams".to_owned()).spawn(move || {
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                for route in all.iter_mut().flat_map(Streams::look) {
                    // Nobody takes it any more when the mover ended.
                    drop(sender.send(route));
                }
            }
        });
        let thread = thread.map_err(|error| Failure::retry(format!("a thread cannot be started: {error}")))?;
        Ok((Watch(Some((end, thread))), Some(routes)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            drop(thread.join());
        }
    }
}
