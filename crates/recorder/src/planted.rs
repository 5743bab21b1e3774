//! Mistakes that the recorder makes on purpose ([`forebay_types::planted_mistakes`]).

forebay_types::planted_mistakes!(
    /// A file is announced, and its events released, before its names are durable.
    ReleasedBeforeSynced = "released-before-synced",
    /// A file that does not come back as it was written is announced all the same.
    ReleasedUnread = "released-unread",
    /// A start does not go on with files that were announced and not released.
    AnnouncedForgotten = "announced-forgotten",
);
