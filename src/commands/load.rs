//! `tidemark load`: history from files, each row exactly once.

use super::Outcome;
use crate::config::{ClusterFile, DcLayout};
use crate::load::columns::Event;
use crate::load::drive::{self, Load};
use crate::load::ids::{FILE_IDS_MAX, FileIds, IdProgress, Repeat, row_text};
use crate::load::journal::Head;
use crate::load::keyed::{self, Destination, NoAnswer, Stopped};
use crate::load::meter::Meter;
use crate::load::rows::{Found, Read, parse_delimiter};
use crate::load::{Journal, Naming, RowError, Source};
use crate::remote::{Remote, RemoteError};
use clap::Args;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tidemark_client::Groups;
use tidemark_proto::ids::{Half, OwnerId};
use tidemark_proto::limits::SERIES_AHEAD_S;
use tidemark_proto::load::{Row, RowRefused, Spaces};
use tidemark_proto::series::calendar::{UnknownZone, Zone};
use tidemark_proto::series::{Admission, UnixTime};
use tidemark_server::clock::wall_now;
use tidemark_server::http::{BulkBody, BulkLine};
use tidemark_server::names::hex;
use tidemark_server::series::{OutOfRangeBody, TermsBody};
use tidemark_transport::Credentials;

/// Rows of a file that are not counted and shown; more are only counted.
const BAD_ROWS_SHOWN_MAX: u64 = 20;
/// Names of columns that are not read and shown.
const COLUMNS_SHOWN_MAX: usize = 10;
/// Why pipes and folders are not read.
const NOT_A_FILE: &str = "no regular file. A load reads a file several times, and knows it again by its content: write what comes through a \
                          pipe to a file, and load that";
/// Where journals are unless it is said: beside each file.
const JOURNALS: &str = "tidemark-load";

