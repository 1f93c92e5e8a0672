//! `tidemark certs`: a CA and credentials that processes can load, and nothing overwritten.

use std::path::{Path, PathBuf};
use std::process::Command;
use tidemark_transport::Credentials;

fn certs(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidemark")).arg("certs").args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

#[test]
fn one_call_issues_credentials_for_a_whole_layout_and_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca");
    let out = dir.path().join("out");
    let layout = deploy("cluster.toml");
    let [ca, out_text, layout] = [&ca, &out, &layout].map(|path| path.to_str().unwrap().to_owned());
    assert!(certs(&["init", "--cluster", "demo", "--out", &ca]).0);
    let again = certs(&["init", "--cluster", "demo", "--out", &ca]);
    assert!(!again.0 && again.1.contains("exists already; a cluster's CA is not overwritten"), "{}", again.1);
    let issue = ["issue", "--ca", &ca, "--cluster", &layout, "--out", &out_text];
    let issued = certs(&issue);
    assert!(issued.0, "{}", issued.1);
    let aggregator = Credentials::load(&out.join("europe-0/aggregator")).unwrap();
    assert_eq!(aggregator.identity().to_string(), "tidemark://demo/europe-0/aggregator/0");
    let node = Credentials::load(&out.join("asia-0/node-0")).unwrap();
    assert_eq!(node.identity().to_string(), "tidemark://demo/asia-0/node/0");
    let again = certs(&issue);
    assert!(!again.0 && again.1.contains("exists already; nothing was issued"), "{}", again.1);
}

#[test]
fn one_process_and_its_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    assert!(certs(&["init", "--cluster", "other", "--out", &path("ca")]).0);
    let issue = |dc: &str| {
        certs(&["issue", "--ca", &path("ca"), "--dc", dc, "--role", "client", "--name", "web-1", "--out", &path("web")])
    };
    assert!(issue("USA").1.contains("allowed are a-z, 0-9 and -"));
    assert!(issue("usa-0").0);
    assert_eq!(Credentials::load(&dir.path().join("web")).unwrap().identity().name(), "web-1");
    let layout = deploy("cluster.toml");
    let foreign = certs(&["issue", "--ca", &path("ca"), "--cluster", layout.to_str().unwrap(), "--out", &path("x")]);
    assert!(!foreign.0 && foreign.1.contains("the CA is that of the cluster other"), "{}", foreign.1);
    assert!(!dir.path().join("x").exists());
    assert!(certs(&["init", "--cluster", "Not A Name", "--out", &path("y")]).1.contains("cluster"));
}
