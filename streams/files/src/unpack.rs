//! The kind of a file by its first bytes, and its text: unpacked, of gzip and zstd. Other kinds of files are refused by name, with what to
//! do.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// Bytes that are read of a file at a time.
pub const BUFFER_BYTES: usize = 256 << 10;
/// The first bytes of a file of Parquet.
pub const PARQUET_MAGIC: &[u8] = b"PAR1";
/// Bytes at the beginning of a text that say what it is: its first line, and where tar writes that it is tar.
const BEGIN_BYTES: usize = 16 << 10;
const TAR_AT: usize = 257;
/// Base-2 logarithm of the longest window of zstd, which is held in memory: 128 MiB, as `zstd` itself allows.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Behind one byte from 0x50 to 0x5f.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];

/// First bytes of files that are not read, what they are, and what to do.
const REFUSED: &[(&[u8], &str, &str)] = &[
    (b"\xfd7zXZ\x00", "xz", "unpack it with `xz -d`, or pack it with zstd or gzip"),
    (b"PK\x03\x04", "zip (or a spreadsheet)", "unpack it with `unzip`; of a spreadsheet, save the sheet as CSV"),
    (b"PK\x05\x06", "an empty zip archive", "name the file that is meant"),
    (b"\x04\x22\x4d\x18", "lz4", "unpack it with `lz4 -d`, or pack it with zstd or gzip"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy", "unpack it, or pack it with zstd or gzip"),
    (b"7z\xbc\xaf\x27\x1c", "7z", "unpack it with `7z x`"),
    (b"\x1f\x9d", "compress (.Z)", "unpack it with `gzip -d`"),
    (b"Obj\x01", "Avro", "write it as Parquet, CSV or JSON lines"),
    (b"ARROW1\x00\x00", "Arrow", "write it as Parquet, CSV or JSON lines"),
    (b"SQLite format 3\x00", "a SQLite database", "write the table as CSV: `sqlite3 -header -csv`"),
    (b"\xff\xfe", "UTF-16 text", "convert it with `iconv -f UTF-16 -t UTF-8`"),
    (b"\xfe\xff", "UTF-16 text", "convert it with `iconv -f UTF-16 -t UTF-8`"),
];

/// Why a file is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the file is {what}, which is not read: {advice}")]
    Kind { what: &'static str, advice: &'static str },
    #[error("the file is {outer} with {inner} inside: unpack it once, and load what comes out")]
    Nested { outer: &'static str, inner: &'static str },
}

/// A text from its beginning, behind a byte order mark.
pub struct Text {
    pub reader: Box<dyn BufRead + Send>,
    /// The first bytes, up to `BEGIN_BYTES`.
    pub begin: Vec<u8>,
}

/// How a whole file is packed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packed {
    Gzip,
    Zstd,
}

fn packed(begin: &[u8]) -> Option<Packed> {
    if begin.starts_with(GZIP) {
        return Some(Packed::Gzip);
    }
    let is_skippable =
        begin.first().is_some_and(|first| first & 0xf0 == 0x50) && begin[1..].starts_with(ZSTD_SKIPPABLE);
    (begin.starts_with(ZSTD) || is_skippable).then_some(Packed::Zstd)
}

impl Packed {
    fn name(self) -> &'static str {
        match self {
            Packed::Gzip => "gzip",
            Packed::Zstd => "zstd",
        }
    }
}

