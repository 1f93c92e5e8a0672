//! The rows of a tenant in a range, as messages to a child of SQL. The request decides tenant and range, never the text of a query. Each
//! row is checked again before it is sent, so that no row of another tenant is among them.

use crate::fetch::{Fetched, SharedError};
use crate::messages::Pinned;
use bytes::Bytes;
use std::collections::BTreeMap;
use tidemark_streams_core::limits::{DIMENSIONS_MAX, EVENT_TYPE_BYTES_MAX, LISTING_BYTES_MAX, VALUE_BYTES_MAX};
use tidemark_streams_core::query::range::QuarterRange;
use tidemark_streams_core::rollup::{Kept, RollupRow, Rollups, RowError};
use tidemark_streams_core::schema::Renaming;
use tidemark_streams_core::time::DAY_S;
use tidemark_streams_core::values::DimensionNumber;
use tidemark_streams_sql::frames::{ListingRun, ReadColumns, ReadCounts, Rows, ValueColumn};
use tidemark_streams_sql::limits::{FRAME_BYTES_MAX, FRAME_ROWS_MAX};
use tidemark_streams_sql::pool::SqlError;

/// Bytes of a number or of the length of a text in a message, at most.
const NUMBER_BYTES_MAX: usize = 5;
/// Bytes of a text in a message beside the text itself, at most.
const TEXT_BYTES: usize = NUMBER_BYTES_MAX;
/// Bytes of a row in a message, at most: each text is new, and each number is as long as it can be.
const ROW_BYTES_MAX: usize = TEXT_BYTES + LISTING_BYTES_MAX + NUMBER_BYTES_MAX // the listing, and its number of rows
    + TEXT_BYTES + EVENT_TYPE_BYTES_MAX + 1 // the type, and its index
    + NUMBER_BYTES_MAX + 4 * NUMBER_BYTES_MAX // the hour and its quarters
    + DIMENSIONS_MAX * (TEXT_BYTES + VALUE_BYTES_MAX + 1 + NUMBER_BYTES_MAX); // the values, and an index that may be missing
/// Bytes of a message beside its rows, at most: its kind, and the lengths of its columns.
const COLUMNS_BYTES_MAX: usize = (1 + 7 + 2 * DIMENSIONS_MAX) * NUMBER_BYTES_MAX;

const _: () = assert!(DIMENSIONS_MAX == tidemark_streams_sql::limits::DIMENSIONS_MAX);
const _: () =
    assert!(COLUMNS_BYTES_MAX + FRAME_ROWS_MAX * ROW_BYTES_MAX <= FRAME_BYTES_MAX, "the largest rows fit a message");

/// The tenant and the range of time whose rows are read.
#[derive(Clone, Debug)]
pub struct TenantRange {
    pub tenant: String,
    pub range: QuarterRange,
    /// Rows that a query may read.
    pub rows_max: u64,
    /// The number of dimensions with a column.
    pub dimensions: usize,
}

/// Why rows are not read.
#[derive(Debug, thiserror::Error)]
pub enum SqlRowsError {
    #[error(transparent)]
    Directory(#[from] SharedError),
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("the range is not kept: counts are kept from {kept_from} s since 1970 on")]
    NotKept { kept_from: u64 },
    /// The query is over a limit.
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error("a row of another tenant was read: nothing is answered; report this with the server's log")]
    Foreign,
}

/// Refuses a range that ends before the kept days.
///
/// # Errors
/// [`SqlRowsError::NotKept`].
pub fn check_kept(asked: &TenantRange, pinned: &Pinned) -> Result<(), SqlRowsError> {
    match pinned.view.is_behind(asked.range.hours()) {
        true => Err(SqlRowsError::NotKept { kept_from: u64::from(pinned.view.kept_from.0) * DAY_S }),
        false => Ok(()),
    }
}

