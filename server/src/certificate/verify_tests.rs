//! A certificate is believed as it was issued, and in no other way.

use super::*;
use crate::certificate::fields::AwardFields;
use proptest::prelude::*;
use std::sync::LazyLock;
use tidemark_proto::ids::{ClientId, CounterName, DcId, LogIndex, SessionId};
use tidemark_proto::msg::AwardSignature;
use tidemark_transport::certs::{ClusterCa, Identity, Role, Validity};

const AT: u64 = 2_000_000_000;
const VALID: Validity = Validity { not_before_unix_s: AT - 1_000, not_after_unix_s: AT + 1_000 };

static CA: LazyLock<ClusterCa> = LazyLock::new(|| ClusterCa::generate("demo").unwrap());

fn award() -> Award {
    let group = |dc| GroupId { dc: DcId(dc), group: 0, incarnation: 1 };
    Award {
        counter: CounterName::new("search", b"queries/50%\xff").unwrap(),
        epoch: 1,
        at: 1_000,
        step: 0,
        count: 1,
        first: 999,
        delta: 3,
        group: group(1),
        pos: 17,
        client: ClientId(7),
        lane: 2,
        seq: 9,
        idx: 4,
        session: Some(SessionId([0xab; 16])),
        before: vec![(group(0), 900), (group(1), 98)],
        index: LogIndex(77),
        time: None,
    }
}

fn sign(ca: &ClusterCa, award: &Award, dc: &str, role: Role) -> AwardSignature {
    sign_bytes(ca, &wire::encode(award), dc, role)
}

fn sign_bytes(ca: &ClusterCa, bytes: &[u8], dc: &str, role: Role) -> AwardSignature {
    let identity = Identity::new(ca.cluster(), dc, role, "a0").unwrap();
    let signer = ca.issue_for(&identity, VALID).unwrap();
    let signature = signer.sign(bytes).to_vec();
    AwardSignature { dc: DcId(0), signature, certificate: signer.certificate_der().to_vec() }
}

fn issued(award: &Award, dcs: &[&str]) -> Certificate {
    let signatures: Vec<_> = dcs.iter().map(|dc| sign(&CA, award, dc, Role::Aggregator)).collect();
    Certificate::new(award, &signatures, 0)
}

fn believed(certificate: &Certificate, voters: usize) -> Result<Certified, Refusal> {
    verify(certificate, CA.anchor(), &Voters::Count(voters), AT)
}

fn believed_text(text: &[u8]) -> Result<Certified, Refusal> {
    believed(&Certificate::from_json(text)?, 3)
}

#[test]
fn a_majority_of_the_voters_is_believed_and_told() {
    let certificate = issued(&award(), &["usa-0", "usa-1"]);
    let certified = believed_text(certificate.to_json().as_bytes()).unwrap();
    assert_eq!(certified.award, award());
    let text = certified.to_string();
    assert!(text.contains("milestone 1000 was reached"), "{text}");
    assert!(text.contains("numbers 999 to 1001 (weight 3); weight before it 998"), "{text}");
    assert!(text.ends_with("signed by 2 of 3 voters: usa-0, usa-1"), "{text}");
}

#[test]
fn fewer_than_a_majority_is_refused() {
    let certificate = issued(&award(), &["usa-0", "usa-1"]);
    assert_eq!(believed(&certificate, 4).unwrap_err(), Refusal::TooFew { signed: 2, voters: 4, needed: 3 });
    assert_eq!(believed(&issued(&award(), &[]), 1).unwrap_err().to_string(), "signed by 0 of 1 voters: 1 needed");
}

#[test]
fn each_data_centre_counts_once_and_only_voters_count() {
    let twice = issued(&award(), &["usa-0", "usa-0"]);
    assert_eq!(believed(&twice, 3), Err(Refusal::Twice("usa-0".into())));
    let named = Voters::Named(["usa-0", "asia-0", "europe-0"].map(str::to_owned).into());
    let stranger = issued(&award(), &["usa-0", "usa-1"]);
    assert_eq!(verify(&stranger, CA.anchor(), &named, AT), Err(Refusal::NoVoter("usa-1".into())));
    assert!(verify(&issued(&award(), &["usa-0", "asia-0"]), CA.anchor(), &named, AT).is_ok());
}

#[test]
fn only_aggregators_of_this_ca_at_their_time_count() {
    let certificate = issued(&award(), &["usa-0", "usa-1"]);
    let other = ClusterCa::generate("demo").unwrap();
    let foreign = verify(&certificate, other.anchor(), &Voters::Count(3), AT);
    assert!(matches!(foreign, Err(Refusal::Signature { number: 1, .. })), "{foreign:?}");
    let late = verify(&certificate, CA.anchor(), &Voters::Count(3), AT + 1_001).unwrap_err();
    assert!(late.to_string().contains("ended at 2000001000"), "{late}");
    let node = Certificate::new(&award(), &[sign(&CA, &award(), "usa-0", Role::Node)], 0);
    assert!(believed(&node, 1).unwrap_err().to_string().contains("is no aggregator"));
}

