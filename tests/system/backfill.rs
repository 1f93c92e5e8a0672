//! History loaded from files while the loader and the node are killed and live traffic goes on; and what was exported, loaded elsewhere.

use crate::cluster::{Cluster, operate};
use crate::http;
use crate::process::{Process, command, now_s, run, until, until_true};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

/// Few, so that there are many chunks.
const COUNTERS: u64 = 4;
const ROWS: u64 = 60_000;
/// How often the loader is killed.
const KILLS: u64 = 4;

const NAMESPACES: [&str; 3] = ["search", "copy", "table"];
/// Shows whether a policy holds.
const PROBE: &str = "probe";
const SERIES: &str =
    "keep = { \"1m\" = \"2d\", \"1h\" = \"30d\", \"1d\" = \"730d\" }\nlate = \"700d\"\nout_of_range = \"total\"\n";

struct Backfill {
    cluster: Cluster,
    at: SocketAddr,
}

impl Backfill {
    fn path(&self, name: &str) -> String {
        self.cluster.path(name).to_str().unwrap().to_owned()
    }

    fn arguments(&self, file: &str, more: &[&str]) -> Vec<String> {
        let layout = self.path("layout.toml");
        let web = self.path("credentials/web");
        let token = self.path("token");
        let server = format!("http://{}", self.at);
        let journal = self.path("journals");
        let usual = ["--cluster", &layout, "--dc", "usa-0", "--credentials", &web, "--journal", &journal];
        let remote = ["--server", &server, "--token-file", &token, "--json"];
        let all = [&["load", file], &usual[..], &remote, more].concat();
        all.into_iter().map(str::to_owned).collect()
    }

