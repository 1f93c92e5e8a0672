//! When commits begin: at once on an idle log, within their share of the time on a busy one.

use super::*;

/// How long the disk takes for a flush.
const FLUSH: Span = Span::from_millis(1);

/// A node on a disk with flushes that take [`FLUSH`], one after the other, and clients that are answered over a link without
/// delay.
struct Paced {
    core: NodeCore,
    now: Time,
    /// The last entry of each flush under way, and when it ends.
    flushes: VecDeque<(LogIndex, Time)>,
    flush: Span,
    commits: Vec<Time>,
    next_seq: BTreeMap<usize, u64>,
    answered: Vec<usize>,
    said: Vec<u32>,
}

impl Paced {
    fn new(share: u8, clients: usize) -> Paced {
        let config = NodeConfig { commit_share_percent: share, ..NodeConfig::new(id(), LANES) };
        // The ledger knows of the group and has said which namespaces there are.
        let mut world = World::new(config);
        world.pass(Span::from_millis(500));
        let World { core, now, .. } = world;
        let (flushes, commits, answered, said) = Default::default();
        let next_seq = (0..clients).map(|client| (client, 1)).collect();
        let mut paced = Paced { core, now, flushes, flush: FLUSH, commits, next_seq, answered, said };
        paced.handle(Input::AggregatorGone { seat: 0 });
        for client in 0..clients {
            let conn = ConnId(client as u64);
            let of = ClientId(client as u128);
            paced.handle(Input::ClientUp { conn, owner: of.owner() });
            paced.handle(Input::Client { conn, msg: FromClient::Open { client: of, since: None, asks_known: false } });
        }
        paced.run_until(now + Span::from_millis(500));
        paced.commits.clear();
        paced
    }

    fn handle(&mut self, input: Input) {
        self.core.handle(self.now, input);
        let mut appended = None;
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Append { index, .. } => appended = Some(index),
                Output::Client { conn, msg: ToClient::Durable { next_us, .. } } => {
                    self.answered.push(conn.0 as usize);
                    self.said.push(next_us);
                }
                _ => {}
            }
        }
        if let Some(upto) = appended {
            self.commits.push(self.now);
            let free = self.flushes.back().map_or(self.now, |(_, ends)| (*ends).max(self.now));
            self.flushes.push_back((upto, free + self.flush));
        }
    }

    fn hit(&mut self, client: usize, items: usize) {
        let seq = self.next_seq.get_mut(&client).unwrap();
        let msg = batch(0, *seq, &vec![(1, 1); items]);
        *seq += 1;
        self.handle(Input::Client { conn: ConnId(client as u64), msg });
    }

    /// The next thing that happens by itself, if it does until then.
    fn step(&mut self, until: Time) -> bool {
        let flushed = self.flushes.front().map(|(_, ends)| *ends);
        let next = [flushed, self.core.poll_timeout()].into_iter().flatten().min().map(|at| at.max(self.now));
        let Some(at) = next.filter(|at| *at <= until) else { return false };
        self.now = at;
        match self.flushes.pop_front_if(|(_, ends)| *ends <= at) {
            Some((upto, _)) => self.handle(Input::Durable { upto }),
            None => self.handle(Input::Tick),
        }
        true
    }

    fn run_until(&mut self, until: Time) {
        while self.step(until) {}
        self.now = until;
    }

    /// Each client sends a batch at once when the one before is answered, for so long; how many were answered.
    fn in_turn(&mut self, clients: usize, span: Span) -> usize {
        let end = self.now + span;
        self.answered.clear();
        (0..clients).for_each(|client| self.hit(client, 1));
        let mut answers = 0;
        while self.now < end && self.step(end) {
            for client in std::mem::take(&mut self.answered) {
                answers += 1;
                self.hit(client, 1);
            }
        }
        answers
    }
}

#[test]
fn an_idle_log_commits_at_once() {
    let mut paced = Paced::new(25, 2);
    let sent = paced.now;
    paced.hit(0, 1);
    assert_eq!(paced.commits, [sent]);
    paced.run_until(sent + FLUSH);
    assert_eq!(paced.answered, [0]);
}

