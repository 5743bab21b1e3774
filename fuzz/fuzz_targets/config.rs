//! The configuration file of a server: an input is its text.
#![no_main]

use forebay_server::ServerConfig;
use forebay_store::StoreConfig;
use libfuzzer_sys::fuzz_target;
use serde::{Deserialize, Serialize};

/// As the command line has it.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct File {
    store: StoreConfig,
    server: ServerConfig,
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = str::from_utf8(input) else { return };
    let Ok(file) = toml::from_str::<File>(text) else { return };
    // Numbers that no file can hold are refused when they are written.
    let Ok(printed) = toml::to_string(&file) else { return };
    let again: File = toml::from_str(&printed).expect("what is printed is a configuration");
    assert_eq!(toml::to_string(&again).as_ref(), Ok(&printed), "and means the same");
});
