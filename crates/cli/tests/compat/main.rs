//! Stores of every released format, as their own programs left them, are opened by this one: all that was put is read back, what was decided
//! stays decided, more is written, and the server is killed and started once more. Older ones are upgraded, too. `testdata/compat/vN` holds the stores of version N: each
//! drive compressed, and beside them what is in them.
//!
//! `make compat` makes those of the present version, once. A released image is never made again.

#[path = "../common/mod.rs"]
mod common;
mod content;
mod files;
mod image;
mod life;
mod upgrade;

use std::fs;
use std::path::PathBuf;

use content::Content;
use forebay_format::{FORMAT_VERSION, FORMAT_VERSION_OLDEST, SUPERBLOCK_BYTES, Superblock};
use image::Image;

/// Where all images are, also those that no program writes any more.
fn images_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/compat")
}

fn directory_of(version: u16) -> PathBuf {
    images_directory().join(format!("v{version}"))
}

/// What the drives of an image hold.
fn drives_of(image: &Image) -> Vec<Vec<u8>> {
    image.paths.iter().map(|path| fs::read(path).expect("a drive")).collect()
}

/// All images, unpacked.
fn images() -> Vec<Image> {
    let versions = FORMAT_VERSION_OLDEST..=FORMAT_VERSION;
    let images: Vec<Image> = versions.flat_map(|version| Image::unpack_all(&directory_of(version))).collect();
    assert!(images.len() >= life::LIVES.len(), "{} images", images.len());
    images
}

#[test]
fn every_format_version_that_is_read_has_its_images() {
    for version in FORMAT_VERSION_OLDEST..=FORMAT_VERSION {
        let directory = directory_of(version);
        let images = Image::unpack_all(&directory);
        assert!(
            !images.is_empty(),
            "{} has no image: `make compat` makes those of version {FORMAT_VERSION}",
            directory.display()
        );
        for image in &images {
            assert_eq!(image.content.format_version, version, "{}", image.name);
            for path in &image.paths {
                let bytes = fs::read(path).expect("a drive");
                let superblock = Superblock::decode(&bytes[..SUPERBLOCK_BYTES]).expect("a superblock");
                assert_eq!(superblock.format_version, version, "{}", path.display());
            }
        }
    }
    let beyond = directory_of(FORMAT_VERSION + 1);
    assert!(!beyond.exists(), "{} is of a version that this program does not know", beyond.display());
}

#[test]
fn what_older_programs_stored_is_read_and_the_store_goes_on() {
    for image in images() {
        println!("{}", image.name);
        let mut content = image.content.clone();
        let server = image.serve();
        assert_eq!(server.status()["started_clean"], content.clean, "{}", image.name);
        content.verify(&server);
        content.go_on(&server, 1);
        content.verify(&server);
        server.kill();
        let server = image.serve();
        content.verify(&server);
        content.go_on(&server, 2);
        server.terminate().expect(0).says("marked clean");
        let server = image.serve();
        content.verify(&server);
        server.terminate().expect(0).says("marked clean");
        assert_eq!(image.superblock().format_version, content.format_version, "a start is no upgrade");
    }
}

#[test]
fn the_doctor_finds_what_older_programs_stored_whole() {
    for image in images() {
        let before = drives_of(&image);
        let report = image.examine();
        assert!(before == drives_of(&image), "a look changed a drive of {}", image.name);
        let content: &Content = &image.content;
        assert_eq!(report["verdict"], content.verdict, "{}: {report}", image.name);
        assert_eq!(report["last_start"]["clean"], content.clean, "{}", image.name);
        assert_eq!(report["last_start"]["program"], content.program, "{}", image.name);
        assert_eq!(report["geometry"]["format_version"], content.format_version, "{}", image.name);
        let files: u64 = report["lanes"]
            .as_array()
            .expect("lanes")
            .iter()
            .filter_map(|lane| lane["contents"]["files"].as_u64())
            .sum();
        assert_eq!(files > content.files.lasting() as u64, content.has_files(), "{}: {files} files", image.name);
        let readable = &report["readable"];
        assert_eq!((&readable["files_lost"], &readable["files_unavailable"]), (&0.into(), &0.into()), "{readable}");
        assert_eq!(readable["fragments"], content.fragments(), "{}: {readable}", image.name);
        assert_eq!(readable["fragments_readable"], content.fragments(), "{}: {readable}", image.name);
    }
}

/// What `make compat` runs; without it the images are made, looked at and thrown away.
#[test]
fn images_of_the_present_version_can_be_made() {
    let keep = std::env::var("FOREBAY_COMPAT").as_deref() == Ok("write");
    for life in life::LIVES {
        let image = life.live();
        let server = image.serve_read_only();
        image.content.verify_reads(&server);
        server.terminate().expect(0);
        if keep {
            image.pack(&directory_of(FORMAT_VERSION).join(&image.name));
        }
    }
}
