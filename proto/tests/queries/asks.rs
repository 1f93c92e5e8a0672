//! Questions and answers between aggregators: bounds, garbage, and that sent messages arrive unchanged.

use proptest::prelude::*;
use std::collections::BTreeSet;
use tidemark_proto::ids::CounterName;
use tidemark_proto::limits::{KEY_BYTES_MAX, SHARDS_MAX};
use tidemark_proto::msg::Reading;
use tidemark_proto::query::*;
use tidemark_proto::series::{BucketId, Granularity, Totals};
use tidemark_proto::shards::{ShardId, ShardMask};
use tidemark_proto::wire::{WIRE_VERSION, decode, encode};

fn name() -> CounterName {
    CounterName::new("qa", b"a/b").unwrap()
}

fn totals() -> impl Strategy<Value = Totals> {
    let bucket = (0..25usize, 0..2_000u32, prop_oneof![0..9u64, any::<u64>()]);
    let bucket = bucket.prop_map(|(code, index, value)| {
        let granularity = Granularity::ALL[code];
        (BucketId { granularity, index: index.min(granularity.index_max()) }, value)
    });
    proptest::collection::vec(bucket, 0..50).prop_map(Totals::from_buckets)
}

fn counts() -> impl Strategy<Value = Counts> {
    let reading = any::<(u64, u64, Option<u64>, u64, u32, u64)>();
    let reading = reading.prop_map(|(up, pending, at_most, ledger_index, generation, down)| Reading {
        up,
        pending,
        at_most,
        ledger_index,
        generation,
        down,
    });
    let parts = (prop::option::of(reading), any::<u64>(), any::<u64>(), totals(), totals());
    parts.prop_map(|(reading, up, down, up_buckets, down_buckets)| Counts {
        reading,
        up,
        down,
        up_buckets,
        down_buckets,
    })
}

fn ask(counters: usize, shard: u16) -> ShardAsk {
    let of = Of::Total;
    let shards = BTreeSet::from([ShardId(shard)]);
    let masks = vec![ShardMask::EVERY; counters];
    let counters = vec![name(); counters];
    let wanted = Wanted::everything();
    ShardAsk::Counts(CountsAsk { of, shards, counters, wanted, from: None, masks })
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(prop_oneof![0..4u8, any::<u8>()], 0..200)) {
        let bytes = [&[WIRE_VERSION], &bytes[..]].concat();
        let _ = decode::<ShardAsk>(&bytes);
        let _ = decode::<ShardAnswer>(&bytes);
    }

    #[test]
    fn an_answer_arrives_and_a_damaged_one_is_refused_or_valid(
        counts in proptest::collection::vec(counts(), 0..4), at: usize, xor in any::<u8>()
    ) {
        let answer = ShardAnswer::Counts(CountsAnswer { counts, ..CountsAnswer::default() });
        let mut bytes = encode(&answer);
        prop_assert_eq!(&decode::<ShardAnswer>(&bytes), &Ok(answer));
        let at = at % bytes.len();
        bytes[at] ^= xor;
        if let Ok(other) = decode::<ShardAnswer>(&bytes) {
            prop_assert_eq!(decode::<ShardAnswer>(&encode(&other)), Ok(other));
        }
    }
}

#[test]
fn more_than_the_limit_is_refused_with_value_and_limit() {
    let refused = |ask: &ShardAsk| decode::<ShardAsk>(&encode(ask)).unwrap_err().to_string();
    let many = "counters of a question or an answer is 2049: at most 2048 allowed";
    assert_eq!(refused(&ask(SHARD_ASK_COUNTERS_MAX + 1, 0)), many);
    assert_eq!(refused(&ShardAsk::Readings { counters: vec![name(); SHARD_ASK_COUNTERS_MAX + 1] }), many);
    assert_eq!(refused(&ask(1, SHARDS_MAX as u16)), "shard is 1024: at most 1023 allowed");
    let scan = |prefix: usize, most: u32| {
        let keys = KeyRange { namespace: "qa".to_owned(), prefix: vec![1; prefix], after: None, before: None };
        ShardAsk::Scan { of: Of::Direct, shards: BTreeSet::new(), keys, most }
    };
    assert_eq!(refused(&scan(KEY_BYTES_MAX + 1, 1)), "bytes of a key is 256: at most 255 allowed");
    assert_eq!(refused(&scan(1, SHARD_SCAN_MAX + 1)), "counters of a page is 1025: at most 1024 allowed");
    let buckets =
        (0..COUNTS_BUCKETS_MAX as u32 + 1).map(|index| (BucketId { granularity: Granularity::MINUTE, index }, 1));
    let counts = vec![Counts { up_buckets: Totals::from_buckets(buckets), ..Counts::default() }];
    let answer = ShardAnswer::Counts(CountsAnswer { counts, ..CountsAnswer::default() });
    assert!(decode::<ShardAnswer>(&encode(&answer)).is_err());
}

#[test]
fn an_answer_without_counts_takes_a_few_bytes() {
    let of = |counters| {
        let answer = CountsAnswer { counts: vec![Counts::default(); counters], ..CountsAnswer::default() };
        encode(&ShardAnswer::Counts(answer)).len()
    };
    assert_eq!(of(11) - of(1), 50);
}
