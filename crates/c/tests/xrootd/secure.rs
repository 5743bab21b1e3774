//! Servers with a certificate: third-party copies by HTTP, and the configuration that asks everybody who they are.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use crate::common::credentials::Credentials;
use crate::common::door::{Door, Gate, Setup, client, failed_client, good_client};
use crate::common::needs;
use crate::common::world::*;
use crate::{adler32, local};

/// A server that is reached by `https`, and what its clients have.
struct Site<'a> {
    gate: Gate,
    credentials: &'a Credentials,
}

impl Site<'_> {
    /// `curl` with the words, which may be a token, for a file of this server.
    fn curl(&self, token: Option<&str>, words: &[&str], path: &str) -> Output {
        let mut command = client("curl");
        command.args(["-sS", "--fail-with-body", "--cacert", &self.credentials.text("certificate.pem")]);
        if let Some(token) = token {
            command.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        command.args(words).arg(self.gate.https(path)).output().expect("it runs")
    }

    /// A client by `root://` with the key of a user; that of nobody is none.
    fn root(&self, program: &str, user: &str) -> Command {
        let mut command = client(program);
        command.env("XrdSecSSSKT", self.credentials.path(user));
        command
    }
}

/// What a third-party copy comes to: its answer is over before it is, and its last words tell.
fn copied(output: &Output) -> String {
    let said = good_client(output);
    assert!(said.contains("success: Created"), "{said}");
    said
}

#[test]
fn servers_with_a_certificate_copy_files_from_and_to_each_other() {
    let Some(door) = Door::shared() else { return };
    if !needs("openssl") {
        return;
    }
    let (one_store, other_store) = (World::new(), World::new());
    let (credentials, here) = (Credentials::new(), tempfile::tempdir().expect("a directory"));
    let serve = |world: &World| Site {
        gate: door.serve_as(&Setup::with_tls(&world.address(), &credentials)),
        credentials: &credentials,
    };
    let (one, other) = (serve(&one_store), serve(&other_store));
    let bytes = content(1, 9_000_001);
    good_client(&one.curl(None, &["-T", &local(&here, "from", &bytes)], "/run7/raw"));
    for directory in ["/fetched", "/sent"] {
        good_client(&other.curl(None, &["-X", "MKCOL"], directory));
    }
    // The one that is to have it fetches it; the one that has it sends it.
    let source = format!("Source: {}", one.gate.https("/run7/raw"));
    copied(&other.curl(None, &["-X", "COPY", "-H", &source], "/fetched/raw"));
    let target = format!("Destination: {}", other.gate.https("/sent/raw"));
    copied(&one.curl(None, &["-X", "COPY", "-H", &target], "/run7/raw"));
    // By more than one connection.
    copied(&other.curl(None, &["-X", "COPY", "-H", &source, "-H", "X-Number-Of-Streams: 4"], "/fetched/many"));
    let files = other_store.files();
    for path in ["/fetched/raw", "/sent/raw", "/fetched/many"] {
        let known = stat(&files, path.as_bytes()).expect("there");
        assert!(known.is_sealed && known.length == 9_000_001, "{path}");
        assert!(pread(&open_read(&files, path.as_bytes()), 0, 10_000_000) == bytes, "{path}");
        let head = good_client(&other.curl(None, &["-I", "-H", "Want-Digest: adler32"], path)).to_lowercase();
        assert!(head.contains(&adler32(&bytes)), "{path}: {head}");
    }
    // What fails in the middle is told, and nobody takes it for whole.
    let part = Part::new(1_000_000, &bytes[..400_000]);
    let source = format!("Source: {}", part.url);
    let said = good_client(&other.curl(None, &["-X", "COPY", "-H", &source], "/fetched/part"));
    assert!(said.contains("failure:") && !said.contains("success"), "{said}");
    assert!(!stat(&files, b"/fetched/part").expect("there").is_sealed, "{}", other.gate.said());
    assert!(other.gate.said().contains("1000000 bytes were announced, and 400000 came"));
    let nothing = format!("Source: {}", one.gate.https("/run7/nothing"));
    let said = good_client(&other.curl(None, &["-X", "COPY", "-H", &nothing], "/fetched/nothing"));
    assert!(said.contains("failure:") && said.contains("404"), "{said}");
}

/// A web server that says a length, gives less, and goes.
struct Part {
    url: String,
}

