//! What goes wrong with XRootD, and what that means for a delivery.

use forebay_mover::custody::Failure;

/// Words of others are told up to so many characters.
const WORDS_MAX: usize = 500;

// Error codes of the protocol (XProtocol.hh).
const INVALID_ARGUMENT: u32 = 3000;
const TOO_LONG: u32 = 3002;
const FILE_SYSTEM: u32 = 3005;
const NO_SPACE: u32 = 3009;
const NOT_AUTHORIZED: u32 = 3010;
const NOT_FOUND: u32 = 3011;
const SERVER_ERROR: u32 = 3012;
const UNSUPPORTED: u32 = 3013;
const NOT_FILE: u32 = 3015;
const IS_DIRECTORY: u32 = 3016;
const EXISTS: u32 = 3018;
const NO_CHECKSUM: u32 = 3019;
const OVER_QUOTA: u32 = 3021;
const READ_ONLY: u32 = 3025;
const TLS_REQUIRED: u32 = 3028;
const TIMED_OUT: [u32; 2] = [3034, 3035];

/// Words of the client when nobody knows what the server did.
const CUT_OFF: [&str; 7] = [
    "Socket timeout",
    "Socket error",
    "Socket disconnected",
    "Stream disconnect",
    "Operation expired",
    "Operation interrupted",
    "Invalid session",
];

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server says no.
    Server {
        /// The code of the protocol.
        code: u32,
        /// Its words.
        words: String,
    },
    /// The client does: no connection, no answer, no sense in it.
    Client(String),
    /// The client did not end in time, and was ended.
    Hung,
    /// Nobody waits for it any more.
    Stopped,
}

impl Trouble {
    /// From what the client's programs write when they fail: `[ERROR] Server responded with an error: [3011] ...`, `[FATAL] Connection error`.
    pub(super) fn parse(text: &str) -> Trouble {
        // The names of files have no line ends: what a line begins with is the client's.
        let code = text.lines().find_map(|line| {
            let line = line.strip_prefix("Run: ").unwrap_or(line);
            let rest = line.strip_prefix("[ERROR] ").or_else(|| line.strip_prefix("[FATAL] "))?;
            let (code, _) = rest.strip_prefix("Server responded with an error: [")?.split_once(']')?;
            code.parse().ok()
        });
        let words = plain(text);
        match code {
            Some(code) => Trouble::Server { code, words },
            None => Trouble::Client(words),
        }
    }

    /// An answer in which no sense can be seen.
    pub(super) fn senseless(wanted: &str, told: &str) -> Trouble {
        Trouble::Client(format!("the server was asked for {wanted} and told {:?}", plain(told)))
    }

    /// The server knows that nothing has the path.
    pub(super) fn is_not_found(&self) -> bool {
        // A redirector says so, too, of a file whose server is away.
        matches!(self, Trouble::Server { code: NOT_FOUND, words } if !words.contains("No servers are available"))
    }

    /// The server does not compute such a checksum.
    pub(super) fn is_unsupported(&self) -> bool {
        match self {
            Trouble::Server { code, words } => {
                *code == UNSUPPORTED || (*code == SERVER_ERROR && words.contains("checksum not supported"))
            }
            _ => false,
        }
    }

    /// The server came to no checksum, or told none in time; the file may be right all the same. A stock server forgets jobs whose clients went away
    /// only after a quarter of an hour, and computes nothing meanwhile (5.5.3).
    pub(super) fn is_no_checksum(&self) -> bool {
        match self {
            // A program that ends with 1 is told of as a lack of rights.
            Trouble::Server { code, words } => {
                matches!(*code, FILE_SYSTEM | SERVER_ERROR | NO_CHECKSUM) || words.contains("Program failed")
            }
            Trouble::Client(words) => words.contains("Operation expired"),
            Trouble::Hung => true,
            Trouble::Stopped => false,
        }
    }

    /// What was said of it, alone.
    pub(super) fn words(&self) -> &str {
        match self {
            Trouble::Server { words, .. } | Trouble::Client(words) => words,
            Trouble::Hung => "no answer in time",
            Trouble::Stopped => "the mover ends, or waits no longer",
        }
    }

    /// What it means for a delivery: what was to be done, why not, what to do now.
    pub(super) fn failure(&self, what: &str) -> Failure {
        match self {
            Trouble::Server { code, words } => {
                let is_refused = is_refused(*code, words);
                let words = format!("{what}: {words}{}", advice(*code));
                match is_refused {
                    true => Failure::Refused(words),
                    false if TIMED_OUT.contains(code) => Failure::Unknown(words),
                    false => Failure::NotNow(words),
                }
            }
            Trouble::Client(words) if words.contains("file exists") => {
                Failure::Refused(format!("{what}: {words}. Move what is there away, then retry"))
            }
            Trouble::Client(words) if CUT_OFF.iter().any(|cut| words.contains(cut)) => {
                Failure::Unknown(format!("{what}: {words}"))
            }
            Trouble::Client(words) => Failure::NotNow(format!("{what}: {words}{}", client_advice(words))),
            Trouble::Hung => Failure::Unknown(format!("{what}: {}", self.words())),
            Trouble::Stopped => Failure::NotNow(format!("{what}: {}", self.words())),
        }
    }
}

