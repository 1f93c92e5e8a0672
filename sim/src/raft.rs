//! A model of Raft for the ledger's log and those of groups, faithful where their owners could tell the difference. It has terms, log
//! matching, and commitment by a majority of voters over the present links. Unsynced tails are lost at a crash, an uncommitted suffix
//! survives or not depending on the voters that had it, and a deposed leader believes in itself until it receives a higher term. Only the
//! vote itself is atomic: the model picks a candidate that a connected majority would elect.

use std::collections::VecDeque;
use std::rc::Rc;
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::time::Span;

/// Commands of one entry of the ledger's log.
pub type Cmds = Rc<Vec<LedgerCmd>>;

/// An entry of a member's log. The first entry of a leader is the default.
#[derive(Clone, Debug)]
pub struct Entry<C> {
    pub term: u64,
    pub cmds: C,
}

/// Between members.
#[derive(Clone, Debug)]
pub enum RaftMsg<C> {
    Append { term: u64, prev: usize, prev_term: u64, entries: Vec<Entry<C>>, commit: usize },
    Ack { term: u64, matched: usize, ok: bool },
}

#[derive(Clone, Debug)]
struct Lead {
    next: Vec<usize>,
    matched: Vec<usize>,
    seen: Vec<usize>,
}

/// A member, with its copy of the log.
#[derive(Clone, Debug)]
pub struct Member<C> {
    pub voter: bool,
    pub up: bool,
    pub term: u64,
    pub log: Vec<Entry<C>>,
    /// Entries known to be committed.
    pub commit: usize,
    /// The leader, as far as this member knows.
    pub leader: Option<usize>,
    lead: Option<Lead>,
    /// Entries that have reached the disk; the rest is lost at a crash.
    synced: usize,
}

/// All members, by number: data centres, or the replicas of a group.
#[derive(Clone, Debug)]
pub struct Raft<C> {
    pub members: Vec<Member<C>>,
    /// Messages to send: (from, to, after a sync of the sender's disk, message).
    pub outbox: VecDeque<(usize, usize, bool, RaftMsg<C>)>,
    /// A deliberate bug: one voter is a majority.
    pub broken_quorum: bool,
}

impl<C: Clone + Default> Raft<C> {
    pub fn new(dcs: usize, voters: &[usize]) -> Raft<C> {
        let member = |dc| Member {
            voter: voters.contains(&dc),
            up: true,
            term: 0,
            log: Vec::new(),
            commit: 0,
            leader: None,
            lead: None,
            synced: 0,
        };
        Raft { members: (0..dcs).map(member).collect(), outbox: VecDeque::new(), broken_quorum: false }
    }

    pub fn is_leader(&self, dc: usize) -> bool {
        self.members[dc].up && self.members[dc].lead.is_some()
    }

