//! Names and small files, by the native client and through a mount, beside ext4 on a loop device on the same tmpfs, and beside other stores that are there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use forebay_client::files::{Detail, Files, Owner, WriteOptions};
use serde_json::{Value, json};

use super::mount::Mount;
use super::peers::{Peer, Place, copied_per_s, peers};
use super::{CACHE_BYTES, DATA, DRIVE_BYTES, LANES, PARITY, connect};
use crate::measure::{measured, median};
use crate::process::{Drives, Server};

const SMALL_BYTES: usize = 4096;
const STATS: usize = 10_000;
/// Programs at once.
const CLIENTS: [usize; 2] = [1, 8];
/// Programs that fill the large directory.
const FILLERS: usize = 16;
const OWNER: Owner = Owner { mode: 0o755, owner: 0, group: 0 };

/// Small files a second, and what is asked of them.
#[derive(Clone, Copy)]
struct Rates {
    create_write_close: f64,
    create: f64,
    stat: f64,
    remove: f64,
}

/// What somebody does with small files in a directory of its own.
trait Worker {
    fn create(&self, name: &str, bytes: &[u8]);
    fn stat(&self, name: &str);
    fn remove(&self, name: &str);
}

struct Native {
    files: Files,
    directory: String,
}

impl Worker for Native {
    fn create(&self, name: &str, bytes: &[u8]) {
        let path = format!("{}/{name}", self.directory);
        let mut file = self.files.create(path, &WriteOptions::default()).expect("made");
        file.write(bytes).expect("taken");
        file.close().expect("durable");
    }

    fn stat(&self, name: &str) {
        self.files.stat(format!("{}/{name}", self.directory)).expect("it is there");
    }

    fn remove(&self, name: &str) {
        self.files.remove(format!("{}/{name}", self.directory)).expect("it was there");
    }
}

/// A directory of the kernel's, in which what was made is durable as well.
struct Local(PathBuf);

impl Worker for Local {
    fn create(&self, name: &str, bytes: &[u8]) {
        let mut file = File::create_new(self.0.join(name)).expect("made");
        file.write_all(bytes).expect("taken");
        file.sync_all().expect("durable");
    }

    fn stat(&self, name: &str) {
        fs::metadata(self.0.join(name)).expect("it is there");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).expect("it was there");
    }
}

/// So many times a second, by all of them together.
fn rate<W: Worker + Send + Sync>(workers: &[W], count: usize, work: impl Fn(&W, usize) + Sync) -> f64 {
    let ((), cost) = measured(|| {
        std::thread::scope(|scope| {
            for worker in workers {
                let work = &work;
                scope.spawn(move || (0..count).for_each(|number| work(worker, number)));
            }
        });
    });
    (workers.len() * count) as f64 / cost.seconds
}

fn rates<W: Worker + Send + Sync>(workers: &[W], count: usize) -> Rates {
    let payload = [7; SMALL_BYTES];
    let create_write_close = rate(workers, count, |worker, number| worker.create(&format!("w{number}"), &payload));
    let create = rate(workers, count, |worker, number| worker.create(&format!("e{number}"), &[]));
    let stat = rate(workers, count, |worker, number| worker.stat(&format!("w{number}")));
    let remove = rate(workers, count, |worker, number| worker.remove(&format!("w{number}")));
    Rates { create_write_close, create, stat, remove }
}

/// An ext4 on a loop device, mounted.
struct Ext4(tempfile::TempDir);

impl Ext4 {
    /// `None`, and why is told, where this user or this machine cannot.
    fn on(directory: &Path) -> Option<Ext4> {
        let at = tempfile::TempDir::new_in(directory).expect("a directory can be made");
        let (image, mounted) = (at.path().join("image"), at.path().join("mounted"));
        File::create(&image).and_then(|file| file.set_len(2 << 30)).expect("there is room");
        fs::create_dir(&mounted).expect("a directory can be made");
        let does = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let stands = does(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && does(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mounted));
        if !stands {
            eprintln!("no ext4 beside it: this needs root, mkfs.ext4 and loop devices");
        }
        stands.then_some(Ext4(at))
    }

