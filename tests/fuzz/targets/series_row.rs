//! Fuzzes `decoders::series_row`.

#![no_main]

#[path = "../../decoders/properties.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decoders::series_row(bytes));
