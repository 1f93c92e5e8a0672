//! Awards as every data centre shows them, against the answers to front ends: the winner has to be the hit that was told so, and no other
//! hit was.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_client::SessionId;
use tidemark_transport::certs::TrustAnchor;

use super::account::{Account, HitFate, HitId};
use super::verdict::{self, Expected};
use tidemark_proto::ledger::Births;
use tidemark_server::api::body::AwardBody;
use tidemark_server::certificate::{Certificate, Voters, verify};
use tidemark_server::names::from_hex;

/// Of this number of winners, and of one more, one may be told nothing of its place: its client was told that it is durable, and asked
/// again when the place was no longer known.
const UNTOLD_ONE_IN: u64 = 10;

/// The result of all awards.
#[derive(Debug, Default)]
pub struct Judged {
    /// That were reached for sure.
    pub milestones: u64,
    pub awards: u64,
    /// With more than one award, or more than one hit that was told; and hits that have won more than one.
    pub twice: u64,
    /// Awards with a winner that was told nothing of its place, nor will be.
    pub untold: u64,
    pub found: Vec<String>,
}

/// By milestone: all awards that any data centre shows.
type Awards<'a> = BTreeMap<u64, Vec<&'a AwardBody>>;

/// Judges what each aggregator, by its name, shows, where each `every`-th hit is a milestone.
pub fn judge(account: &Account, every: u64, shown: &[(String, Vec<AwardBody>)]) -> Judged {
    let Expected { least, most, .. } = verdict::expected(account)[0];
    let mut judged = Judged { milestones: least / every, ..Judged::default() };
    for (name, awards) in shown {
        judged.awards = judged.awards.max(awards.len() as u64);
        let missing: Vec<u64> =
            (1..=least / every).map(|n| n * every).filter(|at| awards.iter().all(|award| award.at != *at)).collect();
        if !missing.is_empty() {
            judged.found.push(format!("{name}: milestones {missing:?} without an award"));
        }
    }
    differences(shown, &mut judged);
    let awards = all(shown);
    let hits = told(account, every, &mut judged);
    let mut winners = BTreeMap::new();
    for (at, awards) in &awards {
        if awards.len() > 1 {
            judged.twice += 1;
            judged.found.push(format!("milestone {at} has {} awards", awards.len()));
        }
        if *at == 0 || !at.is_multiple_of(every) || *at > most {
            judged.found.push(format!("milestone {at} is awarded: each {every}th is one, up to {most}"));
        }
        awards.iter().for_each(|award| winner(account, award, &mut judged));
        let sessions: BTreeSet<&str> = awards.iter().filter_map(|award| award.session.as_deref()).collect();
        for session in sessions {
            if let Some(before) = winners.insert(session, *at) {
                judged.twice += 1;
                judged.found.push(format!("session {session} has won milestone {before} and milestone {at}"));
            }
        }
    }
    if judged.untold > judged.awards / UNTOLD_ONE_IN + 1 {
        judged.found.push(format!(
            "{} of {} winners were told nothing of their place: at most one in {UNTOLD_ONE_IN} may be",
            judged.untold, judged.awards
        ));
    }
    let unheard = hits.into_iter().filter(|at| !awards.contains_key(at));
    judged
        .found
        .extend(unheard.map(|at| format!("a hit was told to be milestone {at}, which nobody shows an award of")));
    judged
}

/// Milestones that hits were told to be. A hit that was told a number is none.
fn told(account: &Account, every: u64, judged: &mut Judged) -> BTreeSet<u64> {
    let numbers = account.0.iter().flat_map(|front_end| &front_end.numbers);
    let passed = numbers.filter(|number| number.is_multiple_of(every));
    judged.found.extend(passed.map(|at| format!("a hit was told to be number {at}, and not that this is a milestone")));
    let mut times = BTreeMap::<u64, u64>::new();
    account.milestones().for_each(|(_, at, _)| *times.entry(at).or_default() += 1);
    for (at, times) in times.iter().filter(|(_, times)| **times > 1) {
        judged.twice += 1;
        judged.found.push(format!("{times} hits were told to be milestone {at}"));
    }
    times.into_keys().collect()
}

fn all(shown: &[(String, Vec<AwardBody>)]) -> Awards<'_> {
    let mut all = Awards::new();
    for award in shown.iter().flat_map(|(_, awards)| awards) {
        let of = all.entry(award.at).or_default();
        if !of.contains(&award) {
            of.push(award);
        }
    }
    all
}

/// An aggregator is compared with each other; a missing answer was reported already.
fn differences(shown: &[(String, Vec<AwardBody>)], judged: &mut Judged) {
    let Some(((name, awards), others)) = shown.split_first() else { return };
    let by_milestone = |awards: &[AwardBody]| awards.iter().map(|award| (award.at, award.clone())).collect();
    let awards: BTreeMap<u64, AwardBody> = by_milestone(awards);
    for (other, of_other) in others {
        let of_other: BTreeMap<u64, AwardBody> = by_milestone(of_other);
        let either: BTreeSet<u64> = awards.keys().chain(of_other.keys()).copied().collect();
        let differ: Vec<u64> = either.into_iter().filter(|at| awards.get(at) != of_other.get(at)).collect();
        if !differ.is_empty() {
            judged.found.push(format!("{name} and {other} do not show the same awards of milestones {differ:?}"));
        }
    }
}

/// An award names a hit that was told so, or of which nothing is known.
fn winner(account: &Account, award: &AwardBody, judged: &mut Judged) {
    let AwardBody { at, step, count, first, delta, session, .. } = award;
    let mut found = |why: String| judged.found.push(format!("the award of milestone {at}{why}"));
    if (*step, *count, *delta, *first) != (0, 1, 1, *at) {
        return found(format!(
            " is of {count} milestones and of an increment of {delta} from {first} on: a hit is one"
        ));
    }
    let hit = session.as_deref().and_then(session_id).and_then(|session| account.hit_of(session));
    let Some(hit) = hit else {
        return found(format!(" names session {session:?}, which no hit has"));
    };
    let HitId { front_end, number } = hit;
    let named = format!(" names hit {number} of front end {front_end}");
    match account.fate(hit) {
        HitFate::Unknown | HitFate::Durable => judged.untold += 1,
        HitFate::Placed => found(format!("{named}, which was told to be no milestone")),
        HitFate::Refused => found(format!("{named}, which was told not to be counted")),
        HitFate::Milestone => {
            let told = account.0[front_end].milestones[&number];
            if told != (*at, *first) {
                found(format!("{named}, which was told to be milestone {} as number {}", told.0, told.1));
            }
        }
    }
}

fn session_id(text: &str) -> Option<SessionId> {
    Some(SessionId(from_hex(text)?.try_into().ok()?))
}

/// Whether a certificate is believed, as `tidemark verify` does, and is that of the award that is shown.
///
/// # Errors
/// Why not.
pub fn certified(
    text: &str,
    award: &AwardBody,
    ca: &TrustAnchor,
    voters: &Voters,
    at_unix_s: u64,
) -> Result<(), String> {
    let certificate = Certificate::from_json(text.as_bytes()).map_err(|refusal| refusal.to_string())?;
    let certified = verify(&certificate, ca, voters, at_unix_s).map_err(|refusal| refusal.to_string())?;
    // A certificate is of any birth.
    let certified =
        AwardBody { position: award.position.clone(), ..AwardBody::new(&certified.award, &Births::default()) };
    match certified == *award {
        true => Ok(()),
        false => Err("it is of another award than the one that is shown".to_owned()),
    }
}

#[cfg(test)]
#[path = "awards_tests.rs"]
mod tests;