impl Part {
    fn new(announced: usize, bytes: &[u8]) -> Part {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/part", listener.local_addr().expect("an address"));
        let bytes = bytes.to_vec();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.expect("somebody comes");
                let (mut request, mut byte) = (Vec::new(), [0]);
                while !request.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|count| count > 0) {
                    request.extend(byte);
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {announced}\r\nConnection: close\r\n\r\n");
                let body = if request.starts_with(b"GET") { bytes.as_slice() } else { &[] };
                // Whoever asks may go first.
                let _ = connection.write_all(&[head.as_bytes(), body].concat());
            }
        });
        Part { url }
    }
}

#[test]
fn the_secure_configuration_lets_in_who_has_a_key_or_a_token_and_nobody_else() {
    let Some(door) = Door::shared() else { return };
    if !["openssl", "python3", "scitokens-create"].into_iter().all(needs) || !has_token_plugin() {
        return;
    }
    let (world, other_store) = (World::new(), World::new());
    let (credentials, here) = (Credentials::new(), tempfile::tempdir().expect("a directory"));
    credentials.add_users(&["detector", "analysis", "visitor"]);
    credentials.add_issuer();
    let serve = |world: &World| Site {
        gate: door.serve_as(&Setup::secure(&world.address(), &credentials)),
        credentials: &credentials,
    };
    let (site, other) = (serve(&world), serve(&other_store));
    by_key(&site, &other, &here);
    by_token(&site, &other, &here);
}

/// By `root://`: who has a key may do what its name may.
fn by_key(site: &Site, other: &Site, here: &tempfile::TempDir) {
    let bytes = content(2, 3_000_000);
    let (from, url) = (local(here, "from", &bytes), site.gate.url("/raw/file"));
    let copy =
        |user: &str, words: &[&str]| site.root("xrdcp", user).arg("--nopbar").args(words).output().expect("it runs");
    let said = failed_client(&copy("nobody", &[&from, &url]));
    assert!(said.contains("Auth failed"), "{said}");
    for user in ["visitor", "analysis"] {
        let said = failed_client(&copy(user, &[&from, &url]));
        assert!(said.contains("permission denied"), "{user}: {said}");
    }
    good_client(&copy("detector", &[&from, &url]));
    let back = here.path().join("back").display().to_string();
    assert!(failed_client(&copy("visitor", &[&url, &back])).contains("permission denied"));
    good_client(&copy("analysis", &[&url, &back]));
    assert!(std::fs::read(&back).expect("there") == bytes);
    let remove = |user: &str| {
        let mut command = site.root("xrdfs", user);
        command.arg(site.gate.url("")).args(["rm", "/raw/file"]).output().expect("it runs")
    };
    assert!(failed_client(&remove("analysis")).contains("permission denied"));
    // The other server fetches it with its own key.
    good_client(&copy("detector", &["--tpc", "only", &url, &other.gate.url("/copied")]));
    good_client(&remove("detector"));
}

/// By `https://`: who has a token may do what stands in it.
fn by_token(site: &Site, other: &Site, here: &tempfile::TempDir) {
    let bytes = content(3, 3_000_000);
    let from = local(here, "other", &bytes);
    let (writes, reads) =
        (site.credentials.token("storage.read:/ storage.modify:/"), site.credentials.token("storage.read:/web"));
    let foreign = site.credentials.token_for("storage.read:/ storage.modify:/", "https://elsewhere.example.org");
    let forged = format!("{}AAAA", &writes[..writes.len() - 4]);
    for token in [None, Some(reads.as_str()), Some(foreign.as_str()), Some(forged.as_str()), Some("no token")] {
        let said = failed_client(&site.curl(token, &["-T", &from], "/web/file"));
        assert!(said.contains("403"), "{said}");
    }
    good_client(&site.curl(Some(&writes), &["-T", &from], "/web/file"));
    assert!(failed_client(&site.curl(None, &[], "/web/file")).contains("403"));
    assert!(site.curl(Some(&reads), &[], "/web/file").stdout == bytes);
    assert!(failed_client(&site.curl(Some(&reads), &[], "/copied")).contains("403"), "another directory");
    assert!(failed_client(&site.curl(Some(&reads), &["-X", "DELETE"], "/web/file")).contains("403"));
    // Who may create may do it once, and may not take away.
    let creates = site.credentials.token("storage.create:/web");
    good_client(&site.curl(Some(&creates), &["-T", &from], "/web/once"));
    for words in [&["-T", &from][..], &["-X", "DELETE"]] {
        assert!(failed_client(&site.curl(Some(&creates), words, "/web/once")).contains("403"), "{words:?}");
    }
    good_client(&other.curl(Some(&writes), &["-X", "MKCOL"], "/web"));
    // The token for the other server goes with the request.
    let source = format!("Source: {}", site.gate.https("/web/file"));
    let transfer = format!("TransferHeaderAuthorization: Bearer {reads}");
    let without = other.curl(Some(&writes), &["-X", "COPY", "-H", &source], "/web/fetched");
    assert!(!String::from_utf8_lossy(&without.stdout).contains("success"), "{without:?}");
    copied(&other.curl(Some(&writes), &["-X", "COPY", "-H", &source, "-H", &transfer], "/web/fetched"));
    assert!(other.curl(Some(&reads), &[], "/web/fetched").stdout == bytes);
    good_client(&site.curl(Some(&writes), &["-X", "DELETE"], "/web/file"));
}