/// Arguments of `tidemark load`.
#[derive(Debug, Args)]
#[command(after_long_help = RULES)]
pub struct LoadArgs {
    /// Files to load: CSV with a line of names, JSON lines, or Parquet (in a build with that feature). CSV and JSON lines may be packed
    /// with gzip or zstd. The content of a file decides its format
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Layout file of the cluster; needs --dc and --credentials [default: the `tidemark serve` of the data directory]
    #[arg(long, requires_all = ["dc", "credentials"])]
    cluster: Option<PathBuf>,
    /// Data centre to count in
    #[arg(long, requires = "cluster")]
    dc: Option<String>,
    /// Folder with a client's certificate, its key and the cluster's CA. Use the same folder when a load is run again
    #[arg(long, requires = "cluster")]
    credentials: Option<PathBuf>,
    /// Folder of journals; without its journal a file is counted again [default: `tidemark-load` beside each file]
    #[arg(long)]
    journal: Option<PathBuf>,
    /// Column of counters: NAMESPACE/KEY
    #[arg(long, value_name = "COLUMN", default_value = "counter")]
    counter: String,
    /// Column of the numbers to count, whole numbers; a file without the column counts 1 per row
    #[arg(long, value_name = "COLUMN", default_value = "delta")]
    delta: String,
    /// Column of times; a row without a time happens when it is logged
    #[arg(long, value_name = "COLUMN", default_value = "at")]
    at: String,
    /// Column of ids, 1 to 128 visible ASCII characters or a whole number. A row counts once per id, in any file and through any
    /// aggregator, while ids are remembered (a day). Rows are sent to --server
    #[arg(long, value_name = "COLUMN", conflicts_with = "cluster")]
    event_id: Option<String>,
    /// Zone of dates and times without an offset, such as UTC or Europe/Berlin. Without --zone, a file with such times is refused
    #[arg(long, value_parser = parse_zone)]
    zone: Option<String>,
    /// Separator of the fields of CSV: one character, or tab [default: a comma, or that of a first line such as `sep=;`]
    #[arg(long, value_parser = parse_delimiter)]
    delimiter: Option<char>,
    /// Text in front of every counter, such as NAMESPACE/
    #[arg(long, default_value = "")]
    prefix: String,
    /// Namespace in place of every counter's own
    #[arg(long)]
    namespace: Option<String>,
    /// Read the files and ask the server, print which rows would be counted, and count nothing. The exit code is that of the load
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Rules and examples that `tidemark load --help` prints.
const RULES: &str = "\
Rules of columns, the same in CSV, JSON lines and Parquet:
  counter  a text or a whole number. A row without a value is broken.
  delta    a whole number, also as 5.0 or 5e0. A file or an object without the column counts 1. A row without a value in a column that is
           there is broken. 0 counts nothing.
  at       seconds since 1970, RFC 3339, or a date or time by the clock of --zone. A time that the clock shows twice is the first of
           the two. A time that the clock skips is moved on by the length of the skip. A row without a value happens when it is logged.
  The column of --event-id is a text of 1 to 128 visible ASCII characters or a whole number. A row without a value is broken. The same id in
  two namespaces is two ids. Rows with the same id and content count once. If a row of the same file has the id with other content, nothing
  of the file is counted; if an earlier increment has it, the load ends at that row. Rows with ids go over HTTP to the groups that own the
  ids, and need no certificate. The same id in POST /v1/add is the same increment.
  Upper and lower case are the same in names of columns. Two columns of one name are refused. Other columns are ignored, and named.
  Empty and null are no value. Blanks around an unquoted field of CSV are no part of it.

Examples:
  tidemark load payments.csv --event-id payment --server http://127.0.0.1:7171
  tidemark load clicks.csv.zst --zone Europe/Berlin --check --cluster layout.toml --dc usa-0 --credentials clients/loader";

/// Findings in a file before anything is sent.
#[derive(Default)]
struct Scan {
    /// The unit by which rows are numbered.
    unit: &'static str,
    rows: u64,
    broken: u64,
    /// Rows with a delta of 0.
    zero: u64,
    total_only: u64,
    refused: u64,
    /// Of each row that may be counted, if rows have ids.
    ids: Option<FileIds>,
    /// Rows with the id and the content of an earlier one, and those with other content than that.
    repeated: u64,
    contradicting: u64,
    found: Found,
    /// Each row is a line.
    has_only_lines: bool,
    /// By namespace.
    terms: BTreeMap<String, Option<TermsBody>>,
    spaces: Spaces,
    /// No process answered.
    unasked: bool,
}

#[derive(serde::Serialize)]
struct LoadedBody {
    file: PathBuf,
    rows: u64,
    counted: u64,
    total_only: u64,
    refused: u64,
    broken: u64,
    /// Rows with a delta of 0.
    zero: u64,
    /// Items to which rows were folded.
    items: u64,
    /// It was loaded before; nothing was done.
    before: bool,
    rows_per_s: u64,
}

/// The result for a file of rows with ids.
#[derive(serde::Serialize)]
struct LoadedIdsBody {
    file: PathBuf,
    rows: u64,
    /// Counted now.
    counted: u64,
    /// Their ids had counted before.
    known: u64,
    /// An earlier row of the file has the same id and content.
    repeated: u64,
    total_only: u64,
    refused: u64,
    broken: u64,
    /// Rows with a delta of 0.
    zero: u64,
    /// It was loaded before; nothing was done.
    before: bool,
    rows_per_s: u64,
    /// Why the load ended before its last row; rows behind may have been counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<Stopped>,
}

impl Destination for Remote {
    fn address(&self) -> String {
        self.authority().map_or_else(|error| error.to_string(), str::to_owned)
    }

    async fn add(&self, lines: &[&BulkLine]) -> Result<BulkBody, NoAnswer> {
        self.add_all(lines).await.map_err(|error| NoAnswer { passes: error.passes(), why: error.to_string() })
    }
}

pub fn run(args: LoadArgs) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(load_all(args))
}

impl LoadArgs {
    fn naming(&self) -> Naming {
        let LoadArgs { counter, delta, at, event_id, prefix, namespace, zone, delimiter, .. } = self;
        Naming {
            counter: counter.clone(),
            delta: delta.clone(),
            at: at.clone(),
            event_id: event_id.clone(),
            prefix: prefix.clone(),
            namespace: namespace.clone(),
            zone: zone.clone(),
            delimiter: *delimiter,
        }
    }
}

