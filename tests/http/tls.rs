//! HTTP over TLS, with the commands as clients.

use crate::memory::Memory;
use crate::support::{Running, TOKEN, options, server_tls, start_with};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tidemark_server::http::Options;
use tidemark_tls::{ServerTls, TlsError};
use tokio::process::Command;

/// The output of a command that trusts an authority, and whether it ended well.
async fn said(running: &Running, ca: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemark"));
    let server = format!("https://localhost:{}", running.address.port());
    command.args(arguments).env("TIDEMARK_SERVER", server).env("TIDEMARK_TOKEN", TOKEN).env("TIDEMARK_CA", ca);
    let output = command.kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(30), output).await.unwrap().unwrap();
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.success(), String::from_utf8_lossy(text).trim().to_owned())
}

#[tokio::test]
async fn all_of_http_is_over_tls_and_a_renewed_certificate_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, pem) = server_tls(folder.path(), "server");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let running = start_with(Memory::new(None), Options { tls: Some(tls.clone()), ..options() }).await;
    assert!(said(&running, &ca, &["milestones", "define", "search/q", "--at", "1"]).await.0);
    let before = running.memory.followers();
    // The total at first, and the award before or behind the next total.
    let watch = ["watch", "search/q", "--messages", "3", "--json"];
    let (watched, added) = tokio::join!(said(&running, &ca, &watch), async {
        running.until_waiting(before, 1).await;
        [said(&running, &ca, &["add", "search/q"]).await, said(&running, &ca, &["add", "search/q"]).await]
    });
    assert!(watched.0 && watched.1.contains("\"award\""), "{watched:?}");
    assert!(added.iter().all(|added| added.0), "{added:?}");

    // A client that does not speak TLS is not answered, and disturbs no other.
    let plain = running.send("GET", "/v1/counters/search/q", "").await;
    assert_eq!((plain.status, plain.body.contains("search")), (0, false));
    assert!(!tls.renew().unwrap(), "nothing has changed");
    let (_, renewed) = server_tls(folder.path(), "server");
    let later = SystemTime::now() + Duration::from_secs(5);
    std::fs::File::options()
        .append(true)
        .open(folder.path().join("server-key.pem"))
        .unwrap()
        .set_modified(later)
        .unwrap();
    assert!(tls.renew().unwrap());
    let refused = said(&running, &ca, &["get", "search/q"]).await;
    assert!(!refused.0 && refused.1.contains("certificate"), "the old authority: {refused:?}");
    std::fs::write(&ca, renewed).unwrap();
    assert!(said(&running, &ca, &["get", "search/q"]).await.0);
}

#[test]
fn certificates_and_keys_that_do_not_fit_are_refused_and_the_old_ones_stay() {
    let folder = tempfile::tempdir().unwrap();
    let ((tls, _), _) = (server_tls(folder.path(), "one"), server_tls(folder.path(), "other"));
    let file = |name: &str| folder.path().join(name);
    let read = |certificate: &str, key: &str| ServerTls::read(&file(certificate), &file(key)).unwrap_err();
    assert!(matches!(read("one-certificate.pem", "other-key.pem"), TlsError::Pair { .. }));
    let reason = |error: TlsError| error.to_string();
    assert!(reason(read("one-key.pem", "one-key.pem")).contains("there is no certificate in it"));
    std::fs::copy(file("one-certificate.pem"), file("no-key.pem")).unwrap();
    std::fs::set_permissions(file("no-key.pem"), Permissions::from_mode(0o600)).unwrap();
    assert!(reason(read("one-certificate.pem", "no-key.pem")).contains("cannot read the key in "));
    assert!(reason(read("none.pem", "one-key.pem")).contains("none.pem"));
    std::fs::write(file("one-certificate.pem"), "half a file").unwrap();
    assert!(tls.renew().is_err());
}

#[test]
fn a_key_that_everybody_may_read_or_change_is_refused_and_says_how_to_close_it() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = server_tls(folder.path(), "one");
    let [certificate, key] = ["one-certificate.pem", "one-key.pem"].map(|name| folder.path().join(name));
    for (mode, is_closed) in [(0o644, false), (0o602, false), (0o640, true), (0o600, true), (0o400, true)] {
        std::fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        match ServerTls::read(&certificate, &key) {
            Ok(_) => assert!(is_closed, "mode {mode:o}"),
            Err(error) => {
                let said = error.to_string();
                assert!(
                    !is_closed && said.contains("one-key.pem") && said.contains(&format!("(mode {mode:o})")),
                    "{said}"
                );
                assert!(said.contains("chmod o="), "{said}");
            }
        }
    }
    // An unsafe key in the place of a good key is not used.
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    std::fs::File::options().append(true).open(&key).unwrap().set_modified(later).unwrap();
    assert!(matches!(tls.renew(), Err(TlsError::Exposed { mode: 0o644, .. })));
}
