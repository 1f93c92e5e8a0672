//! Claims of awards: the winner is known to all, and sessions ask for it at the aggregators of data centres as its shell lets them, with
//! [`Claiming`]; the clocks of data centres are wrong, and a session without an answer asks elsewhere under the same name.

use super::{Event, World};
use crate::checkers::claims::{Asker, Named};
use crate::oracle::{number_of, session_of};
use crate::plan::claims::{Manner, Who};
use crate::plan::leases::shown;
use crate::teeth::Mutation;
use std::rc::Rc;
use tidemark_proto::aggregator::{CLOCK_INTERVAL, Input, LEADS_BEFORE_IT_ENDS};
use tidemark_proto::claiming::{ClaimError, Claimable, Claiming, Step};
use tidemark_proto::ids::{CounterName, LogIndex, SessionId};
use tidemark_proto::ledger::Claim;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::{Span, Time, WallMs};

/// The wall clock's time when a run began.
pub(super) const BEGAN_AT: WallMs = WallMs(1_700_000_000_000);
/// How often a session that waits for an answer looks at the replica.
const LOOK_INTERVAL: Span = Span::from_millis(50);
/// A session without an answer, or with an answer that may be behind, asks again after this.
const ASK_AGAIN: Span = Span::from_millis(500);
/// More claims than this, one run does not need.
const SUITORS_MAX: usize = 400;
/// Without faults there is a leader after this, and a session that asks from then on is answered.
const SETTLED: Span = Span::from_secs(5);

/// A session that claims an award until there is an answer.
pub struct Suitor {
    asker: Asker,
    /// Where it asks next, or waits for an answer.
    dc: usize,
    manner: Manner,
    asking: Option<Asking>,
    asked: u32,
    decided: bool,
}

/// A session waits at an aggregator.
struct Asking {
    claiming: Claiming,
    /// The aggregator's process.
    boot: u32,
    began: Time,
    /// Elections until it was said to the ledger.
    elections: Option<u64>,
    leaves: Option<Time>,
}

impl World {
    // ---- clocks ----

    /// The wall clock of a data centre.
    pub(super) fn wall(&self, dc: usize) -> WallMs {
        WallMs(self.true_wall().0.saturating_add_signed(self.plan.claims.clocks[self.home_of(dc)].ahead(self.now)))
    }

    pub(super) fn true_wall(&self) -> WallMs {
        WallMs(BEGAN_AT.0 + self.now.0 / 1_000)
    }

    /// Each host says what its clock shows, not all at the same time.
    pub(super) fn on_clocks(&mut self, scans: u64, scan_interval: Span) {
        let every = (CLOCK_INTERVAL.0 / scan_interval.0).max(1);
        for dc in self.members() {
            if self.aggregators[dc].is_up() && (scans + dc as u64).is_multiple_of(every) {
                let wall = self.wall(dc);
                self.cover_clock(dc, wall);
                self.aggregator_input(dc, Input::Clock(wall));
            }
        }
    }

    fn cover_clock(&mut self, dc: usize, wall: WallMs) {
        let over = |(_, _, claim): (_, _, &Claim)| claim.until.is_some_and(|until| until <= wall);
        if self.raft.is_leader(dc) && !self.leads_long_enough(dc) {
            let kept = self.aggregators[dc].ledger.claims().open().any(over);
            self.coverage.saw_times("claim kept open by who has just begun to lead", u64::from(kept));
        }
    }

    /// By its own clock.
    fn leads_long_enough(&self, dc: usize) -> bool {
        let since = self.elected[dc].map(|at| shown(at, self.plan.leases.aggregators_ppm[self.home_of(dc)]));
        since.is_some_and(|since| self.aggregator_time(dc) - since >= LEADS_BEFORE_IT_ENDS)
    }