async fn load_all(args: LoadArgs) -> Outcome {
    let counted_by = match (args.check, &args.event_id) {
        (true, _) => None,
        (false, None) => Some(CountedBy::Groups(Box::new(CountingGroups::find(&args)?))),
        (false, Some(_)) => Some(CountedBy::Owners { cluster: cluster_of(&args.remote).await? }),
    };
    let naming = args.naming();
    let mut is_whole = true;
    for path in &args.files {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| named(&error))?;
        if !file.metadata()?.is_file() {
            return Err(named(&NOT_A_FILE).into());
        }
        let (bytes, sha256) = digest(&file).map_err(|error| named(&error))?;
        let before = file.metadata()?;
        let mut scan = scan(&args, path, &file, &naming).await?;
        announce(path, &scan, &naming);
        let Some(counted_by) = &counted_by else {
            is_whole &= scan.broken + scan.refused + scan.contradicting == 0;
            continue;
        };
        if scan.contradicting > 0 {
            let message = format!(
                "{} rows have the id of an earlier row and other content: nothing of the file was counted",
                scan.contradicting
            );
            return Err(named(&message).into());
        }
        until_policies_hold(path, &scan).await;
        let dir = args.journal.clone().unwrap_or_else(|| path.parent().unwrap_or(Path::new("")).join(JOURNALS));
        let rows = scan.rows;
        let spaces = scan.spaces.clone();
        let same = || match drive::is_same(&before, &file.metadata()?)? {
            true => Ok(()),
            false => Err(Box::<dyn std::error::Error>::from(named(&"the file has changed while it was loaded"))),
        };
        match counted_by {
            CountedBy::Groups(counting) => {
                let CountingGroups { cluster, dc, groups } = &**counting;
                let head = Head::new(bytes, sha256, cluster, &dc.name, groups.owner(), &naming);
                let load = Load { file: &file, naming: &naming, rows, spaces, groups, nodes: &dc.nodes };
                let loaded = load_one(path, &load, &dir, &head, &scan).await.map_err(|error| named(&error))?;
                same()?;
                is_whole &= loaded.refused + loaded.broken == 0;
                super::show(args.remote.json, &loaded, || text(&loaded))?;
            }
            CountedBy::Owners { cluster } => {
                let head = Head::new(bytes, sha256, cluster, "", OwnerId(0), &naming);
                let ids = scan.ids.take().unwrap_or_default();
                let load = keyed::Load { file: &file, naming: &naming, rows, spaces, ids };
                let loaded =
                    load_ids(path, load, &args.remote, &dir, &head, &scan).await.map_err(|error| named(&error))?;
                same()?;
                is_whole &= loaded.refused + loaded.broken == 0;
                super::show(args.remote.json, &loaded, || ids_text(&loaded))?;
                if let Some(stopped) = &loaded.stopped {
                    return Err(named(&stopped.text(scan.unit)).into());
                }
            }
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where rows are counted.
enum CountedBy {
    /// In a group of one data centre.
    Groups(Box<CountingGroups>),
    /// By the owners of their ids.
    Owners { cluster: String },
}

/// The name of the cluster of a process.
async fn cluster_of(remote: &Remote) -> Result<String, RemoteError> {
    #[derive(serde::Deserialize)]
    struct StatusBody {
        cluster: String,
    }
    remote.get::<StatusBody>("/v1/status").await.map(|status| status.cluster)
}

/// The data centre that counts.
struct CountingGroups {
    cluster: String,
    dc: DcLayout,
    groups: Groups,
}

impl CountingGroups {
    /// The cluster that the flags name, else the `tidemark serve` of the data directory.
    fn find(args: &LoadArgs) -> Result<CountingGroups, Box<dyn std::error::Error>> {
        let (layout, dc, credentials) = match (&args.cluster, &args.dc, &args.credentials) {
            (Some(layout), Some(dc), Some(credentials)) => (layout.clone(), dc.clone(), credentials.clone()),
            _ => {
                let advice = "start one, name its directory with --data-dir, or a cluster with --cluster, --dc and --credentials";
                let running = args.remote.running().map_err(|error| format!("{error}; {advice}"))?;
                (running.cluster, running.dc, running.credentials)
            }
        };
        let mut known = ClusterFile::load(&layout)?.dcs;
        let at = known.iter().position(|known| known.name == dc);
        let at = at.ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
            format!("--dc {dc:?}: {} has no such data centre; it has {}", layout.display(), names.join(", "))
        })?;
        let dc = known.swap_remove(at);
        let credentials = Credentials::load(&credentials)?;
        let cluster = credentials.identity().cluster().to_owned();
        Ok(CountingGroups { groups: Groups::new(&dc.name, &dc.nodes, credentials)?, cluster, dc })
    }
}