#[test]
fn an_award_that_does_not_add_up_is_refused_though_signed() {
    let refused = |change: fn(&mut Award)| {
        let mut award = award();
        change(&mut award);
        believed(&issued(&award, &["usa-0", "usa-1"]), 3).unwrap_err()
    };
    assert_eq!(refused(|award| award.before[0].1 = 901), Refusal::Sum { sum: 999, first: 999 });
    assert_eq!(refused(|award| award.at = 1_002), Refusal::Range { at: 1_002, last: 1_002, first: 999, end: 1_001 });
    assert!(matches!(refused(|award| award.at = 998), Refusal::Range { .. }));
    assert!(matches!(refused(|award| (award.step, award.count) = (2, 2)), Refusal::Range { last: 1_002, .. }));
    assert!(matches!(refused(|award| award.delta = 0), Refusal::Field(_)));
    assert!(matches!(refused(|award| award.first = 0), Refusal::Field(_)));
    assert!(matches!(refused(|award| award.count = 0), Refusal::Field(_)));
    assert!(matches!(refused(|award| award.count = u64::MAX), Refusal::Field(_)));
    assert!(matches!(refused(|award| award.before.swap(0, 1)), Refusal::Field(_)));
}

#[test]
fn what_is_shown_must_be_what_was_signed() {
    let other = Award { at: 1_001, ..award() };
    let honest = issued(&award(), &["usa-0", "usa-1"]);
    let shown = Certificate { award: AwardFields::from(&other), ..honest.clone() };
    assert_eq!(believed(&shown, 3), Err(Refusal::Differs));
    let both = Certificate { canonical: Certificate::new(&other, &[], 0).canonical, ..shown };
    assert!(matches!(believed(&both, 3), Err(Refusal::Signature { number: 1, error: VerifyError::Signature { .. } })));
}

#[test]
fn time_is_shown_and_is_no_part_of_the_proof() {
    let time = Some(tidemark_proto::time::WallMs(1_795_846_544_120));
    let timed = issued(&Award { time, ..award() }, &["usa-0", "usa-1"]);
    assert_eq!(timed.canonical, issued(&award(), &[]).canonical, "what is signed has no time");
    let certified = believed_text(timed.to_json().as_bytes()).unwrap();
    assert_eq!(certified.award.time, time);
    let text = certified.to_string();
    assert!(
        text.contains("decided at 2026-11-28T06:15:44.120Z by the clock of the ledger's leader, which is not signed")
    );
    assert!(
        !issued(&award(), &["usa-0"]).to_json().contains("time"),
        "an award from before times were kept shows none"
    );
    let wrong = timed.to_json().replace("2026-11-28T06:15:44.120Z", "noon");
    assert!(believed_text(wrong.as_bytes()).unwrap_err().to_string().starts_with("unsigned_time: time \"noon\""));
}

#[test]
fn files_of_another_kind_are_refused() {
    let text = issued(&award(), &["usa-0"]).to_json();
    let refused = |text: &str| Certificate::from_json(text.as_bytes()).unwrap_err().to_string();
    assert!(
        refused(&text.replace("\"version\": 1", "\"version\": 2")).contains("version 2: \"tidemark-award\" version 1")
    );
    assert!(refused("{}").contains("missing field"));
    assert!(refused(&text.replace("\"epoch\"", "\"era\": 1, \"epoch\"")).contains("unknown field `era`"));
    assert!(refused(&"[".repeat(FILE_BYTES_MAX + 1)).contains("at most 1048576 allowed"));
    assert!(refused(&"[".repeat(FILE_BYTES_MAX)).starts_with("it is no certificate"));
}

#[test]
fn one_changed_bit_is_refused_wherever_it_is() {
    let text = issued(&award(), &["usa-0", "usa-1"]).to_json().into_bytes();
    for (at, bit) in (0..text.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = text.clone();
        changed[at] ^= 1 << bit;
        assert!(believed_text(&changed).is_err(), "byte {at} bit {bit}: {}", String::from_utf8_lossy(&changed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// JSON may be laid out anew; nothing else may change.
    #[test]
    fn a_replaced_byte_is_refused_or_was_blank(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| issued(&award(), &["usa-0", "usa-1"]).to_json().into_bytes());
        let mut changed = TEXT.clone();
        let at = at.index(changed.len());
        changed[at] = byte;
        if believed_text(&changed).is_ok() {
            prop_assert_eq!(Certificate::from_json(&changed), Certificate::from_json(&TEXT));
        }
    }
}

#[test]
fn what_was_written_off_is_signed_with_the_award() {
    let award = award();
    let signatures: Vec<_> =
        ["usa-0", "usa-1"].iter().map(|dc| sign_bytes(&CA, &award.signed_bytes(300), dc, Role::Aggregator)).collect();
    let certificate = Certificate::new(&award, &signatures, 300);
    let certified = believed_text(certificate.to_json().as_bytes()).unwrap();
    assert_eq!((certified.written_off, &certified.award), (300, &award));
    assert!(certified.to_string().contains("up to 300 that were answered as counted"), "{certified}");
    // Another number, or none, is not what was signed; nor does a signature without it cover it.
    for other in [0, 1, 299, 301, 40_000] {
        let changed = Certificate { written_off: other, ..certificate.clone() };
        assert!(believed(&changed, 3).is_err(), "{other}");
        let forged = Certificate { canonical: Certificate::new(&award, &[], other).canonical, ..changed };
        assert!(matches!(believed(&forged, 3), Err(Refusal::Signature { .. })), "{other}");
    }
    let none = issued(&award, &["usa-0", "usa-1"]);
    let added = Certificate { written_off: 5, canonical: Certificate::new(&award, &[], 5).canonical, ..none.clone() };
    assert!(matches!(believed(&added, 3), Err(Refusal::Signature { .. })));
    assert!(!none.to_json().contains("written_off"), "certificates without it are as they were");
}
