//! Totals as shares: the part of the counters of each shard in each counter that inherits.
//!
//! With one shard, a counter's share is found by its number at once, as one sum would be.

use super::{NONE, Sums};
use tidemark_wire::shards::ShardId;

/// All shares.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// The number of shards, where there are several; else 0.
    several: u32,
    /// Where there are several: by heir and by shard the place in `all`.
    at: Vec<u32>,
    all: Vec<Share>,
    /// By shard, as far as there are shares.
    held: Vec<SharesHeld>,
}

/// The part of the counters of one shard in one total.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub namespace: u16,
    shard: u16,
    pub sums: Sums,
    /// In minutes since 1970: of buckets that ended by then a part is on the shelf, under this number. 0: none is.
    pub shelved_until: u32,
    pub ticket: u32,
}

/// The memory of one shard's shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharesHeld {
    /// Totals to which counters of the shard add, or once did.
    pub totals: u64,
    /// Bytes of buckets.
    bucket_bytes: usize,
}

impl SharesHeld {
    /// Bytes of memory of the part of those totals that comes from the shard.
    pub fn bytes(&self) -> u64 {
        self.totals * size_of::<Share>() as u64 + self.bucket_bytes as u64
    }
}

impl Shares {
    pub fn new(shards: usize) -> Shares {
        Shares { several: if shards > 1 { shards as u32 } else { 0 }, ..Shares::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// There are `shards` shards from now on.
    pub fn grow(&mut self, shards: usize) {
        if self.several == 0 {
            // Where there was one, an heir's number is the place of its share.
            (self.at, self.several) = ((0..self.all.len() as u32).collect(), 1);
        }
        let before = self.several as usize;
        let heirs = self.at.len() / before;
        let mut at = vec![NONE; heirs * shards];
        for (row, before) in at.chunks_exact_mut(shards).zip(self.at.chunks_exact(before)) {
            row[..before.len()].copy_from_slice(before);
        }
        (self.at, self.several) = (at, shards as u32);
    }

    /// The number of one more counter that inherits.
    pub fn heir(&mut self, namespace: u16) -> u32 {
        if self.several == 0 {
            return self.push(namespace, 0);
        }
        let heir = self.at.len() as u32 / self.several;
        self.at.resize(self.at.len() + self.several as usize, NONE);
        heir
    }

    /// A share of an heir, to which all-time counts are added.
    #[inline]
    pub fn share(&mut self, heir: u32, namespace: u16, shard: u16) -> &mut Share {
        let place = self.place(heir, namespace, shard);
        &mut self.all[place as usize]
    }

    /// Changes a share that may have other buckets then.
    #[inline]
    pub fn change<R>(&mut self, heir: u32, namespace: u16, shard: u16, change: impl FnOnce(&mut Share) -> R) -> R {
        let place = self.place(heir, namespace, shard);
        self.change_at(place as usize, change)
    }

    /// The same of the share at a place; there is one.
    #[inline]
    pub fn change_at<R>(&mut self, place: usize, change: impl FnOnce(&mut Share) -> R) -> R {
        let share = &mut self.all[place];
        let before = share.sums.heap_bytes();
        let result = change(share);
        let bytes = &mut self.held[usize::from(share.shard)].bucket_bytes;
        *bytes = *bytes + share.sums.heap_bytes() - before;
        result
    }

    /// All of them, in their places.
    pub fn all(&self) -> &[Share] {
        &self.all
    }

    /// The shares of a shard.
    pub fn of_shard(&self, shard: ShardId) -> impl Iterator<Item = &Share> + '_ {
        self.all.iter().filter(move |share| share.shard == shard.0)
    }

    /// Bytes of buckets in memory.
    pub fn bucket_bytes(&self) -> usize {
        self.held.iter().map(|held| held.bucket_bytes).sum()
    }

    /// Changes the next share behind the first `behind`, if there is one.
    pub fn change_next<R>(&mut self, behind: usize, change: impl FnOnce(&mut Share) -> R) -> Option<R> {
        (behind < self.all.len()).then(|| self.change_at(behind, change))
    }

    #[inline]
    fn place(&mut self, heir: u32, namespace: u16, shard: u16) -> u32 {
        if self.several == 0 {
            return heir;
        }
        let at = heir as usize * self.several as usize + usize::from(shard);
        match self.at[at] {
            NONE => {
                self.at[at] = self.push(namespace, shard);
                self.at[at]
            }
            place => place,
        }
    }

    #[cold]
    fn push(&mut self, namespace: u16, shard: u16) -> u32 {
        let shards = self.held.len().max(usize::from(shard) + 1);
        self.held.resize(shards, SharesHeld::default());
        self.held[usize::from(shard)].totals += 1;
        self.all.push(Share { namespace, shard, sums: Sums::default(), shelved_until: 0, ticket: 0 });
        self.all.len() as u32 - 1
    }

    /// The shares of an heir, each of another shard.
    pub fn of(&self, heir: u32) -> impl Iterator<Item = (ShardId, &Share)> + '_ {
        let one = (self.several == 0).then(|| self.all.get(heir as usize)).flatten();
        let several = heir as usize * self.several as usize..(heir as usize + 1) * self.several as usize;
        let several = self.at.get(several).unwrap_or_default();
        let places = several.iter().filter(|&&place| place != NONE).map(|&place| &self.all[place as usize]);
        one.into_iter().chain(places).map(|share| (ShardId(share.shard), share))
    }

