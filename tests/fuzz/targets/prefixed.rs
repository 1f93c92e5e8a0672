//! Fuzzes pages of texts that are stored without the bytes that they share with the text before.

#![no_main]

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;
use tidemark_files::parquet::prefixed::{OnePage, PrefixedReader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&values, bytes)) = bytes.split_first() else { return };
    let page = Page::DataPage {
        buf: Bytes::copy_from_slice(bytes),
        num_values: u32::from(values),
        encoding: Encoding::DELTA_BYTE_ARRAY,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let Ok(mut reader) = PrefixedReader::open(Box::new(OnePage(Some(page)))) else { return };
    if let Ok(texts) = reader.read(usize::from(values)) {
        assert!((0..usize::from(values)).all(|at| texts.get(at).is_some()));
    }
});
