//! Addresses of destinations.

use std::fmt;
use std::str::FromStr;

/// How a destination is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// XRootD, without and with TLS.
    XRootD,
    /// WebDAV over HTTP, without and with TLS.
    Web,
    /// A bucket of an S3 service.
    S3,
}

const SCHEMES: [(&str, Scheme); 5] = [
    ("root", Scheme::XRootD),
    ("roots", Scheme::XRootD),
    ("https", Scheme::Web),
    ("http", Scheme::Web),
    ("s3", Scheme::S3),
];

/// `scheme://host[:port]/path`, without a slash at its end; with S3 the host is the bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    scheme: String,
    host: String,
    path: String,
}

/// Text that is no address of a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address of a destination: {what}")]
pub struct AddressError {
    text: String,
    what: &'static str,
}

impl Address {
    /// Whether a text is meant as an address: a path has no `://`.
    pub fn is_meant(text: &str) -> bool {
        text.contains("://")
    }

    /// How it is reached.
    pub fn scheme(&self) -> Scheme {
        let of = SCHEMES.iter().find(|(name, _)| *name == self.scheme);
        of.expect("parsed from one of them").1
    }

    /// The scheme as it was written.
    pub fn scheme_name(&self) -> &str {
        &self.scheme
    }

    /// Host, and port if one was given; the bucket of S3.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The path below the host, without slashes around it; empty at the top.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        // Who gives a password here must not find it in a log.
        let shown = text.rsplit_once('@').map_or(text.to_owned(), |(_, host)| format!("…@{host}"));
        let refuse = |what| Err(AddressError { text: shown.chars().take(200).collect(), what });
        let Some((scheme, rest)) = text.split_once("://") else { return refuse("it has no scheme") };
        if !SCHEMES.iter().any(|(name, _)| *name == scheme) {
            return refuse("its scheme is none of root, roots, https, http and s3");
        }
        if text.chars().any(|character| character.is_control() || character.is_whitespace())
            || text.contains(['?', '#'])
        {
            return refuse("it has a character that no address has");
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return refuse("it has no host");
        }
        if host.contains('@') {
            return refuse(
                "it has a user or a password in it, which would be seen by everybody; give a file with them",
            );
        }
        let path = path.trim_matches('/');
        if path.split('/').any(|part| matches!(part, "." | "..")) || path.contains("//") {
            return refuse("its path leads elsewhere, or has an empty part");
        }
        Ok(Address { scheme: scheme.to_owned(), host: host.to_owned(), path: path.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme, self.host, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address: Address = "root://eos.example.org:1094//eos/run7/".parse().expect("an address");
        assert_eq!(
            (address.scheme(), address.host(), address.path()),
            (Scheme::XRootD, "eos.example.org:1094", "eos/run7")
        );
        assert_eq!(address.to_string(), "root://eos.example.org:1094/eos/run7");
        let address: Address = "s3://bucket".parse().expect("an address");
        assert_eq!((address.scheme(), address.host(), address.path()), (Scheme::S3, "bucket", ""));
        for text in [
            "/data",
            "ftp://host/a",
            "https:///a",
            "https://user:word@host/a",
            "https://host/a?b",
            "https://host/../a",
            "https://host/a//b",
            "https://ho st/a",
            "https://host/a\n",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }
}
