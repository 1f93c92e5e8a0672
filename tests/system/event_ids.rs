//! Files of rows with ids: loaded again and again, through every aggregator, by loaders that are killed, each row counts once.

use crate::cluster::{Centre, Cluster, PLAIN, ready, until_views_show};
use crate::http;
use crate::process::{Process, command, run, until, until_true};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Output;

const DCS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
/// The data centre with two aggregators.
const PAIR: usize = 1;
/// Enough for many requests.
const ROWS: u64 = 24_000;
/// Each of this number of rows stands in the file twice.
const REPEATED: u64 = 100;
/// Rows of the second file that the first has, too.
const SHARED: u64 = 3_000;
const COUNTERS: u64 = 5;

struct Loads {
    cluster: Cluster,
    /// Of each data centre's first aggregator, and of the second one of the pair.
    views: Vec<SocketAddr>,
}

impl Loads {
    /// Journals of another folder are another machine's.
    fn arguments(&self, file: &str, at: SocketAddr, journals: &str) -> Vec<String> {
        let text = |name: &str| self.cluster.path(name).to_str().unwrap().to_owned();
        let file = text(file);
        let journals = text(journals);
        let token = text("token");
        let server = format!("http://{at}");
        let arguments = ["load", &file, "--event-id", "Payment", "--journal", &journals, "--server", &server];
        let arguments = [&arguments[..], &["--token-file", &token, "--json"]].concat();
        arguments.into_iter().map(str::to_owned).collect()
    }

    fn start(&self, file: &str, at: SocketAddr, journals: &str) -> Process {
        let arguments = self.arguments(file, at, journals);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::start(command(&arguments), self.cluster.next_log())
    }

    /// Whether it ended well, what it answered and what it said.
    fn load(&self, file: &str, at: SocketAddr, journals: &str, more: &[&str]) -> (bool, Value, String) {
        let arguments = self.arguments(file, at, journals);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let Output { status, stdout, stderr } = run(&arguments);
        let said = String::from_utf8(stderr).unwrap();
        (status.success(), serde_json::from_slice(&stdout).unwrap_or(Value::Null), said)
    }

    fn journal(&self, journals: &str) -> String {
        let files = std::fs::read_dir(self.cluster.path(journals)).into_iter().flatten().flatten();
        files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.cluster.path(name), text).unwrap();
    }

    /// Waits until all views show exactly these sums.
    async fn until_shown(&self, sums: &BTreeMap<String, u64>) {
        for (counter, sum) in sums {
            until_views_show(&self.views, &counter.replace("answer/", "answer%2F"), *sum).await;
        }
    }
}

/// Row `n` of all files: what it says, and what it adds to which counter.
fn row(n: u64) -> (String, String, u64) {
    let counter = format!("search/answer/{}", n * 7_919 % COUNTERS);
    let delta = 1 + n % 3;
    (format!("{counter},{delta},pay-{n}\n"), counter, delta)
}

fn add_row(n: u64, text: &mut String, sums: &mut BTreeMap<String, u64>) {
    let (line, counter, delta) = row(n);
    *text += &line;
    *sums.entry(counter).or_default() += delta;
}

