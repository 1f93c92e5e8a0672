//! The page docs/reference/sql.md lists the functions that a query may call.
#![cfg(feature = "sql")]

use std::collections::BTreeSet;
use tidemark_streams_sql::child::functions;

#[test]
fn functions_are_those_of_the_page() {
    const PAGE: &str = include_str!("../../../docs/reference/sql.md");
    let section = PAGE.split("\n## What a query may be\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split('|').nth(1));
    let listed: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(listed, functions().collect::<BTreeSet<&str>>());
}