async fn load_one(
    path: &Path,
    load: &Load<'_>,
    dir: &Path,
    head: &Head,
    scan: &Scan,
) -> Result<LoadedBody, Box<dyn std::error::Error>> {
    let (journal, progress) = Journal::open(dir, head, scan.has_only_lines)?;
    let before = progress.finished().is_some();
    let label = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let first = progress.done_before().min(load.rows);
    if first > 0 && !before {
        errln!("{label}: goes on behind row {first}");
    }
    let mut meter = Meter::new(&label, load.rows, first);
    let mut shown = 0;
    let refused = |meter: &Meter, line: u64, why: RowRefused| {
        shown += 1;
        if shown <= BAD_ROWS_SHOWN_MAX {
            meter.say(&format!("{}: {} {line}: {why}", path.display(), scan.unit));
        }
    };
    let progress = drive::run(load, journal, progress, &mut meter, refused).await?;
    let tally = progress.tally();
    Ok(LoadedBody {
        file: path.to_owned(),
        rows: load.rows,
        counted: tally.counted,
        total_only: tally.total_only,
        refused: tally.refused,
        broken: scan.broken,
        zero: scan.zero,
        items: tally.items,
        before,
        rows_per_s: meter.rate(load.rows) as u64,
    })
}

/// Loads rows with ids.
async fn load_ids(
    path: &Path,
    load: keyed::Load<'_>,
    remote: &Remote,
    dir: &Path,
    head: &Head,
    scan: &Scan,
) -> Result<LoadedIdsBody, Box<dyn std::error::Error>> {
    let (journal, progress) = Journal::open_as::<IdProgress>(dir, head, scan.has_only_lines)?;
    let label = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let rows = load.rows;
    let before = progress.finished.is_some();
    let first = progress.done_before().min(rows);
    if first > 0 && !before {
        errln!("{label}: goes on behind row {first}");
    }
    let mut meter = Meter::new(&label, rows, first);
    let mut shown = 0;
    let refused = |meter: &Meter, line: u64, why: &str| {
        shown += 1;
        if shown <= BAD_ROWS_SHOWN_MAX {
            meter.say(&format!("{}: {} {line}: {why}", path.display(), scan.unit));
        }
    };
    let loaded = match before {
        true => keyed::Loaded { tally: progress.tally, stopped: None, done_before: rows },
        false => keyed::run(load, remote, journal, progress, &mut meter, refused).await?,
    };
    let keyed::Loaded { tally, stopped, done_before } = loaded;
    Ok(LoadedIdsBody {
        file: path.to_owned(),
        rows,
        counted: tally.counted,
        known: tally.known,
        repeated: tally.repeated,
        total_only: tally.total_only,
        refused: tally.refused,
        broken: scan.broken,
        zero: scan.zero,
        before,
        rows_per_s: meter.rate(done_before) as u64,
        stopped,
    })
}

fn ids_text(loaded: &LoadedIdsBody) -> String {
    let LoadedIdsBody { file, rows, counted, known, repeated, total_only, .. } = loaded;
    let LoadedIdsBody { refused, broken, zero, before, rows_per_s, stopped, .. } = loaded;
    let file = file.display();
    if *before {
        return format!(
            "{file}: loaded already, nothing was done ({counted} rows were counted, {known} were known, {refused} refused)"
        );
    }
    let whole = if stopped.is_some() { ", and the load ended before the last row" } else { "" };
    format!(
        "{file}: {rows} rows, {counted} counted, {known} known before, {repeated} repeated ({total_only} in totals only), {refused} refused, \
         {broken} broken, {zero} of delta 0{whole}; {rows_per_s} rows a second"
    )
}

