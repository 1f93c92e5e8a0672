//! The cluster's certificate authority: one Ed25519 key that vouches for every process of the cluster.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, SanType, SerialNumber, date_time_ymd,
};
use ring::digest;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

use super::credentials::Credentials;
use super::files::{self, FileError};
use super::identity::{Identity, NameError, check_cluster, cluster_uri};
use super::trust::{TrustAnchor, TrustError};

/// How long a CA is valid, in days.
pub const CA_DAYS: u32 = 3650;
/// Certificates are valid from this long before they are issued, so that a clock may be behind.
pub const CLOCK_SKEW_SECONDS: u64 = 3600;
/// Latest end of a certificate (the year 2500), below what X.509's times can say.
const NOT_AFTER_UNIX_S_MAX: u64 = 16_725_225_600;

const SECONDS_PER_DAY: u64 = 86_400;
const CA_FILE: &str = "ca.pem";
const CA_KEY_FILE: &str = "ca-key.pem";
/// Bytes of the key's hash in the CA's name: tells apart the CAs of two clusters of one name.
const CA_HASH_BYTES: usize = 6;
/// Bytes of a certificate's serial number, of at most 20 (RFC 5280, 4.1.2.2).
const SERIAL_BYTES: usize = 16;

/// A certificate was not issued.
#[derive(Debug, Error)]
pub enum IssueError {
    /// The cluster's name is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The process belongs to another cluster.
    #[error("{identity} does not belong to the cluster {cluster} of this CA")]
    OtherCluster {
        /// The identity that asked for the certificate.
        identity: Identity,
        /// The CA's cluster.
        cluster: String,
    },
    /// The certificate would end before it begins, or too late.
    #[error("a validity from {from} to {to} (Unix seconds) is empty or ends after {limit}")]
    Validity {
        /// Asked-for begin.
        from: u64,
        /// Asked-for end.
        to: u64,
        /// Latest end.
        limit: u64,
    },
    /// Key generation or encoding failed.
    #[error("cannot make a certificate: {0}")]
    Generate(String),
}

/// From when to when a certificate is valid, in Unix seconds, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before_unix_s: u64,
    /// Last second.
    pub not_after_unix_s: u64,
}

impl Validity {
    /// From [`CLOCK_SKEW_SECONDS`] ago for `days` from now.
    pub fn days(days: u32) -> Self {
        let now = unix_now_s();
        Self {
            not_before_unix_s: now.saturating_sub(CLOCK_SKEW_SECONDS),
            not_after_unix_s: now + u64::from(days) * SECONDS_PER_DAY,
        }
    }

    fn check(self) -> Result<Self, IssueError> {
        let from = self.not_before_unix_s;
        let to = self.not_after_unix_s;
        let limit = NOT_AFTER_UNIX_S_MAX;
        if from < to && to <= limit { Ok(self) } else { Err(IssueError::Validity { from, to, limit }) }
    }

    fn apply(self, params: &mut CertificateParams) {
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(self.not_before_unix_s);
        params.not_after = epoch + Duration::from_secs(self.not_after_unix_s);
    }
}

/// A cluster's CA with its private key. An owner of it can admit processes to the cluster.
#[derive(Debug)]
pub struct ClusterCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    anchor: TrustAnchor,
}

impl ClusterCa {
    /// Makes a new CA, valid for [`CA_DAYS`].
    pub fn generate(cluster: &str) -> Result<Self, IssueError> {
        check_cluster(cluster)?;
        let key = new_key()?;
        let params = ca_params(cluster, &key)?;
        let cert = params.self_signed(&key).map_err(generate_error)?;
        Self::assemble(cert.pem(), key).map_err(|error| IssueError::Generate(error.to_string()))
    }

    /// Writes `ca.pem` and `ca-key.pem` (mode 0600) into `dir`, making it if needed.
    ///
    /// Refuses to overwrite another CA: [`FileError::Exists`].
    pub fn save(&self, dir: &Path) -> Result<(), FileError> {
        let cert = dir.join(CA_FILE);
        let key = dir.join(CA_KEY_FILE);
        files::make_dir(dir)?;
        files::must_not_exist(&cert)?;
        files::must_not_exist(&key)?;
        files::write_private(&key, &self.issuer.key().serialize_pem())?;
        files::write_public(&cert, &self.pem)
    }

    /// Reads what [`ClusterCa::save`] wrote.
    pub fn load(dir: &Path) -> Result<Self, FileError> {
        let cert_path = dir.join(CA_FILE);
        let key_path = dir.join(CA_KEY_FILE);
        let pem = files::read(&cert_path)?;
        let key_pem = files::read(&key_path)?;
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(&key_pem, &PKCS_ED25519)
            .map_err(|error| FileError::content(&key_path)(error.to_string()))?;
        let ca = Self::assemble(pem, key).map_err(|error| FileError::content(&cert_path)(error.to_string()))?;
        match ca.anchor.public_key() == ca.issuer.key().public_key_raw() {
            true => Ok(ca),
            false => Err(FileError::content(&key_path)(format!("the key is not that of {}", cert_path.display()))),
        }
    }

    /// Issues a certificate and its key for `days` from now.
    pub fn issue(&self, identity: &Identity, days: u32) -> Result<Credentials, IssueError> {
        self.issue_for(identity, Validity::days(days))
    }

