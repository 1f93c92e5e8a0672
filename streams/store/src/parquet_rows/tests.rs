//! Rows come back as they were written, all or by tenant, and what is no blob of rows is refused.

use super::*;
use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use tidemark_streams_core::blob::{BlobKey, Epoch, Level, LiveDigest, PartitionId, Seq};
use tidemark_streams_core::manifest::{Command, Manifest, SetTypes, TypesSet};
use tidemark_streams_core::owner::{After, Content, Origin, SourceAfter};
use tidemark_streams_core::rollup::Rollups;
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::scope::Scope;
use tidemark_streams_core::source::{SourceId, SourceState};
use tidemark_streams_core::time::Hour;
use tidemark_streams_core::values::{DimensionNames, Values};

/// As it was written before footers said which tenants a blob holds.
const GOLDEN_WITHOUT_SCOPE: &[u8] = include_bytes!("../../tests/golden/rollups-1.parquet");
/// As it was written before footers said which blobs are live.
const GOLDEN_WITHOUT_STATE: &[u8] = include_bytes!("../../tests/golden/rollups-1-scope.parquet");
const GOLDEN: &[u8] = include_bytes!("../../tests/golden/rollups-1-state.parquet");
/// With values of dimensions.
const GOLDEN_VALUES_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/rollups-2.parquet");
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
                    values: Values::NONE,
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
fn tenants_that_are_too_many_for_a_dictionary_are_found() {
    let mut rows = Rollups::new();
    // A dictionary takes 1 MiB.
    for tenant in 0..40_000 {
        let row = RollupRow {
            tenant: &format!("tenant-{tenant:040}"),
            values: Values::NONE,
            listing: "l",
            hour: Hour(480_000),
            event_type: "click",
            quarters: [tenant, 0, 0, 1],
        };
        rows.push(row).unwrap();
    }
    let bytes = Bytes::from(encode(&rows, &plain()).unwrap());
    assert_eq!(decode(bytes.clone(), Wanted::All).unwrap(), rows);
    for tenant in (0..40_000).step_by(3_333) {
        let found = decode(bytes.clone(), Wanted::Tenant(&format!("tenant-{tenant:040}"))).unwrap();
        assert_eq!(found.iter().map(|row| row.quarters[0]).collect::<Vec<_>>(), [tenant]);
    }
}

#[test]
fn tenant_whose_rows_are_apart_is_refused() {
    let mut rows = Rollups::new();
    for tenant in ["a", "b", "a"] {
        let row = rows_of_one(tenant);
        rows.push(row).unwrap();
    }
    let bytes = Bytes::from(encode(&rows, &plain()).unwrap());
    let refused = decode(bytes.clone(), Wanted::Tenant("a")).unwrap_err();
    assert_eq!(refused.to_string(), "its rows are damaged: the rows of a tenant are not consecutive");
    assert_eq!(decode(bytes.clone(), Wanted::Tenant("b")).unwrap().len(), 1);
    let (all, footer) = decode_with_footer(bytes.clone()).unwrap();
    assert!(!is_as_written(&bytes, &all, &footer).unwrap());
}

#[test]
fn row_groups_that_no_writer_writes_are_refused() {
    let mut rows = Rollups::new();
    rows.push(rows_of_one("a")).unwrap();
    let bytes = Arc::new(Bytes::from(encode(&rows, &plain()).unwrap()));
    let whole = read::metadata(&bytes).unwrap();
    let changed = |count: i64, codec: Compression| {
        let group = whole.row_group(0);
        let column = |chunk: &ColumnChunkMetaData| chunk.clone().into_builder().set_compression(codec).build().unwrap();
        let columns = group.columns().iter().map(column).collect();
        let group = group.clone().into_builder().set_num_rows(count).set_column_metadata(columns).build().unwrap();
        ParquetMetaData::new(whole.file_metadata().clone(), vec![group])
    };
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let most = GROUP_ROWS as i64;
    assert_eq!(read::rows_of(&changed(most, zstd), 0, "a").unwrap(), 0..GROUP_ROWS);
    for count in [most + 1, i64::MAX, -1] {
        let error = read::rows_of(&changed(count, zstd), 0, "a").unwrap_err().to_string();
        assert!(error.contains("a number of rows that no writer gives it"), "{count}: {error}");
    }
    assert!(pages::RowGroup::new(&bytes, &changed(1, zstd), 0).pages(TENANT).is_ok());
    let plain = changed(1, Compression::UNCOMPRESSED);
    let error = pages::RowGroup::new(&bytes, &plain, 0).pages(TENANT).err().unwrap().to_string();
    assert!(error.contains("not compressed with zstd"), "{error}");
}

