//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use tidemark_proto::series::calendar::Period;
use tidemark_streams_core::layout::PeriodUnit;
use tidemark_streams_core::limits::{VALUES_MAX, VALUES_MAX_DEFAULT};
use tidemark_streams_serve::settings::{KEEP_RAW_DAYS_MAX, SQL_CHILDREN_MAX, SQL_CHILDREN_MIN};

const LOAD_EXAMPLES: &str = "Examples:
  tidemark-streams load transactions.parquet --dir shop \\
    --map tenant=store_id,listing=product_id,at=transaction_timestamp,n=quantity
  tidemark-streams load searches.csv --map listings=shown,at=at --listings-separator '|' --dir shop";
const QUERY_EXAMPLES: &str = "Examples:
  tidemark-streams query 367 --by hour --zone Asia/Kathmandu --dir shop
  tidemark-streams query 367 --by listing --from 2017-03-01 --to 2017-04-01 --dir shop
  tidemark-streams query 367 --by country --type impression --dir shop
  tidemark-streams query 367 --by day --where country=NP --dir shop
  tidemark-streams query 367 --by day --from 2017-03-01 --to 2017-04-01 --compare previous --dir shop";
const AUDIT_EXAMPLES: &str = "Examples:
  tidemark-streams audit --dir shop
  tidemark-streams audit --dir shop --skip-raw
  tidemark-streams audit --dir shop --against transactions.parquet --map tenant=store_id,...
  tidemark-streams audit --dir shop --map tenant=store_id,... --against january.csv --against february.csv
  tidemark-streams audit --dir shop --map tenant=store_id,... --against january.csv --type impression --against january.csv --type click";

const REBUILD_EXAMPLES: &str = "Examples:
  tidemark-streams rebuild --dir shop
  tidemark-streams rebuild 0-3-12-0 --dir shop --from transactions.parquet --map tenant=store_id,...
  tidemark-streams rebuild range --help";
const RANGE_EXAMPLES: &str = "Examples:
  tidemark-streams rebuild range --from 2026-01-05 --to 2026-01-07 --from-archive --dir shop
  tidemark-streams rebuild range --from 2026-01-05 --to 2026-01-07 --from-archive --dir shop --yes
  tidemark-streams rebuild range click --from 2026-01-05 --to 2026-01-05 --from-archive --dir shop
  tidemark-streams rebuild range --from 2026-01-01 --to 2026-01-31 --from-file january.csv --map tenant=store_id,... --dir shop";
const MANIFEST_EXAMPLES: &str = "Examples:
  tidemark-streams manifest rebuild --dir shop
  tidemark-streams manifest rebuild --dir shop --yes";
const SERVE_EXAMPLES: &str = "Examples:
  tidemark-streams serve --dir shop --listen 127.0.0.1:7180
  curl -d '{\"tenant\":\"330\",\"listing\":\"1095275\"}' http://127.0.0.1:7180/v1/events";
const QUERY_SERVER_EXAMPLES: &str = "Examples:
  tidemark-streams query-server --dir shop --server 127.0.0.1:7180
  curl -d '{\"tenant\":\"330\",\"from\":\"2026-01-01\",\"to\":\"2026-02-01\"}' http://127.0.0.1:7181/v1/impressions/query";
const TOKEN_EXAMPLES: &str = "Examples:
  tidemark-streams token --secret-file secret
  tidemark-streams token --secret-file secret --tenant 330
  tidemark-streams token --secret-file secret --tenant 330 --expires-in 30d
  tidemark-streams token --signing-key-file key.pem --follower --expires-in 90d";
const PLAN_EXAMPLES: &str = "Examples:
  tidemark-streams plan
  tidemark-streams plan site.toml --json

A file has lines such as:
  users = 2_000_000
  events_per_day = 5_000_000_000
  usd_per_gb_month = 0.021";
const LETTERS_EXAMPLES: &str = "Examples:
  tidemark-streams dead-letters list --dir shop --reason 'is not configured'
  tidemark-streams dead-letters replay --dir shop --types impression,click,view
  tidemark-streams dead-letters list --dir shop | sed 's/\\\\\"many\\\\\"/1/g' > fixed.ndjson
  tidemark-streams dead-letters replay --dir shop --fixed fixed.ndjson
  tidemark-streams dead-letters drop --dir shop --all";
const PAUSE_EXAMPLES: &str = "Examples:
  tidemark-streams pause --dir shop
  tidemark-streams resume --dir shop --type click
  curl -X POST -H \"authorization: Bearer $TOKEN\" 'http://127.0.0.1:7180/v1/pause?type=click'";