#[test]
fn what_comes_while_a_commit_is_under_way_goes_together_in_the_next() {
    let mut paced = Paced::new(25, 5);
    let sent = paced.now;
    for client in 0..5 {
        paced.hit(client, 1);
        paced.run_until(sent + Span(client as u64 * 100));
    }
    assert_eq!(paced.commits, [sent], "four of them gather");
    paced.run_until(sent + Span::from_millis(20));
    assert_eq!((paced.commits.len(), paced.answered.len()), (2, 5));
}

#[test]
fn commits_keep_to_their_share_while_waiting_gathers_more() {
    for (share, flush) in [(25, FLUSH), (50, Span::from_millis(2)), (10, FLUSH)] {
        let mut paced = Paced::new(share, 100);
        paced.flush = flush;
        let start = paced.now;
        // Clients that send in turn: one of each commit is always missing.
        for round in 0..10_000 {
            paced.hit(round % 100, 1);
            paced.run_until(start + Span(round as u64 * 100));
        }
        let took = (paced.now - start).0;
        let busy = paced.commits.len() as u64 * flush.0;
        let rare = took / paced.core.config().commit_interval.0 * flush.0;
        let allowed = took * u64::from(share) / 100;
        assert!(busy <= allowed + allowed / 10, "{busy} of {allowed} µs with {share} %");
        assert!(busy >= (allowed / 2).min(rare), "{busy} of {allowed} µs with {share} %");
    }
}

#[test]
fn a_commit_waits_for_nobody_when_all_clients_of_the_last_are_back() {
    for clients in [1, 4, 50] {
        let mut paced = Paced::new(25, clients);
        let answers = paced.in_turn(clients, Span::from_secs(1));
        let flushes = (1_000_000 / FLUSH.0) as usize;
        assert!(answers >= clients * flushes * 9 / 10, "{answers} answers to {clients} clients in {flushes} flushes");
    }
}

#[test]
fn clients_that_are_many_share_fewer_commits() {
    for clients in [1, 4, 30] {
        let mut paced = Paced::new(25, clients + 2);
        let interval = paced.core.config().commit_interval;
        let after = |clients: usize| Span((7_000 + 1_000 * clients as u64).min(interval.0));
        let start = paced.now;
        // The first is alone in its commit, and does not come back; all others go together.
        (0..=clients).for_each(|client| paced.hit(client, 1));
        let together = start + after(1);
        paced.run_until(together + FLUSH + Span(1));
        paced.hit(clients + 1, 1);
        paced.run_until(together + Span::from_secs(1));
        assert_eq!(paced.commits, [start, together, together + after(clients)], "{clients} clients");
    }
}

#[test]
fn an_answer_says_when_the_next_commit_ends() {
    let mut paced = Paced::new(25, 2);
    paced.hit(0, 1);
    paced.run_until(paced.now + FLUSH);
    assert_eq!(paced.said, [8_000]);
    let mut at_intervals = Paced::new(0, 2);
    at_intervals.hit(0, 1);
    at_intervals.run_until(at_intervals.now + Span::from_millis(100));
    assert_eq!(at_intervals.said, [0], "at fixed intervals nothing is said");
}

#[test]
fn a_slow_disk_is_waited_for_no_longer_than_the_interval() {
    let mut paced = Paced::new(1, 3);
    let interval = paced.core.config().commit_interval;
    for client in [0, 1] {
        paced.hit(client, 1);
        paced.run_until(paced.now + FLUSH);
    }
    let begun = *paced.commits.last().unwrap();
    paced.hit(2, 1);
    paced.run_until(begun + Span::from_secs(1));
    assert_eq!(paced.commits.last(), Some(&(begun + interval)));
}

#[test]
fn what_many_share_does_not_wait_for_the_commit_under_way() {
    let mut paced = Paced::new(25, 2);
    paced.flush = Span::from_millis(50);
    let start = paced.now;
    for round in 0..20 {
        paced.hit(round % 2, COMMIT_BYTES_SHARED / ITEM_BYTES + 1);
        paced.run_until(start + Span::from_millis(round as u64));
    }
    assert_eq!(paced.commits, [start, start + COMMIT_INTERVAL_MIN], "two under way, and no more");
}

#[test]
fn a_commit_that_never_ends_holds_the_next_for_a_bound() {
    let mut paced = Paced::new(25, 2);
    paced.flush = Span::from_secs(60);
    let start = paced.now;
    paced.hit(0, 1);
    paced.hit(1, 1);
    paced.run_until(start + Span::from_secs(1));
    assert_eq!(paced.commits, [start, start + COMMIT_OVERDUE]);
}
