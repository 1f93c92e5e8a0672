//! A directory with three months of counts, as a server leaves it: two merged months, the days of the present month merged, the hours of
//! today, and deltas of the present hour.

use crate::BenchError;
use crate::slow::EVENT_TYPE;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemark_streams_core::blob::{BlobKey, BlobMeta, Epoch, Level, LiveDigest, PartitionId, Seq, StoredBlob};
use tidemark_streams_core::layout::PeriodUnit;
use tidemark_streams_core::manifest::{Claim, Command, Commit, Committed, Generation, MemberId, Outcome, Progress};
use tidemark_streams_core::owner::{After, Content, Origin, Put, SourceAfter};
use tidemark_streams_core::query::range::QuarterRange;
use tidemark_streams_core::rollup::{RollupRow, Rollups};
use tidemark_streams_core::scope::Scope;
use tidemark_streams_core::source::{ReadingId, SourceId, SourceState};
use tidemark_streams_core::time::{Date, Day, HOURS_PER_DAY, Hour, HourRange};
use tidemark_streams_core::values::{DimensionNames, Values};
use tidemark_streams_store::directory::{Directory, IfMissing};

const PARTITION: PartitionId = PartitionId(0);
const SOURCE: SourceId = SourceId([1; 32]);
const READING: ReadingId = ReadingId(1);

/// Which counts there are: of each hour a row for each listing of each tenant.
#[derive(Clone, Copy, Debug)]
pub struct Months {
    pub tenants: u32,
    pub listings: u32,
    /// The present hour, with rows in deltas.
    pub now: Hour,
}

/// Blobs and bytes of a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filled {
    pub blobs: u64,
    pub bytes: u64,
    pub rows: u64,
}

/// The directory while it is filled.
struct Filling {
    directory: Directory,
    epoch: Epoch,
    next_row: u64,
    live: LiveDigest,
    filled: Filled,
}

pub fn tenant(number: u32) -> String {
    format!("{number:08}")
}

/// A month as texts of a query.
pub struct Month {
    pub from: String,
    pub to: String,
}

impl Months {
    pub fn until_now(tenants: u32, listings: u32) -> Months {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Months { tenants, listings, now: Hour((seconds / 3_600) as u32) }
    }

    /// The month that holds the present hour, and the month before.
    pub fn asked(&self) -> [Month; 2] {
        let present = PeriodUnit::Month.start_of(self.now.day());
        let before = PeriodUnit::Month.start_of(Day(present.0 - 1));
        let after = PeriodUnit::Month.start_of(Day(present.0 + 31));
        let text = |day: Day| {
            let Date { year, month, day } = day.date();
            format!("{year}-{month:02}-{day:02}")
        };
        let month = |from, to| Month { from: text(from), to: text(to) };
        [month(present, after), month(before, present)]
    }

    /// The first hour with counts.
    fn first(&self) -> Hour {
        let mut start = PeriodUnit::Month.start_of(self.now.day());
        for _ in 0..2 {
            start = PeriodUnit::Month.start_of(Day(start.0 - 1));
        }
        Hour(start.0 * HOURS_PER_DAY)
    }

    /// The counts of an hour of a listing.
    fn quarters(tenant: u32, listing: u32, hour: Hour) -> [u32; 4] {
        let seed = u64::from(tenant) << 40 ^ u64::from(listing) << 32 ^ u64::from(hour.0);
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Most hours of a listing have few events, and some quarters have none.
        [0, 8, 16, 24].map(|shift| (mixed >> shift) as u32 % 7)
    }

    /// What a tenant's counts in a range sum up to.
    pub fn total(&self, tenant: u32, range: QuarterRange) -> u64 {
        let HourRange { first, last } = range.hours();
        let hours = first.0.max(self.first().0)..=last.0.min(self.now.0);
        let of_hour = |hour: u32| -> u64 {
            let counts = (0..self.listings).map(|listing| Months::quarters(tenant, listing, Hour(hour)));
            let within = |quarters: [u32; 4]| -> u64 {
                let counted = quarters.into_iter().enumerate();
                let is_within = |at: usize| range.contains(Hour(hour).quarter(at));
                counted.filter(|(at, _)| is_within(*at)).map(|(_, count)| u64::from(count)).sum()
            };
            counts.map(within).sum()
        };
        hours.map(of_hour).sum()
    }

