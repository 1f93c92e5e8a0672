//! The admitted diallers, and the reasons for the others.

mod common;

use std::sync::Arc;

use common::{Pair, bind, credentials, loopback, soon};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidemark_transport::certs::{CertificateRefusal, ClusterCa, Validity};
use tidemark_transport::{
    AcceptError, BindError, ConnectError, ConnectionLost, Credentials, Endpoint, EndpointOptions, Identity, Link,
    LinkPlan, PeerAlert, PeerName, Role,
};

const EXPIRED: Validity = Validity { not_before_unix_s: 1_000_000_000, not_after_unix_s: 1_000_086_400 };

fn options() -> EndpointOptions {
    EndpointOptions::default()
}

fn usa_aggregator() -> PeerName {
    PeerName::any("usa-0", Role::Aggregator).unwrap()
}

/// The results at both ends when the first dials the second.
async fn dial(client: Credentials, server: Credentials, expected: &PeerName) -> (ConnectError, AcceptError) {
    let client = bind(client, options());
    let server = bind(server, options());
    let both = async { tokio::join!(client.connect(server.local_addr(), expected), server.accept()) };
    let (dialled, accepted) = soon("a refusal", both).await;
    (dialled.unwrap_err(), accepted.unwrap().unwrap_err())
}

#[tokio::test]
async fn both_ends_know_each_other() {
    let pair = Pair::new(options(), options());
    let (client, server) = pair.connect().await;
    assert_eq!(client.peer(), pair.server.identity());
    assert_eq!(server.peer(), pair.client.identity());
    assert_eq!(client.remote_addr(), pair.server.local_addr());
    assert_eq!(server.remote_addr(), pair.client.local_addr());
    client.close("enough");
    let lost = soon("the close", server.closed()).await;
    assert_eq!(lost, ConnectionLost::ClosedByPeer { reason: "enough".into() });
    assert_eq!(client.closed().await, ConnectionLost::ClosedHere);
}

#[tokio::test]
async fn a_process_that_starts_again_is_recognized_long_before_the_idle_timeout() {
    let ca = ClusterCa::generate("demo").unwrap();
    let own = credentials(&ca, "usa-0", Role::Aggregator, "a1");
    let peer = credentials(&ca, "asia-0", Role::Node, "n1");
    let patient = EndpointOptions { idle_timeout_ms: 600_000, keep_alive_ms: 100, ..options() };
    let client = bind(peer, patient.clone());
    let first_life = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (addr, connection, accepted) = {
        let server = first_life.spawn({
            let own = own.clone();
            let patient = patient.clone();
            async move { bind(own, patient) }
        });
        let server = server.await.unwrap();
        let expected = usa_aggregator();
        let both = async { tokio::join!(client.connect(server.local_addr(), &expected), server.accept()) };
        let (dialled, accepted) = soon("a connection", both).await;
        (server.local_addr(), dialled.unwrap(), accepted)
    };
    // Its tasks end in the middle of things, and only then its end of the connection: nothing is said to the peer.
    let ended = tokio::task::spawn_blocking(move || first_life.shutdown_timeout(std::time::Duration::from_secs(5)));
    soon("the end of the first life", ended).await.unwrap();
    drop(accepted);
    let again = async {
        loop {
            match Endpoint::bind(addr, own.clone(), patient.clone()) {
                Ok(server) => break server,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        }
    };
    let _second_life = soon("the socket", again).await;
    let lost = soon("the reset", connection.closed()).await;
    let at_once = matches!(lost, ConnectionLost::Reset | ConnectionLost::ClosedByPeer { .. });
    assert!(at_once, "{lost:?}: the idle timeout of ten minutes cannot have passed");
}

#[tokio::test]
async fn one_process_can_be_dialled_by_name() {
    let pair = Pair::new(options(), options());
    let addr = pair.server.local_addr();
    let right = PeerName::one("usa-0", Role::Aggregator, "a1").unwrap();
    soon("a connection", pair.client.connect(addr, &right)).await.unwrap();
    let wrong = PeerName::one("usa-0", Role::Aggregator, "a2").unwrap();
    let refused = soon("a refusal", pair.client.connect(addr, &wrong)).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Refused { refusal: CertificateRefusal::WrongName { .. }, .. }));
}

