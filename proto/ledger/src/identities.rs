//! Identities of the increments that the ledger's leader put into the log without them, in case the ledger asks.

use crate::ledger::{AccountState, CounterLedger, Ledger};
use std::collections::{BTreeMap, VecDeque};
use tidemark_types::ids::{CounterName, GroupId};
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::{LedgerCmd, Offer, OfferBody, OfferItem};

/// Increments with identities that a leader keeps. Further increments are put into the log with their identities.
pub const IDENTITIES_HELD_MAX: usize = 1 << 17;
/// An answer that was not seen applied for so long is given again.
const ANSWER_LOST_AFTER: Span = Span::from_secs(1);

/// The leader's memory of the increments that it proposed for one account.
#[derive(Clone, Debug, Default)]
struct Offered {
    /// The newest epoch and start that were offered under.
    source: (u32, u64),
    /// Positions below are in the log, or were lost on the way to it.
    upto: u64,
    /// Increments without identities there, by first position.
    runs: VecDeque<(u64, Vec<OfferItem>)>,
    /// The position last answered for, and when.
    answered: Option<(u64, Time)>,
}

/// Identities by account, and how far each was offered.
#[derive(Clone, Debug, Default)]
pub struct Identities {
    offered: BTreeMap<(CounterName, GroupId), Offered>,
    held: usize,
}

impl Identities {
    /// Weight of the increments that were proposed and are not applied in `state`, about.
    pub fn under_way(&self, name: &CounterName, state: &CounterLedger) -> u64 {
        let of = |(group, account): (&GroupId, &AccountState)| {
            let offered = self.offered.get(&(name.clone(), *group));
            offered.map_or(0, |offered| offered.upto.saturating_sub(account.next_pos))
        };
        state.accounts().iter().map(of).fold(0, u64::saturating_add)
    }

    /// Whether there is room for this number of further increments.
    pub fn has_room(&self, count: usize) -> bool {
        self.held + count <= IDENTITIES_HELD_MAX
    }

    /// Whether an offer continues at the end of the increments in the log, or on their way there. Apply refuses any other offer.
    pub fn continues(&self, offer: &Offer, next_pos: u64) -> bool {
        let offered = self.offered.get(&(offer.counter.clone(), offer.group));
        offer.first_pos <= next_pos.max(offered.map_or(0, |offered| offered.upto))
    }

    /// `count` increments of an offer go into the log; with `unnamed`, these are theirs and stand there without identities.
    pub fn on_proposed(&mut self, offer: &Offer, count: u64, unnamed: Option<Vec<OfferItem>>) {
        let key = (offer.counter.clone(), offer.group);
        let offered = self.offered.entry(key).or_default();
        let source = (offer.epoch, offer.start);
        if offered.source != source {
            self.held -= offered.runs.iter().map(|(_, items)| items.len()).sum::<usize>();
            *offered = Offered { source, ..Offered::default() };
        }
        offered.upto = offered.upto.max(offer.first_pos.saturating_add(count));
        if let Some(items) = unnamed {
            self.held += items.len();
            offered.runs.push_back((offer.first_pos, items));
        }
    }

    /// Forgets decided increments.
    pub fn forget_decided(&mut self, ledger: &Ledger) {
        self.offered.retain(|(name, group), offered| {
            let Some(state) = ledger.counter(name) else { return false };
            let Some(account) = state.accounts().get(group) else { return false };
            if !offered.runs.is_empty() {
                let undecided = state.window().first_open(*group).unwrap_or(account.next_pos);
                offered.runs.retain(|(first, items)| first + items.len() as u64 > undecided);
            }
            !offered.runs.is_empty() || offered.upto > account.next_pos
        });
        self.held = self.offered.values().flat_map(|offered| &offered.runs).map(|(_, items)| items.len()).sum();
    }

    /// Answers for the groups that the ledger asks, as far as they are known here.
    pub fn answers(&mut self, now: Time, ledger: &Ledger) -> Vec<LedgerCmd> {
        let answer = |((name, group), offered): (&(CounterName, GroupId), &mut Offered)| {
            let state = ledger.counter(name)?;
            let (from, to) = state.accounts().get(group)?.need_items?;
            if offered.answered.is_some_and(|(pos, at)| pos == from && now - at < ANSWER_LOST_AFTER) {
                return None;
            }
            let holds = |(first, items): &&(u64, Vec<OfferItem>)| (*first..first + items.len() as u64).contains(&from);
            let (first, items) = offered.runs.iter().rfind(holds)?;
            let known = items[(from - first) as usize..].iter().take((to - from) as usize).copied();
            let body = OfferBody::Items(known.collect());
            offered.answered = Some((from, now));
            let (epoch, start) = offered.source;
            let detail = Offer { counter: name.clone(), epoch, group: *group, start, first_pos: from, body };
            Some(LedgerCmd::Detail(detail))
        };
        self.offered.iter_mut().filter_map(answer).collect()
    }
}
