//! Where a name lies on a server.

use std::net::IpAddr;

use forebay_mover::Name;
use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode};

use crate::{Address, OpenError};

/// All but what RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What cannot stand in an address.
const STRAY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>');

/// The directory of a server below which files are put.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    scheme: Scheme,
    authority: Authority,
    /// Decoded; nothing at the top.
    directory: Option<Name>,
}

impl Base {
    pub(crate) fn of(address: &Address) -> Result<Base, OpenError> {
        let failed = |what: &str| OpenError::Access(format!("{what}; give https://HOST[:PORT]/PATH"));
        let scheme = if address.scheme_name() == "http" { Scheme::HTTP } else { Scheme::HTTPS };
        let authority: Authority = address.host().parse().map_err(|_| failed("its host is none"))?;
        if authority.host().is_empty() || authority.as_str() != authority.host() && authority.port_u16().is_none() {
            return Err(failed("its port is none"));
        }
        let path = percent_decode_str(address.path()).decode_utf8().map_err(|_| failed("its path is no text"))?;
        let directory = match path.as_ref() {
            "" => None,
            path => Some(path.parse().map_err(|_| failed("its path is no name of a directory"))?),
        };
        Ok(Base { scheme, authority, directory })
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The path of a name from the server's top, with a slash before it.
    pub(crate) fn path_of(&self, name: &Name) -> String {
        self.directory.as_ref().map_or_else(|| format!("/{name}"), |directory| format!("/{directory}/{name}"))
    }

    /// Whether a path is above the directory, so that nothing is made there.
    pub(super) fn is_above(&self, path: &str) -> bool {
        path.len() < self.directory.as_ref().map_or(1, |directory| directory.as_str().len() + 1)
    }

    /// The address of a path.
    pub(crate) fn uri(&self, path: &str) -> Uri {
        let built = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        built.path_and_query(encoded(path)).build().expect("all that no address has is encoded")
    }
}

/// A path as it stands in an address.
pub(super) fn encoded(path: &str) -> String {
    path.split('/').map(|part| utf8_percent_encode(part, ENCODED).to_string()).collect::<Vec<_>>().join("/")
}

/// An address as it is told: what stands behind a `?` may be a ticket.
pub(super) fn shown(uri: &Uri) -> String {
    let (scheme, authority) = (uri.scheme_str().unwrap_or("http"), uri.authority().map_or("", Authority::as_str));
    format!("{scheme}://{authority}{}", uri.path())
}

/// Whether what is sent there stays on this machine.
pub(super) fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Where a redirection leads: an address, or a path of the same server. XRootD encodes nothing in it.
pub(super) fn redirected(from: &Uri, location: &[u8]) -> Option<Uri> {
    let location = percent_encode(location, STRAY).to_string();
    if location.starts_with('/') && !location.starts_with("//") {
        let built = Uri::builder().scheme(from.scheme()?.clone()).authority(from.authority()?.clone());
        return built.path_and_query(location).build().ok();
    }
    let to: Uri = location.parse().ok()?;
    let is_web = to.scheme() == Some(&Scheme::HTTP) || to.scheme() == Some(&Scheme::HTTPS);
    let has_user = to.authority().is_none_or(|authority| authority.as_str().contains('@'));
    (is_web && !has_user).then_some(to)
}

/// Whether a token may be sent along: encrypted, or without leaving this machine when the destination itself does not.
pub(super) fn may_have_token(base: &Base, to: &Uri) -> bool {
    let from = base.uri("/");
    to.scheme() == Some(&Scheme::HTTPS) || is_loopback(&from) && is_loopback(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> Base {
        Base::of(&text.parse().expect("an address")).expect("a base")
    }

    #[test]
    fn names_are_encoded_and_a_path_is_taken_as_an_address_has_it() {
        let base = base("https://host:1094/eos/run%207");
        let path = base.path_of(&"a/ü ?#%+&;.raw".parse().expect("a name"));
        assert_eq!(path, "/eos/run 7/a/ü ?#%+&;.raw");
        assert_eq!(base.uri(&path).to_string(), "https://host:1094/eos/run%207/a/%C3%BC%20%3F%23%25%2B%26%3B.raw");
        assert!(base.is_above("/eos") && !base.is_above("/eos/run 7"));
    }

    #[test]
    fn what_is_no_base_is_refused() {
        for text in ["https://host:port/a", "https://host/a%00", "https://host/%2e%2e/a", "https://host/%ff"] {
            assert!(Base::of(&text.parse().expect("an address")).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_goes_along_encrypted_or_within_this_machine() {
        let of = |base: &Base, to: &str| may_have_token(base, &to.parse().expect("an address"));
        let (far, near) = (base("https://host/a"), base("http://127.0.0.1:80/a"));
        assert!(of(&far, "https://other/a") && of(&near, "http://localhost:81/a") && of(&near, "http://[::1]/a"));
        assert!(!of(&far, "http://host/a") && !of(&far, "http://127.0.0.1/a") && !of(&near, "http://host/a"));
    }

    #[test]
    fn redirections_lead_to_web_addresses_alone() {
        let from: Uri = "https://host/a".parse().expect("an address");
        let to = |location: &str| redirected(&from, location.as_bytes()).map(|to| to.to_string());
        assert_eq!(to("/b?c=d").as_deref(), Some("https://host/b?c=d"));
        assert_eq!(to("/ü b").as_deref(), Some("https://host/%C3%BC%20b"));
        assert_eq!(to("http://pool:1/b?c=d").as_deref(), Some("http://pool:1/b?c=d"));
        assert_eq!(shown(&redirected(&from, b"https://pool/b?ticket=1").expect("an address")), "https://pool/b");
        for location in ["", "b", "//other/b", "ftp://host/b", "file:///etc/passwd", "https://user:word@host/b"] {
            assert_eq!(to(location), None, "{location}");
        }
    }
}
