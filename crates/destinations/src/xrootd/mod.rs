//! XRootD: what the mover asks for, in the requests that a server understands.
//!
//! Nothing is resumed or tried again here: the mover repeats whole attempts under names of their own. What is there is asked for by `stat` and by the checksum that
//! the server computes; where it tells none that is known here, or comes to none, all of it is read back.

mod answer;
#[cfg(feature = "xrootd")]
mod library;
mod programs;
mod trouble;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use forebay_mover::custody::{Answer, Failure};
use forebay_mover::endpoint::{Content, Destination, Fetching, Moved, Sending};
use forebay_mover::{Name, Summer, Sums, Told};

use crate::{Access, Address, OpenError, Secret};
use answer::{Checksum, Stat};
use programs::Programs;
use trouble::Trouble;
use turns::Turns;

/// Of one request, in seconds; with that of the connection less than the minute after which the mover takes a job for one that hangs.
const REQUEST_SECONDS: u16 = 35;
/// Of the connection.
const CONNECTION_SECONDS: u16 = 20;
/// So fast a server computes a checksum, at least.
const CHECKSUM_BYTES_PER_S: u64 = 32 << 20;

/// Checksums that are asked for at once. A stock server computes so many at a time as it is told (`xrootd.chksum max`, 4 by default), lets twice as many wait, and sends whoever
/// comes then away for 30 s.
const CHECKSUMS_AT_ONCE: usize = 4;

/// So long a server may compute a checksum.
fn checksum_seconds(bytes: u64) -> u64 {
    bytes / CHECKSUM_BYTES_PER_S
}

/// How requests reach a server. Paths begin with a slash and have no `?`.
trait Way: Send + Sync {
    /// Size and kind of what has a path.
    fn stat(&self, path: &str, moved: &dyn Moved) -> Result<Stat, Trouble>;

    /// A checksum as the server tells it, of a file of so many bytes.
    fn checksum(&self, path: &str, algorithm: &str, bytes: u64, moved: &dyn Moved) -> Result<String, Trouble>;

    /// Streams a file there, under a path that nothing has; its directories are made. What its bytes came to, if they came by here.
    fn write(&self, path: &str, bytes: u64, content: &mut dyn Content, moved: &dyn Moved) -> Result<Option<Sums>, Cut>;

    /// Reads all of a file.
    fn read(&self, path: &str, summer: &mut Summer, moved: &dyn Moved) -> Result<(), Trouble>;

    /// Gives a file another path, in the place of what has it.
    fn rename(&self, from: &str, to: &str) -> Result<(), Trouble>;

    /// Takes a file away.
    fn remove(&self, path: &str) -> Result<(), Trouble>;
}

/// Why not all was written.
enum Cut {
    /// The source gave no more.
    Source(forebay_mover::custody::SourceAnswer),
    /// The server, or the way there.
    Trouble(Trouble),
}

impl From<Trouble> for Cut {
    fn from(trouble: Trouble) -> Cut {
        Cut::Trouble(trouble)
    }
}

/// Makes a server ready.
///
/// # Errors
/// Programs that are not installed, a token that cannot be read.
pub(crate) fn open(address: &Address, access: &Access) -> Result<Arc<dyn Destination>, OpenError> {
    if let Some(path) = &access.token_file {
        Secret::new(path.clone()).get()?;
    }
    if access.ca_file.is_some() && address.scheme_name() == "roots" {
        tracing::warn!(
            "{address}: XRootD's client takes certificates from a directory, not from --ca-file; where the system's do not vouch for the server, set X509_CERT_DIR"
        );
    }
    // The library has a token from the environment alone, which is that of the whole process.
    #[cfg(feature = "xrootd")]
    if access.token_file.is_none() && library::Library::is_free() {
        let copier = Programs::find(address, None).ok();
        return Ok(Arc::new(XRootD::new(address, library::Library::new(address), copier)));
    }
    let programs = Programs::find(address, access.token_file.as_deref())?;
    Ok(Arc::new(XRootD::new(address, programs.clone(), Some(programs))))
}

/// A directory of an XRootD server.
struct XRootD<W> {
    address: Address,
    way: W,
    /// Who lets the server fetch a file.
    copier: Option<Programs>,
    checksums: Turns,
    /// It came to no checksum when it was asked last.
    tells_none: AtomicBool,
}

