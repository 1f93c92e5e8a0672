//! The checks of a certificate: that the cluster's CA signed it, that it is valid at a time, and the identity that it names.
//!
//! The same checks serve TLS handshakes and signatures that are verified offline, years later. Chains are walked by
//! rustls' webpki (RFC 5280); this module turns its answers into errors that name what was expected and what was seen.

use std::sync::Arc;
use std::time::Duration;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, RootCertStore};
use thiserror::Error;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::credentials::{CredentialsError, signed_text};
use super::identity::{Identity, IdentityError, Role, cluster_of_uri};

/// The CA's certificate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TrustError {
    /// The text holds no certificate.
    #[error("the CA certificate cannot be read: {0}")]
    Pem(String),
    /// The certificate is that of a process, or was not made by Tidemark.
    #[error("the certificate of {subject} is not that of a cluster's CA")]
    NotCa {
        /// The owner of the certificate.
        subject: String,
    },
}

/// Why a certificate is not believed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CertificateRefusal {
    /// Another CA signed it, or its signature is wrong.
    #[error("{who} shows a certificate issued by {seen}, expected {expected}")]
    UnknownCa {
        /// The identity in the certificate, unproven.
        who: String,
        /// The CA that is trusted.
        expected: String,
        /// The CA that the certificate names.
        seen: String,
    },
    /// It is for another process than the one that was dialled.
    #[error("expected {expected}, met {seen}")]
    WrongName {
        /// The DNS name that was dialled.
        expected: String,
        /// The identity in the certificate.
        seen: String,
    },
    /// It belongs to another cluster.
    #[error("expected a process of the cluster {expected}, met {seen}")]
    WrongCluster {
        /// Our cluster.
        expected: String,
        /// The identity in the certificate.
        seen: Identity,
    },
    /// It is no longer valid.
    #[error("the certificate of {who} ended at {not_after_unix_s}, it is {at_unix_s} (Unix seconds)")]
    Expired {
        /// The owner of the certificate, or the CA's name.
        who: String,
        /// Its last second.
        not_after_unix_s: u64,
        /// The time it was checked for.
        at_unix_s: u64,
    },
    /// It is not yet valid.
    #[error("the certificate of {who} begins at {not_before_unix_s}, it is {at_unix_s} (Unix seconds)")]
    NotYetValid {
        /// The owner of the certificate, or the CA's name.
        who: String,
        /// Its first second.
        not_before_unix_s: u64,
        /// The time it was checked for.
        at_unix_s: u64,
    },
    /// It is not X.509 as we write it.
    #[error("the certificate cannot be read: {0}")]
    Malformed(String),
    /// It carries no name of a process, or not one that is allowed.
    #[error("the certificate names no process: {0}")]
    Identity(#[from] IdentityError),
    /// Anything else that webpki objects to, such as a client that acts as a server.
    #[error("the certificate of {who} is refused: {reason}")]
    Other {
        /// The identity in the certificate, unproven.
        who: String,
        /// webpki's reason.
        reason: String,
    },
}

/// Why a signature is not believed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VerifyError {
    /// The signer's certificate is not believed.
    #[error(transparent)]
    Certificate(#[from] CertificateRefusal),
    /// The signer is known, but its role may not sign this.
    #[error("{seen} is no {expected}")]
    WrongRole {
        /// The role that may sign.
        expected: Role,
        /// The signer.
        seen: Identity,
    },
    /// The signature is not that of these bytes by this certificate's key.
    #[error("the signature does not match the bytes and the key of {signer}")]
    Signature {
        /// The owner of the shown certificate.
        signer: Identity,
    },
}

/// A cluster's CA as processes without its key know it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TrustAnchor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cluster: String,
    ca: Summary,
    public_key: Vec<u8>,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
}

/// The description of a certificate in error messages.
#[derive(Debug, Clone)]
struct Summary {
    subject: String,
    issuer: String,
    not_before_unix_s: u64,
    not_after_unix_s: u64,
}

