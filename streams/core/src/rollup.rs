//! Rollup rows: how often a listing's events of one type happened in each quarter of one hour.
//!
//! [`Rollups`] holds many rows in little memory: 32 bytes a row and its texts, which equal neighbours share. Blobs are written from
//! such rows and read into them. The values of a row's dimensions stand behind the name of its tenant.

mod order;

use crate::event::{EventError, check_listing, check_tenant, is_event_type_name};
use crate::limits::{EVENT_TYPES_MAX, QUARTER_COUNT_MAX, ROWS_TEXT_BYTES_MAX};
use crate::time::{Hour, HourRange};
use crate::values::{NoValues, Values};

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RollupRow<'a> {
    pub tenant: &'a str,
    pub values: Values<'a>,
    pub listing: &'a str,
    pub hour: Hour,
    pub event_type: &'a str,
    pub quarters: [u32; 4],
}

/// The identity of a row's count. Sets of rows are sorted by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RollupKey<'a> {
    pub tenant: &'a str,
    pub values: Values<'a>,
    pub listing: &'a str,
    pub hour: Hour,
    pub event_type: &'a str,
}

/// Many rows.
#[derive(Clone, Debug, Default)]
pub struct Rollups {
    text: String,
    types: Vec<String>,
    rows: Vec<PackedRow>,
}

#[derive(Clone, Copy, Debug)]
struct PackedRow {
    tenant: u32,
    listing: u32,
    hour: Hour,
    quarters: [u32; 4],
    tenant_bytes: u8,
    listing_bytes: u8,
    event_type: u8,
    /// Of the values, which stand behind the tenant.
    values_bytes: u8,
}

const _: () = assert!(size_of::<PackedRow>() == 32);

/// The texts of a row but its type. Neighbours often have them in common.
#[derive(Clone, Copy)]
struct RowTexts<'a> {
    tenant: &'a str,
    values: Values<'a>,
    listing: &'a str,
}

/// What is kept of a row that is added to others. Its texts and its hour stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    pub event_type: &'a str,
    pub quarters: [u32; 4],
}

/// Where the texts of a new row are already.
#[derive(Clone, Copy, Debug, Default)]
struct SharedTexts {
    /// With the values behind it.
    tenant: Option<u32>,
    listing: Option<u32>,
}

/// Why a row is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error(transparent)]
    Id(#[from] EventError),
    #[error(transparent)]
    Values(#[from] NoValues),
    #[error("event type {0:?} is no name of an event type")]
    TypeName(String),
    #[error("more than {EVENT_TYPES_MAX} event types")]
    TooManyTypes,
    #[error("hour {0} since 1970 is behind the last that a row may have")]
    Hour(u32),
    #[error("a quarter of an hour counts {0}: at most {QUARTER_COUNT_MAX}")]
    Quarter(u32),
    #[error("texts of more than {ROWS_TEXT_BYTES_MAX} bytes")]
    TooMuchText,
}

impl<'a> RollupRow<'a> {
    pub fn key(&self) -> RollupKey<'a> {
        let RollupRow { tenant, values, listing, hour, event_type, quarters: _ } = *self;
        RollupKey { tenant, values, listing, hour, event_type }
    }

    /// The sum of its quarters.
    #[inline]
    pub fn count(&self) -> u64 {
        self.quarters.iter().map(|&count| u64::from(count)).sum()
    }
}

impl<'a> RowTexts<'a> {
    fn of(row: &RollupRow<'a>) -> RowTexts<'a> {
        RowTexts { tenant: row.tenant, values: row.values, listing: row.listing }
    }
}

impl PackedRow {
    fn tenant_and_values_bytes(&self) -> usize {
        usize::from(self.tenant_bytes) + usize::from(self.values_bytes)
    }

    /// Whether a row of the same rows shares all texts but the type.
    fn has_texts_of(&self, other: &PackedRow) -> bool {
        (self.tenant, self.tenant_bytes, self.values_bytes) == (other.tenant, other.tenant_bytes, other.values_bytes)
            && (self.listing, self.listing_bytes) == (other.listing, other.listing_bytes)
    }

    /// Whether a row has the same key. Both share equal texts, as neighbours of sorted texts do.
    fn has_key_of(&self, other: &PackedRow) -> bool {
        let PackedRow { tenant, listing, hour, quarters: _, tenant_bytes, listing_bytes, event_type, values_bytes } =
            *self;
        (tenant, tenant_bytes, values_bytes) == (other.tenant, other.tenant_bytes, other.values_bytes)
            && (listing, listing_bytes) == (other.listing, other.listing_bytes)
            && (hour, event_type) == (other.hour, other.event_type)
    }
}

impl Rollups {
    pub fn new() -> Rollups {
        Rollups::default()
    }

