//! The tables of the journal.

/// Written to `user_version`: a journal of another version is refused.
pub(super) const VERSION: i64 = 6;

/// In `application_id`: "FBMV".
pub(super) const APPLICATION: i64 = 0x4642_4D56;

pub(super) const TABLES: &str = "
CREATE TABLE about (
    token INTEGER NOT NULL              -- in every temporary name of this journal
) STRICT;
CREATE TABLE places (                   -- directories that were moved from or to
    path TEXT PRIMARY KEY,
    mark INTEGER NOT NULL               -- by which each is known again: crates/mover/src/local/mark.rs
) STRICT, WITHOUT ROWID;
CREATE TABLE consignments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never given twice
    route TEXT NOT NULL,
    name TEXT NOT NULL,                 -- at every destination
    series TEXT,                        -- the names of which that is one
    series_number INTEGER,              -- its number there
    form TEXT NOT NULL,                 -- how its parts become one file
    zstd INTEGER,                       -- the level at which that is compressed
    settings INTEGER NOT NULL,          -- stands for those of its route that decide about its bytes
    priority INTEGER NOT NULL,          -- added to that of its route
    stage TEXT NOT NULL,
    held INTEGER NOT NULL DEFAULT 0,
    let_go INTEGER NOT NULL DEFAULT 0,  -- a person answers for its release
    bytes INTEGER,                      -- what its bytes come to, once they were checked
    adler32 INTEGER,
    crc32c INTEGER,
    about TEXT,                         -- what else its check found, as JSON
    registered INTEGER NOT NULL DEFAULT 0,
    refusals INTEGER NOT NULL DEFAULT 0, -- how often its registration was refused
    words TEXT NOT NULL DEFAULT '',
    is_over INTEGER NOT NULL DEFAULT 0  -- nothing is left to be done
) STRICT;
CREATE INDEX consignments_at_work ON consignments (id) WHERE is_over = 0;
CREATE INDEX consignments_by_name ON consignments (name);
CREATE TABLE parts (
    consignment INTEGER NOT NULL REFERENCES consignments (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    name TEXT NOT NULL,                 -- below the source
    bytes INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL,
    PRIMARY KEY (consignment, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (                   -- what a file of accepted events is made of
    consignment INTEGER PRIMARY KEY REFERENCES consignments (id) ON DELETE CASCADE,
    store BLOB NOT NULL,                -- the UUID of the store that they come from, 16 bytes
    stream TEXT NOT NULL,
    run INTEGER NOT NULL,
    kind TEXT NOT NULL,
    numbered INTEGER NOT NULL,          -- whether their bytes hold their numbers
    sources TEXT NOT NULL,              -- what of each event is taken
    wanted TEXT,                        -- what each becomes, where that was said
    block INTEGER,                      -- their luminosity block
    sequence INTEGER NOT NULL,          -- which file of its series
    event_bytes INTEGER NOT NULL,
    events INTEGER NOT NULL,            -- how many
    first INTEGER NOT NULL,             -- the smallest
    last INTEGER NOT NULL,              -- the largest
    list BLOB NOT NULL,                 -- which: crates/mover/src/events/list.rs
    incomplete BLOB NOT NULL            -- those of them that lack fragments
) STRICT;
CREATE INDEX events_by_run ON events (run);
CREATE TABLE series (                   -- names of merged files that differ in a number alone
    route TEXT NOT NULL,
    series TEXT NOT NULL,
    next INTEGER NOT NULL,              -- the first number that none has
    PRIMARY KEY (route, series)
) STRICT, WITHOUT ROWID;
CREATE TABLE deliveries (
    consignment INTEGER NOT NULL REFERENCES consignments (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    destination TEXT NOT NULL,
    what TEXT NOT NULL,                 -- the file, or its sidecar
    required INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'found',
    attempts INTEGER NOT NULL DEFAULT 0,
    strikes INTEGER NOT NULL DEFAULT 0,
    ours INTEGER NOT NULL DEFAULT 0,    -- whether the file of the final name was put there by us
    partial INTEGER,                    -- the attempt whose temporary name may have bytes
    left_over TEXT NOT NULL DEFAULT '', -- attempts whose temporary names are to be removed, with spaces between
    words TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (consignment, place)
) STRICT, WITHOUT ROWID;
CREATE TABLE transitions (              -- what became of each, in order; the audit log is made of it
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    unix_ms INTEGER NOT NULL,
    consignment INTEGER NOT NULL REFERENCES consignments (id) ON DELETE CASCADE,
    destination TEXT,
    sidecar INTEGER NOT NULL,           -- whether it is of that, and not of the file
    before TEXT,
    after TEXT NOT NULL,
    words TEXT NOT NULL
) STRICT;
CREATE INDEX transitions_of ON transitions (consignment);
CREATE TABLE requests (                 -- what people ask for; the mover takes it up within a second, or when it starts
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    consignment INTEGER NOT NULL REFERENCES consignments (id) ON DELETE CASCADE,
    action TEXT NOT NULL CHECK (action IN ('retry', 'hold', 'go-on', 'release')),
    reason TEXT NOT NULL
) STRICT;
";
