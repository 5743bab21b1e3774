//! S3: against Ceph's gateway, and against a stand-in that does what no good server does.

mod support;

use std::sync::Arc;

use forebay_destinations::{Access, open};
use forebay_mover::custody::{Answer, SourceAnswer};
use forebay_mover::endpoint::{Destination, Sending};
use md5::{Digest, Md5};
use support::radosgw::Gateway;
use support::stand_in::{Does, StandIn, answers};
use support::{
    Bytes, Counter, ask, assert_holds, assert_not_now, assert_refused, assert_unknown, destination, keep_the_contract,
    name, noise, send, send_as, sums,
};
use tempfile::NamedTempFile;

const MEBIBYTE: usize = 1 << 20;
const TEMPORARY: &str = "run/.forebay-1-1.part";

fn with_keys(gateway: &Gateway, bucket: &str, key: &str, secret: &str) -> Arc<dyn Destination> {
    let access = Access {
        s3_endpoint: Some(gateway.endpoint()),
        s3_credentials_file: Some(gateway.credentials_file(key, secret)),
        ..Access::default()
    };
    destination(&format!("s3://{bucket}/pre_fix"), &access)
}

fn there(gateway: &Gateway, bucket: &str) -> Arc<dyn Destination> {
    gateway.make_bucket("AKID", bucket);
    with_keys(gateway, bucket, "AKID", "SECRET")
}

/// Uploads that are begun and not completed.
fn uploads(gateway: &Gateway, bucket: &str) -> usize {
    String::from_utf8(gateway.get(&format!("{bucket}?uploads="))).expect("text").matches("<UploadId>").count()
}

#[test]
fn ceph_keeps_the_contract() {
    let Some(gateway) = Gateway::shared() else { return };
    keep_the_contract(there(&gateway, "contract").as_ref(), &[3_000_001, 1, 0, 40 * MEBIBYTE]);
    assert_eq!(uploads(&gateway, "contract"), 0);
    assert!(!String::from_utf8_lossy(&gateway.get("contract?list-type=2")).contains(".part"), "no marker is left");
}

#[test]
fn ceph_gives_back_the_bytes_and_what_another_process_completed_is_read_back() {
    let Some(gateway) = Gateway::shared() else { return };
    let first = there(&gateway, "bytes");
    let bytes = noise(1, 33 * MEBIBYTE + 17);
    assert_eq!(send(first.as_ref(), TEMPORARY, "run/a", &bytes), Answer::Sent(sums(&bytes)));
    assert_eq!(uploads(&gateway, "bytes"), 1);
    // A mover that was started again.
    let second = with_keys(&gateway, "bytes", "AKID", "SECRET");
    assert_holds(second.as_ref(), TEMPORARY, &bytes);
    assert_eq!(second.rename(&name(TEMPORARY), &name("run/a")), Answer::Done);
    assert_eq!(gateway.get("bytes/pre_fix/run/a"), bytes);
    let read = |destination: &dyn Destination| {
        let counter = Counter::new();
        assert_eq!(destination.ask(&name("run/a"), &counter), Answer::Told(Some(sums(&bytes).into())));
        counter.bytes.into_inner()
    };
    assert_eq!(read(second.as_ref()), 0, "its ETag proves it");
    assert_eq!(read(first.as_ref()), bytes.len() as u64, "all of it is read back");
    // Another one in its place is read, whoever completed the first.
    gateway.put("bytes/pre_fix/run/a", b"another's");
    assert_holds(second.as_ref(), "run/a", b"another's");
}

#[test]
fn a_completion_of_which_nobody_heard_is_found_and_not_taken_for_anothers() {
    let Some(gateway) = Gateway::shared() else { return };
    let there = there(&gateway, "twice");
    let bytes = noise(2, MEBIBYTE);
    assert_eq!(send(there.as_ref(), TEMPORARY, "run/a", &bytes), Answer::Sent(sums(&bytes)));
    let marker = gateway.get(&format!("twice/pre_fix/{TEMPORARY}"));
    let (from, to) = (name(TEMPORARY), name("run/a"));
    assert_eq!(there.rename(&from, &to), Answer::Done);
    for again in [Destination::rename, Destination::replace] {
        // As after a kill before the marker was taken away.
        gateway.put(&format!("twice/pre_fix/{TEMPORARY}"), &marker);
        assert_holds(there.as_ref(), TEMPORARY, &bytes);
        assert_eq!(again(there.as_ref(), &from, &to), Answer::Done);
        assert_eq!(ask(there.as_ref(), TEMPORARY), Answer::Told(None));
        assert_holds(there.as_ref(), "run/a", &bytes);
    }
    // To take a marker away takes nothing from what was completed.
    gateway.put(&format!("twice/pre_fix/{TEMPORARY}"), &marker);
    assert_eq!(there.remove(&from), Answer::Done);
    assert_eq!(gateway.get("twice/pre_fix/run/a"), bytes);
    // When the file is another's by then, it is left alone.
    gateway.put(&format!("twice/pre_fix/{TEMPORARY}"), &marker);
    gateway.put("twice/pre_fix/run/a", b"another's");
    assert_eq!(there.rename(&from, &to), Answer::Taken);
    assert_unknown(there.replace(&from, &to), &["gone"]);
    assert_eq!(there.remove(&from), Answer::Done);
    assert_eq!(gateway.get("twice/pre_fix/run/a"), b"another's");
}

