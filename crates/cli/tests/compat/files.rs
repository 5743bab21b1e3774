//! The files of a store of a version that has some.

use std::io::Read;

use forebay_client::files::{Detail, FileError, Files, ListedName, Owner, ReadOptions, WriteOptions};
use forebay_types::{FileNumber, crc32c};
use serde::{Deserialize, Serialize};

use crate::common::{Server, noise};

const OWNER: Owner = Owner { mode: 0o755, owner: 1000, group: 100 };
const READ: ReadOptions = ReadOptions { ahead_bytes: 64 << 10 };

/// A file and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredFile {
    pub path: String,
    pub state: FileState,
    pub bytes: u64,
    pub crc32c: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileState {
    /// It may be written on.
    Unsealed,
    Sealed,
    /// It has no name any more, and its bytes are gone.
    Removed,
}

/// The files of a store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoredFiles(Vec<StoredFile>);

pub fn connect(server: &Server) -> Files {
    Files::new(server.client("compat")).expect("random numbers")
}

fn options(seal: bool) -> WriteOptions {
    WriteOptions { owner: OWNER, seal, ..WriteOptions::default() }
}

impl StoredFiles {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Files that are there, those with two names once, and without those of no bytes.
    pub fn lasting(&self) -> usize {
        let is_there = |file: &&StoredFile| file.state != FileState::Removed && file.bytes > 0;
        self.0.iter().filter(is_there).filter(|file| !file.path.ends_with("second name")).count()
    }

    /// Files in every state: of one piece and of several, written over, with zeros inside, cut, grown, empty, renamed, linked and removed.
    pub fn write(&mut self, server: &Server, directory: &str) {
        let files = connect(server);
        files.make_directory(directory, &OWNER).expect("made");
        for (number, bytes) in [0, 1, 700, 5_000, 300].into_iter().enumerate() {
            self.sealed(&files, &format!("{directory}/sealed{number}"), bytes);
        }
        self.rewritten(&files, &format!("{directory}/unsealed"));
        self.cut(&files, &format!("{directory}/cut"));
        files.rename(format!("{directory}/sealed4"), format!("{directory}/renamed"), false).expect("renamed");
        self.named(&format!("{directory}/sealed4")).path = format!("{directory}/renamed");
        files.symlink(b"renamed", format!("{directory}/link"), &OWNER).expect("linked");
        files.link(format!("{directory}/sealed2"), format!("{directory}/second name")).expect("linked");
        let second = StoredFile {
            path: format!("{directory}/second name"),
            ..self.named(&format!("{directory}/sealed2")).clone()
        };
        self.0.push(second);
        self.remove(&files, &format!("{directory}/sealed3"));
    }

    fn sealed(&mut self, files: &Files, path: &str, bytes: usize) {
        let content = noise(u64::from(crc32c(path.as_bytes())), bytes);
        let mut writer = files.create(path, &options(true)).expect("made");
        writer.write(&content).expect("taken");
        writer.close().expect("sealed");
        self.add(path, FileState::Sealed, &content);
    }

    /// Written over itself, and far behind its end.
    fn rewritten(&mut self, files: &Files, path: &str) {
        let mut content = noise(u64::from(crc32c(path.as_bytes())), 3000);
        let mut writer = files.create(path, &options(false)).expect("made");
        writer.write(&content).expect("taken");
        writer.sync().expect("durable");
        for (at, bytes) in [(100, 900), (2990, 20), (9_000, 10)] {
            let part = noise(at as u64, bytes);
            writer.write_at(at as u64, &part).expect("taken");
            writer.sync().expect("durable");
            content.resize(content.len().max(at + bytes), 0);
            content[at..at + bytes].copy_from_slice(&part);
        }
        writer.close().expect("durable");
        self.add(path, FileState::Unsealed, &content);
    }

    /// Cut, and made longer again: what was cut holds zeros.
    fn cut(&mut self, files: &Files, path: &str) {
        let mut content = noise(u64::from(crc32c(path.as_bytes())), 2000);
        let mut writer = files.create(path, &options(false)).expect("made");
        writer.write(&content).expect("taken");
        writer.set_length(700).expect("cut");
        writer.set_length(2600).expect("longer");
        writer.close().expect("durable");
        content.truncate(700);
        content.resize(2600, 0);
        self.add(path, FileState::Unsealed, &content);
    }

