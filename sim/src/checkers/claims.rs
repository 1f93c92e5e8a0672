//! Claims: each award is claimed at most once ever, in its time, by the session that held its claim at that place of the log, and then it
//! is; unclaimed it lapses, or passes on to the winner of the counter's next award alone; an answer about it stays true.
//!
//! The log is read here by the rule's words alone, and the ledger must have come to the same.

use super::Findings;
use crate::plan::claims::CLOCK_WRONG_MS_MAX;
use std::collections::{BTreeMap, BTreeSet};
use tidemark_proto::claiming::{ClaimError, Claimable};
use tidemark_proto::ids::{CounterName, LogIndex, SessionId};
use tidemark_proto::ledger::{self, Claim, ClaimState, Ledger};
use tidemark_proto::limits::CLAIM_PASSES_MAX;
use tidemark_proto::msg::{Award, ClaimRule, Fallback, LedgerCmd};
use tidemark_proto::time::WallMs;

const NAME: &str = "claims";

/// An award: counter and first milestone.
pub type Key = (u16, u64);

/// A claim has come to a holder, which has time from now on.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub key: Key,
    pub holder: Option<SessionId>,
    /// The holder before, if it has passed on.
    pub former: Option<SessionId>,
    pub passes: u8,
    pub rule: ClaimRule,
}

/// A session that claims.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub key: Key,
    pub session: SessionId,
    pub name: u128,
}

/// The log as it reads, and what people were told.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    rules: BTreeMap<u16, (u64, Option<ClaimRule>)>,
    /// By counter, in the order of the log.
    won: BTreeMap<u16, Vec<Won>>,
    lines: BTreeMap<Key, Line>,
    named: Vec<Named>,
    /// Names that a caller was told are the claim, and names of which it was denied for good.
    told: BTreeMap<Key, u128>,
    denied: BTreeSet<(Key, u128)>,
    /// Commands since the ledger's whole state of claims was looked at.
    unlooked: usize,
}

#[derive(Clone, Copy, Debug)]
struct Won {
    at: u64,
    first: u64,
    session: Option<SessionId>,
}

/// How one award's claim stands.
#[derive(Clone, Copy, Debug)]
struct Line {
    claim: Claim,
    /// Where the holder's award stands among the counter's.
    holder: usize,
    /// The true time when the claim came to it.
    since: WallMs,
}

impl Claims {
    /// The ledger's own invariants after a command about an award: those of its claim at once, and those of all claims when as many
    /// commands have come as there are claims to look at. To look at all of them each time would take the square of the number of awards in
    /// a run, which may be thousands.
    pub fn look(&mut self, name: &CounterName, at: Option<u64>, claims: &ledger::Claims) {
        if let Some(at) = at {
            claims.check_claim(name, at);
        }
        self.unlooked += 1;
        if self.unlooked >= claims.size() {
            self.unlooked = 0;
            claims.check_invariants();
        }
    }

    // ---- the log ----

    /// An award was made at the true time `now`.
    pub fn awarded(&mut self, counter: u16, award: &Award, now: WallMs) {
        let won = self.won.entry(counter).or_default();
        won.push(Won { at: award.at, first: award.first, session: award.session });
        let newest = won.len() - 1;
        let of_counter = self.lines.range((counter, 0)..=(counter, u64::MAX));
        let waiting = of_counter.filter(|(_, line)| line.claim.state == ClaimState::Waiting).map(|(&key, _)| key);
        for key in waiting.collect::<Vec<_>>() {
            self.pass(key, newest, now);
        }
        if let Some((_, Some(rule))) = self.rules.get(&counter).copied() {
            let claim = Claim { state: ClaimState::Open, holder: award.at, passes: 0, until: None, rule };
            self.lines.insert((counter, award.at), Line { claim, holder: newest, since: now });
            let named = Named { key: (counter, award.at), holder: award.session, former: None, passes: 0, rule };
            self.named.push(named);
        }
    }

