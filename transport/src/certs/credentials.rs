//! The credentials of a process: its certificate, its key, its cluster's CA; and signatures made with that key.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ring::hmac;
use ring::signature::Ed25519KeyPair;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;

use super::files::{self, FileError};
use super::identity::Identity;
use super::trust::{CertificateRefusal, TrustAnchor, TrustError, identity_of};

/// Length of a signature, in bytes.
pub const SIGNATURE_BYTES: usize = 64;
/// Stands before the bytes that are signed, so that no signature of ours can pass for a TLS handshake's, which begins
/// with spaces (RFC 8446, 4.4.3).
pub const SIGNATURE_CONTEXT: &[u8] = b"tidemark signature 1\0";

/// Length of a derived secret, in bytes.
const DERIVED_BYTES: usize = 32;
const CA_FILE: &str = "ca.pem";
const CERT_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";

/// Why PEM texts are not a process's credentials.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CredentialsError {
    /// The CA cannot be used.
    #[error(transparent)]
    Ca(#[from] TrustError),
    /// A text is no PEM.
    #[error("the {what} cannot be read: {reason}")]
    Pem {
        /// Whether it is the certificate or the key.
        what: &'static str,
        /// The fault.
        reason: String,
    },
    /// The certificate names no process.
    #[error(transparent)]
    Certificate(#[from] CertificateRefusal),
    /// The key is of another kind, or its halves do not match.
    #[error("the key is no Ed25519 key that belongs together: {reason}")]
    Key {
        /// The fault.
        reason: String,
    },
    /// The key is another process's.
    #[error("the key is not that of the certificate of {subject}")]
    OtherKey {
        /// The owner of the certificate.
        subject: String,
    },
}

/// A process's certificate with its private key, and the CA it trusts. Cheap to clone; never printed.
#[derive(Clone)]
pub struct Credentials {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    anchor: TrustAnchor,
    certificate: CertificateDer<'static>,
    key_der: PrivatePkcs8KeyDer<'static>,
    signer: Ed25519KeyPair,
    pem: PemTexts,
}

struct PemTexts {
    ca: String,
    certificate: String,
    key: String,
}

impl Credentials {
    /// Reads credentials from PEM texts; says what is wrong with them if they do not belong together.
    ///
    /// The peers check whether the certificate is valid now.
    pub fn from_pem(ca: &str, certificate: &str, key: &str) -> Result<Self, CredentialsError> {
        let no_pem = |what| move |error: pem::Error| CredentialsError::Pem { what, reason: error.to_string() };
        let anchor = TrustAnchor::from_pem(ca)?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(no_pem("certificate"))?;
        let identity = identity_of(&der)?;
        let key_der = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).map_err(no_pem("key"))?;
        let signer = Ed25519KeyPair::from_pkcs8(key_der.secret_pkcs8_der())
            .map_err(|error| CredentialsError::Key { reason: error.to_string() })?;
        super::trust::check_key_belongs(&der, &signer)?;
        let pem = PemTexts { ca: ca.to_owned(), certificate: certificate.to_owned(), key: key.to_owned() };
        Ok(Self { inner: Arc::new(Inner { identity, anchor, certificate: der, key_der, signer, pem }) })
    }

    /// Writes `ca.pem`, `cert.pem` and `key.pem` (mode 0600) into `dir`, replacing older ones.
    pub fn save(&self, dir: &Path) -> Result<(), FileError> {
        files::make_dir(dir)?;
        files::write_private(&dir.join(KEY_FILE), &self.inner.pem.key)?;
        files::write_public(&dir.join(CERT_FILE), &self.inner.pem.certificate)?;
        files::write_public(&dir.join(CA_FILE), &self.inner.pem.ca)
    }

    /// Reads what [`Credentials::save`] wrote.
    pub fn load(dir: &Path) -> Result<Self, FileError> {
        let ca = files::read(&dir.join(CA_FILE))?;
        let certificate = files::read(&dir.join(CERT_FILE))?;
        let key = files::read(&dir.join(KEY_FILE))?;
        Self::from_pem(&ca, &certificate, &key).map_err(FileError::content(dir))
    }

    /// The identity of this process.
    pub fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    /// The CA this process trusts.
    pub fn anchor(&self) -> &TrustAnchor {
        &self.inner.anchor
    }

    /// The certificate, in DER.
    pub fn certificate_der(&self) -> &[u8] {
        &self.inner.certificate
    }

    /// Signs [`SIGNATURE_CONTEXT`] followed by `bytes` (Ed25519). [`TrustAnchor::verify`] checks it.
    pub fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.inner.signer.sign(&signed_text(bytes));
        signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }

    /// A secret for one purpose, the same in every process that runs with this key.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; DERIVED_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.inner.key_der.secret_pkcs8_der());
        hmac::sign(&key, purpose.as_bytes()).as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.inner.certificate.clone()
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.inner.key_der.clone_key())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.inner.identity)
    }
}

/// The bytes that a signature covers.
pub(super) fn signed_text(bytes: &[u8]) -> Vec<u8> {
    [SIGNATURE_CONTEXT, bytes].concat()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::{ClusterCa, Role};
    use super::*;

    fn issue(name: &str) -> Credentials {
        let ca = ClusterCa::generate("demo").unwrap();
        ca.issue(&Identity::new("demo", "usa-0", Role::Node, name).unwrap(), 1).unwrap()
    }

    #[test]
    fn credentials_survive_their_files_and_can_be_renewed() {
        let dir = tempfile::tempdir().unwrap();
        issue("old").save(dir.path()).unwrap();
        issue("new").save(dir.path()).unwrap();
        assert_eq!(Credentials::load(dir.path()).unwrap().identity().name(), "new");
        let mode = fs::metadata(dir.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused() {
        let one = tempfile::tempdir().unwrap();
        let two = tempfile::tempdir().unwrap();
        issue("one").save(one.path()).unwrap();
        issue("two").save(two.path()).unwrap();
        fs::copy(two.path().join(KEY_FILE), one.path().join(KEY_FILE)).unwrap();
        assert!(matches!(Credentials::load(one.path()), Err(FileError::Content { .. })));
        fs::write(one.path().join(CERT_FILE), "nonsense").unwrap();
        assert!(matches!(Credentials::load(one.path()), Err(FileError::Content { .. })));
        fs::remove_file(one.path().join(CERT_FILE)).unwrap();
        assert!(matches!(Credentials::load(one.path()), Err(FileError::Io { .. })));
    }

    #[test]
    fn the_private_key_is_not_printed() {
        assert_eq!(format!("{:?}", issue("n1")), "Credentials(tidemark://demo/usa-0/node/n1)");
    }
}
