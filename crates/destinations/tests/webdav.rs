//! WebDAV: against a stock XRootD server, and against a stand-in that does what no good server does.

mod support;

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use forebay_destinations::{Access, open};
use forebay_mover::custody::{Answer, SourceAnswer};
use forebay_mover::endpoint::{Destination, Sending};
use support::http_door::HttpDoor;
use support::stand_in::{Does, StandIn, answers};
use support::{
    Bytes, Counter, ask, assert_holds, assert_not_now, assert_refused, assert_unknown, destination, keep_the_contract,
    name, noise, send, send_as, sums,
};

const MEBIBYTE: usize = 1 << 20;

fn plain(url: &str) -> std::sync::Arc<dyn Destination> {
    destination(url, &Access::default())
}

#[test]
fn xrootd_keeps_the_contract() {
    let Some(door) = HttpDoor::start() else { return };
    keep_the_contract(plain(&format!("{}/run%20data/new", door.url())).as_ref(), &[3_000_001, 1, 0, 20 * MEBIBYTE]);
    assert!(door.data().join("run data/new/run 7/ü/b c.raw").is_file(), "names are theirs, not those of an address");
}

#[test]
fn xrootd_gives_back_the_bytes_that_it_was_sent() {
    let Some(door) = HttpDoor::start() else { return };
    let there = plain(&door.url());
    let bytes = noise(1, 9 * MEBIBYTE + 17);
    assert_eq!(send(there.as_ref(), "a/.t", "a/b", &bytes), Answer::Sent(sums(&bytes)));
    assert_eq!(there.rename(&name("a/.t"), &name("a/b")), Answer::Done);
    assert_eq!(fs::read(door.data().join("a/b")).expect("it is there"), bytes);
    // A bit that turns where it lies is seen.
    let mut turned = bytes.clone();
    turned[5] ^= 1;
    fs::write(door.data().join("a/b"), &turned).expect("written");
    assert_holds(there.as_ref(), "a/b", &turned);
}

#[test]
fn xrootd_does_not_know_names_with_question_marks_and_they_are_refused() {
    let Some(door) = HttpDoor::start() else { return };
    assert_refused(ask(plain(&door.url()).as_ref(), "what?.raw"), &["question mark", "Rename the file"]);
}

#[test]
fn an_xrootd_server_that_is_killed_is_away_and_what_it_was_sent_meanwhile_is_not_known() {
    let Some(mut door) = HttpDoor::start() else { return };
    let there = plain(&door.url());
    let bytes = noise(2, 64 * MEBIBYTE);
    let mut content = Bytes::of(&bytes);
    content.then = Some((16 * MEBIBYTE, Box::new(|| door.kill())));
    assert_unknown(send_as(there.as_ref(), ".t", "b", bytes.len() as u64, content), &["cut"]);
    assert_not_now(ask(there.as_ref(), ".t"), &["away"]);
    assert_not_now(there.rename(&name(".t"), &name("b")), &["away"]);
    assert_not_now(there.remove(&name(".t")), &["away"]);
}

#[test]
fn a_server_is_known_by_its_certificate_alone() {
    let Some(door) = HttpDoor::start_with_tls() else { return };
    assert_not_now(ask(plain(&door.url()).as_ref(), "a"), &["certificate", "--ca-file"]);
    let known = destination(&door.url(), &Access { ca_file: Some(door.ca_file()), ..Access::default() });
    let bytes = noise(3, 3 * MEBIBYTE);
    assert_eq!(send(known.as_ref(), ".t", "b", &bytes), Answer::Sent(sums(&bytes)));
    assert_holds(known.as_ref(), ".t", &bytes);
    let no_certificate = Access { ca_file: Some(door.data().join("none")), ..Access::default() };
    assert!(open(&door.url().parse().expect("an address"), &no_certificate).is_err());
}

