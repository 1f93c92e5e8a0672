//! Order: what was answered as placed before the winner was asked for stands before the winner (I7); but increments that were certified and
//! not reported when their generation was revoked may stand after it, and as many may be missing as the certificate says are held behind
//! the block of a lost group; increments that were lost with the group itself are not looked for.

use super::Findings;
use super::award::NewAward;
use super::positions::Positions;
use crate::oracle::{Increment, Oracle, number_of};
use tidemark_proto::ledger::Awarded;

const NAME: &str = "order";

/// At an award. Certified increments stand before it because the award checker compares their sums; queued ones are looked
/// up by position, and the weight of all of them must fit before the winner.
pub fn awarded(findings: &mut Findings, oracle: &Oracle, positions: &Positions, new: NewAward<'_>) {
    let NewAward { counter, awarded: Awarded { award, written_off, .. }, state, groups } = new;
    let Some(winner) = award.session.and_then(|session| oracle.increments.get(number_of(session) as usize)) else {
        return;
    };
    let held = written_off.saturating_sub(state.losses().written_off());
    // Nor does any certificate say what a lost group answered while the counter had no milestones.
    let kept = |x: &&Increment| oracle.lost.is_none() || x.group != oracle.lost;
    let before = |x: &&Increment| {
        x.counter == counter && !x.late && kept(x) && x.place.is_some_and(|(_, at)| at < winner.invoked)
    };
    let mut weight = 0;
    for x in oracle.increments.iter().filter(before) {
        weight += x.delta;
        let (Some(pos), Some(group)) = (x.pos, x.group) else { continue };
        let id = groups[usize::from(group)];
        let all = award.before.iter().find(|(known, _)| *known == id).map_or(0, |(_, weight)| *weight);
        let placed = all.saturating_sub(state.accounts().get(&id).map_or(0, |account| account.certain()));
        let upto = positions.weight_upto(group, counter, pos);
        findings.check(NAME, upto.is_some_and(|upto| upto <= placed + held), || {
            format!("{x:?} was placed before the winner {winner:?} was asked for, and stands after it in {award:?}")
        });
    }
    findings.check(NAME, weight < award.first + held, || {
        format!("weight {weight} was placed before the winner {winner:?} was asked for; {held} are held; {award:?}")
    });
}