#[tokio::test]
async fn a_server_of_another_ca_is_refused() {
    let ours = ClusterCa::generate("demo").unwrap();
    let theirs = ClusterCa::generate("demo").unwrap();
    let client = credentials(&ours, "asia-0", Role::Node, "n1");
    let server = credentials(&theirs, "usa-0", Role::Aggregator, "a1");
    let (dialled, accepted) = dial(client, server, &usa_aggregator()).await;
    let ConnectError::Refused { refusal: CertificateRefusal::UnknownCa { who, expected, seen }, .. } = dialled else {
        panic!("{dialled}");
    };
    assert_eq!(who, "tidemark://demo/usa-0/aggregator/a1");
    assert!(expected.starts_with("CN=tidemark demo ca ") && expected != seen, "{expected} {seen}");
    assert!(matches!(accepted, AcceptError::RefusedByPeer { alert: PeerAlert::UnknownCa, .. }), "{accepted}");
}

/// A client that dials our server with whatever TLS it likes.
async fn dial_raw(server: &Endpoint, config: rustls::ClientConfig) -> AcceptError {
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    let client = quinn::Endpoint::client(loopback()).unwrap();
    let name = usa_aggregator().dns_name("demo");
    let dialled = client.connect_with(config, server.local_addr(), &name).unwrap();
    let (_, accepted) = tokio::join!(dialled, soon("a refusal", server.accept()));
    accepted.unwrap().unwrap_err()
}

fn trusting(ca: &ClusterCa) -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_root_certificates(roots)
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let ca = ClusterCa::generate("demo").unwrap();
    let server = bind(credentials(&ca, "usa-0", Role::Aggregator, "a1"), options());
    let mut config = trusting(&ca).with_no_client_auth();
    config.alpn_protocols = vec![b"tidemark/1".to_vec()];
    let accepted = dial_raw(&server, config).await;
    assert!(matches!(&accepted, AcceptError::NoCertificate { cluster, .. } if cluster == "demo"), "{accepted}");
}

#[tokio::test]
async fn a_client_that_speaks_something_else_is_refused() {
    let ca = ClusterCa::generate("demo").unwrap();
    let server = bind(credentials(&ca, "usa-0", Role::Aggregator, "a1"), options());
    let mut config = trusting(&ca).with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    let accepted = dial_raw(&server, config).await;
    assert!(matches!(accepted, AcceptError::Protocol { .. }), "{accepted}");
}

#[tokio::test]
async fn a_client_of_another_ca_is_refused_and_told_so() {
    let ours = ClusterCa::generate("demo").unwrap();
    let theirs = ClusterCa::generate("demo").unwrap();
    let identity = Identity::new("demo", "asia-0", Role::Node, "n1").unwrap();
    let stranger = theirs.issue(&identity, 1).unwrap();
    let dir = tempfile::tempdir().unwrap();
    stranger.save(dir.path()).unwrap();
    std::fs::write(dir.path().join("ca.pem"), ours.pem()).unwrap();
    let stranger = Credentials::load(dir.path()).unwrap();
    let server = credentials(&ours, "usa-0", Role::Aggregator, "a1");
    let (dialled, accepted) = dial(stranger, server, &usa_aggregator()).await;
    assert!(
        matches!(&dialled, ConnectError::RefusedByPeer { alert: PeerAlert::UnknownCa, us, .. } if *us == identity),
        "{dialled}"
    );
    assert!(
        matches!(&accepted, AcceptError::Refused { refusal: CertificateRefusal::UnknownCa { .. }, .. }),
        "{accepted}"
    );
}

#[tokio::test]
async fn another_data_centre_than_expected_is_refused() {
    let ca = ClusterCa::generate("demo").unwrap();
    let client = credentials(&ca, "asia-0", Role::Node, "n1");
    let server = credentials(&ca, "europe-0", Role::Aggregator, "a1");
    let (dialled, accepted) = dial(client, server, &usa_aggregator()).await;
    let ConnectError::Refused { refusal, .. } = dialled else { panic!("{dialled}") };
    let expected = "aggregator.usa-0.demo.tidemark".into();
    let seen = "tidemark://demo/europe-0/aggregator/a1".into();
    assert_eq!(refusal, CertificateRefusal::WrongName { expected, seen });
    assert!(matches!(accepted, AcceptError::RefusedByPeer { alert: PeerAlert::BadCertificate, .. }), "{accepted}");
}

