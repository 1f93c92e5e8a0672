//! TLS 1.3 with certificates on both sides. There is a configuration per handshake, so that the reason of a refusal is kept with the
//! handshake that it ended: rustls itself only reports an alert.

use std::sync::{Arc, Mutex, PoisonError};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::certs::trust::{TrustAnchor, provider};
use crate::certs::{CertificateRefusal, Credentials};

/// The protocol that both sides must speak (ALPN, RFC 7301).
pub(crate) const ALPN: &[u8] = b"tidemark/1";

/// Why the peer of a handshake was refused by us, if it was.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    refusal: Arc<Mutex<Option<CertificateRefusal>>>,
}

impl Verdict {
    /// Takes the reason out.
    pub(crate) fn take(&self) -> Option<CertificateRefusal> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn refuse(&self, refusal: CertificateRefusal) -> rustls::Error {
        let alert = alert_of(&refusal);
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        alert.into()
    }
}

/// The configuration for dialling once. No 0-RTT and no resumption: every connection shows its certificates anew.
pub(crate) fn client(credentials: &Credentials, verdict: &Verdict) -> Result<Arc<QuicClientConfig>, rustls::Error> {
    let verifier = Arc::new(Verifier { anchor: credentials.anchor().clone(), verdict: verdict.clone() });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(vec![credentials.certificate()], credentials.private_key())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(QuicClientConfig::try_from(config).map_err(no_initial_cipher)?))
}

/// The configuration for being dialled once.
pub(crate) fn server(credentials: &Credentials, verdict: &Verdict) -> Result<Arc<QuicServerConfig>, rustls::Error> {
    let verifier = Arc::new(Verifier { anchor: credentials.anchor().clone(), verdict: verdict.clone() });
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![credentials.certificate()], credentials.private_key())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(QuicServerConfig::try_from(config).map_err(no_initial_cipher)?))
}

fn no_initial_cipher(error: quinn::crypto::rustls::NoInitialCipherSuite) -> rustls::Error {
    rustls::Error::General(error.to_string())
}

/// The alert for the peer: the kind of the refusal.
fn alert_of(refusal: &CertificateRefusal) -> CertificateError {
    match refusal {
        CertificateRefusal::UnknownCa { .. } => CertificateError::UnknownIssuer,
        CertificateRefusal::WrongName { .. } => CertificateError::NotValidForName,
        CertificateRefusal::Expired { .. } => CertificateError::Expired,
        CertificateRefusal::NotYetValid { .. } => CertificateError::NotValidYet,
        CertificateRefusal::Malformed(_) => CertificateError::BadEncoding,
        CertificateRefusal::WrongCluster { .. }
        | CertificateRefusal::Identity(_)
        | CertificateRefusal::Other { .. } => CertificateError::ApplicationVerificationFailure,
    }
}

/// Asks the [`TrustAnchor`] and keeps its reason.
#[derive(Debug)]
struct Verifier {
    anchor: TrustAnchor,
    verdict: Verdict,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = self.anchor.check_server(end_entity, intermediates, server_name, now.as_secs());
        checked.map(|_| ServerCertVerified::assertion()).map_err(|refusal| self.verdict.refuse(refusal))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.anchor.tls_verifier().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.anchor.tls_verifier().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.anchor.tls_verifier().supported_verify_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let checked = self.anchor.check_client(end_entity, intermediates, now.as_secs());
        checked.map(|_| ClientCertVerified::assertion()).map_err(|refusal| self.verdict.refuse(refusal))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.anchor.tls_verifier().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.anchor.tls_verifier().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.anchor.tls_verifier().supported_verify_schemes()
    }
}