    /// An aggregator hands commands to the log.
    pub(super) fn audit_proposed_claims(&mut self, dc: usize, cmds: &[LedgerCmd]) {
        if self.raft.is_leader(dc) && cmds.iter().any(|cmd| matches!(cmd, LedgerCmd::ClaimOver { .. })) {
            let long_enough = self.leads_long_enough(dc);
            self.audit.claims.may_end(&mut self.audit.findings, dc, long_enough);
        }
    }

    // ---- the log ----

    /// A command was applied to the reference.
    pub(super) fn audit_claims(&mut self, index: LogIndex, cmd: &LedgerCmd, awards: &[(CounterName, u64)]) {
        let now = self.true_wall();
        for (name, at) in awards {
            let awarded = self.reference.counter(name).and_then(|state| state.awards().get(at));
            if let (Some(counter), Some(awarded)) = (self.counter_index(name.key()), awarded) {
                self.audit.claims.awarded(counter, &awarded.award, now);
            }
        }
        if let Some((name, at)) = of_claims(cmd) {
            self.audit_claim(index, cmd, name, at);
        }
        for named in self.audit.claims.take_named() {
            let name = &self.names[usize::from(named.key.0)];
            self.audit.claims.agrees(&mut self.audit.findings, name, named.key, &self.reference);
            self.on_named(named);
        }
    }

    fn audit_claim(&mut self, index: LogIndex, cmd: &LedgerCmd, name: &CounterName, at: Option<u64>) {
        let now = self.true_wall();
        let Some(counter) = self.counter_index(name.key()) else { return };
        if self.reference.counter(name).is_none() {
            return;
        }
        self.trace.note(self.now, 70, [index.0, at.unwrap_or(0), 0], || format!("applied {cmd:?}"));
        let audit = &mut self.audit;
        if let Some(situation) = audit.claims.applied(&mut audit.findings, counter, index, cmd, now) {
            self.coverage.saw(situation);
        }
        match at {
            Some(at) => audit.claims.agrees(&mut audit.findings, name, (counter, at), &self.reference),
            None => audit.claims.agrees_on_rule(&mut audit.findings, name, counter, &self.reference),
        }
        if audit.findings.violations.is_empty() {
            audit.claims.look(name, at, self.reference.claims());
        }
    }

    /// A replica has applied commands about claims, or begins with what it had.
    pub(super) fn audit_replica_claims(&mut self, dc: usize) {
        let audit = &mut self.audit;
        audit.claims.shown(&mut audit.findings, &self.names, dc, &self.aggregators[dc].ledger);
    }

    // ---- claims ----

    /// A claim has come to a holder.
    fn on_named(&mut self, named: Named) {
        let Named { key, holder, former, passes, rule } = named;
        self.coverage.saw("award to be claimed");
        for suit in self.plan.claims.suits(key.0, key.1, passes, Span::from_secs(rule.period_s.into())) {
            let session = match suit.who {
                Who::Holder => holder,
                Who::Former => former,
                Who::Stranger => holder.map(stranger_to),
            };
            let Some(session) = session.filter(|_| self.suitors.len() < SUITORS_MAX) else { continue };
            let name = u128::from(number_of(session)) << 64 | u128::from(suit.name);
            let asker = Asker { key, session, name };
            let Manner::Blunt = suit.manner else {
                let asking = None;
                let asked = 0;
                let decided = false;
                self.suitors.push(Suitor { asker, dc: suit.dc, manner: suit.manner, asking, asked, decided });
                self.after(suit.after, Event::Ask { suitor: self.suitors.len() - 1 });
                continue;
            };
            self.after(suit.after, Event::Blurt { cmd: self.claim_of(asker) });
        }
    }

    fn claim_of(&self, asker: Asker) -> LedgerCmd {
        let Asker { key, session, name } = asker;
        let counter = self.names[usize::from(key.0)].clone();
        let holder = self.reference.claims().get(&counter, key.1).map_or(key.1, |claim| claim.holder);
        LedgerCmd::Claim { counter, at: key.1, holder, session, id: name }
    }

