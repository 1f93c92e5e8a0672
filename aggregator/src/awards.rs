//! Signatures under awards: what a voter signs is the encoded award, and what was written off before.

use tidemark_proto::ids::DcId;
use tidemark_proto::ledger::Awarded;
use tidemark_proto::msg::LedgerCmd;
use tidemark_transport::Credentials;

/// The command that puts this voter's signature under an award.
pub fn signature(credentials: &Credentials, dc: DcId, awarded: &Awarded) -> LedgerCmd {
    let award = &awarded.award;
    LedgerCmd::Signature {
        counter: award.counter.clone(),
        at: award.at,
        dc,
        signature: credentials.sign(&awarded.signed_bytes()).to_vec(),
        certificate: credentials.certificate_der().to_vec(),
    }
}
