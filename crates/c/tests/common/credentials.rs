//! What servers and their clients know each other by: a certificate, keys of `sss`, and tokens with the issuer's key.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::door::NOBODY;
use super::installed::run;

const CERTIFICATE: &str = "[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = localhost
[extensions]
basicConstraints = critical,CA:TRUE
subjectAltName = DNS:localhost,IP:127.0.0.1
";

/// As if the issuer had been asked for its keys before: the library keeps them for later.
const KEEP_KEYS: &str = "
import base64, json, sqlite3, subprocess, sys, time
database, issuer, name, public = sys.argv[1:]
text = lambda number: base64.urlsafe_b64encode(number).rstrip(b'=').decode()
point = subprocess.run(['openssl', 'ec', '-pubin', '-in', public, '-outform', 'DER'], check=True, capture_output=True).stdout[-64:]
key = {'kid': name, 'kty': 'EC', 'crv': 'P-256', 'alg': 'ES256', 'use': 'sig', 'x': text(point[:32]), 'y': text(point[32:])}
until = int(time.time()) + 86400
with sqlite3.connect(database) as cache:
    cache.execute('CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)')
    cache.execute('INSERT INTO keycache VALUES (?, ?)', (issuer, json.dumps({'jwks': {'keys': [key]}, 'expires': until, 'next_update': until})))
";

/// What the shipped configuration calls the issuer and the server.
const ISSUER: &str = "https://tokens.example.org";
const AUDIENCE: &str = "https://forebay.example.org";
const KEY_NAME: &str = "key1";

/// A directory of them, which the servers' user can read.
pub struct Credentials {
    place: tempfile::TempDir,
}

impl Credentials {
    /// Those of a server with a certificate that vouches for itself.
    pub fn new() -> Credentials {
        let place = tempfile::tempdir().expect("a directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("set");
        let credentials = Credentials { place };
        fs::write(credentials.path("openssl.cfg"), CERTIFICATE).expect("written");
        let mut command = credentials.openssl("req");
        command.args(["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
        run(command.args(["-config", "openssl.cfg", "-keyout", "key.pem", "-out", "certificate.pem"]));
        credentials.give("key.pem", 0o400);
        let vouching = credentials.vouching();
        fs::create_dir(&vouching).expect("made");
        fs::copy(credentials.path("certificate.pem"), vouching.join("certificate.pem")).expect("copied");
        run(credentials.openssl("rehash").arg(&vouching));
        fs::set_permissions(&vouching, fs::Permissions::from_mode(0o755)).expect("set");
        credentials
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A name in the directory, as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn openssl(&self, what: &str) -> Command {
        let mut command = Command::new("openssl");
        command.arg(what).current_dir(self.place.path());
        command
    }

    /// To the servers' user, with a mode.
    fn give(&self, name: &str, mode: u32) {
        let path = self.path(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        chown(&path, Some(NOBODY), Some(NOBODY)).expect("given");
    }

    /// Keys of `sss` for these users, all of which the server has; each client has a file with its own, which is called as the user.
    pub fn add_users(&self, users: &[&str]) {
        let keys = self.path("sss.keytab");
        for user in users {
            let mut command = Command::new("xrdsssadmin");
            command.args(["-k", "forebay", "-u", user, "-g", user, "add"]).arg(&keys);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
            // It asks whether it shall make the file, the first time; later it may be gone by now.
            let _ = child.stdin.take().expect("a pipe").write_all(b"y\n");
            assert!(child.wait().expect("it ends").success());
        }
        for key in fs::read_to_string(&keys).expect("made").lines() {
            let user = users.iter().find(|user| key.contains(&format!(" u:{user} "))).expect("one of them");
            fs::write(self.path(user), key).expect("written");
            fs::set_permissions(self.path(user), fs::Permissions::from_mode(0o600)).expect("set");
        }
        self.give("sss.keytab", 0o600);
    }

    /// The key of an issuer of tokens, which the server knows.
    pub fn add_issuer(&self) {
        run(self.openssl("ecparam").args(["-name", "prime256v1", "-genkey", "-noout", "-out", "issuer.pem"]));
        run(self.openssl("ec").args(["-in", "issuer.pem", "-pubout", "-out", "issuer-public.pem"]));
        let cache = self.path("cache/scitokens");
        fs::create_dir_all(&cache).expect("made");
        let mut command = Command::new("python3");
        command.args(["-c", KEEP_KEYS]).arg(cache.join("scitokens_cpp.sqllite")).args([ISSUER, KEY_NAME]);
        run(command.arg(self.path("issuer-public.pem")));
        for (name, mode) in
            [("cache", 0o700), ("cache/scitokens", 0o700), ("cache/scitokens/scitokens_cpp.sqllite", 0o600)]
        {
            self.give(name, mode);
        }
    }

    /// A token of that issuer for these things, by the scopes of the WLCG.
    pub fn token(&self, scope: &str) -> String {
        self.token_for(scope, AUDIENCE)
    }

    pub fn token_for(&self, scope: &str, audience: &str) -> String {
        let mut command = Command::new("scitokens-create");
        command.arg("--cred").arg(self.path("issuer-public.pem")).arg("--key").arg(self.path("issuer.pem"));
        command.args(["--keyid", KEY_NAME, "--issuer", ISSUER, "--profile", "wlcg", "--claim", "sub=somebody"]);
        command.args(["--claim", &format!("scope={scope}"), "--claim", &format!("aud={audience}")]);
        run(&mut command).trim().to_owned()
    }

    /// The directory of those who vouch for certificates.
    pub fn vouching(&self) -> PathBuf {
        self.path("vouching")
    }

    /// Where the library of tokens keeps the keys of issuers.
    pub fn cache(&self) -> PathBuf {
        self.path("cache")
    }
}