/// Gathers the rows of pinned and fetched blobs, and unwritten rows. Rows of one listing, hour and type are combined. `charge` gets the number
/// of rows after each blob, and may stop the reading.
///
/// # Errors
/// [`SqlRowsError`].
pub fn gather(
    asked: &TenantRange,
    pinned: &Pinned,
    fetched: &Fetched,
    mut charge: impl FnMut(u64) -> Result<(), SqlError>,
) -> Result<Rollups, SqlRowsError> {
    let mut gathered = Rollups::new();
    charge(0)?;
    for (at, meta) in pinned.blobs.iter().enumerate() {
        let renaming = pinned.view.renaming(&meta.key);
        let rows = fetched.rows(at)?;
        charge(rows.len() as u64)?;
        add(&mut gathered, asked, pinned, Unread { rows: &rows, renaming: &renaming })?;
    }
    for rows in &pinned.unwritten {
        charge(rows.len() as u64)?;
        add(&mut gathered, asked, pinned, Unread { rows, renaming: &Renaming::default() })?;
    }
    gathered.combine();
    below_limit(&gathered, asked)?;
    Ok(gathered)
}

/// Rows, and the present names of their types.
struct Unread<'r> {
    rows: &'r Rollups,
    renaming: &'r Renaming,
}

fn add(to: &mut Rollups, asked: &TenantRange, pinned: &Pinned, from: Unread<'_>) -> Result<(), SqlRowsError> {
    to.append(from.rows, asked.range.hours(), |row| {
        let row = from.renaming.row(&row)?;
        let is_shown = row.tenant == asked.tenant && pinned.view.shows(&row);
        let quarters = within(&row, asked.range);
        let is_counted = is_shown && quarters != [0; 4];
        is_counted.then_some(Kept { event_type: row.event_type, quarters })
    })?;
    // Combining may bring the number of rows below the limit. It runs only at twice the limit, so it costs little.
    if to.len() as u64 > asked.rows_max.saturating_mul(2) {
        to.combine();
        below_limit(to, asked)?;
    }
    Ok(())
}

fn below_limit(rows: &Rollups, asked: &TenantRange) -> Result<(), SqlRowsError> {
    let max = asked.rows_max;
    if rows.len() as u64 > max { Err(SqlError::ScanRows { max }.into()) } else { Ok(()) }
}

/// The counts of a row, of which those outside a range are 0.
fn within(row: &RollupRow<'_>, range: QuarterRange) -> [u32; 4] {
    let mut quarters = row.quarters;
    for (at, count) in quarters.iter_mut().enumerate() {
        if !range.contains(row.hour.quarter(at)) {
            *count = 0;
        }
    }
    quarters
}

/// Messages with all rows, in their order, and the columns that the query reads. Rows without columns are one message.
///
/// # Errors
/// A row belongs to another tenant.
pub fn frames<'r>(
    rows: &'r Rollups,
    asked: &'r TenantRange,
    columns: &'r ReadColumns,
) -> impl Iterator<Item = Result<Rows, SqlRowsError>> + use<'r> {
    let rows_max = if *columns == ReadColumns::default() { u32::MAX as usize } else { FRAME_ROWS_MAX };
    (0..rows.len()).step_by(rows_max).map(move |from| {
        let to = rows.len().min(from + rows_max);
        Frame::new(asked, columns, to - from).of((from..to).map(|at| rows.get(at)))
    })
}

/// A message that is being made.
struct Frame<'r> {
    tenant: &'r str,
    columns: &'r ReadColumns,
    rows: Rows,
    type_of: Vec<u8>,
    values: Vec<Values>,
}

