//! Who has which file of a lane open, and which files end when nobody has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_engine::{Planted, planted};
use forebay_protocol::{Changer, Opener};
use forebay_types::{FileNumber, FileOutcome, Time};

use crate::limits::{APPENDS_REMEMBERED_MAX, OPENING_KEPT, OPENINGS_MAX};

/// A file as one client has it open.
struct Opening {
    number: u32,
    write: bool,
    /// The smallest change that its client still waits for.
    waits_from: u64,
    /// The connection by which it was heard of last; an error: that is gone, and since when.
    connection: Result<u64, Time>,
    /// What became of appends whose place the server chose, by the numbers of these changes, while its client may still wait for them.
    appends: BTreeMap<u64, Append>,
}

/// What became of an append whose place the server chose: it may come once more, and must not be done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Append {
    /// It is not durable yet.
    OnItsWay,
    /// Its answer, and where its bytes begin.
    Answered(FileOutcome, u64),
}

/// Why a file was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// The client has opened it again since.
    Stale,
    /// More than are kept.
    TooMany,
}

/// Someone does not have a file open any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) file: FileNumber,
    pub(crate) client: u64,
    /// For writing.
    pub(crate) write: bool,
}

/// The open files of a lane.
#[derive(Default)]
pub(crate) struct Openings {
    files: BTreeMap<FileNumber, BTreeMap<u64, Opening>>,
    openings: usize,
    by_connection: BTreeMap<u64, BTreeSet<(FileNumber, u64)>>,
    /// Openings whose connection is gone, by when that was.
    left: BTreeSet<(Time, FileNumber, u64)>,
    /// Files that have no name any more, and that somebody has open.
    unnamed: BTreeSet<FileNumber>,
    /// Those that nobody has open.
    to_end: VecDeque<FileNumber>,
}

impl Openings {
    /// Files that clients have open, each counted for each client.
    pub(crate) fn len(&self) -> usize {
        self.openings
    }

    /// A client opens a file; whether it had it open for writing by an earlier opening, which ends.
    pub(crate) fn open(
        &mut self,
        file: FileNumber,
        by: Opener,
        write: bool,
        connection: u64,
    ) -> Result<Option<Closed>, NotOpened> {
        let known = self.files.get(&file).and_then(|openers| openers.get(&by.client));
        if known.is_some_and(|known| known.number > by.opening) {
            return Err(NotOpened::Stale);
        }
        if known.is_none() && self.openings >= OPENINGS_MAX {
            return Err(NotOpened::TooMany);
        }
        // The same opening that comes twice is a repeated request.
        let is_repeated = known.is_some_and(|known| known.number == by.opening && known.write == write);
        let before = if is_repeated { None } else { self.remove(file, by.client) };
        if is_repeated {
            self.attach(file, by.client, connection);
            return Ok(None);
        }
        let opening =
            Opening { number: by.opening, write, waits_from: 0, connection: Ok(connection), appends: BTreeMap::new() };
        self.files.entry(file).or_default().insert(by.client, opening);
        self.openings += 1;
        self.by_connection.entry(connection).or_default().insert((file, by.client));
        Ok(before)
    }

    /// Whether a client has a file open for writing, by this very opening, and waits for this change. It was heard of by this connection.
    pub(crate) fn takes_change(&mut self, file: FileNumber, by: Changer, connection: u64) -> bool {
        let known = self.files.get_mut(&file).and_then(|openers| openers.get_mut(&by.opener.client));
        let Some(known) = known.filter(|known| known.number == by.opener.opening && known.write) else {
            return false;
        };
        if by.waits_from > known.waits_from {
            known.waits_from = by.waits_from;
            known.appends = known.appends.split_off(&by.waits_from);
        }
        let is_waited_for = by.change >= known.waits_from;
        if known.connection != Ok(connection) {
            self.attach(file, by.opener.client, connection);
        }
        is_waited_for
    }

    /// What became of an append that came before.
    pub(crate) fn append(&self, file: FileNumber, by: Changer) -> Option<Append> {
        self.files.get(&file)?.get(&by.opener.client)?.appends.get(&by.change).copied()
    }

    /// Remembers what became of an append. Of more than are kept the first is forgotten, and not taken again.
    pub(crate) fn remember_append(&mut self, file: FileNumber, by: Changer, what: Append) {
        let known = self.files.get_mut(&file).and_then(|openers| openers.get_mut(&by.opener.client));
        let Some(known) = known.filter(|known| known.number == by.opener.opening) else { return };
        if by.change < known.waits_from || planted(Planted::AppendTakenTwice) {
            return;
        }
        known.appends.insert(by.change, what);
        if known.appends.len() > APPENDS_REMEMBERED_MAX
            && let Some((first, _)) = known.appends.pop_first()
        {
            known.waits_from = known.waits_from.max(first + 1);
        }
    }