const RETENTION_EXAMPLES: &str = "Examples:
  tidemark-streams retention --dir shop --kept-days 730
  tidemark-streams retention --dir shop --late-days 30
  curl -X POST -H \"authorization: Bearer $TOKEN\" 'http://127.0.0.1:7180/v1/retention/set?kept_days=730'";
const ERASE_EXAMPLES: &str = "Examples:
  tidemark-streams erase 367 --dir shop
  tidemark-streams erase 367 --listing 1095275 --dir shop";
const TESTS_EXAMPLES: &str = "Examples:
  tidemark-streams test-tenants add demo load-test --dir shop
  tidemark-streams test-tenants delete-rows --dir shop
  curl -X POST -H \"authorization: Bearer $TOKEN\" 'http://127.0.0.1:7180/v1/test-tenants/add?tenant=demo'
  curl -X POST -H \"authorization: Bearer $TOKEN\" http://127.0.0.1:7180/v1/test-tenants/delete-rows";
const TYPES_EXAMPLES: &str = "Examples:
  tidemark-streams types list --dir shop
  tidemark-streams types rename view impression-view --dir shop
  tidemark-streams types delete click --dir shop
  tidemark-streams types add-dimension impression country --values-max 200 --dir shop
  curl -X POST -H \"authorization: Bearer $TOKEN\" 'http://127.0.0.1:7180/v1/types/delete?type=click'";
const LISTINGS_EXAMPLES: &str = "Examples:
  tidemark-streams listings load products.csv --map tenant=shop_id,listing=product_id --dir shop
  tidemark-streams listings show 1095275 --dir shop
  tidemark-streams load searches.ndjson --map listing=product,at=at --dir shop
  curl -d '{\"listing\":\"1095275\",\"tenant\":\"367\"}' http://127.0.0.1:7180/v1/listings";
const LAYOUT_EXAMPLES: &str = "Examples:
  tidemark-streams layout --dir shop --virtual-partitions 10 --buckets 100
  tidemark-streams layout --dir shop --split 367 --parts 8 --from 2027-01-01";

