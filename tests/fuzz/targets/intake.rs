//! Fuzzes what the intake of event streams reads: bodies of requests, packed or not, entries and rows of its log, and texts of refused
//! events. A body is refused or becomes an entry that means the same when it is read again.

#![no_main]

use tidemark_streams_core::event::{EventTypes, check_listing, check_tenant};
use tidemark_streams_core::manifest::{Command, Manifest, SetTypes, TypesSet};
use tidemark_streams_core::schema::TypeChange;
use tidemark_streams_core::time::{Day, Now};
use tidemark_streams_intake::body::entries::entries;
use tidemark_streams_intake::body::{self, Rules};
use tidemark_streams_intake::entry::{Batch, Head};
use tidemark_streams_intake::event_ids;
use tidemark_streams_intake::limits::UNPACKED_BYTES_MAX;
use tidemark_streams_intake::listings::{LookupFailed, Tenants};
use tidemark_streams_intake::producers::Producers;
use tidemark_streams_intake::refused::Refused;
use tidemark_streams_intake::unpack::Coding;

/// Impressions have a country.
fn with_dimension(types: &EventTypes) -> EventTypes {
    let mut manifest = Manifest::new();
    let name = "impression".to_owned();
    let add = TypeChange::AddDimension { name: name.clone(), dimension: "country".to_owned(), values_max: 9 };
    for set in [TypesSet::List(vec![name]), TypesSet::Change(add)] {
        manifest.apply(&Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 }));
    }
    manifest.schema().effective(types)
}

/// Listings of an even length are known, and their length decides on the tenant.
struct ByLength;

impl Tenants for ByLength {
    fn tenant_of(&self, listing: &str) -> Result<Option<String>, LookupFailed> {
        Ok((listing.len() % 2 == 0).then(|| listing.len().to_string()))
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let plain = EventTypes::new(&["impression", "click"]).expect("names of types");
    for types in [&with_dimension(&plain), &plain] {
        let rules = Rules { now: Now(1_800_000_000_000), types, kept_from: Day(0), seed: 1, tenants: &ByLength };
        if let Ok(decoded) = body::decode(bytes, &rules) {
            let batch = Batch { events: decoded.events, ..Batch::default() };
            let entry = batch.encode(7, 9);
            let (head, read) = Batch::decode(&entry).expect("what was written is read");
            assert_eq!((head.end_row(), &read), (7 + batch.rows() as u64, &batch));
            assert_eq!(read.records().len(), batch.rows());
        }
    }
    for entry in entries(bytes).unwrap_or_default() {
        assert!(check_listing(&entry.listing).is_ok() && check_tenant(&entry.tenant).is_ok());
    }
    for coding in [Coding::Gzip, Coding::Zstd] {
        if let Ok(unpacked) = coding.unpack(bytes) {
            assert!(unpacked.len() <= UNPACKED_BYTES_MAX);
        }
    }
    if let Ok((head, batch)) = Batch::decode(bytes) {
        assert_eq!(Head::decode(bytes), Ok(head));
        assert_eq!(u64::from(head.rows), batch.records().len() as u64);
    }
    if let Ok(row) = event_ids::decode_row(bytes) {
        assert_eq!(event_ids::decode_row(&event_ids::encode_row(row.event_type.as_deref(), &row.ids)), Ok(row));
    }
    let mut refused = Refused::default();
    let _ = refused.restore(b"a\0event_time", bytes);
    refused.add(5, "event_time: ahead", &String::from_utf8_lossy(bytes));
    let mut again = Refused::default();
    for (key, value) in refused.take_changes() {
        again.restore(&key, &value).expect("what was written is read");
    }
    let _ = Producers::default().restore(b"producer", bytes);
});
