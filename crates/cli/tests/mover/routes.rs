//! `forebay move --config FILE`: routes and destinations in a file.

use crate::common;

use std::fs;
use std::path::PathBuf;

use common::hanging::Hanging;
use common::running::{Running, files_below, until};
use common::{Ran, forebay, noise, scratch};
use rustix::process::Signal;
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(scratch());
        for directory in ["daq", "calibration"] {
            fs::create_dir(place.path(directory)).expect("made");
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the file, in which `$` stands for this place.
    fn configure(&self, text: &str) {
        fs::write(self.path("move.toml"), text.replace('$', &self.0.path().display().to_string())).expect("written");
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let config = self.path("move.toml").display().to_string();
        let all = ["move", "--config", &config].into_iter().chain(more.iter().copied());
        all.map(str::to_owned).collect()
    }

    fn once(&self) -> Ran {
        forebay(self.arguments(&["--once", "--json"]))
    }

    fn holds(&self, name: &str, bytes: &[u8]) -> bool {
        fs::read(self.path(name)).is_ok_and(|there| there == bytes)
    }
}

const TWO_ROUTES: &str = r#"
journal = "$/journal.sqlite"

[destination.archive]
address = "$/archive"

[destination.mirror]
address = "$/mirror"
streams = 1

[route.raw]
from = "$/daq"
to = ["archive"]
optional = ["mirror"]
recheck-after-s = 0.1
remove = true
priority = 5

[route.calibration]
from = "$/calibration"
to = ["mirror"]
recheck-after-s = 0.1
merge = "1MB"
name = "calibration-{sequence}.{extension}"
"#;

#[test]
fn routes_of_a_file_share_destinations() {
    let place = Place::new();
    place.configure(TWO_ROUTES);
    let (raw, small) = (noise(1, 300_000), noise(2, 1000));
    for number in 0..20 {
        fs::write(place.path(&format!("daq/raw{number}")), &raw).expect("written");
        fs::write(place.path(&format!("calibration/small{number}")), &small).expect("written");
    }
    let json = place.once().expect(0).json();
    assert_eq!((&json["found"], &json["left_files"]), (&21.into(), &0.into()), "{json}");
    for number in 0..20 {
        assert!(
            place.holds(&format!("archive/raw{number}"), &raw) && place.holds(&format!("mirror/raw{number}"), &raw)
        );
        assert!(!place.path(&format!("daq/raw{number}")).exists());
        assert!(place.path(&format!("calibration/small{number}.copied")).exists());
    }
    assert!(place.path("mirror/calibration-00001.tar").exists());
    let journal = place.path("journal.sqlite").display().to_string();
    let shown = forebay(["move", "show", "raw3", "--journal", &journal, "--json"]).expect(0).json();
    assert_eq!(shown["files"][0]["file"]["route"], "raw", "{shown}");
}

