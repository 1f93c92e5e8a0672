//! The page docs/reference/streams.md says what the program does: codes, limits and settings.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use tidemark_streams_core::limits as core_limits;
use tidemark_streams_intake::limits;
use tidemark_streams_serve::settings::LOG_ENTRIES_MAX;
use tidemark_streams_store::catalogue::SOURCE_VERSIONS_MAX;

const PAGE: &str = include_str!("../../../docs/reference/streams.md");
const SQL_PAGE: &str = include_str!("../../../docs/reference/sql.md");
const SQL_ERRORS: &str = include_str!("../../sql/src/pool/error.rs");
const SQL_LIMITS: &str = include_str!("../../sql/src/limits.rs");
const CORE_LIMITS: &str = include_str!("../../core/src/limits.rs");
const INTAKE_LIMITS: &str = include_str!("../../intake/src/limits.rs");
const BODY: &str = include_str!("../../intake/src/body.rs");

/// The files that answer requests over HTTP.
fn http_sources() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/src/http");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources: Vec<String> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    assert!(sources.len() > 15, "{}", sources.len());
    sources
}

/// Words in backquotes that stand in the first cells of the tables of a section.
fn first_cells(section: &str) -> BTreeSet<String> {
    cells_of(PAGE, section)
}

fn cells_of(page: &str, section: &str) -> BTreeSet<String> {
    let begin = page.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let rest = &page[begin + 4..];
    let text = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The statuses that a source names, each with the comma behind it.
fn statuses(source: &str) -> Vec<String> {
    let named = source.split("StatusCode::").skip(1).filter_map(|rest| {
        let name: String = rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
        rest[name.len()..].starts_with(',').then(|| format!("StatusCode::{name},"))
    });
    named.collect()
}

/// Codes that stand behind a mark.
fn codes<'s>(source: &'s str, marks: &'s [&str]) -> impl Iterator<Item = String> + 's {
    let compact: String = source.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_code = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    marks.iter().flat_map(move |mark| {
        let rests: Vec<String> = compact.split(mark).skip(1).map(str::to_owned).collect();
        rests.into_iter().filter_map(move |rest| {
            let code = rest.trim_start().strip_prefix('"')?.split('"').next()?.to_owned();
            is_code(&code).then_some(code)
        })
    })
}

#[test]
fn codes_of_requests_are_those_of_the_page() {
    const MARKS: [&str; 7] = [
        "Failure::bad(",
        "Failure::later(",
        "PersistError::Full(_) =>",
        "PersistError::Io(_) =>",
        "else {",
        "{ \"disk_full\" } else {",
        "let code = if why.contains(\"no space is left\") {",
    ];
    let sources = http_sources();
    let statuses: BTreeSet<String> = sources.iter().flat_map(|source| statuses(source)).collect();
    let marks: Vec<&str> = MARKS.into_iter().chain(statuses.iter().map(String::as_str)).collect();
    let given: BTreeSet<String> = sources.iter().flat_map(|source| codes(source, &marks)).collect();
    let is_of_sql = |code: &String| code.starts_with("sql_");
    let others = ["none", "day", "hour"];
    let given: BTreeSet<String> =
        given.into_iter().filter(|code| !is_of_sql(code) && !others.contains(&code.as_str())).collect();
    assert_eq!(first_cells("Error codes of requests"), given);
}

#[test]
fn codes_and_limits_of_sql_are_those_of_their_page() {
    let given: BTreeSet<String> = codes(SQL_ERRORS, &["=>", "=> {"]).collect();
    assert_eq!(cells_of(SQL_PAGE, "Error codes of SQL"), given);
    let listed = cells_of(SQL_PAGE, "Limits of SQL");
    for name in &listed {
        let line = SQL_PAGE.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        let cell: u64 = line.split('|').nth(2).unwrap().trim().replace(',', "").parse().unwrap();
        let value = SQL_LIMITS.split(&format!("pub const {name}: ")).nth(1).unwrap_or_else(|| panic!("no {name}"));
        let value = value.split(['=', ';']).nth(1).unwrap().trim().replace('_', "");
        let value = match value.split_once(" << ") {
            Some((number, shift)) => number.parse::<u64>().unwrap() << shift.parse::<u32>().unwrap(),
            None => value.parse().unwrap(),
        };
        assert_eq!(cell, value, "{name}");
    }
    assert!(listed.len() >= 14, "{listed:?}");
}

#[test]
fn codes_of_events_are_those_of_the_page() {
    let given: BTreeSet<String> = codes(BODY, &["=>"]).collect();
    assert_eq!(first_cells("Codes of refused events"), given);
}

/// The names of limits with their values.
macro_rules! values {
    ($from:ident: $($name:ident),* $(,)?) => {
        vec![$((stringify!($name), $from::$name as u64)),*]
    };
}

#[test]
fn limits_are_those_of_the_page() {
    let of_core = values!(
        core_limits:
        TENANT_BYTES_MAX, LISTING_BYTES_MAX, EVENT_TYPE_BYTES_MAX, EVENT_TYPES_MAX, TYPE_CHANGES_MAX,
        DIMENSIONS_MAX, DIMENSION_BYTES_MAX, VALUE_BYTES_MAX, VALUES_BYTES_MAX, VALUES_MAX,
        VALUES_MAX_DEFAULT, EVENT_COUNT_MAX, QUARTER_COUNT_MAX, FUTURE_MAX_S, QUARTERS_MAX,
        DEAD_LETTER_REASON_BYTES_MAX, DEAD_LETTER_TEXT_BYTES_MAX, PARTITIONS_MAX, SOURCES_MAX,
        COMMIT_BLOBS_MAX, COMMAND_BYTES_MAX, MERGE_BLOBS_MAX, REPLACED_ROWS_MAX, MERGE_ROWS_MAX, REBUILD_READS_MAX,
        RECOVER_DOUBTS_MAX, GONE_BLOBS_MAX, FEED_COMMANDS_MAX, FEED_BYTES_MAX, FEED_PAGE_BYTES_MAX, RETENTION_DAYS_MIN, RETENTION_DAYS_MAX, EXPIRED_BLOBS_MAX,
        ERASURES_MAX, TEST_TENANTS_MAX, SLICES_MAX, BUCKET_CHANGES_MAX, LARGE_TENANTS_MAX, PARTS_MAX,
        ROW_TEXT_BYTES_MAX, ROWS_TEXT_BYTES_MAX,
    );
    let of_intake = values!(
        limits:
        BODY_BYTES_MAX, UNPACKED_BYTES_MAX, EVENTS_MAX, EVENT_BYTES_MAX, LISTINGS_MAX, ROWS_MAX,
        EVENT_ID_BYTES_MAX, LISTINGS_ADDED_MAX, PRODUCER_BYTES_MAX, PRODUCERS_MAX, PRODUCER_KEPT_MS,
        LATE_TENANTS_MAX, REFUSED_TENANTS_MAX, REFUSED_CODES_MAX, QUOTA_TENANTS_MAX, ENTRY_BYTES_MAX,
        IDS_PER_ROW_MAX, ZSTD_WINDOW_LOG_MAX,
        RAW_FILE_BYTES_MAX, RAW_DIRECTORY_BYTES_MAX, RAW_MERGED_BYTES_MAX, RAW_MERGED_FILES_MAX,
        RAW_REMOVED_FILES_MAX,
    );
    for (source, values) in [(CORE_LIMITS, &of_core), (INTAKE_LIMITS, &of_intake)] {
        let names: Vec<&str> =
            source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next()).collect();
        assert_eq!(names, values.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "each limit is compared");
    }
    let others = [("SOURCE_VERSIONS_MAX", SOURCE_VERSIONS_MAX as u64), ("LOG_ENTRIES_MAX", LOG_ENTRIES_MAX as u64)];
    for (name, value) in of_core.into_iter().chain(of_intake).chain(others) {
        let line = PAGE.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let cell = line.and_then(|line| line.split('|').nth(2)).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(cell.trim().replace(',', "").parse(), Ok(value), "{name}");
    }
}