impl TrustAnchor {
    /// Reads a CA's certificate.
    pub fn from_pem(pem: &str) -> Result<Self, TrustError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| TrustError::Pem(error.to_string()))?;
        let cert = parse(&der).map_err(|error| TrustError::Pem(error.to_string()))?;
        let ca = Summary::of(&cert);
        let uris = uris(&cert);
        let cluster = match uris[..] {
            [uri] if cert.is_ca() => cluster_of_uri(uri),
            _ => None,
        };
        let cluster = cluster.ok_or_else(|| TrustError::NotCa { subject: ca.subject.clone() })?.to_owned();
        let public_key = key_of(&cert).to_vec();
        let (clients, servers) = verifiers(&der)?;
        Ok(Self { inner: Arc::new(Inner { cluster, ca, public_key, clients, servers }) })
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// Checks a process's certificate for a time, in Unix seconds, and returns its identity.
    pub fn check(&self, certificate_der: &[u8], at_unix_s: u64) -> Result<Identity, CertificateRefusal> {
        let der = CertificateDer::from(certificate_der);
        self.check_client(&der, &[], at_unix_s)
    }

    /// Checks offline that an aggregator of this cluster signed `bytes`, with a certificate valid at that time.
    ///
    /// The certificate is expected to be signed by the CA itself. Returns the signer.
    pub fn verify(
        &self,
        bytes: &[u8],
        signature: &[u8],
        certificate_der: &[u8],
        at_unix_s: u64,
    ) -> Result<Identity, VerifyError> {
        let signer = self.check(certificate_der, at_unix_s)?;
        if signer.role() != Role::Aggregator {
            return Err(VerifyError::WrongRole { expected: Role::Aggregator, seen: signer });
        }
        let cert = parse(certificate_der)?;
        let verified = UnparsedPublicKey::new(&ED25519, key_of(&cert)).verify(&signed_text(bytes), signature);
        verified.map(|()| signer.clone()).map_err(|_| VerifyError::Signature { signer })
    }

    /// Checks a certificate shown by a process that dialled us.
    pub(crate) fn check_client(
        &self,
        der: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        at_unix_s: u64,
    ) -> Result<Identity, CertificateRefusal> {
        let verified = self.inner.clients.verify_client_cert(der, intermediates, unix_time(at_unix_s));
        verified.map_err(|error| refusal(&self.inner.ca, der, None, error))?;
        self.check_names(der, at_unix_s)
    }

    /// Checks a certificate shown by a process that we dialled by this name.
    pub(crate) fn check_server(
        &self,
        der: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        at_unix_s: u64,
    ) -> Result<Identity, CertificateRefusal> {
        let now = unix_time(at_unix_s);
        let verified = self.inner.servers.verify_server_cert(der, intermediates, name, &[], now);
        verified.map_err(|error| refusal(&self.inner.ca, der, Some(name), error))?;
        self.check_names(der, at_unix_s)
    }

    pub(crate) fn tls_verifier(&self) -> &WebPkiServerVerifier {
        &self.inner.servers
    }

    pub(super) fn public_key(&self) -> &[u8] {
        &self.inner.public_key
    }

    fn check_names(&self, der: &[u8], at_unix_s: u64) -> Result<Identity, CertificateRefusal> {
        self.inner.ca.check_time(at_unix_s)?;
        let seen = identity_of(der)?;
        match seen.cluster() == self.cluster() {
            true => Ok(seen),
            false => Err(CertificateRefusal::WrongCluster { expected: self.cluster().to_owned(), seen }),
        }
    }
}

impl Summary {
    fn of(cert: &X509Certificate<'_>) -> Self {
        let validity = cert.validity();
        Self {
            subject: cert.subject().to_string(),
            issuer: cert.issuer().to_string(),
            not_before_unix_s: seconds(validity.not_before.timestamp()),
            not_after_unix_s: seconds(validity.not_after.timestamp()),
        }
    }

    /// webpki does not look at the validity of trust anchors.
    fn check_time(&self, at_unix_s: u64) -> Result<(), CertificateRefusal> {
        if at_unix_s > self.not_after_unix_s {
            return Err(self.expired(&self.subject, at_unix_s));
        }
        if at_unix_s < self.not_before_unix_s {
            return Err(self.not_yet_valid(&self.subject, at_unix_s));
        }
        Ok(())
    }

    fn expired(&self, who: &str, at_unix_s: u64) -> CertificateRefusal {
        let not_after_unix_s = self.not_after_unix_s;
        CertificateRefusal::Expired { who: who.to_owned(), not_after_unix_s, at_unix_s }
    }

    fn not_yet_valid(&self, who: &str, at_unix_s: u64) -> CertificateRefusal {
        let not_before_unix_s = self.not_before_unix_s;
        CertificateRefusal::NotYetValid { who: who.to_owned(), not_before_unix_s, at_unix_s }
    }
}

