//! Each way in which awards and what front ends were told can contradict each other is found.

use std::sync::LazyLock;

use tidemark_proto::ids::{ClientId, DcId, GroupId, LogIndex};
use tidemark_proto::ledger::Births;
use tidemark_proto::msg::{Award, AwardSignature};
use tidemark_transport::certs::{ClusterCa, Identity, Role};

use super::super::account::session;
use super::super::account::tests::account;
use super::super::load;
use super::*;

const EVERY: u64 = 10;
/// Two front ends; hits 4 and 8 of the first, hit 9 of the second are known to be milestones.
const LOGS: [&str; 2] = [
    "sessions 00000000000000aa\nasked 15\ncounted 1 3\nmilestone 4 10 10\ncounted 5 7\nmilestone 8 20 20\ncounted 9 15\n",
    "sessions 00000000000000bb\nasked 20\ncounted 1 8\nmilestone 9 30 30\ncounted 10 18\nrefused 19 19\n",
];
const FIRST: u64 = 0xaa;
const SECOND: u64 = 0xbb;

static CA: LazyLock<ClusterCa> = LazyLock::new(|| ClusterCa::generate("soak").unwrap());

fn of_ledger(at: u64, of: u64, hit: u64) -> Award {
    let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
    Award {
        counter: load::hits(),
        epoch: 1,
        at,
        step: 0,
        count: 1,
        first: at,
        delta: 1,
        group,
        pos: 17,
        client: ClientId(7),
        lane: 0,
        seq: 9,
        idx: 4,
        session: Some(session(of, hit)),
        before: vec![(group, at - 1)],
        index: LogIndex(at),
        time: None,
    }
}

fn award(at: u64, of: u64, hit: u64) -> AwardBody {
    AwardBody::new(&of_ledger(at, of, hit), &Births::default())
}

fn good() -> Vec<AwardBody> {
    vec![award(10, FIRST, 4), award(20, FIRST, 8), award(30, SECOND, 9)]
}

fn judged(logs: &[&str], one: Vec<AwardBody>, other: Vec<AwardBody>) -> Judged {
    judge(&account(logs), EVERY, &[("one".to_owned(), one), ("other".to_owned(), other)])
}

/// The findings if both show the same.
fn found(logs: &[&str], awards: Vec<AwardBody>) -> Vec<String> {
    judged(logs, awards.clone(), awards).found
}

fn refused(logs: &[&str], awards: Vec<AwardBody>, why: &str) {
    let found = found(logs, awards);
    assert!(found.iter().any(|found| found.contains(why)), "{why}: {found:?}");
}

#[test]
fn awards_of_the_hits_that_were_told_are_good() {
    let judged = judged(&LOGS, good(), good());
    assert_eq!(judged.found, [""; 0]);
    assert_eq!((judged.milestones, judged.awards, judged.twice, judged.untold), (3, 3, 0, 0));
}

#[test]
fn a_hit_that_wins_twice_is_found() {
    let logs =
        [LOGS[0], "sessions 00000000000000bb\nasked 20\ncounted 1 8\ndurable 9 9\ncounted 10 18\nrefused 19 19\n"];
    let mut awards = good();
    awards[1] = award(20, SECOND, 9);
    refused(&logs, awards, "00000000000000bb0000000000000009 has won milestone 20 and milestone 30");
}

#[test]
fn a_number_that_is_a_milestone_is_found() {
    let logs =
        [LOGS[0], "sessions 00000000000000bb\nasked 20\ncounted 1 8\nnumber 9 9 30\ncounted 10 18\nrefused 19 19\n"];
    refused(&logs, good(), "told to be number 30, and not that this is a milestone");
}

#[test]
fn winners_who_were_told_nothing_are_counted_and_may_not_be_many() {
    let untold = LOGS.map(|log| log.replace("milestone 4 10 10\n", "durable 4 4\n").replace("milestone 8 20 20\n", ""));
    refused(&untold.each_ref().map(String::as_str), good(), "2 of 3 winners were told nothing");
}

#[test]
fn another_winner_than_the_hit_that_was_told_is_found() {
    let mut awards = good();
    awards[1] = award(20, FIRST, 7);
    refused(&LOGS, awards.clone(), "milestone 20 names hit 7 of front end 0, which was told to be no milestone");
    awards[1] = award(20, FIRST, 4);
    refused(&LOGS, awards.clone(), "milestone 20 names hit 4 of front end 0, which was told to be milestone 10 as");
    awards[1] = award(20, SECOND, 19);
    refused(&LOGS, awards.clone(), "names hit 19 of front end 1, which was told not to be counted");
    awards[1] = award(20, FIRST, 16);
    refused(&LOGS, awards.clone(), "which no hit has");
    awards[1] = award(20, 0xcc, 1);
    refused(&LOGS, awards.clone(), "which no hit has");
    awards[1].session = None;
    refused(&LOGS, awards, "which no hit has");
}