fn rows_of_one(tenant: &str) -> RollupRow<'_> {
    let values = Values::NONE;
    RollupRow { tenant, values, listing: "l", hour: Hour(480_000), event_type: "click", quarters: [1, 0, 0, 0] }
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

fn put(rows: &Rollups, dimensions: DimensionNames) -> Put {
    Put {
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
        dimensions,
        content: Content::Rows(Arc::new(rows.clone())),
    }
}

fn country_and_surface() -> DimensionNames {
    let mut manifest = Manifest::new();
    let impression = || "impression".to_owned();
    let set = |set| Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 });
    manifest.apply(&set(TypesSet::List(vec![impression()])));
    for dimension in ["country", "surface"] {
        let dimension = dimension.to_owned();
        let change = TypeChange::AddDimension { name: impression(), dimension, values_max: 200 };
        manifest.apply(&set(TypesSet::Change(change)));
    }
    manifest.schema().dimensions().names
}

fn rows_with_values() -> Rollups {
    let plain = rows(3, 2, 2);
    let mut rows = Rollups::new();
    for (at, row) in plain.iter().enumerate() {
        let values = ["", "\u{1}NP", "\u{1}other\u{2}feed", "\u{2}search"][at % 4];
        rows.push(RollupRow { values: Values::parse(values).unwrap(), ..row }).unwrap();
    }
    rows.combine();
    rows
}

/// Today's reader reads the file with values, and today's writer writes it. Bless with `TIDEMARK_BLESS=1`.
#[test]
fn golden_file_with_values_is_read_and_written() {
    let rows = rows_with_values();
    let put = put(&rows, country_and_surface());
    let bytes = encode(&rows, &footer_of(&put, "0123456789abcdef")).unwrap();
    if std::env::var_os("TIDEMARK_BLESS").is_some() {
        std::fs::write(GOLDEN_VALUES_PATH, &bytes).unwrap();
        return;
    }
    let golden = Bytes::from(std::fs::read(GOLDEN_VALUES_PATH).unwrap());
    assert!(bytes == golden, "the writer's bytes have changed");
    let (found, footer) = decode_with_footer(golden.clone()).unwrap();
    assert_eq!(found, rows);
    assert_eq!(
        (footer.get(FORMAT_KEY), footer.get(DIMENSIONS_KEY)),
        (Some(FORMAT_WITH_VALUES), Some("country,surface"))
    );
    assert!(footer.said().is_ok() && is_as_written(&golden, &rows, &footer).unwrap());
    let tenant = decode(golden, Wanted::Tenant("tenant-0001")).unwrap();
    assert!(tenant.iter().eq(rows.iter().filter(|row| row.tenant == "tenant-0001")));
}

#[test]
fn values_without_a_column_are_not_written() {
    let rows = rows_with_values();
    let refused = |footer: &Footer| encode(&rows, footer).unwrap_err().to_string();
    assert_eq!(refused(&plain()), "its footer names the dimensions \"\"");
    for names in ["country", "country,country", "a,b,c,d,e", "tenant", ""] {
        let footer = plain().with(DIMENSIONS_KEY, names.to_owned());
        assert_eq!(refused(&footer), format!("its footer names the dimensions {names:?}"));
    }
}

/// Rows of a directory with dimensions, but without values, have the bytes of a directory without dimensions.
#[test]
fn rows_without_values_have_the_format_without_dimensions() {
    let rows = rows(3, 2, 2);
    let bytes = |dimensions| encode(&rows, &footer_of(&put(&rows, dimensions), "0123456789abcdef")).unwrap();
    assert!(bytes(country_and_surface()) == GOLDEN && bytes(DimensionNames::default()) == GOLDEN);
}