    fn directory(&self) -> PathBuf {
        self.0.path().join("mounted")
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.directory()).status();
    }
}

/// What is measured beside Forebay.
struct Beside<'a> {
    /// For files that peers get copies of.
    directory: &'a Path,
    /// Of the same server.
    mount: &'a Mount,
    ext4: Option<&'a Ext4>,
    peers: &'a [Peer],
}

/// A directory for each client.
fn locals(at: &Path, run: &str, clients: usize) -> Vec<Local> {
    let made = |client: usize| {
        let local = Local(at.join(format!("{run}-{client}")));
        fs::create_dir(&local.0).expect("made");
        local
    };
    (0..clients).map(made).collect()
}

fn natives(server: &Server, run: &str, clients: usize) -> Vec<Native> {
    let made = |client: usize| {
        let native = Native { files: connect(server), directory: format!("/{run}-{client}") };
        native.files.make_directory(&native.directory, &OWNER).expect("made");
        native
    };
    (0..clients).map(made).collect()
}

/// Small files of so many clients, in Forebay and beside it, in turn.
fn small_files(server: &Server, beside: &Beside<'_>, clients: usize, rounds: usize, count: usize) -> Value {
    let (mut ours, mut through_mount, mut ext4) = (Vec::new(), Vec::new(), Vec::new());
    let mut mounted: BTreeMap<&str, Vec<Rates>> = BTreeMap::new();
    let mut copied: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        let run = format!("small-{}-{clients}-{round}", std::process::id());
        ours.push(rates(&natives(server, &run, clients), count));
        through_mount.push(rates(&locals(&beside.mount.path(""), &format!("{run}-mount"), clients), count));
        ext4.extend(beside.ext4.map(|ext4| rates(&locals(&ext4.directory(), &run, clients), count)));
        for peer in beside.peers {
            match &peer.place {
                Place::Directory(at) => {
                    let rates = rates(&locals(at, &run, clients), count);
                    mounted.entry(&peer.name).or_default().push(rates);
                }
                Place::Url(url) => {
                    let per_s = copied_per_s(beside.directory, url, &run, clients, count, &[7; SMALL_BYTES]);
                    copied.entry(&peer.name).or_default().push(per_s);
                }
            }
        }
    }
    let ext4 = (!ext4.is_empty()).then(|| told(&ext4));
    let mut result =
        json!({ "clients": clients, "forebay": told(&ours), "forebay_mount": told(&through_mount), "ext4": ext4 });
    for (peer, rounds) in mounted {
        result[peer] = told(&rounds);
    }
    for (peer, rounds) in copied {
        result[peer] = json!({ "create_write_close_4kib_per_s": median(rounds), "is_durable": false });
    }
    eprintln!("{result}");
    result
}

fn told(rounds: &[Rates]) -> Value {
    let of = |of: fn(&Rates) -> f64| median(rounds.iter().map(of).collect());
    json!({
        "create_write_close_4kib_per_s": of(|rates| rates.create_write_close),
        "create_per_s": of(|rates| rates.create),
        "stat_per_s": of(|rates| rates.stat),
        "remove_per_s": of(|rates| rates.remove),
    })
}

/// How long the slowest hundredth of so many looks takes at least, in seconds: of the ones and of the others, in turn.
fn stat_p99<const WAYS: usize>(ways: [&dyn Fn(usize); WAYS]) -> [f64; WAYS] {
    let mut took: [Vec<f64>; WAYS] = std::array::from_fn(|_| Vec::with_capacity(STATS));
    for number in 0..STATS {
        for (stat, took) in ways.iter().zip(&mut took) {
            let begin = Instant::now();
            stat(number);
            took.push(begin.elapsed().as_secs_f64());
        }
    }
    took.map(|mut took| {
        took.sort_by(f64::total_cmp);
        took[STATS - STATS / 100]
    })
}