#[test]
fn what_is_sent_half_is_not_right_and_is_taken_away_whole() {
    let Some(gateway) = Gateway::shared() else { return };
    let there = there(&gateway, "half");
    let bytes = noise(3, 40 * MEBIBYTE);
    let counter = Counter { ends_after_bytes: 20 << 20, ..Counter::new() };
    let (temporary, last) = (name(TEMPORARY), name("run/a"));
    let sending = Sending { temporary: &temporary, last: &last, bytes: bytes.len() as u64 };
    assert_not_now(there.send(&sending, &mut Bytes::of(&bytes), &counter), &["ends"]);
    let Answer::Told(Some(told)) = ask(there.as_ref(), TEMPORARY) else { panic!("it was begun") };
    assert!(!told.proves(&sums(&bytes)) && !told.proves(&sums(b"")), "{told}");
    assert_unknown(there.rename(&temporary, &last), &["not all parts"]);
    assert_eq!(uploads(&gateway, "half"), 1);
    assert_eq!(there.remove(&temporary), Answer::Done);
    assert_eq!((uploads(&gateway, "half"), ask(there.as_ref(), TEMPORARY)), (0, Answer::Told(None)));
    for announced in [bytes.len() as u64 - 1, bytes.len() as u64 + 1, 0] {
        let answer = send_as(there.as_ref(), TEMPORARY, "run/a", announced, Bytes::of(&bytes));
        assert!(matches!(answer, Answer::Source(SourceAnswer::Changed(_))), "{announced}: {answer:?}");
        assert_eq!(there.remove(&temporary), Answer::Done);
    }
    assert_eq!(uploads(&gateway, "half"), 0);
    assert_refused(send(there.as_ref(), "run/visible", "run/a", b"a"), &["nothing was sent"]);
}

#[test]
fn wrong_keys_and_buckets_that_are_not_there_are_refused_with_the_servers_own_words() {
    let Some(gateway) = Gateway::shared() else { return };
    gateway.make_bucket("AKID", "rights");
    let refused = with_keys(&gateway, "rights", "AKID", "WRONG");
    assert_refused(send(refused.as_ref(), TEMPORARY, "run/a", b"a"), &["403", "SignatureDoesNotMatch", "keys"]);
    assert_refused(ask(refused.as_ref(), "run/a"), &["403", "keys"]);
    let refused = with_keys(&gateway, "rights", "NOBODY", "SECRET");
    assert_refused(send(refused.as_ref(), TEMPORARY, "run/a", b"a"), &["403", "InvalidAccessKeyId"]);
    let missing = with_keys(&gateway, "missing", "AKID", "SECRET");
    assert_refused(send(missing.as_ref(), TEMPORARY, "run/a", b"a"), &["404", "NoSuchBucket", "bucket"]);
    // Keys that are put right are taken without a new start.
    let file = gateway.credentials_file("AKID", "LATER");
    let access =
        Access { s3_endpoint: Some(gateway.endpoint()), s3_credentials_file: Some(file.clone()), ..Access::default() };
    let later = destination("s3://rights", &access);
    assert_refused(send(later.as_ref(), TEMPORARY, "run/a", b"a"), &["403"]);
    std::fs::write(&file, "[default]\naws_access_key_id = AKID\naws_secret_access_key = SECRET\n").expect("written");
    assert_eq!(send(later.as_ref(), TEMPORARY, "run/a", b"a"), Answer::Sent(sums(b"a")));
}

#[test]
fn a_bucket_that_is_full_is_waited_for() {
    let Some(gateway) = Gateway::shared() else { return };
    gateway.make_user_with_quota("SMALL", 4 << 20);
    gateway.make_bucket("SMALL", "small");
    let there = with_keys(&gateway, "small", "SMALL", "SECRET");
    assert_not_now(send(there.as_ref(), TEMPORARY, "run/a", &noise(4, 9 * MEBIBYTE)), &["QuotaExceeded", "full"]);
}