    /// No counter of a shard adds to any total any more.
    pub fn forget(&mut self, shard: ShardId) {
        if self.several == 0 {
            *self = Shares::default();
            return;
        }
        let mut next = Vec::with_capacity(self.all.len());
        let mut places = Vec::with_capacity(self.all.len());
        for share in std::mem::take(&mut self.all) {
            let stays = share.shard != shard.0;
            places.push(if stays { next.len() as u32 } else { NONE });
            next.extend(stays.then_some(share));
        }
        next.shrink_to_fit();
        self.all = next;
        self.at.iter_mut().filter(|at| **at != NONE).for_each(|at| *at = places[*at as usize]);
        if let Some(held) = self.held.get_mut(usize::from(shard.0)) {
            *held = SharesHeld::default();
        }
    }

    /// The memory of a shard's shares.
    pub fn held(&self, shard: ShardId) -> SharesHeld {
        self.held.get(usize::from(shard.0)).copied().unwrap_or_default()
    }

    /// Bytes allocated.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Share>() * self.all.capacity() + 4 * self.at.capacity() + self.bucket_bytes()
    }

    /// Panics unless an heir's shares are of its namespace, and each shard's are counted.
    pub fn check_heir(&self, heir: u32, namespace: u16) {
        let several = self.several as usize;
        let row = self.at.get(heir as usize * several..(heir as usize + 1) * several).unwrap_or_default();
        let one = [heir];
        let places = if several == 0 { &one[..] } else { row };
        for (shard, &place) in places.iter().enumerate().filter(|(_, place)| **place != NONE) {
            let share = &self.all[place as usize];
            assert_eq!((usize::from(share.shard), share.namespace), (shard, namespace), "a share of an heir");
        }
    }

    /// Panics unless the recorded memory of each shard is the true one.
    pub fn check_held(&self) {
        let mut held = vec![SharesHeld::default(); self.held.len()];
        for share in &self.all {
            let of = &mut held[usize::from(share.shard)];
            (of.totals, of.bucket_bytes) = (of.totals + 1, of.bucket_bytes + share.sums.heap_bytes());
        }
        assert_eq!(held, self.held, "what shards hold");
        assert_eq!(
            self.at.iter().filter(|&&place| place != NONE).count(),
            if self.several == 0 { 0 } else { self.all.len() }
        );
    }
}