fn text(loaded: &LoadedBody) -> String {
    let LoadedBody { file, rows, counted, total_only, refused, broken, zero, items, before, rows_per_s } = loaded;
    let file = file.display();
    if *before {
        return format!("{file}: loaded already, nothing was done ({counted} rows were counted, {refused} refused)");
    }
    format!(
        "{file}: {rows} rows, {counted} counted as {items} ({total_only} in totals only), {refused} refused, {broken} broken, {zero} of delta 0; \
         {rows_per_s} rows a second"
    )
}

/// Reads `--zone`; its name in the database.
fn parse_zone(text: &str) -> Result<String, UnknownZone> {
    Ok(Zone::named(text)?.name().to_owned())
}

/// Bytes and SHA-256 of a file.
fn digest(mut file: &File) -> io::Result<(u64, String)> {
    file.rewind()?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok((bytes, hex(context.finish().as_ref()))),
            read => {
                context.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Reads all rows once; says which are broken. With `--check` it says too which would be refused.
async fn scan(args: &LoadArgs, path: &Path, file: &File, naming: &Naming) -> Result<Scan, Box<dyn std::error::Error>> {
    let named = |error: RowError| format!("{}: {error}", path.display());
    let named_text = |error: String| format!("{}: {error}", path.display());
    let mut source = Source::open(file, naming).map_err(named)?;
    let ids = naming.event_id.is_some().then(FileIds::default);
    let mut scan = Scan { unit: source.unit(), ids, ..Scan::default() };
    let now = UnixTime::from_wall(wall_now());
    while let Some(Read { line, row }) = source.next_row().map_err(named)? {
        scan.rows += 1;
        let why = match row {
            Ok(None) => {
                scan.zero += 1;
                continue;
            }
            Ok(Some(event)) => match scan.repeat(line, &event) {
                Repeat::Same => continue,
                Repeat::Other { first } => {
                    let name = naming.event_id.as_deref().unwrap_or_default();
                    let id = event.id.unwrap_or_default();
                    format!(
                        "{name} {id:?}, {}: the id stands for another increment in {} {first}",
                        row_text(&event.row),
                        scan.unit
                    )
                }
                Repeat::Full => {
                    return Err(named_text(format!(
                        "{} {line}: more than {FILE_IDS_MAX} ids, as many as a file may have: split it, and load the parts one after the other",
                        scan.unit
                    ))
                    .into());
                }
                Repeat::First => match scan.take(&args.remote, args.check, &event.row, now).await? {
                    Some(why) if args.check => why.to_string(),
                    _ => continue,
                },
            },
            Err(why) => {
                scan.broken += 1;
                why.to_string()
            }
        };
        let bad = scan.broken + scan.contradicting + if args.check { scan.refused } else { 0 };
        if bad <= BAD_ROWS_SHOWN_MAX {
            errln!("{}: {} {line}: {why}", path.display(), scan.unit);
        }
    }
    (scan.found, scan.has_only_lines) = (source.found(), source.has_only_lines());
    Ok(scan)
}

impl Scan {
    /// The relation of a row to earlier rows. Without ids each is one of its own.
    fn repeat(&mut self, line: u64, event: &Event) -> Repeat {
        let repeat = match (&mut self.ids, &event.id) {
            (Some(ids), Some(id)) => ids.enter(line, &event.row, id),
            _ => Repeat::First,
        };
        match repeat {
            Repeat::Same => self.repeated += 1,
            Repeat::Other { .. } => self.contradicting += 1,
            Repeat::First | Repeat::Full => {}
        }
        repeat
    }

    /// Why a row would be refused, as far as that is known before it is sent. A check goes on if no process can be asked how namespaces
    /// keep series.
    async fn take(
        &mut self,
        remote: &Remote,
        check: bool,
        row: &Row,
        now: UnixTime,
    ) -> Result<Option<RowRefused>, Box<dyn std::error::Error>> {
        let namespace = row.counter.namespace();
        if !self.terms.contains_key(namespace) {
            let terms = match terms_of(remote, namespace).await {
                Err(RemoteError::Unreachable { .. }) if check => {
                    self.unasked = true;
                    None
                }
                terms => terms?,
            };
            let policy = terms.as_ref().and_then(|terms| terms.policy.as_ref());
            if let Some(policy) = policy {
                self.spaces.0.insert(namespace.to_owned(), policy.policy()?);
            }
            self.terms.insert(namespace.to_owned(), terms);
        }
        let why = match self.terms.get(namespace).and_then(Option::as_ref) {
            None if self.unasked => None,
            None => Some(RowRefused::UnknownNamespace(namespace.to_owned())),
            Some(terms) if row.half == Half::Down && terms.updown == Some(false) => {
                Some(RowRefused::GrowOnly(namespace.to_owned()))
            }
            Some(_) => match self.spaces.admit(row, now) {
                Ok(Admission::Bucketed) => None,
                Ok(Admission::TotalOnly) => {
                    self.total_only += 1;
                    None
                }
                Err(why) => Some(why.into()),
            },
        };
        self.refused += u64::from(why.is_some());
        Ok(why)
    }
}

/// How a namespace keeps series; `None` of one that there is not.
async fn terms_of(remote: &Remote, namespace: &str) -> Result<Option<TermsBody>, RemoteError> {
    match remote.get(&format!("/v1/namespaces/{namespace}/series")).await {
        Ok(terms) => Ok(Some(terms)),
        Err(RemoteError::Refused { status, .. }) if status == hyper::StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// Groups that have not heard of a policy count in totals only. All have by the time from which it holds.
async fn until_policies_hold(path: &Path, scan: &Scan) {
    let since_s = scan.terms.values().flatten().filter_map(|terms| terms.since_s).max().unwrap_or(0);
    let left_s = since_s.saturating_sub(wall_now().0 / 1_000).min(SERIES_AHEAD_S + 1);
    if left_s > 0 {
        errln!("{}: waits {left_s} s until the policy holds", path.display());
        tokio::time::sleep(Duration::from_secs(left_s + 1)).await;
    }
}

/// Prints the facts that are known before anything is sent.
fn announce(path: &Path, scan: &Scan, naming: &Naming) {
    let file = path.display();
    for name in &scan.found.missing {
        let instead = if *name == naming.delta { "each row counts 1" } else { "rows happen when they are logged" };
        errln!("{file}: there is no column {name:?}: {instead}");
    }
    if !scan.found.ignored.is_empty() {
        let shown = scan.found.ignored.iter().take(COLUMNS_SHOWN_MAX).map(|name| format!("{name:?}"));
        let more = if scan.found.ignored.len() > COLUMNS_SHOWN_MAX { ", …" } else { "" };
        errln!("{file}: ignored columns: {}{more}", shown.collect::<Vec<_>>().join(", "));
    }
    if scan.unasked {
        errln!("{file}: no process answers: whether namespaces exist, and how late events may be, is not checked");
    }
    for (namespace, terms) in scan.terms.iter().filter(|_| !scan.unasked) {
        let Some(terms) = terms else {
            errln!("{file}: unknown namespace {namespace:?}: its rows will be refused");
            continue;
        };
        let Some(policy) = &terms.policy else { continue };
        if terms.revision > 1 {
            errln!(
                "{file}: {namespace} keeps series by its policy number {}: buckets that an earlier policy had closed \
                 stay closed, however late events may be now",
                terms.revision
            );
        }
        let late = policy.late.as_deref().unwrap_or("0s");
        let otherwise = match policy.out_of_range {
            OutOfRangeBody::Refuse => "refused",
            OutOfRangeBody::Total => "counted in totals only",
        };
        errln!("{file}: {namespace} takes events up to {late} late; others are {otherwise}");
    }
    let Scan { rows, broken, zero, total_only, refused, repeated, contradicting, .. } = scan;
    let ids = match &scan.ids {
        Some(_) => format!(", {repeated} repeated, {contradicting} with the id of another row"),
        None => String::new(),
    };
    errln!(
        "{file}: {rows} rows: {broken} broken, {refused} refused, {total_only} for totals only, {zero} of delta 0{ids}"
    );
}
