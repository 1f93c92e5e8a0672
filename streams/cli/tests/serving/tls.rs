//! TLS between clients, servers and query processes: what is checked, and what is refused.

use crate::query_server::{is_ready, query_server};
use crate::serving::{Answer, PROGRAM, Place, Server, answer_in, event, head_of, until};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const QUERY: &str = "/v1/impressions/query";

/// An authority with its certificate in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: String,
}

/// The options of a server with a certificate.
type Identity = [String; 4];

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let file = write(folder, &format!("{name}.pem"), &params.self_signed(&key).unwrap().pem());
        Authority { issuer: Issuer::new(params, key), file }
    }

    /// A certificate for `localhost` that is valid until the end of a year.
    fn issue(&self, folder: &Path, name: &str, last_year: i32) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let certificate = write(folder, &format!("{name}.pem"), &certificate.pem());
        let key = write(folder, &format!("{name}-key.pem"), &key.serialize_pem());
        ["--tls-certificate-file".to_owned(), certificate, "--tls-key-file".to_owned(), key]
    }

    /// Sends a request over TLS.
    fn request(&self, server: &Server, method: &str, path: &str, header: &str, body: &str) -> Answer {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.file).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config, name).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(&server.address).unwrap());
        stream.write_all(head_of(&server.address, method, path, &[header], body.len()).as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The server may end the connection without the end of TLS.
        let _ = stream.read_to_end(&mut answer);
        answer_in(&answer).unwrap()
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn serve(place: &Place, arguments: &[&str], identity: &[String]) -> Server {
    let identity: Vec<&str> = identity.iter().map(String::as_str).collect();
    Server::start(&place.dir(), &[arguments, &identity].concat())
}

/// The address of a server with TLS, by the name of its certificate.
fn url(server: &Server) -> String {
    format!("https://localhost:{}", server.address.rsplit_once(':').unwrap().1)
}

fn body(tenant: &str) -> String {
    json!({ "tenant": tenant, "from": "2026-01-01", "to": "2026-01-03", "dimensions": [] }).to_string()
}

/// What a command says that ends at once.
fn refused(arguments: &[&str], place: &Place) -> String {
    let output = Command::new(PROGRAM).args(arguments).arg("--dir").arg(place.dir()).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn events_feed_and_answers_go_over_tls() {
    let place = Place::new();
    let authority = Authority::new(place.path(), "ca");
    let secret = place.secret();
    let identity = authority.issue(place.path(), "server", 2_099);
    let server = serve(&place, &["--secret-file", &secret, "--flush-s", "3600"], &identity);
    let producer = place.bearer(&[]);
    let sent = authority.request(&server, "POST", "/v1/events", &producer, &event("a", "x", "00:10:00"));
    assert_eq!(sent.status, 200, "{sent:?}");
    let own = authority.issue(place.path(), "query", 2_099);
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let options = [&["--ca", &authority.file, "--secret-file", &secret], &own[..]].concat();
    let process = query_server(&place, &url(&server), &options);
    until("the manifest", || authority.request(&process, "GET", "/readyz", "x: y", "").status == 200);
    for asked in [&server, &process] {
        let answer = authority.request(asked, "POST", QUERY, &place.bearer(&["--tenant", "a"]), &body("a"));
        assert_eq!(answer.json()["total"], json!(1), "rows in memory are there too: {answer:?}");
        // Without TLS nothing is answered, whatever the token.
        let plain = asked.request("POST", QUERY, &[&producer], body("a").as_bytes()).unwrap();
        assert_eq!((plain.status, plain.code().as_str()), (400, "tls_needed"), "{plain:?}");
    }
}

#[test]
fn query_process_takes_no_rows_of_servers_it_cannot_check() {
    let place = Place::new();
    let authority = Authority::new(place.path(), "ca");
    let other = Authority::new(place.path(), "other");
    let says = |server: &str, ca: Option<&Authority>, reason: &str| {
        let options: Vec<&str> = ca.iter().flat_map(|ca| ["--ca", &ca.file]).collect();
        let process = query_server(&place, server, &options);
        until(reason, || process.post(QUERY, body("a")).text.contains(reason));
        assert!(!is_ready(&process));
    };
    let valid = serve(&place, &[], &authority.issue(place.path(), "valid", 2_099));
    says(&url(&valid), Some(&other), "UnknownIssuer");
    says(&format!("https://{}", valid.address), Some(&authority), "certificate not valid for name");
    says(&valid.address, None, "tls_needed");
    let process = query_server(&place, &url(&valid), &["--ca", &authority.file]);
    until("the manifest", || is_ready(&process));
    drop((process, valid));
    let expired = serve(&place, &[], &authority.issue(place.path(), "expired", 2_020));
    says(&url(&expired), Some(&authority), "certificate expired");
    drop(expired);
    let plain = serve(&place, &[], &[]);
    says(&url(&plain), Some(&authority), "TLS: ");
}

#[test]
fn other_machines_are_talked_to_over_tls_only() {
    let place = Place::new();
    let secret = &place.secret();
    let authority = Authority::new(place.path(), "ca");
    let everywhere = ["serve", "--listen", "0.0.0.0:0", "--secret-file", secret];
    let said = refused(&everywhere, &place);
    assert!(said.contains("not be encrypted: name --tls-certificate-file and --tls-key-file"), "{said}");
    let queries = ["query-server", "--listen", "127.0.0.1:0", "--secret-file", secret, "--server"];
    let far = |server: &str, more: &[&str]| refused(&[&queries[..], &[server], more].concat(), &place);
    for server in ["10.1.2.3:7180", "http://counts.example:7180"] {
        assert!(far(server, &[]).contains(&format!("--server {server}: it is on another machine")));
    }
    assert!(far("counts.example", &[]).contains("HOST:PORT, http://HOST:PORT or https://HOST:PORT is expected"));
    assert!(far("127.0.0.1:1", &["--ca", &authority.file]).contains("--ca goes with a --server"));
    let identity = authority.issue(place.path(), "server", 2_099);
    let half = [&everywhere[..], &["--tls-certificate-file", &identity[1]]].concat();
    assert!(refused(&half, &place).contains("--tls-key-file"));
    let other = authority.issue(place.path(), "other", 2_099);
    let mixed = [&everywhere[..], &["--tls-certificate-file", &identity[1], "--tls-key-file", &other[3]]].concat();
    assert!(refused(&mixed, &place).contains("is not that of the certificate"));
    for allowed in [&["--plain-http".to_owned()][..], &identity] {
        let mut command = Command::new(PROGRAM);
        command.args(everywhere).args(allowed).arg("--dir").arg(place.dir());
        drop(Server::of(command).unwrap());
    }
    assert!(far("10.1.2.3:7180", &["--plain-http"]).contains("http://HOST:PORT together with --plain-http"));
    let mut command = Command::new(PROGRAM);
    command.args(queries).args(["http://10.1.2.3:7180", "--plain-http", "--dir"]).arg(place.dir());
    drop(Server::of(command).unwrap());
}
