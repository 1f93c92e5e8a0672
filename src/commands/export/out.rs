//! Rows of an export as they are written: lines, plain or compressed, or Parquet.

use super::{Compress, FormatArg};
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};

/// Level of zstd, its usual one.
pub const ZSTD_LEVEL: i32 = 3;
/// The time 0, as lines say it.
const BEFORE_ALL: &str = "1970-01-01T00:00:00Z";

/// A row as it is written.
pub struct Row<'a> {
    pub counter: &'a str,
    pub is_down: bool,
    pub delta: u64,
    /// Seconds since 1970; `None` of what is in no bucket, which is written with the time 0, that no policy keeps: it counts in totals only,
    /// where late events do.
    pub at: Option<u64>,
}

/// Where rows go.
pub enum Out {
    Csv(Sink),
    Ndjson(Sink),
    #[cfg(feature = "parquet")]
    Parquet(super::parquet::Rows),
}

impl Out {
    /// Behind what is in a file. It begins with the names of columns.
    pub fn new(mut file: File, format: FormatArg, compress: Compress) -> io::Result<Out> {
        let is_begin = file.stream_position()? == 0;
        Ok(match format {
            FormatArg::Csv => {
                let mut sink = Sink::new(file, compress)?;
                if is_begin {
                    sink.write_all(b"counter,delta,at\n")?;
                }
                Out::Csv(sink)
            }
            FormatArg::Ndjson => Out::Ndjson(Sink::new(file, compress)?),
            #[cfg(feature = "parquet")]
            FormatArg::Parquet => Out::Parquet(super::parquet::Rows::new(file, compress)?),
            #[cfg(not(feature = "parquet"))]
            FormatArg::Parquet => return Err(io::Error::other(crate::load::rows::NO_PARQUET)),
        })
    }

    /// Writes a row; its bytes, before they are compressed.
    pub fn row(&mut self, row: &Row<'_>) -> io::Result<u64> {
        let in_line = || in_line(row.counter);
        let sign = if row.is_down { "-" } else { "" };
        let delta = row.delta;
        let at = row.at.map_or(BEFORE_ALL.to_owned(), |at| at.to_string());
        let (sink, line) = match self {
            Out::Csv(sink) => (sink, format!("\"{}\",{sign}{delta},{at}\n", in_line().replace('"', "\"\""))),
            Out::Ndjson(sink) => {
                let counter = serde_json::Value::from(in_line());
                (sink, format!("{{\"counter\":{counter},\"delta\":{sign}{delta},\"at\":\"{at}\"}}\n"))
            }
            #[cfg(feature = "parquet")]
            Out::Parquet(rows) => {
                rows.row(row)?;
                return Ok((row.counter.len() + 2 * size_of::<i64>()) as u64);
            }
        };
        sink.write_all(line.as_bytes())?;
        Ok(line.len() as u64)
    }

    /// Ends what is compressed as a whole. More may stand behind it, as lines, members of gzip and frames of zstd are read one after the
    /// other.
    pub fn finish(self) -> io::Result<File> {
        match self {
            Out::Csv(sink) | Out::Ndjson(sink) => sink.finish(),
            #[cfg(feature = "parquet")]
            Out::Parquet(rows) => rows.finish(),
        }
    }
}

/// A file, plain or compressed.
pub enum Sink {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

impl Sink {
    fn new(file: File, compress: Compress) -> io::Result<Sink> {
        let file = BufWriter::new(file);
        Ok(match compress {
            Compress::None => Sink::Plain(file),
            Compress::Gzip => Sink::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default())),
            Compress::Zstd => Sink::Zstd(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?),
        })
    }

    fn finish(self) -> io::Result<File> {
        let file = match self {
            Sink::Plain(file) => file,
            Sink::Gzip(encoder) => encoder.finish()?,
            Sink::Zstd(encoder) => encoder.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(file) => file.write(bytes),
            Sink::Gzip(encoder) => encoder.write(bytes),
            Sink::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(file) => file.flush(),
            Sink::Gzip(encoder) => encoder.flush(),
            Sink::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// A counter's name with escapes that read as the same key: each row stays in one line, and blanks at the end are not taken for padding.
fn in_line(counter: &str) -> String {
    let (kept, blanks) = counter.split_at(counter.trim_end().len());
    let escaped: String = blanks.bytes().map(|byte| format!("%{byte:02X}")).collect();
    kept.replace('\n', "%0A").replace('\r', "%0D") + &escaped
}
