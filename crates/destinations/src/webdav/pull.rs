//! Third-party copy: a server fetches a file itself (`COPY` with a `Source`), and tells in the body of its answer how far it is, as those of the WLCG do.

use forebay_mover::custody::{Answer, Failure};
use forebay_mover::endpoint::{Fetching, Moved};
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};

use super::client::{Call, Reply};
use super::{WebDestination, method};

/// A line of what is told is no longer; more of it is left out.
const LINE_BYTES_MAX: usize = 4096;
/// Before the number of bytes that arrived.
const ARRIVED: &str = "Stripe Bytes Transferred:";

impl WebDestination {
    pub(super) async fn pulled(&self, fetching: &Fetching<'_>, moved: &dyn Moved) -> Result<Answer, Failure> {
        let source = fetching.door.address_of(fetching.source);
        let path = self.0.base.path_of(fetching.temporary);
        // Who takes files makes the directory above them, and who fetches does not.
        self.make_directory_of(&path).await?;
        let mut headers = vec![
            (HeaderName::from_static("source"), value(&source)?),
            (HeaderName::from_static("overwrite"), HeaderValue::from_static("F")),
            // No proxy of ours is handed on.
            (HeaderName::from_static("credential"), HeaderValue::from_static("none")),
        ];
        if let Some(token) = fetching.door.token()? {
            let mut token = value(&format!("Bearer {token}"))?;
            token.set_sensitive(true);
            headers.push((HeaderName::from_static("transferheaderauthorization"), token));
        }
        let reply = self.0.call(&Call { method: method("COPY"), path: &path, headers: &headers, target: None }).await?;
        match reply.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
                follow(reply, &source, moved).await
            }
            _ => {
                let failure = reply.failure().await;
                Err(Failure::Refused(format!("{} (from {source})", failure.words())))
            }
        }
    }
}

fn value(text: &str) -> Result<HeaderValue, Failure> {
    let refused =
        |_| Failure::Refused(format!("{text:?} cannot be given over HTTP; rename the file, or leave the door out"));
    HeaderValue::from_str(text).map_err(refused)
}

/// Reads what is told until it says how it ended; where it says nothing, what is there is asked for all the same.
async fn follow(mut reply: Reply, source: &str, moved: &dyn Moved) -> Result<Answer, Failure> {
    let (mut lines, mut arrived_bytes) = (Lines::default(), 0);
    while let Some(block) = reply.next_bytes().await? {
        for line in lines.take(&block) {
            if let Some(bytes) = line.strip_prefix(ARRIVED).and_then(|bytes| bytes.trim().parse::<u64>().ok()) {
                let more = bytes.saturating_sub(arrived_bytes);
                arrived_bytes = bytes.max(arrived_bytes);
                if !moved.moved(more) {
                    return Err(Failure::NotNow("the mover ends".to_owned()));
                }
            }
        }
    }
    let last = lines.last();
    match last.get(.."failure".len()).filter(|start| start.eq_ignore_ascii_case("failure")) {
        // Whoever is to blame: it is sent from here then.
        Some(_) => Err(Failure::Refused(reply.told(&format!("it could not fetch {source}: {last}")))),
        None => Ok(Answer::Pulled),
    }
}

/// Text that comes in pieces, by lines.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
    /// The last one that was not empty.
    last: String,
}

impl Lines {
    fn take(&mut self, block: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        for byte in block {
            match byte {
                b'\n' => whole.extend(self.end()),
                _ if self.begun.len() < LINE_BYTES_MAX => self.begun.push(*byte),
                _ => {}
            }
        }
        whole
    }

    fn end(&mut self) -> Option<String> {
        let line = crate::words::plain(&std::mem::take(&mut self.begun)).trim().to_owned();
        if line.is_empty() {
            return None;
        }
        self.last.clone_from(&line);
        Some(line)
    }

    fn last(mut self) -> String {
        self.end().unwrap_or(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces_and_none_is_without_end() {
        let mut lines = Lines::default();
        assert!(lines.take(b"Perf Mar").is_empty());
        assert_eq!(
            lines.take(b"ker\r\n\n  Stripe Bytes Transferred: 7\nsucc"),
            ["Perf Marker", "Stripe Bytes Transferred: 7"]
        );
        assert_eq!(lines.last(), "succ");
        let mut lines = Lines::default();
        lines.take(&vec![b'x'; 10 * LINE_BYTES_MAX]);
        assert_eq!(lines.begun.len(), LINE_BYTES_MAX);
    }
}
