//! Stores of version 1, as their program left them, get the newest version.

use std::ffi::OsStr;
use std::fs;

use forebay_client::files::{FileError, Files};
use forebay_format::FORMAT_VERSION;
use forebay_types::RunId;

use crate::common::{Ran, Server, forebay};
use crate::files::{StoredFiles, connect};
use crate::image::Image;
use crate::{directory_of, drives_of};

fn images() -> Vec<Image> {
    Image::unpack_all(&directory_of(1))
}

/// Whether something in it stands under the run that is kept for files.
fn knows_the_run_of_files(image: &Image) -> bool {
    image.content.events.iter().any(|event| event.run == RunId::FILES.0)
}

fn upgrade(image: &Image, options: &[&str]) -> Ran {
    let words = ["upgrade", "--json"].iter().chain(options).map(OsStr::new);
    forebay(words.chain(image.paths.iter().map(|path| path.as_os_str())))
}

/// A server that has no files says what gives it some.
fn has_no_files(server: &Server) {
    let files: Files = connect(server);
    let error = files.lookup("/").expect_err("it has no files");
    assert!(matches!(error, FileError::Client { .. }) && error.to_string().contains("`forebay upgrade`"), "{error}");
}

#[test]
fn an_old_store_gets_files_and_keeps_what_it_has() {
    let mut upgraded = 0;
    for image in images().into_iter().filter(|image| !knows_the_run_of_files(image)) {
        println!("{}", image.name);
        let mut content = image.content.clone();
        let before = drives_of(&image);
        let told = upgrade(&image, &["--dry-run"]).expect(0).json();
        assert_eq!((&told["format_version"], &told["written"]), (&1.into(), &false.into()), "{told}");
        assert!(before == drives_of(&image), "a dry run changed a drive of {}", image.name);
        let told = upgrade(&image, &[]).expect(0).json();
        assert_eq!((&told["format_version_before"], &told["format_version"]), (&1.into(), &FORMAT_VERSION.into()));
        assert_eq!(
            (&told["written"], told["members"].as_array().map(Vec::len)),
            (&true.into(), Some(image.paths.len()))
        );
        assert_eq!(upgrade(&image, &[]).expect(0).json()["written"], false, "once");
        let report = image.examine();
        assert_eq!(report["geometry"]["format_version"], FORMAT_VERSION);
        assert_eq!(report["verdict"], content.verdict, "{}: {report}", image.name);

        let server = image.serve();
        assert_eq!(server.status()["started_clean"], content.clean, "{}", image.name);
        content.verify(&server);
        content.format_version = FORMAT_VERSION;
        content.go_on(&server, 1);
        server.kill();
        let server = image.serve();
        content.verify(&server);
        let kept = server.run_with(&["put", "4294967295/1/1", "-"], b"bytes").expect(2);
        kept.says("run 4294967295 is kept for files");
        server.terminate().expect(0).says("marked clean");
        upgraded += 1;
    }
    assert!(upgraded > 0, "no image could be upgraded");
}

#[test]
fn an_old_store_that_knows_the_run_of_files_stays_as_it_is() {
    let mut refused = 0;
    for image in images().into_iter().filter(knows_the_run_of_files) {
        let before = drives_of(&image);
        for options in [&["--dry-run"][..], &[]] {
            upgrade(&image, options).expect(2).says("run 4294967295").says("Nothing was written");
        }
        assert!(before == drives_of(&image), "a refusal changed a drive of {}", image.name);
        let server = image.serve();
        image.content.verify(&server);
        has_no_files(&server);
        upgrade(&image, &[]).expect(3).says("in use");
        server.terminate().expect(0).says("marked clean");
        refused += 1;
    }
    assert!(refused > 0, "no image knows the run");
}

#[test]
fn files_of_a_new_store_are_no_business_of_an_upgrade() {
    let image = Image::new("new", 3);
    let words = ["init", "--data", "2", "--parity", "1", "--lanes", "1", "--drive-bytes", "16MiB"].map(OsStr::new);
    forebay(words.into_iter().chain(image.paths.iter().map(|path| path.as_os_str()))).expect(0);
    let server = image.serve();
    let mut files = StoredFiles::default();
    files.write(&server, "/a");
    files.verify(&server);
    server.kill();
    let before: Vec<Vec<u8>> = image.paths.iter().map(|path| fs::read(path).expect("a drive")).collect();
    assert_eq!(upgrade(&image, &[]).expect(0).json()["written"], false);
    assert!(before == drives_of(&image));
    let server = image.serve();
    files.verify(&server);
    server.terminate().expect(0);
}