    /// No rows, with room for a number of rows.
    pub(crate) fn with_room(rows: usize) -> Rollups {
        Rollups { rows: Vec::with_capacity(rows), ..Rollups::default() }
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// # Panics
    /// There are fewer rows.
    #[inline]
    pub fn get(&self, at: usize) -> RollupRow<'_> {
        self.unpacked(&self.rows[at])
    }

    pub fn iter(&self) -> impl Iterator<Item = RollupRow<'_>> {
        self.rows.iter().map(|row| self.unpacked(row))
    }

    /// The rows of some hours.
    pub fn iter_within(&self, hours: HourRange) -> impl Iterator<Item = RollupRow<'_>> {
        self.rows.iter().filter(move |row| hours.contains(row.hour)).map(|row| self.unpacked(row))
    }

    /// The names of the event types of its rows. Some may have no rows any more.
    pub fn types(&self) -> &[String] {
        &self.types
    }

    /// Memory that is allocated for rows and their texts.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.rows.capacity() * size_of::<PackedRow>()
    }

    /// Whether a row has a value of a dimension.
    pub fn has_values(&self) -> bool {
        self.rows.iter().any(|row| row.values_bytes > 0)
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.rows.iter().flat_map(|row| row.quarters).map(u64::from).sum()
    }

    /// The first and the last hour; `None` without rows.
    pub fn hours(&self) -> Option<HourRange> {
        let mut hours = self.rows.iter().map(|row| row.hour);
        let mut range = HourRange::of(hours.next()?);
        hours.for_each(|hour| range.include(hour));
        Some(range)
    }

    /// Adds a row behind the others.
    ///
    /// # Errors
    /// A value of it is outside its limit.
    pub fn push(&mut self, row: RollupRow<'_>) -> Result<(), RowError> {
        let shared = self.checked(RowTexts::of(&row))?;
        check_numbers(row.hour, row.quarters)?;
        self.push_shared(row, shared)
    }

    /// Checks texts. Those that the row before has were checked with it.
    fn checked(&self, texts: RowTexts<'_>) -> Result<SharedTexts, RowError> {
        let shared = self.shared(texts);
        if shared.tenant.is_none() {
            check_tenant(texts.tenant)?;
            Values::parse(texts.values.as_str())?;
        }
        if shared.listing.is_none() {
            check_listing(texts.listing)?;
        }
        Ok(shared)
    }

    /// Adds a row whose values are within their limits: they come from other rows, or from checked events.
    ///
    /// # Errors
    /// There are too many rows of all together.
    pub(crate) fn push_checked(&mut self, row: RollupRow<'_>) -> Result<(), RowError> {
        let shared = self.shared(RowTexts::of(&row));
        self.push_shared(row, shared)
    }

    /// The texts that the last row has too.
    fn shared(&self, texts: RowTexts<'_>) -> SharedTexts {
        let Some(last) = self.rows.last() else { return SharedTexts::default() };
        let has_tenant = self.text_at(last.tenant, last.tenant_bytes) == texts.tenant
            && self.values_of(last).as_str() == texts.values.as_str();
        let has_listing = self.text_at(last.listing, last.listing_bytes) == texts.listing;
        SharedTexts { tenant: has_tenant.then_some(last.tenant), listing: has_listing.then_some(last.listing) }
    }

    fn push_shared(&mut self, row: RollupRow<'_>, shared: SharedTexts) -> Result<(), RowError> {
        let event_type = self.type_index(row.event_type)?;
        let placed = self.placed(RowTexts::of(&row), shared)?;
        self.rows.push(PackedRow { hour: row.hour, quarters: row.quarters, event_type, ..placed });
        Ok(())
    }

    /// A row with these texts, and without numbers.
    fn placed(&mut self, texts: RowTexts<'_>, shared: SharedTexts) -> Result<PackedRow, RowError> {
        let RowTexts { tenant, values, listing } = texts;
        let values = values.as_str();
        if self.text.len() + tenant.len() + values.len() + listing.len() > ROWS_TEXT_BYTES_MAX {
            return Err(RowError::TooMuchText);
        }
        let tenant_at = match shared.tenant {
            Some(at) => at,
            None => {
                let at = self.push_text(tenant);
                self.text.push_str(values);
                at
            }
        };
        Ok(PackedRow {
            tenant: tenant_at,
            listing: shared.listing.unwrap_or_else(|| self.push_text(listing)),
            hour: Hour(0),
            quarters: [0; 4],
            tenant_bytes: tenant.len() as u8,
            listing_bytes: listing.len() as u8,
            event_type: 0,
            values_bytes: values.len() as u8,
        })
    }

    /// Sorts the rows by their keys and adds those of equal keys together. A sum beyond [`QUARTER_COUNT_MAX`] takes more than one
    /// row. The texts get the order of the rows, so that all that reads the rows afterwards reads memory from its begin to its end.
    pub fn combine(&mut self) {
        if self.is_combined() {
            return;
        }
        let order = order::sorted(self);
        let mut texts = SortedTexts::of(self);
        let sorted: Vec<PackedRow> = order.iter().map(|at| texts.placed(&self.rows[*at as usize])).collect();
        let moved = texts.moved;
        // The memory of both is free before sums take more.
        drop(order);
        self.rows = Vec::new();
        let is_distinct = sorted.windows(2).all(|pair| !pair[0].has_key_of(&pair[1]));
        let counts = |row: &PackedRow| row.quarters != [0; 4];
        // The rows of a merge mostly have different keys.
        self.rows = if is_distinct && sorted.iter().all(counts) { sorted } else { summed(&sorted) };
        if let Some(moved) = moved {
            self.text = moved;
        }
    }

    /// Whether all rows count, have different keys, and are in the order of these.
    fn is_combined(&self) -> bool {
        let ranks = order::ranks(&self.types);
        let number = |row: &PackedRow| (row.hour, ranks[usize::from(row.event_type)]);
        let follows = |pair: &[PackedRow]| match pair {
            [a, b] if a.has_texts_of(b) => number(a) < number(b),
            [a, b] => self.unpacked(a).key() < self.unpacked(b).key(),
            _ => true,
        };
        self.rows.iter().all(|row| row.quarters != [0; 4]) && self.rows.windows(2).all(follows)
    }

    /// Adds rows of some hours of others. `kept` says what is kept of each row.
    ///
    /// # Errors
    /// There are too many rows of all together.
    pub fn append<'a>(
        &mut self,
        from: &'a Rollups,
        hours: HourRange,
        mut kept: impl FnMut(RollupRow<'a>) -> Option<Kept<'a>>,
    ) -> Result<(), RowError> {
        let mut before: Option<(PackedRow, PackedRow)> = None;
        for row in from.rows.iter().filter(|row| hours.contains(row.hour)) {
            let whole = from.unpacked(row);
            let Some(Kept { event_type, quarters }) = kept(whole) else { continue };
            let placed = match before {
                Some((last, placed)) if last.has_texts_of(row) => placed,
                Some(_) | None => {
                    let texts = RowTexts::of(&whole);
                    let shared = self.shared(texts);
                    self.placed(texts, shared)?
                }
            };
            before = Some((*row, placed));
            let event_type = self.type_index(event_type)?;
            self.rows.push(PackedRow { hour: row.hour, quarters, event_type, ..placed });
        }
        Ok(())
    }

    #[inline]
    fn unpacked(&self, row: &PackedRow) -> RollupRow<'_> {
        RollupRow {
            tenant: self.text_at(row.tenant, row.tenant_bytes),
            values: self.values_of(row),
            listing: self.text_at(row.listing, row.listing_bytes),
            hour: row.hour,
            event_type: &self.types[usize::from(row.event_type)],
            quarters: row.quarters,
        }
    }

    #[inline]
    fn text_at(&self, start: u32, bytes: u8) -> &str {
        &self.text[start as usize..start as usize + usize::from(bytes)]
    }

    fn values_of(&self, row: &PackedRow) -> Values<'_> {
        Values::trusted(self.text_at(row.tenant + u32::from(row.tenant_bytes), row.values_bytes))
    }

    fn push_text(&mut self, text: &str) -> u32 {
        let start = self.text.len() as u32;
        self.text.push_str(text);
        start
    }

    fn type_index(&mut self, name: &str) -> Result<u8, RowError> {
        if let Some(at) = self.types.iter().position(|known| known == name) {
            return Ok(at as u8);
        }
        if !is_event_type_name(name) {
            return Err(RowError::TypeName(name.chars().take(EVENT_TYPES_MAX).collect()));
        }
        if self.types.len() == EVENT_TYPES_MAX {
            return Err(RowError::TooManyTypes);
        }
        self.types.push(name.to_owned());
        Ok(self.types.len() as u8 - 1)
    }
}