#[test]
fn without_a_checksum_all_is_read_back_and_a_wrong_one_is_told_as_it_is() {
    let bytes = noise(4, 3 * MEBIBYTE);
    let kept = bytes.clone();
    let server = StandIn::start(move |asked| match asked.path.as_str() {
        "/base/lies" => answers(200, &[("digest", "adler32=00000001"), ("content-length", "5")]),
        "/base/odd" => Does::Answers(200, vec![("digest", "adler32=zzz, md5=AAAA".to_owned())], kept.clone()),
        _ => Does::Answers(200, Vec::new(), kept.clone()),
    });
    let there = plain(&server.url());
    assert_eq!(ask(there.as_ref(), "silent"), Answer::Told(Some(sums(&bytes).into())));
    assert_eq!(ask(there.as_ref(), "odd"), Answer::Told(Some(sums(&bytes).into())));
    let Answer::Told(Some(told)) = ask(there.as_ref(), "lies") else { panic!("it was told") };
    assert_eq!((told.bytes, told.adler32, told.crc32c), (5, Some(1), None));
    assert_eq!(server.asked()[0].header("want-digest"), Some("adler32,crc32c"));
    let counter = Counter { ends_after_bytes: 10, ..Counter::new() };
    assert_not_now(there.ask(&name("silent"), &counter), &["ends"]);
}

#[test]
fn what_is_read_back_half_is_not_known() {
    let server = StandIn::start(|asked| match asked.method.as_str() {
        "HEAD" => answers(200, &[("content-length", "1000")]),
        _ => Does::GivesLess(vec![1; 500], 1000),
    });
    assert_unknown(ask(plain(&server.url()).as_ref(), "a"), &["cut in the middle"]);
    let server = StandIn::start(|asked| match asked.method.as_str() {
        "HEAD" => answers(200, &[("content-length", "1000")]),
        _ => Does::Answers(200, Vec::new(), vec![1; 5000]),
    });
    assert_unknown(ask(plain(&server.url()).as_ref(), "a"), &["more bytes than it says"]);
}

#[test]
fn a_server_that_ends_in_the_middle_of_a_file_is_not_taken_for_one_that_has_it() {
    let bytes = noise(5, 8 * MEBIBYTE);
    for cut_after in [0, 1, MEBIBYTE, 8 * MEBIBYTE] {
        let server = StandIn::start(move |_| Does::CutsAfter(cut_after));
        assert_unknown(send(plain(&server.url()).as_ref(), ".t", "b", &bytes), &["cut"]);
    }
    let server = StandIn::start(|_| Does::AnswersAfter(MEBIBYTE, 201));
    assert_unknown(send(plain(&server.url()).as_ref(), ".t", "b", &bytes), &["before all"]);
    let server = StandIn::start(|_| Does::AnswersAfter(MEBIBYTE, 507));
    assert_not_now(send(plain(&server.url()).as_ref(), ".t", "b", &bytes), &["507", "no room", "full"]);
}

#[test]
fn a_source_that_gives_other_than_it_had_is_told_and_no_server_takes_it_for_whole() {
    let bytes = noise(6, 2 * MEBIBYTE);
    for announced in [bytes.len() as u64 - 1, bytes.len() as u64 + 1, 0, 1] {
        let server = StandIn::start(|_| answers(201, &[]));
        let answer = send_as(plain(&server.url()).as_ref(), ".t", "b", announced, Bytes::of(&bytes));
        assert!(matches!(answer, Answer::Source(SourceAnswer::Changed(_))), "{announced}: {answer:?}");
    }
}

#[test]
fn a_mover_that_ends_cuts_what_it_sends() {
    let bytes = noise(7, 8 * MEBIBYTE);
    let server = StandIn::start(|_| answers(201, &[]));
    let counter = Counter { ends_after_bytes: MEBIBYTE as u64, ..Counter::new() };
    let (temporary, last) = (name(".t"), name("b"));
    let sending = Sending { temporary: &temporary, last: &last, bytes: bytes.len() as u64 };
    let answer = plain(&server.url()).send(&sending, &mut Bytes::of(&bytes), &counter);
    assert_not_now(answer, &["ends"]);
}

