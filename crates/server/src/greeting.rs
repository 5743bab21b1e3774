//! The first frame of a connection, before it is known which lane it is for. Not a byte behind it is read.

use forebay_protocol::{
    ErrorCode, ErrorReply, FrameError, HEADER_BYTES, Hello, Kind, LANE_CONTROL, Message, PROTOCOL_VERSION,
    decode_header,
};

use crate::connection::check_table;
use crate::limits::GREETING_TABLE_BYTES_MAX;

/// What arrived of a greeting.
pub struct Greeting {
    bytes: Vec<u8>,
    /// How many of these have not arrived.
    wanted: usize,
}

impl Default for Greeting {
    fn default() -> Self {
        Greeting { bytes: vec![0; HEADER_BYTES], wanted: HEADER_BYTES }
    }
}

/// Why a connection is not taken; `request` is 0 when the header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotGreeted {
    /// The request that is answered.
    pub request: u64,
    /// The answer.
    pub error: ErrorReply,
}

impl Greeting {
    /// Where to read the next bytes to; not more than are missing.
    pub fn space(&mut self) -> &mut [u8] {
        let from = self.bytes.len() - self.wanted;
        &mut self.bytes[from..]
    }

    /// That `bytes` of [`Greeting::space`] were read. Gives the greeting and its request when it is whole.
    ///
    /// # Errors
    /// What is answered to something else, before the connection is closed.
    pub fn filled(&mut self, bytes: usize, lanes: u16) -> Result<Option<(Hello, u64)>, NotGreeted> {
        self.wanted -= bytes;
        if self.wanted > 0 {
            return Ok(None);
        }
        let Some((header, table)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = decode_header(header).map_err(|error| of_frame(error.request().unwrap_or(0), &error))?;
        let request = header.request;
        if Kind::from_code(header.kind) != Some(Kind::Hello) {
            let sentence =
                format!("a connection begins with a greeting, not with a frame of kind {:#06x}", header.kind);
            return Err(refused(request, ErrorCode::NotGreeted, sentence));
        }
        let table_bytes = header.table_bytes as usize;
        if table_bytes > GREETING_TABLE_BYTES_MAX || header.payload_bytes > 0 {
            let (bytes, max) = (header.table_bytes.max(header.payload_bytes), GREETING_TABLE_BYTES_MAX);
            return Err(of_frame(request, &FrameError::TooLarge { request, part: "greeting", bytes, max }));
        }
        if table.len() < table_bytes {
            self.wanted = table_bytes;
            self.bytes.resize(HEADER_BYTES + table_bytes, 0);
            return Ok(None);
        }
        let hello = check_table(&header, table).and_then(|()| Hello::read_table(table));
        let hello = hello.map_err(|error| of_frame(request, &error))?;
        check(&hello, lanes).map_err(|error| NotGreeted { request, error })?;
        Ok(Some((hello, request)))
    }
}

fn check(hello: &Hello, lanes: u16) -> Result<(), ErrorReply> {
    if hello.protocol_version != PROTOCOL_VERSION {
        let sentence = format!(
            "the client speaks version {} of the protocol, this server version {PROTOCOL_VERSION}: update the older of the two",
            hello.protocol_version
        );
        return Err(ErrorReply { code: ErrorCode::Version, retryable: false, sentence });
    }
    if hello.lane >= lanes && hello.lane != LANE_CONTROL {
        let sentence = format!("there is no lane {}: this store has lanes 0 to {}", hello.lane, lanes - 1);
        return Err(ErrorReply { code: ErrorCode::WrongLane, retryable: false, sentence });
    }
    Ok(())
}

fn of_frame(request: u64, error: &FrameError) -> NotGreeted {
    NotGreeted { request, error: error.into() }
}

fn refused(request: u64, code: ErrorCode, sentence: String) -> NotGreeted {
    NotGreeted { request, error: ErrorReply { code, retryable: false, sentence } }
}

#[cfg(test)]
mod tests {
    use forebay_protocol::Class;
    use proptest::prelude::*;

    use super::*;

    fn hello(lane: u16, version: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let hello = Hello { protocol_version: version, lane, class: Class::Filter, name: "a filter".to_owned() };
        hello.encode(7, &mut bytes);
        bytes
    }

    /// What comes of it, and how many bytes were taken.
    fn greet(bytes: &[u8], piece: usize) -> (Result<Option<(Hello, u64)>, NotGreeted>, usize) {
        let (mut greeting, mut at) = (Greeting::default(), 0);
        loop {
            let space = greeting.space();
            let taken = space.len().min(piece).min(bytes.len() - at);
            space[..taken].copy_from_slice(&bytes[at..at + taken]);
            at += taken;
            match greeting.filled(taken, 4) {
                Ok(None) if taken > 0 => {}
                result => return (result, at),
            }
        }
    }

    #[test]
    fn a_greeting_is_taken_and_nothing_behind_it() {
        for piece in 1..60 {
            let mut bytes = hello(3, PROTOCOL_VERSION);
            let whole = bytes.len();
            bytes.extend_from_slice(b"the next frame");
            let (result, taken) = greet(&bytes, piece);
            let (hello, request) = result.expect("sound").expect("whole");
            assert_eq!((hello.lane, hello.name.as_str(), request, taken), (3, "a filter", 7, whole));
        }
    }

    #[test]
    fn what_is_no_greeting_is_told_why() {
        let code = |bytes: &[u8]| greet(bytes, 1000).0.expect_err("refused").error.code;
        assert_eq!(code(&hello(4, PROTOCOL_VERSION)), ErrorCode::WrongLane);
        assert_eq!(code(&hello(0, 9)), ErrorCode::Version);
        assert_eq!(code(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), ErrorCode::BadFrame);
        let mut ping = Vec::new();
        forebay_protocol::Ping.encode(1, &mut ping);
        assert_eq!(code(&ping), ErrorCode::NotGreeted);
        let mut damaged = hello(0, PROTOCOL_VERSION);
        damaged[HEADER_BYTES] ^= 1;
        assert_eq!(code(&damaged), ErrorCode::BadFrame);
        let mut large = Vec::new();
        forebay_protocol::encode_frame(Kind::Hello, 0, 1, &vec![0; 5000], &[], &mut large);
        assert_eq!(code(&large), ErrorCode::TooLarge);
        assert!(greet(&hello(LANE_CONTROL, PROTOCOL_VERSION), 1000).0.is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1..50usize) {
            let (result, _) = greet(&bytes, piece);
            prop_assert!(!matches!(result, Ok(Some(_))));
        }
    }
}
