//! What a store takes still, and when it is full, as it says itself.

use std::time::Duration;

use forebay_client::{Class, Client, ClientConfig};
use serde::Deserialize;

use crate::endpoint::HasSpace;
use crate::monitor::{Space, Told};

/// So long a server is waited for.
const DEADLINE: Duration = Duration::from_secs(10);

/// The space of a store.
#[derive(Clone, Debug)]
pub struct StoreSpace(String);

impl StoreSpace {
    /// That of the store that is served there.
    pub fn new(address: &str) -> StoreSpace {
        StoreSpace(address.to_owned())
    }
}

/// The part of a server's status that is wanted.
#[derive(Deserialize)]
struct Status {
    totals: Totals,
}

#[derive(Deserialize)]
struct Totals {
    free_bytes: u64,
    capacity_bytes: u64,
    time_left_s: Option<f64>,
}

impl HasSpace for StoreSpace {
    fn space(&self) -> Result<Space, String> {
        let mut config = ClientConfig::new(&self.0, "forebay move");
        (config.class, config.deadline, config.must_listen) = (Class::Monitor, Some(DEADLINE), true);
        let mut client = Client::connect(config).map_err(|error| error.to_string())?;
        let status = client.status().map_err(|error| error.to_string())?;
        space_of(&status).map_err(|error| format!("{}: its status cannot be read: {error}", self.0))
    }
}

fn space_of(status: &str) -> Result<Space, serde_json::Error> {
    let Totals { free_bytes, capacity_bytes, time_left_s } = serde_json::from_str::<Status>(status)?.totals;
    let told = time_left_s.filter(|seconds| seconds.is_finite()).map_or(Told::NotFilling, Told::FullIn);
    Ok(Space { free_bytes, capacity_bytes, told })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_says_itself_when_it_is_full() {
        let of = |left: &str| {
            space_of(&format!("{{\"totals\": {{\"free_bytes\": 5, \"capacity_bytes\": 7, \"time_left_s\": {left}}}}}"))
        };
        let told = |left: &str| of(left).expect("a status").told;
        assert_eq!((told("null"), told("90.5")), (Told::NotFilling, Told::FullIn(90.5)));
        assert_eq!(of("null").expect("a status").capacity_bytes, 7);
        assert!(space_of("{}").is_err());
    }
}
