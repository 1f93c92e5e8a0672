//! A node frees cells of ended generations: it begins anew, and no client counts twice or is forgotten.

use super::*;
use tidemark_wire::msg::{AuditAsk, FeedPull};

struct Driver {
    core: NodeCore,
    now: Time,
    said: Vec<Output>,
    log: BTreeMap<LogIndex, Vec<u8>>,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Driver {
    fn new() -> Driver {
        let config = NodeConfig { compacted_min: 2, ..config() };
        let (log, rows) = Default::default();
        let mut driver = Driver { core: NodeCore::new(config, 1), now: Time(1), said: Vec::new(), log, rows };
        driver.put(Input::AggregatorUp { seat: 0 });
        driver.tell(ToGroup::Namespaces(vec!["test".to_owned()]));
        driver.confirm();
        driver
    }

    fn put(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.core.handle(self.now, input);
            self.core.check_invariants();
            let mut durable = None;
            while let Some(output) = self.core.poll_output() {
                match output {
                    Output::Append { index, entry } => {
                        self.log.insert(index, entry);
                        durable = Some(index);
                    }
                    Output::Persist(part) => {
                        self.rows.extend(part.rows);
                        inputs.push_back(Input::Persisted);
                    }
                    other => self.said.push(other),
                }
            }
            inputs.extend(durable.map(|upto| Input::Durable { upto }));
        }
    }

    fn tell(&mut self, message: ToGroup) {
        self.put(Input::Aggregator { seat: 0, msg: ForGroup::Ledger(message) });
        self.pass();
    }

    fn confirm(&mut self) {
        let start = self.core.group().start();
        self.tell(ToGroup::Confirmed { group: id(), start, accounts: Vec::new(), resets: 0 });
    }

    /// Time for some commits.
    fn pass(&mut self) {
        let end = self.now + Span::from_millis(100);
        while let Some(due) = self.core.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.put(Input::Tick);
        }
        self.now = end;
    }

    fn connect(&mut self, conn: u64) {
        let client = ClientId(5);
        self.put(Input::ClientUp { conn: ConnId(conn), owner: client.owner() });
        self.put(Input::Client {
            conn: ConnId(conn),
            msg: FromClient::Open { client, since: None, asks_known: false },
        });
    }

    fn send(&mut self, conn: u64, msg: FromClient) {
        self.put(Input::Client { conn: ConnId(conn), msg });
        self.pass();
    }

    fn durable(&mut self) -> Vec<u64> {
        let seq = |output: Output| match output {
            Output::Client { msg: ToClient::Durable { seq, .. }, .. } => Some(seq),
            _ => None,
        };
        self.said.drain(..).filter_map(seq).collect()
    }
}

#[test]
fn clients_come_again_where_slots_have_other_numbers_and_nothing_counts_twice() {
    let mut driver = Driver::new();
    driver.connect(1);
    driver.send(1, batch(0, 1, &[(0, 3), (1, 4), (2, 5)]));
    assert_eq!(driver.durable(), [1]);
    let resets = (0..3).map(|key| (name(key), 1)).collect();
    let before = driver.core.group().start();
    driver.tell(ToGroup::Resets { after: 0, upto: 0, begun: resets });
    assert_eq!((driver.core.group().compactions(), driver.core.group().table().len()), (1, 3));
    assert!(driver.said.drain(..).any(|output| output == Output::EndClients), "they know slots by other numbers");
    let after = driver.core.group().start();
    assert_eq!(after.number, before.number + 1, "it is a start");
    // Messages that still come over the ended connection are not heard.
    driver.send(1, batch(0, 2, &[(1, 9)]));
    assert_eq!(driver.durable(), [] as [u64; 0]);
    driver.connect(2);
    driver.send(2, batch(0, 1, &[(0, 3), (1, 4), (2, 5)]));
    driver.send(2, batch(0, 2, &[(1, 9)]));
    assert_eq!(driver.durable(), [1, 2]);
    let sums = |group: &Group| [0, 1, 2].map(|key| group.sum(group.table().find(&name(key).total_of(1)).unwrap()));
    assert_eq!(sums(driver.core.group()), [0, 9, 0], "the first was counted in what is over");
    // A restart goes through the same log.
    let log: Vec<(LogIndex, Vec<u8>)> = driver.log.clone().into_iter().collect();
    let rows: BTreeMap<_, _> = driver.rows.clone().into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let again = NodeCore::recover(*driver.core.config(), 9, rows, log).unwrap();
    assert_eq!((sums(again.group()), again.group().compactions()), ([0, 9, 0], 1));
}

/// A group that may have dropped a cell does not answer with what is left of it.
fn ask_for_an_ended_generation() {
    let mut driver = Driver::new();
    driver.connect(1);
    driver.send(1, batch(0, 1, &[(0, 3)]));
    driver.tell(ToGroup::Resets { after: 0, upto: 1, begun: vec![(name(0), 1)] });
    driver.connect(2);
    driver.send(2, batch(0, 2, &[(0, 4)]));
    let mut components_of = |generation: u32| {
        let group = id();
        let cell = name(0).total_of(generation);
        let cursor = driver.core.group().applied();
        let slots_known = driver.core.group().table().len();
        let pull = FeedPull { group, cursor, slots_known, bytes_max: 1_000, heard: 1, ..FeedPull::default() };
        driver.said.clear();
        for msg in [ForGroup::Feed(pull), ForGroup::Audit(AuditAsk { id: 7, group, cell, from_lane: 0 })] {
            driver.put(Input::Aggregator { seat: 0, msg });
        }
        let audited = |output: Output| match output {
            Output::Aggregator { msg: FromGroup::Audited(audited), .. } => Some(audited.components),
            _ => None,
        };
        driver.said.drain(..).find_map(audited)
    };
    assert_eq!(components_of(1).map(|components| components.len()), Some(1), "the present one is answered");
    assert_eq!(components_of(0), None, "the ended one is not");
}

#[test]
fn a_group_answers_no_audit_of_an_ended_generation() {
    ask_for_an_ended_generation();
}

#[test]
#[cfg(feature = "teeth")]
fn an_answered_audit_of_an_ended_generation_is_noticed() {
    use tidemark_types::teeth::{Bug, is_shown_by};
    assert!(is_shown_by(Bug::EndedLifeAudited, ask_for_an_ended_generation));
}
