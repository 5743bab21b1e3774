//! What servers and sources say, as text for people.

use std::error::Error;

use forebay_mover::custody::SourceAnswer;

/// So much of what a server says is told.
const WORDS_CHARACTERS_MAX: usize = 200;
/// So much of the end of what a program says.
const END_CHARACTERS_MAX: usize = 500;

/// The beginning of a text without control characters, in one line.
pub(crate) fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let spaced = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    let text: String = spaced.collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(WORDS_CHARACTERS_MAX).collect()
}

/// The end of a text without control characters, in one line.
pub(crate) fn plain_end(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let too_many = text.chars().count().saturating_sub(END_CHARACTERS_MAX);
    text.chars().skip(too_many).collect()
}

/// An error and what it came from.
pub(crate) fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        source = error.source();
    }
    text.replace(char::is_control, " ")
}

/// A source that gives other than it has.
pub(crate) fn changed(bytes: u64) -> SourceAnswer {
    SourceAnswer::Changed(format!("it had {bytes} bytes when it was checked, and gave another number when it was sent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_short_and_has_no_control_characters() {
        assert_eq!(plain(b"<h1>\x1b[31mno\r\n room</h1>\0"), "<h1> [31mno room</h1>");
        assert_eq!(plain(&[0xff; 1000]).chars().count(), 200);
    }
}
