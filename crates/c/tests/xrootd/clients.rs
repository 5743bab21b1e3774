//! Other clients of the field: XRootD's Python bindings, davix, and `curl` with what the web can ask for.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use forebay::*;

use crate::common::door::{Door, Gate, client, failed_client, good_client};
use crate::common::needs;
use crate::common::world::*;
use crate::{adler32, local, until};

/// The distribution's Python, for which its bindings are.
pub const PYTHON: &str = "/usr/bin/python3";

/// Whether it has XRootD's bindings; says so when not.
pub fn has_bindings() -> bool {
    let is_there = client(PYTHON).args(["-c", "import XRootD"]).output().is_ok_and(|output| output.status.success());
    if !is_there {
        println!("skipped: needs python3-xrootd");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have python3-xrootd");
    }
    is_there
}

#[test]
fn the_python_bindings_read_vectors_pages_and_names() {
    let Some(door) = Door::shared() else { return };
    if !has_bindings() {
        return;
    }
    let world = World::new();
    let gate = door.serve(&world.address(), "");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xrootd/bindings.py");
    let said = client(PYTHON).arg(script).arg(gate.url("")).output().expect("it runs");
    assert_eq!(good_client(&said).trim(), "all is as it should be", "{}", gate.said());
    let known = stat(&world.files(), b"/bindings/file").expect("there");
    assert!(known.is_sealed && known.length == 1_000_003);
}

/// Writes over the beginning of a file that is there, and says what came of it.
const OVERWRITE: &str = "
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
file = client.File()
status, _ = file.open(sys.argv[1], OpenFlags.UPDATE)
assert status.ok, status.message
said = [file.write(b'others', offset=0)[0], file.sync()[0], file.close()[0]]
print([status.message.strip() for status in said if not status.ok])
";

#[test]
fn of_two_writers_one_is_told_and_changes_nothing() {
    let Some(door) = Door::shared() else { return };
    if !has_bindings() {
        return;
    }
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (one, other, files) = (door.serve(&world.address(), ""), door.serve(&world.address(), ""), world.files());
    let bytes = content(5, 20_000_000);
    let mut command = client("xrdcp");
    let mut copy = command.args(["--nopbar", "-", &one.url("/file")]).stdin(Stdio::piped()).spawn().expect("it runs");
    let mut pipe = copy.stdin.take().expect("a pipe");
    pipe.write_all(&bytes[..18_000_000]).expect("taken");
    until(|| stat(&files, b"/file").is_ok_and(|known| known.length > 1_000_000));
    // Not replaced, as nobody says so; and not written to where the first one has.
    let from = local(&here, "from", b"others");
    assert!(failed_client(&other.xrdcp(&[&from, &other.url("/file")])).contains("file exists"));
    let said = client(PYTHON).args(["-c", OVERWRITE, &other.url("/file")]).output().expect("it runs");
    assert!(good_client(&said).contains("text file busy"), "{said:?}, {}", other.said());
    pipe.write_all(&bytes[18_000_000..]).expect("taken");
    drop(pipe);
    assert!(copy.wait().expect("it ends").success(), "{}", one.said());
    assert!(stat(&files, b"/file").expect("there").is_sealed);
    assert!(pread(&open_read(&files, b"/file"), 0, bytes.len() + 1) == bytes);
}

#[test]
fn davix_has_files_directories_and_vectors() {
    let Some(door) = Door::shared() else { return };
    if !needs("davix-get") {
        return;
    }
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (gate, files) = (door.serve(&world.address(), ""), world.files());
    let bytes = content(3, 3_000_001);
    let (from, url) = (local(&here, "from", &bytes), gate.http("/davix/file"));
    let davix = |command: &str, words: &[&str]| client(command).args(words).output().expect("it runs");
    good_client(&davix("davix-mkdir", &[&gate.http("/davix")]));
    good_client(&davix("davix-put", &[&from, &url]));
    assert!(stat(&files, b"/davix/file").expect("there").is_sealed);
    let back = here.path().join("back").to_str().expect("text").to_owned();
    good_client(&davix("davix-get", &[&url, &back]));
    assert!(fs::read(&back).expect("there") == bytes);
    let listed = good_client(&davix("davix-ls", &["-l", &gate.http("/davix/")]));
    assert!(listed.contains("3000001") && listed.contains("file"), "{listed}");
    // It may say that it failed when it did not (0.8.4).
    davix("davix-mv", &[&url, &gate.http("/davix/moved")]);
    assert!(failed_client(&davix("davix-get", &[&url, &back])).contains("404"));
    good_client(&davix("davix-rm", &[&gate.http("/davix/moved")]));
    assert_eq!(stat(&files, b"/davix/moved").err(), Some(FOREBAY_NOT_FOUND));
}

