//! A file of the archive: a magic number, a header, the entries behind a length each, packed by zstd, and a checksum of all that.

use crate::codec::{self, DecodeError};
use crate::entry::Head;
use crate::limits::{ENTRY_BYTES_MAX, RAW_DIRECTORY_BYTES_MAX, ZSTD_WINDOW_LOG_MAX};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"TideRaw1";
const HEADER_VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 8;
/// The header is a few numbers and the id of the directory.
const HEADER_BYTES_MAX: usize = RAW_DIRECTORY_BYTES_MAX + 64;
const LEVEL: i32 = 3;
const ENDING: &str = ".raw";

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName {
    /// Rows `from` to `to` of the log, `to` not included.
    pub from: u64,
    pub to: u64,
    /// When the first and the last of its entries were accepted, in milliseconds since 1970.
    pub first_ms: u64,
    pub last_ms: u64,
    /// The file holds no rows of the first erasures of the directory, up to this number.
    pub erasures: u64,
}

/// What a file says of itself. A rename after a look for erased rows changes the name only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    directory: Cow<'a, str>,
    from: u64,
    to: u64,
    first_ms: u64,
    last_ms: u64,
    entries: u64,
}

/// Why the bytes of a file are not those of its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("it is no file of the archive")]
    Magic,
    #[error("it has {bytes} bytes: its end is missing")]
    Short { bytes: usize },
    #[error("its checksum is {found:016x}, and it says {said:016x}")]
    Checksum { found: u64, said: u64 },
    #[error("its header: {0}")]
    Header(DecodeError),
    #[error("it is of directory {found}, and this one is {expected}")]
    OtherDirectory { found: String, expected: String },
    #[error("it holds rows {from} to {to}, which its name does not say")]
    OtherName { from: u64, to: u64 },
    #[error("its entries cannot be unpacked: {0}")]
    Packed(String),
    #[error("an entry of {bytes} bytes: at most {ENTRY_BYTES_MAX}")]
    Long { bytes: u64 },
    #[error("its entry {number}: {error}")]
    Entry { number: u64, error: DecodeError },
    #[error("its entry {number} has rows {from} to {to}, which do not follow those before")]
    Order { number: u64, from: u64, to: u64 },
    #[error("it has other than {said} entries")]
    Entries { said: u64 },
}

/// No name of a file of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no name of a file of the archive")]
pub struct NoFileName;

/// Packs the entries of a file.
pub struct FileWriter {
    packer: zstd::stream::write::Encoder<'static, Vec<u8>>,
    entries: u64,
    bytes: u64,
}

/// The bytes of a file with the right checksum and header.
pub struct RawFile<'b> {
    name: FileName,
    entries: u64,
    packed: &'b [u8],
}

impl FileName {
    /// The name of one file in place of neighbours.
    pub fn joined(neighbours: &[FileName], erasures: u64) -> Option<FileName> {
        let first = neighbours.first()?;
        let FileName { to, last_ms, .. } = *neighbours.last()?;
        Some(FileName { to, last_ms, erasures, ..*first })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileName { from, to, first_ms, last_ms, erasures } = self;
        write!(f, "{from:020}-{to:020}-{first_ms:013}-{last_ms:013}-{erasures}{ENDING}")
    }
}

impl FromStr for FileName {
    type Err = NoFileName;

    fn from_str(text: &str) -> Result<FileName, NoFileName> {
        let stem = text.strip_suffix(ENDING).ok_or(NoFileName)?;
        let numbers: Result<Vec<u64>, _> = stem.split('-').map(str::parse).collect();
        let numbers: [u64; 5] = numbers.map_err(|_| NoFileName)?.try_into().map_err(|_| NoFileName)?;
        let [from, to, first_ms, last_ms, erasures] = numbers;
        let name = FileName { from, to, first_ms, last_ms, erasures };
        // Each file has one name.
        match from < to && first_ms <= last_ms && name.to_string() == text {
            true => Ok(name),
            false => Err(NoFileName),
        }
    }
}

impl FileWriter {
    /// # Errors
    /// zstd has no memory.
    pub fn new() -> io::Result<FileWriter> {
        Ok(FileWriter { packer: zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?, entries: 0, bytes: 0 })
    }

    /// Bytes of its entries, before they are packed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an entry of the log with the next rows.
    ///
    /// # Errors
    /// As of [`FileWriter::new`].
    pub fn push(&mut self, entry: &[u8]) -> io::Result<()> {
        self.packer.write_all(&(entry.len() as u32).to_le_bytes())?;
        self.packer.write_all(entry)?;
        self.entries += 1;
        self.bytes += entry.len() as u64;
        Ok(())
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// As of [`FileWriter::new`].
    pub fn finish(self, directory: &str, name: &FileName) -> io::Result<Vec<u8>> {
        let FileName { from, to, first_ms, last_ms, erasures: _ } = *name;
        let header = Header { directory: directory.into(), from, to, first_ms, last_ms, entries: self.entries };
        let header = codec::encode(HEADER_VERSION, &header);
        let packed = self.packer.finish()?;
        let mut file = Vec::with_capacity(MAGIC.len() + 4 + header.len() + packed.len() + CHECKSUM_BYTES);
        file.extend_from_slice(&MAGIC);
        file.extend_from_slice(&(header.len() as u32).to_le_bytes());
        file.extend_from_slice(&header);
        file.extend_from_slice(&packed);
        Ok(with_checksum(file))
    }
}

/// The bytes of a file with their checksum behind them.
pub fn with_checksum(mut file: Vec<u8>) -> Vec<u8> {
    let checksum = xxh3_64(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    file
}

impl<'b> RawFile<'b> {
    /// Checks that bytes are those of a whole file of a directory.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(bytes: &'b [u8], directory: &str, name: &FileName) -> Result<RawFile<'b>, FileError> {
        let short = || FileError::Short { bytes: bytes.len() };
        if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
            return Err(FileError::Magic);
        }
        let (content, said) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(short)?;
        let said = u64::from_le_bytes(*said);
        let found = xxh3_64(content);
        if found != said {
            return Err(FileError::Checksum { found, said });
        }
        let rest = content.get(MAGIC.len()..).ok_or_else(short)?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let length = u32::from_le_bytes(*length) as usize;
        codec::at_most("bytes of a header:", length, HEADER_BYTES_MAX).map_err(FileError::Header)?;
        let (header, packed) = rest.split_at_checked(length).ok_or_else(short)?;
        let header: Header<'_> = codec::decode(HEADER_VERSION, header).map_err(FileError::Header)?;
        let Header { directory: found, from, to, first_ms, last_ms, entries } = header;
        if found != directory {
            return Err(FileError::OtherDirectory { found: found.into_owned(), expected: directory.to_owned() });
        }
        if (FileName { from, to, first_ms, last_ms, erasures: name.erasures }) != *name {
            return Err(FileError::OtherName { from, to });
        }
        Ok(RawFile { name: *name, entries, packed })
    }