/// The identity in a certificate, without any check of the certificate.
pub(crate) fn identity_of(der: &[u8]) -> Result<Identity, CertificateRefusal> {
    let cert = parse(der)?;
    let uris = uris(&cert);
    let [uri] = uris[..] else {
        return Err(IdentityError::Shape(format!("{} URIs", uris.len())).into());
    };
    Ok(uri.parse::<Identity>()?)
}

/// Says what is wrong if the key is not the certificate's.
pub(super) fn check_key_belongs(der: &[u8], key: &Ed25519KeyPair) -> Result<(), CredentialsError> {
    let cert = parse(der)?;
    match key_of(&cert) == key.public_key().as_ref() {
        true => Ok(()),
        false => Err(CredentialsError::OtherKey { subject: cert.subject().to_string() }),
    }
}

/// The cryptography of all our TLS: ring.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

type Verifiers = (Arc<dyn ClientCertVerifier>, Arc<WebPkiServerVerifier>);

fn verifiers(ca: &CertificateDer<'static>) -> Result<Verifiers, TrustError> {
    let unusable = |error: VerifierBuilderError| TrustError::Pem(error.to_string());
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).map_err(|error| TrustError::Pem(error.to_string()))?;
    let roots = Arc::new(roots);
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider()).build();
    let servers = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
    Ok((clients.map_err(unusable)?, servers.map_err(unusable)?))
}

#[allow(clippy::wildcard_enum_match_arm, reason = "CertificateError is of another crate and grows")]
fn refusal(ca: &Summary, der: &[u8], dialled: Option<&ServerName<'_>>, error: rustls::Error) -> CertificateRefusal {
    let cert = match parse(der) {
        Ok(cert) => Summary::of(&cert),
        Err(malformed) => return malformed,
    };
    let who = identity_of(der).map_or_else(|_| cert.subject.clone(), |identity| identity.to_string());
    let rustls::Error::InvalidCertificate(reason) = error else {
        return CertificateRefusal::Other { who, reason: error.to_string() };
    };
    match reason {
        CertificateError::ExpiredContext { time, .. } => cert.expired(&who, time.as_secs()),
        CertificateError::NotValidYetContext { time, .. } => cert.not_yet_valid(&who, time.as_secs()),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            CertificateRefusal::UnknownCa { who, expected: ca.subject.clone(), seen: cert.issuer }
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let expected = dialled.map_or_else(String::new, |name| name.to_str().into_owned());
            CertificateRefusal::WrongName { expected, seen: who }
        }
        reason => CertificateRefusal::Other { who, reason: reason.to_string() },
    }
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateRefusal> {
    match X509Certificate::from_der(der) {
        Ok(([], cert)) => Ok(cert),
        Ok((rest, _)) => Err(CertificateRefusal::Malformed(format!("{} bytes follow it", rest.len()))),
        Err(error) => Err(CertificateRefusal::Malformed(error.to_string())),
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "GeneralName is of another crate and grows")]
fn uris<'c>(cert: &'c X509Certificate<'_>) -> Vec<&'c str> {
    let names = cert.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| extension.value.general_names.iter());
    let uri = |name: &'c GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    };
    names.into_iter().flatten().filter_map(uri).collect()
}

fn key_of<'c>(cert: &'c X509Certificate<'_>) -> &'c [u8] {
    &cert.public_key().subject_public_key.data
}

fn unix_time(at_unix_s: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(at_unix_s))
}

