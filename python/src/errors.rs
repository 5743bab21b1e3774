//! Errors of the library as exceptions of `forebay.errors`.

use std::borrow::Cow;

use forebay_client::ClientError;
use forebay_client::files::FileError;
use pyo3::exceptions::{PyImportError, PyValueError};
use pyo3::prelude::*;

/// The name of something in Rust as it is written in texts: `NoSpace` is `no-space`.
pub fn kebab(name: impl std::fmt::Debug) -> String {
    let name = format!("{name:?}");
    let word: Cow<'_, str> = name.split([' ', '{', '(']).next().unwrap_or_default().into();
    let mut kebab = String::with_capacity(word.len() + 4);
    for character in word.chars() {
        if character.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(character.to_ascii_lowercase());
    }
    kebab
}

/// An exception of `forebay.errors`: which one, and its number of the system if it has one, says Python by the code.
fn exception(code: &str, retryable: bool, message: String) -> PyErr {
    Python::attach(|py| {
        let made =
            py.import("forebay.errors").and_then(|module| module.call_method1("_make", (code, retryable, &message)));
        match made {
            Ok(error) => PyErr::from_value(error),
            Err(error) => PyImportError::new_err(format!("{message} (and its exception could not be made: {error})")),
        }
    })
}

/// What was said of a request as a whole.
pub fn of_client(error: ClientError) -> PyErr {
    exception(&code_of_client(&error), error.is_retryable(), error.to_string())
}

fn code_of_client(error: &ClientError) -> String {
    match error {
        ClientError::Read { outcome, .. } => format!("read-{}", kebab(outcome)),
        ClientError::Refused { code, .. } => format!("refused-{}", kebab(code)),
        ClientError::TooLarge { .. } => "fragment-too-large".to_owned(),
        other => kebab(other),
    }
}

/// What was said of a file or a name.
pub fn of_file(error: FileError) -> PyErr {
    match error {
        FileError::Client { path, error } => {
            exception(&code_of_client(&error), error.is_retryable(), format!("{path}: {error}"))
        }
        error => exception(&kebab(&error), error.is_retryable(), error.to_string()),
    }
}

/// A file without the sums that were asked for.
pub fn no_sums(path: &str, is_sealed: bool) -> PyErr {
    if is_sealed {
        let message = format!(
            "{path}: its sums are not known yet: all of it is being read for them; nothing is wrong with it. Ask again"
        );
        exception("sums-unknown", true, message)
    } else {
        let message = format!(
            "{path}: it is not sealed, and has no sums as it may still change; nothing was done. Close its writer, or seal it (`forebay file seal`)"
        );
        exception("not-sealed", false, message)
    }
}

/// A copy that is not what was copied.
pub fn copy_differs(path: &str) -> PyErr {
    let message = format!(
        "{path}: the copy has other sums than what was copied; it was not given its name. Look at the network and at the memory of both machines"
    );
    exception("copy-differs", false, message)
}

/// As Python's own files say it.
pub fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on a closed file or client")
}

/// What was connected before a fork.
pub fn forked() -> PyErr {
    let message = "this was connected by another process, before a fork: both would read from one connection. Nothing was sent. Connect anew in the new process";
    exception("forked", false, message.to_owned())
}

/// What a caller gave cannot be meant.
pub fn value(message: String) -> PyErr {
    PyValueError::new_err(message)
}