    /// The leader of the highest term: the one that can commit, if any can.
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len()).filter(|&dc| self.is_leader(dc)).max_by_key(|&dc| self.members[dc].term)
    }

    fn majority(&self) -> usize {
        if self.broken_quorum { 1 } else { self.members.iter().filter(|m| m.voter).count() / 2 + 1 }
    }

    /// Appends at a leader and sends to all; `false` when this member does not lead.
    pub fn propose(&mut self, dc: usize, cmds: C) -> bool {
        if !self.is_leader(dc) {
            return false;
        }
        let term = self.members[dc].term;
        self.members[dc].log.push(Entry { term, cmds });
        self.sync_own(dc);
        (0..self.members.len()).filter(|&to| to != dc).for_each(|to| self.send_append(dc, to));
        true
    }

    /// A leader's heartbeat: says its commit index, and sends again from what was acknowledged where nothing moved.
    pub fn heartbeat(&mut self, dc: usize) {
        for to in (0..self.members.len()).filter(|&to| to != dc) {
            let Some(lead) = &mut self.members[dc].lead else { return };
            if lead.matched[to] == lead.seen[to] {
                lead.next[to] = lead.matched[to];
            }
            lead.seen[to] = lead.matched[to];
            self.send_append(dc, to);
        }
    }

    fn sync_own(&mut self, dc: usize) {
        let Member { term, log, .. } = &self.members[dc];
        let ack = RaftMsg::Ack { term: *term, matched: log.len(), ok: true };
        self.outbox.push_back((dc, dc, true, ack));
    }

    fn send_append(&mut self, dc: usize, to: usize) {
        let Member { term, log, commit, lead: Some(lead), .. } = &mut self.members[dc] else { return };
        let prev = lead.next[to].min(log.len());
        lead.next[to] = log.len();
        let prev_term = if prev == 0 { 0 } else { log[prev - 1].term };
        let entries = log[prev..].to_vec();
        self.outbox.push_back((
            dc,
            to,
            false,
            RaftMsg::Append { term: *term, prev, prev_term, entries, commit: *commit },
        ));
    }

    pub fn handle(&mut self, dc: usize, from: usize, msg: RaftMsg<C>) {
        match msg {
            RaftMsg::Append { term, prev, prev_term, entries, commit } => {
                self.on_append(dc, from, term, (prev, prev_term), entries, commit);
            }
            RaftMsg::Ack { term, matched, ok } => self.on_ack(dc, from, term, matched, ok),
        }
    }

    fn on_append(
        &mut self,
        dc: usize,
        from: usize,
        term: u64,
        prev: (usize, u64),
        entries: Vec<Entry<C>>,
        commit: usize,
    ) {
        let m = &mut self.members[dc];
        if term < m.term {
            return self.outbox.push_back((dc, from, false, RaftMsg::Ack { term: m.term, matched: 0, ok: false }));
        }
        if term > m.term {
            m.lead = None;
            m.term = term;
        }
        m.leader = Some(from);
        let (prev, prev_term) = prev;
        if m.log.len() < prev || (prev > 0 && m.log[prev - 1].term != prev_term) {
            let matched = prev.saturating_sub(1).min(m.log.len()).max(m.commit);
            return self.outbox.push_back((dc, from, false, RaftMsg::Ack { term, matched, ok: false }));
        }
        let end = prev + entries.len();
        m.merge(prev, entries);
        m.commit = m.commit.max(commit.min(end));
        let unsynced = end > m.synced;
        self.outbox.push_back((dc, from, unsynced, RaftMsg::Ack { term, matched: end, ok: true }));
    }

    fn on_ack(&mut self, dc: usize, from: usize, term: u64, matched: usize, ok: bool) {
        let m = &mut self.members[dc];
        if term > m.term {
            (m.term, m.lead, m.leader) = (term, None, None);
        }
        if term == m.term && from == dc {
            m.synced = m.synced.max(matched.min(m.log.len()));
        }
        let (Some(lead), true) = (&mut m.lead, term == m.term) else { return };
        if ok {
            lead.matched[from] = lead.matched[from].max(matched);
            self.advance(dc);
        } else {
            lead.next[from] = matched;
            self.send_append(dc, from);
        }
    }

    fn advance(&mut self, dc: usize) {
        let majority = self.majority();
        let voters: Vec<usize> = (0..self.members.len()).filter(|&v| self.members[v].voter).collect();
        let m = &mut self.members[dc];
        let Some(lead) = &m.lead else { return };
        let mut matched: Vec<usize> = voters.iter().map(|&v| lead.matched[v]).collect();
        matched.sort_unstable_by(|a, b| b.cmp(a));
        let upto = matched[majority - 1];
        if upto > m.commit && m.log[upto - 1].term == m.term {
            m.commit = upto;
        }
    }

    /// A disk sync of everything appended so far; called when a delayed acknowledgement leaves.
    pub fn synced(&mut self, dc: usize, upto: usize) {
        let m = &mut self.members[dc];
        m.synced = m.synced.max(upto.min(m.log.len()));
    }

    pub fn crash(&mut self, dc: usize) {
        let m = &mut self.members[dc];
        m.log.truncate(m.synced.max(m.commit));
        m.synced = m.log.len();
        (m.up, m.lead, m.leader) = (false, None, None);
    }

    /// Comes back knowing `commit` entries to be committed: what its snapshot covers.
    pub fn restart(&mut self, dc: usize, commit: usize) {
        (self.members[dc].up, self.members[dc].commit) = (true, commit);
    }

    /// Takes another member's committed prefix over, as an installed snapshot does. A member that led in an earlier term than that in which
    /// the prefix ends does not lead any more: its entries behind it would be taken for those that others have from it.
    pub fn install(&mut self, dc: usize, prefix: Vec<Entry<C>>) {
        let m = &mut self.members[dc];
        let upto = prefix.len();
        let term = prefix.last().map_or(0, |entry| entry.term);
        if term > m.term {
            (m.term, m.lead, m.leader) = (term, None, None);
        }
        m.merge(0, prefix);
        m.commit = m.commit.max(upto);
        m.synced = m.synced.max(upto);
    }

    /// Elects `candidate` if a connected majority of voters would: their logs are not newer than its own.
    pub fn elect(&mut self, candidate: usize, connected: impl Fn(usize, usize) -> bool) -> bool {
        let newest = |m: &Member<C>| (m.log.last().map_or(0, |e| e.term), m.log.len());
        let me = newest(&self.members[candidate]);
        let would = |&v: &usize| {
            let m = &self.members[v];
            m.voter && m.up && (v == candidate || connected(v, candidate)) && newest(m) <= me
        };
        let electors: Vec<usize> = (0..self.members.len()).filter(would).collect();
        if !self.members[candidate].voter || !self.members[candidate].up || electors.len() < self.majority() {
            return false;
        }
        let term = electors.iter().map(|&v| self.members[v].term).max().unwrap_or(0) + 1;
        for v in electors {
            (self.members[v].term, self.members[v].lead) = (term, None);
        }
        self.lead(candidate);
        true
    }

    fn lead(&mut self, dc: usize) {
        let dcs = self.members.len();
        let m = &mut self.members[dc];
        m.leader = Some(dc);
        let len = m.log.len();
        m.lead = Some(Lead { next: vec![len; dcs], matched: vec![0; dcs], seen: vec![usize::MAX; dcs] });
        self.propose(dc, C::default());
    }

    /// A leader gives up: it heard of no majority for too long.
    pub fn step_down(&mut self, dc: usize) {
        (self.members[dc].lead, self.members[dc].leader) = (None, None);
    }

    /// The disk is lost: the member has no vote until it is caught up again.
    pub fn wipe(&mut self, dc: usize) {
        let m = &mut self.members[dc];
        (m.voter, m.log, m.commit, m.synced) = (false, Vec::new(), 0, 0);
    }

    /// Gives a member that has all that is committed its vote, if it had lost it.
    pub fn enfranchise(&mut self, dc: usize, commit: usize) {
        let m = &mut self.members[dc];
        m.voter |= m.up && m.synced.min(m.commit) >= commit;
    }

    /// A real member's report: the leader, and whether it is the leader itself.
    pub fn told_leader(&mut self, dc: usize, leader: Option<usize>, leads: bool, term: u64) {
        let members = self.members.len();
        let m = &mut self.members[dc];
        let lead = || Lead { next: vec![0; members], matched: vec![0; members], seen: vec![0; members] };
        (m.leader, m.lead, m.term) = (leader, leads.then(lead), term);
    }

    /// A real member knows this prefix to be committed.
    pub fn told_committed(&mut self, dc: usize, prefix: &[C]) {
        let m = &mut self.members[dc];
        let entry = |cmds: &C| Entry { term: 0, cmds: cmds.clone() };
        let known = m.log.len().min(prefix.len());
        m.log.extend(prefix[known..].iter().map(entry));
        m.commit = m.commit.max(prefix.len());
        m.synced = m.log.len();
    }

    /// Whether this member reaches a majority of voters, itself included.
    pub fn reaches_majority(&self, dc: usize, connected: impl Fn(usize, usize) -> bool) -> bool {
        let reached = |&v: &usize| self.members[v].voter && self.members[v].up && (v == dc || connected(v, dc));
        (0..self.members.len()).filter(reached).count() >= self.majority()
    }
}