fn check_numbers(hour: Hour, quarters: [u32; 4]) -> Result<(), RowError> {
    if hour > Hour::MAX {
        return Err(RowError::Hour(hour.0));
    }
    match quarters.into_iter().find(|&count| count > QUARTER_COUNT_MAX) {
        Some(count) => Err(RowError::Quarter(count)),
        None => Ok(()),
    }
}

/// Sorted rows, of which those of equal keys are added together.
fn summed(sorted: &[PackedRow]) -> Vec<PackedRow> {
    let mut summed: Vec<PackedRow> = Vec::with_capacity(sorted.len());
    for group in sorted.chunk_by(PackedRow::has_key_of) {
        let first = &group[0];
        if group.len() == 1 && first.quarters != [0; 4] {
            summed.push(*first);
            continue;
        }
        let mut sums = [0_u64; 4];
        for row in group {
            sums.iter_mut().zip(row.quarters).for_each(|(sum, count)| *sum += u64::from(count));
        }
        while sums.iter().any(|&sum| sum > 0) {
            let quarters = sums.map(|sum| sum.min(QUARTER_COUNT_MAX.into()) as u32);
            sums.iter_mut().zip(quarters).for_each(|(sum, count)| *sum -= u64::from(count));
            summed.push(PackedRow { quarters, ..*first });
        }
    }
    // Quarters of an hour are rows of a fold, so fewer may be left.
    if summed.len() * 2 < summed.capacity() {
        summed.shrink_to_fit();
    }
    summed
}

