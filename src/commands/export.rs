//! `tidemark export`: what counters have counted, as a file that `tidemark load` reads.

mod out;
#[cfg(feature = "parquet")]
mod parquet;
mod part;

use super::{Outcome, block_on};
use crate::load::meter::Meter;
use crate::remote::Remote;
use clap::{Args, ValueEnum};
use indicatif::HumanBytes;
use out::{Out, Row};
use part::{Part, Request};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidemark_server::http::series::{ExportBody, HalfBody};

type Fault = Box<dyn std::error::Error>;

/// Arguments of `tidemark export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Prefix of the counters: NAMESPACE/ or NAMESPACE/PREFIX
    prefix: String,
    /// File to write, which appears once it is complete; until then OUT.part and its journal hold the rows. A repeated command goes on
    /// after these rows; only Parquet begins anew
    #[arg(long)]
    out: PathBuf,
    /// Begin anew, and discard an interrupted export
    #[arg(long)]
    restart: bool,
    /// Format of the rows; Parquet needs a build with that feature [default: by the name: .csv or .ndjson before .gz or .zst, or .parquet]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Compression of the file, or of the pages in a Parquet file [default: by the name: .gz or .zst; zstd for Parquet]
    #[arg(long, value_enum)]
    compress: Option<Compress>,
    /// Number of counters that are read at one instant, 1 to 1000
    #[arg(long, default_value_t = 100)]
    page: u32,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FormatArg {
    Csv,
    Ndjson,
    // Nothing goes on behind it, so no journal has it.
    #[serde(skip)]
    Parquet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Compress {
    None,
    Gzip,
    Zstd,
}

/// Figures of the part that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    counters: u64,
    rows: u64,
    /// Of rows, before they are compressed.
    bytes: u64,
    /// Weight, up and down, that is in no bucket.
    rest: u128,
    /// When the first and the last page were read.
    from_unix_ms: u64,
    to_unix_ms: u64,
}

