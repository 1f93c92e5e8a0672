//! Fuzzes what the archive of raw events reads: names of files, files, and entries without erased rows. A file is refused, or gives entries
//! whose rows follow each other within its range.

#![no_main]

use tidemark_streams_core::blob::Seq;
use tidemark_streams_core::erasure::{Erasure, ErasureKey, Erasures};
use tidemark_streams_core::time::Hour;
use tidemark_streams_intake::archive::erased::{Kept, kept, without_ids};
use tidemark_streams_intake::archive::file::{FileError, FileName, FileWriter, RawFile, with_checksum};
use tidemark_streams_intake::archive::index::{Index, Rules};
use tidemark_streams_intake::entry::{Batch, Head};

const NAME: FileName = FileName { from: 3, to: 1 << 40, first_ms: 1, last_ms: 9, erasures: 0 };

fn erasures() -> Erasures {
    let erasure = Erasure { before: Hour(400_000), asked_at_ms: 5, seq: Seq(1), is_done: true };
    let mut erasures = Erasures::default();
    for key in [ErasureKey::of("a", None), ErasureKey::of("b", Some("x"))] {
        erasures.add(key, erasure).expect("two erasures");
    }
    erasures
}

/// Reads a file, and checks the order of its rows.
fn read(file: &[u8]) -> Result<Vec<Vec<u8>>, FileError> {
    let mut next = NAME.from;
    let mut entries = Vec::new();
    RawFile::open(file, "here", &NAME)?.entries(|head, entry| {
        assert!(head.first_row >= next && head.end_row() <= NAME.to);
        next = head.end_row();
        entries.push(entry.to_owned());
        Ok::<(), FileError>(())
    })?;
    Ok(entries)
}

fn check_entry(entry: &[u8]) {
    let Ok((head, batch)) = Batch::decode(entry) else { return };
    let erasures = erasures();
    let stripped = without_ids(entry).expect("the entry was read");
    assert_eq!(Batch::decode(&stripped).map(|(head, _)| head), Ok(head));
    let Kept::Rest(parts) = kept(&stripped, &erasures).expect("the entry was read") else { return };
    let mut next = head.first_row;
    let mut rows = 0;
    for part in &parts {
        let (of_part, _) = Batch::decode(part).expect("what was written is read");
        assert!(of_part.first_row >= next && of_part.end_row() <= head.end_row());
        next = of_part.end_row();
        rows += u64::from(of_part.rows);
        assert_eq!(kept(part, &erasures), Ok(Kept::Whole));
    }
    assert!(rows < batch.rows() as u64);
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = read(bytes);
    let _ = read(&with_checksum(bytes.to_owned()));
    check_entry(bytes);
    let mut writer = FileWriter::new().expect("memory");
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for part in &parts {
        writer.push(part).expect("memory");
    }
    if let Ok(entries) = read(&writer.finish("here", &NAME).expect("memory")) {
        assert_eq!(entries, parts);
        assert!(entries.iter().all(|entry| Head::decode(entry).is_ok()));
    }
    let text = String::from_utf8_lossy(bytes);
    let names: Vec<FileName> = text.split_whitespace().filter_map(|name| name.parse().ok()).collect();
    assert!(names.iter().all(|name| name.to_string().parse() == Ok(*name)));
    let found = Index::of(names.iter().map(|name| (*name, 1)));
    let damaged = found.superseded.iter().copied().collect();
    let _ = found.index.work(&Rules { now_ms: 1 << 40, keep_ms: 1 << 30, erasures: Some(1), damaged: &damaged });
});