    fn attach(&mut self, file: FileNumber, client: u64, connection: u64) {
        let Some(known) = self.files.get_mut(&file).and_then(|openers| openers.get_mut(&client)) else { return };
        let before = std::mem::replace(&mut known.connection, Ok(connection));
        self.detach(before, file, client);
        self.by_connection.entry(connection).or_default().insert((file, client));
    }

    /// Forgets by which connection an opening was heard of.
    fn detach(&mut self, connection: Result<u64, Time>, file: FileNumber, client: u64) {
        match connection {
            Ok(connection) => {
                if let Some(of) = self.by_connection.get_mut(&connection) {
                    of.remove(&(file, client));
                    if of.is_empty() {
                        self.by_connection.remove(&connection);
                    }
                }
            }
            Err(since) => drop(self.left.remove(&(since, file, client))),
        }
    }

    fn remove(&mut self, file: FileNumber, client: u64) -> Option<Closed> {
        let openers = self.files.get_mut(&file)?;
        let opening = openers.remove(&client)?;
        if openers.is_empty() {
            self.files.remove(&file);
            if self.unnamed.remove(&file) {
                self.to_end.push_back(file);
            }
        }
        self.openings -= 1;
        self.detach(opening.connection, file, client);
        Some(Closed { file, client, write: opening.write })
    }

    /// A client is done with a file. Nothing happens under an opening that is not its newest.
    pub(crate) fn close(&mut self, file: FileNumber, by: Opener) -> Option<Closed> {
        let known = self.files.get(&file)?.get(&by.client)?;
        if known.number == by.opening { self.remove(file, by.client) } else { None }
    }

    /// A connection is gone: what was open by it stays open for a while, so that its client may come back.
    pub(crate) fn connection_is_gone(&mut self, connection: u64, now: Time) {
        for (file, client) in self.by_connection.remove(&connection).unwrap_or_default() {
            if let Some(opening) = self.files.get_mut(&file).and_then(|openers| openers.get_mut(&client)) {
                opening.connection = Err(now);
                self.left.insert((now, file, client));
            }
        }
    }

    /// Whoever did not come back is taken for dead.
    pub(crate) fn next_expired(&mut self, now: Time) -> Option<Closed> {
        let (since, file, client) = *self.left.first()?;
        if now >= since + OPENING_KEPT { self.remove(file, client) } else { None }
    }

    /// Whether somebody has a file open for writing.
    pub(crate) fn is_written(&self, file: FileNumber) -> bool {
        self.files.get(&file).is_some_and(|openers| openers.values().any(|opening| opening.write))
    }

    /// A file has no name any more: it ends when nobody has it open.
    pub(crate) fn is_unnamed(&mut self, file: FileNumber) {
        if self.keeps(file) {
            self.unnamed.insert(file);
        } else {
            self.to_end.push_back(file);
        }
    }

    /// Whether somebody has a file open, for which it stays.
    fn keeps(&self, file: FileNumber) -> bool {
        self.files.contains_key(&file) && !planted(Planted::UnnamedEndsOpen)
    }

    /// The next file that is to end.
    pub(crate) fn next_to_end(&mut self) -> Option<FileNumber> {
        while let Some(file) = self.to_end.pop_front() {
            if !self.keeps(file) {
                return Some(file);
            }
            // Opened since by somebody who had looked its name up before.
            self.unnamed.insert(file);
        }
        None
    }

    /// It could not be ended now.
    pub(crate) fn end_later(&mut self, file: FileNumber) {
        self.to_end.push_front(file);
    }