#[tokio::test]
async fn an_expired_server_is_refused() {
    let ca = ClusterCa::generate("demo").unwrap();
    let identity = Identity::new("demo", "usa-0", Role::Aggregator, "a1").unwrap();
    let server = ca.issue_for(&identity, EXPIRED).unwrap();
    let client = credentials(&ca, "asia-0", Role::Node, "n1");
    let (dialled, accepted) = dial(client, server, &usa_aggregator()).await;
    let ConnectError::Refused { refusal: CertificateRefusal::Expired { who, not_after_unix_s, .. }, .. } = dialled
    else {
        panic!("{dialled}");
    };
    assert_eq!((who, not_after_unix_s), (identity.to_string(), EXPIRED.not_after_unix_s));
    assert!(matches!(accepted, AcceptError::RefusedByPeer { alert: PeerAlert::CertificateExpired, .. }), "{accepted}");
}

#[tokio::test]
async fn an_expired_client_is_refused_and_told_so() {
    let ca = ClusterCa::generate("demo").unwrap();
    let identity = Identity::new("demo", "asia-0", Role::Client, "fe1").unwrap();
    let client = ca.issue_for(&identity, EXPIRED).unwrap();
    let server = credentials(&ca, "usa-0", Role::Aggregator, "a1");
    let (dialled, accepted) = dial(client, server, &usa_aggregator()).await;
    assert!(matches!(dialled, ConnectError::RefusedByPeer { alert: PeerAlert::CertificateExpired, .. }), "{dialled}");
    assert!(
        matches!(&accepted, AcceptError::Refused { refusal: CertificateRefusal::Expired { .. }, .. }),
        "{accepted}"
    );
}

#[tokio::test]
async fn a_client_cannot_act_as_a_server() {
    let ca = ClusterCa::generate("demo").unwrap();
    let server = credentials(&ca, "usa-0", Role::Client, "fe1");
    let client = credentials(&ca, "asia-0", Role::Node, "n1");
    let (dialled, _) = dial(client, server, &usa_aggregator()).await;
    assert!(matches!(dialled, ConnectError::Refused { .. }), "{dialled}");
}

#[tokio::test]
async fn a_silent_address_times_out() {
    let ca = ClusterCa::generate("demo").unwrap();
    let silent = std::net::UdpSocket::bind(loopback()).unwrap();
    let options = EndpointOptions { handshake_timeout_ms: 200, ..options() };
    let client = bind(credentials(&ca, "asia-0", Role::Node, "n1"), options);
    let addr = silent.local_addr().unwrap();
    let dialled = soon("a timeout", client.connect(addr, &usa_aggregator())).await.unwrap_err();
    let expected = "aggregator.usa-0.demo.tidemark".into();
    assert_eq!(dialled, ConnectError::TimedOut { addr: addr.into(), expected, waited_ms: 200 });
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let ca = ClusterCa::generate("demo").unwrap();
    let taken = std::net::UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let holder = std::net::UdpSocket::bind(taken).unwrap();
    let refused = Endpoint::bind(taken, credentials(&ca, "usa-0", Role::Node, "n1"), options()).unwrap_err();
    assert!(matches!(refused, BindError::InUse { addr } if addr == taken), "{refused}");
    assert!(refused.to_string().contains(&taken.to_string()));
    drop(holder);
}

#[tokio::test]
async fn a_closed_endpoint_accepts_nothing_and_says_so_to_its_peers() {
    let pair = Pair::new(options(), options());
    let (client, _server) = pair.connect().await;
    soon("the close", pair.server.close("maintenance")).await;
    assert!(soon("the end", pair.server.accept()).await.is_none());
    let lost = soon("the news", client.closed()).await;
    assert_eq!(lost, ConnectionLost::ClosedByPeer { reason: "maintenance".into() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_handshake_holds_up_nobody() {
    let ca = ClusterCa::generate("demo").unwrap();
    let server = bind(credentials(&ca, "usa-0", Role::Aggregator, "a1"), options());
    let addr = server.local_addr();
    let plan = LinkPlan::new(1);
    plan.set(addr, Link::delay(300_000)).unwrap();
    let far = EndpointOptions { link_plan: Some(plan.clone()), ..options() };
    let far = bind(credentials(&ca, "asia-0", Role::Node, "far"), far);
    let near = bind(credentials(&ca, "usa-0", Role::Node, "near"), options());
    let dialling =
        tokio::spawn(async move { far.connect(addr, &usa_aggregator()).await.map(|connection| (far, connection)) });
    soon("the far dialler's second flight", async {
        while plan.counters(addr).datagrams < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let _near = soon("the near dialler", near.connect(addr, &usa_aggregator())).await.unwrap();
    let first = soon("an admission", server.accept()).await.unwrap().unwrap();
    let second = soon("another", server.accept()).await.unwrap().unwrap();
    assert_eq!((first.peer().name(), second.peer().name()), ("near", "far"));
    soon("the far dialler", dialling).await.unwrap().unwrap();
}
