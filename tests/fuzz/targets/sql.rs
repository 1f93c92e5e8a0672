//! Fuzzes the messages between parent and child of SQL, and the shape of a query. Bytes are refused, or decode to the same message after
//! they are encoded again.

#![no_main]

use tidemark_streams_sql::frames::{HEAD_BYTES, Reply, Request, encode};
use tidemark_streams_sql::limits::SHAPE_BYTES_MAX;
use tidemark_streams_sql::shape::shape;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        let encoded = encode(&request).expect("what was read is short enough");
        let read = Request::decode(&encoded[HEAD_BYTES..]).expect("what was written is read");
        // A number that is none is not equal to itself.
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
    }
    if let Ok(reply) = Reply::decode(bytes) {
        let encoded = encode(&reply).expect("what was read is short enough");
        assert_eq!(Reply::decode(&encoded[HEAD_BYTES..]).expect("what was written is read"), reply);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(shape(text).len() <= SHAPE_BYTES_MAX + '…'.len_utf8());
    }
});
