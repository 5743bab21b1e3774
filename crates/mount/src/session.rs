//! A mount from its beginning to its end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{Answer, Class, Client, ClientConfig, ClientError, Request, SessionError, TurnWaker, Wait};
use forebay_protocol::{NameLookup, Node, NodeReply};
use forebay_types::limits::PIECE_BYTES_MAX;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::driver::Driver;
use crate::file::ALL_BYTES_MAX;
use crate::kernel::{Call, Kernel};
use crate::machine::{Machine, MachineConfig, NAMES_LANE};
use crate::read_ahead::read_further_ahead;
use crate::replies::Replies;

/// Blocks of written bytes that are kept, to be used again: with fewer than are on their way at full rate, the system would have to find memory for each write.
const WRITTEN_BLOCKS_MAX: usize = ALL_BYTES_MAX / PIECE_BYTES_MAX;

/// What to mount, and where.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// The server, `HOST:PORT`.
    pub address: String,
    /// The directory that shows the files.
    pub directory: PathBuf,
    /// So long after the last who wrote to a file has closed it, it is sealed.
    pub seal_after: Duration,
    /// So long a request waits for a server that is away, or for a store that has no room, before it fails.
    pub patience: Duration,
    /// Whether other users see the mount, too.
    pub allow_other: bool,
    /// Whether nothing may be changed through it.
    pub read_only: bool,
    /// Whether all that is read and written goes past the kernel's cache.
    pub direct_io: bool,
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// No server answers.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The directory still shows a mount whose process is gone.
    #[error(
        "{}: a mount stands here whose process is gone; nothing was mounted. Take it away (`fusermount3 -u {}`, or `umount` as root) and mount again", .0.display(), .0.display()
    )]
    Dead(PathBuf),
    /// The system refuses.
    #[error(
        "{} cannot be mounted: {source}; nothing was mounted or changed. It must be a directory of yours, and the machine must have /dev/fuse and, unless you are root, \
         fusermount3 (package fuse3); --allow-other needs `user_allow_other` in /etc/fuse.conf", directory.display()
    )]
    System {
        /// Where.
        directory: PathBuf,
        /// Its words.
        source: io::Error,
    },
}

/// A mount that stands.
pub struct Mounted {
    directory: PathBuf,
    session: Session<Kernel>,
    driver: JoinHandle<Result<usize, ClientError>>,
    calls: Sender<Call>,
    waker: TurnWaker,
}

/// Ends a mount, from any thread.
pub struct Unmounter {
    directory: PathBuf,
    inner: SessionUnmounter,
    calls: Sender<Call>,
    waker: TurnWaker,
}

impl Unmounter {
    /// Ends it, also when programs have files of it open: these are told that it is gone once what they wrote is safe.
    pub fn unmount(&mut self) {
        let Err(error) = self.inner.unmount() else { return };
        tracing::warn!(
            "{} is in use ({error}): it is taken away all the same, and programs that have files open there are told that it is gone",
            self.directory.display()
        );
        if let Err(error) = unmount(&self.directory, UnmountFlags::DETACH) {
            tracing::debug!(%error, "the mount could not be detached");
        }
        if self.calls.send(Box::new(Machine::end)).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "the thread that asks the store cannot be woken: the mount ends when something else wakes it");
        }
    }
}

impl Mounted {
    /// What ends it.
    pub fn unmounter(&mut self) -> Unmounter {
        let (calls, waker) = (self.calls.clone(), self.waker.clone());
        Unmounter { directory: self.directory.clone(), inner: self.session.unmount_callable(), calls, waker }
    }

