//! Where the definitions of a stream lead, for routes that do not say where they lead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_client::Class;
use forebay_types::StreamName;

use super::places::Place;
use super::settings::DestinationSettings;
use crate::connect::{ServerOptions, connect};
use crate::failure::Failure;

/// So long the store is waited for at the start.
const ASK_TIMEOUT: Duration = Duration::from_secs(20);

/// What all versions of a stream's definition say, by what they say: the place among the destinations, or nothing for what cannot be used.
pub type Defined = BTreeMap<String, Option<usize>>;

/// Asks the store where a stream is defined to go, and adds the destinations that are not there yet. `names`: those of the destinations that are, if they have some; an address
/// that one of them has is that one.
///
/// # Errors
/// A store that gives no answer.
pub fn look_up(
    (server, stream): (&str, &StreamName),
    names: &[&String],
    destinations: &mut Vec<DestinationSettings>,
    add: &dyn Fn(Place) -> Result<DestinationSettings, Failure>,
) -> Result<Defined, Failure> {
    let mut client = connect(&ServerOptions { server: server.to_owned() }, ASK_TIMEOUT, Class::Mover)?;
    let versions = client.stream_versions(stream)?;
    let said: BTreeSet<String> = versions.into_iter().map(|version| version.definition.destination).collect();
    let mut defined = Defined::new();
    for text in said.into_iter().filter(|text| !text.is_empty()) {
        let at = match names.iter().position(|name| **name == text) {
            Some(at) => Some(at),
            None => match Place::parse(&text).and_then(|place| place_of(place, destinations, add)) {
                Ok(at) => Some(at),
                Err(failure) => {
                    tracing::warn!("stream {stream} is defined to go to {text:?}: {}", failure.message);
                    None
                }
            },
        };
        defined.insert(text, at);
    }
    Ok(defined)
}

fn place_of(
    place: Place,
    destinations: &mut Vec<DestinationSettings>,
    add: &dyn Fn(Place) -> Result<DestinationSettings, Failure>,
) -> Result<usize, Failure> {
    if let Some(at) = destinations.iter().position(|known| known.place == place) {
        return Ok(at);
    }
    destinations.push(add(place)?);
    Ok(destinations.len() - 1)
}