    /// A claim comes into the ledger's log, whatever its replicas show.
    pub(super) fn on_blurt(&mut self, cmd: LedgerCmd) {
        let Some(leader) = self.raft.leader() else { return };
        self.coverage.saw("claim said without a look");
        let cmds = Rc::new(vec![cmd]);
        self.propose_entry(leader, &cmds);
        self.copy_later(&cmds);
    }

    pub(super) fn on_ask(&mut self, suitor: usize) {
        let Suitor { asker, dc, manner, asking: None, asked, .. } = self.suitors[suitor] else { return };
        if !self.aggregators[dc].is_up() {
            return self.ask_elsewhere(suitor);
        }
        self.note(71, [suitor as u64, dc as u64, 0], || format!("{asker:?} asks data centre {dc}"));
        self.coverage.saw_times("claim asked for again", u64::from(asked > 0));
        let counter = self.names[usize::from(asker.key.0)].clone();
        let claiming = Claiming::new(self.now, counter, asker.key.1, asker.session, asker.name);
        let leaves = match manner {
            Manner::Leaves(span) if asked == 0 => Some(self.now + span),
            _ => None,
        };
        let boot = self.aggregators[dc].boot;
        let asking = Asking { claiming, boot, began: self.now, elections: None, leaves };
        (self.suitors[suitor].asking, self.suitors[suitor].asked) = (Some(asking), asked + 1);
        self.on_look(suitor);
    }

    /// A session looks whether there is an answer.
    pub(super) fn on_look(&mut self, suitor: usize) {
        let Suitor { dc, asking: Some(asking), .. } = &mut self.suitors[suitor] else { return };
        let process = &self.aggregators[*dc];
        let dc = *dc;
        let said = asking.elections.is_some();
        if !process.is_up() || process.boot != asking.boot {
            self.coverage.saw_times("aggregator lost between claim and answer", u64::from(said));
            return self.ask_elsewhere(suitor);
        }
        if asking.leaves.is_some_and(|at| at <= self.now) {
            self.coverage.saw_times("answer to a claim lost", u64::from(said));
            return self.ask_elsewhere(suitor);
        }
        match asking.claiming.look(self.now, &process.ledger) {
            Step::Done(answer) => return self.on_answered(suitor, answer),
            Step::Wait => {}
            Step::Say(cmd) => {
                asking.elections = Some(self.elections);
                self.doom_one(suitor);
                self.aggregator_input(dc, Input::Submit(vec![cmd]));
                if self.mutation == Mutation::ClaimAnsweredEarly {
                    return self.answer_early(suitor);
                }
            }
        }
        self.after(LOOK_INTERVAL, Event::Look { suitor });
    }

    /// An aggregator may be about to crash when a session claims.
    fn doom_one(&mut self, suitor: usize) {
        let Suitor { dc, manner: Manner::AmidACrash { of_leader, outputs, span }, asked: 1, .. } = self.suitors[suitor]
        else {
            return;
        };
        let victim = self.raft.leader().filter(|_| of_leader).unwrap_or(dc);
        if !self.faults_over {
            self.doom_aggregator(victim, outputs, span);
        }
    }

    fn answer_early(&mut self, suitor: usize) {
        let Suitor { asker, dc, .. } = self.suitors[suitor];
        let name = &self.names[usize::from(asker.key.0)];
        if let Ok(claimable) = self.aggregators[dc].ledger.claimable(name, asker.key.1) {
            self.on_answered(suitor, Ok(claimable));
        }
    }