/// Count events per tenant, listing and hour, each exactly once
#[derive(Debug, Parser)]
#[command(name = "tidemark-streams", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Count the rows of a file, each exactly once
    ///
    /// The file is Parquet, CSV with a line of names, or JSON lines, plain or packed with gzip or zstd. A load that was killed is run
    /// again: it goes on behind the rows that are counted. A file that is counted is not counted again. A row that cannot be counted
    /// becomes a dead letter.
    #[command(after_help = LOAD_EXAMPLES)]
    Load(LoadArgs),
    /// Print the counts of one tenant, by hours or days of a zone's clock, or by listing
    ///
    /// A line has the begin of an hour or day, or a listing, then a tab and the count. Hours, days and listings that count nothing are
    /// left out.
    #[command(after_help = QUERY_EXAMPLES)]
    Query(QueryArgs),
    /// Print or change how rows are spread over blobs
    ///
    /// Tenants are spread over virtual partitions and their buckets by hash. A bucket has one blob for each period. Once rows are
    /// counted, a layout only grows: buckets of later days, and more large tenants.
    #[command(after_help = LAYOUT_EXAMPLES)]
    Layout(LayoutArgs),
    /// Add listings with their tenants, or print the tenant of a listing
    ///
    /// Events and rows that name no tenant count for the tenant of their listing. A listing that is not known yet makes them dead letters.
    #[command(subcommand)]
    Listings(ListingsCommand),
    /// List the blobs that count
    #[command(after_help = "Example:\n  tidemark-streams blobs --dir shop")]
    Blobs(DirectoryArgs),
    /// List, replay or drop the rows that were refused
    ///
    /// A row that cannot be counted becomes a dead letter, which keeps its reason and as much of the row as fits.
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// Pause the partition, or an event type, until it is resumed
    ///
    /// While the partition is paused, `load` is refused, and `serve` takes events into its log but counts none. Batches with events of
    /// a paused type are refused with 503 and counted when they are sent again later. A pause outlives restarts. The server that has
    /// the directory open is asked over HTTP: POST /v1/pause.
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(PauseArgs),
    /// Resume the partition, or an event type
    #[command(after_help = PAUSE_EXAMPLES)]
    Resume(PauseArgs),
    /// Print or change how many days rows are kept
    ///
    /// A blob leaves once all its hours are older than `--kept-days`. Rows that are older than `--late-days` when they come become dead
    /// letters. Expired rows do not come back, also when rows are kept longer later on. The server that has the directory open is asked
    /// over HTTP: GET /v1/retention and POST /v1/retention/set.
    #[command(after_help = RETENTION_EXAMPLES)]
    Retention(RetentionArgs),
    /// Erase the rows of a tenant, or of one listing of it, for good
    ///
    /// All blobs that may hold these rows are written again without them, and the old files are deleted. Rows up to the end of this hour
    /// that come later, by a load or over HTTP, are left out. An erase that was killed is run again: it goes on where it was.
    #[command(after_help = ERASE_EXAMPLES)]
    Erase(EraseArgs),
    /// Mark tenants as tests, and delete the rows of all of them
    ///
    /// Merges keep the rows of a test tenant in blobs of its own. They count like those of others. The server that has the directory open
    /// is asked over HTTP: POST /v1/test-tenants/add, /v1/test-tenants/remove and /v1/test-tenants/delete-rows.
    #[command(subcommand)]
    TestTenants(TestTenantsCommand),
    /// List, rename, merge, delete and reuse event types that have counts, and add dimensions to them
    ///
    /// For a directory that a server has open, use HTTP: POST /v1/types/rename, /v1/types/delete, /v1/types/add and
    /// /v1/types/add-dimension.
    #[command(subcommand)]
    Types(TypesCommand),
    /// Check all blobs against the manifest, and recount raw events of `serve` and loaded files that are named
    ///
    /// Each live blob has to be whole and to hold what the manifest says. Raw events of `serve` are counted again, as far as they are kept.
    /// With --against, rows of loaded files are counted too. The sum is compared with the blobs by tenant, listing, hour and type. Blobs merge
    /// the rows of all sources, so each file that was loaded has to be named. The counts of all sources are held in memory.
    #[command(after_help = AUDIT_EXAMPLES)]
    Audit(AuditArgs),
    /// Rebuild blobs whose files are damaged or missing; `range` counts past days again
    ///
    /// A blob is built again from the blobs that it was merged from, as long as their files are there, or from the rows of its source: the
    /// raw events of `serve`, or the loaded file that --from names. It is replaced if the result holds what the manifest says of it.
    #[command(after_help = REBUILD_EXAMPLES)]
    Rebuild(RebuildArgs),
    /// Build a lost manifest again
    #[command(subcommand)]
    Manifest(ManifestCommand),
    /// Take events over HTTP, and answer queries
    ///
    /// A request is answered once its events are durable in a log. They are folded in memory, written to blobs after --flush-s, and
    /// counted once whatever is killed. SIGTERM writes what is held and ends the process.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Answer queries beside a server, without any state
    ///
    /// The process reads the blobs of a directory that a server has open, and follows the server's manifest. It counts the rows that the
    /// server holds in memory too. Several may run, and each may be killed at any time. Without the server it answers from blobs only, and
    /// after --feed-age-max-s it refuses.
    #[command(after_help = QUERY_SERVER_EXAMPLES)]
    QueryServer(QueryServerArgs),
    /// Print the token of producers, of operators, or of one tenant
    ///
    /// The token of producers sends events and reads all tenants. The token of operators pauses, erases, and changes event types, dead
    /// letters, retention and test tenants. The token of a tenant reads the rows of that tenant only, and changes its tables.
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(TokenArgs),
    /// Print writes, bytes, memory, cores and prices for numbers of users and events
    ///
    /// Each figure has its formula in words. A number that the file leaves out is that of the article that this layout comes from: 100
    /// million users, 10 listings each, 10^12 events a day.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
}

#[derive(Debug, Args)]
pub struct DirectoryArgs {
    /// Directory of the event streams
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// Print dead letters as JSON lines with source, row number, reason and text
    ///
    /// Values of fields that no event has, and of --mask-fields, are masked; so is a text that is no JSON object. A replay with --fixed puts
    /// the stored values back in place of masks.
    #[command(after_help = LETTERS_EXAMPLES)]
    List(ListLettersArgs),
    /// Count dead letters that can be counted by now
    ///
    /// The text of a letter is read as an event over HTTP is. A letter counts once, also when the command is killed and run again. A
    /// letter that still cannot be counted stays. It takes the new reason once another letter of its blob counts. Ids of events are not
    /// compared.
    #[command(after_help = LETTERS_EXAMPLES)]
    Replay(ReplayLettersArgs),
    /// Give dead letters up: they are deleted and never count
    #[command(after_help = LETTERS_EXAMPLES)]
    Drop(DropLettersArgs),
}