    /// A command about claims was applied at the true time `now`; the situation that it was, if it is worth a name.
    pub fn applied(
        &mut self,
        findings: &mut Findings,
        counter: u16,
        index: LogIndex,
        cmd: &LedgerCmd,
        now: WallMs,
    ) -> Option<&'static str> {
        match *cmd {
            LedgerCmd::ClaimRule { revision, rule, .. } => self.ruled(counter, revision, rule),
            LedgerCmd::ClaimUntil { at, holder, until, .. } => self.timed(findings, (counter, at), holder, until, now),
            LedgerCmd::Claim { at, holder, session, id, .. } => {
                self.claimed(findings, Asker { key: (counter, at), session, name: id }, holder, index, now)
            }
            LedgerCmd::ClaimOver { at, holder, .. } => self.over(findings, (counter, at), holder, now),
            _ => None,
        }
    }

    fn ruled(&mut self, counter: u16, of: u64, rule: Option<ClaimRule>) -> Option<&'static str> {
        let (revision, known) = self.rules.entry(counter).or_default();
        if *revision != of {
            return Some("claim rule of an older revision");
        }
        (*revision, *known) = (of + 1, rule);
        Some(match (of, rule) {
            (0, _) => "claim rule made",
            (_, Some(_)) => "claim rule changed",
            (_, None) => "claim rule removed",
        })
    }

    /// The counter was removed, and its rule with it.
    pub fn removed(&mut self, counter: u16) {
        let (revision, known) = self.rules.entry(counter).or_default();
        (*revision, *known) = (*revision + 1, None);
    }

    /// A leader said until when. It knew of the claim, and its clock was wrong by no more than clocks are.
    fn timed(
        &mut self,
        findings: &mut Findings,
        key: Key,
        holder: u64,
        until: WallMs,
        now: WallMs,
    ) -> Option<&'static str> {
        let line = self.lines.get_mut(&key).filter(|line| line.is_held(holder))?;
        if line.claim.until.is_some() {
            return Some("time of a claim said again");
        }
        let period_ms = u64::from(line.claim.rule.period_s) * 1_000;
        let within = line.since.0 + period_ms <= until.0 + CLOCK_WRONG_MS_MAX
            && until.0 <= now.0 + period_ms + CLOCK_WRONG_MS_MAX;
        findings.check(NAME, within, || format!("{key:?}: until {until:?} is said at {now:?} of {line:?}"));
        line.claim.until = Some(until);
        None
    }

    fn claimed(
        &mut self,
        findings: &mut Findings,
        asker: Asker,
        holder: u64,
        index: LogIndex,
        now: WallMs,
    ) -> Option<&'static str> {
        let Asker { key, session, name } = asker;
        let holds = self.holder(key) == Some(session) && self.lines[&key].claim.holder == holder;
        let was_holder = self.has_held(key, session);
        let Some(line) = self.lines.get_mut(&key) else { return Some("claim without a rule") };
        match line.claim.state {
            ClaimState::Open if holds => {
                let denied = self.denied.contains(&(key, name));
                findings.check(NAME, !denied, || format!("{asker:?} counts, and was told that it does not"));
                line.claim.state = ClaimState::Claimed { id: name, index };
                let late = line.claim.until.is_some_and(|until| until < now);
                let passed = line.claim.passes > 0;
                Some(match () {
                    () if late => "claim between the time and its end",
                    () if passed => "claim by whom it passed to",
                    () => "claim in time",
                })
            }
            ClaimState::Claimed { id, .. } if id == name => Some("copy of a claim that counts"),
            ClaimState::Claimed { .. } if holds => Some("claim raced by another of its session"),
            _ if was_holder => Some("claim after its time"),
            _ => Some("claim of another session"),
        }
    }

    /// A leader said that the time is over: not before it was, by any clock.
    fn over(&mut self, findings: &mut Findings, key: Key, holder: u64, now: WallMs) -> Option<&'static str> {
        let Some(line) = self.lines.get_mut(&key).filter(|line| line.is_held(holder)) else {
            return Some("end of a claim's time behind the claim or said again");
        };
        let until = line.claim.until?;
        let over = until.0 <= now.0 + CLOCK_WRONG_MS_MAX;
        findings.check(NAME, over, || format!("{key:?}: its time is said to be over at {now:?}: {line:?}"));
        let lapses = line.claim.rule.fallback == Fallback::Nobody || line.claim.passes == CLAIM_PASSES_MAX;
        if lapses {
            line.claim.state = ClaimState::Lapsed;
            return Some(if line.claim.passes == CLAIM_PASSES_MAX {
                "claim passed on as often as may be"
            } else {
                "claim lapsed"
            });
        }
        // An increment may have several awards, which are one winner's.
        let won = &self.won[&key.0];
        let first = won[line.holder].first;
        match (line.holder..won.len()).find(|&next| won[next].first != first) {
            Some(next) => {
                self.pass(key, next, now);
                Some("claim passed on at once")
            }
            None => {
                line.claim.state = ClaimState::Waiting;
                Some("claim waits for the next award")
            }
        }
    }

    fn pass(&mut self, key: Key, to: usize, now: WallMs) {
        let former = self.holder(key);
        let won = self.won[&key.0][to];
        let Some(line) = self.lines.get_mut(&key) else { return };
        let Claim { passes, rule, .. } = line.claim;
        line.claim = Claim { state: ClaimState::Open, holder: won.at, passes: passes + 1, until: None, rule };
        (line.holder, line.since) = (to, now);
        self.named.push(Named { key, holder: won.session, former, passes: passes + 1, rule });
    }

    // ---- what the ledger came to ----

    /// The ledger has come to the same about one award's claim. An increment may have several awards, and each of them may stand for
    /// its winner.
    pub fn agrees(&mut self, findings: &mut Findings, name: &CounterName, key: Key, ledger: &Ledger) {
        let its = ledger.claims().get(name, key.1).copied();
        if let (Some(line), Some(its), Some(won)) = (self.lines.get_mut(&key), its, self.won.get(&key.0)) {
            let first = won[line.holder].first;
            let winners = won[line.holder..].iter().take_while(|won| won.first == first);
            line.claim.holder = winners.map(|won| won.at).find(|&at| at == its.holder).unwrap_or(line.claim.holder);
        }
        let mine = self.lines.get(&key).map(|line| line.claim);
        findings.check(NAME, mine == its, || format!("{key:?}: the log says {mine:?}, the ledger {its:?}"));
    }

    /// And about the rule.
    pub fn agrees_on_rule(&self, findings: &mut Findings, name: &CounterName, counter: u16, ledger: &Ledger) {
        let mine = self.rules.get(&counter).and_then(|(_, rule)| *rule);
        let its = ledger.claims().rule(name);
        findings.check(NAME, mine == its, || format!("counter {counter}: the log says {mine:?}, the ledger {its:?}"));
    }

    /// A replica shows all that counted up to where it is.
    pub fn shown(&self, findings: &mut Findings, names: &[CounterName], dc: usize, replica: &Ledger) {
        for (key, line) in &self.lines {
            let ClaimState::Claimed { index, .. } = line.claim.state else { continue };
            if index <= replica.applied() {
                let its = replica.claims().get(&names[usize::from(key.0)], key.1);
                findings.check(NAME, its == Some(&line.claim), || {
                    format!("{key:?}: the log says {:?}, replica {dc} {its:?}", line.claim)
                });
            }
        }
    }

    /// The leader says that a time is over: not for a while after it began to lead.
    pub fn may_end(&self, findings: &mut Findings, dc: usize, leads_long_enough: bool) {
        findings
            .check(NAME, leads_long_enough, || format!("data centre {dc} has just begun to lead, and ends a claim"));
    }

    // ---- people ----

    /// A replica that may be behind answered.
    pub fn told(&mut self, findings: &mut Findings, asker: Asker, answer: Result<&Claimable, ClaimError>) {
        let Asker { key, session, name } = asker;
        let state = self.lines.get(&key).map(|line| line.claim.state);
        let its_own = matches!(state, Some(ClaimState::Claimed { id, .. }) if id == name);
        match answer {
            Ok(_) => {
                let right = its_own && self.holder(key) == Some(session);
                findings.check(NAME, right, || format!("{asker:?} was told that it counts; the log says {state:?}"));
                let before = *self.told.entry(key).or_insert(name);
                findings
                    .check(NAME, before == name, || format!("{asker:?} and claim {before} were told that they count"));
            }
            Err(ClaimError::Claimed | ClaimError::Over) => {
                findings.check(NAME, !its_own, || format!("{asker:?} was told {answer:?}; the log says {state:?}"));
                self.denied.insert((key, name));
            }
            Err(_) => {}
        }
    }

    /// Whether the asking session gets an answer.
    pub fn answered(&self, findings: &mut Findings, asker: Asker, answered: bool) {
        findings.check(NAME, answered, || format!("{asker:?} waits for an answer, and nothing is in the way of it"));
    }

    /// Whether the session may claim this now, or has: a denial comes from a replica that is behind.
    pub fn is_holders(&self, key: Key, session: SessionId) -> bool {
        self.lines.contains_key(&key) && self.holder(key) == Some(session)
    }

    /// Claims that have come to a holder since the last call.
    pub fn take_named(&mut self) -> Vec<Named> {
        std::mem::take(&mut self.named)
    }

    /// At the end all times are over.
    pub fn ended(&self, findings: &mut Findings) {
        let open = self.open();
        findings.check(NAME, open.is_none(), || format!("the time of {open:?} has not ended"));
    }

    /// A claim that may still be made.
    pub fn open(&self) -> Option<Key> {
        self.lines.iter().find(|(_, line)| line.claim.state == ClaimState::Open).map(|(&key, _)| key)
    }

    fn holder(&self, key: Key) -> Option<SessionId> {
        let line = self.lines.get(&key)?;
        self.won[&key.0][line.holder].session
    }

    fn has_held(&self, key: Key, session: SessionId) -> bool {
        let Some(line) = self.lines.get(&key) else { return false };
        let won = &self.won[&key.0][..=line.holder];
        won.iter().any(|won| won.at >= key.1 && won.session == Some(session))
    }
}

impl Line {
    fn is_held(&self, holder: u64) -> bool {
        self.claim.state == ClaimState::Open && self.claim.holder == holder
    }
}
