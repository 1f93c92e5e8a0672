//! Identities: names, the cluster's certificate authority, a process's credentials, and the checks of others.
//!
//! All keys are Ed25519 (RFC 8032, RFC 8410): signatures have one length, which keeps handshakes deterministic.

mod authority;
mod credentials;
mod files;
mod identity;
pub(crate) mod trust;

pub use authority::{CA_DAYS, CLOCK_SKEW_SECONDS, ClusterCa, IssueError, Validity};
pub use credentials::{Credentials, CredentialsError, SIGNATURE_BYTES, SIGNATURE_CONTEXT};
pub use files::FileError;
pub use identity::{
    CLUSTER_BYTES_MAX, DC_BYTES_MAX, FURTHER_AGGREGATORS, Identity, IdentityError, NAME_BYTES_MAX, NameError, PeerName,
    Role,
};
pub use trust::{CertificateRefusal, TrustAnchor, TrustError, VerifyError};