impl<'r> Frame<'r> {
    fn new(asked: &'r TenantRange, columns: &'r ReadColumns, rows: usize) -> Frame<'r> {
        let dimensions = DimensionNumber::ALL.into_iter().zip(columns.values).take(asked.dimensions);
        let values = dimensions.map(|(dimension, is_read)| Values::new(dimension, is_read)).collect();
        let room = |is_read: bool| if is_read { rows } else { 0 };
        let made = Rows {
            hours: Vec::with_capacity(room(columns.hour)),
            quarters: Vec::with_capacity(room(columns.counts == ReadCounts::Quarters)),
            sums: Vec::with_capacity(room(columns.counts == ReadCounts::Sums)),
            ..Rows::default()
        };
        let type_of = Vec::with_capacity(room(columns.event_type));
        Frame { tenant: &asked.tenant, columns, rows: made, type_of, values }
    }

    fn of<'a>(mut self, rows: impl Iterator<Item = RollupRow<'a>>) -> Result<Rows, SqlRowsError> {
        for row in rows {
            if row.tenant != self.tenant {
                return Err(SqlRowsError::Foreign);
            }
            self.push(&row);
        }
        let Frame { mut rows, type_of, values, .. } = self;
        rows.type_of = Bytes::from(type_of);
        rows.values = values.into_iter().map(|values| values.column).collect();
        Ok(rows)
    }

    fn push(&mut self, row: &RollupRow<'_>) {
        let ReadColumns { listing, event_type, hour, counts, values: _ } = *self.columns;
        let rows = &mut self.rows;
        let listing = if listing { row.listing } else { "" };
        match rows.listings.last_mut().filter(|run| run.listing == listing) {
            Some(run) => run.rows += 1,
            None => rows.listings.push(ListingRun { listing: listing.to_owned(), rows: 1 }),
        }
        if event_type {
            let known = rows.types.iter().position(|name| name == row.event_type);
            // There are 64 types at most.
            self.type_of.push(known.unwrap_or(rows.types.len()) as u8);
            if known.is_none() {
                rows.types.push(row.event_type.to_owned());
            }
        }
        if hour {
            rows.hours.push(row.hour.0);
        }
        match counts {
            ReadCounts::None => {}
            ReadCounts::Sums => rows.sums.push(row.count()),
            ReadCounts::Quarters => rows.quarters.push(row.quarters),
        }
        self.values.iter_mut().filter(|values| values.is_read).for_each(|values| values.push(row));
    }
}

/// The values of a dimension in a message, each text once.
struct Values {
    dimension: DimensionNumber,
    is_read: bool,
    column: ValueColumn,
    known: BTreeMap<String, u32>,
}

impl Values {
    fn new(dimension: DimensionNumber, is_read: bool) -> Values {
        Values { dimension, is_read, column: ValueColumn::default(), known: BTreeMap::new() }
    }

    fn push(&mut self, row: &RollupRow<'_>) {
        let value = row.values.get(self.dimension).map(|value| match self.known.get(value) {
            Some(known) => *known,
            None => {
                let number = self.column.texts.len() as u32;
                self.column.texts.push(value.to_owned());
                self.known.insert(value.to_owned(), number);
                number
            }
        });
        self.column.value_of.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Fetcher;
    use crate::messages::AsOf;
    use std::sync::Arc;
    use tidemark_streams_core::query::View;
    use tidemark_streams_core::time::Hour;
    use tidemark_streams_sql::frames::{HEAD_BYTES, Request, encode};
    use tidemark_streams_store::directory::{Directory, IfMissing};
    use tidemark_streams_store::folder::StoreLayer;

    const NO_VALUES: tidemark_streams_core::values::Values<'static> = tidemark_streams_core::values::Values::NONE;
    const ROW: RollupRow<'static> = RollupRow {
        tenant: "a",
        values: NO_VALUES,
        listing: "l",
        hour: Hour(10),
        event_type: "click",
        quarters: [1, 2, 3, 4],
    };

    const ALL: ReadColumns = ReadColumns {
        listing: true,
        event_type: true,
        hour: true,
        counts: ReadCounts::Quarters,
        values: [true; DIMENSIONS_MAX],
    };

    fn asked(rows_max: u64, dimensions: usize) -> TenantRange {
        TenantRange { tenant: "a".to_owned(), range: QuarterRange { from: 0, to: 4_000 }, rows_max, dimensions }
    }

