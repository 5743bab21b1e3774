//! Paths in the store, as they are typed and as they are shown.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use forebay_client::files::escape;

/// What a path in the store begins with where it could be a local one.
pub const STORE_PREFIX: &[u8] = b"forebay:";

/// A path in the store: any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePath(pub Vec<u8>);

/// Reads the argument of a command for which all paths are of the store: `/run17`, or `forebay:/run17` as for `cp`.
pub fn parse_store_path() -> impl TypedValueParser<Value = StorePath> {
    OsStringValueParser::new().try_map(|typed: OsString| {
        let typed = typed.into_vec();
        match in_store(&typed) {
            Some(path) => path.map(StorePath),
            None if typed.is_empty() => Err("expected a path, such as /run17".to_owned()),
            None => Ok(StorePath(typed)),
        }
    })
}

/// The path that is said to be of the store, if it is said so.
pub fn in_store(typed: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let path = typed.strip_prefix(STORE_PREFIX)?;
    // Two slashes would name a server elsewhere.
    let is_path = path.starts_with(b"/") && !path.starts_with(b"//");
    Some(if is_path {
        Ok(path.to_vec())
    } else {
        Err("behind forebay: comes one slash and the path in the store, as in forebay:/run17/raw.dat; the server is named by \
             --server, and a local file of such a name is ./forebay:NAME"
            .to_owned())
    })
}

/// The path of a name in a directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() || directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// The last name of a path, unless it is the root, `.` or `..`.
pub fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty())?;
    (!matches!(name, b"." | b"..")).then_some(name)
}

/// The directory of a path, with its slash; nothing for a name in the root that was typed without one.
pub fn directory_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)]
}

/// A path of the store where local ones are told, too.
pub fn shown(path: &[u8]) -> String {
    format!("forebay:{}{}", if path.starts_with(b"/") { "" } else { "/" }, escape(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_store_cannot_be_mistaken() {
        assert_eq!(in_store(b"forebay:/run17/\xff"), Some(Ok(b"/run17/\xff".to_vec())));
        for local in [&b"/run17"[..], b"./forebay:/x", b"forebay", b"FOREBAY:/x", b"-", b""] {
            assert_eq!(in_store(local), None);
        }
        for wrong in [&b"forebay:"[..], b"forebay:run17", b"forebay://server/run17"] {
            assert!(in_store(wrong).is_some_and(|path| path.is_err()));
        }
    }

    #[test]
    fn paths_are_put_together_and_taken_apart() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"", b"b"), b"b");
        for (path, directory, name) in [
            (&b"/a/b"[..], &b"/a/"[..], Some(&b"b"[..])),
            (b"/a//b//", b"/a//", Some(b"b")),
            (b"a", b"", Some(b"a")),
            (b"/a", b"/", Some(b"a")),
            (b"/", b"", None),
            (b"/a/..", b"/a/", None),
        ] {
            assert_eq!((directory_of(path), last_name(path)), (directory, name), "{}", escape(path));
        }
        assert_eq!(
            (shown(b"run17"), shown(b"/run17/\xff")),
            ("forebay:/run17".to_owned(), r"forebay:/run17/\xff".to_owned())
        );
    }
}
