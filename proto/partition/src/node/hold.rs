//! Backpressure: clients' batches are held while a following view is too far behind. So a spike becomes lag up to a limit, and
//! beyond it counting continues as fast as the view follows. Further batches of clients are refused as overloaded, and the
//! clients coalesce them.
//!
//! The lag of a view is not the age of the changes that it does not know. Under a load of twice its speed, a view needs two
//! minutes for the counts of one minute, whatever is done once the first of them is a minute old. The lag is the time that the
//! view will need for the changes that it lacks, at its recent speed. It follows at once when batches are held.
//!
//! A view holds no batches if it is away, walks, or takes nothing (because its process hangs, or its disk is full). Nor does it
//! for entries that were applied before it came. A slow disk delays batches, too: nothing of rights, places or leases depends on
//! when a batch is committed.

use super::{NodeCore, SEATS};
use tidemark_types::ids::LogIndex;
use tidemark_types::time::{Span, Time};
use tidemark_wire::msg::FeedPull;

/// A view that took nothing for so long does not hold: also the longest time for which batches are held without a look at it.
pub const STUCK_AFTER: Span = Span::from_secs(2);
/// No batch is held for longer: clients take a batch without an answer for two seconds for lost, and then their link, and then
/// the data centre.
pub const HELD_MAX: Span = Span::from_secs(1);
/// A view is watched for so long, or for as long as it may be behind, before it is said how fast it follows.
const WATCHED_MIN: Span = Span::from_secs(1);
/// Each time that a view was watched for this long, half of the earlier measurement is forgotten.
const WATCHED_MAX: Span = Span::from_secs(8);
/// This part of the changes that a lagging view takes is not refilled: so the view gets nearer while counting continues.
const NEARER_PART: u64 = 4;
/// Bytes that wait meanwhile; past it batches are refused. Few, so that they are committed before clients take them for lost.
pub const PACED_BYTES_MAX: usize = 128 << 10;

/// All following views, and the batches that are held for them.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// By seat.
    followers: [Option<Follower>; SEATS],
    /// One of them is too far behind: batches are committed as fast as it takes the changes before them.
    paces: bool,
    /// The waiting batches are held since then; this time is not in `total` yet.
    since: Option<Time>,
    total: Span,
}

/// A view that is told of changes.
#[derive(Debug)]
struct Follower {
    /// The pull that it asked with last: it knows all changes before it.
    asked: FeedPull,
    /// When it asked from somewhere else before.
    moved_at: Time,
    /// The entry that was applied when it came, or had ended its walk.
    missed: LogIndex,
    /// The time since which all its chunks were full, and the number of changes that it has taken since.
    watched: Option<(Time, u64)>,
    /// While it is too far behind: it holds batches as long as this number of changes is behind it, missed ones included.
    ceiling: Option<u64>,
}

impl Holds {
    /// Nothing is known of the following views.
    pub fn forget(&mut self) {
        *self = Holds { total: self.total, ..Holds::default() };
    }

    /// The aggregator is gone, or there anew.
    pub fn leave(&mut self, seat: usize) {
        self.followers[seat] = None;
    }

    /// It was told something; `more` is left.
    pub fn on_told(&mut self, now: Time, seat: usize, more: bool) {
        if let Some(follower) = &mut self.followers[seat] {
            follower.watched = more.then(|| follower.watched.unwrap_or((now, 0)));
        }
    }

    /// Waiting batches are held until then, but not for too long: after the longest time one entry of them is given out.
    fn no_longer(&mut self, now: Time, until: Option<Time>) -> Option<Time> {
        let latest = until.map(|_| *self.since.get_or_insert(now) + HELD_MAX).filter(|&latest| now < latest);
        if latest.is_none() {
            let held = self.since.take().map_or(Span(0), |since| now - since);
            self.total = Span(self.total.0 + held.0);
        }
        until.zip(latest).map(|(until, latest)| until.min(latest))
    }
}