#[test]
fn redirections_are_followed_with_the_bytes_and_without_the_token_where_it_would_be_read_by_others() {
    let pool = StandIn::start(|_| answers(201, &[]));
    let to = format!("http://127.0.0.1:{}/pool/x?ticket=secret", pool.port);
    let door = StandIn::start(move |asked| match asked.method.as_str() {
        "PUT" => Does::AnswersAtOnce(307, vec![("location", to.clone())]),
        _ => Does::AnswersAtOnce(302, vec![("location", "http://forebay.invalid/far".to_owned())]),
    });
    let directory = tempfile::tempdir().expect("a directory");
    let token_file = directory.path().join("token");
    fs::write(&token_file, "abc.def\n").expect("written");
    let access = Access { token_file: Some(token_file), ..Access::default() };
    let there = destination(&door.url(), &access);
    let bytes = noise(8, 2 * MEBIBYTE);
    assert_eq!(send(there.as_ref(), ".t", "b", &bytes), Answer::Sent(sums(&bytes)));
    let (first, second) = (&door.asked()[0], &pool.asked()[0]);
    assert_eq!((first.body.len(), second.body.as_slice()), (0, bytes.as_slice()));
    assert_eq!(
        (second.path.as_str(), second.header("authorization")),
        ("/pool/x?ticket=secret", Some("Bearer abc.def"))
    );
    // To a host elsewhere it would go along in the clear: none is found under this name, but it was asked for.
    assert_not_now(ask(there.as_ref(), "a"), &["forebay.invalid"]);
    let round = StandIn::start(|asked| answers(307, &[("location", &asked.path)]));
    assert_not_now(ask(plain(&round.url()).as_ref(), "a"), &["for ever"]);
    assert_eq!(round.asked().len(), 6);
    assert_not_now(ask(plain(&StandIn::start(|_| answers(302, &[])).url()).as_ref(), "a"), &["elsewhere"]);
}

#[test]
fn a_token_is_never_sent_in_the_clear_and_read_again_when_it_is_not_taken() {
    let directory = tempfile::tempdir().expect("a directory");
    let token_file = directory.path().join("token");
    fs::write(&token_file, "old").expect("written");
    let access = Access { token_file: Some(token_file.clone()), ..Access::default() };
    let error = open(&"http://host.example/a".parse().expect("an address"), &access).err().expect("refused");
    assert!(error.to_string().contains("https://"), "{error}");

    let rewritten = token_file.clone();
    let server = StandIn::start(move |asked| {
        if asked.header("authorization") == Some("Bearer new") {
            return answers(404, &[]);
        }
        // As a tool that renews tokens does, within the same tick of the clock of the file system.
        let modified = fs::metadata(&rewritten).and_then(|metadata| metadata.modified()).expect("it is there");
        fs::write(&rewritten, "new").expect("written");
        fs::File::options().write(true).open(&rewritten).and_then(|file| file.set_modified(modified)).expect("set");
        answers(401, &[])
    });
    let there = destination(&server.url(), &access);
    assert_eq!(ask(there.as_ref(), "a"), Answer::Told(None));
    assert_eq!(server.asked().len(), 2);
    let server = StandIn::start(|_| Does::Answers(401, Vec::new(), b"who are you?".to_vec()));
    let there = destination(&server.url(), &access);
    assert_not_now(there.remove(&name("a")), &["401", "who are you?", "--token-file"]);
    assert_eq!(server.asked().len(), 1, "the same token is not tried twice");
    fs::remove_file(&token_file).expect("removed");
    let there = destination(&server.url(), &Access::default());
    assert_not_now(ask(there.as_ref(), "a"), &["401"]);
}

#[test]
fn what_a_server_says_is_told_as_what_it_means() {
    for (status, words) in [(403, "right"), (405, "WebDAV"), (409, "retry"), (418, "retry"), (501, "WebDAV")] {
        let server = StandIn::start(move |_| Does::Answers(status, Vec::new(), b"its\r\nown \x1b[31mwords".to_vec()));
        let there = plain(&server.url());
        let status = status.to_string();
        assert_refused(send(there.as_ref(), ".t", "b", b""), &[&status, words, "its own"]);
        assert_refused(there.remove(&name("a")), &[&status, words]);
    }
    for status in [408, 423, 429, 500, 502, 503, 504, 507, 599] {
        let server = StandIn::start(move |_| answers(status, &[]));
        let there = plain(&server.url());
        assert_not_now(ask(there.as_ref(), "a"), &[&status.to_string()]);
        assert_not_now(send(there.as_ref(), ".t", "b", &noise(9, MEBIBYTE)), &[&status.to_string()]);
        assert_not_now(there.rename(&name("a"), &name("b")), &[&status.to_string()]);
        assert_not_now(there.remove(&name("a")), &[&status.to_string()]);
    }
    let garbage = StandIn::start(|_| Does::Says(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()));
    assert_unknown(ask(plain(&garbage.url()).as_ref(), "a"), &[]);
    let endless = StandIn::start(|_| Does::Answers(503, Vec::new(), vec![b'x'; 50 * MEBIBYTE]));
    let Answer::Failed(failure) = plain(&endless.url()).remove(&name("a")) else { panic!("it failed") };
    assert!(failure.words().len() < 1000, "{}", failure.words().len());
}

