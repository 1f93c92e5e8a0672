//! The checks of a certificate.

use super::fields::FieldError;
use super::{Certificate, FILE_BYTES_MAX, FORMAT, SignatureFields, VERSION};
use crate::names::from_hex;
use std::collections::BTreeSet;
use std::fmt;
use tidemark_proto::ids::GroupId;
use tidemark_proto::limits::{DELTA_MAX, MILESTONE_MAX};
use tidemark_proto::msg::Award;
use tidemark_proto::time::WallTextError;
use tidemark_proto::wire::{self, WireError};
use tidemark_transport::certs::{TrustAnchor, VerifyError};

/// The ledger's voters, as the verifier knows them; a certificate is never asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Voters {
    Count(usize),
    /// Names of their data centres.
    Named(BTreeSet<String>),
}

/// Why a certificate is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{bytes} bytes are no certificate: at most {FILE_BYTES_MAX} allowed")]
    TooLong { bytes: usize },
    #[error("it is no certificate of an award: {0}")]
    Malformed(String),
    #[error("its format is {format:?} version {version}: {FORMAT:?} version {VERSION} expected")]
    Format { format: String, version: u32 },
    #[error("an impossible award: {0}")]
    Field(#[from] FieldError),
    #[error("unsigned_time: {0}")]
    Time(#[from] WallTextError),
    #[error("the signed bytes are no award: {0}")]
    Canonical(#[from] WireError),
    #[error("the award as shown is not the one that was signed")]
    Differs,
    #[error("weights before the award add up to {sum}, but it is number {first}")]
    Sum { sum: u128, first: u64 },
    #[error("milestones {at} to {last} are not all among the ordinals {first} to {end} of the increment")]
    Range { at: u64, last: u128, first: u64, end: u128 },
    #[error("signature {number}: {error}")]
    Signature { number: usize, error: VerifyError },
    #[error("signature {number} is malformed: {what} is not lower-case hexadecimal")]
    SignatureText { number: usize, what: &'static str },
    #[error("{0} signed twice")]
    Twice(String),
    #[error("{0} signed, but is no voter")]
    NoVoter(String),
    #[error("signed by {signed} of {voters} voters: {needed} needed")]
    TooFew { signed: usize, voters: usize, needed: usize },
}

/// The facts that a verified certificate proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    pub cluster: String,
    pub award: Award,
    /// At most this weight was answered as counted before it, and may be lost.
    pub written_off: u64,
    /// Data centres of the aggregators that signed.
    pub signers: BTreeSet<String>,
    pub voters: usize,
}

impl Voters {
    pub fn count(&self) -> usize {
        match self {
            Voters::Count(count) => *count,
            Voters::Named(names) => names.len(),
        }
    }

    /// Signatures that make a majority.
    pub fn needed(&self) -> usize {
        self.count() / 2 + 1
    }

    fn includes(&self, dc: &str) -> bool {
        match self {
            Voters::Count(_) => true,
            Voters::Named(names) => names.contains(dc),
        }
    }
}

/// Believes a certificate, or says why not. `at_unix_s` is the time at which the signers' certificates must have been valid.
/// Every signature in the file must be good, also those beyond the majority.
///
/// # Errors
/// The first [`Refusal`] found.
pub fn verify(
    certificate: &Certificate,
    ca: &TrustAnchor,
    voters: &Voters,
    at_unix_s: u64,
) -> Result<Certified, Refusal> {
    let (award, bytes) = signed_award(certificate)?;
    check_arithmetic(&award)?;
    let signers = signers(&certificate.signatures, &bytes, ca, voters, at_unix_s)?;
    let signed = signers.len();
    let needed = voters.needed();
    if signed < needed {
        return Err(Refusal::TooFew { signed, voters: voters.count(), needed });
    }
    let cluster = ca.cluster().to_owned();
    let written_off = certificate.written_off;
    let time = certificate.unsigned_time.as_deref().map(str::parse).transpose()?;
    let award = Award { time, ..award };
    Ok(Certified { cluster, award, written_off, signers, voters: voters.count() })
}

fn signed_award(certificate: &Certificate) -> Result<(Award, Vec<u8>), Refusal> {
    let malformed = || Refusal::Malformed("canonical is not lower-case hexadecimal".to_owned());
    let bytes = from_hex(&certificate.canonical).ok_or_else(malformed)?;
    let shown = certificate.award.to_award()?;
    let written_off = shown.signed_bytes(certificate.written_off).len() - wire::encode(&shown).len();
    let signed: Award = wire::decode(&bytes[..bytes.len().saturating_sub(written_off)])?;
    let same = shown == signed && shown.signed_bytes(certificate.written_off) == bytes;
    if same { Ok((signed, bytes)) } else { Err(Refusal::Differs) }
}

fn check_arithmetic(award: &Award) -> Result<(), Refusal> {
    let &Award { at, step, count, first, delta, .. } = award;
    let possible = (1..=DELTA_MAX).contains(&delta) && first >= 1 && count >= 1 && (count == 1) == (step == 0);
    if !possible || at > MILESTONE_MAX {
        return Err(FieldError::Numbers { first, delta, at, step, count }.into());
    }
    let groups: Vec<GroupId> = award.before.iter().map(|&(group, _)| group).collect();
    if !groups.is_sorted_by(|a, b| a < b) {
        return Err(FieldError::Order.into());
    }
    let sum: u128 = award.before.iter().map(|&(_, weight)| u128::from(weight)).sum();
    if sum != u128::from(first - 1) {
        return Err(Refusal::Sum { sum, first });
    }
    let last = u128::from(at) + u128::from(step) * u128::from(count - 1);
    let end = u128::from(first) + u128::from(delta) - 1;
    if at < first || last > end { Err(Refusal::Range { at, last, first, end }) } else { Ok(()) }
}

fn signers(
    signatures: &[SignatureFields],
    bytes: &[u8],
    ca: &TrustAnchor,
    voters: &Voters,
    at_unix_s: u64,
) -> Result<BTreeSet<String>, Refusal> {
    let mut signers = BTreeSet::new();
    for (number, signature) in (1..).zip(signatures) {
        let text = |what, text: &str| from_hex(text).ok_or(Refusal::SignatureText { number, what });
        let sign = text("signature", &signature.signature)?;
        let certificate = text("certificate", &signature.certificate)?;
        let signer = ca.verify(bytes, &sign, &certificate, at_unix_s);
        let dc = signer.map_err(|error| Refusal::Signature { number, error })?.dc().to_owned();
        if !voters.includes(&dc) {
            return Err(Refusal::NoVoter(dc));
        }
        if !signers.insert(dc.clone()) {
            return Err(Refusal::Twice(dc));
        }
    }
    Ok(signers)
}

impl fmt::Display for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let award = &self.award;
        let Award { at, step, count, first, delta, .. } = award;
        writeln!(f, "cluster {}, counter {}", self.cluster, award.counter)?;
        match count {
            1 => writeln!(f, "milestone {at} was reached by one increment,")?,
            _ => writeln!(f, "{count} milestones, from {at} on every {step}, were reached by one increment,")?,
        }
        match delta {
            1 => writeln!(f, "number {first}: exactly {} were counted before it", first - 1)?,
            _ => writeln!(
                f,
                "numbers {first} to {} (weight {delta}); weight before it {}",
                first + (delta - 1),
                first - 1
            )?,
        }
        writeln!(f, "client {:032x}, lane {}, batch {}, item {}", award.client.0, award.lane, award.seq, award.idx)?;
        match award.session {
            Some(session) => writeln!(f, "session (digest) {session}")?,
            None => writeln!(f, "without a session")?,
        }
        writeln!(f, "counted by group {} at position {}; ledger entry {}", award.group, award.pos, award.index.0)?;
        for (group, weight) in &award.before {
            writeln!(f, "  before it, group {group}: {weight}")?;
        }
        if self.written_off > 0 {
            let weight = self.written_off;
            writeln!(
                f,
                "written off with lost groups: up to {weight} that were answered as counted may be missing before it"
            )?;
        }
        if let Some(time) = award.time {
            writeln!(f, "decided at {time} by the clock of the ledger's leader, which is not signed")?;
        }
        let names: Vec<&str> = self.signers.iter().map(String::as_str).collect();
        write!(f, "signed by {} of {} voters: {}", names.len(), self.voters, names.join(", "))
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