/// Moves the texts of rows into the order of the rows. Equal neighbours share a text.
struct SortedTexts<'a> {
    from: &'a Rollups,
    /// `None`: the texts stay, because in the order of the rows they might be too long.
    moved: Option<String>,
    /// The texts of the last row, and their places. Values stand behind their tenant, and move with it.
    tenant: &'a str,
    tenant_at: u32,
    listing: &'a str,
    listing_at: u32,
}

impl<'a> SortedTexts<'a> {
    fn of(from: &'a Rollups) -> SortedTexts<'a> {
        let bytes_of = |row: &PackedRow| row.tenant_and_values_bytes() + usize::from(row.listing_bytes);
        let most: usize = from.rows.iter().map(bytes_of).sum();
        let moved = (most <= ROWS_TEXT_BYTES_MAX).then(|| String::with_capacity(most.min(from.text.len())));
        SortedTexts { from, moved, tenant: "", tenant_at: 0, listing: "", listing_at: 0 }
    }

    /// A row, with its texts behind those of the row before.
    fn placed(&mut self, row: &PackedRow) -> PackedRow {
        let tenant = &self.from.text[row.tenant as usize..][..row.tenant_and_values_bytes()];
        if self.tenant != tenant {
            self.tenant = tenant;
            self.tenant_at = self.place(tenant, row.tenant);
        }
        let listing = self.from.text_at(row.listing, row.listing_bytes);
        if self.listing != listing {
            self.listing = listing;
            self.listing_at = self.place(listing, row.listing);
        }
        PackedRow { tenant: self.tenant_at, listing: self.listing_at, ..*row }
    }

    fn place(&mut self, text: &str, before: u32) -> u32 {
        let Some(moved) = &mut self.moved else { return before };
        let place = moved.len() as u32;
        moved.push_str(text);
        place
    }
}

impl PartialEq for Rollups {
    fn eq(&self, other: &Rollups) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Rollups {}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: RollupRow<'static> = RollupRow {
        tenant: "b",
        values: Values::NONE,
        listing: "l1",
        hour: Hour(7),
        event_type: "click",
        quarters: [0, 2, 0, 1],
    };

    #[test]
    fn combined_rows_are_sorted_and_summed() {
        let mut rows = Rollups::new();
        rows.push(ROW).unwrap();
        rows.push(RollupRow { tenant: "a", ..ROW }).unwrap();
        rows.push(RollupRow { quarters: [1, 1, 0, 0], ..ROW }).unwrap();
        rows.push(RollupRow { event_type: "buy", quarters: [0; 4], ..ROW }).unwrap();
        rows.combine();
        let expected = [RollupRow { tenant: "a", ..ROW }, RollupRow { quarters: [1, 3, 0, 1], ..ROW }];
        assert_eq!(rows.iter().collect::<Vec<_>>(), expected);
        assert_eq!((rows.total(), rows.hours()), (8, Some(HourRange::of(Hour(7)))));
    }