/// A file on the web, and `curl` for it.
struct Web {
    url: String,
    bytes: Vec<u8>,
}

impl Web {
    fn new(gate: &Gate, here: &tempfile::TempDir) -> Web {
        let web = Web { url: gate.http("/web/file"), bytes: content(6, 2_000_000) };
        good_client(&web.curl(&["-T", &local(here, "from", &web.bytes)]));
        web
    }

    fn curl(&self, words: &[&str]) -> std::process::Output {
        client("curl").args(["-sS", "--fail"]).args(words).arg(&self.url).output().expect("it runs")
    }
}

#[test]
fn the_web_gives_ranges_one_or_many() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let gate = door.serve(&world.address(), "");
    let web = Web::new(&gate, &here);
    // With both ends, and not beyond that of the file: what XrdHttp 5.5 makes of others is in docs/xrootd.md.
    for (asked, from, to) in
        [("0-0", 0, 1), ("1000000-1000099", 1_000_000, 1_000_100), ("1999990-1999999", 1_999_990, 2_000_000)]
    {
        let part = web.curl(&["-r", asked]);
        assert!(part.status.success() && part.stdout == web.bytes[from..to], "{asked}");
    }
    let many = web.curl(&["-r", "5-14,1500000-1500009,100-109"]);
    good_client(&many);
    let at = |part: &[u8]| many.stdout.windows(part.len()).position(|window| window == part).expect("a part");
    let (first, second, third) =
        (at(&web.bytes[5..15]), at(&web.bytes[1_500_000..1_500_010]), at(&web.bytes[100..110]));
    assert!(first < second && second < third, "in the order in which they were asked for");
    let said = String::from_utf8_lossy(&many.stdout).to_lowercase();
    assert!(said.contains("content-range: bytes 1500000-1500009/2000000"), "{said}");
}

#[test]
fn the_web_gives_digests_of_what_is_sealed() {
    let Some(door) = Door::shared() else { return };
    let (world, here) = (World::new(), tempfile::tempdir().expect("a directory"));
    let (gate, files) = (door.serve(&world.address(), ""), world.files());
    let web = Web::new(&gate, &here);
    let digest = |wanted: &str| good_client(&web.curl(&["-I", "-H", &format!("Want-Digest: {wanted}")])).to_lowercase();
    assert!(digest("adler32").contains(&format!("digest: adler32={}\r", adler32(&web.bytes))), "{}", digest("adler32"));
    // As the standard has it: its bytes, in base 64.
    let crc32c = forebay_types::crc32c(&web.bytes).to_be_bytes();
    assert!(digest("crc32c").contains(&format!("digest: crc32c={}\r", base64(&crc32c).to_lowercase())));
    // One of a file that is being written is none.
    let writer = create(&files, b"/web/open", 0);
    good(pwrite(&writer, 0, b"some bytes"));
    good(forebay_writer_sync(Some(&writer)));
    let mut command = client("curl");
    let asked = command.args(["-sS", "-I", "-H", "Want-Digest: adler32", &gate.http("/web/open")]).output();
    let said = good_client(&asked.expect("it runs"));
    assert!(!said.to_lowercase().contains("digest:"), "{said}");
}

fn base64(bytes: &[u8; 4]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let all = u64::from(u32::from_be_bytes(*bytes)) << 4;
    (0..6).rev().map(|digit| char::from(DIGITS[(all >> (6 * digit) & 63) as usize])).chain("==".chars()).collect()
}
