//! The numbers of kinds, classes, errors and states. None is ever given another meaning.

use std::fmt;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $repr:ty { $($(#[$vdoc:meta])* $variant:ident = $code:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr($repr)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)+ }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The number on the wire.
            pub const fn code(self) -> $repr {
                self as $repr
            }

            /// The one with this number on the wire.
            pub const fn from_code(code: $repr) -> Option<Self> {
                match code {
                    $($code => Some($name::$variant),)+
                    _ => None,
                }
            }

            /// Its name, as `docs/protocol.md` writes it.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

numbered!(
    /// What a frame is. The highest bit tells replies from requests.
    Kind: u16 {
        /// The greeting of the client, the first frame of a connection.
        Hello = 0x0001;
        /// Store fragments.
        Put = 0x0002;
        /// Read fragments.
        Get = 0x0003;
        /// Read events.
        GetEvent = 0x0004;
        /// Drop events.
        Delete = 0x0005;
        /// Reject or accept events.
        Decide = 0x0006;
        /// A stream has safely taken events elsewhere.
        Release = 0x0007;
        /// Ask for undecided events.
        Lease = 0x0008;
        /// List accepted events of a stream.
        Accepted = 0x0009;
        /// List streams.
        Streams = 0x000A;
        /// List runs.
        Runs = 0x000B;
        /// Ask for the state of the server.
        Status = 0x000C;
        /// Ask for a sign of life.
        Ping = 0x000D;
        /// Make a drive fail (servers started for tests alone).
        InjectFault = 0x000E;
        /// Take a drive out of the store, or put one in.
        ChangeDrive = 0x000F;
        /// Look at all that is stored, and mend it.
        Scrub = 0x0010;
        /// Ask for all that is known of an event.
        Trace = 0x0011;
        /// List what is known to be lost.
        Losses = 0x0012;
        /// Open a file.
        FileOpen = 0x0013;
        /// Close it.
        FileClose = 0x0014;
        /// Write bytes of a file.
        FileWrite = 0x0015;
        /// Change the length of a file, or when it was written.
        FileSet = 0x0016;
        /// Seal a file.
        FileSeal = 0x0017;
        /// Read bytes of a file.
        FileRead = 0x0018;
        /// Ask what is known of files.
        FileStat = 0x0019;
        /// Ask what a name stands for.
        NameLookup = 0x001A;
        /// List a directory.
        NameList = 0x001B;
        /// Make, remove or rename something, or change its attributes.
        ChangeName = 0x001C;
        /// Ask what happened to events.
        Subscribe = 0x001D;
        /// Declare, start, stop, close, hold or discard a run.
        ChangeRun = 0x001E;
        /// List runs that were declared.
        RunList = 0x001F;
        /// Define a stream.
        DefineStream = 0x0020;
        /// List definitions of streams.
        StreamList = 0x0021;
        /// Answers Hello.
        HelloReply = 0x8001;
        /// Answers Put.
        PutReply = 0x8002;
        /// Answers Get, one or more.
        GetReply = 0x8003;
        /// Answers GetEvent, one or more.
        GetEventReply = 0x8004;
        /// Answers Delete, Decide and Release.
        DecideReply = 0x8005;
        /// Answers Lease.
        LeaseReply = 0x8008;
        /// Answers Accepted.
        AcceptedReply = 0x8009;
        /// Answers Streams.
        StreamsReply = 0x800A;
        /// Answers Runs, one or more.
        RunsReply = 0x800B;
        /// Answers Status, Trace, Losses, ChangeRun, RunList, DefineStream and StreamList.
        StatusReply = 0x800C;
        /// Answers Ping, InjectFault, ChangeDrive and Scrub.
        Done = 0x800D;
        /// Answers FileOpen, FileClose, FileWrite, FileSet and FileSeal.
        FileReply = 0x8013;
        /// Answers FileRead.
        FileReadReply = 0x8018;
        /// Answers FileStat.
        FileStatReply = 0x8019;
        /// Answers NameLookup and ChangeName.
        NodeReply = 0x801A;
        /// Answers NameList.
        ListReply = 0x801B;
        /// Answers Subscribe.
        SubscribeReply = 0x801D;
        /// Answers any request that could not be served as a whole; request 0 when it answers none.
        Error = 0xFFFF;
    }
);

impl Kind {
    /// Whether a server sends it.
    pub const fn is_reply(self) -> bool {
        self.code() & 0x8000 != 0
    }
}

numbered!(
    /// What a client is for. The first come first when a server has too much to do.
    Class: u8 {
        /// Writes fragments.
        Readout = 1;
        /// Reads and decides events.
        Filter = 2;
        /// Ships accepted events.
        Mover = 3;
        /// Looks.
        Monitor = 4;
    }
);

numbered!(
    /// Why a request was not served.
    ErrorCode: u16 {
        /// The frame or its table cannot be read. Not retryable: the same bytes fail again.
        BadFrame = 1;
        /// The server knows no such kind of frame (an older server).
        UnknownKind = 2;
        /// The request names an event or a file of another lane than that of the connection, or asks for names elsewhere than on lane 0.
        WrongLane = 3;
        /// More bytes or records than this server takes in one request.
        TooLarge = 4;
        /// The server is starting or has stopped serving for now. Retryable.
        NotServing = 5;
        /// The store was started read-only.
        ReadOnly = 6;
        /// The server does not do this (no such lane, no such stream, not a test server).
        Refused = 7;
        /// The server is going away. Retryable, after a reconnect.
        ShuttingDown = 8;
        /// No common version of the protocol.
        Version = 9;
        /// Nothing but a greeting may come first, and a greeting comes but once.
        NotGreeted = 10;
        /// The server has too much to do at the moment. Retryable.
        Overloaded = 11;
        /// An error inside the server; its log says more.
        Internal = 12;
    }
);

numbered!(
    /// How far an event is.
    EventState: u8 {
        /// Not known here.
        Unknown = 0;
        /// Waits for a decision.
        Undecided = 1;
        /// A filter has it.
        Leased = 2;
        /// Accepted, and not released by all of its streams.
        Accepted = 3;
        /// Rejected, deleted, or released by all of its streams.
        Finished = 4;
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind.code()), Some(*kind));
        }
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
        }
        assert_eq!(Kind::from_code(0), None);
        assert_eq!(Class::from_code(0), None);
        assert!(Kind::Error.is_reply() && Kind::Done.is_reply() && !Kind::InjectFault.is_reply());
    }
}