    /// Issues a certificate and its key with an exact validity.
    pub fn issue_for(&self, identity: &Identity, validity: Validity) -> Result<Credentials, IssueError> {
        if identity.cluster() != self.cluster() {
            let cluster = self.cluster().to_owned();
            return Err(IssueError::OtherCluster { identity: identity.clone(), cluster });
        }
        let key = new_key()?;
        let mut params = leaf_params(identity)?;
        params.serial_number = Some(serial(key.public_key_raw()));
        validity.check()?.apply(&mut params);
        let cert = params.signed_by(&key, &self.issuer).map_err(generate_error)?;
        Credentials::from_pem(&self.pem, &cert.pem(), &key.serialize_pem())
            .map_err(|error| IssueError::Generate(error.to_string()))
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        self.anchor.cluster()
    }

    /// The CA's certificate, which is public.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The CA as others see it.
    pub fn anchor(&self) -> &TrustAnchor {
        &self.anchor
    }

    fn assemble(pem: String, key: KeyPair) -> Result<Self, TrustError> {
        let anchor = TrustAnchor::from_pem(&pem)?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| TrustError::Pem(error.to_string()))?;
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| TrustError::Pem(error.to_string()))?;
        Ok(Self { issuer, pem, anchor })
    }
}

/// Seconds since 1970 by the system's clock.
pub(crate) fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn new_key() -> Result<KeyPair, IssueError> {
    KeyPair::generate_for(&PKCS_ED25519).map_err(generate_error)
}

fn ca_params(cluster: &str, key: &KeyPair) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(&format!("tidemark {cluster} ca {}", key_hash(key.public_key_raw())));
    params.subject_alt_names = vec![uri(&cluster_uri(cluster))?];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Validity::days(CA_DAYS).apply(&mut params);
    Ok(params)
}

fn leaf_params(identity: &Identity) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::new(identity.dns_names()).map_err(generate_error)?;
    params.distinguished_name = common_name(identity.name());
    params.subject_alt_names.push(uri(&identity.to_string())?);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if identity.role().is_server() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(params)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    full.push(DnType::CommonName, name);
    full
}

fn uri(text: &str) -> Result<SanType, IssueError> {
    Ok(SanType::URI(text.try_into().map_err(generate_error)?))
}

/// By the key, as rcgen does it, but of one length as an integer of DER, so that all certificates of an identity are equally long.
fn serial(key: &[u8]) -> SerialNumber {
    let hash = digest::digest(&digest::SHA256, key);
    let mut serial = hash.as_ref()[..SERIAL_BYTES].to_vec();
    serial[0] = serial[0] & 0x7f | 0x40;
    serial.into()
}

fn key_hash(key: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, key);
    hash.as_ref()[..CA_HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn generate_error(error: rcgen::Error) -> IssueError {
    IssueError::Generate(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::Role;
    use super::*;

    fn identity(cluster: &str) -> Identity {
        Identity::new(cluster, "usa-0", Role::Node, "n1").unwrap()
    }

    #[test]
    fn a_ca_survives_its_files_and_keeps_its_key_private() {
        let dir = tempfile::tempdir().unwrap();
        let ca = ClusterCa::generate("demo").unwrap();
        ca.save(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join(CA_KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let loaded = ClusterCa::load(dir.path()).unwrap();
        assert_eq!(loaded.cluster(), "demo");
        let credentials = loaded.issue(&identity("demo"), 1).unwrap();
        assert_eq!(ca.anchor().check(credentials.certificate_der(), unix_now_s()).unwrap(), identity("demo"));
    }

    /// Or the datagrams of two handshakes would differ, and with them what the network does to either.
    #[test]
    fn certificates_of_one_identity_are_equally_long() {
        let ca = ClusterCa::generate("demo").unwrap();
        let lengths = (0..300).map(|_| ca.issue(&identity("demo"), 1).unwrap().certificate_der().len());
        assert_eq!(lengths.collect::<BTreeSet<_>>().len(), 1);
    }

    #[test]
    fn a_ca_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        ClusterCa::generate("demo").unwrap().save(dir.path()).unwrap();
        let refused = ClusterCa::generate("demo").unwrap().save(dir.path());
        assert!(matches!(refused, Err(FileError::Exists { .. })));
    }

    #[test]
    fn a_key_of_another_ca_is_refused() {
        let one = tempfile::tempdir().unwrap();
        let two = tempfile::tempdir().unwrap();
        ClusterCa::generate("demo").unwrap().save(one.path()).unwrap();
        ClusterCa::generate("demo").unwrap().save(two.path()).unwrap();
        fs::copy(two.path().join(CA_KEY_FILE), one.path().join(CA_KEY_FILE)).unwrap();
        assert!(matches!(ClusterCa::load(one.path()), Err(FileError::Content { .. })));
    }

    #[test]
    fn only_its_own_cluster_gets_certificates() {
        let ca = ClusterCa::generate("demo").unwrap();
        assert!(matches!(ca.issue(&identity("other"), 1), Err(IssueError::OtherCluster { .. })));
        assert!(matches!(ClusterCa::generate("De mo"), Err(IssueError::Name(_))));
    }

    #[test]
    fn a_validity_must_be_possible() {
        let ca = ClusterCa::generate("demo").unwrap();
        for (from, to) in [(5, 5), (5, u64::MAX)] {
            let validity = Validity { not_before_unix_s: from, not_after_unix_s: to };
            let refused = ca.issue_for(&identity("demo"), validity);
            assert!(matches!(refused, Err(IssueError::Validity { .. })));
        }
    }
}