    /// When the next client is taken for dead that did not come back.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.left.first().map(|(since, ..)| *since + OPENING_KEPT)
    }

    /// Whether files wait to be ended.
    pub(crate) fn has_to_end(&self) -> bool {
        !self.to_end.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FILE: FileNumber = FileNumber(7);

    fn by(client: u64, opening: u32) -> Opener {
        Opener { client, opening }
    }

    fn change(client: u64, opening: u32) -> Changer {
        Changer { opener: by(client, opening), change: 1, waits_from: 1 }
    }

    #[test]
    fn the_newest_opening_counts() {
        let mut openings = Openings::default();
        assert_eq!(openings.open(FILE, by(1, 5), true, 10), Ok(None));
        assert_eq!(openings.open(FILE, by(1, 4), true, 10), Err(NotOpened::Stale));
        assert!(openings.takes_change(FILE, change(1, 5), 10) && !openings.takes_change(FILE, change(1, 4), 10));
        assert_eq!(openings.open(FILE, by(1, 6), false, 11), Ok(Some(Closed { file: FILE, client: 1, write: true })));
        assert!(!openings.is_written(FILE) && !openings.takes_change(FILE, change(1, 6), 11));
        assert_eq!(openings.close(FILE, by(1, 5)), None, "an old request changes nothing");
        assert!(openings.close(FILE, by(1, 6)).is_some());
        assert_eq!((openings.openings, openings.by_connection.len()), (0, 0));
    }

    #[test]
    fn what_its_client_waits_for_no_more_is_not_done() {
        let mut openings = Openings::default();
        openings.open(FILE, by(1, 1), true, 10).expect("opened");
        let mut takes = |change, waits_from| {
            let by = Changer { opener: by(1, 1), change, waits_from };
            openings.takes_change(FILE, by, 10)
        };
        assert!(takes(1, 1) && takes(3, 1) && takes(2, 1), "in any order");
        assert!(takes(2, 1), "a copy of what may not have been answered");
        assert!(takes(4, 3));
        assert!(!takes(2, 1) && takes(3, 1) && !takes(1, 1));
        assert!(!takes(5, 6), "a client waits for what it asks");
        // The changes of another opening are others.
        openings.open(FILE, by(1, 2), true, 10).expect("opened");
        assert!(openings.takes_change(FILE, change(1, 2), 10));
    }

    #[test]
    fn what_became_of_appends_is_known_while_their_client_may_wait_for_them() {
        let mut openings = Openings::default();
        let append = |opening, change, waits_from| Changer { opener: by(1, opening), change, waits_from };
        openings.remember_append(FILE, append(1, 1, 1), Append::OnItsWay);
        assert_eq!(openings.append(FILE, append(1, 1, 1)), None, "nobody has it open");
        openings.open(FILE, by(1, 1), true, 10).expect("opened");
        openings.remember_append(FILE, append(1, 1, 1), Append::OnItsWay);
        openings.remember_append(FILE, append(1, 1, 1), Append::Answered(FileOutcome::Done, 100));
        openings.remember_append(FILE, append(1, 2, 1), Append::Answered(FileOutcome::NoSpace, 0));
        assert_eq!(openings.append(FILE, append(1, 1, 1)), Some(Append::Answered(FileOutcome::Done, 100)));
        // The client says that it waits for the first no more.
        assert!(openings.takes_change(FILE, append(1, 3, 2), 10) && !openings.takes_change(FILE, append(1, 1, 1), 10));
        assert_eq!(openings.append(FILE, append(1, 1, 1)), None);
        assert_eq!(openings.append(FILE, append(1, 2, 2)), Some(Append::Answered(FileOutcome::NoSpace, 0)));
        // An answer that comes too late makes nothing known again.
        openings.remember_append(FILE, append(1, 1, 1), Append::Answered(FileOutcome::Done, 100));
        assert_eq!(openings.append(FILE, append(1, 1, 1)), None);
        // Of many the first are forgotten, and are not taken either.
        for change in 3..3 + APPENDS_REMEMBERED_MAX as u64 {
            assert!(openings.takes_change(FILE, append(1, 2, 2), 10));
            openings.remember_append(FILE, append(1, change, 2), Append::OnItsWay);
        }
        assert!(!openings.takes_change(FILE, append(1, 2, 2), 10) && openings.takes_change(FILE, append(1, 3, 2), 10));
        assert_eq!(openings.append(FILE, append(1, 3, 2)), Some(Append::OnItsWay));
        // Those of another opening are others.
        openings.open(FILE, by(1, 2), true, 10).expect("opened");
        assert_eq!(openings.append(FILE, append(2, 3, 2)), None);
        openings.remember_append(FILE, append(1, 3, 2), Append::Answered(FileOutcome::Done, 5));
        assert_eq!(openings.append(FILE, append(2, 3, 2)), None);
    }

    #[test]
    fn who_comes_back_in_time_goes_on() {
        let mut openings = Openings::default();
        let at = |seconds| Time::default() + Duration::from_secs(seconds);
        for client in [1, 2] {
            openings.open(FILE, by(client, 1), true, 10).expect("opened");
        }
        openings.connection_is_gone(10, at(100));
        assert!(openings.takes_change(FILE, change(1, 1), 12));
        assert_eq!(openings.next_expired(at(100)), None);
        let closed = openings.next_expired(at(100) + OPENING_KEPT);
        assert_eq!(closed, Some(Closed { file: FILE, client: 2, write: true }));
        assert_eq!(openings.next_expired(at(100_000)), None);
        openings.connection_is_gone(12, at(200));
        // The same opening again is the same opening.
        assert_eq!(openings.open(FILE, by(1, 1), true, 13), Ok(None));
        assert_eq!((openings.next_expired(at(100_000)), openings.left.len(), openings.openings), (None, 0, 1));
    }

    #[test]
    fn what_has_no_name_ends_when_nobody_has_it_open() {
        let mut openings = Openings::default();
        openings.open(FILE, by(1, 1), false, 10).expect("opened");
        openings.is_unnamed(FILE);
        assert_eq!(openings.next_to_end(), None);
        openings.open(FILE, by(2, 1), false, 10).expect("opened, though its name is gone");
        openings.close(FILE, by(1, 1));
        assert_eq!(openings.next_to_end(), None);
        openings.close(FILE, by(2, 1));
        // Opened again before the end was asked for.
        openings.open(FILE, by(3, 1), false, 10).expect("opened");
        assert_eq!(openings.next_to_end(), None);
        openings.close(FILE, by(3, 1));
        assert_eq!(openings.next_to_end(), Some(FILE));
        assert!(!openings.has_to_end());
    }
}