/// Today's reader reads the file of this version, and today's writer writes it. Bless with `TIDEMARK_BLESS=1`.
#[test]
fn golden_file_is_read_and_written() {
    let rows = rows(3, 2, 2);
    let put = put(&rows, DimensionNames::default());
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

/// The rows of a tenant from the part of a file that its index names.
fn of_part(bytes: &Bytes, tenant: &str) -> Result<Rollups, RowsError> {
    let index = Index::of(bytes)?;
    let Some(Range { start, end }) = index.range_of(tenant)? else { return Ok(Rollups::new()) };
    index.rows(&Part { start, bytes: bytes.slice(start as usize..end as usize) }, tenant)
}

#[test]
fn part_with_a_tenant_has_all_its_rows_of_many_groups() {
    let rows = rows(1_000, 10, 24);
    let bytes = Bytes::from(encode(&rows, &plain()).unwrap());
    let index = Index::of(&bytes).unwrap();
    // Tenant 546 is in two groups. Others are at borders of pages.
    for tenant in ["tenant-0000", "tenant-0034", "tenant-0545", "tenant-0546", "tenant-0547", "tenant-0999"] {
        let expected = decode(bytes.clone(), Wanted::Tenant(tenant)).unwrap();
        assert_eq!(expected.len(), 240);
        assert_eq!(of_part(&bytes, tenant).unwrap(), expected, "{tenant}");
        assert_eq!(index.rows_of_whole(&bytes, tenant).unwrap(), expected, "{tenant}");
    }
    let range = index.range_of("tenant-0100").unwrap().unwrap();
    assert!(range.end - range.start < bytes.len() as u64 * 2 / 3, "{range:?} of {}", bytes.len());
    assert_eq!(index.range_of("nobody").unwrap(), None);
    assert!(of_part(&bytes, "tenant-05455").unwrap().is_empty(), "its page is read, and has no row of it");
}

#[test]
fn flipped_bit_of_a_part_is_found_wherever_it_is() {
    let rows = rows(300, 4, 24);
    let bytes = encode(&rows, &plain()).unwrap();
    let index = Index::of(&bytes.clone().into()).unwrap();
    let Range { start, end } = index.range_of("tenant-0150").unwrap().unwrap();
    for at in (start..end).step_by(97) {
        let mut changed = bytes[start as usize..end as usize].to_vec();
        changed[(at - start) as usize] ^= 1 << (at % 8);
        let found = index.rows(&Part { start, bytes: changed.into() }, "tenant-0150");
        assert!(matches!(found, Err(RowsError::Changed { .. })), "byte {at}");
    }
    let short = Part { start, bytes: bytes[start as usize..end as usize - 1].to_vec().into() };
    assert!(matches!(index.rows(&short, "tenant-0150"), Err(RowsError::Changed { .. })));
    let beside = Part { start: start + 1, ..short };
    assert!(matches!(index.rows(&beside, "tenant-0150"), Err(RowsError::Changed { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_back_as_they_were_written(
        drawn in proptest::collection::vec(
            ("[a-zé€]{1,8}", "[ -~]{1,12}", 0..1_000_u32, prop_oneof!["click", "impression"], any::<[u16; 4]>()),
            0..60,
        ),
        values in proptest::collection::vec("(\u{1}[a-zé]{1,6})?(\u{2}[ab])?", 1..4),
        has_values in any::<bool>(),
    ) {
        let mut rows = Rollups::new();
        for (at, (tenant, listing, hour, event_type, quarters)) in drawn.iter().enumerate() {
            let quarters = quarters.map(u32::from);
            let values = if has_values { values[at % values.len()].as_str() } else { "" };
            let values = Values::parse(values).unwrap();
            let row = RollupRow { tenant, values, listing, hour: Hour(*hour), event_type, quarters };
            rows.push(row).unwrap();
        }
        rows.combine();
        let footer = footer_of(&put(&rows, country_and_surface()), "0123456789abcdef");
        let bytes = Bytes::from(encode(&rows, &footer).unwrap());
        prop_assert_eq!(decode(bytes, Wanted::All).unwrap(), rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Groups, pages and tenants of any size: each tenant has the same rows, from its part and from the whole file.
    #[test]
    fn parts_and_whole_files_have_equal_rows(
        tenants in proptest::collection::vec(1..30_000_usize, 1..8),
        seed in any::<u32>(),
        has_values in any::<bool>(),
    ) {
        let mut rows = Rollups::new();
        for (number, count) in tenants.iter().enumerate() {
            for at in 0..*count as u32 {
                let values = if has_values { ["\u{1}IN\u{2}feed", "\u{1}NP"][number % 2] } else { "" };
                let row = RollupRow {
                    tenant: &format!("t{number}"),
                    values: Values::parse(values).unwrap(),
                    listing: &format!("{:06}", at / 24),
                    hour: Hour(480_000 + at % 24),
                    event_type: if seed & 1 == 0 { "click" } else { "impression" },
                    quarters: [at ^ seed, at % 3, 0, seed % 9].map(|count| count % 1_000),
                };
                rows.push(row).unwrap();
            }
        }
        let footer = footer_of(&put(&rows, country_and_surface()), "0123456789abcdef");
        let bytes = Bytes::from(encode(&rows, &footer).unwrap());
        for tenant in (0..tenants.len()).map(|number| format!("t{number}")).chain(["s".to_owned(), "t00".to_owned()]) {
            let expected: Vec<RollupRow<'_>> = rows.iter().filter(|row| row.tenant == tenant).collect();
            let whole = decode(bytes.clone(), Wanted::Tenant(&tenant)).unwrap();
            prop_assert!(whole.iter().eq(expected.iter().copied()));
            prop_assert_eq!(of_part(&bytes, &tenant).unwrap(), whole);
        }
    }
}