    fn remove(&mut self, files: &Files, path: &str) {
        files.remove(path).expect("removed");
        self.named(path).state = FileState::Removed;
    }

    fn add(&mut self, path: &str, state: FileState, content: &[u8]) {
        let (path, bytes, crc32c) = (path.to_owned(), content.len() as u64, crc32c(content));
        self.0.push(StoredFile { path, state, bytes, crc32c });
    }

    fn named(&mut self, path: &str) -> &mut StoredFile {
        self.0.iter_mut().find(|file| file.path == path).expect("it was made")
    }

    /// Everything is there as it was written, under its names, and nothing else is.
    pub fn verify(&self, server: &Server) {
        let files = connect(server);
        for file in &self.0 {
            if file.state == FileState::Removed {
                assert!(matches!(files.lookup(&file.path), Err(FileError::NotFound { .. })), "{file:?}");
                continue;
            }
            let known = files.stat(&file.path).expect("there");
            assert_eq!(
                (known.length(), known.is_sealed()),
                (Some(file.bytes), file.state == FileState::Sealed),
                "{file:?}"
            );
            let sums = known.info.and_then(|info| info.sums);
            assert!(sums.is_none_or(|(crc, _)| crc == file.crc32c), "{file:?}: {sums:?}");
            assert_eq!(known.node.view.attributes.owner, OWNER.owner, "{file:?}");
            let mut content = Vec::new();
            files.open_read(&file.path, &READ).expect("there").read_to_end(&mut content).expect("read");
            assert_eq!((content.len() as u64, crc32c(&content)), (file.bytes, file.crc32c), "{file:?}");
        }
        self.verify_names(&files);
    }

    fn verify_names(&self, files: &Files) {
        let mut directories: Vec<&str> = self.0.iter().filter_map(|file| Some(file.path.rsplit_once('/')?.0)).collect();
        directories.dedup();
        for directory in directories {
            let is_here =
                |file: &&StoredFile| file.path.rsplit_once('/').is_some_and(|(parent, _)| parent == directory);
            let named = self.0.iter().filter(is_here).filter(|file| file.state != FileState::Removed);
            let mut expected: Vec<String> = named.map(|file| file.path[directory.len() + 1..].to_owned()).collect();
            if files.lookup_link(format!("{directory}/link")).is_ok() {
                expected.push("link".to_owned());
                let number = |path: &str| -> FileNumber { files.lookup(path).expect("there").number };
                assert_eq!(number(&format!("{directory}/link")), number(&format!("{directory}/renamed")));
            }
            let listing = files.list(directory, Detail::Names).expect("a directory");
            let name = |listed: Result<ListedName, FileError>| listed.expect("listed").name;
            let mut found: Vec<String> =
                listing.map(|listed| String::from_utf8(name(listed)).expect("UTF-8")).collect();
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{directory}");
        }
    }

    /// More comes, and what is there goes its way.
    pub fn go_on(&mut self, server: &Server, round: u64) {
        self.write(server, &format!("/round{round}"));
        let files = connect(server);
        let is_old = |file: &&StoredFile| !file.path.starts_with("/round");
        if let Some(grows) = self.0.iter().filter(is_old).find(|file| file.state == FileState::Unsealed) {
            let path = grows.path.clone();
            let mut content = Vec::new();
            files.open_read(&path, &READ).expect("there").read_to_end(&mut content).expect("read");
            content.extend(noise(round, 1234));
            let mut writer = files.open_write(&path, &options(round == 2)).expect("not sealed");
            writer.write(&content[content.len() - 1234..]).expect("taken");
            writer.close().expect("durable");
            let file = self.named(&path);
            (file.bytes, file.crc32c) = (content.len() as u64, crc32c(&content));
            file.state = if round == 2 { FileState::Sealed } else { FileState::Unsealed };
        }
        if let Some(gone) = self.0.iter().filter(is_old).find(|file| file.state == FileState::Sealed) {
            let path = gone.path.clone();
            self.remove(&files, &path);
        }
    }
}
