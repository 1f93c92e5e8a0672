//! The properties of every decoder, for any bytes: it answers or refuses, and never panics; and the replicated machines take every accepted
//! value without panicking either. The fuzz targets and the tests on stable call the same functions.
#![allow(dead_code, reason = "each fuzz target calls one of them")]

use bytes::Bytes;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use tidemark::load::Naming;
#[cfg(feature = "parquet")]
use tidemark::load::parquet::Rows;
use tidemark::load::rows::Lines;
use tidemark_files::unpack::Text;
use tidemark_proto::aggregator::{AggregatorConfig, AggregatorCore, ImageReader};
use tidemark_proto::asking::{Question, Reply};
use tidemark_proto::edge_changes::EdgesAnswer;
use tidemark_proto::group::{Group, GroupConfig};
use tidemark_proto::ids::{DcId, GroupId, LogIndex};
use tidemark_proto::ledger::{EdgesAsked, Ledger};
use tidemark_proto::limits::TAIL_BYTES_MAX;
use tidemark_proto::msg::{
    Admission, Award, ForGroup, ForWhom, FromClient, FromGroup, GroupEntry, LedgerCmd, Meeting, PeerAnswer, PeerMsg,
    PeerQuestion, Proposed, ToClient, Within,
};
use tidemark_proto::queries::{QueryAnswer, QueryRequest};
use tidemark_proto::read::{ReadRequest, ReadResponse};
use tidemark_proto::series::codec;
use tidemark_proto::shards::ShardId;
use tidemark_proto::wait::{WaitAnswer, WaitRequest};
use tidemark_proto::wire::{Message, Tail, WireError, decode, encode, encode_with_tail};
use tidemark_server::backup::read::Contents;
use tidemark_server::certificate::Certificate;
use tidemark_server::hop::Hop;
use tidemark_server::session::SessionKeys;
use tidemark_server::webhook::{Failed, Limits, Queue};
use tidemark_transport::HostPort;
use tidemark_transport::frame::FrameDecoder;

const FRAME_BYTES_MAX: usize = 1 << 12;
/// Of a file, few bytes of which may say that a value comes again, very often.
#[cfg(feature = "parquet")]
const ROWS_READ_MAX: u64 = 10_000;

/// Messages: what is accepted is encoded and accepted again, and with a tail it is the same, or refused where there must be none.
pub fn wire(bytes: &[u8]) {
    fn again<M: Message>(bytes: &[u8]) {
        let Ok(message) = decode::<M>(bytes) else { return };
        let encoded = encode(&message);
        assert!(decode::<M>(&encoded).is_ok(), "what was accepted is refused when it is sent on");
        let tail = &bytes[..bytes.len().min(TAIL_BYTES_MAX - message.tail().len())];
        let read = decode::<M>(&encode_with_tail(&message, tail));
        match M::TAIL {
            Tail::Skipped => assert_eq!(read.map(|message| encode(&message)), Ok(encoded)),
            Tail::Refused => assert!(matches!(read, Err(WireError::Later(_))), "a tail where there must be none"),
        }
    }
    again::<Award>(bytes);
    again::<FromClient>(bytes);
    again::<ToClient>(bytes);
    again::<PeerQuestion>(bytes);
    again::<PeerAnswer>(bytes);
    again::<GroupEntry>(bytes);
    again::<Proposed>(bytes);
    again::<ForWhom>(bytes);
    again::<Within>(bytes);
    again::<Meeting>(bytes);
    again::<Admission>(bytes);
    again::<FromGroup>(bytes);
    again::<ForGroup>(bytes);
    again::<PeerMsg>(bytes);
    again::<LedgerCmd>(bytes);
    again::<ReadRequest>(bytes);
    again::<ReadResponse>(bytes);
    again::<WaitRequest>(bytes);
    again::<WaitAnswer>(bytes);
    again::<QueryRequest>(bytes);
    again::<QueryAnswer>(bytes);
    again::<EdgesAsked>(bytes);
    again::<EdgesAnswer>(bytes);
    again::<Question>(bytes);
    again::<Reply>(bytes);
}

/// Commands that a peer may put into the ledger's log.
pub fn ledger(bytes: &[u8]) {
    let mut ledger = Ledger::default();
    for (index, piece) in (1..).zip(pieces(bytes)) {
        match decode::<LedgerCmd>(piece) {
            Ok(cmd) => ledger.apply(LogIndex(index), &cmd),
            Err(_) => ledger.skip(LogIndex(index)),
        }
        ledger.check_invariants();
    }
}

/// Rows of a group's checkpoint: a damaged file is refused, not believed halfway.
pub fn group_rows(bytes: &[u8]) {
    if let Ok(Some(group)) = Group::load(group_config(), rows(bytes))
        // Rows elsewhere on the disk are read when they are asked for.
        && group.rows_shelved() == 0
    {
        group.check_invariants();
    }
}

/// Rows of a view's checkpoint.
pub fn view_rows(bytes: &[u8]) {
    if let Ok(core) = AggregatorCore::recover(AggregatorConfig::new(DcId(1), 2), rows(bytes)) {
        core.check_invariants();
    }
}