    #[test]
    fn frames_have_the_columns_that_are_read_only() {
        let mut rows = Rollups::new();
        for at in 0..3 {
            let listing = format!("l{at}");
            let values = tidemark_streams_core::values::Values::parse("\u{1}IN\u{2}feed").unwrap();
            rows.push(RollupRow { values, listing: &listing, hour: Hour(at), ..ROW }).unwrap();
        }
        let asked = asked(10, 2);
        let all = ReadColumns { values: [true, true, false, false], ..ALL };
        let whole = frames(&rows, &asked, &all).next().unwrap().unwrap();
        assert!(whole.has(&all));
        let none = ReadColumns::default();
        let columns = [
            none,
            ReadColumns { listing: true, ..none },
            ReadColumns { event_type: true, hour: true, ..none },
            ReadColumns { counts: ReadCounts::Sums, ..none },
            ReadColumns { values: [false, true, false, false], ..none },
        ];
        for columns in columns {
            let found = frames(&rows, &asked, &columns).next().unwrap().unwrap();
            assert_eq!(found, whole.only(&columns));
            assert!(found.check().is_ok() && found.len() == 3 && found.has(&columns) && !found.has(&all));
        }
    }

    #[test]
    fn rows_without_columns_are_one_message() {
        let mut rows = Rollups::new();
        for at in 0..FRAME_ROWS_MAX as u32 + 1 {
            rows.push(RollupRow { hour: Hour(at), ..ROW }).unwrap();
        }
        let found: Vec<Rows> = frames(&rows, &asked(9, 0), &ReadColumns::default()).map(Result::unwrap).collect();
        assert_eq!(found, [Rows::counted(rows.len() as u32)]);
        rows.push(RollupRow { tenant: "b", ..ROW }).unwrap();
        assert!(matches!(
            frames(&rows, &asked(9, 0), &ReadColumns::default()).next(),
            Some(Err(SqlRowsError::Foreign))
        ));
    }

    #[test]
    fn frames_have_each_row_of_the_tenant_once() {
        let mut rows = Rollups::new();
        for at in 0..FRAME_ROWS_MAX as u32 + 1 {
            rows.push(RollupRow { hour: Hour(at), event_type: if at % 2 == 0 { "click" } else { "buy" }, ..ROW })
                .unwrap();
        }
        let found: Vec<Rows> = frames(&rows, &asked(9, 0), &ALL).map(Result::unwrap).collect();
        assert_eq!(found.iter().map(Rows::len).collect::<Vec<_>>(), [FRAME_ROWS_MAX, 1]);
        assert_eq!(found[0].types, ["click", "buy"]);
        assert_eq!(found[1].listings, [ListingRun { listing: "l".to_owned(), rows: 1 }]);
        assert!(found.iter().all(|rows| rows.check().is_ok()));
    }