#[test]
fn an_award_that_its_winner_was_not_told_of_is_found_unless_the_winner_knows_nothing() {
    let untold = [LOGS[0].replace("milestone 8 20 20", "counted 8 8"), LOGS[1].to_owned()];
    refused(&untold.each_ref().map(String::as_str), good(), "names hit 8 of front end 0, which was told to be no");
    for fate in ["unknown 8 8", "placeless 8 8", "durable 8 8"] {
        let first = LOGS[0].replace("milestone 8 20 20", fate);
        let judged = judged(&[&first, LOGS[1]], good(), good());
        assert_eq!((judged.found.len(), judged.untold), (0, 1), "{fate}: {:?}", judged.found);
    }
}

#[test]
fn a_hit_that_was_told_of_an_award_that_is_not_there_is_found() {
    let told = LOGS[1].replace("counted 10 18", "milestone 10 40 40\ncounted 11 18");
    refused(&[LOGS[0], &told], good(), "a hit was told to be milestone 40, which nobody shows an award of");
    let twice = LOGS[1].replace("counted 10 18", "milestone 10 20 20\ncounted 11 18");
    refused(&[LOGS[0], &twice], good(), "2 hits were told to be milestone 20");
}

#[test]
fn milestones_that_were_reached_and_have_no_award_or_several_are_found() {
    refused(&LOGS, good()[..2].to_vec(), "milestones [30] without an award");
    let twice = good().into_iter().chain([award(20, FIRST, 7)]).collect();
    refused(&LOGS, twice, "milestone 20 has 2 awards");
    let more = |at| good().into_iter().chain([award(at, SECOND, 20)]).collect();
    refused(&LOGS, more(25), "milestone 25 is awarded");
    refused(&LOGS, more(40), "milestone 40 is awarded");
}

#[test]
fn positions_that_do_not_fit_a_hit_are_found() {
    let changed = |change: fn(&mut AwardBody)| {
        let mut awards = good();
        change(&mut awards[0]);
        awards
    };
    for awards in [
        changed(|award| award.first = 9),
        changed(|award| award.delta = 2),
        changed(|award| (award.count, award.step) = (2, 10)),
    ] {
        refused(&LOGS, awards, "a hit is one");
    }
    let told = LOGS[0].replace("milestone 4 10 10", "milestone 4 10 9");
    refused(&[&told, LOGS[1]], good(), "which was told to be milestone 10 as number 9");
}

#[test]
fn data_centres_that_show_different_awards_are_found() {
    let mut other = good();
    other[1].client = "00".repeat(16);
    let judged_both = judged(&LOGS, good(), other);
    let said = "one and other do not show the same awards of milestones [20]";
    assert!(judged_both.found.iter().any(|found| found == said), "{:?}", judged_both.found);
    let missing = judged(&LOGS, good(), good()[..2].to_vec());
    assert!(missing.found.iter().any(|found| found.contains("other: milestones [30] without")), "{:?}", missing.found);
}

#[test]
fn a_certificate_is_believed_if_a_majority_signed_the_award_that_is_shown() {
    let of = of_ledger(10, FIRST, 4);
    let signature = |dc: &str| {
        let signer = CA.issue(&Identity::new("soak", dc, Role::Aggregator, "0").unwrap(), 1).unwrap();
        let signature = signer.sign(&of.signed_bytes(0)).to_vec();
        AwardSignature { dc: DcId(0), signature, certificate: signer.certificate_der().to_vec() }
    };
    let signatures = ["dc-0", "dc-1"].map(signature);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let voters = Voters::Named(["dc-0", "dc-1", "dc-2"].map(str::to_owned).into());
    let check = |signed: usize, award: &AwardBody, voters: &Voters| {
        let text = Certificate::new(&of, &signatures[..signed], 0).to_json();
        certified(&text, award, CA.anchor(), voters, now)
    };
    assert_eq!(check(2, &award(10, FIRST, 4), &voters), Ok(()));
    let few = check(1, &award(10, FIRST, 4), &voters).unwrap_err();
    assert!(few.contains("1 of 3 voters"), "{few}");
    let another = check(2, &award(10, FIRST, 5), &voters).unwrap_err();
    assert!(another.contains("another award"), "{another}");
    let strangers = Voters::Named(["dc-0", "dc-3"].map(str::to_owned).into());
    assert!(check(2, &award(10, FIRST, 4), &strangers).is_err());
}
