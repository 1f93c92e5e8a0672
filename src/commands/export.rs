//! `tidemark export`: what counters have counted, as a file that `tidemark load` reads.

#[cfg(feature = "parquet")]
mod parquet;

use super::remote::Remote;
use super::{Outcome, block_on};
use crate::http::series::{ExportBody, HalfBody};
use clap::{Args, ValueEnum};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Level of zstd, its usual one.
const ZSTD_LEVEL: i32 = 3;
/// The time 0, as lines say it.
const BEFORE_ALL: &str = "1970-01-01T00:00:00Z";

/// Arguments of `tidemark export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// NAMESPACE/ or NAMESPACE/PREFIX
    prefix: String,
    /// File to write; it is there once it is whole
    #[arg(long)]
    out: PathBuf,
    /// How rows are written; left out: by the name, .csv or .ndjson before .gz or .zst, or .parquet (in a build with that feature)
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// How the file is compressed; left out: by the name, .gz or .zst. Pages of Parquet are compressed, and by zstd if it is left out
    #[arg(long, value_enum)]
    compress: Option<Compress>,
    /// Counters that are read at one instant, 1 to 1000
    #[arg(long, default_value_t = 100)]
    page: u32,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    Csv,
    Ndjson,
    Parquet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compress {
    None,
    Gzip,
    Zstd,
}

/// What was written.
#[derive(Debug, Default, serde::Serialize)]
struct Written {
    counters: u64,
    rows: u64,
    /// Weight, up and down, that is in no bucket.
    rest: u128,
    /// When the first and the last page were read.
    from_unix_ms: u64,
    to_unix_ms: u64,
}

pub fn run(args: ExportArgs) -> Outcome {
    block_on(async {
        let (format, compress) = chosen(&args)?;
        let mut part = args.out.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let failed = |error: io::Error| format!("{}: {error}", part.display());
        let file = File::create(&part).map_err(failed)?;
        let mut out = Out::new(file, format, compress).map_err(failed)?;
        let written = export(&args, &mut out).await?;
        out.finish().and_then(|file| file.sync_all()).map_err(failed)?;
        std::fs::rename(&part, &args.out).map_err(failed)?;
        super::show(args.remote.json, &written, || {
            let Written { counters, rows, rest, .. } = &written;
            format!("{counters} counters in {rows} rows; {rest} is in no bucket any more")
        })?;
        Ok(ExitCode::SUCCESS)
    })
}

/// By flags, else by the name.
fn chosen(args: &ExportArgs) -> Result<(FormatArg, Compress), String> {
    let ending = |path: &Path| path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
    let (outer, inner) = (ending(&args.out), args.out.file_stem().map(Path::new).and_then(ending));
    let (by_name, of_rows) = match outer.as_deref() {
        Some("gz") => (Compress::Gzip, inner),
        Some("zst") => (Compress::Zstd, inner),
        _ => (Compress::None, outer),
    };
    let shown = args.out.display().to_string();
    let format = match (args.format, of_rows.as_deref()) {
        (Some(format), _) => format,
        (None, Some("csv")) => FormatArg::Csv,
        (None, Some("ndjson" | "jsonl")) => FormatArg::Ndjson,
        (None, Some("parquet")) => FormatArg::Parquet,
        _ => return Err(format!("--out {shown:?}: .csv, .ndjson or .parquet expected, or --format")),
    };
    let compress = match (format, by_name) {
        (FormatArg::Parquet, Compress::None) => Compress::Zstd,
        (FormatArg::Parquet, _) => {
            return Err(format!("--out {shown:?}: Parquet is compressed inside: .parquet expected, and --compress"));
        }
        _ => by_name,
    };
    #[cfg(not(feature = "parquet"))]
    if format == FormatArg::Parquet {
        return Err(format!("Parquet: {}", crate::load::rows::NO_PARQUET));
    }
    Ok((format, args.compress.unwrap_or(compress)))
}

async fn export(args: &ExportArgs, out: &mut Out) -> Result<Written, Box<dyn std::error::Error>> {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (mut written, mut after) = (Written::default(), None::<String>);
    loop {
        let behind = after.as_deref().map_or(String::new(), |key| format!("&after={}", escaped(key)));
        let path = format!("/v1/export?prefix={}&limit={}{behind}", escaped(&args.prefix), args.page);
        let page: ExportBody = args.remote.get(&path).await?;
        if written.from_unix_ms == 0 {
            written.from_unix_ms = page.at_unix_ms;
        }
        written.to_unix_ms = page.at_unix_ms;
        for counter in &page.counters {
            written.counters += 1;
            for (half, is_down) in [(&counter.up, false), (&counter.down, true)] {
                written.rows += rows(out, &counter.counter, half, is_down)?;
                written.rest += u128::from(half.rest);
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(written),
        }
    }
}

/// Writes one half of a counter; how many rows.
fn rows(out: &mut Out, counter: &str, half: &HalfBody, is_down: bool) -> io::Result<u64> {
    let mut written = 0;
    let parts = half.parts.iter().map(|(at, delta)| (*delta, Some(*at)));
    let rest = Some((half.rest, None)).filter(|(rest, _)| *rest > 0);
    for (delta, at) in parts.chain(rest) {
        out.row(&Row { counter, is_down, delta, at })?;
        written += 1;
    }
    Ok(written)
}

/// A row as it is written.
struct Row<'a> {
    counter: &'a str,
    is_down: bool,
    delta: u64,
    /// Seconds since 1970; `None` of what is in no bucket, which is written with the time 0, that no policy keeps: it counts in totals only,
    /// where late events do.
    at: Option<u64>,
}

/// Where rows go.
enum Out {
    Csv(Sink),
    Ndjson(Sink),
    #[cfg(feature = "parquet")]
    Parquet(parquet::Rows),
}

