//! The configuration file of `serve`.

use std::path::Path;

use forebay_server::ServerConfig;
use forebay_store::StoreConfig;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Every key with its default and what it means.
pub const EXAMPLE: &str = include_str!("../forebay.example.toml");

/// A configuration file. What it does not say has the defaults; what is not known is refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct FileConfig {
    /// How the store is run.
    pub store: StoreConfig,
    /// How the server is run.
    pub server: ServerConfig,
}

impl FileConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or that says something that is not understood.
    pub fn load(path: &Path) -> Result<FileConfig, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::file("read the configuration", path, &error, "the server was not started"))?;
        FileConfig::parse(&text).map_err(|why| {
            let path = path.display();
            Failure::usage(format!("{path}: {why}\nThe server was not started and no drive was touched; `forebay serve --print-config` prints every key"))
        })
    }

    fn parse(text: &str) -> Result<FileConfig, String> {
        // The parser's message has the line, a drawing of it, and for an unknown key those that are known.
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key of a table, with its path, and its value.
    fn keys(table: &toml::Table, prefix: &str, into: &mut Vec<(String, toml::Value)>) {
        for (key, value) in table {
            let path = format!("{prefix}{key}");
            match value {
                toml::Value::Table(inner) => keys(inner, &format!("{path}."), into),
                value => into.push((path, value.clone())),
            }
        }
    }

    fn keys_of(text: &str) -> Vec<(String, toml::Value)> {
        let mut found = Vec::new();
        keys(&text.parse().expect("TOML"), "", &mut found);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[test]
    fn the_example_names_every_key_with_its_default() {
        let defaults = toml::to_string(&FileConfig::default()).expect("serialises");
        assert_eq!(keys_of(EXAMPLE), keys_of(&defaults));
        let read = FileConfig::parse(EXAMPLE).expect("the example is read");
        assert_eq!(toml::to_string(&read).expect("serialises"), defaults);
    }

    #[test]
    fn every_key_of_the_example_is_explained() {
        let mut explained = false;
        for line in EXAMPLE.lines() {
            if line.contains(" = ") && !line.starts_with('#') {
                assert!(explained, "{line:?} has no comment before it");
                explained = false;
            } else if line.starts_with('#') {
                explained = true;
            } else if line.is_empty() {
                explained = false;
            }
        }
    }

    #[test]
    fn unknown_keys_are_refused_by_name() {
        for (text, key) in [
            ("[store]\ncache-byte = 1\n", "cache-byte"),
            ("[server]\nport = 1\n", "port"),
            ("[sever]\n", "sever"),
            ("[store.media]\ndirectio = \"on\"\n", "directio"),
            ("[store]\nfault-injection = true\n", "fault-injection"),
        ] {
            let error = FileConfig::parse(text).expect_err(text);
            assert!(error.contains(key), "{error}");
        }
        assert!(FileConfig::parse("").is_ok());
    }
}
