//! Names of files below a source or a destination.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 4000;

/// A name below a source or a destination: parts with `/` between them, none of which leads out of it. Its text is there once, however often it is cloned: there may be millions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Name(Arc<str>);

/// Text that is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no name of a file below a directory: {what}. Nothing of it was moved or released; rename it")]
pub struct NameError {
    text: String,
    what: &'static str,
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory part, without a slash at its end; nothing when the file lies at the top.
    pub fn directory(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(directory, _)| directory)
    }

    /// The last part.
    pub fn file(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, file)| file)
    }

    /// The name of another file in the same directory.
    ///
    /// # Errors
    /// When that is none.
    pub fn beside(&self, file: &str) -> Result<Name, NameError> {
        match self.directory() {
            Some(directory) => format!("{directory}/{file}").parse(),
            None => file.parse(),
        }
    }

    /// The same name with this behind it.
    ///
    /// # Errors
    /// When that is none.
    pub fn with_ending(&self, ending: &str) -> Result<Name, NameError> {
        format!("{}{ending}", self.0).parse()
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Name, NameError> {
        text.parse()
    }
}

impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        let refuse = |what| Err(NameError { text: text.chars().take(200).collect(), what });
        if text.len() > NAME_BYTES_MAX {
            return refuse("it is longer than 4000 bytes");
        }
        if text.chars().any(char::is_control) {
            return refuse("it has control characters");
        }
        for part in text.split('/') {
            match part {
                "" => return refuse("a part of it is empty"),
                "." | ".." => return refuse("it leads elsewhere"),
                part if part.len() > 255 => return refuse("a part of it is longer than 255 bytes"),
                _ => {}
            }
        }
        Ok(Name(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out() {
        for text in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "a\nb", &"a".repeat(256), &"a/".repeat(2001)]
        {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
        let name: Name = "run 7/raw/..a.raw".parse().expect("a name");
        assert_eq!((name.directory(), name.file()), (Some("run 7/raw"), "..a.raw"));
        assert_eq!(name.beside("b").expect("a name").as_str(), "run 7/raw/b");
        let name: Name = "ü.raw".parse().expect("a name");
        assert_eq!((name.directory(), name.beside("b").expect("a name").as_str()), (None, "b"));
    }
}