#[test]
fn who_comes_by_root_with_a_token_may_do_what_stands_in_it() {
    let Some(door) = Door::shared() else { return };
    if !["openssl", "python3", "scitokens-create"].into_iter().all(needs) || !has_token_plugin() {
        return;
    }
    let world = World::new();
    let (credentials, here) = (Credentials::new(), tempfile::tempdir().expect("a directory"));
    credentials.add_users(&["detector"]);
    credentials.add_issuer();
    let gate = door.serve_as(&Setup::with_tokens(&world.address(), &credentials));
    let site = Site { gate, credentials: &credentials };
    let bytes = content(4, 3_000_000);
    let (from, back) = (local(&here, "from", &bytes), here.path().join("back").display().to_string());
    let url = site.gate.tls_url("/web/file");
    let run = |program: &str, token: Option<&str>, words: &[&str]| {
        // There is no key of nobody.
        let mut command = site.root(program, "nobody");
        command.env("X509_CERT_DIR", credentials.vouching()).env_remove("BEARER_TOKEN").args(words);
        command.envs(token.map(|token| ("BEARER_TOKEN", token))).output().expect("it runs")
    };
    let copy = |token: Option<&str>, words: &[&str]| run("xrdcp", token, &[&["--nopbar"], words].concat());
    let writes = credentials.token("storage.create:/web storage.modify:/web storage.read:/web");
    let reads = credentials.token("storage.read:/web");
    let forged = format!("{}AAAA", &writes[..writes.len() - 4]);
    for token in [None, Some(forged.as_str()), Some("no token")] {
        let said = failed_client(&copy(token, &[&from, &url]));
        assert!(said.contains("Auth failed"), "{token:?}: {said}");
    }
    assert!(failed_client(&copy(Some(&reads), &[&from, &url])).contains("permission denied"));
    good_client(&copy(Some(&writes), &[&from, &url]));
    assert!(stat(&world.files(), b"/web/file").expect("there").is_sealed);
    // The server asks for TLS where the client does not.
    for place in [&url, &site.gate.url("/web/file")] {
        good_client(&copy(Some(&reads), &["-f", place, &back]));
        assert!(std::fs::read(&back).expect("there") == bytes, "{place}");
    }
    let names =
        |token: &str, words: &[&str]| run("xrdfs", Some(token), &[&[site.gate.tls_url("").as_str()], words].concat());
    assert_eq!(good_client(&names(&reads, &["ls", "/web"])).trim(), "/web/file");
    assert!(failed_client(&names(&reads, &["rm", "/web/file"])).contains("permission denied"));
    assert!(failed_client(&names(&writes, &["mkdir", "/elsewhere"])).contains("permission denied"));
    // One with a key comes as before, by TLS.
    let mut by_key = site.root("xrdcp", "detector");
    by_key.env("X509_CERT_DIR", credentials.vouching()).args(["--nopbar", &from, &site.gate.tls_url("/raw")]);
    good_client(&by_key.output().expect("it runs"));
    assert!(pread(&open_read(&world.files(), b"/raw"), 0, 4_000_000) == bytes);
    good_client(&names(&writes, &["rm", "/web/file"]));
}

/// Whether there is XRootD's plug-in for tokens; says so when not.
fn has_token_plugin() -> bool {
    let libraries = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let is_there = libraries.iter().any(|place| std::path::Path::new(place).join("libXrdAccSciTokens-5.so").exists());
    if !is_there {
        println!("skipped: needs xrootd-scitokens-plugins");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have xrootd-scitokens-plugins");
    }
    is_there
}
