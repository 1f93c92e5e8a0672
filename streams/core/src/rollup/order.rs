//! The order of rows by their keys.
//!
//! Comparing texts takes most of the time of a sort. So each row gets a small key: eight bytes of the tenant and eight bytes of the
//! listing, after the prefix that all texts share. Longer texts are compared only if these bytes are equal. Values of dimensions are
//! compared between the tenant and the listing.

use super::{PackedRow, Rollups};
use crate::time::Hour;
use std::cmp::Ordering;

/// Bytes of a text in a key.
const HEAD_BYTES: usize = 8;

/// The key of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    tenant: u64,
    listing: u64,
    hour_and_type: u32,
    row: u32,
}

/// The properties of a column of texts that keys depend on.
struct Heads {
    /// Bytes that all texts begin with.
    shared: usize,
    /// Whether a key has the whole of each text. Then equal heads mean equal texts.
    are_whole: bool,
}

/// The places of the rows, in the order of their keys.
pub(super) fn sorted(rollups: &Rollups) -> Vec<u32> {
    let rows = &rollups.rows;
    let tenants = Heads::of(rows.iter().map(|row| rollups.text_at(row.tenant, row.tenant_bytes)));
    let listings = Heads::of(rows.iter().map(|row| rollups.text_at(row.listing, row.listing_bytes)));
    let ranks = ranks(&rollups.types);
    let key = |(at, row): (usize, &PackedRow)| Key {
        tenant: tenants.head(rollups.text_at(row.tenant, row.tenant_bytes)),
        listing: listings.head(rollups.text_at(row.listing, row.listing_bytes)),
        hour_and_type: row.hour.0 << u8::BITS | u32::from(ranks[usize::from(row.event_type)]),
        row: at as u32,
    };
    let mut keys: Vec<Key> = rows.iter().enumerate().map(key).collect();
    // The stable sort finds runs that are already sorted, such as the blobs of a merge.
    if tenants.are_whole && listings.are_whole && !rollups.has_values() {
        keys.sort();
    } else {
        keys.sort_by(|a, b| compare(rollups, rows, a, b));
    }
    keys.iter().map(|key| key.row).collect()
}

fn compare(rollups: &Rollups, rows: &[PackedRow], a: &Key, b: &Key) -> Ordering {
    let tenant = |key: &Key| {
        let row = &rows[key.row as usize];
        rollups.text_at(row.tenant, row.tenant_bytes)
    };
    let listing = |key: &Key| {
        let row = &rows[key.row as usize];
        rollups.text_at(row.listing, row.listing_bytes)
    };
    let tenants = a.tenant.cmp(&b.tenant).then_with(|| tenant(a).cmp(tenant(b)));
    let values = || rollups.values_of(&rows[a.row as usize]).cmp(&rollups.values_of(&rows[b.row as usize]));
    let listings = || a.listing.cmp(&b.listing).then_with(|| listing(a).cmp(listing(b)));
    tenants.then_with(values).then_with(listings).then(a.hour_and_type.cmp(&b.hour_and_type))
}

/// The place of each type by name.
pub(super) fn ranks(types: &[String]) -> Vec<u8> {
    types.iter().map(|name| types.iter().filter(|other| *other < name).count() as u8).collect()
}

impl Heads {
    fn of<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Heads {
        let first = texts.clone().next().unwrap_or_default().as_bytes();
        let mut shared = first.len();
        let mut longest = 0;
        for text in texts {
            longest = longest.max(text.len());
            let same = first[..shared].iter().zip(text.as_bytes()).take_while(|(a, b)| a == b);
            shared = same.count();
        }
        Heads { shared, are_whole: longest <= shared + HEAD_BYTES }
    }

    /// Shorter texts are padded with zeros, which no text contains.
    fn head(&self, text: &str) -> u64 {
        let rest = &text.as_bytes()[self.shared..];
        let mut head = [0; HEAD_BYTES];
        let bytes = rest.len().min(HEAD_BYTES);
        head[..bytes].copy_from_slice(&rest[..bytes]);
        u64::from_be_bytes(head)
    }
}

const _: () = assert!(Hour::MAX.0 < 1 << (u32::BITS - u8::BITS));

#[cfg(test)]
mod tests {
    use super::super::{RollupRow, Rollups};
    use crate::time::Hour;
    use crate::values::Values;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorted_rows_are_in_the_order_of_their_keys(
            drawn in proptest::collection::vec(
                ("(shop-)?[ab]{1,3}", "[a-c]{0,2}(same-begin-)?[a-cé]{1,12}", 0..3_u32, 0..3_usize),
                0..200,
            ),
            values in proptest::collection::vec("(\u{1}[ab]{1,2})?(\u{3}a)?", 1..4),
        ) {
            let types = ["view", "click", "buy"];
            let mut rows = Rollups::new();
            for (at, (tenant, listing, hour, of_type)) in drawn.iter().enumerate() {
                let event_type = types[*of_type];
                let values = Values::parse(&values[at % values.len()]).unwrap();
                let row = RollupRow { tenant, values, listing, hour: Hour(*hour), event_type, quarters: [1, 0, 0, 0] };
                rows.push(row).unwrap();
            }
            let mut expected: Vec<_> = rows.iter().map(|row| row.key()).collect();
            expected.sort();
            let found: Vec<_> = super::sorted(&rows).iter().map(|at| rows.get(*at as usize).key()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
