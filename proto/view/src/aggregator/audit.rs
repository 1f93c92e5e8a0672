//! Audits of the counts of this data centre's groups: each group sends its components, and they are compared with the view at the
//! same entry of its log.

use super::feed::Feed;
use super::{AggregatorCore, Output};
use tidemark_types::audit::Compared;
use tidemark_types::ids::{CellId, GroupId, LogIndex};
use tidemark_types::limits::LANES_MAX;
use tidemark_types::series::Horizon;
use tidemark_types::teeth::{Bug, bites};
use tidemark_wire::msg::{AuditAsk, Audited, ForGroup};

/// Some lanes of a cell, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAudit {
    pub id: u64,
    pub group: GroupId,
    pub cell: CellId,
    /// The entry of the group's log that it stands for.
    pub index: LogIndex,
    pub components: Vec<Compared>,
    /// The buckets that both sides keep; `None` if no series are kept.
    pub kept: Option<Horizon>,
    /// Buckets of the first of these lanes were not compared: its row is longer than a message.
    pub too_long: bool,
    /// No lanes follow.
    pub last: bool,
}

impl AggregatorCore {
    pub(super) fn ask_audit(&mut self, group: GroupId, ask: AuditAsk) {
        if self.groups.contains(&group) {
            self.outputs.push_back(Output::Group { group, msg: ForGroup::Audit(ask) });
        }
    }

    /// An answer for another entry than the view's is useless: the audit has to be requested again.
    pub(super) fn on_audited(&mut self, group: GroupId, audited: &Audited) {
        let stands = |feed: &Feed| feed.stands_at(audited.told) || bites(Bug::OlderViewShown);
        let abreast = self.feeds.get(&group).is_some_and(stands);
        if audited.group != group || !abreast {
            return;
        }
        let last = audited.upto_lane >= LANES_MAX;
        if !last && audited.upto_lane > audited.from_lane {
            let id = audited.id;
            let cell = audited.cell.clone();
            let from_lane = audited.upto_lane;
            self.ask_audit(group, AuditAsk { id, group, cell, from_lane });
        }
        self.outputs.push_back(Output::Audited(CellAudit {
            id: audited.id,
            group,
            cell: audited.cell.clone(),
            index: audited.index,
            components: self.view.compare(audited),
            kept: self.view.kept_by_both(audited),
            too_long: audited.too_long,
            last,
        }));
    }

