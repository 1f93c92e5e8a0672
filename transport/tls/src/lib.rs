//! TLS of HTTP: the servers that a client trusts, and the certificate that a server shows.
//!
//! The counters and event streams speak HTTP, each with a server of its own. Both read certificates and keys here. The cluster's own
//! connections are QUIC (`transport/`), with an authority of their own. [`private_file`] opens secrets, tokens and keys of both.

pub mod private_file;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsAcceptor;

/// A server looks so often whether its certificate was renewed.
pub const RENEWAL_INTERVAL: Duration = Duration::from_secs(60);
/// The permissions that a key's mode must not have. Its group may read it: so keys are handed to servers that are not their owner.
const OTHERS: u32 = 0o007;

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the authorities in {}: {reason}", path.display())]
    Authorities { path: PathBuf, reason: String },
    #[error("the operating system names no certificate authority: {0}")]
    NoAuthority(String),
    #[error("cannot read the {what} in {}: {reason}", path.display())]
    Identity { what: &'static str, path: PathBuf, reason: String },
    #[error("the key in {} is open to all users (mode {mode:o}); only its owner and group may read it: chmod o= it", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("the key in {} is not that of the certificate in {}: {reason}", key.display(), certificate.display())]
    Pair { certificate: PathBuf, key: PathBuf, reason: String },
    #[error("TLS: {0}")]
    Config(#[from] rustls::Error),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

// ---- clients -------------------------------------------------------------------------------------------------------------

/// The authorities that a client trusts.
#[derive(Clone)]
pub struct Trust(pub Arc<ClientConfig>);

impl Trust {
    /// Believes the authorities of a PEM file, or else those of the operating system.
    pub fn new(ca_file: Option<&Path>) -> Result<Trust, TlsError> {
        let roots = match ca_file {
            Some(path) => given(path)?,
            None => native()?,
        };
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        Ok(Trust(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }
}

fn given(path: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |reason: String| TlsError::Authorities { path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() { Err(failed("there is no certificate in it".to_owned())) } else { Ok(roots) }
}

fn native() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    let reason = || found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
    if roots.is_empty() { Err(TlsError::NoAuthority(reason())) } else { Ok(roots) }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

// ---- servers -------------------------------------------------------------------------------------------------------------

/// The identity of a server: certificates and a key in PEM files, which are read again when they change. Clones share it.
#[derive(Clone, Debug)]
pub struct ServerTls {
    files: Arc<Files>,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    identity: RwLock<Identity>,
}

/// When the files of a certificate and its key were changed last. `None`: one cannot be looked at.
pub type Changes = [Option<SystemTime>; 2];

#[derive(Clone, Debug)]
struct Identity {
    key: Arc<CertifiedKey>,
    changed: Changes,
}

impl ServerTls {
    /// Reads the server's certificate (with those between it and its authority behind it) and its key.
    pub fn read(certificate: &Path, key: &Path) -> Result<ServerTls, TlsError> {
        let provider = provider();
        let identity = RwLock::new(read(certificate, key, &provider)?);
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned(), provider, identity };
        let files = Arc::new(files);
        let builder = ServerConfig::builder_with_provider(files.provider.clone());
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(files.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(ServerTls { files, config: Arc::new(config) })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }

    /// Reads the files again if they have changed: connections from now on are told of the new certificate. Whether they had.
    ///
    /// # Errors
    /// The fault in the new files; the old ones stay.
    pub fn renew(&self) -> Result<bool, TlsError> {
        let Files { certificate, key, provider, identity } = &*self.files;
        if identity.read().unwrap_or_else(PoisonError::into_inner).changed == changed(certificate, key) {
            return Ok(false);
        }
        let renewed = read(certificate, key, provider)?;
        *identity.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(true)
    }

    /// When the files were changed last, whether or not they are used.
    pub fn changed(&self) -> Changes {
        changed(&self.files.certificate, &self.files.key)
    }

    /// Renews for ever.
    pub async fn keep_renewing(self) {
        loop {
            tokio::time::sleep(RENEWAL_INTERVAL).await;
            match self.renew() {
                Ok(true) => tracing::info!(file = %self.files.certificate.display(), "a new certificate is used"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the certificate is not renewed, the old one stays"),
            }
        }
    }
}

impl ResolvesServerCert for Files {
    fn resolve(&self, _hello: ClientHello) -> Option<Arc<CertifiedKey>> {
        Some(self.identity.read().unwrap_or_else(PoisonError::into_inner).key.clone())
    }
}

fn changed(certificate: &Path, key: &Path) -> Changes {
    [certificate, key].map(|path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
}

fn read(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<Identity, TlsError> {
    let failed = |what, path: &Path, reason: String| TlsError::Identity { what, path: path.to_owned(), reason };
    // Looked at before they are read: what changes meanwhile is read again.
    let changed = changed(certificate, key);
    let refused = |error: rustls::pki_types::pem::Error| failed("certificates", certificate, error.to_string());
    let chain = CertificateDer::pem_file_iter(certificate).map_err(refused)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(refused)?;
    if chain.is_empty() {
        return Err(failed("certificates", certificate, "there is no certificate in it".to_owned()));
    }
    check_closed(key)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed("key", key, error.to_string()))?;
    let pair = CertifiedKey::from_der(chain, private, provider).map_err(|error| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(Identity { key: Arc::new(pair), changed })
}

/// As ssh does: a key that all users may read proves nothing.
fn check_closed(key: &Path) -> Result<(), TlsError> {
    let failed =
        |error: std::io::Error| TlsError::Identity { what: "key", path: key.to_owned(), reason: error.to_string() };
    let mode = std::fs::metadata(key).map_err(failed)?.permissions().mode() & 0o777;
    if mode & OTHERS == 0 { Ok(()) } else { Err(TlsError::Exposed { path: key.to_owned(), mode }) }
}
