//! Whom we believe to be a receiver: certificates of the operating system's authorities, or of one that is given.

use super::Tls;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why receivers cannot be known.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the authorities in {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("the operating system names no certificate authority: {0}")]
    None(String),
    #[error("TLS: {0}")]
    Config(#[from] rustls::Error),
}

impl Tls {
    /// Believes the authorities of a PEM file, or else those of the operating system.
    pub fn new(ca_file: Option<&Path>) -> Result<Tls, TlsError> {
        let roots = match ca_file {
            Some(path) => given(path)?,
            None => native()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Tls(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }
}

fn given(path: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |reason: String| TlsError::File { path: path.to_owned(), reason };
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
    if roots.is_empty() { Err(TlsError::None(reason())) } else { Ok(roots) }
}
