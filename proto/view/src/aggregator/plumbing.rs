//! Between the groups of this data centre and the ledger: reports and offers one way, accounts and places the other.

use crate::aggregator::feed::Names;
use crate::aggregator::moves::Which;
use crate::aggregator::{AggregatorCore, Event, Output};
use crate::view::Promised;
use tidemark_ledger::ledger::{Changes, Ledger};
use tidemark_types::ids::{CounterName, GroupId};
use tidemark_types::time::Time;
use tidemark_wire::msg::*;
use tidemark_wire::shards::ShardId;

impl AggregatorCore {
    // ---- groups ----

    pub(super) fn on_group_up(&mut self, now: Time, group: GroupId, ledger: &Ledger) {
        self.groups.insert(group);
        self.begin_telling(group);
        self.feed_up(group);
        self.tell_settings(group, ledger);
        self.tell_registration(group, ledger);
        for counter in ledger.guarded() {
            self.tell_account(counter, group, ledger);
        }
        self.remind_soon(now);
        self.run_feeds(now);
    }

    /// It was there until now, whether or not it said anything.
    pub(super) fn on_group_gone(&mut self, now: Time, group: GroupId) {
        self.heard.note(now, group);
        self.groups.remove(&group);
        self.telling.remove(&group);
        self.feed_gone(group);
    }

    /// Messages that the ledger has already applied are answered from its state at once; the others are proposed.
    pub(super) fn on_group(&mut self, now: Time, group: GroupId, msg: FromGroup, ledger: &Ledger) {
        self.heard.note(now, group);
        let account = |counter: &CounterName| ledger.counter(counter).and_then(|state| state.accounts().get(&group));
        match msg {
            // The ledger hears nothing of it any more; its feed is still good.
            FromGroup::Report(_) | FromGroup::Returned(_) | FromGroup::Offer(_) | FromGroup::Detail(_)
                if ledger.is_fenced(group) =>
            {
                self.tell_registration(group, ledger);
            }
            // Another process runs on a copy of the disk: the earlier one of them learns that it must stop.
            FromGroup::Feed(FeedChunk { start, .. })
            | FromGroup::FedIn(ScopedChunk { chunk: FeedChunk { start, .. }, .. })
                if ledger.is_superseded(group, start) =>
            {
                self.tell_registration(group, ledger);
            }
            FromGroup::Report(Report { start, .. })
            | FromGroup::Returned(Report { start, .. })
            | FromGroup::Offer(Offer { start, .. })
                if ledger.confirmed(group).is_some_and(|last| last.nonce != start) =>
            {
                self.tell_registration(group, ledger);
            }
            FromGroup::Feed(chunk) => self.on_feed(now, group, Which::Usual, &chunk, Names::All, ledger),
            FromGroup::FedIn(told) => self.on_fed_in(now, group, &told, ledger),
            FromGroup::Audited(audited) => self.on_audited(group, &audited),
            FromGroup::Hello(hello) if hello.group == group => {
                self.tell_registration(group, ledger);
                self.propose_soon(now, LedgerCmd::Hello(hello));
            }
            FromGroup::Report(report) if report.group == group => match account(&report.counter) {
                Some(known) if known.report_no >= report.report_no || known.generation > report.generation => {
                    self.tell_account(&report.counter, group, ledger);
                }
                _ => self.propose_report(now, report, ledger),
            },
            FromGroup::Returned(report) if report.group == group => match account(&report.counter) {
                Some(known) if known.report_no >= report.report_no => self.tell_account(&report.counter, group, ledger),
                _ => self.propose_soon(now, LedgerCmd::Returned(report)),
            },
            FromGroup::Offer(offer) if offer.group == group => match account(&offer.counter) {
                Some(known) if known.next_pos >= offer.first_pos + offer.count() => {
                    self.tell_account(&offer.counter, group, ledger);
                }
                _ => self.propose_soon(now, LedgerCmd::Offer(offer)),
            },
            FromGroup::Detail(detail) if detail.group == group => self.propose_soon(now, LedgerCmd::Detail(detail)),
            // A group speaks for no other one.
            FromGroup::Hello(_)
            | FromGroup::Report(_)
            | FromGroup::Returned(_)
            | FromGroup::Offer(_)
            | FromGroup::Detail(_) => {}
            // The process around this core ends the connection.
            FromGroup::Resigned { .. } => {}
        }
    }

