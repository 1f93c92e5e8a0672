//! Fuzzes `decoders::parquet`.

#![no_main]

#[path = "../../decoders/properties.rs"]
mod decoders;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| decoders::parquet(bytes));
