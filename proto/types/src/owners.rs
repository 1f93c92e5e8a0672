//! Which group owns the id of an increment: a fixed function of the id, so that every process of the cluster finds the same
//! group.
//!
//! The ledger holds the data centres that own ids and their numbers of groups, as they were when the cluster began. A data centre
//! that is appended later owns no ids, unless a request names it as the home of its id. So no id ever changes its owner.

use crate::ids::DcId;

/// The group that owns an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub dc: DcId,
    pub group: u16,
}

/// The owner of an id. Its data centre is the one that the request names, else the one of the highest rank for the id. There it
/// is the group of the highest rank. `None` while the owners of ids are unknown: until then the number of a home's groups is not
/// known.
///
/// An appended data centre has its ids in its first group.
pub fn owner_of(owners: &[(DcId, u16)], digest: &[u8; 16], home: Option<DcId>) -> Option<Owner> {
    if owners.is_empty() {
        return None;
    }
    let rank_of = |(dc, _): &&(DcId, u16)| rank(digest, 0, dc.0);
    let (dc, groups) = match home {
        Some(home) => owners.iter().find(|(dc, _)| *dc == home).copied().unwrap_or((home, 1)),
        None => owners.iter().max_by_key(rank_of).copied()?,
    };
    let group = (0..groups.max(1)).max_by_key(|group| rank(digest, 1, *group)).unwrap_or(0);
    Some(Owner { dc, group })
}

/// The rank of one owner for an id. Part of the contract between processes of all versions: the finalizer of SplitMix64 over the
/// halves of the digest and the owner.
fn rank(digest: &[u8; 16], of: u64, number: u16) -> u64 {
    let digest = u128::from_le_bytes(*digest);
    let mixed = mix((digest as u64) ^ mix((of << 32 | u64::from(number)) + 1));
    mix(mixed ^ (digest >> 64) as u64)
}

fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNERS: [(DcId, u16); 3] = [(DcId(0), 2), (DcId(1), 1), (DcId(2), 4)];

    fn digest(n: u64) -> [u8; 16] {
        (u128::from(mix(n)) << 64 | u128::from(mix(n + 1_000_000))).to_le_bytes()
    }

    #[test]
    fn owners_are_what_they_were() {
        let found =
            [1, 2, 3, 4, 5, 6].map(|n| owner_of(&OWNERS, &[n; 16], None).map(|owner| (owner.dc.0, owner.group)));
        assert_eq!(found, FOUND.map(Some));
    }

    const FOUND: [(u16, u16); 6] = [(0, 0), (2, 3), (1, 0), (2, 2), (2, 3), (0, 0)];

    #[test]
    fn ids_are_spread_evenly_over_centres_and_their_groups() {
        let mut counts = std::collections::BTreeMap::<(u16, u16), u32>::new();
        for n in 0..30_000 {
            let owner = owner_of(&OWNERS, &digest(n), None).unwrap();
            *counts.entry((owner.dc.0, owner.group)).or_default() += 1;
        }
        let share = |dc, groups: u32| 30_000 / 3 / groups * u32::from(counts.contains_key(&(dc, 0)));
        for (&(dc, group), &count) in &counts {
            let fair = share(dc, OWNERS[usize::from(dc)].1.into());
            assert!(count.abs_diff(fair) < fair / 10, "{dc}/{group}: {count} of {fair}");
        }
        assert_eq!(counts.len(), 7);
    }

    #[test]
    fn a_named_home_owns_the_id_also_when_it_was_appended() {
        for n in 0..100 {
            assert_eq!(owner_of(&OWNERS, &digest(n), Some(DcId(1))), Some(Owner { dc: DcId(1), group: 0 }));
            assert_eq!(owner_of(&OWNERS, &digest(n), Some(DcId(7))), Some(Owner { dc: DcId(7), group: 0 }));
        }
        assert_eq!([None, Some(DcId(1))].map(|home| owner_of(&[], &digest(1), home)), [None, None]);
    }
}
