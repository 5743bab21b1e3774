//! Choosing how drives are reached.

use std::io;
use std::sync::Arc;

use forebay_types::DriveNumber;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{DirectIo, DriveFile, Media, PoolMedia, UringMedia};

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring, or the server does not start.
    IoUring,
    /// Threads that read and write.
    ThreadPool,
}

/// How drives are reached. The defaults choose by themselves and say in the log what they chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct MediaConfig {
    /// Whether drives are read and written past the page cache: `auto` (where a drive takes it), `on` (or the drive
    /// is refused) or `off`. Completed writes are durable in any case.
    pub direct: DirectIo,
    /// How operations reach the kernel: `auto` (io_uring where it is allowed, else threads), `io-uring` or
    /// `thread-pool`.
    pub backend: Backend,
}

/// Why drives cannot be reached as the configuration says.
#[derive(Debug, thiserror::Error)]
pub enum OpenMediaError {
    /// io_uring was demanded, or failed for a reason that threads would not mend.
    #[error("io_uring cannot be used: {0}; no data were touched; set backend = \"auto\" or \"thread-pool\"")]
    IoUring(#[source] io::Error),
    /// No threads.
    #[error(
        "the threads for the drives cannot be started: {0}; no data were touched; \
         raise the limit of processes or open files, or run fewer lanes"
    )]
    ThreadPool(#[source] io::Error),
    /// A remote drive gave no way to it.
    #[error(
        "the way to {name} cannot be opened: {source}; no data were touched; raise the limit of open files, or run fewer lanes"
    )]
    Remote {
        /// The drive.
        name: String,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A lane's way to these drives; `None` is a drive that is not there. Drives are opened once and shared by the lanes.
///
/// # Errors
/// When the configured way is refused, or the process is out of threads or descriptors.
pub fn open_media(
    drives: &[(DriveNumber, Option<Arc<DriveFile>>)],
    config: &MediaConfig,
) -> Result<Box<dyn Media + Send>, OpenMediaError> {
    let pool = || -> Result<Box<dyn Media + Send>, OpenMediaError> {
        Ok(Box::new(PoolMedia::new(drives).map_err(OpenMediaError::ThreadPool)?))
    };
    if config.backend == Backend::ThreadPool {
        return pool();
    }
    match UringMedia::new(drives) {
        Ok(media) => Ok(Box::new(media)),
        Err(error) if config.backend == Backend::Auto && is_refusal(&error) => {
            tracing::info!(refused = %error, "no io_uring here: drives are reached by threads");
            pool()
        }
        Err(error) => Err(OpenMediaError::IoUring(error)),
    }
}

/// Not built in, kept away by seccomp or sysctl, too old, or out of locked memory.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::NOMEM | Errno::INVAL | Errno::OPNOTSUPP)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_reads_as_documented_and_refuses_what_it_does_not_know() {
        assert_eq!(toml::from_str(""), Ok(MediaConfig { direct: DirectIo::Auto, backend: Backend::Auto }));
        let text = "direct = \"off\"\nbackend = \"thread-pool\"\n";
        let config = MediaConfig { direct: DirectIo::Off, backend: Backend::ThreadPool };
        assert_eq!(toml::from_str(text), Ok(config));
        assert_eq!(toml::to_string(&config).expect("serialises"), text);
        assert_eq!(
            toml::from_str::<MediaConfig>("backend = \"io-uring\"").map(|config| config.backend),
            Ok(Backend::IoUring)
        );
        for wrong in ["backend = \"aio\"", "directio = \"on\""] {
            assert!(toml::from_str::<MediaConfig>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_way_opens_and_refusals_are_told_from_failures() {
        let drives = [(DriveNumber(0), None)];
        for backend in [Backend::Auto, Backend::ThreadPool] {
            let media = open_media(&drives, &MediaConfig { backend, ..MediaConfig::default() }).expect("opens");
            assert_eq!(media.drive_bytes(DriveNumber(0)), None);
        }
        assert!(is_refusal(&Errno::PERM.into()) && is_refusal(&Errno::NOSYS.into()));
        assert!(!is_refusal(&Errno::MFILE.into()));
    }
}