impl Out {
    fn new(file: File, format: FormatArg, compress: Compress) -> io::Result<Out> {
        Ok(match format {
            FormatArg::Csv => {
                let mut sink = Sink::new(file, compress)?;
                sink.write_all(b"counter,delta,at\n")?;
                Out::Csv(sink)
            }
            FormatArg::Ndjson => Out::Ndjson(Sink::new(file, compress)?),
            #[cfg(feature = "parquet")]
            FormatArg::Parquet => Out::Parquet(parquet::Rows::new(file, compress)?),
            #[cfg(not(feature = "parquet"))]
            FormatArg::Parquet => return Err(io::Error::other(crate::load::rows::NO_PARQUET)),
        })
    }

    fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        // Escapes read as the same key, and leave each row in one line.
        let in_line = || row.counter.replace('\n', "%0A").replace('\r', "%0D");
        let sign = if row.is_down { "-" } else { "" };
        let (delta, at) = (row.delta, row.at.map_or(BEFORE_ALL.to_owned(), |at| at.to_string()));
        match self {
            Out::Csv(sink) => {
                let quoted = in_line().replace('"', "\"\"");
                writeln!(sink, "\"{quoted}\",{sign}{delta},{at}")
            }
            Out::Ndjson(sink) => {
                let counter = serde_json::Value::from(in_line());
                writeln!(sink, "{{\"counter\":{counter},\"delta\":{sign}{delta},\"at\":\"{at}\"}}")
            }
            #[cfg(feature = "parquet")]
            Out::Parquet(rows) => rows.row(row),
        }
    }

    fn finish(self) -> io::Result<File> {
        match self {
            Out::Csv(sink) | Out::Ndjson(sink) => sink.finish(),
            #[cfg(feature = "parquet")]
            Out::Parquet(rows) => rows.finish(),
        }
    }
}

/// A file, plain or compressed.
enum Sink {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Naming, Source};
    use clap::Parser;
    use tidemark_proto::series::UnixTime;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExportArgs,
    }

    #[test]
    fn how_a_file_is_written_says_its_name_or_a_flag() {
        let chosen_by = |line: &str| {
            let words = ["export", "qa/", "--out"].into_iter().chain(line.split(' '));
            chosen(&Line::try_parse_from(words).map_err(|error| error.to_string())?.args)
        };
        assert_eq!(chosen_by("a.csv"), Ok((FormatArg::Csv, Compress::None)));
        assert_eq!(chosen_by("a.ndjson.gz"), Ok((FormatArg::Ndjson, Compress::Gzip)));
        assert_eq!(chosen_by("a.CSV.zst"), Ok((FormatArg::Csv, Compress::Zstd)));
        assert_eq!(chosen_by("a --format csv --compress zstd"), Ok((FormatArg::Csv, Compress::Zstd)));
        assert_eq!(chosen_by("a.csv.gz --compress none"), Ok((FormatArg::Csv, Compress::None)));
        let neither = "--out \"a.gz\": .csv, .ndjson or .parquet expected, or --format";
        assert_eq!(chosen_by("a.gz"), Err(neither.to_owned()));
        let inside = "--out \"a.parquet.gz\": Parquet is compressed inside: .parquet expected, and --compress";
        assert_eq!(chosen_by("a.parquet.gz"), Err(inside.to_owned()));
        let parquet = ["a.parquet", "a --format parquet --compress gzip"].map(chosen_by);
        #[cfg(feature = "parquet")]
        assert_eq!(parquet, [Compress::Zstd, Compress::Gzip].map(|compress| Ok((FormatArg::Parquet, compress))));
        #[cfg(not(feature = "parquet"))]
        assert!(parquet.iter().all(|refused| refused.as_ref().is_err_and(|why| why.contains("--features parquet"))));
    }

    /// Counters whose names need care, and halves with and without a rest.
    fn write(path: &Path, format: FormatArg, compress: Compress) -> u64 {
        let mut out = Out::new(File::create_new(path).unwrap(), format, compress).unwrap();
        let half = |parts: &[(u64, u64)], rest| HalfBody { parts: parts.to_vec(), rest };
        let halves = [half(&[(60, 5), (120, 1 << 40)], 3), half(&[], 7), half(&[(86_400, 1)], 0)];
        let mut written = 0;
        for counter in ["qa/a", "qa/a,\"b\"", "qa/line\nline\r", "qa/%25%FF", "qa/\u{e4}"] {
            for (half, is_down) in halves.iter().zip([false, true, true]) {
                written += rows(&mut out, counter, half, is_down).unwrap();
            }
        }
        out.finish().unwrap();
        written
    }

    fn read(path: &Path) -> Vec<tidemark_proto::load::Row> {
        let mut source = Source::open(&File::open(path).unwrap(), &Naming::default()).unwrap();
        let rows = std::iter::from_fn(|| source.next_row().unwrap());
        rows.map(|read| read.row.unwrap()).collect()
    }

    #[test]
    fn however_it_is_written_the_same_rows_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let formats = [FormatArg::Csv, FormatArg::Ndjson].into_iter();
        #[cfg(feature = "parquet")]
        let formats = formats.chain([FormatArg::Parquet]);
        let mut first = None;
        for format in formats {
            for compress in [Compress::None, Compress::Gzip, Compress::Zstd] {
                let path = dir.path().join(format!("{format:?}.{compress:?}"));
                let written = write(&path, format, compress);
                let rows = read(&path);
                assert_eq!(
                    (rows.len() as u64, rows[2].at),
                    (written, UnixTime::from_s(0).ok()),
                    "{format:?} {compress:?}"
                );
                assert_eq!(&rows, first.get_or_insert_with(|| rows.clone()), "{format:?} {compress:?}");
            }
        }
    }
}
