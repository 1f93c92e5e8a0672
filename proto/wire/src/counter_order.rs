//! The order in which counters lie in a view. By default it is the order of names: by namespace, then by the bytes of the key.
//! Namespaces that are laid by a piece of their keys share one space, part beside part. A part, the keys with the same piece, is
//! never cut apart. So a counter and its relatives in other namespaces can be kept in one range.

use serde::{Deserialize, Serialize};
use std::fmt;
use tidemark_types::ids::CounterName;
use tidemark_types::limits::{KEY_PIECES_MAX, SHARD_BY_MAX};

/// How the counters of a namespace are laid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardBy {
    pub namespace: String,
    /// Namespaces of one space lie beside each other. It has a name such as a namespace has.
    pub space: String,
    /// The piece of the key, counted from 1, where `/` separates pieces. A key of fewer pieces has an empty one there.
    pub piece: u8,
}

/// The namespaces with counters that are not laid by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterOrder(Vec<ShardBy>);

impl fmt::Display for CounterOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("name")?;
        for (at, ShardBy { namespace, space, piece }) in self.0.iter().enumerate() {
            let but = if at == 0 { ", but" } else { "," };
            write!(f, "{but} those of {namespace} in {space} by piece {piece} of their keys")?;
        }
        Ok(())
    }
}

/// Where a counter lies, or a range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position<'a> {
    space: &'a str,
    /// Empty where counters are laid by their names.
    part: &'a [u8],
    /// `None`: before all counters of the part.
    name: Option<(&'a str, &'a [u8])>,
}

/// Why namespaces are not laid so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadShardBy {
    #[error("{0} namespaces are laid by pieces of their keys: at most {SHARD_BY_MAX} are allowed")]
    TooMany(usize),
    #[error("{0:?} is there twice: a namespace lies in one space")]
    Twice(String),
    #[error("{name:?}: {reason}")]
    Name { name: String, reason: String },
    #[error("{piece} of {namespace}: pieces of a key are counted from 1 to {KEY_PIECES_MAX}")]
    Piece { namespace: String, piece: u8 },
}

/// Counters from one on, before another one, in the order of their names or in another that is said ([`CounterOrder`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeySpan {
    /// `None`: from the first there may be.
    pub from: Option<CounterName>,
    /// `None`: to the last.
    pub before: Option<CounterName>,
}

impl CounterOrder {
    /// The order of names.
    pub fn by_name() -> CounterOrder {
        CounterOrder::default()
    }

    /// The order of names, except for these namespaces, which may come in any order.
    ///
    /// # Errors
    /// [`BadShardBy`]: too many, one twice, an invalid name, or a piece beyond the limit.
    pub fn new(mut laid: Vec<ShardBy>) -> Result<CounterOrder, BadShardBy> {
        laid.sort_unstable_by(|one, other| one.namespace.cmp(&other.namespace));
        let order = CounterOrder(laid);
        order.validate().map(|()| order)
    }

    /// Checks that [`CounterOrder::new`] could have made it: for orders from other processes.
    ///
    /// # Errors
    /// [`BadShardBy`].
    pub fn validate(&self) -> Result<(), BadShardBy> {
        if self.0.len() > SHARD_BY_MAX {
            return Err(BadShardBy::TooMany(self.0.len()));
        }
        for ShardBy { namespace, space, piece } in &self.0 {
            for name in [namespace, space] {
                let refused = |error: tidemark_types::ids::NameError| error.to_string();
                CounterName::new(name, b"-")
                    .map_err(|error| BadShardBy::Name { name: name.clone(), reason: refused(error) })?;
            }
            if !(1..=KEY_PIECES_MAX).contains(piece) {
                return Err(BadShardBy::Piece { namespace: namespace.clone(), piece: *piece });
            }
        }
        let twice = self.0.windows(2).find(|pair| pair[0].namespace >= pair[1].namespace);
        twice.map_or(Ok(()), |pair| Err(BadShardBy::Twice(pair[1].namespace.clone())))
    }

    /// Whether it is the order of names.
    pub fn is_by_name(&self) -> bool {
        self.0.is_empty()
    }

