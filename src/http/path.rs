//! Counters in URLs: `{namespace}/{key}` and, after the key, what is wanted of it.
//!
//! A key may hold `/`, written so or as `%2F`; only an unescaped last part is a verb. The value of a counter whose key
//! ends in `/milestones` is therefore read as `…%2Fmilestones`, and so is that of one that ends in `/progress`, `/claims`, `/life`,
//! `/window`, `/series` or `/graph`.

use super::Failure;
use crate::names::key_bytes;
use tidemark_proto::ids::CounterName;

/// What a path below `/v1/counters/` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterPath {
    Value(CounterName),
    Add(CounterName),
    Milestones(CounterName),
    Progress(CounterName),
    Claims(CounterName),
    Life(CounterName),
    Window(CounterName),
    Series(CounterName),
    Graph(CounterName),
    Reset(CounterName),
}

/// Reads the part of a path after `/v1/counters/`, still escaped. `add` and `reset` are verbs only where `posted`.
pub fn counter_path(rest: &str, posted: bool) -> Result<CounterPath, Failure> {
    match rest.rsplit_once('/') {
        Some((counter, "add")) if posted && counter.contains('/') => Ok(CounterPath::Add(counter_of(counter)?)),
        Some((counter, "reset")) if posted && counter.contains('/') => Ok(CounterPath::Reset(counter_of(counter)?)),
        Some((counter, "life")) if counter.contains('/') => Ok(CounterPath::Life(counter_of(counter)?)),
        Some((counter, "window")) if counter.contains('/') => Ok(CounterPath::Window(counter_of(counter)?)),
        Some((counter, "series")) if counter.contains('/') => Ok(CounterPath::Series(counter_of(counter)?)),
        Some((counter, "graph")) if counter.contains('/') => Ok(CounterPath::Graph(counter_of(counter)?)),
        Some((counter, "milestones")) if counter.contains('/') => Ok(CounterPath::Milestones(counter_of(counter)?)),
        Some((counter, "progress")) if counter.contains('/') => Ok(CounterPath::Progress(counter_of(counter)?)),
        Some((counter, "claims")) if counter.contains('/') => Ok(CounterPath::Claims(counter_of(counter)?)),
        _ => Ok(CounterPath::Value(counter_of(rest)?)),
    }
}

/// Reads `{namespace}/{key}/{at}/certificate`, still escaped.
pub fn certificate_path(rest: &str) -> Result<(CounterName, u64), Failure> {
    let unknown = || Failure::NotFound("no such path: {namespace}/{key}/{at}/certificate expected".to_owned());
    let (counter, at) = rest.strip_suffix("/certificate").and_then(|rest| rest.rsplit_once('/')).ok_or_else(unknown)?;
    let at = at.parse().map_err(|_| Failure::invalid("milestone", format!("{at:?} is no milestone")))?;
    Ok((counter_of(counter)?, at))
}

/// How the path of a dry run ends.
pub const DRY_RUN: &str = "/dry-run";

/// Reads `{namespace}/{key}/{at}/claim`, still escaped.
pub fn claim_path(rest: &str) -> Result<(CounterName, u64), Failure> {
    let unknown = || Failure::NotFound("no such path: {namespace}/{key}/{at}/claim expected".to_owned());
    award_path(rest.strip_suffix("/claim").ok_or_else(unknown)?)
}

/// Reads `{namespace}/{key}/{at}/dry-run`, still escaped.
pub fn dry_run_path(rest: &str) -> Result<(CounterName, u64), Failure> {
    let unknown = || Failure::NotFound("no such path: {namespace}/{key}/{at}/dry-run expected".to_owned());
    award_path(rest.strip_suffix(DRY_RUN).ok_or_else(unknown)?)
}

/// Reads `{namespace}/{key}/{at}`, still escaped.
pub fn award_path(rest: &str) -> Result<(CounterName, u64), Failure> {
    let expected = "{namespace}/{key}/{at} or {namespace}/{key}/{at}/certificate expected";
    let unknown = || Failure::NotFound(format!("no such path: {expected}"));
    let (counter, at) =
        rest.rsplit_once('/').and_then(|(counter, at)| Some((counter, at.parse().ok()?))).ok_or_else(unknown)?;
    Ok((counter_of(counter)?, at))
}

fn counter_of(escaped: &str) -> Result<CounterName, Failure> {
    let missing = || Failure::NotFound(format!("{escaped:?} names no counter: {{namespace}}/{{key}} expected"));
    let (namespace, key) = escaped.split_once('/').ok_or_else(missing)?;
    let namespace = String::from_utf8_lossy(&key_bytes(namespace)).into_owned();
    CounterName::new(&namespace, &key_bytes(key)).map_err(|error| Failure::invalid("counter", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(key: &[u8]) -> CounterName {
        CounterName::new("search", key).unwrap()
    }

    #[test]
    fn keys_may_hold_slashes_and_any_byte() {
        let value = |rest: &str| counter_path(rest, false);
        assert_eq!(value("search/queries"), Ok(CounterPath::Value(counter(b"queries"))));
        assert_eq!(value("search/a/b%2Fc%FF"), Ok(CounterPath::Value(counter(b"a/b/c\xff"))));
        assert_eq!(value("search/a/milestones"), Ok(CounterPath::Milestones(counter(b"a"))));
        assert_eq!(value("search/a%2Fmilestones"), Ok(CounterPath::Value(counter(b"a/milestones"))));
        assert_eq!(value("search/a/progress"), Ok(CounterPath::Progress(counter(b"a"))));
        assert_eq!(value("search/a/claims"), Ok(CounterPath::Claims(counter(b"a"))));
        assert_eq!(value("search/a/window"), Ok(CounterPath::Window(counter(b"a"))));
        assert_eq!(value("search/a/b/series"), Ok(CounterPath::Series(counter(b"a/b"))));
        assert_eq!(value("search/series"), Ok(CounterPath::Value(counter(b"series"))));
        assert_eq!(claim_path("search/a/b/100/claim"), Ok((counter(b"a/b"), 100)));
        assert_eq!(value("search/progress"), Ok(CounterPath::Value(counter(b"progress"))));
        assert_eq!(award_path("search/a/b%2Fc/100"), Ok((counter(b"a/b/c"), 100)));
        assert_eq!(value("search/milestones"), Ok(CounterPath::Value(counter(b"milestones"))));
        assert_eq!(counter_path("search/a/b/add", true), Ok(CounterPath::Add(counter(b"a/b"))));
        assert_eq!(value("search/a/add"), Ok(CounterPath::Value(counter(b"a/add"))));
        assert_eq!(certificate_path("search/a/b/100/certificate"), Ok((counter(b"a/b"), 100)));
    }

    #[test]
    fn what_names_no_counter_is_refused_with_its_limit() {
        let message = |rest: &str| counter_path(rest, false).unwrap_err().to_string();
        assert!(message("search").contains("{namespace}/{key} expected"));
        assert_eq!(message(&format!("search/{}", "k".repeat(256))), "key of 256 bytes: 1 to 255 allowed");
        assert!(message("Search/k").contains("only a-z, 0-9"));
        assert!(certificate_path("search/a/x/certificate").unwrap_err().to_string().contains("\"x\" is no milestone"));
        assert_eq!(certificate_path("search/a/1").unwrap_err().code(), "not_found");
        assert!(award_path("search/5").is_err() && award_path("search/a/-5").is_err() && award_path("5").is_err());
    }
}
