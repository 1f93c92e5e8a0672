//! Rows come back as they were written, all or by tenant, and what is no blob of rows is refused.

use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use tidemark_streams_core::blob::{BlobKey, Epoch, Level, LiveDigest, PartitionId, Seq};
use tidemark_streams_core::owner::{After, Content, Origin, SourceAfter};
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::scope::Scope;
use tidemark_streams_core::source::{SourceId, SourceState};
use tidemark_streams_core::time::Hour;

/// As it was written before footers said which tenants a blob holds.
const GOLDEN_WITHOUT_SCOPE: &[u8] = include_bytes!("../../tests/golden/rollups-1.parquet");
/// As it was written before footers said which blobs are live.
const GOLDEN_WITHOUT_STATE: &[u8] = include_bytes!("../../tests/golden/rollups-1-scope.parquet");
const GOLDEN: &[u8] = include_bytes!("../../tests/golden/rollups-1-state.parquet");
const GOLDEN_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rollups-1-state.parquet");

/// Of rows without a place in a directory.
fn plain() -> Footer {
    Footer::default().with(FORMAT_KEY, FORMAT.to_owned())
}

fn rows(tenants: u32, listings: u32, hours: u32) -> Rollups {
    let mut rows = Rollups::new();
    for tenant in 0..tenants {
        for listing in 0..listings {
            for hour in 0..hours {
                let row = RollupRow {
                    tenant: &format!("tenant-{tenant:04}"),
                    listing: &format!("{listing:09}"),
                    hour: Hour(480_000 + hour),
                    event_type: "impression",
                    quarters: [hour % 3, 0, listing % 2, 1],
                };
                rows.push(row).unwrap();
            }
        }
    }
    rows
}

#[test]
fn tenant_is_read_from_a_few_pages_of_many_groups() {
    let rows = rows(1_000, 10, 24);
    let bytes = Bytes::from(encode(&rows, &plain()).unwrap());
    let per_row = bytes.len() as f64 / rows.len() as f64;
    assert!(per_row < 4.0, "{per_row} bytes a row");
    assert_eq!(decode(bytes.clone(), Wanted::All).unwrap(), rows);
    for tenant in ["tenant-0000", "tenant-0545", "tenant-0546", "tenant-0999"] {
        let found = decode(bytes.clone(), Wanted::Tenant(tenant)).unwrap();
        let expected: Vec<RollupRow<'_>> = rows.iter().filter(|row| row.tenant == tenant).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }
    assert!(decode(bytes, Wanted::Tenant("tenant-05455")).unwrap().is_empty());
}

#[test]
fn only_pages_that_may_hold_the_tenant_are_decoded() {
    let rows = rows(1_000, 10, 24);
    let bytes = Bytes::from(encode(&rows, &plain()).unwrap());
    let options = parquet::file::serialized_reader::ReadOptionsBuilder::new().with_page_index().build();
    let reader = parquet::file::serialized_reader::SerializedFileReader::new_with_options(bytes, options).unwrap();
    use parquet::file::reader::FileReader;
    let wanted = |tenant: &str| -> usize {
        let groups = 0..reader.num_row_groups();
        groups.map(|group| read::rows_of(reader.metadata(), group, tenant).unwrap().len()).sum()
    };
    assert!((240..=3 * PAGE_ROWS).contains(&wanted("tenant-0300")), "{}", wanted("tenant-0300"));
    assert_eq!(wanted("nobody"), 0);
}

/// Today's reader reads the file of this version, and today's writer writes it. Bless with `TIDEMARK_BLESS=1`.
#[test]
fn golden_file_is_read_and_written() {
    let rows = rows(3, 2, 2);
    let put = Put {
        key: BlobKey { partition: PartitionId(0), epoch: Epoch(2), seq: Seq(7), part: 1 },
        level: Level::Delta,
        scope: Scope::ALL,
        origin: Origin::Source { source: SourceId([0xab; 32]), from: 100, to: 112 },
        after: After {
            parts: 2,
            live: LiveDigest { blobs: 3, total: 4_000, names: 0xfeed },
            revision: 1,
            sources: [SourceAfter { id: SourceId([0xab; 32]), state: SourceState::default() }].into(),
        },
        content: Content::Rows(Arc::new(rows.clone())),
    };
    let bytes = encode(&rows, &footer_of(&put, "0123456789abcdef")).unwrap();
    if std::env::var_os("TIDEMARK_BLESS").is_some() {
        std::fs::write(GOLDEN_PATH, &bytes).unwrap();
        return;
    }
    assert_eq!(decode(GOLDEN.into(), Wanted::All).unwrap(), rows);
    for old in [GOLDEN_WITHOUT_SCOPE, GOLDEN_WITHOUT_STATE] {
        assert_eq!(decode(old.into(), Wanted::All).unwrap(), rows);
    }
    assert!(bytes == GOLDEN, "the writer's bytes have changed");
    for golden in [GOLDEN, GOLDEN_WITHOUT_SCOPE] {
        let (rows, footer) = decode_with_footer(golden.into()).unwrap();
        assert!(is_as_written(&golden.into(), &rows, &footer).unwrap());
    }
}

#[test]
fn another_file_is_refused_by_format() {
    let mut other = plain();
    other = other.with(FORMAT_KEY, "tidemark-rollups-9".to_owned());
    let bytes = encode(&rows(1, 1, 1), &other).unwrap().into();
    assert!(matches!(decode(bytes, Wanted::All), Err(RowsError::Format { found }) if found == "tidemark-rollups-9"));
    assert!(matches!(decode(b"no parquet"[..].into(), Wanted::All), Err(RowsError::Parquet(_))));
    assert!(matches!(decode(Bytes::new(), Wanted::All), Err(RowsError::Parquet(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_back_as_they_were_written(
        drawn in proptest::collection::vec(
            ("[a-zé€]{1,8}", "[ -~]{1,12}", 0..1_000_u32, prop_oneof!["click", "impression"], any::<[u16; 4]>()),
            0..60,
        ),
    ) {
        let mut rows = Rollups::new();
        for (tenant, listing, hour, event_type, quarters) in &drawn {
            let quarters = quarters.map(u32::from);
            let row = RollupRow { tenant, listing, hour: Hour(*hour), event_type, quarters };
            rows.push(row).unwrap();
        }
        rows.combine();
        let bytes = Bytes::from(encode(&rows, &plain()).unwrap());
        prop_assert_eq!(decode(bytes, Wanted::All).unwrap(), rows);
    }
}