    /// Serves until somebody unmounts it, then sends what is left and seals what waits for that, for as long as [`MountConfig::patience`] says. Programs that still
    /// use a mount that was taken away are told so when the process ends.
    ///
    /// # Errors
    /// What went wrong with the client, and what was not written.
    pub fn serve(self) -> Result<(), ServeError> {
        let Mounted { session, driver, calls, .. } = self;
        drop(calls);
        std::thread::Builder::new().name("kernel".to_owned()).spawn(move || {
            if let Err(error) = session.run() {
                tracing::error!(
                    "the kernel's requests cannot be read any more: {error}. What was synchronised is safe; mount again"
                );
            }
        })?;
        let unwritten = match driver.join() {
            Ok(driven) => driven?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if unwritten > 0 { Err(ServeError::Unwritten { bytes: unwritten }) } else { Ok(()) }
    }
}

/// How a mount ended when it did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No thread could be started.
    #[error("the system gives no thread for the kernel's requests: {0}. Nothing was served; mount again")]
    Thread(#[from] io::Error),
    /// The server's side.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The server did not take in time what was on its way.
    #[error(
        "{bytes} bytes that were written and not synchronised were not taken by the store in time: they are lost, what was synchronised is safe"
    )]
    Unwritten {
        /// How many.
        bytes: usize,
    },
}

/// Connects to a server and mounts its files.
///
/// # Errors
/// Why there is no mount; nothing is left of it.
pub fn mount(config: &MountConfig) -> Result<Mounted, MountError> {
    let directory = config.directory.canonicalize().map_err(|source| cannot_mount(&config.directory, source))?;
    let system = |source| MountError::System { directory: directory.clone(), source };
    let number = getrandom::u64().map_err(|error| system(io::Error::other(format!("no random numbers: {error}"))))?;
    let (mut client, root) = connect(config, number)?;
    let info = client.info();
    let piece_bytes_max = info.fragment_bytes_max.min(info.frame_payload_bytes_max) as usize;
    let machine = MachineConfig {
        lanes: info.lanes,
        root: root.number,
        // Number 0 is nobody's.
        client: number.max(1),
        piece_bytes_max: piece_bytes_max.clamp(1, PIECE_BYTES_MAX),
        patience: config.patience,
        seal_after: config.seal_after,
    };
    let epoch = info.epoch;
    let written = client.blocks(WRITTEN_BLOCKS_MAX);
    let machine = Machine::new(machine, epoch, &root, written.clone());
    let waker = client.turn_waker().map_err(system)?;
    let (sender, calls) = channel();
    let replies = Replies::start().map_err(system)?;
    let kernel = Kernel::new(sender.clone(), waker.clone(), replies, written, config.direct_io);
    let session =
        Session::new(kernel, &directory, &options(config)).map_err(|source| cannot_mount(&directory, source))?;
    read_further_ahead(&directory);
    let driver = Driver { client, machine, calls, patience: config.patience };
    let driver = std::thread::Builder::new().name("store".to_owned()).spawn(move || driver.run()).map_err(system)?;
    Ok(Mounted { directory: directory.clone(), session, driver, calls: sender, waker })
}

/// A client, and the root: a store without files says so here.
fn connect(config: &MountConfig, seed: u64) -> Result<(Client, Node), ClientError> {
    let mut client_config = ClientConfig::new(&config.address, "forebay mount").class(Class::Mover);
    client_config.deadline = Some(config.patience);
    client_config.must_listen = true;
    client_config.seed = seed;
    let mut client = Client::connect(client_config)?;
    let root = Request::NameLookup(NameLookup { directory: None, name: Vec::new() });
    client.start(NAMES_LANE, root).map_err(|error| client.error(error))?;
    loop {
        match client.next_answer() {
            Some((_, Ok(Answer::Node(NodeReply { node: Some(node), .. })))) => return Ok((client, node)),
            Some((_, Ok(other))) => return Err(client.error(SessionError::Broken(format!("the root is {other:?}")))),
            Some((_, Err(error))) => return Err(client.error(error)),
            None => client.turn(Wait::Yes)?,
        }
    }
}

fn options(config: &MountConfig) -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::FSName(config.address.clone()),
        MountOption::Subtype("forebay".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        if config.read_only { MountOption::RO } else { MountOption::RW },
    ];
    options.acl = if config.allow_other { SessionACL::All } else { SessionACL::Owner };
    // One thread keeps the kernel's order, which is that in which files are read.
    options.n_threads = Some(1);
    options
}

fn cannot_mount(directory: &Path, source: io::Error) -> MountError {
    match source.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) {
        true => MountError::Dead(directory.to_owned()),
        false => MountError::System { directory: directory.to_owned(), source },
    }
}
