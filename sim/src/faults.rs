//! What can go wrong: each kind with its own switch and its own count.

use std::fmt;
use std::str::FromStr;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault { $($(#[$doc])* $name,)+ }

        impl Fault {
            /// All of them.
            pub const ALL: &[Fault] = &[$(Fault::$name),+];
        }

        impl fmt::Display for Fault {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Fault::$name => $text,)+ })
            }
        }
    };
}

faults!(
    /// The process ends at any moment; writes on their way are torn in any way.
    Crash = "crash",
    /// The same while a start is under way.
    CrashInRecovery = "crash in recovery",
    /// Of a write on its way at a crash some blocks are there.
    TornWrite = "torn write",
    /// A write fails and nothing of it is on the drive, which takes the next ones.
    FailedWrite = "write that fails",
    /// A write is said to be done and nothing of it is on the drive.
    LostWrite = "lost write",
    /// A write is said to be done and lies somewhere else.
    MisplacedWrite = "misplaced write",
    /// A read gives the bytes of another place.
    MisplacedRead = "misplaced read",
    /// Blocks cannot be read.
    LatentError = "latent error",
    /// Bytes change by themselves.
    BitRot = "bit rot",
    /// A read ends too early.
    ShortRead = "short read",
    /// An operation never comes back, or long after its drive was given up.
    Hang = "operation that hangs",
    /// An operation takes much longer than others, on any drive.
    LateOperation = "operation that is late",
    /// Checkpoints take much longer than what lies in slots.
    SlowCheckpoints = "slow checkpoints",
    /// A drive takes longer than others.
    SlowDrive = "slow drive",
    /// A drive fails everything from now on.
    DriveDies = "drive that dies",
    /// A drive is away at a start, and comes back at a later one as it was.
    DriveReturns = "drive that comes back stale",
    /// At a start there is an empty drive in a drive's place.
    EmptyDrive = "empty drive in its place",
    /// An operator puts a new drive in for one that is out, or that he takes out of use.
    Replaced = "drive replaced",
    /// An operator takes a drive out of use, and nothing is put in for it.
    Retired = "drive taken out of use",
    /// An operator takes a sound drive out of use beside those with which something may be wrong: with them more than parity makes up for, but it is
    /// read.
    SoundRetired = "sound drive taken out of use",
    /// An operator gives a drive up that answers.
    GivenUp = "drive given up",
    /// At a start there is a drive of another store.
    ForeignDrive = "drive of another store",
    /// At a start there is a copy of a drive.
    Clone = "copy of a drive",
    /// A start with half of the drives.
    TooFewDrives = "start with half of the drives",
    /// A connection ends at any byte.
    Cut = "connection cut",
    /// A message, and what follows on its connection, comes long after it was sent.
    LateMessage = "message delayed",
    /// A message does not arrive; what follows on its connection does.
    LostMessage = "message lost",
    /// A message arrives once more, soon or long afterwards.
    RepeatedMessage = "message duplicated",
    /// A message arrives after others that were sent later.
    OvertakenMessage = "message reordered",
    /// A client closes its connection and goes on without an answer; what it sent arrives afterwards.
    LateRequest = "request that lands after its writer gave up",
    /// The clock of the server jumps forward, and its calendar forward or back.
    ClockJump = "clock jump",
    /// No space is left.
    FullStore = "full store",
    /// A writer puts other content under an id.
    OtherContent = "other content for an id",
    /// A filter falls silent with events.
    SilentFilter = "filter that falls silent",
    /// The process that records dies at any step and starts again.
    RecorderDies = "recorder that dies",
    /// And the power goes with it: where it records, some of what was not let go yet is gone.
    DestinationLoses = "destination that loses files",
    /// A file does not come back as it was written.
    DestinationRots = "file that comes back wrong",
    /// A stop in order.
    Stop = "stop in order",
    /// What lies in a segment is read, slowly, while all of it is deleted and its slots are wanted.
    EmptiedDuringRead = "segment emptied during a read",
    /// Blocks rot on more drives than parity makes up for; this and the next two in the second mode alone.
    RotBeyond = "bit rot beyond parity",
    /// More drives than parity makes up for are overwritten, in part or whole.
    OverwrittenBeyond = "drives overwritten beyond parity",
    /// More drives than parity makes up for are gone.
    LostBeyond = "drives lost beyond parity",
    /// Drives without which a store was started, more than parity makes up for, are there again at a later start.
    BackBeyond = "drives lost beyond parity that come back",
    /// Of what is read to where it is stored not all comes, and its connection ends.
    HalfPlaced = "piece that is half there",
    /// A cluster answers nothing for a while; this and the next three where a store stands on one.
    PoolBlocks = "pool that blocks",
    /// Others fill the pool.
    PoolFull = "pool that others fill",
    /// The cluster refuses everything of the owner, which ends.
    Fenced = "owner that is fenced",
    /// What a fenced owner had begun happens when there is another.
    LateOfFenced = "operation that lands after its owner was fenced",
);

impl Fault {
    /// Those of stores that stand on a cluster.
    pub(crate) fn is_of_pools(self) -> bool {
        matches!(self, Fault::PoolBlocks | Fault::PoolFull | Fault::Fenced | Fault::LateOfFenced)
    }

    /// Those that a seed knows by its number, and draws nothing for.
    pub(crate) fn is_of_numbers(self) -> bool {
        self.is_of_pools() || self == Fault::HalfPlaced
    }

    /// Its name in one word.
    pub fn option(self) -> String {
        self.to_string().replace(' ', "-")
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Fault, String> {
        let known = Fault::ALL.iter().copied().find(|fault| fault.option() == name);
        known.ok_or_else(|| format!("there is no fault {name}; the output of a run lists all"))
    }
}

/// How often each kind happened, and how often it was met: the store came upon what it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCounts {
    fired: Vec<u64>,
    met: Vec<u64>,
}

impl Default for FaultCounts {
    fn default() -> Self {
        FaultCounts { fired: vec![0; Fault::ALL.len()], met: vec![0; Fault::ALL.len()] }
    }
}

impl FaultCounts {
    pub(crate) fn fire(&mut self, fault: Fault) {
        self.fired[fault as usize] += 1;
    }

    pub(crate) fn meet(&mut self, fault: Fault) {
        self.met[fault as usize] += 1;
    }

    /// One that is met by happening.
    pub(crate) fn fire_and_meet(&mut self, fault: Fault) {
        self.fire(fault);
        self.meet(fault);
    }

    /// How often it happened.
    pub fn fired(&self, fault: Fault) -> u64 {
        self.fired[fault as usize]
    }

    /// How often the store came upon it.
    pub fn met(&self, fault: Fault) -> u64 {
        self.met[fault as usize]
    }

    /// Kinds that never happened, or were never met.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::ALL.iter().copied().filter(|fault| self.fired(*fault) == 0 || self.met(*fault) == 0).collect()
    }

    /// With the counts of an earlier run.
    pub fn set(&mut self, fault: Fault, fired: u64, met: u64) {
        (self.fired[fault as usize], self.met[fault as usize]) = (fired, met);
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &FaultCounts) {
        self.fired.iter_mut().zip(&other.fired).for_each(|(sum, more)| *sum += more);
        self.met.iter_mut().zip(&other.met).for_each(|(sum, more)| *sum += more);
    }
}