#[test]
fn a_gateway_that_is_killed_is_away_and_what_it_was_sent_is_not_known() {
    let Some(mut gateway) = Gateway::own() else { return };
    let there = there(&gateway, "killed");
    let bytes = noise(5, 64 * MEBIBYTE);
    let mut content = Bytes::of(&bytes);
    content.then = Some((20 * MEBIBYTE, Box::new(|| gateway.kill())));
    let answer = send_as(there.as_ref(), TEMPORARY, "run/a", bytes.len() as u64, content);
    assert!(matches!(answer, Answer::Failed(ref failure) if failure.is_of_the_destination()), "{answer:?}");
    assert_not_now(ask(there.as_ref(), "run/a"), &["away"]);
    assert_not_now(there.rename(&name(TEMPORARY), &name("run/a")), &["away"]);
    assert_not_now(there.remove(&name(TEMPORARY)), &["away"]);
}

/// A file with keys that a stand-in does not look at.
fn any_keys() -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "[default]\naws_access_key_id=a\naws_secret_access_key=b\n").expect("written");
    file
}

/// A destination at a stand-in.
fn at(server: &StandIn, keys: &NamedTempFile) -> Arc<dyn Destination> {
    let access = Access {
        s3_endpoint: Some(format!("http://127.0.0.1:{}", server.port)),
        s3_credentials_file: Some(keys.path().to_owned()),
        ..Access::default()
    };
    destination("s3://bucket", &access)
}

const UPLOAD: &[u8] = b"<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>a</Key><UploadId>one</UploadId></InitiateMultipartUploadResult>";

#[test]
fn what_a_server_says_is_told_once_and_not_tried_again_behind_the_movers_back() {
    let keys = any_keys();
    for status in [408, 409, 429, 500, 503, 507] {
        let server = StandIn::start(move |_| {
            Does::Answers(
                status,
                Vec::new(),
                b"<Error><Code>SlowDown</Code><Message>not so fast</Message></Error>".to_vec(),
            )
        });
        assert_not_now(
            send(at(&server, &keys).as_ref(), TEMPORARY, "run/a", b"a"),
            &[&status.to_string(), "SlowDown: not so fast"],
        );
        assert_eq!(server.asked().len(), 1, "{status}");
    }
    let server = StandIn::start(|_| answers(400, &[]));
    assert_refused(send(at(&server, &keys).as_ref(), TEMPORARY, "run/a", b"a"), &["400", "retry"]);
    let server = StandIn::start(|_| Does::CutsAfter(0));
    assert_unknown(send(at(&server, &keys).as_ref(), TEMPORARY, "run/a", b"a"), &["cut"]);
}

#[test]
fn parts_of_which_some_have_another_checksum_are_sent_again_and_those_of_an_encrypted_bucket_are_read_back() {
    let keys = any_keys();
    let bytes = noise(6, 17 * MEBIBYTE);
    let server = |etags: [String; 2]| {
        StandIn::start(move |asked| match asked.method.as_str() {
            "POST" => Does::Answers(200, Vec::new(), UPLOAD.to_vec()),
            "PUT" if asked.path.contains("partNumber=1&") => answers(200, &[("etag", &etags[0])]),
            "PUT" if asked.path.contains("partNumber=2&") => answers(200, &[("etag", &etags[1])]),
            _ => answers(200, &[("etag", "\"x\"")]),
        })
    };
    let encrypted = server(["\"01\"".to_owned(), "\"02\"".to_owned()]);
    assert_eq!(send(at(&encrypted, &keys).as_ref(), TEMPORARY, "run/a", &bytes), Answer::Sent(sums(&bytes)));
    let put = encrypted.asked_with("PUT").pop().expect("the marker");
    assert!(String::from_utf8_lossy(&put.body).contains("\"etag\":null"), "nothing follows from such ETags");
    let md5 = Md5::digest(&bytes[..16 * MEBIBYTE]);
    let first: String = md5.iter().map(|byte| format!("{byte:02x}")).collect();
    let damaged = server([format!("\"{first}\""), "\"02\"".to_owned()]);
    assert_not_now(send(at(&damaged, &keys).as_ref(), TEMPORARY, "run/a", &bytes), &["1 of 2 parts"]);
}

#[test]
fn addresses_and_files_that_cannot_be_used_are_told_at_once() {
    let refused = |url: &str, endpoint: Option<&str>, keys: Option<&str>| {
        let file = NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), keys.unwrap_or_default()).expect("written");
        let access = Access {
            s3_endpoint: endpoint.map(str::to_owned),
            s3_credentials_file: keys.map(|_| file.path().to_owned()),
            ..Access::default()
        };
        let error = open(&url.parse().expect("an address"), &access).err().expect("refused").to_string();
        assert!(!error.contains("hidden"), "{error}");
    };
    refused("s3://bucket:80/a", Some("https://host"), None);
    refused("s3://bucket/a", Some("host:80"), None);
    refused("s3://bucket/a", None, Some("[default]\naws_secret_access_key = hidden\n"));
}
