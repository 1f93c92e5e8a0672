//! An owner that a test drives by itself. It writes what no command writes.

use crate::shop::Shop;
use std::time::{Duration, Instant};
use tidemark_streams_core::blob::PartitionId;
use tidemark_streams_core::event::{EventTypes, RawEvent};
use tidemark_streams_core::manifest::{Command, Generation, MemberId};
use tidemark_streams_core::merge::MergePolicy;
use tidemark_streams_core::owner::{Input, Output, Owner, OwnerConfig, Record, RowBatch};
use tidemark_streams_core::source::{ReadingId, SourceId};
use tidemark_streams_core::time::Now;
use tidemark_streams_store::directory::{Directory, IfMissing};

/// 2026-01-02T00:00:00Z.
const NOW: Now = Now(1_767_312_000_000);

/// All rows of a source.
pub struct Counted<'a> {
    pub source: SourceId,
    pub reading: ReadingId,
    pub generation: u64,
    pub types: &'a [&'a str],
    /// The claim names the types. That of an earlier version does not.
    pub names_types: bool,
    pub events: &'a [RawEvent<'a>],
}

impl Shop {
    pub fn open(&self) -> Directory {
        Directory::open(&self.dir(), IfMissing::Create).unwrap()
    }

    /// Waits until commands can open the directory. A process that another test is starting holds the locks of this process until it runs
    /// its own program.
    pub fn close(&self, directory: Directory) {
        drop(directory);
        let end = Instant::now() + Duration::from_secs(30);
        while !self.run(&["blobs"]).status.success() {
            assert!(Instant::now() < end, "the directory stays open");
        }
    }
}

/// Writes blobs that say that a source has these rows.
pub fn count(directory: &mut Directory, counted: &Counted<'_>) {
    let Counted { source, reading, generation, types, names_types, events } = *counted;
    let config = OwnerConfig {
        partition: PartitionId(0),
        member: MemberId(1),
        generation: Generation(generation),
        types: EventTypes::new(types).unwrap(),
        seed: 1,
        flush_after_ms: 1_000,
        cells_max: 1_000,
        fold_bytes_max: 1 << 20,
        dead_letters_max: 10,
        merge: MergePolicy::default(),
        retry_after_ms: 1_000,
        keep_flushed_ms: 0,
    };
    let mut owner = Owner::new(NOW, config);
    carry_out(&mut owner, directory, names_types);
    let records: Vec<Record<'_>> = events.iter().copied().map(Record::Event).collect();
    owner.handle(NOW, Input::Rows(RowBatch { source, reading, from: 0, is_logged: false, records: &records }));
    owner.handle(NOW, Input::End { source, reading, rows: records.len() as u64 });
    carry_out(&mut owner, directory, names_types);
}

/// Carries out what an owner asks for.
fn carry_out(owner: &mut Owner, directory: &mut Directory, names_types: bool) {
    while let Some(output) = owner.poll_output() {
        match output {
            Output::Propose(mut command) => {
                if let Command::Claim(claim) = &mut command {
                    claim.types = claim.types.take().filter(|_| names_types);
                }
                let outcome = directory.propose(&command).unwrap();
                owner.handle(NOW, Input::Applied { outcome: &outcome, manifest: directory.manifest() });
            }
            Output::Put(put) => {
                let stored = directory.put(&put).unwrap();
                owner.handle(NOW, Input::Stored { key: put.key, stored });
            }
            Output::Load(key) => panic!("{key} is read"),
            Output::Stopped(stop) => panic!("{stop}"),
        }
    }
}