/// Each alert of event streams reads metrics that there are, and the page says what to do.
#[test]
fn alerts_read_metrics_of_the_page_and_have_a_runbook() {
    const ALERTS: &str = include_str!("../../../docs/operate/metrics.md");
    const RUNBOOKS: &str = include_str!("../../../docs/operate/runbooks.md");
    let mut known = first_cells("Metrics");
    known.extend(first_cells("Metrics of a query process"));
    known.extend(cells_of(SQL_PAGE, "Metrics of SQL"));
    let group = &ALERTS[ALERTS.find("- name: tidemark-streams").unwrap()..];
    let (rules, table) = group.split_once("```").unwrap();
    let is_of_name = |sign: char| sign.is_ascii_lowercase() || sign == '_';
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    for rule in ["FeedBehind", "Lag", "NotFresh", "Refused", "SqlEnds", "Stuck"] {
        assert!(alerts.contains(&format!("TidemarkStreams{rule}").as_str()), "{rule}");
    }
    let read: Vec<&str> = rules.split(|sign| !is_of_name(sign)).filter(|word| word.starts_with("tidemark_")).collect();
    assert!(read.len() >= alerts.len(), "{read:?}");
    for metric in read {
        assert!(known.contains(metric), "{metric} is no metric");
    }
    for alert in alerts {
        let line = table.lines().find(|line| line.contains(&format!("`{alert}`"))).unwrap_or_else(|| panic!("{alert}"));
        let anchor = line.split("runbooks.md#").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
        let title = |line: &str| line.strip_prefix("## ").map(|title| title.to_lowercase().replace(' ', "-"));
        assert!(RUNBOOKS.lines().filter_map(title).any(|title| title == anchor), "{alert}: {anchor}");
    }
}

#[test]
fn settings_are_those_of_the_page() {
    let options = options("serve");
    assert_eq!(first_cells("Settings"), options);
}

/// Settings of SQL are those of a server.
#[test]
fn settings_of_a_query_process_are_those_of_the_page() {
    let is_of_sql = |option: &String| option.starts_with("--sql-");
    let options: BTreeSet<String> = options("query-server").into_iter().filter(|option| !is_of_sql(option)).collect();
    assert_eq!(first_cells("Settings of a query process"), options);
}

fn options(command: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_tidemark-streams")).args([command, "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    help.lines()
        .filter_map(|line| line.trim_start().strip_prefix("--").filter(|_| line.starts_with(' ')))
        .map(|line| format!("--{}", line.split([' ', ',']).next().unwrap_or_default()))
        .filter(|option| option != "--dir" && option != "--help")
        .collect()
}