    /// Ascending by namespace.
    pub fn laid(&self) -> &[ShardBy] {
        &self.0
    }

    /// How a namespace is laid, if not by name.
    pub fn of(&self, namespace: &str) -> Option<&ShardBy> {
        let at = self.0.binary_search_by(|laid| laid.namespace.as_str().cmp(namespace)).ok()?;
        self.0.get(at)
    }

    /// Where a counter lies.
    pub fn position<'a>(&'a self, namespace: &'a str, key: &'a [u8]) -> Position<'a> {
        let name = Some((namespace, key));
        match self.of(namespace) {
            None => Position { space: namespace, part: &[], name },
            Some(laid) => Position { space: &laid.space, part: piece(key, laid.piece), name },
        }
    }

    /// The position at which a range begins that this counter is the first of: the beginning of its part, which is not cut.
    pub fn begin<'a>(&'a self, first: &'a CounterName) -> Position<'a> {
        let position = self.position(first.namespace(), first.key());
        if self.of(first.namespace()).is_some() { Position { name: None, ..position } } else { position }
    }

    /// The counter of one range with which a second range begins best: about as many counters lie before it as behind. Counters
    /// with one piece stay together. `None`: the range cannot be cut.
    pub fn middle(&self, mut counters: Vec<CounterName>) -> Option<CounterName> {
        counters.sort_by(|one, other| self.begin(one).cmp(&self.begin(other)));
        let begins = |at: &usize| self.begin(&counters[at - 1]) < self.begin(&counters[*at]);
        let best = (1..counters.len()).filter(begins).min_by_key(|at| at.abs_diff(counters.len() / 2))?;
        Some(counters.swap_remove(best))
    }

    /// Whether a counter lies at the beginning of a range, or behind it.
    pub fn is_from(&self, namespace: &str, key: &[u8], first: &CounterName) -> bool {
        // Asked for each new cell, of some cuts.
        if self.is_by_name() {
            return (first.namespace(), first.key()) <= (namespace, key);
        }
        self.begin(first) <= self.position(namespace, key)
    }

    /// Whether a counter lies in one of some spans.
    pub fn is_in(&self, namespace: &str, key: &[u8], spans: &[KeySpan]) -> bool {
        let position = self.position(namespace, key);
        let is_from = |first: &CounterName| self.begin(first) <= position;
        let is_in =
            |span: &KeySpan| span.from.as_ref().is_none_or(is_from) && !span.before.as_ref().is_some_and(is_from);
        spans.iter().any(is_in)
    }

    /// The space and the part that a range begins with, where it is said by one of its counters and begins with all like it.
    pub fn part<'a>(&'a self, first: &'a CounterName) -> Option<(&'a str, &'a [u8])> {
        let laid = self.of(first.namespace())?;
        Some((&laid.space, piece(first.key(), laid.piece)))
    }
}