    #[test]
    fn rows_of_other_values_are_not_added_up() {
        let mut rows = Rollups::new();
        let values = |text| Values::parse(text).unwrap();
        for text in ["\u{1}NP", "", "\u{1}IN", "\u{1}NP"] {
            rows.push(RollupRow { values: values(text), ..ROW }).unwrap();
        }
        assert!(rows.has_values());
        rows.combine();
        let found: Vec<_> = rows.iter().map(|row| (row.values.as_str(), row.count())).collect();
        assert_eq!(found, [("", 3), ("\u{1}IN", 3), ("\u{1}NP", 6)]);
        assert!(rows.iter().all(|row| row.tenant == "b" && row.listing == "l1"));
    }

    #[test]
    fn sum_beyond_a_quarters_limit_takes_two_rows() {
        let mut rows = Rollups::new();
        for _ in 0..2 {
            rows.push(RollupRow { quarters: [QUARTER_COUNT_MAX, 1, 0, 0], ..ROW }).unwrap();
        }
        rows.combine();
        let quarters: Vec<_> = rows.iter().map(|row| row.quarters).collect();
        assert_eq!(quarters, [[QUARTER_COUNT_MAX, 2, 0, 0], [QUARTER_COUNT_MAX, 0, 0, 0]]);
    }

    #[test]
    fn appended_rows_are_those_that_are_kept() {
        let mut from = Rollups::new();
        for (listing, hour) in [("l1", 1), ("l1", 2), ("l2", 2), ("l2", 3), ("l1", 3)] {
            from.push(RollupRow { listing, hour: Hour(hour), ..ROW }).unwrap();
        }
        assert!(from.iter_within(HourRange::of(Hour(2))).eq(from.iter().filter(|row| row.hour == Hour(2))));
        let mut found = Rollups::new();
        found.push(ROW).unwrap();
        let hours = HourRange { first: Hour(2), last: Hour(3) };
        let kept = |row: RollupRow<'_>| {
            (row.listing != "l2" || row.hour != Hour(3)).then_some(Kept { event_type: "buy", quarters: [3; 4] })
        };
        found.append(&from, hours, kept).unwrap();
        let mut expected = vec![ROW];
        for (listing, hour) in [("l1", 2), ("l2", 2), ("l1", 3)] {
            expected.push(RollupRow { listing, hour: Hour(hour), event_type: "buy", quarters: [3; 4], ..ROW });
        }
        assert!(found.iter().eq(expected));
        let invalid = |_: RollupRow<'_>| Some(Kept { event_type: "Ä", quarters: [1; 4] });
        assert!(matches!(found.append(&from, hours, invalid), Err(RowError::TypeName(_))));
    }

    proptest::proptest! {
        /// Rows that are in order stay as they are, and all others come into it.
        #[test]
        fn combined_rows_are_equal_in_whatever_order_they_come(
            drawn in proptest::collection::vec((0..2_usize, 0..3_usize, 0..4_u32, 0..2_usize, 0..3_u32), 0..12),
        ) {
            let mut sums = std::collections::BTreeMap::new();
            let mut rows = Rollups::new();
            for (tenant, listing, hour, of_type, count) in drawn {
                let [tenant, listing] = [["a", "b"][tenant], ["k", "l", "m"][listing]];
                let event_type = ["view", "click"][of_type];
                let quarters = [count, 0, 0, count];
                let row = RollupRow { tenant, listing, hour: Hour(hour), event_type, quarters, ..ROW };
                rows.push(row).unwrap();
                *sums.entry(row.key()).or_insert(0) += count;
            }
            let expected: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
            rows.combine();
            let once: Vec<RollupRow<'_>> = rows.iter().collect();
            proptest::prop_assert!(once.iter().map(|row| (row.key(), row.quarters[3])).eq(expected.iter().copied()));
            let mut twice = rows.clone();
            proptest::prop_assert!(rows.is_combined());
            twice.combine();
            proptest::prop_assert!(twice == rows);
        }
    }

    #[test]
    fn rows_outside_a_limit_are_refused() {
        let mut rows = Rollups::new();
        assert!(matches!(rows.push(RollupRow { tenant: "", ..ROW }), Err(RowError::Id(_))));
        assert!(matches!(rows.push(RollupRow { event_type: "Ä", ..ROW }), Err(RowError::TypeName(_))));
        assert_eq!(rows.push(RollupRow { hour: Hour(Hour::MAX.0 + 1), ..ROW }), Err(RowError::Hour(Hour::MAX.0 + 1)));
        assert_eq!(rows.push(RollupRow { quarters: [1 << 31, 0, 0, 0], ..ROW }), Err(RowError::Quarter(1 << 31)));
        assert!(rows.is_empty());
    }
}
