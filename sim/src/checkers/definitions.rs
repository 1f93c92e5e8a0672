//! Definitions: what an operator decided is carried out at most once, however late copies of it arrive; a definition takes no single
//! milestone out of its armed state; a view's answer counts for the arming that it was asked about.

use super::Findings;
use std::collections::BTreeSet;
use tidemark_proto::ledger::{Milestones, Pending};
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::wire;

const NAME: &str = "definitions";

/// Decisions that were carried out.
#[derive(Clone, Debug, Default)]
pub struct Definitions(BTreeSet<Vec<u8>>);

impl Definitions {
    /// A command was applied to a counter's milestones.
    pub fn applied(&mut self, findings: &mut Findings, cmd: &LedgerCmd, before: &Milestones, after: &Milestones) {
        match cmd {
            LedgerCmd::Define { .. } => {
                self.carried_out(findings, cmd, before, after);
                armed_stays(findings, cmd, before, after);
            }
            LedgerCmd::Disarm { .. } => self.carried_out(findings, cmd, before, after),
            LedgerCmd::ViewAck { at, arming, .. } => answered(findings, *at, *arming, before, after),
            _ => {}
        }
    }

    /// A reset or a change of an expiry was carried out.
    pub fn of_life(&mut self, findings: &mut Findings, cmd: &LedgerCmd) {
        let fresh = self.0.insert(wire::encode(cmd));
        findings.check(NAME, fresh, || format!("carried out a second time: {cmd:?}"));
    }

    fn carried_out(&mut self, findings: &mut Findings, cmd: &LedgerCmd, before: &Milestones, after: &Milestones) {
        let wanted = |of: &Milestones| (of.pending().map(|(at, _)| at).collect::<BTreeSet<_>>(), of.every());
        let fresh = wanted(before) == wanted(after) || self.0.insert(wire::encode(cmd));
        findings.check(NAME, fresh, || format!("carried out a second time: {cmd:?}"));
    }
}

fn armed_stays(findings: &mut Findings, cmd: &LedgerCmd, before: &Milestones, after: &Milestones) {
    // A new rule takes the place of the one before, which is the operator's wish.
    let armed = |at: &&u64| before.get(**at) == Some(&Pending::Armed);
    for &at in before.singles().iter().filter(armed) {
        let stays = after.armed_from(at) == Some(at);
        findings.check(NAME, stays, || format!("milestone {at} was armed before, and is not after: {cmd:?}"));
    }
}

fn answered(findings: &mut Findings, at: u64, of: u64, before: &Milestones, after: &Milestones) {
    if before != after
        && let Some(Pending::Arming { arming, .. }) = before.get(at)
    {
        findings.check(NAME, *arming == of, || format!("an answer to arming {of} of {at} counted for arming {arming}"));
    }
}
