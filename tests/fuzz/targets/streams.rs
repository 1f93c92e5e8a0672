//! Fuzzes what event streams read back: commands and snapshots of the manifest, and dead letters. Bytes are refused, or mean the same
//! when they are written and read again.

#![no_main]

use tidemark_streams_core::manifest::{Command, Manifest};
use tidemark_streams_store::dead_letters;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(command) = Command::decode(bytes) {
        Manifest::new().apply(&command);
        let encoded = command.encode().expect("what was read is short enough");
        assert_eq!(Command::decode(&encoded), Ok(command));
    }
    if let Ok(manifest) = Manifest::from_snapshot(bytes) {
        assert_eq!(Manifest::from_snapshot(&manifest.snapshot()), Ok(manifest));
    }
    if let Ok(letters) = dead_letters::decode(bytes) {
        let encoded = dead_letters::encode(&letters).expect("letters are written");
        assert_eq!(dead_letters::decode(&encoded).expect("letters are read"), letters);
    }
});