/// Whether the server will not, until somebody changes something.
fn is_refused(code: u32, words: &str) -> bool {
    match code {
        INVALID_ARGUMENT | TOO_LONG | NOT_AUTHORIZED | UNSUPPORTED | NOT_FILE | IS_DIRECTORY | EXISTS | READ_ONLY
        | TLS_REQUIRED => true,
        FILE_SYSTEM => {
            ["not a directory", "is a directory", "directory not empty", "too many levels of symbolic links"]
                .iter()
                .any(|of_the_path| words.contains(of_the_path))
        }
        _ => false,
    }
}

/// What somebody can do about what a server says.
fn advice(code: u32) -> &'static str {
    match code {
        NOT_AUTHORIZED => ". Let this user write there (its token, proxy or host), then retry",
        NO_SPACE | OVER_QUOTA => ". Make room there; it goes on by itself then",
        IS_DIRECTORY | NOT_FILE | EXISTS | FILE_SYSTEM => ". Move what is in the way away, then retry",
        READ_ONLY => ". Let it be written there, then retry",
        TOO_LONG | INVALID_ARGUMENT => ". Rename the file at the source",
        TLS_REQUIRED => ". Give roots:// as the address",
        _ => "",
    }
}

/// What somebody can do about what the client says.
fn client_advice(words: &str) -> &'static str {
    if words.contains("Auth failed") || words.contains("Login failed") {
        ". The server does not know who asks: renew the token or the proxy; it goes on by itself then"
    } else if words.contains("Invalid address") {
        ". No host has this name: see that it is right"
    } else if words.contains("Connection error") {
        ". No server answers there: see that it runs, and that the port is right"
    } else if words.contains("TLS error") {
        ". See that the server has TLS, and a certificate that is known here (X509_CERT_DIR)"
    } else {
        ""
    }
}

/// Words of others on one line, without what a terminal would act on.
fn plain(text: &str) -> String {
    let of_a_line = |line| str::trim_matches(line, |character: char| character.is_whitespace() || character == '\0');
    let lines: Vec<&str> = text.lines().map(of_a_line).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ");
    let line = line.trim_end_matches('.');
    let cut = line.chars().count() > WORDS_MAX;
    let words = line.chars().take(WORDS_MAX);
    let words: String = words.map(|character| if character.is_control() { '\u{FFFD}' } else { character }).collect();
    if cut { format!("{words}...") } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> Failure {
        Trouble::parse(text).failure("write /a")
    }

    #[test]
    fn what_servers_and_clients_say_is_told_apart() {
        let server = |code: u32, words: &str| {
            failure(&format!("Run: [ERROR] Server responded with an error: [{code}] Unable to create /a; {words}\n\n"))
        };
        for (code, words) in [
            (3010, "permission denied"),
            (3005, "not a directory"),
            (3016, "is a directory"),
            (3025, "read-only file system"),
            (3002, "file name too long"),
            (3018, "file exists"),
        ] {
            let Failure::Refused(told) = server(code, words) else { panic!("{code}") };
            assert!(told.starts_with("write /a: ") && told.contains(words), "{told}");
        }
        for code in [3005, 3007, 3008, 3009, 3012, 3014, 3021, 3024, 3999] {
            assert!(matches!(server(code, "something"), Failure::NotNow(_)), "{code}");
        }
        assert!(matches!(server(3034, "timed out"), Failure::Unknown(_)));
        for words in
            ["[FATAL] Connection error", "[FATAL] Invalid address", "[FATAL] Auth failed", "", "killed", "[3010]"]
        {
            assert!(matches!(failure(words), Failure::NotNow(_)), "{words}");
        }
        for words in ["Run: [FATAL] Socket timeout:  (destination)", "[ERROR] Operation expired"] {
            assert!(matches!(failure(words), Failure::Unknown(_)), "{words}");
        }
    }

    #[test]
    fn that_no_checksum_comes_is_told_from_that_nobody_answers() {
        let of_a_program = "[ERROR] Server responded with an error: [3010] Program failed.\0";
        for words in [of_a_program, "[ERROR] Operation expired"] {
            assert!(Trouble::parse(words).is_no_checksum(), "{words}");
        }
        for words in ["[FATAL] Connection error", "[ERROR] Server responded with an error: [3011] No such file"] {
            assert!(!Trouble::parse(words).is_no_checksum(), "{words}");
        }
        assert!(Trouble::Hung.is_no_checksum() && !Trouble::Stopped.is_no_checksum());
    }

    #[test]
    fn a_name_with_the_words_of_an_error_is_none() {
        let named = "[ERROR] Server responded with an error: [3010] Unable to locate /a[3011]; permission denied";
        assert!(!Trouble::parse(named).is_not_found());
        assert!(Trouble::parse(&named.replace("3010", "3011")).is_not_found());
        let in_the_name = "rm /[ERROR] Server responded with an error: [3011] : [ERROR] Error response";
        assert!(!Trouble::parse(in_the_name).is_not_found());
        let away = "[ERROR] Server responded with an error: [3011] No servers are available to read the file.";
        assert!(!Trouble::parse(away).is_not_found());
    }

    #[test]
    fn words_of_others_are_bounded_and_plain() {
        let words = format!("\u{1b}[2J\u{7}{}", "x".repeat(10_000));
        let told = failure(&words).words().to_owned();
        assert!(told.chars().count() < 600 && !told.chars().any(char::is_control), "{told:?}");
    }
}