/// Which dead letters are meant. Several options together mean the letters that fit all of them.
#[derive(Debug, Args)]
pub struct SelectArgs {
    /// Letters of the source with a digest that begins with this
    #[arg(long, value_name = "HEX")]
    pub source: Option<String>,
    /// The letter of this row, counted from 1 on
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub row: Option<u64>,
    /// Letters with a reason that contains this text
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Letters with a text that is an event of this tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
pub struct ListLettersArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// As of `serve`
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', default_value = "event_id")]
    pub mask_fields: Vec<String>,
    /// Print texts as they are stored, with all values
    #[arg(long, conflicts_with = "mask_fields")]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct ReplayLettersArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Event types that are taken
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values = ["impression", "click"])]
    pub types: Vec<String>,
    /// Replay the letters of this file only, with its texts: lines as `list` prints them. A text that is refused leaves its letter as it is
    #[arg(long, value_name = "FILE")]
    pub fixed: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DropLettersArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Drop all dead letters
    #[arg(long, conflicts_with_all = ["source", "row", "reason", "tenant"])]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// The event type [default: the partition, with all types]
    #[arg(long = "type", value_name = "NAME")]
    pub event_type: Option<String>,
}

#[derive(Debug, Args)]
pub struct RetentionArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// Refuse rows that are older than this many days: 3 to 36,500; 0: no limit
    #[arg(long, value_name = "DAYS")]
    pub late_days: Option<u32>,
    /// Keep rows for this many days: 3 to 36,500; 0: for ever
    #[arg(long, value_name = "DAYS")]
    pub kept_days: Option<u32>,
}

#[derive(Debug, Args)]
pub struct EraseArgs {
    /// The tenant
    pub tenant: String,
    /// Erase this listing only
    #[arg(long, value_name = "LISTING")]
    pub listing: Option<String>,
    /// Erase once more, also rows of hours that began after the first erasure
    #[arg(long)]
    pub again: bool,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

#[derive(Debug, Subcommand)]
pub enum TestTenantsCommand {
    /// Mark tenants as tests
    #[command(after_help = TESTS_EXAMPLES)]
    Add(TestTenantArgs),
    /// Take the mark from tenants; their rows stay
    #[command(after_help = "Example:\n  tidemark-streams test-tenants remove demo --dir shop")]
    Remove(TestTenantArgs),
    /// Print the hashes of the marked tenants
    #[command(after_help = "Example:\n  tidemark-streams test-tenants list --dir shop")]
    List(DirectoryArgs),
    /// Delete the rows of all test tenants, up to the end of this hour
    ///
    /// It erases these tenants, as `erase` does. The marks stay.
    #[command(after_help = TESTS_EXAMPLES)]
    DeleteRows(DirectoryArgs),
}

#[derive(Debug, Subcommand)]
pub enum TypesCommand {
    /// Print the event types, their earlier names, and the deleted ones
    ///
    /// In a directory of an earlier version, the first list reads all blobs and stores the names of their types.
    #[command(after_help = TYPES_EXAMPLES)]
    List(DirectoryArgs),
    /// Rename an event type
    ///
    /// Answers use the new name at once, and no file is rewritten. Events that still arrive under the old name count under the new name.
    #[command(after_help = TYPES_EXAMPLES)]
    Rename(RenameTypeArgs),
    /// Delete an event type with all its rows
    ///
    /// Queries leave its rows out at once. All blobs that may hold its rows are rewritten without them, and the old files are deleted.
    /// Later events of the type become dead letters. Run a killed delete again: it continues.
    #[command(after_help = TYPES_EXAMPLES)]
    Delete(TypeArgs),
    /// Let a deleted or renamed name stand for a new event type
    ///
    /// Rows that were deleted or renamed do not return under it.
    #[command(after_help = TYPES_EXAMPLES)]
    Add(TypeArgs),
    /// Let events of a type have a value of a dimension, such as a country
    ///
    /// Earlier rows stay without a value. Queries that do not name the dimension count all rows as before. A directory has at most four
    /// dimensions, for ever. The bound on values stays.
    #[command(after_help = TYPES_EXAMPLES)]
    AddDimension(AddDimensionArgs),
}

#[derive(Debug, Subcommand)]
pub enum ListingsCommand {
    /// Add the listings of a file, all of them or none
    ///
    /// The file is Parquet, CSV with a line of names, or JSON lines, plain or packed with gzip or zstd. A listing has at most 255 bytes, a
    /// tenant at most 128. A listing belongs to one tenant for ever: a file that names another tenant is refused. The same entry again
    /// changes nothing, so a load that was killed is run again.
    #[command(after_help = LISTINGS_EXAMPLES)]
    Load(LoadListingsArgs),
    /// Print the tenant of a listing, and the version of the catalogue that added it
    #[command(after_help = LISTINGS_EXAMPLES)]
    Show(ShowListingArgs),
}

#[derive(Debug, Args)]
pub struct LoadListingsArgs {
    /// The file
    pub file: PathBuf,
    /// Columns of the tenant and of the listing
    #[arg(long, value_name = "tenant=COLUMN,listing=COLUMN")]
    pub map: String,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

#[derive(Debug, Args)]
pub struct ShowListingArgs {
    /// The listing
    pub listing: String,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

#[derive(Debug, Args)]
pub struct AddDimensionArgs {
    /// The name of the event type
    pub name: String,
    /// The dimension: the field of events with the value, and the column of counts
    pub dimension: String,
    /// Values that a flush keeps for each tenant: 1 to 10,000. Further values count as `other`
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = VALUES_MAX_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(VALUES_MAX))
    )]
    pub values_max: u32,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

#[derive(Debug, Args)]
pub struct RenameTypeArgs {
    /// The present name
    pub from: String,
    /// The new name
    pub to: String,
    /// Merge both types if the new name is in use; this cannot be undone
    #[arg(long)]
    pub merge: bool,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

#[derive(Debug, Args)]
pub struct TypeArgs {
    /// The name of the event type
    pub name: String,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

#[derive(Debug, Args)]
pub struct TestTenantArgs {
    /// The tenants
    #[arg(required = true)]
    pub tenants: Vec<String>,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

/// How the rows of a file are read.
#[derive(Debug, Args)]
pub struct ReadingArgs {
    /// Columns of the fields: listing and at (the time); tenant (that of the catalogue without it), n (the count, 1 without it), type and
    /// dimensions are optional. A column of pages is named listings in place of listing: each listing of a page counts
    #[arg(long, value_name = "FIELD=COLUMN,...")]
    pub map: String,
    /// What stands between the listings of a page, if pages are texts; JSON lines and Parquet may have lists without it
    #[arg(long, value_name = "TEXT")]
    pub listings_separator: Option<String>,
    /// The event type of all rows [default: impression]
    #[arg(long = "type", value_name = "NAME")]
    pub event_type: Option<String>,
    /// The zone of times that do not say their offset
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub file_zone: String,
}

#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The file
    pub file: PathBuf,
    #[command(flatten)]
    pub reading: ReadingArgs,
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// Event types that a column of types may name
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values = ["impression", "click"])]
    pub types: Vec<String>,
    /// Stop once more rows than this were refused
    #[arg(long, value_name = "ROWS", default_value_t = 10_000)]
    pub dead_letters_max: u64,
    /// Distinct (tenant, listing, quarter of an hour, type) that are held in memory before they are written
    #[arg(long, value_name = "COUNTS", default_value_t = 262_144, value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    pub flush_counts: u64,
}

/// The grouping of counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    Hour,
    Day,
    Listing,
    /// The name of a dimension of the directory.
    Value(String),
}