    fn start(&self, file: &str, more: &[&str]) -> Process {
        let arguments = self.arguments(file, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::start(command(&arguments), self.cluster.next_log())
    }

    fn load(&self, file: &str, more: &[&str]) -> (bool, Value, String) {
        let arguments = self.arguments(file, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Output { status, stdout, stderr } = run(&arguments);
        let said = String::from_utf8(stderr).unwrap();
        (status.success(), serde_json::from_slice(&stdout).unwrap_or(Value::Null), said)
    }

    /// All journals together.
    fn journals(&self) -> String {
        let files = std::fs::read_dir(self.cluster.path("journals")).into_iter().flatten().flatten();
        files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect()
    }

    fn chunks(&self) -> usize {
        self.journals().matches("Chunk").count()
    }

    /// Waits until all rows of the first chunk are known to be counted, so that the next loader has something to go on behind. A loader
    /// that is killed as soon as it has written a chunk down may not have sent it yet.
    async fn until_first_chunk_is_done(&self) {
        until_true("the first chunk is done", || self.journals().contains("{\"Done\":{\"chunk\":0}}")).await;
    }

    /// Waits until a loader has written down another chunk, or has nothing more to do.
    async fn until_sent(&self, before: usize, loader: &Process) {
        until_true("a chunk on its way", || self.chunks() > before || loader.said().contains("\"counted\"")).await;
    }

    async fn value(&self, counter: &str) -> Option<i64> {
        let (_, body) = http::get(self.at, &format!("/v1/counters/{counter}")).await?;
        body["value"].as_i64()
    }

    /// All buckets below a prefix, without the namespace.
    async fn buckets(&self, namespace: &str) -> Option<Vec<Value>> {
        let mut found = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("/v1/export?prefix={namespace}/&limit=200{after}");
            let (_, page) = http::get(self.at, &path).await?;
            for counter in page["counters"].as_array()? {
                let name = counter["counter"].as_str()?.split_once('/')?.1.to_owned();
                if name != PROBE {
                    found.push(json!([name, counter["up"], counter["down"]]));
                }
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
                None => return Some(found),
            }
        }
    }
}

async fn backfill() -> (Backfill, Process, Process) {
    let cluster = Cluster::new(&["usa-0"]);
    let layout = cluster.layout_text(&cluster.aggregators).replace("\"search\",", "\"search\",\"copy\",\"table\",");
    let series = |namespace: &str| format!("[[series]]\nnamespace = \"{namespace}\"\n{SERIES}");
    std::fs::write(cluster.path("layout.toml"), layout + &NAMESPACES.map(series).concat()).unwrap();
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    for namespace in NAMESPACES {
        until("the group knows the policy", async || {
            let counter = format!("{namespace}/{PROBE}");
            let probe = json!({"counter": counter, "delta": 1, "at": now_s() - 86_400 * 3}).to_string();
            http::send(at, "POST", "/v1/add", &probe).await?;
            let (code, window) = http::get(at, &format!("/v1/counters/{counter}/window?last=5d")).await?;
            (code == 200 && window["counted"]["value"].as_i64()? > 0).then_some(())
        })
        .await;
    }
    (Backfill { cluster, at }, centre.node, centre.aggregator)
}

/// Rows of a year, each tenth without a time, with some that are broken; and what each counter must be.
fn history() -> (String, Vec<u64>) {
    let mut text = "counter,delta,at\n".to_owned();
    let mut sums = vec![0; COUNTERS as usize];
    let begin = now_s() - 365 * 86_400;
    for row in 0..ROWS {
        let counter = row * 7_919 % COUNTERS;
        let delta = 1 + row % 3;
        sums[counter as usize] += delta;
        let at = if row % 10 == 0 { String::new() } else { (begin + row * 524).to_string() };
        writeln!(text, "search/answer/{counter},{delta},{at}").unwrap();
        if row % 20_000 == 10_000 {
            writeln!(text, "search/answer/{counter},many,{at}").unwrap();
        }
    }
    (text, sums)
}

fn zstd_file(path: PathBuf, text: &str) {
    let mut file = zstd::Encoder::new(std::fs::File::create(path).unwrap(), 1).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.finish().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_counted_exactly_once_though_loader_and_node_are_killed_and_its_export_gives_the_same_buckets() {
    let (mut backfill, mut node, _aggregator) = backfill().await;
    let (text, sums) = history();
    zstd_file(backfill.cluster.path("history"), &text);
    let file = backfill.path("history");
    let mut live = 0;
    for kill in 1..=KILLS {
        let before = backfill.chunks();
        let mut loader = backfill.start(&file, &[]);
        let path = "/v1/counters/search/answer%2F0/add";
        let counted = http::send(backfill.at, "POST", path, "{\"delta\": 1000}").await;
        live += u64::from(counted.is_some_and(|(code, _)| code == 200)) * 1_000;
        match kill {
            1 => backfill.until_first_chunk_is_done().await,
            _ => backfill.until_sent(before, &loader).await,
        }
        if kill % 2 == 0 {
            node.kill();
            tokio::time::sleep(Duration::from_millis(100)).await;
            node = backfill.cluster.node(0).await;
        }
        loader.kill();
    }
    let (is_whole, loaded, said) = backfill.load(&file, &[]);
    assert!(!is_whole, "broken rows end with an error: {said}");
    assert_eq!((&loaded["counted"], &loaded["refused"]), (&ROWS.into(), &0.into()), "{loaded} {said}");
    assert!(said.contains("goes on behind row "), "{said}");
    let fences = backfill.journals().matches("Fenced").count();
    assert!(fences > 0, "the loader was never killed with rows in doubt");
    assert!(said.contains("line 10003: delta \"many\": a whole number expected") && loaded["broken"] == 3, "{said}");
    for (counter, sum) in sums.iter().enumerate() {
        let expected = *sum as i64 + if counter == 0 { live as i64 } else { 0 };
        let name = format!("search/answer%2F{counter}");
        until(&format!("{expected} of {name}"), async || {
            let value = backfill.value(&name).await?;
            assert!(value <= expected, "{name}: {value} is more than {expected}");
            (value == expected).then_some(())
        })
        .await;
    }
    std::fs::copy(&file, backfill.cluster.path("renamed")).unwrap();
    let (_, again, _) = backfill.load(&backfill.path("renamed"), &[]);
    assert_eq!((&again["before"], &again["counted"]), (&true.into(), &ROWS.into()), "{again}");
    round_trip(&mut backfill, "export.ndjson.gz", "copy").await;
    #[cfg(feature = "parquet")]
    round_trip(&mut backfill, "export.parquet", "table").await;
}

/// Exports and loads into another namespace, killed once in between.
async fn round_trip(backfill: &mut Backfill, file: &str, namespace: &str) {
    let out = backfill.path(file);
    let (is_done, said) = operate(&backfill.cluster, backfill.at, &["export", "search/answer/", "--out", &out]);
    assert!(is_done && said.contains(&format!("{COUNTERS} counters in ")), "{said}");
    let into = ["--namespace", namespace];
    let before = backfill.chunks();
    let mut loader = backfill.start(&out, &into);
    backfill.until_sent(before, &loader).await;
    loader.kill();
    let (is_whole, loaded, said) = backfill.load(&out, &into);
    assert!(is_whole, "{loaded} {said}");
    // Both are read again each time, as minutes expire.
    let copied = until("the same buckets in the other namespace", async || {
        let [original, copied] = [backfill.buckets("search").await?, backfill.buckets(namespace).await?];
        (original == copied).then_some(copied)
    })
    .await;
    assert_eq!(copied.len() as u64, COUNTERS);
}

const LINES_REFUSED: [&str; 3] =
    ["line 2: event at", "line 3: unknown namespace \"nowhere\"", "line 4: counters of namespace \"search\" only grow"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_not_taken_are_said_before_and_after_and_the_others_counted_once() {
    let (backfill, _node, _aggregator) = backfill().await;
    let set = json!({"keep": {"1h": "30d"}, "late": "2d"}).to_string();
    let (code, body) = http::send(backfill.at, "PUT", "/v1/namespaces/search/series", &set).await.unwrap();
    assert_eq!(code, 200, "{body}");
    let now = now_s();
    let lines =
        [("search/a", 5, now - 60), ("search/a", 7, now - 86_400 * 9), ("nowhere/a", 1, now), ("search/b", -2, now)];
    let text: String = lines
        .iter()
        .map(|(counter, delta, at)| json!({"counter": counter, "delta": delta, "at": at}).to_string() + "\n")
        .collect();
    std::fs::write(backfill.cluster.path("rows.ndjson"), text + "{\"counter\":\n").unwrap();
    let file = backfill.path("rows.ndjson");
    let (is_whole, _, said) = backfill.load(&file, &["--check"]);
    assert!(!is_whole && said.contains("5 rows: 1 broken, 3 refused, 0 for totals only"), "{said}");
    for line in LINES_REFUSED {
        assert!(said.contains(line), "{line}: {said}");
    }
    let (is_whole, loaded, said) = backfill.load(&file, &[]);
    assert!(!is_whole, "{said}");
    assert_eq!([&loaded["counted"], &loaded["refused"], &loaded["broken"]], [1, 3, 1], "{loaded} {said}");
    for line in LINES_REFUSED {
        assert!(said.contains(line), "{line}: {said}");
    }
    until("what was taken", async || (backfill.value("search/a").await? == 5).then_some(())).await;
    let other = backfill.load(&file, &["--at", "day"]).2;
    assert!(other.contains("another choice of columns"), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_other_programs_are_counted_as_they_are_meant_or_refused_as_a_whole() {
    let (backfill, _node, _aggregator) = backfill().await;
    let file = |name: &str, text: &str| {
        std::fs::write(backfill.cluster.path(name), text).unwrap();
        backfill.path(name)
    };
    // A line inside quotes is no row.
    let quoted = file(
        "quoted.csv",
        "counter,delta,comment\nsearch/v1,1,\"a\nsearch/v2,777,\n b\"\nsearch/v3,3.0,\nsearch/v3,0,\n",
    );
    for more in [&["--check"][..], &[]] {
        let (is_whole, loaded, said) = backfill.load(&quoted, more);
        assert!(is_whole && said.contains("3 rows: 0 broken, 0 refused, 0 for totals only, 1 of delta 0"), "{said}");
        assert!(said.contains("ignored columns: \"comment\"") && said.contains("no column \"at\""), "{said}");
        assert!(!more.is_empty() || loaded["counted"] == 2 && loaded["zero"] == 1, "{loaded}");
    }
    // A quote that is not closed, and a time without a zone, count nothing of a file.
    let open = file("open.csv", "counter,delta\nsearch/open,1\n\"search/v2,2\nsearch/open,3\n");
    let begin = (now_s() - 86_400 * 3) / 86_400 * 86_400;
    let day = tidemark_proto::series::calendar::Zone::UTC
        .text(tidemark_proto::series::UnixTime::from_s(begin as i64).unwrap());
    let local = file("local.csv", &format!("counter;delta;at\nsearch/local;1;{}\n", &day[..10]));
    for more in [&["--check"][..], &[]] {
        let (is_whole, _, said) = backfill.load(&open, more);
        assert!(!is_whole && said.contains("line 3: a quote opens a field"), "{said}");
        let (is_whole, _, said) = backfill.load(&local, &[&["--delimiter", ";"], more].concat());
        assert!(!is_whole && said.contains("line 2: time") && said.contains("--zone"), "{said}");
        let (is_whole, _, said) = backfill.load(&local, more);
        assert!(!is_whole && said.contains("pass `--delimiter ';'`"), "{said}");
    }
    let (is_whole, loaded, said) = backfill.load(&local, &["--delimiter", ";", "--zone", "utc"]);
    assert!(is_whole && loaded["counted"] == 1, "{said}");
    // Only a check can tell before: unknown namespaces and decrements end both with an error.
    let mixed = file("mixed.csv", "counter,delta\nnowhere/a,1\nsearch/a,-1\nsearch/mixed,1\n");
    let (is_whole, _, said) = backfill.load(&mixed, &["--check"]);
    assert!(!is_whole && said.contains("line 2: unknown namespace") && said.contains("line 3: counters of"), "{said}");
    let (is_whole, loaded, said) = backfill.load(&mixed, &[]);
    assert!(!is_whole && loaded["refused"] == 2 && loaded["counted"] == 1, "{said}");
    let (is_whole, _, said) = backfill.load("/dev/null", &["--check"]);
    assert!(!is_whole && said.contains("/dev/null: no regular file"), "{said}");
    for (counter, value) in [("v1", 1), ("v2", 0), ("v3", 3), ("open", 0), ("local", 1), ("mixed", 1), ("a", 0)] {
        until(&format!("{value} of {counter}"), async || {
            (backfill.value(&format!("search/{counter}")).await? == value).then_some(())
        })
        .await;
    }
}
