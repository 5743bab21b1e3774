//! How a command that works through many names tells what it did, and what it could not do.

use forebay_client::ClientError;
use forebay_client::files::FileError;
use serde_json::Value;

use crate::failure::{Exit, Failure};
use crate::output::{Output, write_stdout};
use crate::size::human_count;

/// The one object of `--json`, whose entries are written as they come, as there may be very many.
pub struct Entries<'a> {
    output: &'a Output,
    count: u64,
}

impl Entries<'_> {
    /// Nothing has come yet.
    pub fn begin(output: &Output) -> Entries<'_> {
        if output.json {
            write_stdout(b"{\"entries\":[");
        }
        Entries { output, count: 0 }
    }

    /// The next one: the object, or the words.
    pub fn add(&mut self, object: impl FnOnce() -> Value, words: impl FnOnce() -> String) {
        if self.output.json {
            let comma = if self.count > 0 { "," } else { "" };
            write_stdout(format!("{comma}{}", object()).as_bytes());
        } else {
            self.output.line(&words());
        }
        self.count += 1;
    }

    /// There are no more; why not all are there, if they are not.
    ///
    /// # Errors
    /// The failure.
    pub fn end(self, failure: Option<Failure>) -> Result<(), Failure> {
        if self.output.json {
            let why =
                failure.as_ref().map(|failure| format!(",{}", failure.json().to_string().trim_start_matches('{')));
            write_stdout(format!("]{}\n", why.as_deref().unwrap_or("}")).as_bytes());
        }
        failure.map_or(Ok(()), |failure| Err(Failure { told_json: true, ..failure }))
    }
}

/// Why something was not done with one of many names.
#[derive(Debug)]
pub struct Trouble {
    failure: Failure,
    /// It would be the same with all others.
    ends_all: bool,
}

impl From<FileError> for Trouble {
    fn from(error: FileError) -> Trouble {
        let ends_all = match &error {
            FileError::Client { error, .. } => !matches!(error, ClientError::Damaged { .. }),
            FileError::NoSpace { .. }
            | FileError::IndexFull { .. }
            | FileError::Unavailable { .. }
            | FileError::NoNumbers { .. }
            | FileError::ReadOnly { .. } => true,
            _ => false,
        };
        Trouble { failure: error.into(), ends_all }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble { ends_all: failure.exit == Exit::Retry, failure }
    }
}

impl Trouble {
    /// The same in other words.
    pub fn in_words(self, message: String) -> Trouble {
        Trouble { failure: Failure { message, ..self.failure }, ..self }
    }
}

/// What was not done. The first is told at the end when it is the only one, all are told as they come when there are more.
pub struct Troubles<'a> {
    output: &'a Output,
    count: u64,
    first: Option<Failure>,
    worst: Exit,
    end: Option<Failure>,
}

impl Troubles<'_> {
    /// Nothing has gone wrong yet.
    pub fn new(output: &Output) -> Troubles<'_> {
        Troubles { output, count: 0, first: None, worst: Exit::Usage, end: None }
    }

    /// What was done; nothing when it was not.
    pub fn take<T>(&mut self, result: Result<T, impl Into<Trouble>>) -> Option<T> {
        let Trouble { failure, ends_all } = match result {
            Ok(done) => return Some(done),
            Err(error) => error.into(),
        };
        if ends_all {
            self.end.get_or_insert(failure);
            return None;
        }
        self.count += 1;
        self.worst = worse(self.worst, failure.exit);
        match &self.first {
            None => self.first = Some(failure),
            Some(first) => {
                if self.count == 2 {
                    self.tell(first);
                }
                self.tell(&failure);
            }
        }
        None
    }

    fn tell(&self, failure: &Failure) {
        self.output.note(&format!("forebay: {}", failure.message));
    }

    /// Whether going on makes no sense.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// How many names something went wrong with.
    pub fn count(&self) -> u64 {
        self.count + u64::from(self.end.is_some())
    }

    /// How the command ends.
    pub fn failure(self) -> Option<Failure> {
        match (self.end.is_some(), self.count) {
            (true, 1) => self.tell(self.first.as_ref().expect("there is one")),
            (false, 2..) => {
                let first = &self.first.as_ref().expect("there are some").message;
                let count = human_count(self.count);
                let message = format!(
                    "with {count} names it was not done, as told above; with all others it was. The first: {first}"
                );
                return Some(Failure { exit: self.worst, message, told_json: false });
            }
            _ => {}
        }
        self.end.or(self.first)
    }
}

/// What is lost or missing outweighs what may pass, and that what was asked wrongly.
fn worse(one: Exit, other: Exit) -> Exit {
    let weight = |exit| match exit {
        Exit::Usage => 0,
        Exit::Retry => 1,
        Exit::Data | Exit::Of(_) => 2,
    };
    if weight(other) > weight(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(path: &str) -> Result<(), FileError> {
        Err(FileError::NotFound { path: path.to_owned() })
    }

    #[test]
    fn one_trouble_is_told_as_it_is_and_several_are_counted() {
        let output = Output::new(false, true);
        let mut troubles = Troubles::new(&output);
        troubles.take(missing("/a"));
        assert_eq!(troubles.take(Ok::<_, FileError>(7)), Some(7));
        assert!(!troubles.is_over());
        let only = troubles.failure().expect("one");
        assert!(only.message.starts_with("/a: ") && only.exit == Exit::Data, "{only:?}");
        let mut troubles = Troubles::new(&output);
        troubles.take(Err::<(), _>(FileError::Exists { path: "/b".to_owned() }));
        troubles.take(missing("/a"));
        let both = troubles.failure().expect("two");
        assert!(both.message.starts_with("with 2 names") && both.exit == Exit::Data, "{both:?}");
        assert_eq!(Troubles::new(&output).failure(), None);
    }

    #[test]
    fn what_would_be_the_same_with_all_names_ends_the_command() {
        let output = Output::new(false, true);
        let mut troubles = Troubles::new(&output);
        troubles.take(missing("/a"));
        troubles.take(Err::<(), _>(FileError::NoSpace { path: "/b".to_owned(), acknowledged: None }));
        assert!(troubles.is_over() && troubles.count() == 2);
        let end = troubles.failure().expect("one");
        assert!(end.message.starts_with("/b: ") && end.exit == Exit::Retry, "{end:?}");
    }
}
