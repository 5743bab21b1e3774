//! Mistakes that the names of slots' objects make on purpose ([`forebay_types::planted_mistakes`]).

forebay_types::planted_mistakes!(
    /// Of two objects that hold a part of a slot the older one is read.
    OlderObjectRead = "older-object-read",
    /// What an owner makes has the names that the owner before would have given.
    EpochNotInNames = "epoch-not-in-names",
);
