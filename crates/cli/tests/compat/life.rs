//! The lives of the stores that become images: together they bring everything to the drives that a store may hold.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use forebay_types::{EventKey, SourceId};

use crate::common::{Server, forebay};
use crate::content::acknowledged;
use crate::image::Image;

/// The life of a store.
pub struct Life {
    name: &'static str,
    options: &'static [&'static str],
    drives: usize,
    live: fn(&mut Image),
}

/// Of one more drive than a segment has shards, and of as many; of several lanes, and of one; killed, and stopped in order.
pub const LIVES: &[Life] = &[
    Life { name: "4+1-killed", options: &["--data", "4", "--parity", "1", "--lanes", "2"], drives: 6, live: killed },
    Life { name: "2+1-stopped", options: &["--data", "2", "--parity", "1", "--lanes", "1"], drives: 3, live: stopped },
    Life { name: "2+1-emptied", options: &["--data", "2", "--parity", "1", "--lanes", "1"], drives: 3, live: emptied },
];

/// As small as they may be: what is kept is mostly zeros.
const SMALL: &[&str] = &["--slot-bytes", "256KiB", "--unit-bytes", "4096", "--drive-bytes", "6MiB"];

/// Together more than half of a lane of three such drives, mostly of zeros, which take no room in what is kept.
const FILLERS: u64 = 250;
const FILLER_BYTES: usize = 20_000;
/// They are of a run of their own.
const FILLERS_RUN: u32 = 99;

impl Life {
    /// Lives it.
    pub fn live(&self) -> Image {
        let mut image = Image::new(self.name, self.drives);
        let words = ["init"].iter().chain(self.options).chain(SMALL).map(OsStr::new);
        forebay(words.chain(image.paths.iter().map(|path| path.as_os_str()))).expect(0);
        (self.live)(&mut image);
        // As good as whole: a drive that was lost is missing.
        let verdict = image.examine()["verdict"].as_str().expect("a word").to_owned();
        assert!(matches!(verdict.as_str(), "whole" | "repairable"), "{verdict}");
        image.content.verdict = verdict;
        image
    }
}

/// Events of both lanes, in every state.
fn first_events(image: &mut Image, server: &Server, run: u32) {
    let (client, content) = (&mut server.client("compat"), &mut image.content);
    for event in (0..8).chain(128..134) {
        content.put(client, EventKey::new(run, event), 3, &[40, 500, 100 + event as usize]);
    }
    content.put(client, EventKey::new(run, 8), 3, &[500, 500]);
    content.put(client, EventKey::new(run, 9), 3, &[500]);
    content.put(client, EventKey::new(run, 134), 0, &[500, 0]);
    acknowledged(client);
    content.reject(client, EventKey::new(run, 0));
    content.reject(client, EventKey::new(run, 128));
    content.delete(client, EventKey::new(run, 1));
    for event in [2, 3, 4, 129] {
        content.accept(client, EventKey::new(run, event), &["physics"]);
    }
    content.accept(client, EventKey::new(run, 5), &["physics", "calibration"]);
    content.accept(client, EventKey::new(run, 130), &["physics", "calibration"]);
    content.accept(client, EventKey::new(run, 8), &["calibration"]);
    content.release(client, EventKey::new(run, 2), "physics");
    content.release(client, EventKey::new(run, 5), "physics");
    content.release(client, EventKey::new(run, 130), "calibration");
}

/// What comes later in a life: a fragment over several rows, and a stream that nobody had named.
fn later_events(image: &mut Image, server: &Server, run: u32) {
    let (client, content) = (&mut server.client("compat"), &mut image.content);
    content.put(client, EventKey::new(run, 0), 2, &[20_000, 7]);
    for event in (1..4).chain(128..130) {
        content.put(client, EventKey::new(run, event), 1, &[if event == 1 { 4096 } else { 200 }]);
    }
    acknowledged(client);
    content.accept(client, EventKey::new(run, 1), &["late"]);
    content.accept(client, EventKey::new(run, 128), &["late", "physics"]);
    content.release(client, EventKey::new(run, 128), "physics");
    content.reject(client, EventKey::new(run, 2));
}

fn drive(server: &Server, words: &[&str]) {
    server.run(&[&["drive"], words].concat()).expect(0);
}

/// Waits until what lay on a lost drive lies elsewhere.
fn wait_until_whole(server: &Server) {
    loop {
        if server.run(&["drive", "list", "--json"]).expect(0).json()["whole"] == true {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// It is killed twice, and a drive fails whose shards are made anew in slots of the others.
fn killed(image: &mut Image) {
    let server = image.serve();
    first_events(image, &server, 1);
    image.content.files.write(&server, "/before");
    server.kill();
    let server = image.serve();
    first_events(image, &server, 2);
    image.content.files.write(&server, "/between");
    drive(&server, &["fail", "2"]);
    wait_until_whole(&server);
    later_events(image, &server, 7);
    server.kill();
    leave_behind(image, 2);
}

/// A drive fails and another one takes its place; after one more kill it ends in order.
fn stopped(image: &mut Image) {
    let server = image.serve();
    first_events(image, &server, 3);
    drive(&server, &["fail", "1"]);
    // While it is away, at a smaller width.
    later_events(image, &server, 4);
    image.content.files.write(&server, "/narrow");
    let new = image.place("drive3");
    drive(&server, &["replace", "1", path(&new)]);
    wait_until_whole(&server);
    leave_behind(image, 1);
    image.content.drives.push("drive3".to_owned());
    image.paths.push(new);
    server.kill();
    let server = image.serve();
    // The last run there is: the one behind it is kept for files.
    first_events(image, &server, 0xFFFF_FFFE);
    image.content.files.write(&server, "/last");
    server.terminate().expect(0).says("marked clean");
    image.content.clean = true;
}

/// Room is made: accepted events become one record each, what is undecided is copied, and it is killed in the middle of that.
fn emptied(image: &mut Image) {
    let server = image.serve();
    first_events(image, &server, 5);
    image.content.files.write(&server, "/moved");
    fill_and_delete(image, &server);
    let joined = || server.status()["lanes"][0]["compaction"]["events_joined"].as_u64();
    while joined().expect("a count") < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    later_events(image, &server, 6);
    server.kill();
}

/// Takes most of the room and gives nine tenths of that back, by events that nobody misses later.
fn fill_and_delete(image: &mut Image, server: &Server) {
    let (client, content) = (&mut server.client("compat"), &mut image.content);
    let mut fillers = Vec::new();
    for event in 0..FILLERS {
        let key = EventKey::new(FILLERS_RUN, event);
        if event % 10 == 0 {
            content.put(client, key, 2, &[300, 200]);
        } else {
            client.put(key.fragment(SourceId(0)), 1, &[0; FILLER_BYTES]).expect("taken");
            fillers.push(key);
        }
    }
    acknowledged(client);
    for event in (0..FILLERS).step_by(20) {
        content.accept(client, EventKey::new(FILLERS_RUN, event), &["physics"]);
    }
    for batch in fillers.chunks(64) {
        assert!(client.delete(batch).expect("answered").iter().all(|outcome| outcome.is_done()));
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A drive that was lost does not come back.
fn leave_behind(image: &mut Image, drive: usize) {
    image.content.drives.remove(drive);
    std::fs::remove_file(image.paths.remove(drive)).expect("removed");
}
