//! A store as files: its drives, compressed, and what is in them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use forebay_format::{SUPERBLOCK_BYTES, SUPERBLOCK_STRIDE_BYTES, Superblock};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Server, forebay, scratch};
use crate::content::Content;

const CONTENT: &str = "content.json";

/// How images are served: an event without all of its fragments is soon offered all the same, everything is read from the drives, none of which
/// is judged by its speed.
const CONFIG: &str =
    "[store]\nincomplete-after-ms = 20\ncache-bytes = 0\ndrive-timeout-ms = 60000\nlease-attempts-max = 255\n";

/// A store on drives of its own.
pub struct Image {
    directory: TempDir,
    pub name: String,
    pub paths: Vec<PathBuf>,
    pub content: Content,
}

impl Image {
    /// A place for a store with so many drives.
    pub fn new(name: &str, drives: usize) -> Image {
        Image::with(name.to_owned(), Content::new(drives))
    }

    fn with(name: String, content: Content) -> Image {
        let directory = scratch();
        fs::write(directory.path().join("forebay.toml"), CONFIG).expect("written");
        let paths = content.drives.iter().map(|drive| directory.path().join(drive)).collect();
        Image { directory, name, paths, content }
    }

    /// Where a further drive may be made.
    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// All images of a directory; none when there is no such.
    pub fn unpack_all(directory: &Path) -> Vec<Image> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        paths.iter().map(|path| Image::unpack(path)).collect()
    }

    fn unpack(from: &Path) -> Image {
        let text = fs::read_to_string(from.join(CONTENT)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        let content: Content =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        let name = from.file_name().expect("a name").to_string_lossy().into_owned();
        let image = Image::with(name, content);
        for (drive, path) in image.content.drives.iter().zip(&image.paths) {
            let packed = File::open(from.join(format!("{drive}.gz"))).expect("a drive");
            let mut bytes = Vec::new();
            GzDecoder::new(packed).read_to_end(&mut bytes).expect("all of a drive");
            fs::write(path, bytes).expect("written");
        }
        image
    }

    /// Keeps the image.
    pub fn pack(&self, to: &Path) {
        fs::create_dir_all(to.parent().expect("a directory of the version")).expect("a directory");
        let made = fs::create_dir(to);
        made.unwrap_or_else(|error| {
            panic!("{}: {error}; an image that was released is never made again", to.display())
        });
        for (drive, path) in self.content.drives.iter().zip(&self.paths) {
            let packed = File::create(to.join(format!("{drive}.gz"))).expect("a file");
            let mut packed = GzEncoder::new(packed, Compression::best());
            io::copy(&mut File::open(path).expect("a drive"), &mut packed).expect("written");
            packed.finish().and_then(|mut file| file.flush()).expect("written");
        }
        let text = serde_json::to_string_pretty(&self.content).expect("JSON");
        fs::write(to.join(CONTENT), text + "\n").expect("written");
    }

    pub fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    pub fn serve_read_only(&self) -> Server {
        self.serve_with(&["--read-only"])
    }

    fn serve_with(&self, options: &[&str]) -> Server {
        let config = self.place("forebay.toml").display().to_string();
        let options: Vec<&str> = ["--config", &config].into_iter().chain(options.iter().copied()).collect();
        let started = Server::start_at("127.0.0.1:0", &options, &self.paths);
        let mut server = started.unwrap_or_else(|ran| panic!("{} did not start: {ran:?}", self.name));
        server.collect_log();
        server
    }

    /// What the doctor says of it.
    pub fn examine(&self) -> Value {
        let words = ["doctor", "--json"].map(OsStr::new).into_iter();
        forebay(words.chain(self.paths.iter().map(|path| path.as_os_str()))).expect(0).json()
    }

    /// The newest superblock of the first drive.
    pub fn superblock(&self) -> Superblock {
        let bytes = fs::read(&self.paths[0]).expect("a drive");
        let places = [0, SUPERBLOCK_STRIDE_BYTES as usize];
        let found =
            places.iter().filter_map(|place| Superblock::decode(&bytes[*place..*place + SUPERBLOCK_BYTES]).ok());
        found.max_by_key(|superblock| superblock.generation).expect("a superblock")
    }
}