    #[test]
    fn frames_have_the_value_of_each_row() {
        let mut rows = Rollups::new();
        for values in ["", "\u{1}IN", "\u{1}NP\u{2}feed", "\u{1}IN"] {
            rows.push(RollupRow { values: tidemark_streams_core::values::Values::parse(values).unwrap(), ..ROW })
                .unwrap();
        }
        let found: Vec<Rows> = frames(&rows, &asked(9, 2), &ALL).map(Result::unwrap).collect();
        let [country, surface] = found[0].values.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (&country.texts[..], &surface.texts[..]),
            (&["IN".to_owned(), "NP".to_owned()][..], &["feed".to_owned()][..])
        );
        assert_eq!(country.value_of, [None, Some(0), Some(1), Some(0)]);
        assert_eq!(surface.value_of, [None, None, Some(0), None]);
        assert!(found[0].check().is_ok());
    }

    #[test]
    fn frame_of_the_longest_rows_fits_a_message() {
        let mut rows = Rollups::new();
        for at in 0..FRAME_ROWS_MAX as u32 + 1 {
            let value = |sign: &str| format!("{sign}{at:060}");
            let values: String = ["\u{1}", "\u{2}", "\u{3}", "\u{4}"].map(value).concat();
            let values = tidemark_streams_core::values::Values::parse(&values).unwrap();
            let listing = format!("{at:0255}");
            let event_type = &format!("t{:031}", at % 64);
            let hour = Hour((1 << 22) - 1);
            rows.push(RollupRow { values, listing: &listing, event_type, hour, quarters: [i32::MAX as u32; 4], ..ROW })
                .unwrap();
        }
        for frame in frames(&rows, &asked(9, 4), &ALL) {
            let frame = frame.unwrap();
            let most = COLUMNS_BYTES_MAX + frame.len() * ROW_BYTES_MAX;
            let bytes = encode(&Request::Rows(frame)).unwrap().len() - HEAD_BYTES;
            assert!(bytes <= most, "{bytes} bytes, {most} expected");
        }
    }

    #[test]
    fn row_of_another_tenant_is_an_error() {
        let mut rows = Rollups::new();
        rows.push(ROW).unwrap();
        rows.push(RollupRow { tenant: "b", ..ROW }).unwrap();
        assert!(matches!(frames(&rows, &asked(9, 0), &ALL).next(), Some(Err(SqlRowsError::Foreign))));
    }

    fn pinned(unwritten: Vec<Rollups>) -> Pinned {
        Pinned {
            as_of: AsOf { index: 0, session: None, has_held_rows: true, feed_age_ms: None },
            blobs: Vec::new(),
            view: View::default(),
            unwritten,
            pinned_at_ms: 0,
            complete_to_ms: 0,
            last_updated_at_ms: 0,
            incomplete: Vec::new(),
            paused_at_ms: None,
            lateness_s: 0,
            late_total: None,
        }
    }

    /// Reads rows of two owners: each has the listings `l0`, `l1` and so on.
    fn gathered(
        rows_max: u64,
        listings: [usize; 2],
        charge: impl FnMut(u64) -> Result<(), SqlError>,
    ) -> Result<usize, SqlRowsError> {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open_through(folder.path(), IfMissing::Create, StoreLayer::default()).unwrap();
        let fetcher = Arc::new(Fetcher::new(directory.reader().unwrap(), Arc::default()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let fetched = runtime.block_on(fetcher.fetch("a", &[])).unwrap();
        let of_owner = |count: usize| {
            let mut rows = Rollups::new();
            for listing in (0..count).map(|at| format!("l{at}")) {
                rows.push(RollupRow { listing: &listing, ..ROW }).unwrap();
            }
            rows
        };
        gather(&asked(rows_max, 0), &pinned(listings.map(of_owner).to_vec()), &fetched, charge).map(|rows| rows.len())
    }

    #[test]
    fn reading_stops_when_its_time_is_over() {
        let mut charged = Vec::new();
        let charge = |rows| {
            charged.push(rows);
            if charged.len() > 1 { Err(SqlError::Time { ms: 1 }) } else { Ok(()) }
        };
        let stopped = gathered(100, [3, 4], charge);
        assert!(matches!(stopped, Err(SqlRowsError::Sql(SqlError::Time { .. }))));
        assert_eq!(charged, [0, 3], "the second owner's rows are not read");
    }

    #[test]
    fn rows_are_counted_once_they_are_combined() {
        let charge = |_| Ok(());
        assert_eq!(gathered(40, [40, 40], charge).unwrap(), 40);
        assert_eq!(gathered(25, [25, 20], charge).unwrap(), 25);
        for listings in [[41, 0], [20, 41], [200, 200]] {
            let refused = gathered(40, listings, charge);
            assert!(matches!(refused, Err(SqlRowsError::Sql(SqlError::ScanRows { max: 40 }))), "{listings:?}");
        }
    }

    #[test]
    fn counts_outside_the_range_are_left_out() {
        let range = QuarterRange { from: 41, to: 43 };
        assert_eq!(within(&ROW, range), [0, 2, 3, 0]);
        assert_eq!(within(&RollupRow { hour: Hour(11), ..ROW }, range), [0; 4]);
    }
}
