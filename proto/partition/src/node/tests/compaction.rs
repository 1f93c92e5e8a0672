//! A node frees cells of ended generations: it begins anew, and no client counts twice or is forgotten.

use super::*;

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
