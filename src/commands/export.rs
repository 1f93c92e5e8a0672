//! `tidemark export`: what counters have counted, as a file that `tidemark load` reads.

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
/// What is in no bucket is written with this time, which no policy keeps: it counts in totals only, where late events do.
const BEFORE_ALL: &str = "1970-01-01T00:00:00Z";

/// Arguments of `tidemark export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// NAMESPACE/ or NAMESPACE/PREFIX
    prefix: String,
    /// File to write; it is there once it is whole
    #[arg(long)]
    out: PathBuf,
    /// How rows are written; left out: by the name, .csv or .ndjson before .gz or .zst
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// How the file is compressed; left out: by the name, .gz or .zst
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
        let mut sink = Sink::new(File::create(&part).map_err(failed)?, compress).map_err(failed)?;
        let written = export(&args, format, &mut sink).await?;
        sink.finish().and_then(|file| file.sync_all()).map_err(failed)?;
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
    let format = match (args.format, of_rows.as_deref()) {
        (Some(format), _) => format,
        (None, Some("csv")) => FormatArg::Csv,
        (None, Some("ndjson" | "jsonl")) => FormatArg::Ndjson,
        _ => return Err(format!("--out {:?}: .csv or .ndjson expected, or --format", args.out.display().to_string())),
    };
    Ok((format, args.compress.unwrap_or(by_name)))
}

async fn export(args: &ExportArgs, format: FormatArg, sink: &mut Sink) -> Result<Written, Box<dyn std::error::Error>> {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (mut written, mut after) = (Written::default(), None::<String>);
    if format == FormatArg::Csv {
        sink.write_all(b"counter,delta,at\n")?;
    }
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
            for (half, sign) in [(&counter.up, ""), (&counter.down, "-")] {
                written.rows += rows(sink, format, &counter.counter, half, sign)?;
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
fn rows(sink: &mut Sink, format: FormatArg, counter: &str, half: &HalfBody, sign: &str) -> io::Result<u64> {
    // Escapes read as the same key, and leave each row in one line.
    let counter = counter.replace('\n', "%0A").replace('\r', "%0D");
    let mut written = 0;
    let parts = half.parts.iter().map(|(at, delta)| (*delta, at.to_string()));
    let rest = Some((half.rest, BEFORE_ALL.to_owned())).filter(|(rest, _)| *rest > 0);
    for (delta, at) in parts.chain(rest) {
        match format {
            FormatArg::Csv => {
                let quoted = counter.replace('"', "\"\"");
                writeln!(sink, "\"{quoted}\",{sign}{delta},{at}")?;
            }
            FormatArg::Ndjson => {
                let counter = serde_json::Value::from(counter.as_str());
                writeln!(sink, "{{\"counter\":{counter},\"delta\":{sign}{delta},\"at\":\"{at}\"}}")?;
            }
        }
        written += 1;
    }
    Ok(written)
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
    use clap::Parser;

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
        assert_eq!(chosen_by("a.gz"), Err("--out \"a.gz\": .csv or .ndjson expected, or --format".to_owned()));
    }
}
