//! The progress of resets: the number up to which all views have applied them and all groups have heard of them.
//!
//! Each view reports it for itself and for the groups of its data centre. No view will ever again show data from before a reset
//! that all have passed, so views drop that data then (decision 0074).

use super::Ledger;
use tidemark_types::ids::{AggregatorId, GroupId};
use tidemark_wire::msg::LedgerCmd;

impl Ledger {
    /// Resets up to this number are applied by all registered views and heard of by all groups.
    pub fn resets_passed(&self) -> u64 {
        self.resets_passed
    }

    /// A view has said that it, and all groups of its data centre, have come so far.
    pub fn resets_heard_by(&self, view: AggregatorId) -> u64 {
        self.resets_heard.get(&view).copied().unwrap_or(0)
    }

    /// The command by which a view says how far it has come, where that is further than it said before. `heard` says up to which number a
    /// group has heard of resets.
    pub fn hearing(&self, view: AggregatorId, heard: impl Fn(GroupId) -> u64) -> Option<LedgerCmd> {
        let here = self.groups.iter().filter(|(group, registered)| group.dc == view.dc && !registered.fenced);
        let upto = here.map(|(&group, _)| heard(group)).fold(self.resets.last(), u64::min);
        let is_news = self.views.contains(&view) && upto > self.resets_heard_by(view);
        is_news.then_some(LedgerCmd::ResetsHeard { view, upto })
    }

    pub(super) fn on_resets_heard(&mut self, view: AggregatorId, upto: u64) {
        if !self.views.contains(&view) || upto > self.resets.last() {
            return;
        }
        let known = self.resets_heard.entry(view).or_default();
        *known = upto.max(*known);
        self.pass_resets();
    }