#[test]
fn what_cannot_be_is_said_with_its_key() {
    let place = Place::new();
    for (was, is, words) in [
        ("priority", "priorty", "unknown field `priorty`"),
        (r#"to = ["archive"]"#, r#"to = ["tape"]"#, "route.raw.to: there is no destination \"tape\""),
        (r#"to = ["archive"]"#, "to = []", "route.raw.to names no destination"),
        (r#"optional = ["mirror"]"#, r#"optional = ["archive"]"#, "name a destination twice"),
        (r#"merge = "1MB""#, "", "route.calibration.merge is missing"),
        (r#"merge = "1MB""#, r#"merge = "big""#, "route.calibration.merge"),
        ("streams = 1", "streams = 0", "destination.mirror.streams = 0 cannot be"),
        ("recheck-after-s = 0.1\nremove", "recheck-after-s = -1.0\nremove", "route.raw.recheck-after-s"),
        ("{sequence}", "x", "two files would have one name"),
        (r#"journal = "$/journal.sqlite""#, "", "it has no journal"),
        (r#"journal = "$/journal.sqlite""#, r#"journal = "$/daq/j""#, "would lie in"),
        (r#"address = "$/mirror""#, r#"address = "$/daq/below""#, "lies in"),
        (r#"from = "$/calibration""#, r#"from = "$/daq""#, "is the same"),
        (r#"address = "$/mirror""#, r#"address = "gopher://host/""#, "its scheme is none of"),
        (r#"address = "$/mirror""#, r#"address = "https://me:secret@host/""#, "a user or a password"),
    ] {
        assert!(TWO_ROUTES.contains(was), "{was}");
        place.configure(&TWO_ROUTES.replacen(was, is, 1));
        let ran = place.once().expect(2);
        ran.says(words);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
        assert!(!place.path("archive").exists() && !place.path("journal.sqlite").exists(), "{is}: something was made");
    }
    place.configure("");
    place.once().expect(2).says("it has no journal");
    place.configure("journal = '$/j'");
    place.once().expect(2).says("it has no route");
    fs::remove_file(place.path("move.toml")).expect("removed");
    place.once().expect(2).says("read the configuration");
}

#[test]
fn a_file_is_read_again_when_it_is_asked_for() {
    let place = Place::new();
    let one = TWO_ROUTES.split("[route.calibration]").next().expect("a part");
    place.configure(&one.replace("recheck-after-s", "settle-s = 0.1\nrecheck-after-s"));
    let stderr = fs::File::create(place.path("log")).expect("made");
    let running = Running::start(place.arguments(&[]), stderr.into());
    fs::write(place.path("daq/a"), b"first").expect("written");
    until(|| place.holds("archive/a", b"first") && !place.path("daq/a").exists());
    // What cannot be is told, and it goes on as before.
    place.configure("nonsense");
    running.signal(Signal::HUP);
    until(|| fs::read_to_string(place.path("log")).expect("read").contains("goes on as before"));
    fs::write(place.path("daq/b"), b"second").expect("written");
    until(|| place.holds("archive/b", b"second") && !place.path("daq/b").exists());
    // What cannot be begun with is told, too.
    fs::write(place.path("file"), b"no directory").expect("written");
    place.configure(&one.replace("$/archive", "$/file"));
    running.signal(Signal::HUP);
    let told = || fs::read_to_string(place.path("log")).expect("read").matches("goes on as before").count();
    until(|| told() == 2);
    place.configure(&TWO_ROUTES.replace("journal.sqlite", "other.sqlite"));
    running.signal(Signal::HUP);
    until(|| told() == 3);
    // Another route.
    place.configure(
        &TWO_ROUTES
            .replace("recheck-after-s", "settle-s = 0.1\nrecheck-after-s")
            .replace("merge =", "merge-wait-s = 0.1\nmerge ="),
    );
    running.signal(Signal::HUP);
    fs::write(place.path("calibration/c"), b"third").expect("written");
    until(|| place.path("mirror/calibration-00001.tar").exists() && !place.path("calibration/c").exists());
    assert_eq!(running.terminate(), Some(0));
    // A route that is gone still has nothing on its way: it may go.
    place.configure(one);
    place.once().expect(0);
}

#[test]
fn a_file_is_read_again_though_something_hangs() {
    let Some(hanging) = Hanging::mount() else { return };
    let place = Place::new();
    let both = TWO_ROUTES
        .replace("$/daq", &hanging.path().display().to_string())
        .replace("recheck-after-s", "settle-s = 0.1\nrecheck-after-s")
        .replace("merge =", "merge-wait-s = 0.1\nmerge =");
    place.configure(both.split("[route.calibration]").next().expect("a part"));
    let stderr = fs::File::create(place.path("log")).expect("made");
    let running = Running::start(place.arguments(&["--stall-after", "1"]), stderr.into());
    let log = || fs::read_to_string(place.path("log")).expect("read");
    until(|| log().contains("nothing happened for 1 s"));
    place.configure(&both);
    fs::write(place.path("calibration/c"), b"bytes").expect("written");
    running.signal(Signal::HUP);
    until(|| !place.path("calibration/c").exists() || log().contains("as before"));
    assert!(place.path("mirror/calibration-00001.tar").exists() && log().contains("was read again"), "{}", log());
    // The other way round: another mover may have what is not moved from any more, as soon as nothing works there.
    place.configure(&both.replace(&hanging.path().display().to_string(), "$/daq"));
    running.signal(Signal::HUP);
    until(|| log().matches("was read again").count() == 2);
    drop(hanging);
    assert_eq!(running.terminate(), Some(0));
}

#[test]
fn two_routes_never_have_one_name_at_a_destination() {
    let place = Place::new();
    let config =
        TWO_ROUTES.replace("priority = 5\n", "merge = \"1MB\"\nname = \"calibration-{sequence}.{extension}\"\n");
    place.configure(
        &config
            .replace(r#"to = ["archive"]"#, r#"to = ["mirror", "archive"]"#)
            .replace("optional = [\"mirror\"]\n", ""),
    );
    for number in 0..5 {
        fs::write(place.path(&format!("daq/raw{number}")), noise(number, 1000)).expect("written");
        fs::write(place.path(&format!("calibration/small{number}")), noise(number + 10, 1000)).expect("written");
    }
    let json = place.once().expect(0).json();
    assert_eq!((&json["found"], &json["left_files"]), (&2.into(), &0.into()), "{json}");
    let there = files_below(&place.path("mirror"));
    assert_eq!(there.len(), 2, "{:?}", there.keys());
    // Unmerged, of one name: the second is not begun before the first is over, and then the name is taken.
    let place = Place::new();
    place.configure(
        &TWO_ROUTES
            .replace(r#"to = ["archive"]"#, r#"to = ["mirror", "archive"]"#)
            .replace("optional = [\"mirror\"]\n", "")
            .replace("merge = \"1MB\"\nname = \"calibration-{sequence}.{extension}\"\n", ""),
    );
    fs::write(place.path("daq/same"), b"of the one").expect("written");
    fs::write(place.path("calibration/same"), b"of the other").expect("written");
    place.once().expect(1).says("another file has its name");
    let there = fs::read(place.path("mirror/same")).expect("it is there");
    assert!(there == b"of the one" || there == b"of the other");
    assert!(
        !place.path("calibration/same.copied").exists() || place.path("daq/same").exists(),
        "one of them is where it was"
    );
}

#[test]
fn a_destination_with_files_on_their_way_cannot_go() {
    let place = Place::new();
    fs::write(place.path("calibration/c"), b"third").expect("written");
    // Whatever it is called, something is in the way: it is quarantined.
    fs::create_dir_all(place.path("mirror/calibration-00001.tar")).expect("made");
    place.configure(TWO_ROUTES);
    place.once().expect(1);
    place.configure(&TWO_ROUTES.replace(r#"optional = ["mirror"]"#, "").replace("$/mirror", "$/other"));
    let ran = place.once().expect(2);
    ran.says("the route does not lead there any more").says("calibration-00001.tar");
    place.configure(TWO_ROUTES.split("[route.calibration]").next().expect("a part"));
    place.once().expect(2).says("by route calibration, which is not one of those");
}