impl By {
    fn parse(text: &str) -> Result<By, Infallible> {
        Ok(match text {
            "hour" => By::Hour,
            "day" => By::Day,
            "listing" => By::Listing,
            other => By::Value(other.to_owned()),
        })
    }
}

/// A value of a dimension that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Where {
    pub dimension: String,
    pub value: String,
}

/// A wanted value is not in its form.
#[derive(Clone, Debug, thiserror::Error)]
#[error("DIMENSION=VALUE is expected, such as country=NP; country= means rows without a value")]
pub struct NoEquals;

impl Where {
    fn parse(text: &str) -> Result<Where, NoEquals> {
        let (dimension, value) = text.split_once('=').ok_or(NoEquals)?;
        Ok(Where { dimension: dimension.to_owned(), value: value.to_owned() })
    }
}

/// What counts are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compare {
    /// The day before, the same days of the month before, or as many days before
    Previous,
    /// The same times of the week before
    Week,
    /// The same days and times of the month before
    Month,
}

#[derive(Debug, Args)]
pub struct QueryArgs {
    /// The tenant
    pub tenant: String,
    /// Grouping of the counts: hour, day, listing, or a dimension of the directory such as country
    ///
    /// Hours and days are those of the zone's clock. Of listings and values of a dimension, the largest count comes first. Rows without a
    /// value are one group, with an empty value.
    #[arg(long, value_name = "GROUPING", value_parser = By::parse, default_value = "hour")]
    pub by: By,
    /// Count rows with this value of a dimension only; several of one dimension mean any of them. `country=` means rows without a value
    #[arg(long = "where", value_name = "DIMENSION=VALUE", value_parser = Where::parse)]
    pub values: Vec<Where>,
    /// The zone of hours, days, --from and --to, by its name in the IANA database
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub zone: String,
    /// The first time that counts, rounded down to a quarter of an hour
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// The end: the first time that does not count, rounded down to a quarter of an hour
    #[arg(long, value_name = "TIME")]
    pub to: Option<String>,
    /// Count events of this type only
    #[arg(long = "type", value_name = "NAME")]
    pub event_type: Option<String>,
    /// Print the counts of the period before, too
    #[arg(long, value_enum, value_name = "PERIOD", requires_all = ["from", "to"])]
    pub compare: Option<Compare>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub directory: DirectoryArgs,
}

