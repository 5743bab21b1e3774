//! Tokens, keys and certificates: always in files, read again when these change, never shown.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::SystemTime;

use crate::OpenError;

/// A file with a secret is no longer than this.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The files with which a destination is reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// A bearer token, for XRootD and WebDAV.
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) of those who may vouch for a server, besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Where the S3 service listens, when it is not Amazon's.
    pub s3_endpoint: Option<String>,
    /// The keys of S3, as `aws configure` writes them.
    pub s3_credentials_file: Option<PathBuf>,
}

/// What stands in a file and may change there. It is shown nowhere.
pub struct Secret {
    path: PathBuf,
    read: Mutex<Option<(SystemTime, String)>>,
}

impl Secret {
    /// A secret in a file, which is read when it is asked for.
    pub fn new(path: PathBuf) -> Secret {
        Secret { path, read: Mutex::new(None) }
    }

    /// The secret as it stands there now, without white space around it.
    ///
    /// # Errors
    /// A file that cannot be read, is empty or far too long.
    pub fn get(&self) -> Result<String, OpenError> {
        let failed = |what: String| {
            OpenError::Access(format!(
                "{}: {what}. Put the token or key there, readable by this user alone; it is read again by itself",
                self.path.display()
            ))
        };
        let metadata = fs::metadata(&self.path).map_err(|error| failed(error.to_string()))?;
        if metadata.len() > SECRET_BYTES_MAX || !metadata.is_file() {
            return Err(failed("this is no file with a token or a key".to_owned()));
        }
        let modified = metadata.modified().map_err(|error| failed(error.to_string()))?;
        let mut read = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, secret)) = read.as_ref().filter(|(at, _)| *at == modified) {
            return Ok(secret.clone());
        }
        let mut secret = String::new();
        let file = File::open(&self.path).map(|file| file.take(SECRET_BYTES_MAX));
        file.and_then(|mut file| file.read_to_string(&mut secret)).map_err(|error| failed(error.to_string()))?;
        let secret = secret.trim().to_owned();
        if secret.is_empty() {
            return Err(failed("it is empty".to_owned()));
        }
        *read = Some((modified, secret.clone()));
        Ok(secret)
    }

    /// The same, read again in any case: what was there last was not taken.
    ///
    /// # Errors
    /// As of [`Secret::get`].
    pub fn get_anew(&self) -> Result<String, OpenError> {
        *self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        self.get()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.path.display())
    }
}
