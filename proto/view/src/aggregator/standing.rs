//! Commands that are said to the ledger again and again until its state shows them.

use tidemark_ledger::ledger::{Awaiting, Claim, ClaimState, CounterLedger, EdgesFate, Ledger, Resets};
use tidemark_types::ids::{AggregatorId, CounterName};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{LedgerCmd, ShardChange};

/// Standing commands of one aggregator. More are refused; their submitter sees no effect and tries again.
pub const STANDING_MAX: usize = 4_096;
/// The standing commands on changes of edges: they must not delay the commands that the cluster depends on.
const STANDING_EDGES_MAX: usize = 1_024;
/// Tries that could reach the leader, after which a command is given up: the ledger will not take it.
const TRIES_MAX: u32 = 30;
/// A change of edges is repeated no longer than this, even if the leader can be reached. Its requester has given up then, and
/// others may have changed the same edges.
const EDGES_STAND_FOR: Span = Span::from_millis(20_000);

#[derive(Clone, Debug)]
struct Entry {
    cmd: LedgerCmd,
    due: Time,
    /// When it was said first.
    since: Option<Time>,
    tries: u32,
}

/// Commands that the ledger has not shown yet.
#[derive(Clone, Debug, Default)]
pub struct Standing(Vec<Entry>);

impl Standing {
    pub fn add(&mut self, cmd: LedgerCmd) {
        if let Some(id) = id_of_edges(&cmd) {
            // The same is asked for again, decided anew.
            self.0.retain(|entry| id_of_edges(&entry.cmd) != Some(id));
        }
        if let LedgerCmd::ResetsHeard { .. } = cmd {
            // The later one says more.
            self.0.retain(|entry| !matches!(entry.cmd, LedgerCmd::ResetsHeard { .. }));
        }
        let has_room = self.0.len() < STANDING_MAX && (!is_of_edges(&cmd) || self.edges() < STANDING_EDGES_MAX);
        if has_room && !self.0.iter().any(|entry| is_same(&entry.cmd, &cmd)) {
            self.0.push(Entry { cmd, due: Time(0), since: None, tries: 0 });
        }
    }

    fn edges(&self) -> usize {
        self.0.iter().filter(|entry| is_of_edges(&entry.cmd)).count()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn due(&self) -> Option<Time> {
        self.0.iter().map(|entry| entry.due).min()
    }

    /// Says everything again soon: the leader is new, or can be reached again.
    pub fn hurry(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.due = Time(0));
    }

    /// Drops commands that the ledger shows, returns those that are due. Only a try that can reach the ledger's leader (`heard`)
    /// counts.
    pub fn take_due(
        &mut self,
        now: Time,
        retry: Span,
        ledger: &Ledger,
        own: AggregatorId,
        heard: bool,
    ) -> Vec<LedgerCmd> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let has_time = |entry: &Entry| {
            let tried = entry.tries >= TRIES_MAX && !is_vital(&entry.cmd);
            let is_late = is_of_edges(&entry.cmd) && entry.since.is_some_and(|since| now >= since + EDGES_STAND_FOR);
            !tried && !is_late
        };
        self.0.retain(|entry| has_time(entry) && !is_shown(&entry.cmd, ledger, own));
        let due = self.0.iter_mut().filter(|entry| entry.due <= now);
        due.map(|entry| {
            (entry.due, entry.tries) = (now + retry, entry.tries.saturating_add(heard.into()));
            entry.since.get_or_insert(now);
            entry.cmd.clone()
        })
        .collect()
    }
}

/// Whether one command makes the other needless: the first of a session's claims of one award is enough.
fn is_same(known: &LedgerCmd, cmd: &LedgerCmd) -> bool {
    let claimed = |cmd: &LedgerCmd| {
        let LedgerCmd::Claim { counter, at, holder, session, .. } = cmd else { return None };
        Some((counter.clone(), *at, *holder, *session))
    };
    let covers = match (known, cmd) {
        (
            LedgerCmd::Remains { counter, epoch, group, component },
            LedgerCmd::Remains { counter: of, epoch: then, group: whose, component: less },
        ) => (counter, epoch, group) == (of, then, whose) && component >= less,
        _ => false,
    };
    covers || known == cmd || claimed(known).is_some_and(|claim| claimed(cmd) == Some(claim))
}