#[derive(Debug, Args)]
pub struct LayoutArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// How long a period is: week, month or quarter [default: month]
    #[arg(long, value_name = "UNIT")]
    pub period: Option<PeriodUnit>,
    /// Virtual partitions [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub virtual_partitions: Option<u32>,
    /// Buckets of each virtual partition: as many as give a bucket 1,000 tenants [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub buckets: Option<u32>,
    /// Split the rows of this large tenant by listing
    #[arg(long, value_name = "TENANT", requires = "parts")]
    pub split: Option<String>,
    /// Number of parts of the large tenant
    #[arg(long, value_name = "COUNT", requires = "split")]
    pub parts: Option<u32>,
    /// The first day, of UTC, that the buckets or parts are for; without it, all days
    #[arg(long, value_name = "DATE")]
    pub from: Option<String>,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// Compare blobs with the manifest only: raw events are not read
    #[arg(long, conflicts_with = "against")]
    pub skip_raw: bool,
    /// A file that was loaded into this directory; give the option once for each file
    #[arg(long, value_name = "FILE", requires = "map")]
    pub against: Vec<PathBuf>,
    #[command(flatten)]
    pub columns: ColumnsOfFiles,
}

/// How several files are read.
#[derive(Debug, Args)]
pub struct ColumnsOfFiles {
    /// As in `load`: once for all files, or once for each in their order
    #[arg(long, value_name = "FIELD=COLUMN,...")]
    pub map: Vec<String>,
    /// As in `load`, once or for each file; an empty TEXT is for a file without pages of text
    #[arg(long, value_name = "TEXT")]
    pub listings_separator: Vec<String>,
    /// As in `load`, once or for each file; an empty NAME is for a file with a type in --map
    #[arg(long = "type", value_name = "NAME")]
    pub event_type: Vec<String>,
    /// As in `load`, once or for each file [default: UTC]
    #[arg(long, value_name = "ZONE")]
    pub file_zone: Vec<String>,
}

impl ColumnsOfFiles {
    /// The first option that is given.
    pub fn first(&self) -> Option<&'static str> {
        let ColumnsOfFiles { map, listings_separator, event_type, file_zone } = self;
        let given = [
            ("--map", map),
            ("--listings-separator", listings_separator),
            ("--type", event_type),
            ("--file-zone", file_zone),
        ];
        given.into_iter().find(|(_, texts)| !texts.is_empty()).map(|(name, _)| name)
    }
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct RebuildArgs {
    #[command(subcommand)]
    pub command: Option<RebuildCommand>,
    /// The names of the blobs, as `blobs` prints them [default: all that are damaged or missing]
    pub blobs: Vec<String>,
    /// Directory of the event streams
    #[arg(long, value_name = "DIR", required = true)]
    pub dir: Option<PathBuf>,
    /// A file that was loaded: its rows are counted again
    #[arg(long, value_name = "FILE", requires = "map")]
    pub from: Option<PathBuf>,
    /// As of `load`
    #[arg(long, value_name = "FIELD=COLUMN,...", requires = "from")]
    pub map: Option<String>,
    /// As of `load`
    #[arg(long, value_name = "TEXT", requires = "from")]
    pub listings_separator: Option<String>,
    /// As of `load`
    #[arg(long = "type", value_name = "NAME", requires = "from")]
    pub event_type: Option<String>,
    /// As of `load`
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "from")]
    pub file_zone: String,
    /// As of `load`, and of `serve`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values = ["impression", "click"])]
    pub types: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum RebuildCommand {
    /// Count past days again from their sources, and replace the rows that differ
    ///
    /// Blobs of these days may be whole and count other rows than their sources, such as those of a file that was read by a wrong column.
    /// The command prints the tenants and days that differ, and changes nothing; its exit code is 1 then. With --yes one entry of the
    /// manifest replaces the rows of all these days. All sources that may have rows of these days have to be named. Their columns may be
    /// corrected ones.
    #[command(after_help = RANGE_EXAMPLES)]
    Range(RangeArgs),
}

