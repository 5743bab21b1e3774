//! Where files are registered, and what must be true of what is.

use std::collections::BTreeMap;

use forebay_mover::custody::ConsignmentId;
use forebay_mover::recipe::Recipe;
use forebay_mover::{Name, Sums};
use forebay_types::Time;
use serde_json::Value;

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) away_until: Time,
    entries: BTreeMap<String, String>,
    keys: BTreeMap<ConsignmentId, String>,
}

impl Registry {
    pub(super) fn register(&mut self, id: ConsignmentId, key: &str, text: &str) {
        let known = self.keys.entry(id).or_insert_with(|| key.to_owned());
        assert_eq!(known, key, "consignment {id} is registered twice");
        let known = self.entries.entry(key.to_owned()).or_insert_with(|| text.to_owned());
        assert_eq!(known, text, "{key} is registered with two contents");
    }

    /// What a consignment was registered with.
    pub(super) fn entry(&self, id: ConsignmentId) -> Option<&str> {
        self.keys.get(&id).map(|key| self.entries[key].as_str())
    }
}

/// Whether a sidecar says what a file is.
pub(super) fn describes(text: &[u8], id: ConsignmentId, name: &Name, recipe: &Recipe, made: &[u8]) -> bool {
    let Ok(said) = serde_json::from_slice::<Value>(text) else { return false };
    let sums = Sums::of(made);
    let parts = said["parts"].as_array().map_or(&[][..], Vec::as_slice);
    let mut at = 0;
    let fits = |(part, said): (&forebay_mover::custody::Part, &Value)| {
        let bytes = part.identity.bytes;
        let fits = said["name"] == part.name.as_str() && said["bytes"] == bytes && said["at"] == at;
        at += bytes;
        fits
    };
    said["name"] == name.as_str()
        && said["consignment"] == id.0
        && said["bytes"] == sums.bytes
        && said["adler32"] == format!("{:08x}", sums.adler32)
        && said["crc32c"] == format!("{:08x}", sums.crc32c)
        && (said["compression"] == "zstd") == recipe.zstd.is_some()
        && (recipe.zstd.is_none() || said["uncompressed_bytes"] == recipe.bytes())
        && recipe.events().is_none_or(|events| said["events"] == events.list.len() && said["run"] == events.run.0)
        && parts.len() == recipe.parts().len()
        && recipe.parts().iter().zip(parts).all(fits)
}