#[test]
fn a_name_that_is_taken_is_not_given_whether_the_server_sees_it_or_not() {
    let moves =
        |status: u16| StandIn::start(move |asked| answers(if asked.method == "HEAD" { 404 } else { status }, &[]));
    let rename = |server: &StandIn| plain(&server.url()).rename(&name("r 1/.t"), &name("r 1/ü"));
    let server = moves(201);
    assert_eq!(rename(&server), Answer::Done);
    let asked = &server.asked_with("MOVE")[0];
    assert_eq!((asked.path.as_str(), asked.header("overwrite")), ("/base/r%201/.t", Some("F")));
    let to = format!("http://127.0.0.1:{}/base/r%201/%C3%BC", server.port);
    assert_eq!(asked.header("destination"), Some(to.as_str()));
    assert_eq!(rename(&moves(412)), Answer::Taken);
    assert_unknown(rename(&moves(404)), &["looked for"]);
    assert_unknown(rename(&moves(202)), &["looked for"]);
    let taken = StandIn::start(|_| answers(200, &[]));
    assert_eq!(rename(&taken), Answer::Taken);
    assert_eq!(taken.asked_with("MOVE").len(), 0);
    assert_eq!(plain(&taken.url()).replace(&name(".t"), &name("b")), Answer::Done);
    assert_eq!(taken.asked_with("MOVE")[0].header("overwrite"), Some("T"));
    assert_refused(plain(&moves(412).url()).replace(&name(".t"), &name("b")), &["412"]);
}

#[test]
fn directories_that_are_missing_are_made_from_the_lowest_that_is_there() {
    let tries = AtomicU32::new(0);
    let server = StandIn::start(move |asked| match (asked.method.as_str(), asked.path.as_str()) {
        ("PUT", _) if tries.fetch_add(1, SeqCst) == 0 => Does::AnswersAtOnce(409, Vec::new()),
        ("MKCOL", "/base/a/b" | "/base/a") if tries.fetch_add(1, SeqCst) < 3 => answers(409, &[]),
        ("MKCOL", "/base") => answers(405, &[]),
        _ => answers(201, &[]),
    });
    let bytes = noise(10, MEBIBYTE);
    assert_eq!(send(plain(&server.url()).as_ref(), "a/b/.t", "a/b/c", &bytes), Answer::Sent(sums(&bytes)));
    let made: Vec<String> = server.asked_with("MKCOL").into_iter().map(|asked| asked.path).collect();
    assert_eq!(made, ["/base/a/b", "/base/a", "/base", "/base/a", "/base/a/b"]);
    assert_eq!(server.asked_with("PUT")[1].body, bytes);
}

#[test]
fn a_server_that_does_not_know_what_it_is_expected_to_say_gets_the_bytes_all_the_same() {
    // One that reads the body without a word.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let url = format!("http://127.0.0.1:{}", listener.local_addr().expect("it listens").port());
    let bytes = noise(11, 100_000);
    let taken = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut read = Vec::new();
        let mut block = [0; 4096];
        while read.windows(4).position(|end| end == b"\r\n\r\n").is_none_or(|head| read.len() < head + 4 + 100_000) {
            let count = stream.read(&mut block).expect("read");
            read.extend_from_slice(&block[..count]);
        }
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").expect("written");
        read
    });
    assert_eq!(send(plain(&url).as_ref(), ".t", "b", &bytes), Answer::Sent(sums(&bytes)));
    assert!(taken.join().expect("no panic").ends_with(&bytes));
}
