//! How clients behave.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_client::files::{ReadOptions, WriteOptions};
use forebay_client::{Class, ClientConfig};

use crate::call::{free, run};
use crate::failure::Failure;
use crate::raw::{give_handle, given, text};

/// The most connections of a `forebay_files`.
const CONNECTIONS_MAX: u32 = 64;

/// How a client behaves. It is copied when something connects with it; one thread at a time may use it.
pub struct forebay_config {
    pub(crate) client: ClientConfig,
    pub(crate) connections: usize,
    pub(crate) read: ReadOptions,
    pub(crate) write: WriteOptions,
}

/// Clients of one process that lost the same server do not come back at the same moment.
static NEXT_CLIENT: AtomicU64 = AtomicU64::new(0);

impl forebay_config {
    /// What another client of this process connects with.
    pub(crate) fn of_next_client(&self) -> ClientConfig {
        let number = NEXT_CLIENT.fetch_add(1, Ordering::Relaxed);
        ClientConfig { seed: self.client.seed ^ number << 32, ..self.client.clone() }
    }

    pub(crate) fn copy(&self) -> forebay_config {
        let forebay_config { client, connections, read, write } = self;
        forebay_config { client: client.clone(), connections: *connections, read: *read, write: write.clone() }
    }
}

/// The defaults, for the server at `address` ("HOST:PORT"). `name` stands in the server's log; null is "c".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_config_new(
    address: *const c_char,
    name: *const c_char,
    config: Option<&mut MaybeUninit<*mut forebay_config>>,
) -> i32 {
    run(|| {
        give_handle(config, || {
            // SAFETY: the caller keeps to the rule of `raw`.
            let address = unsafe { text(address, "the address") }?;
            let name = match name.is_null() {
                true => "c",
                // SAFETY: as above.
                false => unsafe { text(name, "the name") }?,
            };
            let client = ClientConfig::new(address, name);
            let (read, write) = (ReadOptions::default(), WriteOptions::default());
            Ok(forebay_config { client, connections: 4, read, write })
        })
    })
}

/// Frees it; null is nothing to free. What connected with it goes on.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_free(config: Option<Box<forebay_config>>) {
    free(config);
}

fn change(config: Option<&mut forebay_config>, change: impl FnOnce(&mut forebay_config) -> Result<(), Failure>) -> i32 {
    run(|| change(given(config, "the config")?))
}

/// Negative: for ever.
fn duration_of(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// What the client is for, one of `FOREBAY_CLASS_...` (default: readout). A busy server serves the first classes first.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_class(config: Option<&mut forebay_config>, class: i32) -> i32 {
    change(config, |config| {
        let known = u8::try_from(class).ok().and_then(Class::from_code);
        config.client.class = known.ok_or_else(|| Failure::invalid(format!("{class} is no class of clients")))?;
        Ok(())
    })
}

/// How long a request is repeated before it is given up, counted from the last part of its answer that came (default 60000); negative: for ever.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_deadline_ms(config: Option<&mut forebay_config>, deadline_ms: i64) -> i32 {
    change(config, |config| {
        config.client.deadline = duration_of(deadline_ms);
        Ok(())
    })
}

/// How long connecting and greeting may take before they are tried again (default 5000).
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_connect_timeout_ms(config: Option<&mut forebay_config>, timeout_ms: u32) -> i32 {
    change(config, |config| {
        config.client.connect_timeout = Duration::from_millis(u64::from(timeout_ms.max(1)));
        Ok(())
    })
}

/// Whether connecting ends at once when nothing listens, instead of trying until the deadline (default: no). Where several servers
/// are named it does not: one of them may be about to take the store over.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_must_listen(config: Option<&mut forebay_config>, must_listen: bool) -> i32 {
    change(config, |config| {
        config.client.must_listen = must_listen;
        Ok(())
    })
}

/// A batch of puts leaves when it has so many bytes (default 1 MiB), or when its first put is so old (default 2000).
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_batch(config: Option<&mut forebay_config>, bytes: usize, delay_us: u64) -> i32 {
    change(config, |config| {
        config.client.batch_bytes = bytes;
        config.client.batch_delay = Duration::from_micros(delay_us);
        Ok(())
    })
}

/// Of a `forebay_files`: so many connections at most, 1 to 64 (default 4). What uses the same one at the same time waits for each other. They are made when they are needed.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_connections(config: Option<&mut forebay_config>, connections: u32) -> i32 {
    change(config, |config| match connections {
        1..=CONNECTIONS_MAX => {
            config.connections = connections as usize;
            Ok(())
        }
        _ => Err(Failure::invalid(format!("{connections} connections are not 1 to {CONNECTIONS_MAX}"))),
    })
}

/// How long writing tries again what the store refuses for now (no space, drives missing) before it is told; negative (default): as long as requests are repeated.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_patience_ms(config: Option<&mut forebay_config>, patience_ms: i64) -> i32 {
    change(config, |config| {
        config.write.patience = duration_of(patience_ms);
        Ok(())
    })
}

/// So many bytes of what follows are on their way or here while a file is read in order (default 8 MiB, at least 1 MiB).
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_ahead_bytes(config: Option<&mut forebay_config>, bytes: usize) -> i32 {
    change(config, |config| {
        config.read.ahead_bytes = bytes;
        Ok(())
    })
}

/// So many bytes of a writer are on their way without an answer before writing waits (default 16 MiB).
#[unsafe(no_mangle)]
pub extern "C" fn forebay_config_set_unanswered_bytes(config: Option<&mut forebay_config>, bytes: usize) -> i32 {
    change(config, |config| {
        config.write.unanswered_bytes = bytes;
        Ok(())
    })
}
