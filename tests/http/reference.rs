//! The reference pages of the book agree with the program: paths with the table of operations, limits with the
//! constants, configuration with the samples that a test reads as the program does.
//!
//! The generated parts are written anew with `TIDEMARK_BLESS=1`.

use std::collections::BTreeSet;
use std::path::Path;
use tidemark_proto::limits;
use tidemark_server::http::{Param, Permission, Rules, rules};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a page with what it has to be, or makes it so.
fn check(path: &str, wanted: &str) {
    if std::env::var_os("TIDEMARK_BLESS").is_some() {
        std::fs::write(root().join(path), wanted).unwrap();
    }
    let found = read(path);
    let line = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted);
    assert!(found == wanted, "{path} is not what the program says, from line {line:?} on: run with TIDEMARK_BLESS=1");
}

/// Every operation has a section on the page with the table's facts in its second line; the rest is for people.
#[test]
fn every_operation_has_its_facts_on_the_page() {
    let page = read("docs/reference/http.md");
    let mut wanted = String::new();
    let mut unknown: Vec<String> = rules().iter().map(heading).collect();
    let (head, sections) = page.split_at(page.find("\n### ").expect("operations"));
    wanted += head;
    for section in sections.split("\n### ").skip(1) {
        let (title, rest) = section.split_once('\n').expect("a section");
        let rules = rules().into_iter().find(|rules| heading(rules) == title);
        let rules = rules.unwrap_or_else(|| panic!("docs/reference/http.md: there is no {title}"));
        unknown.retain(|known| known != title);
        let prose = rest.trim_start_matches('\n').split_once("\n\n").map_or("", |(_, prose)| prose);
        wanted += &format!("\n### {title}\n\n{}\n\n{}\n", facts(&rules), prose.trim_end_matches('\n'));
    }
    assert!(unknown.is_empty(), "docs/reference/http.md lacks {unknown:?}");
    check("docs/reference/http.md", &wanted);
}

fn heading(rules: &Rules) -> String {
    format!("{} {}", rules.method, rules.path)
}

fn facts(rules: &Rules) -> String {
    let permission = match rules.permission {
        Permission::Open => "Needs no token.",
        Permission::Read => "Reads: needs the token, unless reads are open.",
        Permission::Write => "Needs the token.",
        Permission::Own => "Needs the token, or a token of its own.",
    };
    let listed = |names: Vec<String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let name = |param: &Param| if param.repeats { format!("{}…", param.name) } else { param.name.to_owned() };
    let mut text = permission.to_owned();
    if !rules.params.is_empty() {
        text += &format!(" Parameters: {}.", listed(rules.params.iter().map(name).collect()));
    }
    match rules.body {
        Some([]) => text += " Body: an empty object, or none.",
        Some(fields) => {
            let kind = if rules.many { "objects of" } else { "an object of" };
            let fields = listed(fields.iter().map(|&field| field.to_owned()).collect());
            text += &format!(" Body: {kind} {fields}; at most {} bytes.", rules.body_bytes_max);
        }
        None => {}
    }
    if rules.keyed {
        text += " Takes an `Idempotency-Key`.";
    }
    text
}

/// Rows `| `NAME` | value | …` of the page of limits.
macro_rules! limits {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), limits::$name.to_string())),*] };
}