#[derive(Debug, Args)]
pub struct RangeArgs {
    /// Count rows of this event type again [default: all types]
    #[arg(value_name = "TYPE")]
    pub only: Option<String>,
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// The first day, of UTC
    #[arg(long, value_name = "DATE")]
    pub from: String,
    /// The last day, included; it has ended 15 minutes ago
    #[arg(long, value_name = "DATE")]
    pub to: String,
    /// Count the raw events of `serve`
    #[arg(long)]
    pub from_archive: bool,
    /// Count the rows of a loaded file; give the option once for each file
    #[arg(long, value_name = "FILE", requires = "map")]
    pub from_file: Vec<PathBuf>,
    #[command(flatten)]
    pub columns: ColumnsOfFiles,
    /// Print the differences and change nothing, as without --yes
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Replace the rows
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
pub enum ManifestCommand {
    /// Build a manifest again that is lost or damaged, from manifest.head and the blobs
    ///
    /// Blobs say of themselves which blobs were live and how far each source was counted. All of them are read. Without --yes the command
    /// prints what it finds and changes nothing. What cannot be decided is named, and nothing is written then.
    #[command(after_help = MANIFEST_EXAMPLES)]
    Rebuild(ManifestRebuildArgs),
}

#[derive(Debug, Args)]
pub struct ManifestRebuildArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// Write the manifest; the old file is kept under another name
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// TOML, or JSON if its name ends with .json [default: the numbers of the article]
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7180")]
    pub listen: SocketAddr,
    /// Event types that are taken
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_values = ["impression", "click"])]
    pub types: Vec<String>,
    /// Seconds that events wait in memory before they are written to a blob
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub flush_s: u64,
    /// Distinct (tenant, listing, quarter of an hour, type) that are held in memory before they are written
    #[arg(long, value_name = "COUNTS", default_value_t = 1_048_576, value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    pub flush_counts: u64,
    /// Seconds that an event_id is known
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub event_id_s: u64,
    /// Event ids that are known at a time; 56 bytes of memory each
    #[arg(long, value_name = "IDS", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(0..=50_000_000))]
    pub event_ids_max: u64,
    /// Seconds that an event_id of a type is known, up to 86,400; such a type has a number of ids of its own [default of purchase: 86400]
    #[arg(long, value_name = "TYPE=SECONDS,...", value_delimiter = ',', value_parser = OfType::seconds)]
    pub event_id_s_of: Vec<OfType>,
    /// Event ids of a type that are known at a time, up to 50,000,000 [default: --event-ids-max for each type with bounds of its own]
    #[arg(long, value_name = "TYPE=IDS,...", value_delimiter = ',', value_parser = OfType::ids)]
    pub event_ids_max_of: Vec<OfType>,
    /// Seconds behind the end of an hour at which its counts are settled
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(0..=2_678_400))]
    pub lateness_s: u64,
    /// Seconds that the file of a blob is kept after it was replaced, for queries that read it
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub reader_grace_s: u64,
    /// Bytes of the log that may wait to be written to blobs; beyond that, requests are answered 503
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30, value_parser = clap::value_parser!(u64).range(1_048_576..))]
    pub log_bytes_max: u64,
    /// Days that raw events are kept after they were accepted, for `audit` and `rebuild`; 0: none is kept
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = clap::value_parser!(u64).range(0..=KEEP_RAW_DAYS_MAX))]
    pub keep_raw_days: u64,
    /// Events a second of a tenant, refused ones too; beyond that, requests are answered 429; 0: no quota
    #[arg(long, value_name = "EVENTS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub tenant_events_per_s: u64,
    /// Refused events a day of a tenant, which become dead letters; beyond that, requests are answered 429; 0: no quota
    #[arg(long, value_name = "EVENTS", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub tenant_refused_per_day: u64,
    /// Dead letters in blobs; beyond that, a batch with events that cannot be counted is answered 503
    #[arg(long, value_name = "LETTERS", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub dead_letters_max: u64,
    /// Fields of events and dimensions that lists of dead letters mask, beside fields that no event has; an empty text means none
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', default_value = "event_id")]
    pub mask_fields: Vec<String>,
    /// A file with a secret, which only its owner may read; then requests need a token (`tidemark-streams token`)
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub connections: ConnectionArgs,
    /// MiB of the uploaded tables of one tenant; 0: no table is taken
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=128))]
    pub sql_tenant_tables_mib: u64,
    #[command(flatten)]
    pub sql: SqlArgs,
}

/// A number of an event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfType {
    pub name: String,
    pub number: u64,
}

/// A number of an event type is not in its form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoOfType {
    #[error("TYPE=NUMBER is expected, such as purchase=3600")]
    Form,
    #[error("{number} is too large: at most {max}")]
    Large { number: u64, max: u64 },
}

impl OfType {
    fn seconds(text: &str) -> Result<OfType, NoOfType> {
        OfType::parse(text, 86_400)
    }

    fn ids(text: &str) -> Result<OfType, NoOfType> {
        OfType::parse(text, 50_000_000)
    }

    fn parse(text: &str, max: u64) -> Result<OfType, NoOfType> {
        let (name, number) = text.split_once('=').ok_or(NoOfType::Form)?;
        let number = number.parse().map_err(|_| NoOfType::Form)?;
        match number <= max {
            true => Ok(OfType { name: name.to_owned(), number }),
            false => Err(NoOfType::Large { number, max }),
        }
    }
}