    pub(super) fn tell(&mut self, group: GroupId, message: ToGroup) {
        if self.groups.contains(&group) {
            self.outputs.push_back(Output::Group { group, msg: ForGroup::Ledger(message) });
        }
    }

    fn tell_settings(&mut self, group: GroupId, ledger: &Ledger) {
        self.tell(group, ToGroup::Namespaces(ledger.namespaces().map(str::to_owned).collect()));
        let updown: Vec<String> = ledger.updown().map(str::to_owned).collect();
        if !updown.is_empty() {
            self.tell(group, ToGroup::UpDown(updown));
        }
        let series: Vec<_> = ledger.series().map(|(name, terms)| (name.to_owned(), terms.clone())).collect();
        if !series.is_empty() {
            self.tell(group, ToGroup::Series(series));
        }
        self.tell(group, ToGroup::Spread(ledger.spread()));
    }

    fn tell_registration(&mut self, group: GroupId, ledger: &Ledger) {
        if ledger.is_fenced(group) {
            self.tell(group, ToGroup::FencedOut { group });
            if ledger.is_lost(group) && self.groups.contains(&group) {
                self.outputs.push_back(Output::Group { group, msg: ForGroup::Lost { group } });
            }
        } else if let Some(confirmation) = ledger.confirmation(group) {
            // A group that registers waits until it has heard of them.
            self.tell_generations(group, ledger);
            self.tell(group, confirmation);
        }
    }

    fn tell_account(&mut self, counter: &CounterName, group: GroupId, ledger: &Ledger) {
        if let Some(account) = ledger.tells(counter, group, None) {
            self.tell(group, account);
        }
        if let Some(placed) = ledger.placed(counter, group) {
            self.tell(group, ToGroup::Placed(placed));
        }
    }

    /// The leader wants a group's rights back. The replica here may be behind the leader's; the recall is valid all the same.
    pub(super) fn forward_recall(&mut self, recall: &Recall, ledger: &Ledger) {
        let Some(account) = ledger.account(&recall.counter, recall.group) else { return };
        if (account.epoch, account.generation) == (recall.epoch, recall.generation) {
            let told = ledger.tells(&recall.counter, recall.group, Some(recall.granted));
            told.into_iter().for_each(|told| self.tell(recall.group, told));
        }
    }

    fn remind_soon(&mut self, now: Time) {
        let at = now + self.config.standing_retry;
        self.remind_at = Some(self.remind_at.map_or(at, |due| due.min(at)));
    }

    /// Repeats messages to groups that would otherwise wait for ever. A group that missed its guard reports nothing that could be
    /// answered: it is told again as long as the ledger waits for its base. So is a group if its answer with the items of a block
    /// was lost. A group that has not acknowledged places is told again less often. Settings have no acknowledgement, and are
    /// repeated now and then.
    pub(super) fn run_reminders(&mut self, now: Time, ledger: &Ledger) {
        if self.remind_at.is_none_or(|at| at > now) {
            return;
        }
        let mut waits = false;
        if ledger.resets_heard_by(self.config.own) < ledger.resets().last() {
            self.resets_heard.say_soon(now);
        }
        for group in self.groups.clone() {
            self.tell_settings(group, ledger);
            self.remind_of_generations(group, ledger);
            for counter in ledger.guarded() {
                let account = ledger.counter(counter).and_then(|state| state.accounts().get(&group));
                let is_waited_for = account.is_some_and(|of| of.base.is_none() || of.need_items.is_some());
                if is_waited_for || account.is_some_and(|of| of.unacknowledged() > 0) {
                    self.tell_account(counter, group, ledger);
                }
                waits |= is_waited_for;
            }
        }
        let retry = if waits { self.config.standing_retry } else { self.config.settings_retry };
        self.remind_at = (!self.groups.is_empty()).then_some(now + retry);
    }

