//! An old copy of a node's disk takes its place. If the ledger knows more of the group than the copy does, the process on it is fenced out
//! and offers nothing (A7 in docs/internals/protocol.md); no other process is disturbed, and a run ends soon after that. The rows that the
//! copy lacks are lost with it, and a data centre that lost rights keeps the next milestone from being awarded.

use super::faults::WAIT_FOR_SITUATION;
use super::{Event, World};
use crate::disk::Disk;
use crate::plan::{Fault, INCREMENTS_OF_EVIDENCE, SAFETY};
use tidemark_proto::group::Group;
use tidemark_proto::ids::{CounterName, DcId, GroupId, Half, LogIndex};
use tidemark_proto::ledger::Ledger;
use tidemark_proto::time::{Span, Time};

/// So long the others are watched after the copy was judged.
const WATCHED: Span = Span::from_secs(4);

/// The copy of one run.
#[derive(Debug, Default)]
pub struct OldDisk {
    copy: Option<Disk>,
    /// The node that runs on it.
    node: Option<usize>,
    /// Its last entry.
    last: u64,
    /// When it was fenced out, or let in.
    judged: Option<(Time, Judgement)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    FencedOut,
    LetIn,
}

impl OldDisk {
    /// The oracle knows nothing of the counts of such a node.
    pub fn is_of(&self, node: usize) -> bool {
        self.node == Some(node)
    }

    /// Whether a run has such a node: not everything will arrive.
    pub fn is_used(&self) -> bool {
        self.node.is_some()
    }

    /// A node that is let in goes on from a state that no other process knows.
    pub fn is_over(&self, now: Time) -> bool {
        self.judged.is_some_and(|(at, judgement)| judgement == Judgement::LetIn || now - at >= WATCHED)
    }

    /// Whether the ledger has had its say.
    pub fn is_judged(&self) -> bool {
        self.judged.is_some()
    }
}

impl World {
    /// An operator copies the disk of a node, as of the part that the oracle has read. An entry that survived a crash is read when the node
    /// starts again, and would never be read if the copy took its place by then.
    pub(super) fn copy_disk(&mut self, node: usize) {
        let seen = LogIndex(self.audit.oracle.groups[self.nodes[node].group].seen);
        self.old_disk.copy = Some(self.nodes[node].disk().copy(seen));
    }

    /// The node's machine is lost, and an operator starts another one from the copy.
    pub(super) fn on_old_disk(&mut self, index: usize) {
        let Fault::OldDisk { node, .. } = self.plan.faults[index].1 else { return };
        if self.is_too_early_to_end() {
            return self.after(WAIT_FOR_SITUATION, Event::OldDisk(index));
        }
        let Some(copy) = self.old_disk.copy.take().filter(|_| !self.faults_over) else { return };
        let node = self.processes_of(node).start;
        self.note(53, [node as u64, copy.last().0, 0], || {
            format!("an old copy of the disk takes the place of node {node}'s")
        });
        self.coverage.saw("old disk restored");
        let last = copy.last().0;
        self.replace_disk(node, copy);
        (self.old_disk.node, self.old_disk.last) = (Some(node), last);
    }

    /// A run ends with it, and has to be evidence by then. A run that would end before its faults goes on without the copy.
    fn is_too_early_to_end(&self) -> bool {
        let few = self.increments() < INCREMENTS_OF_EVIDENCE || self.audit.awards.known.is_empty();
        !self.faults_over && (few || self.now < Time::default() + SAFETY.0)
    }

    /// A step of the node on the copy: whether it is fenced out, or may go on.
    pub(super) fn judge_old_disk(&mut self, node: usize) {
        let Some(group) = self.nodes[node].started() else { return };
        if self.old_disk.judged.is_some() || !self.old_disk.is_of(node) {
            return;
        }
        let at = self.nodes[node].group;
        let id = self.groups[at];
        if group.is_fenced_out() {
            self.old_disk.judged = Some((self.now, Judgement::FencedOut));
            self.coverage.saw("old disk fenced out");
        } else if group.rights_usable() {
            self.old_disk.judged = Some((self.now, Judgement::LetIn));
            let more = knows_more(&self.reference, id, group);
            self.audit.findings.check("fencing", more.is_none(), || {
                format!("{id} was let in on an old copy of its disk: {}", more.unwrap_or_default())
            });
            let lacks = self.audit.oracle.groups[at].seen > self.old_disk.last;
            let known = u64::from(self.view_knows_more(node));
            self.coverage.saw_times("old disk let in: the data centre's view knew more", known);
            self.coverage.saw(match lacks {
                true => "old disk let in: of what it lacks the ledger had heard nothing",
                false => "old disk let in: it lacks nothing",
            });
        }
    }
}

impl World {
    /// Whether the view of a data centre with this one node has heard of more from it than it knows of itself.
    fn view_knows_more(&self, node: usize) -> bool {
        let dc = self.plan.nodes[self.nodes[node].group];
        let alone = self.plan.nodes.iter().filter(|&&other| other == dc).count() == 1;
        let Some(started) = self.nodes[node].started() else { return false };
        let seats = self.aggregators_of(dc).into_iter();
        let cores: Vec<_> = seats.filter_map(|at| self.aggregators[at].core()).collect();
        let knows_more = |name: &CounterName| {
            let parts =
                cores.iter().filter_map(|core| core.view().parts_of(name, Half::Up, 0).get(&DcId(dc as u16)).copied());
            let known = parts.max();
            let slot = started.table().find(&name.total());
            known.unwrap_or(0) > slot.map_or(0, |slot| started.sum(slot))
        };
        alone && self.names.iter().any(knows_more)
    }
}

/// The ledger's knowledge of a group that the group does not have.
fn knows_more(ledger: &Ledger, id: GroupId, group: &Group) -> Option<String> {
    let of = |name| Some((name, ledger.counter(name)?.accounts().get(&id)?));
    ledger.guarded().filter_map(of).find_map(|(name, known)| {
        let guard = group.guard_of(name).map(|number| &group.guards()[number as usize]);
        let (spent, returned, next_pos) =
            guard.map_or((0, 0, 0), |guard| (guard.spent, guard.returned, guard.next_pos()));
        let more = known.spent > spent || known.returned > returned || known.next_pos > next_pos;
        more.then(|| {
            let knows = (known.spent, known.returned, known.next_pos);
            format!(
                "of {name} the ledger knows (spent, returned, next position) {knows:?}, it {:?}",
                (spent, returned, next_pos)
            )
        })
    })
}
