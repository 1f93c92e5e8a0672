//! Tokens that are signed: processes with the public key check them, and make none.

use crate::query_server::{is_ready, query_server};
use crate::serving::{PROGRAM, Place, Server, event, until, write_private};
use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const QUERY: &str = "/v1/impressions/query";

/// A private key in a file, and its public key.
struct Key {
    private: String,
    public: String,
}

impl Key {
    fn new(folder: &Path, name: &str) -> Key {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let write = |end: &str, text: String| {
            let path = folder.join(format!("{name}{end}"));
            write_private(&path, &text);
            path.to_str().unwrap().to_owned()
        };
        Key { private: write("-key.pem", pair.serialize_pem()), public: write("-public.pem", pair.public_key_pem()) }
    }

    fn token(&self, arguments: &[&str]) -> String {
        let output = token(&[&["--signing-key-file", &self.private], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn bearer(&self, arguments: &[&str]) -> String {
        format!("authorization: Bearer {}", self.token(arguments))
    }
}

fn token(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("token").args(arguments).output().unwrap()
}

fn body(tenant: &str) -> Vec<u8> {
    json!({ "tenant": tenant, "from": "2026-01-01", "to": "2026-01-03", "dimensions": [] }).to_string().into_bytes()
}

/// The file of the token of a query process.
fn token_file(place: &Place, token: &str) -> String {
    let path = place.path().join("token");
    write_private(&path, &format!("{token}\n"));
    path.to_str().unwrap().to_owned()
}

#[test]
fn query_process_with_a_public_key_answers_tenants() {
    let place = Place::new();
    let key = Key::new(place.path(), "one");
    let other = Key::new(place.path(), "other");
    let server = Server::start(&place.dir(), &["--token-key-file", &key.public, "--flush-s", "3600"]);
    let send = |header: &str| {
        server.request("POST", "/v1/events", &[header], event("a", "x", "00:10:00").as_bytes()).unwrap().status
    };
    assert_eq!((send(&key.bearer(&[])), send(&other.bearer(&[])), send("x: y")), (200, 403, 401));
    assert_eq!(send(&key.bearer(&["--tenant", "a"])), 403);
    let follower = token_file(&place, &key.token(&["--follower", "--expires-in", "1h"]));
    let process = query_server(&place, &server.address, &["--token-key-file", &key.public, "--token-file", &follower]);
    until("the manifest", || is_ready(&process));
    for asked in [&server, &process] {
        let ask = |header: &str, tenant: &str| asked.request("POST", QUERY, &[header], &body(tenant)).unwrap();
        assert_eq!(ask(&key.bearer(&["--tenant", "a"]), "a").json()["total"], json!(1));
        assert_eq!(ask(&key.bearer(&[]), "a").json()["total"], json!(1));
        let refused = [key.bearer(&["--tenant", "b"]), other.bearer(&["--tenant", "a"]), key.bearer(&["--operator"])];
        for header in refused.iter().chain([&key.bearer(&["--follower"])]) {
            let answer = ask(header, "a");
            assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{header}");
        }
        let short = key.bearer(&["--tenant", "a", "--expires-in", "1s"]);
        until("the end of the token", || ask(&short, "a").code() == "token_expired");
        assert_eq!(ask(&place.bearer(&["--tenant", "a"]), "a").status, 403, "no secret is known here");
    }
    let operate = |header: &str| server.request("POST", "/v1/pause", &[header], b"").unwrap().status;
    assert_eq!((operate(&key.bearer(&[])), operate(&key.bearer(&["--operator"]))), (403, 200));
}

#[test]
fn query_process_needs_the_token_of_a_query_process() {
    let place = Place::new();
    let key = Key::new(place.path(), "one");
    let other = Key::new(place.path(), "other");
    let server = Server::start(&place.dir(), &["--token-key-file", &key.public]);
    for wrong in [key.token(&[]), key.token(&["--operator"]), other.token(&["--follower"])] {
        let file = token_file(&place, &wrong);
        let process = query_server(&place, &server.address, &["--token-key-file", &key.public, "--token-file", &file]);
        let ask = || process.request("POST", QUERY, &[&key.bearer(&["--tenant", "a"])], &body("a")).unwrap();
        until("the refusal", || ask().text.contains("403"));
    }
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["query-server", "--listen", "127.0.0.1:0", "--server", &server.address, "--dir"]);
        Server::of({
            command.arg(place.dir()).args(["--token-key-file", &key.public]).args(arguments);
            command
        })
    };
    assert!(run(&[]).err().unwrap().contains("--token-file is missing"));
    let long = "a".repeat(5_000);
    for (wrong, why) in [("", "it is empty"), ("two words", "it has 2 words"), (long.as_str(), "it has 5001 bytes")] {
        let said = run(&["--token-file", &token_file(&place, wrong)]).err().unwrap();
        assert!(said.contains(why), "{said}");
    }
    let follower = token_file(&place, &key.token(&["--follower"]));
    std::fs::set_permissions(&follower, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = run(&["--token-file", &follower]).err().unwrap();
    assert!(said.contains("others may read it (mode 644)"), "{said}");
}

#[test]
fn query_process_with_a_token_alone_is_refused() {
    let place = Place::new();
    let key = Key::new(place.path(), "one");
    drop(Server::start(&place.dir(), &["--token-key-file", &key.public]));
    let follower = token_file(&place, &key.token(&["--follower"]));
    let mut command = Command::new(PROGRAM);
    command.args(["query-server", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:1", "--token-file", &follower]);
    command.arg("--dir").arg(place.dir());
    let said = Server::of(command).err().unwrap();
    assert!(said.contains("--token-file without --token-key-file or --secret-file"), "{said}");
}

#[test]
fn server_takes_tokens_of_its_secret_and_of_its_keys() {
    let place = Place::new();
    let first = Key::new(place.path(), "one");
    let second = Key::new(place.path(), "two");
    let keys = [&first, &second].map(|key| std::fs::read_to_string(&key.public).unwrap()).concat();
    let path = place.path().join("keys.pem");
    std::fs::write(&path, keys).unwrap();
    let server =
        Server::start(&place.dir(), &["--secret-file", &place.secret(), "--token-key-file", path.to_str().unwrap()]);
    for header in [place.bearer(&[]), first.bearer(&[]), second.bearer(&[])] {
        let sent = server.request("POST", "/v1/events", &[&header], event("a", "x", "00:10:00").as_bytes()).unwrap();
        assert_eq!(sent.status, 200);
    }
    let other = Key::new(place.path(), "other").bearer(&[]);
    assert_eq!(server.request("POST", "/v1/events", &[&other], b"").unwrap().status, 403);
}

#[test]
fn tokens_that_cannot_be_made_are_refused_with_a_reason() {
    let place = Place::new();
    let key = Key::new(place.path(), "one");
    let said = |arguments: &[&str]| {
        let output = token(arguments);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(
        said(&["--secret-file", &place.secret(), "--expires-in", "1h"]).contains("only the token of a tenant expires")
    );
    assert!(said(&["--signing-key-file", &key.public]).contains("openssl genpkey -algorithm ed25519"));
    assert!(said(&[]).contains("--secret-file"));
    let server = Server::try_start(&place.dir(), &["--token-key-file", &key.private]);
    assert!(server.err().unwrap().contains("no public key in PEM"));
}