    fn on_answered(&mut self, suitor: usize, answer: Result<Claimable, ClaimError>) {
        let Suitor { asker, dc, asked, .. } = self.suitors[suitor];
        let Some(asking) = self.suitors[suitor].asking.take() else { return };
        self.note(72, [suitor as u64, dc as u64, u64::from(answer.is_ok())], || {
            format!("{asker:?} is told {answer:?}")
        });
        let audit = &mut self.audit;
        audit.claims.told(&mut audit.findings, asker, answer.as_ref().map_err(|error| *error));
        let elected = asking.elections.is_some_and(|before| before != self.elections);
        self.coverage.saw_times("ledger leader lost between claim and answer", u64::from(elected && answer.is_ok()));
        self.coverage.saw_times("claim asked for again that counts", u64::from(asked > 1 && answer.is_ok()));
        self.coverage.saw(name_of(&answer));
        match answer {
            Ok(_) | Err(ClaimError::Claimed | ClaimError::Over) => self.suitors[suitor].decided = true,
            Err(ClaimError::InDoubt) => {
                let settled = self.faults_over && asking.began >= self.plan.safety_end + SETTLED;
                let audit = &mut self.audit;
                audit.claims.answered(&mut audit.findings, asker, !settled);
                self.ask_elsewhere(suitor);
            }
            Err(_) if self.audit.claims.is_holders(asker.key, asker.session) => {
                self.coverage.saw("claim denied by a replica that is behind");
                self.ask_elsewhere(suitor);
            }
            Err(_) => self.suitors[suitor].decided = true,
        }
    }

    fn ask_elsewhere(&mut self, suitor: usize) {
        let dcs = self.plan.sites.len();
        let state = &mut self.suitors[suitor];
        (state.asking, state.dc) = (None, (state.dc + 1) % dcs);
        self.after(ASK_AGAIN, Event::Ask { suitor });
    }

    // ---- the end ----

    /// No session waits for an answer, no time is still to end, and every replica shows the same.
    pub(super) fn claims_at_rest(&self) -> bool {
        self.suitors.iter().all(|suitor| suitor.decided)
            && self.audit.claims.open().is_none()
            && self.aggregators.iter().all(|process| process.ledger.claims() == self.reference.claims())
    }

    pub(super) fn audit_claims_end(&mut self) {
        let audit = &mut self.audit;
        for suitor in self.suitors.iter().filter(|suitor| !suitor.decided) {
            audit.claims.answered(&mut audit.findings, suitor.asker, false);
        }
        audit.claims.ended(&mut audit.findings);
        self.reference.claims().check_invariants();
        for dc in 0..self.aggregators.len() {
            let same = self.aggregators[dc].ledger.claims() == self.reference.claims();
            self.audit.findings.check("claims", same, || format!("at the end replica {dc} differs from the log"));
        }
        (0..self.aggregators.len()).for_each(|dc| self.audit_replica_claims(dc));
    }
}

/// The counter, and the award, that a command about claims is of.
pub(super) fn of_claims(cmd: &LedgerCmd) -> Option<(&CounterName, Option<u64>)> {
    match cmd {
        LedgerCmd::ClaimRule { counter, .. } => Some((counter, None)),
        LedgerCmd::ClaimUntil { counter, at, .. }
        | LedgerCmd::Claim { counter, at, .. }
        | LedgerCmd::ClaimOver { counter, at, .. } => Some((counter, Some(*at))),
        _ => None,
    }
}

/// The session of the increment that was asked for next.
fn stranger_to(session: SessionId) -> SessionId {
    session_of(number_of(session).wrapping_add(1))
}

fn name_of(answer: &Result<Claimable, ClaimError>) -> &'static str {
    match answer {
        Ok(_) => "claim answered: it counts",
        Err(ClaimError::Claimed) => "claim answered: claimed already",
        Err(ClaimError::Over) => "claim answered: over",
        Err(ClaimError::NotTheHolder) => "claim answered: another session's",
        Err(ClaimError::InDoubt) => "claim in doubt",
        Err(ClaimError::NotAwarded | ClaimError::NoAward | ClaimError::NotToBeClaimed) => {
            "claim answered: nothing to claim"
        }
    }
}