#[derive(Debug, Args)]
pub struct QueryServerArgs {
    #[command(flatten)]
    pub directory: DirectoryArgs,
    /// The server that has the directory open: https://HOST:PORT with TLS, or HOST:PORT of this machine, or http://HOST:PORT together with
    /// --plain-http; give the option again for each other server that may have it open later
    #[arg(long = "server", value_name = "SERVER", required = true)]
    pub servers: Vec<String>,
    /// PEM file of the authority that issued the servers' certificates [default: the operating system's authorities]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Where to listen; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7181")]
    pub listen: SocketAddr,
    /// Seconds without the server, after which queries are refused
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub feed_age_max_s: u64,
    /// The file with the secret of the server; better are --token-key-file and --token-file, with which it can make no token
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// A file with the token for the servers (`tidemark-streams token --follower`), which only its owner may read; --token-key-file or
    /// --secret-file goes with it [default: made from --secret-file]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub connections: ConnectionArgs,
    #[command(flatten)]
    pub sql: SqlArgs,
}

/// How connections are protected.
#[derive(Debug, Args)]
pub struct ConnectionArgs {
    /// PEM file of public Ed25519 keys; then requests need a token, and tokens that one of the keys signed are taken
    #[arg(long, value_name = "FILE")]
    pub token_key_file: Option<PathBuf>,
    /// PEM file of the server certificate; with a key all HTTP is over TLS
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_certificate_file: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_certificate_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Talk to other machines without TLS, because the network between them encrypts; --server must say http:// too
    #[arg(long)]
    pub plain_http: bool,
}

/// Options of POST /v1/sql. It needs the program `tidemark-sql`.
#[derive(Debug, Args)]
pub struct SqlArgs {
    /// The program that executes queries in SQL; it must exist at the start [default: tidemark-sql beside this program]
    #[arg(long, value_name = "FILE")]
    pub sql_program: Option<PathBuf>,
    /// Largest number of processes for SQL; each executes one query at a time
    #[arg(long, value_name = "PROCESSES", default_value_t = 4, value_parser = clap::value_parser!(u64).range(SQL_CHILDREN_MIN as u64..=SQL_CHILDREN_MAX as u64))]
    pub sql_children: u64,
    /// Memory in MiB of a query in SQL, with the rows that it reads; a query that needs more is refused
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..=16_384))]
    pub sql_memory_mib: u64,
    /// Seconds that a query in SQL may take, beside its wait for a turn
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub sql_timeout_s: u64,
    /// Rows that a query in SQL may read; a query that reads more is refused
    #[arg(long, value_name = "ROWS", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub sql_rows_max: u64,
    /// Queries in SQL of one tenant at a time: fewer than --sql-children
    #[arg(long, value_name = "QUERIES", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..SQL_CHILDREN_MAX as u64))]
    pub sql_tenant_queries: u64,
    /// Seconds that the queries in SQL of one tenant may take in a minute
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=480))]
    pub sql_tenant_s: u64,
    /// Rows that the queries in SQL of one tenant may read in a minute
    #[arg(long, value_name = "ROWS", default_value_t = 50_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub sql_tenant_rows: u64,
    /// A file for a line about each query in SQL: tenant, time, rows, outcome and shape; it is created at the start [default: no log]
    #[arg(long, value_name = "FILE")]
    pub sql_log: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The file with the secret, as of `serve`
    #[arg(long, value_name = "FILE", required_unless_present = "signing_key_file")]
    pub secret_file: Option<PathBuf>,
    /// PEM file of a private Ed25519 key, which signs the token (`openssl genpkey -algorithm ed25519 -out FILE`); servers and query processes
    /// get its public key as --token-key-file
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    pub signing_key_file: Option<PathBuf>,
    /// Print the token that reads the rows of this tenant only, and changes its tables [default: the token of producers]
    #[arg(long, value_name = "TENANT", conflicts_with = "operator")]
    pub tenant: Option<String>,
    /// How long the token is valid, such as 90s, 12h or 30d: a token of a tenant, which is named in it, or a signed one [default: for ever]
    #[arg(long, value_name = "PERIOD")]
    pub expires_in: Option<Period>,
    /// Print the token of operators, which pauses, resumes, erases, and changes event types, dead letters, retention and test tenants
    #[arg(long)]
    pub operator: bool,
    /// Print the token of query processes, which reads the manifest, and the rows of all tenants in memory
    #[arg(long, conflicts_with_all = ["operator", "tenant"])]
    pub follower: bool,
}