fn piece(key: &[u8], number: u8) -> &[u8] {
    key.split(|byte| *byte == b'/').nth(usize::from(number) - 1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn laid(namespace: &str, space: &str, piece: u8) -> ShardBy {
        ShardBy { namespace: namespace.to_owned(), space: space.to_owned(), piece }
    }

    fn name(text: &str) -> CounterName {
        let (namespace, key) = text.split_once('/').unwrap();
        CounterName::new(namespace, key.as_bytes()).unwrap()
    }

    fn order() -> CounterOrder {
        CounterOrder::new(vec![laid("views", "authors", 2), laid("answers", "authors", 1)]).unwrap()
    }

    fn names() -> impl Strategy<Value = Vec<CounterName>> {
        let one = "(views|answers|other|b)/[ab]{0,2}(/[ab]{0,2}){0,2}"
            .prop_filter("no empty key", |text| text.split_once('/').is_some_and(|(_, key)| !key.is_empty()));
        proptest::collection::vec(one, 2..30).prop_map(|texts| texts.iter().map(|text| name(text)).collect())
    }

    #[test]
    fn what_has_the_same_piece_lies_together_whatever_the_namespace() {
        let order = order();
        let mut names: Vec<CounterName> =
            ["views/d/42", "answers/42/d", "other/x", "answers/7", "views/d/7/1", "answers/42/a", "views/42", "b/1"]
                .map(name)
                .into();
        names.sort_by(|one, other| {
            order.position(one.namespace(), one.key()).cmp(&order.position(other.namespace(), other.key()))
        });
        let lie =
            ["views/42", "answers/42/a", "answers/42/d", "views/d/42", "answers/7", "views/d/7/1", "b/1", "other/x"];
        assert_eq!(names, lie.map(name), "the one without a second piece first, then by part, then by name");
    }

    #[test]
    fn a_range_begins_with_all_of_a_part_and_elsewhere_with_the_counter_that_is_said() {
        let order = order();
        let is_from = |counter: &str, first: &str| {
            let counter = name(counter);
            order.is_from(counter.namespace(), counter.key(), &name(first))
        };
        assert!(is_from("answers/42", "views/x/42/z") && is_from("views/a/42", "answers/42/zzz"));
        assert!(!is_from("answers/41", "views/x/42/z") && !is_from("views/42", "views/x/42/z"));
        assert!(is_from("other/b", "other/b") && !is_from("other/a", "other/b"));
        let views = name("views/x/42/z");
        let other = name("other/b");
        assert_eq!(order.part(&views), Some(("authors", &b"42"[..])));
        assert_eq!(order.part(&other), None);
    }

    #[test]
    fn the_middle_is_where_a_part_begins() {
        let order = order();
        let middle = |names: &[&str]| order.middle(names.iter().map(|text| name(text)).collect());
        assert_eq!(middle(&["answers/1", "views/x/1", "answers/1/b", "views/x/2"]), Some(name("views/x/2")));
        assert_eq!(middle(&["answers/1", "views/x/1"]), None);
        assert_eq!(middle(&["other/a", "other/b", "other/c", "other/d", "views/x/2"]), Some(name("other/b")));
        assert_eq!(middle(&[]), None);
    }

    #[test]
    fn what_is_no_order_is_refused_with_the_value_and_the_limit() {
        let refused = |laid| CounterOrder::new(laid).unwrap_err().to_string();
        assert_eq!(
            refused(vec![laid("a", "s", 1), laid("a", "t", 1)]),
            "\"a\" is there twice: a namespace lies in one space"
        );
        assert_eq!(refused(vec![laid("a", "s", 0)]), "0 of a: pieces of a key are counted from 1 to 16");
        assert_eq!(refused(vec![laid("a", "s", 17)]), "17 of a: pieces of a key are counted from 1 to 16");
        assert!(refused(vec![laid("a", "S", 1)]).starts_with("\"S\": "));
        let many = (0..=SHARD_BY_MAX).map(|number| laid(&format!("a{number}"), "s", 1)).collect();
        assert_eq!(refused(many), "65 namespaces are laid by pieces of their keys: at most 64 are allowed");
    }

    proptest! {
        #[test]
        fn without_namespaces_that_are_laid_it_is_the_order_of_names(names in names()) {
            let order = CounterOrder::by_name();
            for pair in names.windows(2) {
                let position = |name: &CounterName| (name.namespace().to_owned(), name.key().to_vec());
                prop_assert_eq!(order.begin(&pair[0]).cmp(&order.begin(&pair[1])), position(&pair[0]).cmp(&position(&pair[1])));
                prop_assert_eq!(order.is_from(pair[0].namespace(), pair[0].key(), &pair[1]), pair[0] >= pair[1]);
            }
        }

        /// Nothing of one part is on both sides of where a range begins, and a beginning is before all that is behind it.
        #[test]
        fn no_part_is_cut(names in names(), first in 0usize..30) {
            let order = order();
            let first = &names[first % names.len()];
            let is_from = |name: &CounterName| order.is_from(name.namespace(), name.key(), first);
            prop_assert!(is_from(first));
            for (one, other) in names.iter().flat_map(|one| names.iter().map(move |other| (one, other))) {
                if order.part(one).is_some() && order.part(one) == order.part(other) {
                    prop_assert_eq!(is_from(one), is_from(other));
                }
                let is_before = order.position(one.namespace(), one.key()) < order.position(other.namespace(), other.key());
                prop_assert!(!(is_before && is_from(one) && !is_from(other)));
            }
        }
    }
}