impl Text {
    /// The text of a file that is not Parquet.
    pub fn open(reader: impl BufRead + Send + 'static) -> Result<Text, io::Error> {
        let (begin, reader) = begin_of(reader)?;
        let Some(packed) = packed(&begin) else { return Text::plain(begin, reader) };
        let decoder: Box<dyn Read + Send> = match packed {
            Packed::Gzip => Box::new(Gzip { member: Some(GzDecoder::new(reader)) }),
            Packed::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(Zstd(decoder))
            }
        };
        let (begin, reader) = begin_of(BufReader::with_capacity(BUFFER_BYTES, decoder))?;
        let inner = match self::packed(&begin) {
            Some(inner) => Some(inner.name()),
            None if begin.starts_with(PARQUET_MAGIC) => Some("Parquet"),
            None => refused(&begin).map(|(_, what, _)| *what).filter(|what| *what != "UTF-16 text"),
        };
        match inner {
            Some(inner) => Err(unreadable(Unreadable::Nested { outer: packed.name(), inner })),
            None => Text::plain(begin, reader),
        }
    }

    fn plain(mut begin: Vec<u8>, mut reader: impl BufRead + Send + 'static) -> Result<Text, io::Error> {
        if let Some((_, what, advice)) = refused(&begin) {
            return Err(unreadable(Unreadable::Kind { what, advice }));
        }
        // Text of one byte a letter has no zeros among its first letters.
        if begin.iter().take(4).any(|byte| *byte == 0) && begin.len() >= 4 {
            let what = "UTF-16 text, or no text";
            let advice = "convert it with `iconv -f UTF-16LE -t UTF-8`";
            return Err(unreadable(Unreadable::Kind { what, advice }));
        }
        if begin.starts_with(UTF8_MARK) {
            reader.read_exact(&mut [0; UTF8_MARK.len()])?;
            begin.drain(..UTF8_MARK.len());
        }
        Ok(Text { reader: Box::new(reader), begin })
    }
}

fn unreadable(why: Unreadable) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn refused(begin: &[u8]) -> Option<&'static (&'static [u8], &'static str, &'static str)> {
    const TAR: (&[u8], &str, &str) = (b"ustar", "a tar archive", "unpack it with `tar -x`");
    const BZIP2: (&[u8], &str, &str) = (b"BZh", "bzip2", "unpack it with `bzip2 -d`, or pack it with zstd or gzip");
    // Behind its level from 1 to 9: of a block, or of an end without one.
    const BZIP2_NEXT: [&[u8]; 2] = [b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"];
    if begin.get(TAR_AT..).is_some_and(|rest| rest.starts_with(TAR.0)) {
        return Some(&TAR);
    }
    if begin.starts_with(BZIP2.0)
        && begin.get(4..).is_some_and(|rest| BZIP2_NEXT.iter().any(|next| rest.starts_with(next)))
    {
        return Some(&BZIP2);
    }
    REFUSED.iter().find(|(magic, ..)| begin.starts_with(magic))
}

/// The first bytes, and a reader that gives them again.
fn begin_of<R: BufRead + Send>(mut reader: R) -> io::Result<(Vec<u8>, impl BufRead + Send + use<R>)> {
    let mut begin = Vec::new();
    reader.by_ref().take(BEGIN_BYTES as u64).read_to_end(&mut begin)?;
    Ok((begin.clone(), Cursor::new(begin).chain(reader)))
}

/// The members of a gzip file, one after the other, with zeros behind each, as tapes leave them. Anything else behind a member is an error.
struct Gzip<R> {
    /// `None`: all are read.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("gzip: {error}"));
        while let Some(member) = &mut self.member {
            let read = member.read(buffer).map_err(named)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut reader) = self.member.take().map(GzDecoder::into_inner) else { break };
            self.member = match skip_zeros(&mut reader)? {
                None => None,
                Some(first) if first == GZIP[0] => Some(GzDecoder::new(reader)),
                Some(_) => {
                    let why = "gzip: other bytes stand behind its end: the file is damaged, or two files in one";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            };
        }
        Ok(0)
    }
}

/// The first byte that is not zero, which stays where it is.
fn skip_zeros(reader: &mut impl BufRead) -> io::Result<Option<u8>> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        let first = buffer.get(zeros).copied();
        reader.consume(zeros);
        if first.is_some() {
            return Ok(first);
        }
    }
}