fn is_of_edges(cmd: &LedgerCmd) -> bool {
    id_of_edges(cmd).is_some()
}

fn id_of_edges(cmd: &LedgerCmd) -> Option<u64> {
    let LedgerCmd::Edges { id, .. } = cmd else { return None };
    Some(*id)
}

/// Without it the cluster does not work as a whole.
fn is_vital(cmd: &LedgerCmd) -> bool {
    matches!(
        cmd,
        LedgerCmd::View(_)
            | LedgerCmd::ViewStart { .. }
            | LedgerCmd::ViewAck { .. }
            | LedgerCmd::Signature { .. }
            | LedgerCmd::Remains { .. }
            | LedgerCmd::ResetsHeard { .. }
            | LedgerCmd::Shard { change: ShardChange::Parted { .. }, .. }
    )
}

/// Whether the applied state has the effect of the command.
fn is_shown(cmd: &LedgerCmd, ledger: &Ledger, own: AggregatorId) -> bool {
    match cmd {
        LedgerCmd::View(view) => ledger.views().contains(view) || ledger.is_forgotten(view.dc),
        LedgerCmd::ViewStart { view, start } => {
            ledger.view_start(*view) >= Some(*start) || ledger.is_forgotten(view.dc)
        }
        LedgerCmd::SetAside { view, start } => ledger.view_start(*view) != Some(*start),
        LedgerCmd::Namespace(name) => ledger.namespaces().any(|known| known == name),
        LedgerCmd::UpDown(name) => ledger.updown().any(|known| known == name),
        // Carried out, or decided on an outdated state.
        LedgerCmd::Series { namespace, terms } => ledger.series_revision(namespace) >= terms.revision,
        LedgerCmd::IdOwners(_) => !ledger.id_owners().is_empty(),
        LedgerCmd::Birth(_) => ledger.births().current().is_some(),
        LedgerCmd::Spread(counter) => ledger.spread().contains(counter),
        LedgerCmd::ViewAck { counter, epoch, at, arming, .. } => {
            let waits = |a: &Awaiting| (&a.counter, a.epoch, a.at, a.arming) == (counter, *epoch, *at, *arming);
            !ledger.awaiting_view(own).iter().any(waits)
        }
        LedgerCmd::Signature { counter, at, dc, .. } => ledger.counter(counter).is_some_and(|state| {
            state.awards().get(at).is_some_and(|awarded| awarded.signatures.iter().any(|signature| signature.dc == *dc))
        }),
        // Carried out, or decided on an outdated state.
        LedgerCmd::Define { counter, revision, .. } | LedgerCmd::Disarm { counter, revision, .. } => {
            ledger.revision(counter) > *revision
        }
        // Carried out, decided on an outdated state, or refused by a limit that was reached meanwhile.
        LedgerCmd::Reset { counter, revision, .. } => is_over(ledger.resets(), counter, *revision, true),
        LedgerCmd::Expire { counter, revision, .. } => is_over(ledger.resets(), counter, *revision, false),
        LedgerCmd::ResetsHeard { view, upto } => {
            ledger.resets_heard_by(*view) >= *upto || !ledger.views().contains(view)
        }
        LedgerCmd::Edges { revision, id, .. } => ledger.graph().fate(*revision, *id) != EdgesFate::Open,
        LedgerCmd::AllowEdges { from, to } => ledger.graph().is_allowed(from, to),
        LedgerCmd::Shard { dc, shard, revision, change: ShardChange::Hold | ShardChange::Stay } => {
            !ledger.shard_map().is_move(*dc, *shard, *revision)
        }
        LedgerCmd::Shard { dc, shard, change: ShardChange::Parted { seat }, .. } => {
            ledger.shard_map().has_parted(*shard, AggregatorId { dc: *dc, seat: *seat }) || ledger.is_forgotten(*dc)
        }
        LedgerCmd::Shard { revision, .. } => ledger.shard_map().revision() > *revision,
        LedgerCmd::ClaimRule { counter, revision, .. } => ledger.claims().revision(counter) > *revision,
        LedgerCmd::Claim { counter, at, holder, .. } => {
            let still = |claim: &Claim| claim.state == ClaimState::Open && claim.holder == *holder;
            !ledger.claims().get(counter, *at).is_some_and(still)
        }
        // Carried out, or decided on an outdated state.
        LedgerCmd::DeclareLost { group, forced, heard } => {
            ledger.is_lost(*group) || (!forced && ledger.heard_of(*group) != *heard)
        }
        LedgerCmd::Forget { dc, forced, heard } => {
            ledger.is_forgotten(*dc) || (!forced && ledger.heard_of_dc(*dc) != *heard)
        }
        LedgerCmd::Remains { counter, epoch, group, component } => {
            let known = |state: &CounterLedger| state.epoch() != *epoch || state.known_of(*group) >= *component;
            ledger.counter(counter).is_none_or(known)
        }
        LedgerCmd::Hello(_)
        | LedgerCmd::Report(_)
        | LedgerCmd::Offer(_)
        | LedgerCmd::Detail(_)
        | LedgerCmd::Grant { .. }
        | LedgerCmd::ClaimUntil { .. }
        | LedgerCmd::ClaimOver { .. }
        | LedgerCmd::Returned(_)
        | LedgerCmd::Revoke { .. }
        | LedgerCmd::VoterReturns { .. }
        | LedgerCmd::Clock(_) => true,
    }
}