pub fn run(args: ExportArgs) -> Outcome {
    block_on(async {
        let (format, compress) = chosen(&args)?;
        let status: serde_json::Value = args.remote.get("/v1/status").await?;
        let cluster = status["cluster"].as_str().unwrap_or_default();
        let mut part = Part::open(&args.out, Request::new(cluster, &args.prefix, format, compress), args.restart)?;
        let written = export_shown(&args, &mut part).await.map_err(|error| -> Fault {
            match part.mark() {
                Some(mark) => format!("{error}; run again, it goes on behind {:?}", mark.after).into(),
                None => error,
            }
        })?;
        super::show(args.remote.json, &written, || {
            let Written { counters, rows, rest, .. } = &written;
            format!("{counters} counters in {rows} rows; {rest} is in no bucket any more")
        })?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Why the format of a file is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ChosenError {
    #[error("--out {out:?}: .csv, .ndjson or .parquet expected, or --format")]
    Format { out: String },
    #[error("--out {out:?}: Parquet is compressed inside: .parquet expected, and --compress")]
    CompressedParquet { out: String },
    #[cfg(not(feature = "parquet"))]
    #[error("Parquet: {}", crate::load::rows::NO_PARQUET)]
    NoParquet,
}

/// By flags, else by the name.
fn chosen(args: &ExportArgs) -> Result<(FormatArg, Compress), ChosenError> {
    let ending = |path: &Path| path.extension().and_then(|ending| ending.to_str()).map(str::to_lowercase);
    let outer = ending(&args.out);
    let inner = args.out.file_stem().map(Path::new).and_then(ending);
    let (by_name, of_rows) = match outer.as_deref() {
        Some("gz") => (Compress::Gzip, inner),
        Some("zst") => (Compress::Zstd, inner),
        _ => (Compress::None, outer),
    };
    let out = || args.out.display().to_string();
    let format = match (args.format, of_rows.as_deref()) {
        (Some(format), _) => format,
        (None, Some("csv")) => FormatArg::Csv,
        (None, Some("ndjson" | "jsonl")) => FormatArg::Ndjson,
        (None, Some("parquet")) => FormatArg::Parquet,
        _ => return Err(ChosenError::Format { out: out() }),
    };
    let compress = match (format, by_name) {
        (FormatArg::Parquet, Compress::None) => Compress::Zstd,
        (FormatArg::Parquet, _) => {
            return Err(ChosenError::CompressedParquet { out: out() });
        }
        _ => by_name,
    };
    #[cfg(not(feature = "parquet"))]
    if format == FormatArg::Parquet {
        return Err(ChosenError::NoParquet);
    }
    Ok((format, args.compress.unwrap_or(compress)))
}

/// Says how far it is.
async fn export_shown(args: &ExportArgs, part: &mut Part) -> Result<Written, Fault> {
    let label = args.out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let first = part.mark().map_or(0, |mark| {
        errln!("{label}: goes on behind {:?}", mark.after);
        mark.written.rows
    });
    let mut meter = Meter::endless(&label, first);
    let shown = |written: &Written, last: &str| {
        let Written { counters, rows, bytes, .. } = written;
        meter.tell(*rows, &format!("{counters} counters, {}, the last {last:?}", HumanBytes(*bytes)));
    };
    export(part, async |after: Option<&str>| page(args, after).await, shown).await
}

/// The page behind a key.
async fn page(args: &ExportArgs, after: Option<&str>) -> Result<ExportBody, Fault> {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let behind = after.map_or(String::new(), |key| format!("&after={}", escaped(key)));
    let path = format!("/v1/export?prefix={}&limit={}{behind}", escaped(&args.prefix), args.page);
    Ok(args.remote.get(&path).await?)
}

/// Writes all pages that there are behind what is written already. `shown` is told of each but the last one, and of its last key.
async fn export(
    part: &mut Part,
    mut pages: impl AsyncFnMut(Option<&str>) -> Result<ExportBody, Fault>,
    mut shown: impl FnMut(&Written, &str),
) -> Result<Written, Fault> {
    let begun = part.mark().map(|mark| (mark.written, Some(mark.after.clone())));
    let (mut written, mut after) = begun.unwrap_or_default();
    let mut out = part.out()?;
    loop {
        let page = pages(after.as_deref()).await?;
        written.page(&mut out, &page).map_err(|error| part.failed(error))?;
        let Some(next) = page.next else { break };
        out = part.reached(out, &next, &written)?;
        shown(&written, &next);
        after = Some(next);
    }
    part.finish(out)?;
    Ok(written)
}

impl Written {
    fn page(&mut self, out: &mut Out, page: &ExportBody) -> io::Result<()> {
        if self.from_unix_ms == 0 {
            self.from_unix_ms = page.at_unix_ms;
        }
        self.to_unix_ms = page.at_unix_ms;
        for counter in &page.counters {
            self.counters += 1;
            for (half, is_down) in [(&counter.up, false), (&counter.down, true)] {
                self.half(out, &counter.counter, half, is_down)?;
            }
        }
        Ok(())
    }

    fn half(&mut self, out: &mut Out, counter: &str, half: &HalfBody, is_down: bool) -> io::Result<()> {
        let parts = half.parts.iter().map(|(at, delta)| (*delta, Some(*at)));
        let rest = Some((half.rest, None)).filter(|(rest, _)| *rest > 0);
        for (delta, at) in parts.chain(rest) {
            self.bytes += out.row(&Row { counter, is_down, delta, at })?;
            self.rows += 1;
        }
        self.rest += u128::from(half.rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Naming, Source};
    use clap::Parser;
    use std::fs::File;
    use std::io::Write;
    use std::sync::LazyLock;
    use std::time::{SystemTime, UNIX_EPOCH};
    use tidemark_proto::series::UnixTime;
    use tidemark_server::http::series::ExportedBody;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExportArgs,
    }

    #[test]
    fn how_a_file_is_written_says_its_name_or_a_flag() {
        let chosen_by = |line: &str| {
            let words = ["export", "qa/", "--out"].into_iter().chain(line.split(' '));
            let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
            chosen(&line.args).map_err(|error| error.to_string())
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

    /// Names that need care. A page has one of them; its number is the text behind it.
    const COUNTERS: [&str; 8] = [
        "qa/a",
        "qa/a,\"b\"",
        "qa/line\nline\r",
        "qa/blanks \u{a0} \t",
        "qa/%25%FF",
        "qa/\u{e4}",
        "qa/{\"b\": 1}",
        "qa/c d",
    ];
    /// An export of an earlier day is not gone on with.
    static BEGUN_MS: LazyLock<u64> =
        LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64);
    /// More than the rows of one counter as CSV, and fewer than those of two.
    const CHECKPOINT_BYTES: u64 = 160;

    /// Halves with and without a rest.
    fn page_behind(after: Option<&str>) -> ExportBody {
        let number: usize = after.map_or(0, |after| after.parse().unwrap());
        let half = |parts: &[(u64, u64)], rest| HalfBody { parts: parts.to_vec(), rest };
        let down = if number.is_multiple_of(2) { half(&[], 7) } else { half(&[(86_400, 1)], 0) };
        let counter = COUNTERS[number].to_owned();
        let counters = vec![ExportedBody { counter, up: half(&[(60, 5), (120, 1 << 40)], 3), down }];
        let next = (number + 1 < COUNTERS.len()).then(|| (number + 1).to_string());
        ExportBody { at_unix_ms: *BEGUN_MS + number as u64, counters, next }
    }

    /// Exports until there are no more pages, or until this number of pages was read; and behind what they were.
    async fn run_of(
        out: &Path,
        format: FormatArg,
        compress: Compress,
        is_anew: bool,
        pages_max: usize,
    ) -> (Result<Written, Fault>, Vec<Option<String>>) {
        let mut part = Part::open(out, Request::new("demo", "qa/", format, compress), is_anew).unwrap();
        part.checkpoint_bytes = CHECKPOINT_BYTES;
        let mut asked = Vec::new();
        let written = export(
            &mut part,
            async |after: Option<&str>| -> Result<ExportBody, Fault> {
                if asked.len() == pages_max {
                    return Err("cut off".into());
                }
                asked.push(after.map(str::to_owned));
                Ok(page_behind(after))
            },
            |_, _| {},
        )
        .await;
        (written, asked)
    }

    /// The name of a file until it is complete.
    fn part_of(out: &Path) -> PathBuf {
        PathBuf::from(format!("{}.part", out.display()))
    }

    fn read(path: &Path) -> Vec<tidemark_proto::load::Row> {
        let mut source = Source::open(&File::open(path).unwrap(), &Naming::default()).unwrap();
        let rows = std::iter::from_fn(|| source.next_row().unwrap());
        rows.map(|read| read.row.unwrap().unwrap().row).collect()
    }

    #[tokio::test]
    async fn however_it_is_written_the_same_rows_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let formats = [FormatArg::Csv, FormatArg::Ndjson].into_iter();
        #[cfg(feature = "parquet")]
        let formats = formats.chain([FormatArg::Parquet]);
        let mut first = None;
        for format in formats {
            for compress in [Compress::None, Compress::Gzip, Compress::Zstd] {
                let path = dir.path().join(format!("{format:?}.{compress:?}"));
                let written = run_of(&path, format, compress, false, usize::MAX).await.0.unwrap();
                let rows = read(&path);
                assert_eq!(
                    (rows.len() as u64, rows[2].at),
                    (written.rows, UnixTime::from_s(0).ok()),
                    "{format:?} {compress:?}"
                );
                assert_eq!(&rows, first.get_or_insert_with(|| rows.clone()), "{format:?} {compress:?}");
            }
        }
    }

    #[tokio::test]
    async fn an_export_that_is_cut_off_goes_on_and_its_file_reads_as_one_that_was_not() {
        let dir = tempfile::tempdir().unwrap();
        for format in [FormatArg::Csv, FormatArg::Ndjson] {
            for compress in [Compress::None, Compress::Gzip, Compress::Zstd] {
                let how = format!("{format:?}.{compress:?}");
                let [whole, cut] = ["whole", "cut"].map(|name| dir.path().join(format!("{name}.{how}")));
                let at_once = run_of(&whole, format, compress, false, usize::MAX).await.0.unwrap();
                let mut runs = 0;
                let (written, asked) = loop {
                    runs += 1;
                    assert!(runs < COUNTERS.len(), "{how}: it does not go on");
                    let (written, asked) = run_of(&cut, format, compress, false, 3).await;
                    match written {
                        Ok(written) => break (written, asked),
                        Err(error) => assert_eq!(error.to_string(), "cut off"),
                    }
                    // Behind what is whole a crash may leave anything.
                    let mut file = File::options().append(true).open(part_of(&cut)).unwrap();
                    file.write_all(b"qa/a,garbage").unwrap();
                };
                assert!(runs > 1 && asked[0].is_some(), "{how}: {runs} runs, the last of {asked:?}");
                assert_eq!((written, read(&cut)), (at_once, read(&whole)), "{how}");
            }
        }
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 2 * 6, "the files, and nothing else");
    }

    #[tokio::test]
    async fn what_is_to_begin_anew_or_is_parquet_has_nothing_of_before() {
        let dir = tempfile::tempdir().unwrap();
        let hows = [(FormatArg::Csv, true)].into_iter();
        #[cfg(feature = "parquet")]
        let hows = hows.chain([(FormatArg::Parquet, false)]);
        for (format, is_anew) in hows {
            let out = dir.path().join(format!("{format:?}"));
            assert!(run_of(&out, format, Compress::Zstd, false, 5).await.0.is_err());
            let is_noted = Path::new(&format!("{}.journal", part_of(&out).display())).exists();
            assert_eq!(is_noted, format != FormatArg::Parquet);
            let (written, asked) = run_of(&out, format, Compress::Zstd, is_anew, usize::MAX).await;
            assert_eq!((asked.len(), &asked[0]), (COUNTERS.len(), &None), "{format:?}");
            assert_eq!(read(&out).len() as u64, written.unwrap().rows, "{format:?}");
            assert!(!part_of(&out).exists());
        }
    }
}
