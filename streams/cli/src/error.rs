//! The errors of commands.

use std::io;
use std::path::PathBuf;
use tidemark_proto::series::calendar::{CalendarError, Period, UnknownZone};
use tidemark_streams_core::event::{EventError, EventTypesError};
use tidemark_streams_core::limits::COMMIT_BLOBS_MAX;
use tidemark_streams_core::manifest::{EraseRefused, LayoutRefused, TooManyTestTenants};
use tidemark_streams_core::owner::Stop;
use tidemark_streams_core::pause::PauseRefused;
use tidemark_streams_core::query::counts::CountError;
use tidemark_streams_core::rebuild::CannotRebuild;
use tidemark_streams_core::retention::RetentionError;
use tidemark_streams_core::rollup::RowError;
use tidemark_streams_core::schema::SchemaRefused;
use tidemark_streams_core::source::SourceId;
use tidemark_streams_core::values::DimensionError;
use tidemark_streams_intake::listings::LookupFailed;
use tidemark_streams_serve::secret::SecretError;
use tidemark_streams_serve::signed::KeyError;
use tidemark_streams_serve::token::TokenError;
use tidemark_streams_serve::{ArchiveError, DamagedFile, LogError, Missing, RawError, ServeError};
use tidemark_streams_source::file::SourceError;
use tidemark_streams_source::mapping::MappingError;
use tidemark_streams_store::catalogue::CatalogueError;
use tidemark_streams_store::dead_letters::DeadLettersError;
use tidemark_streams_store::directory::DirectoryError;
use tidemark_streams_store::recover::RecoverError;
use tidemark_streams_store::uploads::UploadError;

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("{}: {error}", path.display())]
    Source { path: PathBuf, error: SourceError },
    #[error(transparent)]
    Mapping(#[from] MappingError),
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    #[error(transparent)]
    Types(#[from] EventTypesError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error(transparent)]
    Table(#[from] UploadError),
    #[error(transparent)]
    Lookup(#[from] LookupFailed),
    #[error(
        "--map lacks tenant, and the directory knows no listings: name the column, such as tenant=COLUMN, or add the tenant of each listing by \
         `tidemark-streams listings load`"
    )]
    NoListings,
    #[error("{}: nothing was added: row {row}: {why}", path.display())]
    ListingRow { path: PathBuf, row: u64, why: String },
    #[error("{}: nothing was added: the file has no rows", path.display())]
    NoRows { path: PathBuf },
    #[error("listing {listing:?} is unknown: `tidemark-streams listings load` adds listings")]
    UnknownListing { listing: String },
    #[error("the load stops: {0}")]
    Stopped(#[from] Stop),
    #[error(
        "the load stops: {refused} rows of the file were refused, and {max} are allowed; the last: row {row}: {reason}. \
         `tidemark-streams dead-letters list` lists them; what was counted stays; --dead-letters-max allows more"
    )]
    TooManyDeadLetters { refused: u64, max: u64, row: u64, reason: String },
    #[error(
        "{}: source {source_id} was loaded with other columns or another --file-zone; its rows are counted up to row {next_row}. \
         Name the same columns and zone as then",
        path.display()
    )]
    OtherReading { path: PathBuf, source_id: SourceId, next_row: u64 },
    #[error("the partition is paused since {since}: `tidemark-streams resume` ends the pause")]
    Paused { since: String },
    #[error("event type {name} is paused since {since}: `tidemark-streams resume --type {name}` ends the pause")]
    TypePaused { name: String, since: String },
    #[error("nothing was paused or resumed: {0}")]
    Pause(#[from] PauseRefused),
    #[error("the retention stays as it is: {0}")]
    Retention(#[from] RetentionError),
    #[error("the range is not kept: counts are kept from {kept_from} on")]
    NotKept { kept_from: String },
    #[error(transparent)]
    Count(#[from] CountError),
    #[error(
        "--sql-tenant-queries {queries} with --sql-children {children}: name fewer queries than processes, so that one tenant \
         leaves a process to the others"
    )]
    SqlTenantQueries { queries: u64, children: u64 },
    #[error("--sql-program {}: {error}; name the program tidemark-sql, or leave the option out if there is no SQL", path.display())]
    SqlProgram { path: PathBuf, error: io::Error },
    #[error("--sql-log {}: no line can be added: {error}; name a file in a folder that exists", path.display())]
    SqlLog { path: PathBuf, error: io::Error },
    #[error("--expires-in {period}: months and years have no fixed length; name days, such as 30d")]
    Expires { period: Period },
    #[error("nothing was erased: {0}")]
    EraseName(EventError),
    #[error("nothing was erased: {0}")]
    Erase(#[from] EraseRefused),
    #[error("{pending} erasures are not done: run the command again")]
    ErasurePending { pending: usize },
    #[error(
        "live blobs hold no erased rows, and none of deleted types; older files may hold them, and stay while live blob {damaged} is damaged: run `tidemark-streams \
         rebuild`, and then this command again"
    )]
    FilesHeld { damaged: String },
    #[error("the event types stay as they are: {0}")]
    TypesChange(SchemaRefused),
    #[error(
        "{name:?} is no grouping and no dimension; groupings: hour, day, listing; dimensions: {known}. Add a dimension by \
         `tidemark-streams types add-dimension`"
    )]
    UnknownDimension { name: String, known: String },
    #[error("event type {name:?} is unknown; known types: {known}")]
    UnknownType { name: String, known: String },
    #[error("event type {name} was deleted: `tidemark-streams types add {name}` begins a new type of this name")]
    TypeDeleted { name: String },
    #[error("{blobs} blobs may hold rows of deleted types: run the command again")]
    DeletionPending { blobs: usize },
    #[error("no tenant was marked: {0}")]
    TestTenants(#[from] TooManyTestTenants),
    #[error("no tenant is marked as a test: `tidemark-streams test-tenants add` marks one")]
    NoTestTenants,
    #[error("the layout stays as it is: {0}")]
    Layout(#[from] LayoutRefused),
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    #[error("--from {from} is not before --to {to}")]
    EmptyRange { from: String, to: String },
    #[error(transparent)]
    Rows(#[from] RowError),
    #[error("blob {name}: {error}")]
    DeadLetters { name: String, error: DeadLettersError },
    #[error("{}: the lines of dead letters cannot be read: {why}", path.display())]
    Fixed { path: PathBuf, why: String },
    #[error("--event-id-s-of and --event-ids-max-of: {name:?} is not one of the --types {types}")]
    IdsOfType { name: String, types: String },
    #[error("no dead letters are named: name --source, --row, --reason or --tenant, or --all for all of them")]
    DropNothing,
    #[error(transparent)]
    Tenant(EventError),
    #[error(transparent)]
    Value(DimensionError),
    #[error("{text:?} is after the last hour that counts, {last}")]
    AfterLastHour { text: String, last: String },
    #[error("{0} is of files: name the file with {1}, or leave the option out")]
    WithoutFile(&'static str, &'static str),
    #[error("--from says from when --buckets or --parts count: name one of them, or leave --from out")]
    FromOfNothing,
    #[error("--{0} is empty: leave it out, or say which letters it means")]
    EmptySelect(&'static str),
    #[error("--source {0:?}: the begin of a digest, in hexadecimal digits")]
    SelectSource(String),
    #[error("differences were found: {differences}, in {blobs} blobs; they are named above, of counts the first 20")]
    Audit { differences: u64, blobs: u64 },
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error("blob {name} is not live: `tidemark-streams blobs` lists the blobs that are")]
    NotLive { name: String },
    #[error(
        "{refused} of {damaged} damaged blobs were not rebuilt; the reasons are above. Restore the files of these blobs from a copy of the \
         directory{}",
        if *.has_file { "" } else { ", or name the loaded file with --from" }
    )]
    NotRebuilt { refused: usize, damaged: usize, has_file: bool },
    #[error(transparent)]
    CannotRebuild(#[from] CannotRebuild),
    #[error("{why}; --types is {types}")]
    OtherTypes { why: CannotRebuild, types: String },
    #[error("the blob was replaced meanwhile, or does not hold what was rebuilt: run the command again")]
    RebuildNotTaken,
    #[error("{}: its source is {source_id}, and the rows are of source {expected}: name the file that was loaded", path.display())]
    OtherSource { path: PathBuf, source_id: SourceId, expected: SourceId },
    #[error(transparent)]
    Recover(#[from] RecoverError),
    #[error(
        "the manifest is not built again: no server would start on it: {why}. Restore the missing or damaged blobs from a copy of the \
         directory; nothing was changed"
    )]
    BesideIntake { why: LogError },
    #[error("the intake's log: {0}")]
    Intake(#[from] LogError),
    #[error(transparent)]
    Raw(#[from] RawError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{}: {why}: rows {} to {} are needed; other rows of the archive can be read", path.display(), rows.from + 1, rows.to)]
    RawDamaged { path: PathBuf, rows: Missing, why: DamagedFile },
    #[error("raw events of rows {} to {} of `serve` are needed and not kept: {reach}", rows.from + 1, rows.to)]
    RawMissing { rows: Missing, reach: String },
    #[error(
        "live blobs hold no erased rows; {} cannot be read and may hold them: delete the file, or wait until `serve` removes it at its age",
        path.display()
    )]
    RawHeld { path: PathBuf },
    #[error(
        "--against compares all files of a directory together, and {missing} of its {sources} sources have no file here: {shown}. Name the file \
         of each source with a further --against, as it was loaded; `tidemark-streams audit` without --against needs no file"
    )]
    SourcesNotNamed { missing: usize, sources: usize, shown: String },
    #[error(
        "the intake of `serve` counted {accepted} rows in this directory, and no raw event of them is kept: --against needs all sources. \
         `tidemark-streams audit` without --against compares the blobs with the manifest"
    )]
    OfIntake { accepted: u64 },
    #[error("{}: the file is source {source_id}, as is {}: name each file once", path.display(), other.display())]
    NamedTwice { path: PathBuf, other: PathBuf, source_id: SourceId },
    #[error(
        "{option} is given {given} times for {files} files: give it once for all of them, or once for each {each}, in their order"
    )]
    OptionsOfFiles { option: &'static str, given: usize, files: usize, each: &'static str },
    #[error(
        "files cannot be compared: the name of an event type was used again since the first rows were loaded, and nothing says which rows \
         came before; `tidemark-streams audit` without --against compares the blobs with the manifest"
    )]
    NameUsedAgain,
    #[error("{}: the file was not loaded into this directory under this type: its source {source_id} is unknown", path.display())]
    NotLoaded { path: PathBuf, source_id: SourceId },
    #[error("{}: {error}", path.display())]
    Plan { path: PathBuf, error: InputError },
    #[error("{}: {error}", path.display())]
    Secret { path: PathBuf, error: SecretError },
    #[error("{}: {error}", path.display())]
    TokenKey { path: PathBuf, error: KeyError },
    #[error("{}: no token can be read: {error}; `tidemark-streams token --follower` prints one", path.display())]
    TokenFile { path: PathBuf, error: TokenError },
    #[error(
        "--token-file without --token-key-file or --secret-file: callers would need no token, and be answered for all tenants; name \
         --token-key-file, or the server's --secret-file"
    )]
    TokenFileWithoutKeys,
    #[error(
        "--token-file is missing: with public keys only, the process cannot make its token; `tidemark-streams token --follower` prints one"
    )]
    NoTokenFile,
    #[error("--secret-file or --signing-key-file is missing: a token is made from one of them")]
    NoSecret,
    #[error("--expires-in: from a secret only the token of a tenant expires; name --tenant, or --signing-key-file")]
    ExpiresRole,
    #[error(transparent)]
    Serve(#[from] Box<ServeError>),
    #[error("output: {0}")]
    Output(#[from] io::Error),
}

/// Bytes of the file of a plan, at most: a plan has a few lines.
pub const PLAN_BYTES_MAX: u64 = 64 << 10;

/// Why a file is no plan.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has more than {PLAN_BYTES_MAX} bytes: a plan is a few lines of KEY = NUMBER")]
    Long,
    #[error("no TOML: {0}")]
    Toml(String),
    #[error("no JSON object: {0}")]
    Json(String),
    #[error("unknown key {key:?}; known keys: {known}")]
    Unknown { key: String, known: String },
    #[error("{key} is {found}: a number is expected")]
    Kind { key: &'static str, found: &'static str },
    #[error("{key} {value}: a whole number is expected")]
    Fraction { key: &'static str, value: f64 },
    #[error("{key} {value}: at least {min}")]
    Low { key: &'static str, value: f64, min: f64 },
    #[error("{key} {value}: at most {max}")]
    High { key: &'static str, value: f64, max: f64 },
}

/// Why a range is not rebuilt. Nothing was replaced.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    #[error("{text:?} is no day: name one such as 2026-01-05")]
    NoDay { text: String },
    #[error(
        "--to {last}: the first day that is still open is {open}; a day is closed 15 minutes behind its end in UTC"
    )]
    Open { last: String, open: String },
    #[error("--from {first}: counts are kept from {kept} on")]
    NotKept { first: String, kept: String },
    #[error("{blobs} live blobs have rows of these days: at most {COMMIT_BLOBS_MAX}; name fewer days")]
    TooManyBlobs { blobs: usize },
    #[error("event type {name:?} is unknown; the types are: {known}")]
    UnknownType { name: String, known: String },
    #[error("{days} tenants and days differ; they are named above. --yes replaces their rows")]
    Differs { days: usize },
    #[error(
        "{missing} sources may have rows of these days and are not named: {shown}. Name each file with a further --from-file, and `serve` with \
         --from-archive, or their rows would be lost"
    )]
    Sources { missing: usize, shown: String },
    #[error(
        "raw events of rows {} to {} of `serve`, which were accepted up to {until}, are not kept, and may be of these days; hours that can be \
         counted again: from {covered} on",
        rows.from + 1, rows.to
    )]
    NotCovered { rows: Missing, until: String, covered: String },
    #[error(
        "{replayed} raw events were dead letters and were replayed or dropped: nothing says which of them count, or as what"
    )]
    Replayed { replayed: u64 },
    #[error(
        "{dropped} dead letters of source {source_id} were dropped or erased, and nothing says which rows they were"
    )]
    Dropped { source_id: SourceId, dropped: u64 },
    #[error(
        "{uncounted} rows were accepted and cannot be counted now; the first is row {row} of source {source_id}: {why}. Their counts would be \
         lost: correct --map or --file-zone"
    )]
    Uncounted { uncounted: u64, source_id: SourceId, row: u64, why: String },
    #[error(
        "{others} counts have values beyond the bound of a dimension, and nothing says which values the first count kept"
    )]
    OtherValues { others: u64 },
    #[error("event types with dimensions were merged: nothing says which values the first count kept")]
    MergedDimensions,
    #[error(
        "the name of an event type was used again since the first rows were loaded, and nothing says which rows of files came before"
    )]
    NameUsedAgain,
    #[error(
        "a file is read by other columns or another zone than it was loaded by, and counts of {first} to {last} outside of the range differ: \
         name all days of the file"
    )]
    OtherDays { first: String, last: String },
    #[error("a file is read by other columns or another zone than it was loaded by: rebuild all types, without TYPE")]
    ColumnsOfOneType,
    #[error("the range was not replaced: the directory has changed meanwhile; run the command again")]
    NotTaken,
}
