//! Rows that were accepted are added up again.

use tidemark_streams_core::erasure::Erasures;
use tidemark_streams_core::event::{EventError, EventTypes, Judged, RawEvent};
use tidemark_streams_core::fold::Fold;
use tidemark_streams_core::scope::TenantHash;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::time::{Days, Now, Quarter};

/// Adds events to a fold.
pub struct Adding<'a> {
    pub types: &'a EventTypes,
    pub erasures: &'a Erasures,
    /// Only rows of these days are added.
    pub days: Option<Days>,
    pub fold: Fold,
    /// Rows that were accepted, and cannot be counted now. Rows of deleted types and erased rows are not among them.
    pub uncounted: u64,
    pub first_uncounted: Option<Uncounted>,
}

/// A row that was accepted, and cannot be counted now.
#[derive(Clone, Debug)]
pub struct Uncounted {
    pub source: SourceId,
    pub row: u64,
    pub why: String,
}

impl<'a> Adding<'a> {
    pub fn new(types: &'a EventTypes, erasures: &'a Erasures, days: Option<Days>) -> Adding<'a> {
        let fold = Fold::new(types.clone(), rand::random());
        Adding { types, erasures, days, fold, uncounted: 0, first_uncounted: None }
    }

    /// Adds a row that was accepted.
    pub fn add(&mut self, source: SourceId, row: u64, raw: &RawEvent<'_>, judged: Judged) {
        match raw.check_judged(Now(u64::MAX), judged, self.types) {
            Ok(event) => {
                if self.days.is_none_or(|days| days.contains(event.quarter.hour().day())) {
                    self.fold.add(&event);
                }
            }
            Err(EventError::DeletedType { .. }) => {}
            Err(why) => {
                let hour = u64::try_from(raw.at_s).ok().and_then(Quarter::of_s).map(Quarter::hour);
                let erases = |hour| self.erasures.erases(TenantHash::of(raw.tenant), raw.listing, hour);
                if !hour.is_some_and(erases) {
                    self.note_uncounted(source, row, &why.to_string());
                }
            }
        }
    }

    pub fn note_uncounted(&mut self, source: SourceId, row: u64, why: &str) {
        self.uncounted += 1;
        self.first_uncounted.get_or_insert_with(|| Uncounted { source, row, why: why.to_owned() });
    }
}