    // ---- the ledger's state ----

    pub(super) fn on_ledger(&mut self, now: Time, changes: &Changes, ledger: &Ledger) {
        // First, since a group that is registered counts as ready.
        if changes.settings {
            for group in self.groups.clone() {
                self.tell_settings(group, ledger);
            }
        }
        if !changes.resets.is_empty() {
            self.resets_heard.say_soon(now);
            for group in self.groups.clone() {
                self.tell_generations(group, ledger);
            }
        }
        for group in &changes.groups {
            self.tell_registration(*group, ledger);
        }
        if changes.shards {
            self.on_map(now, ledger);
        }
        self.heard.on_ledger(now, changes, ledger);
        for (counter, group) in &changes.accounts {
            if self.groups.contains(group) {
                self.tell_account(counter, *group, ledger);
            }
        }
        self.remind_soon(now);
        self.view.on_ledger(changes, ledger);
        self.graph_at = Some(now);
        // It was set aside, and runs.
        if !self.view.is_registered(ledger) {
            self.standing.add(super::registration(&self.config));
        }
        self.answer_arming(now, ledger);
        let award = |(counter, at): &(CounterName, u64)| Event::Award { counter: counter.clone(), at: *at };
        let signature = |(counter, at): &(CounterName, u64)| Event::Signature { counter: counter.clone(), at: *at };
        let claims = changes.claims.then_some(Event::Claims);
        let events = changes.awards.iter().map(award).chain(changes.signatures.iter().map(signature)).chain(claims);
        self.outputs.extend(events.map(Output::Notify));
        self.want_notifications(now);
        self.leader_wake = Some(now);
    }

    /// A milestone is being armed. A view that shows less promises to stay below it, and reports that once the promise is
    /// durable. A view that shows as much reports that.
    pub(super) fn answer_arming(&mut self, now: Time, ledger: &Ledger) {
        let view = self.config.own;
        for awaiting in ledger.awaiting_view(view) {
            let counter = &awaiting.counter;
            let at = awaiting.at;
            let promised = Promised { at: awaiting.at, arming: awaiting.arming };
            if self.view.limits().has_promised(counter, promised) {
                continue;
            }
            // No milestone is armed before the ledger knows this view's counts of lost groups.
            if self.say_remains_of(counter, ledger) {
                continue;
            }
            if self.view.would_show(counter, ledger).up < at {
                self.view.limits_mut().promise(counter, promised, ledger);
            } else {
                self.standing.add(awaiting.answer(view, false));
            }
        }
        if self.view.limits().is_dirty() {
            self.first_checkpoint().hurry(now);
        } else {
            self.acknowledge_promises(ledger);
        }
    }

    pub(super) fn on_persisted(&mut self, now: Time, shard: ShardId, ledger: &Ledger) {
        if let Some(own) = self.shards.get_mut(usize::from(shard.0)) {
            let left = own.checkpoint.on_persisted(now);
            self.view.change(|cells| cells[usize::from(shard.0)].let_go(&left));
        }
        self.acknowledge_promises(ledger);
    }

    /// Reports durable promises to the ledger.
    fn acknowledge_promises(&mut self, ledger: &Ledger) {
        let view = self.config.own;
        for awaiting in ledger.awaiting_view(view) {
            let limits = self.view.limits();
            let checkpoint = &self.shards[0].checkpoint;
            let durable = checkpoint.is_persisted(&awaiting.counter) && !limits.has_changed(&awaiting.counter);
            let promised = Promised { at: awaiting.at, arming: awaiting.arming };
            if limits.has_promised(&awaiting.counter, promised) && durable {
                self.standing.add(awaiting.answer(view, true));
            }
        }
    }
}