impl Follower {
    /// It asks from another place, and has taken this number of changes.
    fn moved(&mut self, now: Time, asks: FeedPull, took: u64) {
        let was_stuck = now - self.moved_at >= STUCK_AFTER;
        (self.asked, self.moved_at) = (asks, now);
        self.ceiling = self.ceiling.map(|ceiling| ceiling.saturating_sub(took / NEARER_PART));
        let Some((since, taken)) = self.watched else { return };
        let watched = now - since;
        self.watched = Some(match watched >= WATCHED_MAX {
            // The changes that it took meanwhile say nothing about its speed.
            _ if was_stuck => (now, 0),
            true => (since + Span(watched.0 / 2), (taken + took) / 2),
            false => (since, taken + took),
        });
    }

    /// Whether it would need longer than `limit` for this number of changes, as far as known.
    fn is_too_far(&self, now: Time, changes: u64, limit: Span) -> bool {
        let Some((since, taken)) = self.watched else { return false };
        let watched = now - since;
        let is_said = taken > 0 && watched >= WATCHED_MIN.min(limit) && now - self.moved_at < STUCK_AFTER;
        is_said && u128::from(changes) * u128::from(watched.0) > u128::from(taken) * u128::from(limit.0)
    }
}

impl NodeCore {
    /// An aggregator asks for new changes: it knows the changes before its cursor.
    pub(super) fn follow(&mut self, now: Time, seat: usize, pull: &FeedPull) {
        let follows = pull.walk.is_none() && pull.group == self.config.group.id && self.group.follows_from(pull.cursor);
        if !follows || self.config.view_behind_max == Span(0) {
            return self.holds.leave(seat);
        }
        let missed = self.group.applied();
        let came = || Follower { asked: *pull, moved_at: now, missed, watched: None, ceiling: None };
        let follower = self.holds.followers[seat].get_or_insert_with(came);
        let place = |pull: &FeedPull| (pull.cursor, pull.rows_told, pull.slots_known);
        if place(pull) != place(&follower.asked) {
            let behind = |pull: &FeedPull| self.group.changes_since(pull.cursor);
            let took = behind(&follower.asked).saturating_sub(behind(pull));
            follower.moved(now, *pull, took);
        }
    }

    /// Looks whether batches that wait are held from now on.
    pub(super) fn hold(&mut self, now: Time) {
        let may_be = self.log.may_be_held() && self.config.view_behind_max > Span(0) && self.leads();
        self.holds.paces = false;
        let until = (0..SEATS).filter(|_| may_be).filter_map(|seat| self.held_by(now, seat)).max();
        self.log.held_until = self.holds.no_longer(now, until);
    }

    /// The time until which a view holds batches, if it does.
    fn held_by(&mut self, now: Time, seat: usize) -> Option<Time> {
        let follower = self.holds.followers[seat].as_mut()?;
        if follower.watched.is_none() {
            follower.ceiling = None;
            return None;
        }
        let cursor = follower.asked.cursor;
        let missed = follower.missed;
        let came_since = self.group.changes_since(cursor.max(missed));
        if !follower.is_too_far(now, came_since, self.config.view_behind_max) {
            follower.ceiling = None;
            return None;
        }
        self.holds.paces = true;
        let behind = self.group.changes_since(cursor);
        let ceiling = *follower.ceiling.get_or_insert(behind);
        (behind >= ceiling).then(|| follower.moved_at + STUCK_AFTER)
    }

    /// Bytes of batches that may wait.
    pub(super) fn waiting_bytes_max(&self) -> usize {
        let max = self.config.waiting_bytes_max;
        if self.holds.paces { max.min(PACED_BYTES_MAX) } else { max }
    }

    /// Bytes of entries after which a commit ends: one entry while each is to be taken by a view before the next.
    pub(super) fn commit_bytes_max(&self) -> usize {
        if self.holds.paces { 1 } else { self.config.commit_bytes_max }
    }

    /// Whether batches are held.
    pub fn holds(&self) -> bool {
        self.log.held_until.is_some()
    }

    /// For how long batches were held, in all, of this process.
    pub fn held(&self, now: Time) -> Span {
        Span(self.holds.total.0 + self.holds.since.map_or(0, |since| (now - since).0))
    }
}
