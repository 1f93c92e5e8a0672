//! Certificates of awards: files that prove to a holder of the cluster's CA which increment was the n-th.
//!
//! A certificate holds the award in words, its canonical bytes (what was signed), and signatures of aggregators. The proof depends only on
//! inputs from outside the file: the CA and the number (or names) of the ledger's voters.

mod fields;
mod verify;

pub use verify::{Certified, Refusal, Voters, verify};

use crate::names::hex;
use fields::AwardFields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::msg::{Award, AwardSignature};

/// The format that the file names.
pub const FORMAT: &str = "tidemark-award";
/// Version of the file's format.
pub const VERSION: u32 = 1;
/// Bytes of a certificate's file. More: refused unread.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    format: String,
    version: u32,
    award: AwardFields,
    /// Weight that was answered as counted and given up before, with groups that lost their disks.
    #[serde(default, skip_serializing_if = "is_nothing")]
    written_off: u64,
    /// When it was decided, by the clock of the ledger's leader. It is not signed: no voter vouches for a clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unsigned_time: Option<String>,
    /// The bytes that were signed, in hexadecimal.
    canonical: String,
    signatures: Vec<SignatureFields>,
}

/// One aggregator's signature; the aggregator's name stands in its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignatureFields {
    /// Ed25519, hexadecimal.
    signature: String,
    /// X.509 in DER, hexadecimal.
    certificate: String,
}

fn is_nothing(weight: &u64) -> bool {
    *weight == 0
}

impl Certificate {
    pub fn new(award: &Award, signatures: &[AwardSignature], written_off: u64) -> Certificate {
        let fields = |signature: &AwardSignature| SignatureFields {
            signature: hex(&signature.signature),
            certificate: hex(&signature.certificate),
        };
        Certificate {
            format: FORMAT.to_owned(),
            version: VERSION,
            award: AwardFields::from(award),
            written_off,
            unsigned_time: award.time.map(|time| time.to_string()),
            canonical: hex(&award.signed_bytes(written_off)),
            signatures: signatures.iter().map(fields).collect(),
        }
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a certificate is JSON");
        text + "\n"
    }

    /// Reads a file's text. The result is well-formed, but not yet verified: [`verify`].
    ///
    /// # Errors
    /// [`Refusal::Malformed`], [`Refusal::Format`] or [`Refusal::TooLong`].
    pub fn from_json(text: &[u8]) -> Result<Certificate, Refusal> {
        if text.len() > FILE_BYTES_MAX {
            return Err(Refusal::TooLong { bytes: text.len() });
        }
        let read: Certificate = serde_json::from_slice(text).map_err(|error| Refusal::Malformed(error.to_string()))?;
        if read.format != FORMAT || read.version != VERSION {
            return Err(Refusal::Format { format: read.format, version: read.version });
        }
        Ok(read)
    }
}