impl<W> XRootD<W> {
    fn new(address: &Address, way: W, copier: Option<Programs>) -> XRootD<W> {
        XRootD {
            address: address.clone(),
            way,
            copier,
            checksums: Turns::new(CHECKSUMS_AT_ONCE),
            tells_none: AtomicBool::new(false),
        }
    }
}

/// Checksums that the mover has of its own, as XRootD calls them.
const ALGORITHMS: [&str; 2] = ["adler32", "crc32c"];

impl<W: Way> XRootD<W> {
    /// The path of a name. What stands behind a `?` is for the server, not of the path; nothing quotes it.
    fn path(&self, name: &Name) -> Result<String, Failure> {
        if name.as_str().contains('?') {
            return Err(Failure::Refused(format!(
                "{name}: XRootD takes no file whose name has a question mark, and nothing was done with it. Rename it at the source; it is found anew then"
            )));
        }
        let directory = self.address.path();
        Ok(if directory.is_empty() { format!("/{name}") } else { format!("/{directory}/{name}") })
    }

    fn failure(&self, action: &str, path: &str, trouble: &Trouble) -> Failure {
        trouble.failure(&format!("{action} {}://{}/{path}", self.address.scheme_name(), self.address.host()))
    }

    fn told(&self, path: &str, moved: &dyn Moved) -> Result<Option<Told>, Failure> {
        let failed = |action: &'static str| move |trouble: Trouble| self.failure(action, path, &trouble);
        let stat = match self.way.stat(path, moved) {
            Err(trouble) if trouble.is_not_found() => return Ok(None),
            stat => stat.map_err(failed("stat"))?,
        };
        self.check_kind(path, &stat)?;
        let told = match self.checksum(path, stat.bytes, moved) {
            // It may be long before it tells one, and what it has may be right.
            Err(trouble) if trouble.is_no_checksum() && !stat.is_offline => {
                self.has_no_checksum(path, &trouble);
                // Reading it is something else, and hangs by itself or not.
                moved.moved(0);
                None
            }
            told => told.map_err(failed("ask for the checksum of"))?,
        };
        match told {
            Some(checksum) => Ok(Some(checksum.of(stat.bytes))),
            None if stat.is_offline => Err(Failure::Refused(format!(
                "{path} is not on disk there, and the server tells no checksum of it that is known here. Let it compute adler32 or crc32c (xrootd.chksum), then retry"
            ))),
            None => self.read_back(path, moved).map(|sums| Some(sums.into())).map_err(failed("read back")),
        }
    }

    /// Said once, and again when it had told some in between.
    fn has_no_checksum(&self, path: &str, trouble: &Trouble) {
        let words = trouble.words();
        if self.tells_none.swap(true, Relaxed) {
            return tracing::debug!("{}: no checksum of {path}: {words}. It is read back", self.address);
        }
        tracing::warn!(
            "{}: the server comes to no checksum of {path}: {words}. This and all others of which it comes to none are read back instead, which takes their time once more. \
             See the server's log: the program of xrootd.chksum may fail, or its jobs be stuck, which a restart ends",
            self.address
        );
    }

    fn check_kind(&self, path: &str, stat: &Stat) -> Result<(), Failure> {
        if !stat.is_file {
            return Err(Failure::Refused(format!("what has the path {path} is no file. Move it away, then retry")));
        }
        // Until it is closed, it may go at any time.
        if stat.is_pending {
            return Err(Failure::NotNow(format!(
                "{path} is still being written, or was cut off not long ago. The server keeps such a file for a while (ofs.persist hold); it goes on by itself then"
            )));
        }
        Ok(())
    }

    /// The checksum that the server tells, if it tells one that is known here.
    fn checksum(&self, path: &str, bytes: u64, moved: &dyn Moved) -> Result<Option<Checksum>, Trouble> {
        let _turn = self.checksums.take(moved).ok_or(Trouble::Stopped)?;
        for algorithm in ALGORITHMS {
            match self.way.checksum(path, algorithm, bytes, moved) {
                Err(trouble) if trouble.is_unsupported() => {}
                Err(trouble) => return Err(trouble),
                Ok(told) => {
                    self.tells_none.store(false, Relaxed);
                    return Checksum::parse(&told);
                }
            }
        }
        Ok(None)
    }

    fn read_back(&self, path: &str, moved: &dyn Moved) -> Result<Sums, Trouble> {
        let mut summer = Summer::default();
        self.way.read(path, &mut summer, moved)?;
        Ok(summer.sums())
    }