/// An image that a backup took.
pub fn image(bytes: &[u8]) {
    let mut contents = Contents::new(7);
    let taken = bytes.chunks(61).try_for_each(|piece| contents.push(piece));
    let Ok(image) = taken.and_then(|()| contents.finish()) else { return };
    image.view.view().check_all();
    image.view.totals();
    // The content fits a view, and is the same when it is written again.
    let mut reader = ImageReader::new(DcId(0), 3);
    for (key, value) in image.view.rows(ShardId::FIRST) {
        assert_eq!(reader.take(&key, &value), Ok(()));
    }
    assert_eq!(reader.finish().unwrap().totals(), image.view.totals());
}

/// A row of a time series, and totals: what is accepted is one, and its only encoding.
pub fn series_row(bytes: &[u8]) {
    if let Ok(row) = codec::decode(bytes) {
        row.check_invariants();
        assert_eq!(codec::encode(&row).as_deref(), Ok(bytes));
    }
    if let Ok(totals) = codec::decode_totals(bytes) {
        assert_eq!(codec::encode_totals(&totals).as_deref(), Ok(bytes));
    }
}

/// Rows of a webhook's file: what is believed can be gone on with.
pub fn webhook_rows(bytes: &[u8]) {
    let second = Duration::from_secs(1);
    let limits = Limits { open_max: usize::MAX, dead_max: usize::MAX, ..Limits::new(4, second, second, second) };
    let Ok(mut queue) = Queue::load(limits, rows(bytes)) else { return };
    queue.check_invariants();
    for (at, (position, _)) in queue.start(u64::MAX / 2, false).into_iter().enumerate() {
        let failed = Failed { reason: "no".to_owned(), gone: at % 2 == 0 };
        queue.on_failed(position, failed, u64::MAX / 2, u64::MAX);
    }
    queue.redeliver(None);
    queue.hold(false);
    queue.check_invariants();
    let rows = queue.take_changes().into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let known = Queue::load(limits, rows).map(|queue| queue.position());
    assert!(known.is_ok(), "what was written is refused");
}

/// A stream of frames, however it is cut.
pub fn frames(bytes: &[u8]) {
    let mut decoder = FrameDecoder::new(FRAME_BYTES_MAX);
    for piece in pieces(bytes) {
        decoder.push(Bytes::copy_from_slice(piece));
        while let Ok(Some(frame)) = decoder.next_frame() {
            assert!(frame.len() <= FRAME_BYTES_MAX);
        }
    }
    let _ = decoder.finish();
}

/// Texts that people hand in: certificates, configuration, names, rows of CSV and JSON lines.
pub fn texts(bytes: &[u8]) {
    for begin in [&b""[..], b"counter,delta,at\n", b"{}\n"] {
        lines([begin, bytes].concat());
    }
    let _ = Certificate::from_json(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = tidemark::config::ClusterFile::parse(Path::new("cluster.toml"), text);
    let _ = tidemark_server::names::parse_counter(text);
    if let Ok(address) = text.parse::<HostPort>() {
        assert_eq!(address.to_string().parse(), Ok(address), "an address that is another one when it is read again");
    }
    static KEYS: LazyLock<SessionKeys> =
        LazyLock::new(|| SessionKeys::random().expect("the system gives random bytes"));
    assert!(KEYS.verify(text).is_err() && Hop::verify(&KEYS, text).is_err(), "a token that nobody has signed");
}

/// Rows of text with lines that only go up, up to an error.
fn lines(text: Vec<u8>) {
    let naming = Naming { zone: Some("UTC".to_owned()), ..Naming::default() };
    let Ok(mut lines) =
        Text::open(std::io::Cursor::new(text)).map_err(Into::into).and_then(|text| Lines::new(text, &naming))
    else {
        return;
    };
    let mut before = 0;
    while let Ok(Some(row)) = lines.next_row() {
        assert!(row.line > before, "a row in the line of the one before");
        before = row.line;
    }
}

fn group_config() -> GroupConfig {
    GroupConfig::new(GroupId { dc: DcId(1), group: 0, incarnation: 1 }, 2)
}

/// Cuts bytes into pieces, each led by its length in two bytes.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        Some(piece)
    })
}

/// Pieces by pairs: key and value.
fn rows(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pieces = pieces(bytes).map(<[u8]>::to_vec);
    std::iter::from_fn(|| Some((pieces.next()?, pieces.next()?))).collect()
}

/// A file of Parquet, and the metadata of one: rows one after the other, and nothing behind an error.
#[cfg(feature = "parquet")]
pub fn parquet(bytes: &[u8]) {
    let metadata = [b"PAR1", bytes, &(bytes.len() as u32).to_le_bytes(), b"PAR1"].concat();
    for file in [bytes.to_vec(), metadata] {
        let Ok(mut rows) = Rows::open(Bytes::from(file), &Naming::default()) else { continue };
        for number in 1..=ROWS_READ_MAX {
            match rows.next_row() {
                Ok(Some(row)) => assert_eq!(row.line, number),
                Ok(None) => break,
                Err(_) => {
                    assert!(rows.next_row().is_err(), "a row behind an error");
                    break;
                }
            }
        }
    }
}
