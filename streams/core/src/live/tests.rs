//! A set of blobs is a plain map, whatever is inserted and removed, and what changed is enough to restore it.

use super::*;
use crate::blob::{Epoch, PartitionId, Seq, StoredBlob};
use proptest::prelude::*;

fn meta() -> impl Strategy<Value = BlobMeta> {
    let scope = prop_oneof![
        Just(Scope::ALL),
        (0..3_u32).prop_map(|remainder| Scope::Slice(Slice { modulus: 3, remainder })),
        (0..2_u32).prop_map(|part| Scope::Part(Part { tenant: TenantHash(7), parts: 2, part })),
    ];
    let level = (0..5_u8).prop_map(|level| match level {
        0 => Level::Delta,
        1 => Level::Hour,
        2 => Level::Day,
        3 => Level::Period,
        _ => Level::DeadLetters,
    });
    (level, scope, 0..6_u32, 0..400_u64, 0..3_u64).prop_map(|(level, scope, hour, seq, total)| {
        let scope = if matches!(level, Level::Delta | Level::DeadLetters) { Scope::ALL } else { scope };
        let total = if level == Level::DeadLetters { 0 } else { total };
        BlobMeta {
            key: BlobKey { partition: PartitionId(0), epoch: Epoch(1 + seq % 3), seq: Seq(seq), part: 0 },
            level,
            scope,
            hours: HourRange { first: Hour(hour), last: Hour(hour + hour % 2) },
            rows: 1,
            total,
            stored: StoredBlob { bytes: seq, checksum: u64::MAX - seq },
        }
    })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(BlobMeta),
    Remove(usize),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![6 => meta().prop_map(Step::Insert), 3 => (0..1_000_usize).prop_map(Step::Remove), 1 => Just(Step::Snapshot)]
}

/// The rows that a store keeps of the chunks.
fn store(rows: &mut BTreeMap<u32, Vec<u8>>, set: &mut BlobSet) {
    for ChangedChunk { id, bytes } in set.take_changes() {
        match bytes {
            Some(bytes) => rows.insert(id.0, bytes),
            None => rows.remove(&id.0),
        };
    }
}

fn restored(rows: &BTreeMap<u32, Vec<u8>>) -> BlobSet {
    let mut set = BlobSet::new();
    rows.iter().for_each(|(id, bytes)| set.restore(ChunkId(*id), bytes).unwrap());
    set.finish();
    set
}

fn check(set: &BlobSet, brute: &BTreeMap<BlobKey, BlobMeta>) {
    let mut expected: Vec<BlobMeta> = brute.values().copied().collect();
    expected.sort_by_key(Place::of);
    assert_eq!(set.values().collect::<Vec<_>>(), expected);
    assert_eq!((set.len(), set.total()), (brute.len() as u64, brute.values().map(|meta| u128::from(meta.total)).sum()));
    for meta in brute.values() {
        assert_eq!(set.get(&meta.key), Some(*meta));
    }
    let hours = HourRange { first: Hour(2), last: Hour(3) };
    for tenant in (0..9).map(TenantHash) {
        let is_wanted =
            |meta: &&BlobMeta| meta.level.is_of_rows() && meta.scope.may_hold(tenant) && meta.hours.overlaps(&hours);
        let mut wanted: Vec<BlobKey> = expected.iter().filter(is_wanted).map(|meta| meta.key).collect();
        let mut found: Vec<BlobKey> = set.of_tenant(tenant, hours).iter().map(|meta| meta.key).collect();
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, wanted);
    }
    for level in Level::OF_ROWS {
        let of_level: Vec<BlobMeta> = expected.iter().filter(|meta| meta.level == level).copied().collect();
        assert_eq!(set.of_level(level).collect::<Vec<_>>(), of_level);
        let of_all = of_level.into_iter().filter(|meta| meta.scope == Scope::ALL);
        assert!(set.of_scope(level, Scope::ALL).eq(of_all));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn set_equals_a_plain_map_and_changed_chunks_restore_it(
        steps in proptest::collection::vec(step(), 0..900),
    ) {
        let mut set = BlobSet::new();
        let mut brute: BTreeMap<BlobKey, BlobMeta> = BTreeMap::new();
        let mut rows = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(meta) => {
                    prop_assert_eq!(set.insert(&meta), !brute.contains_key(&meta.key));
                    brute.entry(meta.key).or_insert(meta);
                }
                Step::Remove(at) if !brute.is_empty() => {
                    let key = *brute.keys().nth(at % brute.len()).unwrap();
                    prop_assert_eq!(set.remove(&key), brute.remove(&key));
                    prop_assert_eq!(set.remove(&key), None);
                }
                Step::Remove(_) => {}
                // A process that ends here goes on from what was stored.
                Step::Snapshot => {
                    store(&mut rows, &mut set);
                    set = restored(&rows);
                }
            }
        }
        check(&set, &brute);
        store(&mut rows, &mut set);
        check(&restored(&rows), &brute);
    }
}

#[test]
fn chunks_that_do_not_fit_together_are_refused() {
    let meta = |seq: u64| BlobMeta {
        key: BlobKey { partition: PartitionId(0), epoch: Epoch(1), seq: Seq(seq), part: 0 },
        level: Level::Delta,
        scope: Scope::ALL,
        hours: HourRange::of(Hour(1)),
        rows: 1,
        total: 1,
        stored: StoredBlob { bytes: 1, checksum: 1 },
    };
    let bytes = |metas: &[u64]| -> Vec<u8> {
        metas.iter().flat_map(|seq| postcard::to_allocvec(&meta(*seq)).unwrap()).collect()
    };
    let mut set = BlobSet::new();
    assert_eq!(set.restore(ChunkId(0), &[]), Err(RestoreError::Empty(ChunkId(0))));
    assert!(matches!(set.restore(ChunkId(0), &[1, 2, 3]), Err(RestoreError::Decode(_))));
    assert_eq!(set.restore(ChunkId(0), &bytes(&[2, 1])), Err(RestoreError::Order(ChunkId(0))));
    assert_eq!(set.restore(ChunkId(0), &bytes(&[5, 9])), Ok(()));
    for overlapping in [[5, 6], [1, 5], [1, 20], [6, 7], [9, 10]] {
        assert_eq!(
            set.restore(ChunkId(1), &bytes(&overlapping)),
            Err(RestoreError::Order(ChunkId(1))),
            "{overlapping:?}"
        );
    }
    assert_eq!(set.restore(ChunkId(0), &bytes(&[20, 21])), Err(RestoreError::Twice(ChunkId(0))));
    assert_eq!(set.restore(ChunkId(u32::MAX), &bytes(&[20])), Err(RestoreError::Order(ChunkId(u32::MAX))));
    let many: Vec<u64> = (100..100 + CHUNK_BLOBS_MAX as u64 + 1).collect();
    assert!(matches!(set.restore(ChunkId(1), &bytes(&many)), Err(RestoreError::Decode(DecodeError::Blobs(_)))));
}