    /// Gives all entries, in the order of their rows, with their heads.
    ///
    /// # Errors
    /// [`FileError`], or what `visit` gives.
    pub fn entries<E: From<FileError>>(&self, mut visit: impl FnMut(&Head, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let packed = |error: io::Error| FileError::Packed(error.to_string());
        let mut reader = zstd::stream::read::Decoder::with_buffer(self.packed).map_err(packed)?;
        reader.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(packed)?;
        let mut entry = Vec::new();
        let mut next = self.name.from;
        for number in 1..=self.entries {
            let mut length = [0; 4];
            reader.read_exact(&mut length).map_err(packed)?;
            let bytes = u64::from(u32::from_le_bytes(length));
            if bytes > ENTRY_BYTES_MAX as u64 {
                return Err(FileError::Long { bytes }.into());
            }
            entry.clear();
            // A length that is too large takes no memory beyond the bytes that are there.
            let found = reader.by_ref().take(bytes).read_to_end(&mut entry).map_err(packed)?;
            if found as u64 != bytes {
                return Err(FileError::Entries { said: self.entries }.into());
            }
            let head = Head::decode(&entry).map_err(|error| FileError::Entry { number, error })?;
            let Head { first_row: from, .. } = head;
            let to = head.end_row();
            if from < next || to > self.name.to {
                return Err(FileError::Order { number, from, to }.into());
            }
            next = to;
            visit(&head, &entry)?;
        }
        match reader.read(&mut [0]).map_err(packed)? {
            0 => Ok(()),
            _ => Err(FileError::Entries { said: self.entries }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Batch, Event};

    const NAME: FileName = FileName { from: 40, to: 44, first_ms: 7, last_ms: 9, erasures: 0 };

    fn entry(first_row: u64, rows: usize, at_ms: u64) -> Vec<u8> {
        let event = Event::Broken { reason: "no JSON".into(), text: "{".into() };
        Batch { events: vec![event; rows], ..Batch::default() }.encode(first_row, at_ms)
    }

    fn file(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = FileWriter::new().unwrap();
        entries.iter().for_each(|entry| writer.push(entry).unwrap());
        writer.finish("here", &NAME).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, FileError> {
        let mut entries = Vec::new();
        RawFile::open(bytes, "here", &NAME)?.entries(|_, entry| {
            entries.push(entry.to_owned());
            Ok::<(), FileError>(())
        })?;
        Ok(entries)
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        let text = "00000000000000000040-00000000000000000044-0000000000007-0000000000009-0.raw";
        assert_eq!((NAME.to_string().as_str(), text.parse()), (text, Ok(NAME)));
        let last = FileName { from: 0, to: u64::MAX, first_ms: 0, last_ms: u64::MAX, erasures: u64::MAX };
        assert_eq!(last.to_string().parse(), Ok(last));
        for other in ["", "new", "40-44-7-9-0.raw", &text[1..], &text.replace("44", "40"), &text.replace("07", "10")] {
            assert_eq!(other.parse::<FileName>(), Err(NoFileName), "{other}");
        }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let entries = [entry(40, 1, 7), entry(42, 2, 9)];
        assert_eq!(read(&file(&entries)), Ok(entries.to_vec()));
        assert_eq!(read(&file(&[])), Ok(Vec::new()), "all rows may be erased");
    }

    #[test]
    fn damaged_files_are_refused() {
        let bytes = file(&[entry(40, 4, 7)]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(read(&bytes).is_err(), "changed at {at}");
        }
        assert_eq!(read(&file(&[entry(41, 4, 7)])), Err(FileError::Order { number: 1, from: 41, to: 45 }));
        let repeated = file(&[entry(40, 2, 7), entry(41, 2, 7)]);
        assert_eq!(read(&repeated), Err(FileError::Order { number: 2, from: 41, to: 43 }));
    }

    #[test]
    fn files_of_other_directories_and_names_are_refused() {
        let bytes = file(&[entry(40, 4, 7)]);
        let other = RawFile::open(&bytes, "there", &NAME).err();
        assert_eq!(other, Some(FileError::OtherDirectory { found: "here".into(), expected: "there".into() }));
        let name = FileName { to: 45, ..NAME };
        assert_eq!(RawFile::open(&bytes, "here", &name).err(), Some(FileError::OtherName { from: 40, to: 44 }));
        let cleaned = FileName { erasures: 3, ..NAME };
        assert!(RawFile::open(&bytes, "here", &cleaned).is_ok(), "a rename says that it was looked through");
    }
}