    /// Groups of this data centre that can be asked now.
    pub fn groups_heard(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.groups.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::{AggregatorConfig, Input, Output};
    use tidemark_ledger::ledger::Ledger;
    use tidemark_partition::group::{Group, GroupConfig};
    use tidemark_types::audit::Fault;
    use tidemark_types::ids::{CounterName, DcId, Start, ValveId};
    use tidemark_types::series::{BucketId, Granularity, Kept, OutOfRange, Retention, Row, SeriesPolicy, UnixTime};
    use tidemark_types::time::{Time, WallMs};
    use tidemark_wire::msg::{Batch, FeedPull, FromGroup, GroupCmd, GroupEntry, Item, LedgerCmd, SeriesTerms, ToGroup};

    const DC: DcId = DcId(0);
    const GROUP: GroupId = GroupId { dc: DC, group: 0, incarnation: 1 };
    const LANES: u8 = 4;
    const NOW: WallMs = WallMs(1_790_000_000_000);

    fn counter() -> CounterName {
        CounterName::new("t", b"k").unwrap()
    }

    /// A group with its log, and an aggregator that follows it.
    struct World {
        core: AggregatorCore,
        ledger: Ledger,
        group: Group,
        pull: FeedPull,
        seqs: u64,
    }

    impl World {
        fn new() -> World {
            let kept = |text: &str, ttl_s| Kept { granularity: text.parse().unwrap(), ttl_s };
            let retention = Retention::new(vec![kept("1m", 7_200), kept("1h", 200_000)]).unwrap();
            let policy = SeriesPolicy::new(retention, 7_200, 300, OutOfRange::Refused).unwrap();
            let terms = SeriesTerms { revision: 1, policy, since: UnixTime::from_wall(NOW).minus(200_000) };
            let mut ledger = Ledger::default();
            let series = LedgerCmd::Series { namespace: "t".into(), terms: terms.clone() };
            for cmd in [LedgerCmd::Namespace("t".into()), LedgerCmd::View(DC.into()), series] {
                ledger.apply(ledger.applied().next(), &cmd);
            }
            let core = AggregatorCore::new(AggregatorConfig::new(DC, 1));
            let group = Group::new(GroupConfig::new(GROUP, LANES));
            let mut world = World { core, ledger, group, pull: FeedPull::default(), seqs: 0 };
            let start = Start { number: 1, nonce: 1 };
            let confirmed = ToGroup::Confirmed { group: GROUP, start, accounts: Vec::new(), resets: 0 };
            let said = [ToGroup::Namespaces(vec!["t".into()]), ToGroup::Series(vec![("t".into(), terms)]), confirmed];
            world.apply([GroupCmd::Boot { nonce: 1, lanes: LANES }].into_iter().chain(said.map(GroupCmd::Ledger)));
            world.handle(Input::Clock(NOW));
            world.handle(Input::GroupUp { group: GROUP });
            world
        }

        fn apply(&mut self, cmds: impl IntoIterator<Item = GroupCmd>) {
            let slots = self.group.table().len();
            let new_cells = if slots == 0 { vec![counter().total()] } else { Vec::new() };
            let entry = GroupEntry { now: NOW, first_new_slot: slots, new_cells, cmds: cmds.into_iter().collect() };
            self.group.apply(self.group.applied().next(), &entry);
            while self.group.poll_effect().is_some() {}
        }

        fn count(&mut self, lane: u8, delta: u64) {
            self.seqs += 1;
            let item = Item { slot: 0, delta, session: None };
            let client = tidemark_types::ids::ClientId(u128::from(self.seqs));
            let batch = Batch { client, lane, seq: 1, since: self.group.age(), items: vec![item], times: Vec::new() };
            self.apply([GroupCmd::Batch(batch)]);
        }

        fn handle(&mut self, input: Input) -> Vec<CellAudit> {
            let mut inputs = vec![input];
            let mut audits = Vec::new();
            while let Some(input) = inputs.pop() {
                self.core.handle(Time(1), input, &self.ledger);
                while let Some(output) = self.core.poll_output() {
                    match output {
                        Output::Group { msg: ForGroup::Feed(pull), .. } => self.pull = pull,
                        Output::Group { msg: ForGroup::Audit(ask), .. } => {
                            let msg = FromGroup::Audited(self.group.audit(&ask, self.pull.cursor).expect("present"));
                            inputs.push(Input::Group { group: GROUP, msg });
                        }
                        Output::Audited(audit) => audits.push(audit),
                        _ => {}
                    }
                }
            }
            audits
        }

        /// The feed tells all.
        fn follow(&mut self) {
            while self.group.has_feed(&self.pull) {
                let msg = FromGroup::Feed(self.group.tell(&self.pull));
                self.handle(Input::Group { group: GROUP, msg });
            }
        }

        fn audit(&mut self) -> Vec<CellAudit> {
            self.handle(Input::Audit { group: GROUP, id: 7, cell: counter().total() })
        }

        /// The faults, by lane.
        fn faults(&mut self) -> Vec<(u8, Vec<Fault>)> {
            let [audit] = &self.audit()[..] else { panic!("one answer") };
            assert!(audit.last && audit.id == 7 && audit.index == self.group.applied());
            let wrong = audit.components.iter().filter(|compared| !compared.agrees());
            wrong.map(|compared| (compared.valve.lane, compared.faults.clone())).collect()
        }
    }

    fn minute() -> BucketId {
        let granularity = Granularity::MINUTE;
        BucketId { granularity, index: granularity.index_at(UnixTime::from_wall(NOW)) }
    }

    #[test]
    fn what_was_followed_agrees_to_the_last_bucket() {
        let mut world = World::new();
        world.count(0, 5);
        world.count(3, 2);
        world.follow();
        assert_eq!(world.faults(), []);
        let [audit] = &world.audit()[..] else { panic!("one answer") };
        let counted: Vec<_> = audit.components.iter().map(|of| (of.valve.lane, of.view, of.held)).collect();
        assert_eq!(counted, [(0, 5, 5), (3, 2, 2)]);
        assert!(audit.components.iter().all(|of| of.buckets.len() == 2 && of.outside == 0), "{audit:?}");
    }

    #[test]
    fn what_has_not_been_told_yet_is_no_answer() {
        let mut world = World::new();
        world.count(0, 5);
        world.follow();
        let chunk_behind = world.pull.cursor;
        world.count(0, 1);
        let ask = AuditAsk { id: 7, group: GROUP, cell: counter().total(), from_lane: 0 };
        // The answer of a group that is ahead of its feed.
        let early = world.group.audit(&ask, world.group.applied()).expect("present");
        assert!(chunk_behind < early.told);
        assert_eq!(world.handle(Input::Group { group: GROUP, msg: FromGroup::Audited(early) }), []);
        world.follow();
        assert_eq!(world.faults(), []);
    }

    #[test]
    fn a_row_of_the_view_that_was_altered_is_named_with_its_valve_and_by_how_much() {
        let mut world = World::new();
        world.count(0, 5);
        world.count(3, 2);
        world.follow();
        let cell = counter().total();
        let valve = ValveId { group: GROUP, lane: 3 };
        world.core.view.merge_row(&cell, valve, &Row::from_buckets([(minute(), 9)])).unwrap();
        let bucket = Fault::Bucket { bucket: minute(), view: 9, held: 2 };
        assert_eq!(world.faults(), [(3, vec![bucket])]);
        world.core.view.merge(&cell, valve, 4).unwrap();
        assert_eq!(world.faults(), [(3, vec![Fault::Total { view: 4, held: 2 }, bucket])]);
        // More increments: the fault stays found, as both sides stand for one entry.
        world.count(3, 1);
        world.follow();
        let bucket = Fault::Bucket { bucket: minute(), view: 9, held: 3 };
        assert_eq!(world.faults(), [(3, vec![Fault::Total { view: 4, held: 3 }, bucket])]);
    }

    #[test]
    fn what_the_view_never_got_is_missed() {
        let mut world = World::new();
        world.count(0, 5);
        world.follow();
        world.count(2, 6);
        // The cursor moves on without the changes that it stands for.
        let chunk = world.group.tell(&world.pull);
        let chunk = tidemark_wire::msg::FeedChunk { components: Vec::new(), rows: Vec::new(), ..chunk };
        world.handle(Input::Group { group: GROUP, msg: FromGroup::Feed(chunk) });
        let hour =
            BucketId { granularity: Granularity::HOUR, index: Granularity::HOUR.index_at(UnixTime::from_wall(NOW)) };
        let missed = |bucket| Fault::Bucket { bucket, view: 0, held: 6 };
        let faults = vec![Fault::Total { view: 0, held: 6 }, missed(minute()), missed(hour)];
        assert_eq!(world.faults(), [(2, faults)]);
    }
}
