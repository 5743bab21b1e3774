//! The header is what `cbindgen` makes of the library, says in C and C++ what it should, and keeps what was promised.

mod common;

use std::path::Path;
use std::process::Command;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};
use common::abi::{Abi, exported};
use common::{libraries, needs};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// In the order in which a reader wants them.
const SOURCES: [&str; 14] = [
    "call",
    "code",
    "config",
    "text",
    "fetched",
    "client",
    "events",
    "subscription",
    "runs",
    "stat",
    "files",
    "listing",
    "reader",
    "writer",
];

const HEAD: &str = "\
// The client of a Forebay server, for C and C++. docs/c.md says how to use it.
//
// Every function that gives an int32_t gives FOREBAY_DONE or the code of what went wrong; forebay_last_error() and its like tell this thread more. Where a function fails, what
// it would have given is not set, but a handle, which is null then.
//
// Paths are any bytes but zero, given with their number, and need no zero at their end; addresses, names of streams and the like are texts with a zero byte at their end.
// A null pointer is refused, except where it is said what it means, and as an array of no items.
//
// Any thread may use any handle but a forebay_config. Whoever frees one sees to it that nobody uses it any more. What a function gives by a handle of its own is freed by the
// function of that handle, and by nothing else.
//
// Made by cbindgen: `FOREBAY_BLESS=1 cargo test -p forebay-c --test header` writes it again.
";

fn made() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        include_guard: Some("FOREBAY_H".to_owned()),
        header: Some(HEAD.trim_end().to_owned()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        style: Style::Type,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::C99,
        line_length: 150,
        tab_width: 4,
        ..Config::default()
    };
    let sources = SOURCES.map(|name| Path::new(ROOT).join(format!("src/{name}.rs")));
    let builder = sources.iter().fold(Builder::new().with_config(config), Builder::with_src);
    let mut header = Vec::new();
    builder.generate().expect("a header").write(&mut header);
    String::from_utf8(header).expect("UTF-8")
}

/// What a file holds; with `FOREBAY_BLESS` it is written first.
fn kept(name: &str, made: &str) -> String {
    let path = Path::new(ROOT).join(name);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&path, made).expect("written");
    }
    std::fs::read_to_string(&path).unwrap_or_default()
}

#[test]
fn the_header_is_that_of_the_library() {
    let made = made();
    let kept = kept("include/forebay.h", &made);
    let differs = made.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(made == kept, "FOREBAY_BLESS=1 cargo test -p forebay-c --test header writes it again; first: {differs:?}");
}

#[test]
fn nothing_of_the_last_release_is_gone_or_different() {
    let now = Abi::of_header(&made());
    let path = Path::new(ROOT).join("abi.txt");
    if std::env::var_os("FOREBAY_ABI").is_some() {
        std::fs::write(&path, now.to_string()).expect("written");
    }
    let released = Abi::read(&std::fs::read_to_string(&path).expect("abi.txt"));
    assert!(released.items.len() > 100, "{} items", released.items.len());
    let gone = released.broken_by(&now);
    assert!(gone.is_empty(), "programs that were compiled against the last release break: {gone:#?}");
    // What is checked is more than names.
    for (name, other) in [("forebay_files_remove", "int64_t forebay_files_remove(void)"), ("FOREBAY_DONE", "7")] {
        let mut changed = now.clone();
        assert!(changed.items.insert(name.to_owned(), other.to_owned()).is_some(), "{name}");
        assert_eq!(released.broken_by(&changed).len(), 1, "{name}");
        changed.items.remove(name);
        assert_eq!(released.broken_by(&changed).len(), 1, "{name}");
    }
}

#[test]
fn the_library_exports_what_the_header_says_and_nothing_else() {
    if !needs("nm") {
        return;
    }
    let declared = Abi::of_header(&made()).functions();
    assert!(declared.len() > 60, "{} functions", declared.len());
    assert_eq!(exported(&libraries().join("libforebay.so")), declared);
}

#[test]
fn c11_and_cpp17_take_the_headers_without_a_warning() {
    let place = tempfile::tempdir().expect("a directory");
    let sources = [
        (
            "cc",
            "c11",
            "c.c",
            "#include <forebay.h>\nint main(void) { return forebay_abi_version() != FOREBAY_ABI_VERSION; }\n",
        ),
        (
            "c++",
            "c++17",
            "c.cc",
            "#include <forebay.h>\nint main() { return forebay_abi_version() != FOREBAY_ABI_VERSION; }\n",
        ),
        (
            "c++",
            "c++17",
            "cpp.cc",
            "#include <forebay.hpp>\n#include <forebay.hpp>\nint main() { forebay::Config config(\"host:1\"); }\n",
        ),
        ("c++", "c++20", "cpp20.cc", "#include <forebay.hpp>\nint main() {}\n"),
        ("c++", "c++17", "runs.cc", "#include <forebay_runs.hpp>\n#include <forebay_runs.hpp>\nint main() {}\n"),
    ];
    for (compiler, standard, name, text) in sources {
        if !needs(compiler) {
            continue;
        }
        let source = place.path().join(name);
        std::fs::write(&source, text).expect("written");
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]);
        command.arg(format!("-std={standard}")).arg("-I").arg(Path::new(ROOT).join("include")).arg(&source);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
