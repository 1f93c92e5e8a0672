//! Counters and awards in URLs: `{namespace}/{key}` and, after the key, what is wanted of it.
//!
//! A key may hold `/`, written so or as `%2F`. Behind a key, an unescaped last part that is a verb of the table (such as `add` or
//! `milestones`) is that verb, whatever the method. A counter with a key that ends so is reached with `%2F`: `…/a%2Fadd`.

use super::Failure;
use crate::names::key_bytes;
use tidemark_proto::ids::CounterName;

/// Reads `{namespace}/{key}/{at}`, still escaped.
pub fn award_of(rest: &str) -> Result<(CounterName, u64), Failure> {
    let expected = "{namespace}/{key}/{at} or {namespace}/{key}/{at}/certificate expected";
    let unknown = || Failure::NotFound(format!("no such path: {expected}"));
    let (counter, at) =
        rest.rsplit_once('/').and_then(|(counter, at)| Some((counter, at.parse().ok()?))).ok_or_else(unknown)?;
    Ok((counter_of(counter)?, at))
}

/// The same where the path cannot be another one: what is no number is refused as that.
pub fn numbered_award(rest: &str) -> Result<(CounterName, u64), Failure> {
    let (counter, at) = rest.rsplit_once('/').unwrap_or((rest, ""));
    let at = at.parse().map_err(|_| Failure::invalid("milestone", format!("{at:?} is no milestone")))?;
    Ok((counter_of(counter)?, at))
}

/// Reads `{namespace}/{key}`, still escaped.
pub fn counter_of(escaped: &str) -> Result<CounterName, Failure> {
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
        assert_eq!(counter_of("search/queries"), Ok(counter(b"queries")));
        assert_eq!(counter_of("search/a/b%2Fc%FF"), Ok(counter(b"a/b/c\xff")));
        assert_eq!(award_of("search/a/b%2Fc/100"), Ok((counter(b"a/b/c"), 100)));
        assert_eq!(numbered_award("search/a/b/100"), Ok((counter(b"a/b"), 100)));
    }

    #[test]
    fn what_names_no_counter_is_refused_with_its_limit() {
        let message = |rest: &str| counter_of(rest).unwrap_err().to_string();
        assert!(message("search").contains("{namespace}/{key} expected"));
        assert_eq!(message(&format!("search/{}", "k".repeat(256))), "key of 256 bytes: 1 to 255 allowed");
        assert!(message("Search/k").contains("only a-z, 0-9"));
        assert!(numbered_award("search/a/x").unwrap_err().to_string().contains("\"x\" is no milestone"));
        assert!(award_of("search/5").is_err() && award_of("search/a/-5").is_err() && award_of("5").is_err());
    }
}
