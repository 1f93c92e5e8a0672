//! Signatures under awards: what a voter signs is the encoded award.

use tidemark_proto::ids::DcId;
use tidemark_proto::msg::{Award, LedgerCmd};
use tidemark_proto::wire;
use tidemark_transport::Credentials;

/// The command that puts this voter's signature under an award.
pub fn signature(credentials: &Credentials, dc: DcId, award: &Award) -> LedgerCmd {
    LedgerCmd::Signature {
        counter: award.counter.clone(),
        at: award.at,
        dc,
        signature: credentials.sign(&wire::encode(award)).to_vec(),
        certificate: credentials.certificate_der().to_vec(),
    }
}