fn is_over(resets: &Resets, counter: &CounterName, revision: u64, is_reset: bool) -> bool {
    resets.life(counter).revision > revision || resets.check(counter, is_reset).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::graph::{Edge, EdgeChange};
    use tidemark_types::ids::DcId;
    use tidemark_types::time::WallMs;

    const RETRY: Span = Span::from_millis(1_000);

    fn of_edges(id: u64) -> LedgerCmd {
        let name = |key: &[u8]| CounterName::new("a", key).unwrap();
        let changes = vec![EdgeChange::Insert(Edge { from: name(b"1"), to: name(b"2") })];
        LedgerCmd::Edges { revision: 0, id, lenient: true, changes, at: WallMs(0), by: String::new() }
    }

    /// The requester has given up, and others may have undone it: it must not come when a partition is over.
    #[test]
    fn a_change_of_edges_is_not_said_any_more_after_its_time_though_nobody_could_be_reached() {
        let mut standing = Standing::default();
        let ledger = Ledger::default();
        let own = AggregatorId::from(DcId(0));
        standing.add(of_edges(1));
        standing.add(LedgerCmd::Namespace("b".into()));
        let mut now = Time(5_000_000);
        let mut times = [0, 0];
        for _ in 0..60 {
            for cmd in standing.take_due(now, RETRY, &ledger, own, false) {
                times[usize::from(is_of_edges(&cmd))] += 1;
            }
            now = now + RETRY;
        }
        assert_eq!((times, standing.len()), ([60, 20], 1));
        standing.hurry();
        assert_eq!(standing.take_due(now, RETRY, &ledger, own, true), [LedgerCmd::Namespace("b".into())]);
    }

    #[test]
    fn changes_of_edges_leave_room_for_what_the_cluster_lives_on() {
        let mut standing = Standing::default();
        (0..2 * STANDING_MAX as u64).for_each(|id| standing.add(of_edges(id)));
        assert_eq!(standing.len(), STANDING_EDGES_MAX);
        standing.add(LedgerCmd::Namespace("b".into()));
        assert_eq!(standing.len(), STANDING_EDGES_MAX + 1);
    }
}
