//! Fuzzes what event streams read back: commands and snapshots of the manifest, dead letters, entries of the catalogue, and
//! values of dimensions. Bytes are refused, or mean the same when they are written and read again.

#![no_main]

use tidemark_streams_core::manifest::{Command, Manifest, Restore};
use tidemark_streams_core::values::{Values, push};
use tidemark_streams_store::{catalogue, dead_letters};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(command) = Command::decode(bytes) {
        Manifest::new().apply(&command);
        let encoded = command.encode().expect("what was read is short enough");
        assert_eq!(Command::decode(&encoded), Ok(command));
    }
    if let Ok(manifest) = Manifest::from_version_1(bytes) {
        let mut restore = Restore::new();
        for row in manifest.rows() {
            let value = row.value.expect("every row of a whole snapshot has a value");
            restore.add(&row.key, &value).expect("a row is read as it was written");
        }
        assert_eq!(restore.finish(), Ok(manifest));
    }
    for key in [&b"h"[..], b"p\0\0\0\0", b"c\0\0\0\0\0\0\0\0"] {
        let mut restore = Restore::new();
        let _ = restore.add(key, bytes);
        let _ = restore.finish();
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(values) = Values::parse(text)
    {
        let mut again = String::new();
        values.iter().for_each(|(dimension, value)| push(&mut again, dimension, value));
        assert_eq!(again, text);
    }
    if let Ok(entry) = catalogue::decode_entry(bytes) {
        assert_eq!(catalogue::encode_entry(&entry), bytes);
    }
    if let Ok(letters) = dead_letters::decode(bytes) {
        let encoded = dead_letters::encode(&letters).expect("letters are written");
        assert_eq!(dead_letters::decode(&encoded).expect("letters are read"), letters);
    }
});
