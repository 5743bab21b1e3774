//! Mistakes that the mover makes on purpose ([`forebay_types::planted_mistakes`]).

forebay_types::planted_mistakes!(
    /// A file whose renaming was answered well counts as proven.
    BelievedUnasked = "believed-unasked",
    /// One look is proof enough.
    ProvenAtOneLook = "proven-at-one-look",
    /// A file that is there is taken for ours by its size.
    AdoptedBySize = "adopted-by-size",
    /// A renaming of which nobody knows whether it was done counts as done, and as a proof.
    UnknownTakenForDone = "unknown-taken-for-done",
    /// The second proof is asked for without the wait.
    AskedAgainAtOnce = "asked-again-at-once",
    /// A file that is in the way is set aside, whoever made it.
    ForeignReplaced = "foreign-replaced",
    /// A destination that proved a file once is believed for ever.
    ProofForEver = "proof-for-ever",
    /// A file is let go when its first destination has proven it.
    LetGoByOne = "let-go-by-one",
    /// What a start finds in the source is planned without looking at what the journal plans to send.
    PlannedAnew = "planned-anew",
    /// A start gives the numbers of merged files' names from 1 on again.
    SeriesForgotten = "series-forgotten",
    /// What has its name somewhere already is moved anew without a look whether that is gone.
    WithdrawnUnasked = "withdrawn-unasked",
    /// Two routes give one name to two files at a destination.
    NameGivenTwice = "name-given-twice",
    /// A file takes another name though a destination has it under this one.
    RenamedAnyway = "renamed-anyway",
    /// Events of several runs go into one file.
    RunsMixed = "runs-mixed",
    /// A list of accepted events that was asked for before some of them were let go is believed.
    StaleListBelieved = "stale-list-believed",
    /// An event goes into the file that is open, whichever of its kind it is.
    KindsMixed = "kinds-mixed",
    /// Events of several luminosity blocks go into one file.
    BlocksMixed = "blocks-mixed",
    /// A file goes where the newest definition of its stream says, rather than that of its run.
    NewestDefinition = "newest-definition",
    /// A run is moved with more events than it has.
    RunsUncounted = "runs-uncounted",
    /// A file counts as proven whatever becomes of its sidecar.
    SidecarUnawaited = "sidecar-unawaited",
    /// A file is registered when its first destination has proven it.
    RegisteredEarly = "registered-early",
    /// A registration of which nobody knows counts as done.
    SilenceTakenForRegistered = "silence-taken-for-registered",
    /// A registration that is tried again has another key.
    KeyOfTheAttempt = "key-of-the-attempt",
    /// What is not on tape yet counts as there.
    DiskTakenForTape = "disk-taken-for-tape",
);