#[test]
fn the_page_of_limits_has_the_values_of_the_code() {
    let values = limits![
        NAMESPACE_BYTES_MAX,
        KEY_BYTES_MAX,
        NAMESPACES_MAX,
        DELTA_MAX,
        COMPONENT_MAX,
        MILESTONE_MAX,
        BATCH_ITEMS_MAX,
        MESSAGE_BYTES_MAX,
        CLAIM_PERIOD_S_MAX,
        CLAIM_PASSES_MAX,
        HOP_BYTES_MAX,
        LANES_MAX,
        DCS_MAX,
        AGGREGATORS_MAX,
        GROUPS_MAX,
        VALVES_MAX,
        SHARDS_MAX,
        SHARDS_HELD_MAX,
        SHARD_BY_MAX,
        KEY_PIECES_MAX,
        GUARDED_COUNTERS_MAX,
        SPREAD_ASKED_MAX,
        COUNTER_LIVES_MAX,
        MILESTONES_PER_COUNTER_MAX,
        IDS_MAX,
        IDS_MAX_MAX,
        QUEUED_ITEMS_MAX,
        UNDECIDED_ITEMS_MAX,
        SIGNATURES_PER_AWARD_MAX,
        EARLIER_BIRTHS_MAX,
        UNIX_TIME_MAX_S,
        GRANULARITIES_MAX,
        BUCKETS_KEPT_MAX,
        AHEAD_MAX_S,
        STEPS_MAX,
        QUERY_COUNTERS_MAX,
        QUERY_WINDOWS_MAX,
        SERIES_VALUES_MAX,
        RANKED_MAX,
        RANGE_MAX,
        RANKS_MAX,
        EDGES_MAX,
        EDGE_CHANGES_PER_COMMAND_MAX,
        EDGE_CHANGES_QUEUED_MAX,
        EDGE_AUDIT_MAX,
        EDGE_PERMISSIONS_MAX,
        TEXT_BYTES_MAX,
    ];
    let page = read("docs/reference/limits.md");
    for (name, value) in &values {
        let row = format!("| `{name}` | {} |", grouped(value));
        assert!(page.contains(&row), "docs/reference/limits.md has no row {row}");
    }
    let rows: BTreeSet<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), values.len(), "docs/reference/limits.md has rows that nobody compares");
}

/// Thousands apart, as people read numbers.
fn grouped(digits: &str) -> String {
    let first = (digits.len() + 2) % 3 + 1;
    let (head, rest) = digits.split_at(first.min(digits.len()));
    let rest = rest.as_bytes().chunks(3).map(|chunk| format!(",{}", String::from_utf8_lossy(chunk)));
    head.to_owned() + &rest.collect::<String>()
}

#[test]
fn the_page_of_configuration_has_each_key_and_default() {
    let page = read("docs/reference/configuration.md");
    let section = |title: &str| page.split("\n## ").find(|part| part.starts_with(title)).expect("a section").to_owned();
    let mut missing = Vec::new();
    for (title, sample) in [("node.toml", "deploy/node.toml"), ("aggregator.toml", "deploy/aggregator.toml")] {
        let section = section(title);
        let table: toml::Table = read(sample).parse().expect("a sample is TOML");
        let wanted: BTreeSet<String> = flat("", &table).into_iter().collect();
        missing.extend(wanted.iter().filter(|row| !section.contains(*row)).map(|row| format!("{title}: {row}")));
        let rows = section.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `webhooks.")).count();
        assert_eq!(rows, wanted.len(), "{title} has rows that no sample has");
    }
    let commented = |sample: &str, mark: &str| -> Vec<String> {
        let text = read(sample);
        let lines = text.lines().filter_map(|line| line.trim_start_matches(['#', ' ']).split_once(" = "));
        let keys = lines.map(|(key, _)| key).filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        keys.map(|key| format!("| `{mark}{key}` |")).collect()
    };
    let cluster = section("cluster.toml");
    let keys = commented("deploy/cluster.toml", "").into_iter().map(|row| row.trim_start_matches("| `").to_owned());
    missing.extend(keys.filter(|key| !cluster.contains(&format!("`{key}")) && !cluster.contains(&format!(".{key}"))));
    let text = read("deploy/aggregator.toml");
    let webhook_keys = text.lines().skip_while(|line| !line.starts_with("# [[webhooks]]")).filter_map(|line| {
        Some(line.trim_start_matches(['#', ' ']).split_once(" = ")?.0)
            .filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    });
    let aggregator = section("aggregator.toml");
    missing.extend(webhook_keys.map(|key| format!("| `webhooks.{key}` |")).filter(|row| !aggregator.contains(row)));
    assert!(missing.is_empty(), "docs/reference/configuration.md lacks\n{}", missing.join("\n"));
}

/// Beginnings of rows: keys with their tables' names, and values.
fn flat(prefix: &str, table: &toml::Table) -> Vec<String> {
    let rows = table.iter().flat_map(|(key, value)| match value {
        toml::Value::Table(inner) => flat(&format!("{prefix}{key}."), inner),
        toml::Value::String(text) if text.is_empty() => vec![format!("| `{prefix}{key}` | – |")],
        toml::Value::String(text) => vec![format!("| `{prefix}{key}` | `{text}` |")],
        value => vec![format!("| `{prefix}{key}` | {value} |")],
    });
    rows.collect()
}

#[test]
fn thousands_are_apart() {
    assert_eq!(grouped("1"), "1");
    assert_eq!(grouped("1234567"), "1,234,567");
}
