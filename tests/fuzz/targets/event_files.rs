//! Fuzzes files of events: bytes give the same rows whether they are read one by one or many at a time, with pages and without.

#![no_main]

use std::fs::File;
use std::io::Write;
use tidemark_proto::series::calendar::Zone;
use tidemark_streams_core::values::DimensionNames;
use tidemark_streams_source::file::FileRows;
use tidemark_streams_source::mapping::Mapping;
use tidemark_streams_source::rows::Rows;
use tidemark_streams_source::value::Reading;

/// The rows up to the end or an error.
fn rows(file: &File, mapping: &Mapping, at_a_time: usize) -> Vec<String> {
    let dimensions = DimensionNames::default();
    let reading = Reading { mapping: mapping.clone(), zone: Zone::UTC, dimensions };
    let mut found = Vec::new();
    let Ok(mut file) = FileRows::open(file, reading) else { return found };
    let mut batch = Rows::default();
    loop {
        batch.clear();
        let read = file.read(&mut batch, at_a_time);
        assert!(batch.len() <= at_a_time, "{} rows at a time", batch.len());
        found.extend(batch.records("view").map(|record| format!("{record:?}")));
        if read.is_err() || batch.is_empty() {
            return found;
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for (map, separator) in
        [("tenant=t,listing=l,at=a,n=n", None), ("listings=l,at=a,type=k", None), ("tenant=t,listings=l,at=a", Some("|"))]
    {
        let mapping = Mapping::parse(map, None).and_then(|mapping| mapping.separated(separator));
        let mapping = mapping.expect("the mapping is one");
        let mut file = tempfile::tempfile().expect("the folder of temporary files takes a file");
        file.write_all(bytes).expect("the folder of temporary files has room");
        assert_eq!(rows(&file, &mapping, 1), rows(&file, &mapping, 1_000), "{map}");
    }
});
