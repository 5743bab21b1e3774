//! Mistakes that the engine makes on purpose ([`forebay_types::planted_mistakes`]).

forebay_types::planted_mistakes!(
    /// A flush is acknowledged when all of its shards but one are durable.
    AckBeforeLastShard = "ack-before-last-shard",
    /// A flush is acknowledged before those in front of it in its segment.
    AckOutOfOrder = "ack-out-of-order",
    /// A shard that could not be written counts as written.
    FailedWriteIgnored = "failed-write-ignored",
    /// A shard that could not be written is written once more to the same drive, which stays.
    FailedFlushRetried = "failed-flush-retried",
    /// A header that an earlier segment left in a slot counts for the one that has it now.
    OldHeaderBelieved = "old-header-believed",
    /// Units are not compared with their sums before they are combined.
    UnitsUnchecked = "units-unchecked",
    /// Shards are combined whatever their headers say, those of an earlier segment in the same slots too.
    GenerationsCombined = "generations-combined",
    /// A segment is opened in slots that the durable checkpoint still has for another one.
    SlotReusedEarly = "slot-reused-early",
    /// A checkpoint lacks the newest of the finished events, whose tombstones go with their segments.
    TombstoneForgotten = "tombstone-forgotten",
    /// A checkpoint counts as durable when the first drive has it.
    CheckpointHalf = "checkpoint-half",
    /// A start takes the newest checkpoint that it finds for durable, though a crash may have come when one drive had it.
    CheckpointNotConfirmed = "checkpoint-not-confirmed",
    /// A segment is opened although no durable checkpoint plans it.
    WindowIgnored = "window-ignored",
    /// Recovery does not look at the segments that were planned.
    PlannedNotLookedAt = "planned-not-looked-at",
    /// A start believes the oldest of the superblocks that it finds.
    StaleDriveTrusted = "stale-drive-trusted",
    /// Any drive of a store is enough for writing.
    HalfIsEnough = "half-is-enough",
    /// A torn flush stays as it is.
    TornStays = "torn-stays",
    /// What was torn is dropped.
    TornDropped = "torn-dropped",
    /// Compaction writes events as one record before they are decided.
    UndecidedJoined = "undecided-joined",
    /// Recovery does not heed rejections and deletions.
    RejectionUnheeded = "rejection-unheeded",
    /// A fragment of an event that is over is stored.
    LatePutRevives = "late-put-revives",
    /// A fragment is shown before it is durable.
    DirtyRead = "dirty-read",
    /// Another content for an id is acknowledged and dropped.
    ConflictAcknowledged = "conflict-acknowledged",
    /// An event may be leased again while a filter has it.
    LeaseTwice = "lease-twice",
    /// An event is over when the first of its streams released it.
    ReleasedByOne = "released-by-one",
    /// A stream's number is used before a durable checkpoint names the stream.
    StreamUnnamed = "stream-unnamed",
    /// What was on its way when a drive was lost is not written again.
    LossForgotten = "loss-forgotten",
    /// An id that a lost flush may hold is not found, and nothing more is said.
    LossUnreported = "loss-unreported",
    /// A segment that lost an acknowledged flush is closed over it: the next start knows nothing of the loss.
    LossClosedOver = "loss-closed-over",
    /// Of a segment that misses something the closing flush is not looked for any more, though drives that come back may have it.
    ClosingForgotten = "closing-forgotten",
    /// A scrub has ended before what it found lost is listed.
    LossUnnamed = "loss-unnamed",
    /// An acknowledged flush that is damaged beyond parity is taken for one that was torn and never acknowledged.
    DamageDiscarded = "damage-discarded",
    /// The slots of a segment that cannot be read at all are free.
    UnreadableFreed = "unreadable-freed",
    /// Following the flushes of a segment ends at the first whose headers are gone.
    WalkEndsAtGap = "walk-ends-at-gap",
    /// Of two places of a fragment the newer counts, whether or not its drives answer.
    UnreadablePlaceCounts = "unreadable-place-counts",
    /// A segment is freed while it is read.
    FreedDuringRead = "freed-during-read",
    /// A copy counts before it is durable.
    CopyBeforeDurable = "copy-before-durable",
    /// A copy is given the sum of what was read, whatever sum the original has.
    CopyUnchecked = "copy-unchecked",
    /// A copy of a fragment brings its event back that was deleted meanwhile.
    CopyRevives = "copy-revives",
    /// The slot in which a shard is made anew counts as free meanwhile.
    RebuildIntoFreedSlot = "rebuild-into-freed-slot",
    /// A segment counts as whole when it was made anew in part.
    RebuildHalf = "rebuild-half",
    /// A new place counts before a durable checkpoint lists it, also for what may fail.
    RebuildUnlisted = "rebuild-unlisted",
    /// What a segment lacks that was emptied before its turn stays missing, and room is kept for it.
    EmptiedStillMissing = "emptied-still-missing",
    /// What an earlier checkpoint lists is in doubt while another is written.
    WholeTakenBack = "whole-taken-back",
    /// A drive counts as one that nothing lies on while a checkpoint names segments there that were emptied.
    EmptiedForgotten = "emptied-forgotten",
    /// A drive that is out of use is not read for what it holds itself.
    OwnShardUnread = "own-shard-unread",
    /// Drives that nobody writes to are not looked at.
    IdleUnwatched = "idle-unwatched",
    /// A retry of a put whose first attempt is on its way is acknowledged at once.
    RepeatAcknowledged = "repeat-acknowledged",
    /// Of two records of the same bytes of a file the one that is met later counts, whatever their versions are.
    PieceByArrival = "piece-by-arrival",
    /// A copy of a piece outranks what was written over it since.
    CopyOutranksWrite = "copy-outranks-write",
    /// Somebody is told of an event before its last fragment is durable.
    ToldBeforeDurable = "told-before-durable",
    /// Events that were forgotten before a subscriber looked are not counted.
    DropsUncounted = "drops-uncounted",
    /// A state that says how long a file is waits for nothing that is on its way.
    LengthOvertakes = "length-overtakes",
    /// Before a file becomes longer no holes are written where it was cut.
    HolesLeftOut = "holes-left-out",
    /// What was kept of the sums of a closed file counts for it when it is as long as then, whatever was written since.
    ClosedSumsStale = "closed-sums-stale",
    /// What is appended goes where its writer takes the file to end, whatever others wrote there.
    AppendOverOthers = "append-over-others",
    /// Writers write over what others wrote that have the file open, too.
    ConflictLetThrough = "conflict-let-through",
    /// Rows are encoded when bytes have a place in them, before these are there.
    PlaceEncoded = "place-encoded",
    /// The sums of whole units count for the shorter ones that the end of a flush is cut into.
    UnitSumsStale = "unit-sums-stale",
    /// A sealed file is written to.
    SealedChanges = "sealed-changes",
    /// What is done with a name is answered before it is durable.
    NameAnsweredEarly = "name-answered-early",
    /// A file ends before it is durable that its last name is gone.
    EndedBeforeName = "ended-before-name",
    /// A file that has no name any more ends though somebody has it open.
    UnnamedEndsOpen = "unnamed-ends-open",
    /// Segments are begun to be emptied in a full lane, whether or not all that lives there has a place elsewhere.
    HalfEmptied = "half-emptied",
    /// What a torn end of the log may hold, a start that may not write counts against every file that it knows, too.
    TornHidesFiles = "torn-hides-files",
    /// An append whose place the server chooses is taken each time that it comes.
    AppendTakenTwice = "append-taken-twice",
    /// Fragments of a run are taken after it was closed or discarded.
    ClosedRunTakes = "closed-run-takes",
    /// Releases and deletions free what is held.
    HeldRunFrees = "held-run-frees",
    /// At a start lanes are not told which runs are closed, discarded or held.
    RulesUntold = "rules-untold",
    /// What is done with a run is answered before it is durable.
    RunAnsweredEarly = "run-answered-early",
    /// A start does not go on with what was left of discarded runs.
    DiscardForgotten = "discard-forgotten",
    /// A run number is free again when a start forgot that it was used.
    RunNotKept = "run-not-kept",
);
