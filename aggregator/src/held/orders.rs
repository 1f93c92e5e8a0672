//! The names of a view and of the graph in the order of their keys, which ranges of keys are looked up in.

use super::Held;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemark_proto::aggregator::AggregatorCore;
use tidemark_proto::ids::CounterName;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::query::{KeyOrder, KeyRange, Of, Page, scan, scan_across};
use tidemark_proto::shards::{Range, ShardId};
use tidemark_proto::view::{Cells, View};

/// Names that the order of keys takes in under one lock: some milliseconds.
const CATCH_UP_MAX: u32 = 1_024;

#[derive(Default)]
pub(crate) struct Orders {
    /// By shard of the view.
    by_shard: Mutex<Vec<KeyOrder>>,
    /// Of those that have or had an edge: one that only others flow to counts nothing itself.
    related: Mutex<KeyOrder>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Held {
    /// Looks at one instant at the order of each shard's names, the view and the ledger, until `look` has found something. Before the first
    /// time all names are put in order, some at a time.
    pub async fn look_in_order<T>(
        &self,
        mut look: impl FnMut(&[KeyOrder], &AggregatorCore, &Ledger) -> Option<T>,
    ) -> T {
        loop {
            let found = self.look_once(|core, ledger| {
                let mut orders = lock(&self.orders().by_shard);
                catch_up(&mut orders, core.view()).then(|| look(&orders, core, ledger)).flatten()
            });
            match found {
                Some(found) => return found,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// The next counters of a range that have counted since they last began again, or of which there are totals, as far as they are held
    /// here. At most `most` are looked at, and for totals as many again.
    pub async fn scan_here(&self, of: Of, keys: &KeyRange, most: usize) -> Page {
        match of {
            Of::Direct => self.scan_counted(keys, most).await,
            Of::Total => self.scan_counted(keys, most).await.joined(self.scan_related(keys, most).await),
        }
    }

    async fn scan_counted(&self, keys: &KeyRange, most: usize) -> Page {
        self.look_in_order(|orders, core, ledger| {
            let view = core.view();
            // In the order of counters, which that of numbers is no more once a range was split.
            let part = |range: Range<'_>| {
                let shard = range.shard;
                (&orders[usize::from(shard.0)], view.cells(shard).table())
            };
            let parts: Vec<_> = view.ranges().iter().map(part).collect();
            let is_shown = |counter: &CounterName| is_counted(view, ledger, counter);
            Some(match view.ranges().order().is_by_name() {
                true => scan(&parts, keys, most, is_shown),
                false => scan_across(&parts, keys, most, is_shown),
            })
        })
        .await
    }

    async fn scan_related(&self, keys: &KeyRange, most: usize) -> Page {
        loop {
            let page = self.look_once(|core, ledger| {
                let (mut order, view, names) = (lock(&self.orders().related), core.view(), ledger.graph().names());
                let is_shown = |counter: &CounterName| {
                    let total = view.total(counter, ledger);
                    total.up > 0 || total.down > 0
                };
                order.catch_up(names, CATCH_UP_MAX).then(|| scan(&[(&*order, names)], keys, most, is_shown))
            });
            match page {
                Some(page) => return page,
                None => tokio::task::yield_now().await,
            }
        }
    }
}

/// Takes in further names of each shard, and says whether that were all.
fn catch_up(orders: &mut Vec<KeyOrder>, view: &View) -> bool {
    orders.resize_with(view.shards().len(), KeyOrder::default);
    let caught_up = |(order, (_, cells)): (&mut KeyOrder, (ShardId, &Cells))| order.follow(cells, CATCH_UP_MAX);
    orders.iter_mut().zip(view.shards()).all(caught_up)
}

/// Whether anything was counted of a counter since it last began again. A counter that was removed has cells, without counts.
fn is_counted(view: &View, ledger: &Ledger, counter: &CounterName) -> bool {
    let generation = ledger.resets().generation(counter);
    view.sum_of(counter, generation) > 0 || view.down_of(counter, generation) > 0
}