fn seconds(timestamp: i64) -> u64 {
    u64::try_from(timestamp).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::super::authority::unix_now_s;
    use super::super::{ClusterCa, Credentials, Validity};
    use super::*;

    /// Tomorrow and the day after, so that the CA of today is valid then.
    static FROM: LazyLock<u64> = LazyLock::new(|| unix_now_s() + 86_400);
    static TO: LazyLock<u64> = LazyLock::new(|| *FROM + 86_400);
    const BYTES: &[u8] = b"milestone 1000000000";

    fn ca() -> ClusterCa {
        ClusterCa::generate("demo").unwrap()
    }

    fn issue(ca: &ClusterCa, role: Role) -> Credentials {
        let identity = Identity::new("demo", "usa-0", role, "a1").unwrap();
        ca.issue_for(&identity, Validity { not_before_unix_s: *FROM, not_after_unix_s: *TO }).unwrap()
    }

    fn verify(ca: &ClusterCa, signer: &Credentials, at: u64) -> Result<Identity, VerifyError> {
        ca.anchor().verify(BYTES, &signer.sign(BYTES), signer.certificate_der(), at)
    }

    #[test]
    fn a_signature_of_an_aggregator_is_believed() {
        let ca = ca();
        let signer = issue(&ca, Role::Aggregator);
        assert_eq!(&verify(&ca, &signer, *FROM).unwrap(), signer.identity());
        assert_eq!(&verify(&ca, &signer, *TO).unwrap(), signer.identity());
    }

    #[test]
    fn the_ca_must_be_ours() {
        let ours = ca();
        let theirs = ca();
        let refused = verify(&ours, &issue(&theirs, Role::Aggregator), *FROM).unwrap_err();
        let VerifyError::Certificate(CertificateRefusal::UnknownCa { expected, seen, .. }) = refused else {
            panic!("{refused}");
        };
        assert_eq!(
            (expected, seen),
            (ours.anchor().inner.ca.subject.clone(), theirs.anchor().inner.ca.subject.clone())
        );
    }

    #[test]
    fn the_time_must_be_within_the_certificate() {
        let ca = ca();
        let signer = issue(&ca, Role::Aggregator);
        let late = verify(&ca, &signer, *TO + 1).unwrap_err();
        let who = signer.identity().to_string();
        let expired = CertificateRefusal::Expired { who: who.clone(), not_after_unix_s: *TO, at_unix_s: *TO + 1 };
        assert_eq!(late, VerifyError::Certificate(expired));
        let early = verify(&ca, &signer, *FROM - 1).unwrap_err();
        let not_yet = CertificateRefusal::NotYetValid { who, not_before_unix_s: *FROM, at_unix_s: *FROM - 1 };
        assert_eq!(early, VerifyError::Certificate(not_yet));
    }

    #[test]
    fn the_ca_itself_must_be_valid() {
        let ca = ca();
        let end = ca.anchor().inner.ca.not_after_unix_s;
        let identity = Identity::new("demo", "usa-0", Role::Aggregator, "a1").unwrap();
        let validity = Validity { not_before_unix_s: *FROM, not_after_unix_s: end + 1000 };
        let signer = ca.issue_for(&identity, validity).unwrap();
        let late = verify(&ca, &signer, end + 1).unwrap_err();
        assert!(matches!(late, VerifyError::Certificate(CertificateRefusal::Expired { .. })), "{late}");
    }

    #[test]
    fn only_aggregators_sign() {
        let ca = ca();
        let refused = verify(&ca, &issue(&ca, Role::Node), *FROM).unwrap_err();
        assert!(matches!(refused, VerifyError::WrongRole { expected: Role::Aggregator, .. }));
    }

    #[test]
    fn bytes_signature_and_certificate_must_belong_together() {
        let ca = ca();
        let signer = issue(&ca, Role::Aggregator);
        let signature = signer.sign(BYTES);
        let certificate = signer.certificate_der();
        let check = |bytes: &[u8], signature: &[u8]| ca.anchor().verify(bytes, signature, certificate, *FROM);
        assert!(matches!(check(b"milestone 2", &signature), Err(VerifyError::Signature { .. })));
        assert!(matches!(check(BYTES, &signature[..63]), Err(VerifyError::Signature { .. })));
        let other = issue(&ca, Role::Aggregator).sign(BYTES);
        assert!(matches!(check(BYTES, &other), Err(VerifyError::Signature { .. })));
    }

    #[test]
    fn a_ca_is_no_process_and_a_process_no_ca() {
        let ca = ca();
        let own = CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap();
        assert!(ca.anchor().check(&own, *FROM).is_err());
        let dir = tempfile::tempdir().unwrap();
        issue(&ca, Role::Node).save(dir.path()).unwrap();
        let leaf = std::fs::read_to_string(dir.path().join("cert.pem")).unwrap();
        assert!(matches!(TrustAnchor::from_pem(&leaf), Err(TrustError::NotCa { .. })));
        assert!(matches!(TrustAnchor::from_pem("nonsense"), Err(TrustError::Pem(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_damaged_certificate_is_refused(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let ca = ca();
            let mut der = issue(&ca, Role::Aggregator).certificate_der().to_vec();
            let at = at.index(der.len());
            der[at] ^= 1 << bit;
            prop_assert!(ca.anchor().check(&der, *FROM).is_err());
        }

        #[test]
        fn garbage_is_refused(der in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(ca().anchor().check(&der, *FROM).is_err());
        }
    }
}