fn tally(loaded: &Value) -> [Option<u64>; 5] {
    ["counted", "known", "repeated", "refused", "broken"].map(|name| loaded[name].as_u64())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_with_an_id_counts_once_though_the_loader_is_killed_and_through_any_aggregator() {
    let cluster = Cluster::with_pair(&DCS, &DCS, PAIR);
    let (_second, second) = cluster.start_second(PAIR).await;
    let centres: Vec<Centre> = cluster.centres().await;
    ready(second).await;
    let views = centres.iter().map(|centre| centre.http).chain([second]).collect();
    let loads = Loads { cluster, views };
    let mut text = "counter,delta,payment\n".to_owned();
    let mut sums = BTreeMap::new();
    for n in 0..ROWS {
        add_row(n, &mut text, &mut sums);
        if n % REPEATED == REPEATED - 1 {
            text += &row(n - REPEATED / 2).0;
        }
        if n == ROWS / 2 {
            writeln!(text, "search/answer/0,1,").unwrap();
        }
    }
    loads.write("rows.csv", &text);
    // Killed with rows on their way, once before and once after some are known to be counted.
    for word in ["\"Sent\"", "\"Done\""] {
        let mut loader = loads.start("rows.csv", loads.views[0], "journals");
        until_true(&format!("{word} in the journal"), || loads.journal("journals").contains(word)).await;
        loader.kill();
        assert!(!loads.journal("journals").contains("\"Finished\""), "there is nothing left to count");
    }
    let (is_whole, loaded, said) = loads.load("rows.csv", loads.views[0], "journals", &[]);
    let [counted, known, ..] = tally(&loaded);
    let repeated = ROWS / REPEATED;
    assert_eq!(counted.zip(known).map(|(counted, known)| counted + known), Some(ROWS), "{loaded} {said}");
    assert_eq!(tally(&loaded)[2..], [Some(repeated), Some(0), Some(1)], "{loaded} {said}");
    let broken = format!("line {}: payment is empty: 1 to 128", 3 + ROWS / 2 + repeated / 2);
    assert!(!is_whole && said.to_lowercase().contains(&broken), "{broken}: {said}");
    loads.until_shown(&sums).await;
    // It is known by its journal, and without that by its ids: through the other aggregator of a pair, and in another data centre.
    let (_, again, _) = loads.load("rows.csv", loads.views[0], "journals", &[]);
    assert_eq!((&again["before"], tally(&again)), (&true.into(), tally(&loaded)), "{again}");
    for (n, &at) in loads.views.iter().enumerate().skip(1) {
        let (_, again, said) = loads.load("rows.csv", at, &format!("journals-{n}"), &[]);
        let expected = [Some(0), Some(ROWS), Some(repeated), Some(0), Some(1)];
        assert_eq!((&again["before"], tally(&again)), (&false.into(), expected), "{again} {said}");
    }
    // Another file has some of its rows, in another format and order.
    let mut other = String::new();
    for n in (ROWS - SHARED..ROWS + SHARED).rev() {
        let (_, counter, delta) = row(n);
        writeln!(other, "{}", json!({"counter": counter, "delta": delta, "PAYMENT": format!("pay-{n}")})).unwrap();
        if n >= ROWS {
            add_row(n, &mut String::new(), &mut sums);
        }
    }
    loads.write("other.ndjson", &other);
    let (is_whole, loaded, said) = loads.load("other.ndjson", second, "journals", &[]);
    let expected = [Some(SHARED), Some(SHARED), Some(0), Some(0), Some(0)];
    assert_eq!((is_whole, tally(&loaded)), (true, expected), "{loaded} {said}");
    loads.until_shown(&sums).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_id_stands_for_something_else_is_named_and_ends_the_load() {
    let cluster = Cluster::new(&DCS[..1]);
    let centre = cluster.centres().await.remove(0);
    let at = centre.http;
    let loads = Loads { cluster, views: vec![at] };
    let add = async |line: Value| http::send(at, "POST", "/v1/add", &line.to_string()).await.unwrap();
    let paid = json!({"counter": PLAIN, "delta": 5, "id": "pay-1"});
    until("an increment with an id", async || (add(paid.clone()).await.0 == 200).then_some(())).await;
    // A row that contradicts another of the file is counted nowhere.
    loads.write("self.csv", "counter,delta,payment\nsearch/plain,1,a\nsearch/plain,2,b\nsearch/plain,3,a\n");
    for more in [&["--check"][..], &[]] {
        let (is_whole, loaded, said) = loads.load("self.csv", at, "journals", more);
        let named = "line 4: Payment \"a\", +3 on search/plain: the id stands for another increment in line 2";
        assert!(!is_whole && loaded == Value::Null && said.contains(named), "{said}");
    }
    // A row that contradicts a counted increment ends the load: the rows before it count, and their number is reported.
    loads.write(
        "other.csv",
        &format!(
            "counter,delta,payment\nsearch/plain,2,b\nsearch/plain,5,pay-1\nsearch/plain,2,b\n\
             search/plain,7,pay-1\nsearch/plain,1,{}\n",
            "x".repeat(129)
        ),
    );
    let (is_whole, loaded, said) = loads.load("other.csv", at, "journals", &[]);
    let in_file = "line 5: Payment \"pay-1\", +7 on search/plain: the id stands for another increment in line 3";
    assert!(!is_whole && loaded == Value::Null && said.contains(in_file), "{said}");
    assert!(said.contains("of 129 bytes: 1 to 128 visible ASCII characters allowed"), "{said}");
    loads.write("later.csv", "counter,delta,payment\nsearch/plain,2,b\nsearch/plain,2,b\nsearch/plain,7,pay-1\n");
    for (journals, counted, known) in [("journals", 1, 0), ("elsewhere", 0, 1)] {
        let (is_whole, loaded, said) = loads.load("later.csv", at, journals, &[]);
        let expected = [Some(counted), Some(known), Some(1), Some(0), Some(0)];
        assert_eq!((is_whole, tally(&loaded)), (false, expected), "{loaded} {said}");
        let stopped = &loaded["stopped"];
        let named = (&stopped["line"], &stopped["id"], &stopped["row"], &stopped["code"]);
        let expected = (&json!(4), &json!("pay-1"), &json!("+7 on search/plain"), &json!("id_reused"));
        assert_eq!(named, expected, "{loaded}");
        let text = "the load ended at line 4, id \"pay-1\", +7 on search/plain: not counted: the id was used before";
        assert!(said.contains(text), "{said}");
    }
    until_views_show(&[at], PLAIN, 7).await;
    // Ids of files and of requests are the same.
    let (_, answer) = add(json!({"counter": PLAIN, "delta": 2, "id": "b"})).await;
    assert_eq!(answer, json!({"added": 1, "known": 1, "errors": []}));
    let (_, _, said) = loads.load("later.csv", at, "journals", &["--cluster", "layout.toml"]);
    assert!(said.contains("'--event-id <COLUMN>' cannot be used with '--cluster <CLUSTER>'"), "{said}");
}