impl<C> Member<C> {
    /// Appends what is not there, replacing a conflicting tail.
    fn merge(&mut self, prev: usize, entries: Vec<Entry<C>>) {
        for (at, entry) in (prev..).zip(entries) {
            if self.log.get(at).is_some_and(|own| own.term == entry.term) {
                continue;
            }
            assert!(at >= self.commit, "a committed entry would be replaced: the model is broken");
            self.log.truncate(at);
            self.synced = self.synced.min(at);
            self.log.push(entry);
        }
    }
}

/// How long a leaderless majority waits before it elects.
pub const ELECTION_TIMEOUT: Span = Span::from_millis(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn run(raft: &mut Raft<Cmds>, cut: &[usize]) {
        while let Some((from, to, _, msg)) = raft.outbox.pop_front() {
            if from == to || !(cut.contains(&from) || cut.contains(&to)) {
                if let RaftMsg::Ack { matched, .. } = &msg {
                    raft.synced(from, *matched);
                }
                raft.handle(to, from, msg);
            }
        }
    }

    #[test]
    fn a_deposed_leader_that_installs_a_snapshot_of_a_later_term_commits_nothing_of_its_own_any_more() {
        let entry = |name: &str| Rc::new(vec![LedgerCmd::Namespace(name.into())]);
        let mut raft = Raft::new(4, &[0, 1, 2]);
        assert!(raft.elect(1, |_, _| true));
        run(&mut raft, &[]);
        for name in ["lost", "lost too", "lost as well"] {
            raft.propose(1, entry(name));
        }
        run(&mut raft, &[0, 2]);
        assert_eq!((raft.members[3].log.len(), raft.members[3].commit), (4, 1), "a member without a vote has them");
        assert!(raft.elect(0, |a, b| a != 1 && b != 1));
        raft.propose(0, entry("kept"));
        run(&mut raft, &[1, 3]);
        assert_eq!(raft.members[0].commit, 3);
        let prefix = raft.members[0].log[..3].to_vec();
        raft.install(1, prefix);
        raft.propose(1, entry("refused"));
        (0..2).for_each(|_| raft.heartbeat(1));
        run(&mut raft, &[0, 2]);
        for member in [1, 2, 3].map(|member| &raft.members[member]) {
            let committed = member.log[..member.commit].iter().zip(&raft.members[0].log);
            assert!(committed.into_iter().all(|(own, known)| Rc::ptr_eq(&own.cmds, &known.cmds)));
        }
        assert!(!raft.is_leader(1));
    }

    #[test]
    fn what_a_majority_has_survives_the_leader_and_what_it_alone_has_may_not() {
        let mut raft = Raft::new(3, &[0, 1, 2]);
        assert!(raft.elect(0, |_, _| true));
        raft.propose(0, Rc::new(vec![LedgerCmd::Namespace("kept".into())]));
        run(&mut raft, &[]);
        assert_eq!(raft.members[0].commit, 2);
        raft.propose(0, Rc::new(vec![LedgerCmd::Namespace("lost".into())]));
        run(&mut raft, &[0]);
        assert!(raft.elect(1, |a, b| a != 0 && b != 0));
        run(&mut raft, &[0]);
        assert!(raft.is_leader(0), "it believes in itself until it hears otherwise");
        raft.propose(0, Rc::new(vec![LedgerCmd::Namespace("lost too".into())]));
        run(&mut raft, &[0]);
        raft.heartbeat(1);
        run(&mut raft, &[]);
        raft.heartbeat(1);
        run(&mut raft, &[]);
        assert!(!raft.is_leader(0));
        let commits: Vec<usize> = raft.members.iter().map(|m| m.commit).collect();
        assert_eq!(commits, [3, 3, 3]);
        assert!(raft.members.iter().all(|m| Rc::ptr_eq(&m.log[1].cmds, &raft.members[0].log[1].cmds)));
    }
}
