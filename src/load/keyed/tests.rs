//! Loads against a cluster that remembers ids, loses answers, and dies.

use super::*;
use crate::load::journal::Head;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tempfile::TempDir;
use tidemark_proto::ids::OwnerId;
use tokio::sync::Notify;

/// With faults, one of this number of steps fails.
const LOST: usize = 5;

/// A cluster that is asked, and where the loader is killed.
struct Cluster {
    state: Mutex<State>,
    killed: Notify,
}

struct State {
    dice: ChaCha8Rng,
    /// By id what it stands for.
    ids: BTreeMap<String, (String, i128)>,
    requests: usize,
    /// Requests after which the loader is killed, before or after they are counted.
    deaths: Vec<(usize, bool)>,
    has_faults: bool,
}

impl Cluster {
    fn new(seed: u64, has_faults: bool) -> Cluster {
        let (ids, requests, deaths) = Default::default();
        let state = State { dice: ChaCha8Rng::seed_from_u64(seed), ids, requests, deaths, has_faults };
        Cluster { state: Mutex::new(state), killed: Notify::new() }
    }

    fn counted(&self) -> i128 {
        self.state.lock().unwrap().ids.values().map(|(_, delta)| delta).sum()
    }
}

impl State {
    fn is_lost(&mut self) -> bool {
        self.has_faults && self.dice.random_ratio(1, LOST as u32)
    }

    fn count(&mut self, line: &BulkLine) -> Result<bool, &'static str> {
        if self.has_faults && self.dice.random_ratio(1, 50) {
            return Err("in_doubt");
        }
        if line.counter.starts_with("nowhere/") {
            return Err("unknown_namespace");
        }
        if line.counter.starts_with("lost/") {
            return Err("id_owner_lost");
        }
        let content = (format!("{} {:?}", line.counter, line.at), line.delta.0);
        let id = line.id.clone().unwrap();
        match self.ids.get(&id) {
            Some(known) if *known == content => Ok(true),
            Some(_) => Err("id_reused"),
            None => {
                self.ids.insert(id, content);
                // Its answer may be lost by itself.
                if self.has_faults && self.dice.random_ratio(1, 50) { Err("in_doubt") } else { Ok(false) }
            }
        }
    }

    fn answer(&mut self, lines: &[&BulkLine]) -> Result<BulkBody, NoAnswer> {
        let lost = || Err(NoAnswer { passes: true, why: "lost".to_owned() });
        if self.is_lost() {
            return lost();
        }
        let mut body = BulkBody { error: None, added: 0, known: 0, errors: Vec::new() };
        for (number, line) in (1..).zip(lines) {
            match self.count(line) {
                Ok(known) => (body.added, body.known) = (body.added + 1, body.known + u64::from(known)),
                Err(code) => {
                    let (code, message) = (code.to_owned(), format!("{code} of {}", line.counter));
                    body.errors.push(BulkErrorBody { line: number, code, message });
                }
            }
        }
        if self.is_lost() { lost() } else { Ok(body) }
    }
}

impl Destination for Cluster {
    fn address(&self) -> String {
        "192.0.2.1:7171".to_owned()
    }