fn large_directory(server: &Server, mount: &Mount, names: usize) -> Value {
    let files = connect(server);
    files.make_directory("/large", &OWNER).expect("made");
    files.make_directory("/one", &OWNER).expect("made");
    files.create("/one/file", &WriteOptions::default()).and_then(|mut file| file.close()).expect("made");
    std::thread::scope(|scope| {
        for filler in 0..FILLERS {
            scope.spawn(move || {
                let files = connect(server);
                for number in (filler..names).step_by(FILLERS) {
                    let path = format!("/large/{number:08}");
                    files.create(path, &WriteOptions::default()).and_then(|mut file| file.close()).expect("made");
                }
            });
        }
    });
    let list = |detail: Detail| {
        let (found, cost) = measured(|| {
            let mut listing = files.list("/large", detail).expect("it is there");
            let mut found = 0;
            loop {
                match listing.next_page().expect("it is listed").len() {
                    0 => break found,
                    more => found += more,
                }
            }
        });
        assert_eq!(found, names, "each name is listed once");
        cost.seconds
    };
    let (listed, listed_with_sizes) = (list(Detail::Names), list(Detail::Sizes));
    let name_of = |number: usize| format!("/large/{:08}", number * 7919 % names);
    let look = |path: String| assert!(files.stat(path).is_ok(), "it is there");
    let [one, many] = stat_p99([&|_| look("/one/file".to_owned()), &|number| look(name_of(number))]);
    eprintln!(
        "{names} names: listed in {listed:.2} s, with sizes in {listed_with_sizes:.2} s; stat p99 {many:.6} s, of one file {one:.6} s"
    );
    let through_mount = large_directory_through(mount, names, name_of);
    json!({
        "names": names,
        "list_seconds": listed,
        "list_with_sizes_seconds": listed_with_sizes,
        "stat_p99_seconds": many,
        "stat_p99_seconds_one_file": one,
        "stat_p99_ratio": many / one,
        "through_mount": through_mount,
    })
}

/// The same as programs see it that know nothing of the store. Looks are at names that the kernel has not seen.
fn large_directory_through(mount: &Mount, names: usize, name_of: impl Fn(usize) -> String) -> Value {
    let look = |number: usize| assert!(mount.path(&name_of(number)[1..]).exists(), "{} is there", name_of(number));
    let [many] = stat_p99([&look]);
    let list = |with_sizes: bool| {
        let (found, cost) = measured(|| {
            let entries = fs::read_dir(mount.path("large")).expect("it is there").map(|entry| entry.expect("an entry"));
            entries.filter(|entry| !with_sizes || entry.metadata().is_ok()).count()
        });
        assert_eq!(found, names, "each name is listed once");
        cost.seconds
    };
    let (listed, listed_with_sizes) = (list(false), list(true));
    eprintln!(
        "through the mount: listed in {listed:.2} s, with sizes in {listed_with_sizes:.2} s; stat p99 {many:.6} s"
    );
    json!({ "list_seconds": listed, "list_with_sizes_seconds": listed_with_sizes, "stat_p99_seconds": many })
}

/// A directory of `large` names, and `count` small files by each of some clients.
pub fn names(directory: &Path, rounds: usize, large: usize, count: usize) -> Value {
    let drives = Drives::of_width(directory, (DATA, PARITY), DRIVE_BYTES, LANES);
    let server = drives.serve(CACHE_BYTES);
    let (ext4, peers) = (Ext4::on(directory), peers());
    let shown = "shown";
    connect(&server)
        .create(format!("/{shown}"), &WriteOptions::default())
        .and_then(|mut file| file.close())
        .expect("made");
    let mount = Mount::of(&server, shown);
    let beside = Beside { directory, mount: &mount, ext4: ext4.as_ref(), peers: &peers };
    let small = CLIENTS.into_iter().map(|clients| small_files(&server, &beside, clients, rounds, count));
    let clients: Vec<Value> = small.collect();
    let large = large_directory(&server, &mount, large);
    json!({ "benchmark": "names", "width": format!("{DATA}+{PARITY}"), "rounds": rounds, "small_files": clients, "large_directory": large })
}
