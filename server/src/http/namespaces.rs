//! `GET /v1/namespaces`: those that exist; and what is said of one that does not.

use super::operation::Ask;
use super::server::Shared;
use super::typed::Json;
use super::{AggregatorProcess, Failure};
use crate::api::namespaces::{NamespacesBody, UNKNOWN_NAMESPACE};

/// Namespaces that an error lists; of further ones it says how many.
const LISTED_MAX: usize = 20;
/// A namespace is near another one with at most a third of its letters changed.
const NEAR_SHARE: usize = 3;
/// Near ones that are named.
const NEAR_MAX: usize = 3;

pub(super) async fn list<B: AggregatorProcess>(ask: Ask<B>) -> Result<Json<NamespacesBody>, Failure> {
    Ok(Json(NamespacesBody { namespaces: ask.shared.backend.namespaces()? }))
}

/// Refuses a namespace that does not exist. A process that is not ready may not have heard of it yet.
pub(super) fn check_namespace<B: AggregatorProcess>(shared: &Shared<B>, name: &str) -> Result<(), Failure> {
    let backend = &*shared.backend;
    if backend.has_namespace(name) {
        return Ok(());
    }
    backend.ready()?;
    Err(unknown_namespace(backend, name))
}

/// The same failure with what can be done about it, where it is that a namespace does not exist.
pub(super) fn explained<B: AggregatorProcess>(shared: &Shared<B>, failure: Failure, namespace: &str) -> Failure {
    match failure.code() {
        UNKNOWN_NAMESPACE => unknown_namespace(&*shared.backend, namespace),
        _ => failure,
    }
}

fn unknown_namespace(backend: &impl AggregatorProcess, name: &str) -> Failure {
    let known = backend.namespaces().unwrap_or_default();
    let known: Vec<&str> = known.iter().map(|namespace| namespace.name.as_str()).collect();
    Failure::Absent { code: UNKNOWN_NAMESPACE, message: unknown_text(name, &known) }
}

fn unknown_text(name: &str, known: &[&str]) -> String {
    let mut near: Vec<(usize, &str)> = known.iter().map(|other| (distance(name, other), *other)).collect();
    near.retain(|(changes, other)| *changes <= (name.len().max(other.len()) / NEAR_SHARE).max(1));
    near.sort();
    let near: Vec<String> = near.iter().take(NEAR_MAX).map(|(_, other)| format!("{other:?}")).collect();
    let near = if near.is_empty() { ".".to_owned() } else { format!(", did you mean {}?", near.join(" or ")) };
    let listed = known.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = known.len().saturating_sub(LISTED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!(
        "unknown namespace {name:?}{near} Known: {listed}{more}. A new one is created by `namespaces` in the cluster's layout, or by \
         `tidemark serve --namespace {name}`"
    )
}

/// Letters to change, insert or leave out to get from one text to another (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, &wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != wanted);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_differ_are_counted() {
        let cases = [("", "", 0), ("search", "serach", 2), ("search", "searches", 2), ("a", "b", 1), ("abc", "", 3)];
        for (one, other, changes) in cases {
            assert_eq!((distance(one, other), distance(other, one)), (changes, changes), "{one} {other}");
        }
    }

    #[test]
    fn an_unknown_namespace_is_told_with_near_and_known_ones() {
        let text = unknown_text("serach", &["default", "search"]);
        assert!(
            text.starts_with("unknown namespace \"serach\", did you mean \"search\"? Known: default, search. A new"),
            "{text}"
        );
        assert!(unknown_text("x", &["default"]).starts_with("unknown namespace \"x\". Known: default. "));
        let many: Vec<String> = (0..50).map(|n| format!("namespace-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(unknown_text("other", &many).contains("namespace-19 and 30 more."));
    }
}
