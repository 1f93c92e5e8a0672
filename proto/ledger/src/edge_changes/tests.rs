//! Messages of changes of edges: the largest fit, longer ones are refused, and garbage is.

use super::*;
use proptest::prelude::*;
use tidemark_types::graph::Edge;
use tidemark_types::limits::{KEY_BYTES_MAX, NAMESPACE_BYTES_MAX};
use tidemark_wire::framed::sent;
use tidemark_wire::wire::{WIRE_VERSION, decode, encode};

fn longest() -> CounterName {
    CounterName::new(&"n".repeat(NAMESPACE_BYTES_MAX), &[b'k'; KEY_BYTES_MAX]).unwrap()
}

fn change() -> EdgeChange<CounterName> {
    EdgeChange::Insert(Edge { from: longest(), to: longest() })
}

fn asked(changes: usize) -> EdgesAsked {
    EdgesAsked { id: u64::MAX, changes: vec![change(); changes], lenient: true, each: true, allow_unknown: true }
}

fn cycle(names: usize) -> EdgeFault {
    EdgeFault::Cycle { path: vec![longest(); names], left_out: usize::MAX }
}

fn made(refused: usize, names: usize) -> EdgesAnswer {
    let refused = vec![(u32::MAX, cycle(names)); refused];
    let most = u64::MAX;
    EdgesAnswer::Made(EdgesMade { revision: most, index: most, inserted: most, removed: most, again: true, refused })
}

#[test]
fn the_largest_are_taken() {
    let most = asked(EDGE_CHANGES_PER_COMMAND_MAX);
    assert_eq!(sent(&most), Ok(most));
    let position = usize::MAX;
    let change = Box::new(change());
    let fault = Box::new(cycle(EDGE_PATH_NAMES_MAX));
    for answer in [
        made(EDGE_CHANGES_PER_COMMAND_MAX, EDGE_PATH_NAMES_MAX),
        EdgesAnswer::Refused(EdgesError::Change { position, change, fault }.into()),
        EdgesAnswer::Refused(EdgesRefusal::NotPermitted { client: "a/client/b".into() }),
    ] {
        let again = sent(&answer);
        assert!(again.as_ref() == Ok(&answer), "{:?}", again.err());
    }
}

#[test]
fn more_than_the_limit_is_refused_with_value_and_limit_before_it_takes_room() {
    let limit = |what, value: usize, max: usize| Err(WireError::Limit { what, value: value as u64, max: max as u64 });
    let more = EDGE_CHANGES_PER_COMMAND_MAX + 1;
    let most = EDGE_CHANGES_PER_COMMAND_MAX;
    assert_eq!(asked(more).validate(), limit("changes of edges at once", more, most));
    assert_eq!(made(more, 1).validate(), limit("refused changes of an answer", more, most));
    let names = EDGE_PATH_NAMES_MAX + 1;
    assert_eq!(made(1, names).validate(), limit("counters of a path", names, EDGE_PATH_NAMES_MAX));
    assert!(matches!(decode::<EdgesAsked>(&encode(&asked(more))), Err(WireError::Malformed(_))));
    assert!(matches!(decode::<EdgesAnswer>(&encode(&made(1, names))), Err(WireError::Malformed(_))));
}

proptest! {
    #[test]
    fn garbage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        bytes.insert(0, WIRE_VERSION);
        let _ = decode::<EdgesAsked>(&bytes);
        let _ = decode::<EdgesAnswer>(&bytes);
    }
}