    /// The rows of some hours and listings.
    fn rows(&self, hours: HourRange, is_listing: impl Fn(u32) -> bool) -> Result<Rollups, BenchError> {
        let mut rows = Rollups::new();
        for number in 0..self.tenants {
            let tenant = tenant(number);
            for listing in (0..self.listings).filter(|listing| is_listing(*listing)) {
                let name = format!("{tenant}{listing:03}");
                for hour in (hours.first.0..=hours.last.0).map(Hour) {
                    let quarters = Months::quarters(number, listing, hour);
                    let [tenant, listing, event_type] = [tenant.as_str(), name.as_str(), EVENT_TYPE];
                    rows.push(RollupRow { tenant, values: Values::NONE, listing, hour, event_type, quarters })?;
                }
            }
        }
        Ok(rows)
    }

    /// Fills a new directory.
    pub fn fill(&self, path: &Path) -> Result<Filled, BenchError> {
        let mut filling = Filling::new(path)?;
        let first_of = |day: Day| day.0 * HOURS_PER_DAY;
        let today = first_of(self.now.day());
        let mut start = self.first().0;
        while start < today {
            let next = first_of(PeriodUnit::Month.start_of(Day(Hour(start).day().0 + 31)));
            let hours = HourRange { first: Hour(start), last: Hour(next.min(today) - 1) };
            filling.add(Level::Period, self.rows(hours, |_| true)?)?;
            start = next;
        }
        for hour in (today..self.now.0).map(Hour) {
            filling.add(Level::Hour, self.rows(HourRange::of(hour), |_| true)?)?;
        }
        // Each delta has the events of some listings.
        for listing in 0..self.listings {
            filling.add(Level::Delta, self.rows(HourRange::of(self.now), |of| of == listing)?)?;
        }
        Ok(filling.filled)
    }
}

impl Filling {
    fn new(path: &Path) -> Result<Filling, BenchError> {
        let mut directory = Directory::open(path, IfMissing::Create)?;
        let types = Some(vec![EVENT_TYPE.to_owned()]);
        let claim = Claim { partition: PARTITION, generation: Generation(1), member: MemberId(1), types };
        directory.propose(&Command::Claim(claim))?;
        let epoch = directory.manifest().partition(PARTITION).map(|partition| partition.epoch).unwrap_or_default();
        Ok(Filling { directory, epoch, next_row: 0, live: LiveDigest::default(), filled: Filled::default() })
    }

    /// Adds a blob with a commit of its own.
    fn add(&mut self, level: Level, rows: Rollups) -> Result<(), BenchError> {
        let Some(hours) = rows.hours() else { return Ok(()) };
        let Filling { epoch, next_row: from, .. } = *self;
        let count = rows.len() as u64;
        let total = rows.total();
        let to = from + count;
        let key = BlobKey { partition: PARTITION, epoch, seq: Seq(to), part: 0 };
        let scope = Scope::ALL;
        let stored = StoredBlob { bytes: 0, checksum: 0 };
        let mut meta = BlobMeta { key, level, scope, hours, rows: count, total, stored };
        self.live = self.live.with(&meta);
        let state = SourceState { reading: READING, next_row: to, accepted: to, ..SourceState::default() };
        let sources: Arc<[SourceAfter]> = [SourceAfter { id: SOURCE, state }].into();
        let put = Put {
            key,
            level,
            scope,
            origin: Origin::Source { source: SOURCE, from, to },
            after: After { parts: 1, live: self.live, revision: 0, sources },
            dimensions: DimensionNames::default(),
            content: Content::Rows(Arc::new(rows)),
        };
        meta.stored = self.directory.put(&put)?;
        let progress = Progress { source: SOURCE, reading: READING, from, to, dead_letters: 0, total, is_end: false };
        let commit = Commit {
            partition: PARTITION,
            epoch,
            seq: key.seq,
            progress: Some(progress),
            add: vec![meta],
            ..Commit::default()
        };
        match self.directory.propose(&Command::Commit(commit))? {
            Outcome::Commit { result: Ok(Committed::Now), .. } => {}
            other => return Err(BenchError::Uncommitted(format!("{other:?}"))),
        }
        self.next_row = to;
        let Filled { blobs, bytes, rows } = &mut self.filled;
        *blobs += 1;
        *bytes += meta.stored.bytes;
        *rows += count;
        Ok(())
    }
}