    async fn add(&self, lines: &[&BulkLine]) -> Result<BulkBody, NoAnswer> {
        let (answer, dies) = {
            let mut state = self.state.lock().unwrap();
            state.requests += 1;
            let requests = state.requests;
            let death = state.deaths.iter().find(|(at, _)| *at == requests).copied();
            let answer = if let Some((_, false)) = death { None } else { Some(state.answer(lines)) };
            (answer, death.is_some())
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
        if dies {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
        answer.expect("who is killed hears nothing")
    }
}

/// A file and the journals of its loads.
struct Loads {
    dir: TempDir,
    naming: Naming,
    rows: u64,
}

/// The result of one run of a load; `None`: it was killed.
type Run = Option<Result<Loaded, String>>;

impl Loads {
    fn of(text: &str) -> Loads {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rows.csv"), text).unwrap();
        let naming = Naming { event_id: Some("id".into()), ..Naming::default() };
        Loads { dir, naming, rows: text.lines().count() as u64 - 1 }
    }

    fn file(&self) -> File {
        File::open(self.dir.path().join("rows.csv")).unwrap()
    }

    fn journal(&self) -> (Journal, IdProgress) {
        let head = Head::new(7, "ab".into(), "test", "", OwnerId(0), &self.naming);
        Journal::open_as(self.dir.path(), &head, true).unwrap()
    }

    /// Until it ends, or is killed.
    async fn run<D: Destination>(&self, cluster: &D, killed: &Notify, refused: &mut Vec<(u64, String)>) -> Run {
        let file = self.file();
        let mut ids = FileIds::default();
        let mut source = Source::open(&file, &self.naming).unwrap();
        while let Some(Read { line, row }) = source.next_row().unwrap() {
            if let Ok(Some(Event { row, id: Some(id) })) = row {
                ids.enter(line, &row, &id);
            }
        }
        let load = Load { file: &file, naming: &self.naming, rows: self.rows, spaces: Spaces::default(), ids };
        let mut meter = Meter::new("rows.csv", self.rows, 0);
        let told = |_: &Meter, line: u64, why: &str| refused.push((line, why.to_owned()));
        let (journal, progress) = self.journal();
        tokio::select! {
            biased;
            () = killed.notified() => None,
            loaded = run(load, cluster, journal, progress, &mut meter, told) => Some(loaded.map_err(|error| error.to_string())),
        }
    }
}

/// Rows of which some repeat earlier ones, some are broken and some are refused: the text, the sum of what counts, how many repeat, and how
/// many are refused.
fn rows(dice: &mut ChaCha8Rng, count: u64) -> (String, i128, u64, u64) {
    let mut text = "counter,delta,id\n".to_owned();
    let mut sum = 0;
    let mut repeated = 0;
    let mut refused = 0;
    let mut known: Vec<String> = Vec::new();
    for row in 0..count {
        let line = match dice.random_range(0..20) {
            0 if !known.is_empty() => {
                repeated += 1;
                known[dice.random_range(0..known.len())].clone()
            }
            1 => "qa/a,1,\n".to_owned(),
            2 => format!("qa/a,0,zero-{row}\n"),
            3 => {
                refused += 1;
                format!("nowhere/a,1,r-{row}\n")
            }
            _ => {
                let delta = dice.random_range(1..100);
                sum += i128::from(delta);
                known.push(format!("qa/{},{delta},r-{row}\n", row % 7));
                known[known.len() - 1].clone()
            }
        };
        text += &line;
    }
    (text, sum, repeated, refused)
}

#[tokio::test(start_paused = true)]
async fn each_row_counts_once_whatever_is_lost_and_however_often_the_loader_is_killed() {
    for seed in 0..12 {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let (text, sum, repeated, refused) = rows(&mut dice, 15_000);
        let loads = Loads::of(&text);
        let cluster = Cluster::new(seed, true);
        let deaths = (0..4).map(|_| (dice.random_range(1..20), dice.random_ratio(1, 2))).collect();
        cluster.state.lock().unwrap().deaths = deaths;
        let mut told = Vec::new();
        let mut kills = 0;
        let loaded = loop {
            match loads.run(&cluster, &cluster.killed, &mut told).await {
                Some(loaded) => break loaded.unwrap(),
                None => kills += 1,
            }
        };
        assert!(kills > 0 && loaded.stopped.is_none(), "seed {seed}: {kills} {loaded:?}");
        let IdTally { counted, known, .. } = loaded.tally;
        assert_eq!(cluster.counted(), sum, "seed {seed}");
        let ids = cluster.state.lock().unwrap().ids.len() as u64;
        let tally = (counted + known, loaded.tally.repeated, loaded.tally.refused);
        assert_eq!(tally, (ids, repeated, refused), "seed {seed}");
        assert!(known > 0, "seed {seed}: no answer was lost, and {counted} were heard");
        let (_, again) = loads.journal();
        assert_eq!((again.finished, again.tally), (Some(15_000), loaded.tally), "seed {seed}");
        // Without its journal every row is known.
        let elsewhere = Loads::of(&text);
        cluster.state.lock().unwrap().has_faults = false;
        let again = elsewhere.run(&cluster, &cluster.killed, &mut told).await.unwrap().unwrap();
        let IdTally { counted, known, .. } = again.tally;
        assert_eq!((counted, known, cluster.counted()), (0, ids, sum), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_id_was_used_for_something_else_ends_the_load_and_is_named() {
    let cluster = Cluster::new(1, false);
    let before = Loads::of("counter,delta,id\nqa/a,5,x\nqa/a,1,same\n");
    before.run(&cluster, &cluster.killed, &mut Vec::new()).await.unwrap().unwrap();
    let many: String = (0..3 * REQUEST_ROWS_MAX).map(|row| format!("qa/a,1,r-{row}\n")).collect();
    let loads = Loads::of(&format!("counter,delta,id\nqa/a,1,same\nqa/a,7,x\nnowhere/a,1,y\n{many}"));
    for again in [false, true] {
        let mut refused = Vec::new();
        let loaded = loads.run(&cluster, &cluster.killed, &mut refused).await.unwrap().unwrap();
        let stopped = loaded.stopped.unwrap();
        assert_eq!((stopped.line, stopped.id.as_deref(), stopped.code.as_str()), (Some(3), Some("x"), "id_reused"));
        assert_eq!(
            stopped.text("line"),
            "the load ended at line 3, id \"x\", +7 on qa/a: id_reused of qa/a",
            "row, id and value are named"
        );
        assert_eq!((refused[0].0, loaded.done_before, loaded.tally.refused), (4, 0, 1));
        let IdTally { counted, known, .. } = loaded.tally;
        assert_eq!((known > 1, counted + known), (again, 1 + 3 * REQUEST_ROWS_MAX as u64), "{known} known");
        assert_eq!(cluster.counted() as usize, 6 + 3 * REQUEST_ROWS_MAX);
    }
    // Another file goes on behind it, and knows what the first has counted.
    let rest = Loads::of(&format!("counter,delta,id\n{many}"));
    let loaded = rest.run(&cluster, &cluster.killed, &mut Vec::new()).await.unwrap().unwrap();
    assert_eq!(loaded.tally.counted + loaded.tally.known, 3 * REQUEST_ROWS_MAX as u64);
    assert_eq!(cluster.counted() as usize, 6 + 3 * REQUEST_ROWS_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_cannot_say_whether_a_row_counted_ends_the_load() {
    let cluster = Cluster::new(1, false);
    let loads = Loads::of("counter,delta,id\nqa/a,1,x\nlost/a,1,y\n");
    let loaded = loads.run(&cluster, &cluster.killed, &mut Vec::new()).await.unwrap().unwrap();
    assert_eq!((loaded.tally.counted, loaded.done_before), (1, 0));
    assert_eq!(loaded.stopped.map(|stopped| (stopped.line, stopped.code)), Some((Some(3), "id_owner_lost".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn rows_on_their_way_are_not_sent_again_once_their_ids_may_be_forgotten() {
    let loads = Loads::of("counter,delta,id\nqa/a,1,x\nqa/a,1,y\n");
    let (mut journal, _) = loads.journal();
    let at_s = wall_now().0 / 1_000 - SENT_AGAIN_MAX_S - 60;
    journal.append(&IdRecord::Sent { rows: 0..2, at_s }).unwrap();
    drop(journal);
    let cluster = Cluster::new(1, false);
    let loaded = loads.run(&cluster, &cluster.killed, &mut Vec::new()).await.unwrap().unwrap();
    let stopped = loaded.stopped.unwrap();
    assert_eq!((stopped.line, stopped.code.as_str(), cluster.state.lock().unwrap().requests), (None, "unknown", 0));
    let text = stopped.text("line");
    assert!(text.contains("it is not known whether rows 1 to 2 were counted"), "{text}");
    assert!(text.contains("for a day") && text.contains(&format!("for {SENT_AGAIN_MAX_S} s at most")), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_as_a_whole_ends_the_load() {
    struct Closed;
    impl Destination for Closed {
        fn address(&self) -> String {
            "192.0.2.1:7171".to_owned()
        }

        async fn add(&self, _: &[&BulkLine]) -> Result<BulkBody, NoAnswer> {
            Err(NoAnswer { passes: false, why: "answers 401: a token is needed".to_owned() })
        }
    }
    let loads = Loads::of("counter,delta,id\nqa/a,1,x\n");
    let loaded = loads.run(&Closed, &Notify::new(), &mut Vec::new()).await.unwrap().unwrap();
    let text = loaded.stopped.unwrap().text("line");
    assert_eq!(text, "the load ended: answers 401: a token is needed");
}
