//! The library as programs find it: installed, found by pkg-config and by CMake, with the examples compiled and run against a server.

mod common;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use common::installed::{Installed, ROOT, run};
use common::needs;
use common::world::*;
use forebay::*;

/// Events of two fragments, of which every other one is large.
fn put_events(world: &World, count: u64) {
    let client = world.client();
    for (event, source) in (0..count).flat_map(|event| [(event, 1), (event, 2)]) {
        let bytes = content(event, if event % 2 == 0 { 2000 } else { 100 });
        let id = forebay_fragment_id { run: 3, source, event };
        // SAFETY: the bytes are there.
        good(unsafe { forebay_client_put(Some(&client), id, 2, bytes.as_ptr().cast(), bytes.len()) });
    }
    good(forebay_client_flush(Some(&client)));
}

#[test]
fn the_examples_do_what_they_say_by_pkg_config() {
    if !["cc", "c++", "pkg-config"].into_iter().all(needs) {
        return;
    }
    let (installed, world) = (Installed::new(), World::new());
    let address = world.address();

    let put_get = installed.compile("cc", "c11", "put_get.c");
    let told = installed.start(&put_get, &[&address]);
    assert!(told.contains("3 fragments are durable") && told.contains("those that were put"), "{told}");

    let (local, back) = (installed.place().join("local"), installed.place().join("back"));
    let bytes = content(11, 5_000_000);
    std::fs::write(&local, &bytes).expect("written");
    let copy = installed.compile("c++", "c++17", "copy.cpp");
    let words = [address.as_ref(), local.as_os_str(), OsStr::new("/raw.dat"), back.as_os_str()];
    let told = installed.start(&copy, &words);
    let sum = format!("/raw.dat: 5000000 bytes, crc32c {:08x}", forebay_types::crc32c(&bytes));
    assert!(told.contains(&sum) && told.contains("what came back is what went in"), "{told}");
    assert!(std::fs::read(&back).expect("it is there") == bytes);
    let files = world.files();
    assert!(stat(&files, b"/raw.dat").is_ok_and(|stat| stat.is_sealed));
    // What has the name is not replaced, and nothing is left beside it.
    let again = Command::new(&copy)
        .env("LD_LIBRARY_PATH", installed.prefix().join("lib"))
        .args(words)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(
        again.status.code() == Some(1) && said.contains("FOREBAY_EXISTS") && said.contains("the name is taken"),
        "{said}"
    );
    assert_eq!(stat(&files, b"/raw.dat.part").err(), Some(FOREBAY_NOT_FOUND));

    put_events(&world, 100);
    let events = installed.compile("c++", "c++17", "events.cpp");
    assert!(installed.start(&events, &[address.as_str(), "100"]).contains("100 events decided, 50 accepted"));

    let runs = installed.compile("c++", "c++17", "runs.cpp");
    let told = installed.start(&runs, &[address.as_str(), "1920"]);
    assert!(told.contains(r#""state":"closed""#) && told.contains(r#""expected_events":10"#), "{told}");
}

#[test]
fn a_program_that_is_killed_while_it_writes_leaves_no_wrong_file() {
    if !["c++", "pkg-config", "mkfifo"].into_iter().all(needs) {
        return;
    }
    let (installed, world) = (Installed::new(), World::new());
    let (files, pipe) = (world.files(), installed.place().join("pipe"));
    run(Command::new("mkfifo").arg(&pipe));
    let mut command = Command::new(installed.compile("c++", "c++17", "copy.cpp"));
    command.env("LD_LIBRARY_PATH", installed.prefix().join("lib"));
    command.args([world.address().as_ref(), pipe.as_os_str(), OsStr::new("/raw.dat"), OsStr::new("back")]);
    let mut program = command.spawn().expect("it runs");
    let mut source = std::fs::OpenOptions::new().write(true).open(&pipe).expect("it reads");
    let bytes = content(12, 6_000_000);
    source.write_all(&bytes).expect("it reads");
    let acknowledged = loop {
        match stat(&files, b"/raw.dat.part") {
            Ok(known) if known.length > 0 => break known.length,
            _ => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    };
    program.kill().expect("ours to end");
    program.wait().expect("it ends");
    assert_eq!(stat(&files, b"/raw.dat").err(), Some(FOREBAY_NOT_FOUND));
    assert!(!stat(&files, b"/raw.dat.part").expect("there").is_sealed);
    let read = pread(&open_read(&files, b"/raw.dat.part"), 0, bytes.len());
    assert!(read.len() as u64 >= acknowledged && bytes.starts_with(&read), "what was acknowledged is there");
    good(remove(&files, b"/raw.dat.part"));
}

#[test]
fn a_program_with_the_library_in_it_needs_no_library() {
    if !needs("cc") {
        return;
    }
    let (installed, world) = (Installed::new(), World::new());
    let program = installed.place().join("static");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-I"]).arg(installed.prefix().join("include")).arg("-o").arg(&program);
    command.arg(Path::new(ROOT).join("examples/put_get.c")).arg(installed.prefix().join("lib/libforebay.a"));
    run(command.args(["-lpthread", "-ldl", "-lm"]));
    assert!(run(Command::new(&program).arg(world.address())).contains("3 fragments are durable"));
}

#[test]
fn cmake_finds_the_library_and_builds_the_examples() {
    if !["cc", "c++", "cmake"].into_iter().all(needs) {
        return;
    }
    let (installed, world) = (Installed::new(), World::new());
    let build = installed.place().join("build");
    let mut prefix = std::ffi::OsString::from("-DCMAKE_PREFIX_PATH=");
    prefix.push(installed.prefix());
    run(Command::new("cmake").arg("-S").arg(Path::new(ROOT).join("examples")).arg("-B").arg(&build).arg(prefix));
    run(Command::new("cmake").arg("--build").arg(&build));
    // It knows where it found the library.
    let told = run(Command::new(build.join("put_get")).env_remove("LD_LIBRARY_PATH").arg(world.address()));
    assert!(told.contains("3 fragments are durable"), "{told}");
    assert!(["copy", "events", "runs"].iter().all(|program| build.join(program).is_file()));
}