    fn renamed(&self, from: &Name, to: &Name, replacing: bool) -> Result<Answer, Failure> {
        let (from, to) = (self.path(from)?, self.path(to)?);
        if !replacing {
            // XRootD renames over what is there, and has no other way: so it is looked for first.
            match self.way.stat(&to, &Unwatched) {
                Err(trouble) if trouble.is_not_found() => {}
                Err(trouble) => return Err(self.failure("stat", &to, &trouble)),
                Ok(_) => return Ok(Answer::Taken),
            }
        }
        match self.way.rename(&from, &to) {
            Ok(()) => Ok(Answer::Done),
            // What has the temporary name no longer may have the other.
            Err(trouble) if trouble.is_not_found() => {
                let failure = self.failure("rename", &from, &trouble);
                Err(Failure::Unknown(failure.words().to_owned()))
            }
            Err(trouble) => Err(self.failure("rename", &from, &trouble)),
        }
    }
}

/// Nobody waits for it, and nobody ends it but XRootD's own limits.
struct Unwatched;

impl Moved for Unwatched {
    fn moved(&self, _: u64) -> bool {
        true
    }
}

impl<W: Way> Destination for XRootD<W> {
    fn ask(&self, name: &Name, moved: &dyn Moved) -> Answer {
        self.path(name).and_then(|path| self.told(&path, moved)).map_or_else(Answer::Failed, Answer::Told)
    }

    fn send(&self, sending: &Sending, content: &mut dyn Content, moved: &dyn Moved) -> Answer {
        let path = match self.path(sending.last).and_then(|_| self.path(sending.temporary)) {
            Ok(path) => path,
            Err(failure) => return Answer::Failed(failure),
        };
        match self.way.write(&path, sending.bytes, content, moved) {
            Ok(Some(sums)) => Answer::Sent(sums),
            Ok(None) => Answer::Pulled,
            Err(Cut::Source(answer)) => Answer::Source(answer),
            Err(Cut::Trouble(trouble)) => Answer::Failed(self.failure("write", &path, &trouble)),
        }
    }

    fn pull(&self, fetching: &Fetching, moved: &dyn Moved) -> Answer {
        let Some(copier) = &self.copier else {
            return Answer::Failed(Failure::Refused(
                "xrdcp, by which a server fetches files, is not installed".to_owned(),
            ));
        };
        let path = match self.path(fetching.temporary) {
            Ok(path) => path,
            Err(failure) => return Answer::Failed(failure),
        };
        let from = fetching.door.address_of(fetching.source);
        match copier.pull(&from, &path, fetching.bytes, moved) {
            Ok(()) => Answer::Pulled,
            Err(trouble) => Answer::Failed(self.failure(&format!("let it fetch {from} as"), &path, &trouble)),
        }
    }

    fn rename(&self, from: &Name, to: &Name) -> Answer {
        self.renamed(from, to, false).unwrap_or_else(Answer::Failed)
    }

    fn replace(&self, from: &Name, to: &Name) -> Answer {
        self.renamed(from, to, true).unwrap_or_else(Answer::Failed)
    }

    fn remove(&self, name: &Name) -> Answer {
        let path = match self.path(name) {
            Ok(path) => path,
            Err(failure) => return Answer::Failed(failure),
        };
        match self.way.remove(&path) {
            Ok(()) => Answer::Done,
            Err(trouble) if trouble.is_not_found() => Answer::Done,
            Err(trouble) => Answer::Failed(self.failure("remove", &path, &trouble)),
        }
    }

    fn on_tape(&self, name: &Name, moved: &dyn Moved) -> Answer {
        let path = match self.path(name) {
            Ok(path) => path,
            Err(failure) => return Answer::Failed(failure),
        };
        match self.way.stat(&path, moved) {
            Ok(stat) => Answer::OnTape(stat.has_backup),
            Err(trouble) if trouble.is_not_found() => Answer::Told(None),
            Err(trouble) => Answer::Failed(self.failure("stat", &path, &trouble)),
        }
    }

    fn address_of(&self, name: &Name) -> String {
        let directory = self.address.path();
        let slash = if directory.is_empty() { "" } else { "/" };
        format!("{}://{}//{directory}{slash}{name}", self.address.scheme_name(), self.address.host())
    }

    fn place_of(&self, _: &Name) -> Option<(u64, u64)> {
        None
    }
}