    /// Views are gone, or have come further.
    pub(super) fn pass_resets(&mut self) {
        let Ledger { views, resets_heard, groups, .. } = self;
        resets_heard.retain(|view, _| views.contains(view));
        // Groups without a view of their data centre have no reporter.
        let is_spoken_for = |group: &GroupId| AggregatorId::all(group.dc).any(|view| views.contains(&view));
        let are_spoken_for =
            groups.iter().filter(|(_, registered)| !registered.fenced).all(|(group, _)| is_spoken_for(group));
        let least = views.iter().map(|view| resets_heard.get(view).copied().unwrap_or(0)).min();
        if let Some(least) = least.filter(|&least| are_spoken_for && least > self.resets_passed) {
            let over = self.resets.pass(self.resets_passed, least);
            self.resets_passed = least;
            for (counter, before) in over {
                self.changes.over.entry(counter).or_insert(before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_types::ids::{CounterName, DcId, LogIndex};
    use tidemark_wire::msg::Hello;

    fn view(dc: u16) -> AggregatorId {
        DcId(dc).into()
    }

    fn group(dc: u16) -> GroupId {
        GroupId { dc: DcId(dc), group: 0, incarnation: 1 }
    }

    struct World(Ledger);

    impl World {
        fn apply(&mut self, cmd: LedgerCmd) -> u64 {
            let index = self.0.applied().next();
            self.0.apply(index, &cmd);
            self.0.check_invariants();
            let snapshot: Ledger = postcard::from_bytes(&postcard::to_allocvec(&self.0).unwrap()).unwrap();
            assert_eq!(
                (snapshot.resets_passed(), &snapshot.resets_heard),
                (self.0.resets_passed(), &self.0.resets_heard)
            );
            self.0.resets_passed()
        }

        fn hears(&mut self, dc: u16, upto: u64) -> u64 {
            self.apply(LedgerCmd::ResetsHeard { view: view(dc), upto })
        }

        /// Two data centres with a view and a group each, and this number of resets.
        fn new(resets: u8) -> World {
            let mut world = World(Ledger::default());
            world.apply(LedgerCmd::Namespace("t".into()));
            for dc in 0..2 {
                world.apply(LedgerCmd::View(view(dc)));
                let group = group(dc);
                let nonces = vec![1];
                world.apply(LedgerCmd::Hello(Hello { group, lanes: 1, nonces, number: 1, accounts: Vec::new() }));
            }
            for key in 0..resets {
                let counter = CounterName::new("t", &[key]).unwrap();
                world.apply(LedgerCmd::Reset { counter, revision: 0, keeps_milestones: false });
            }
            world
        }
    }

    #[test]
    fn a_reset_is_passed_when_all_views_and_groups_have_come_so_far() {
        let mut world = World::new(5);
        assert_eq!((world.hears(0, 3), world.hears(1, 2), world.hears(1, 4)), (0, 2, 3));
        assert_eq!(world.hears(0, 1), 3, "a late copy");
        assert_eq!(world.hears(0, 6), 3, "there is no such reset");
        assert_eq!(world.hears(2, 5), 3, "no view that is registered");
        // A view that comes later has applied all that was passed before it shows anything.
        assert_eq!(world.apply(LedgerCmd::View(view(2))), 3);
        assert_eq!((world.hears(0, 5), world.hears(1, 5)), (3, 3));
        assert_eq!(world.apply(LedgerCmd::Forget { dc: DcId(2), forced: true, heard: 0 }), 5, "it never returns");
    }

    #[test]
    fn what_is_over_for_everybody_does_not_depend_on_when_it_is_looked_at() {
        let mut world = World::new(3);
        let counter = |key: u8| CounterName::new("t", &[key]).unwrap();
        let over = |world: &World| [0, 1, 2].map(|key| world.0.resets().life(&counter(key)).over);
        world.apply(LedgerCmd::Reset { counter: counter(1), revision: 1, keeps_milestones: false });
        world.hears(0, 3);
        world.hears(1, 3);
        assert_eq!(over(&world), [1, 0, 1], "the second began again before the others passed its first reset");
        world.apply(LedgerCmd::Reset { counter: counter(2), revision: 1, keeps_milestones: false });
        assert_eq!(over(&world), [1, 0, 1], "what was passed stays so");
        assert_eq!(world.0.take_changes().over, [(counter(0), 0), (counter(2), 0)]);
        world.hears(0, 5);
        world.hears(1, 5);
        assert_eq!((over(&world), world.0.take_changes().over), ([1, 2, 2], vec![(counter(1), 0), (counter(2), 1)]));
        let snapshot: Ledger = postcard::from_bytes(&postcard::to_allocvec(&world.0).unwrap()).unwrap();
        assert_eq!(snapshot.resets(), world.0.resets());
    }

    #[test]
    fn a_view_says_what_all_groups_of_its_data_centre_have_heard() {
        let mut world = World::new(5);
        let heard = |group: GroupId| if group.dc == DcId(0) { 4 } else { 9 };
        let said = |world: &World, dc| world.0.hearing(view(dc), heard);
        assert_eq!(said(&world, 0), Some(LedgerCmd::ResetsHeard { view: view(0), upto: 4 }));
        assert_eq!(said(&world, 1), Some(LedgerCmd::ResetsHeard { view: view(1), upto: 5 }), "as far as is applied");
        assert_eq!(said(&world, 2), None, "who is not registered says nothing");
        world.hears(0, 4);
        assert_eq!(said(&world, 0), None);
        // A group that is lost is not waited for.
        world.apply(LedgerCmd::DeclareLost { group: group(0), forced: true, heard: 0 });
        assert_eq!(said(&world, 0), Some(LedgerCmd::ResetsHeard { view: view(0), upto: 5 }));
    }

    #[test]
    fn nothing_is_passed_while_nobody_speaks_for_a_group() {
        let mut world = World::new(2);
        let hello = Hello { group: group(3), lanes: 1, nonces: vec![1], number: 1, accounts: Vec::new() };
        world.apply(LedgerCmd::Hello(hello));
        assert_eq!((world.hears(0, 2), world.hears(1, 2)), (0, 0));
        world.apply(LedgerCmd::View(view(3)));
        assert_eq!(world.hears(3, 1), 1);
        world.0.apply(LogIndex(1), &LedgerCmd::ResetsHeard { view: view(3), upto: 2 });
        assert_eq!(world.0.resets_passed(), 2);
    }
}