/// Frames of zstd, with errors that say what to do.
struct Zstd<R: BufRead>(zstd::stream::read::Decoder<'static, R>);

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| {
            let text = error.to_string();
            let advice = match text.contains("too much memory") {
                true => ": its window is longer than 128 MiB: pack it again with `zstd --long=27` or without `--long`",
                false => "",
            };
            io::Error::new(error.kind(), format!("zstd: {text}{advice}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn text(bytes: &[u8]) -> Result<String, String> {
        let mut text = Text::open(Cursor::new(bytes.to_vec())).map_err(|error| error.to_string())?;
        let mut all = String::new();
        text.reader.read_to_string(&mut all).map_err(|error| error.to_string())?;
        assert!(all.as_bytes().starts_with(&text.begin));
        Ok(all)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        gzip.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 1).unwrap()
    }

    #[test]
    fn gzip_is_read_with_members_and_zeros_and_nothing_else_behind() {
        let one = gzip(b"one\n");
        let two = gzip(b"two\n");
        let none = gzip(b"");
        assert_eq!(text(&[&one[..], &none, &two].concat()).as_deref(), Ok("one\ntwo\n"));
        assert_eq!(text(&[&one[..], &[0; 700_000]].concat()).as_deref(), Ok("one\n"));
        assert_eq!(text(&[&one[..], &[0; 3], &two, &[0]].concat()).as_deref(), Ok("one\ntwo\n"));
        assert!(text(&[&one[..], b"more"].concat()).unwrap_err().contains("other bytes stand behind its end"));
        assert!(text(&[&one[..], &two[..two.len() - 1]].concat()).is_err());
        let mut damaged = one.clone();
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        assert!(text(&damaged).is_err());
    }

    #[test]
    fn zstd_is_read_with_skippable_frames_also_in_front() {
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let one = zstd(b"one\n");
        let two = zstd(b"two\n");
        for frames in [vec![&skippable, &one, &two], vec![&one, &skippable, &two, &skippable]] {
            assert_eq!(text(&frames.into_iter().flatten().copied().collect::<Vec<_>>()).as_deref(), Ok("one\ntwo\n"));
        }
        assert!(text(&one[..one.len() - 1]).is_err());
        assert!(text(&[&one[..], b"more"].concat()).is_err());
        // A frame with a window of 2^28 bytes.
        let wide = text(&[0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 1, 0, 0]).unwrap_err();
        assert!(wide.contains("longer than 128 MiB"), "{wide}");
    }

    #[test]
    fn other_kinds_of_files_are_refused_by_name_and_say_what_to_do() {
        for (bytes, what, todo) in [
            (&b"\xfd7zXZ\x00\x00"[..], "xz", "xz -d"),
            (b"BZh91AY&SY", "bzip2", "bzip2 -d"),
            (b"PK\x03\x04\x14", "zip", "unzip"),
            (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
            (b"Obj\x01", "Avro", "Parquet"),
            (b"\xff\xfec\x00o\x00", "UTF-16", "iconv"),
            (b"\xfe\xff\x00c", "UTF-16", "iconv"),
            (b"c\x00o\x00u\x00", "UTF-16", "iconv"),
        ] {
            let error = text(bytes).unwrap_err();
            assert!(error.contains(what) && error.contains(todo), "{error}");
        }
        let mut tar = vec![b'a'; 512];
        tar[TAR_AT..TAR_AT + 5].copy_from_slice(b"ustar");
        assert!(text(&tar).unwrap_err().contains("tar -x"));
        let nested = |bytes: &[u8]| text(bytes).unwrap_err();
        assert_eq!(
            nested(&gzip(&zstd(b"a"))),
            "the file is gzip with zstd inside: unpack it once, and load what comes out"
        );
        assert!(nested(&zstd(&gzip(b"a"))).contains("zstd with gzip inside"));
        assert!(nested(&zstd(b"PAR1")).contains("zstd with Parquet inside"));
        assert!(nested(&gzip(&tar)).contains("gzip with a tar archive inside"));
        assert!(nested(&gzip(b"\xff\xfec\x00")).contains("UTF-16"));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(text(b"\xef\xbb\xbfa,b\n").as_deref(), Ok("a,b\n"));
        assert_eq!(text(&gzip(b"\xef\xbb\xbf{}\n")).as_deref(), Ok("{}\n"));
        assert_eq!((text(b"").as_deref(), text(b"a").as_deref()), (Ok(""), Ok("a")));
    }
}
