//! Answers about totals: a view that follows a graph, beside the same questions about direct counts.

use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CounterName, DcId, GroupId, Half, LogIndex, ValveId};
use tidemark_proto::ledger::{EdgeAuthor, Ledger};
use tidemark_proto::msg::{LedgerCmd, SeriesTerms};
use tidemark_proto::query::*;
use tidemark_proto::time::WallMs;
use tidemark_proto::view::View;

use tidemark_proto::series::calendar::{Anchor, Zone};
use tidemark_proto::series::{Kept, OutOfRange, Retention, Row, SeriesPolicy, UnixTime};

const NOW_S: u64 = 1_790_000_123;
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 24 * HOUR_S;

struct Place {
    ledger: Ledger,
    view: View,
}

fn name(key: &str) -> CounterName {
    CounterName::new("qa", key.as_bytes()).unwrap()
}

fn time(s: u64) -> UnixTime {
    UnixTime::try_from(s).unwrap()
}

/// The value and the last day's count, by the source.
fn asked(source: &impl Source, keys: &[&str]) -> Vec<(i128, i128)> {
    let last_day = Asked::Last("1d".parse().unwrap());
    let window = WindowQuery { asked: last_day, error_s: None, compare: false, zone: Zone::UTC };
    let counters: Vec<CounterName> = keys.iter().map(|key| name(key)).collect();
    let read = read_at(source, WallMs(NOW_S * 1_000), &counters, &[window]).unwrap();
    read.counters.iter().map(|read| (read.reading.value(), read.windows[0].counted.value)).collect()
}

impl Place {
    fn new() -> Place {
        let kept = [("1h", 30 * DAY_S), ("1d", 365 * DAY_S)];
        let kept = kept.map(|(text, ttl_s)| Kept { granularity: text.parse().unwrap(), ttl_s });
        let policy = SeriesPolicy::new(Retention::new(kept.to_vec()).unwrap(), HOUR_S, 300, OutOfRange::Refused);
        let terms = SeriesTerms { revision: 1, policy: policy.unwrap(), since: time(NOW_S - 300 * DAY_S) };
        let mut place = Place { ledger: Ledger::default(), view: View::new(DcId(0), 1) };
        place.view.on_time(time(NOW_S));
        place.say(LedgerCmd::UpDown("qa".to_owned()));
        place.say(LedgerCmd::View(DcId(0).into()));
        place.say(LedgerCmd::Series { namespace: "qa".to_owned(), terms });
        place
    }

    fn follow(&mut self) {
        while self.view.step_graph(1_000, &self.ledger) {}
    }

    fn say(&mut self, cmd: LedgerCmd) {
        self.ledger.apply(LogIndex(self.ledger.applied().0 + 1), &cmd);
        let changes = self.ledger.take_changes();
        self.view.on_ledger(&changes, &self.ledger);
        self.follow();
    }

    fn insert(&mut self, edges: &[(&str, &str)]) {
        let insert = |&(from, to): &(&str, &str)| EdgeChange::Insert(Edge { from: name(from), to: name(to) });
        let cmd = self.ledger.edges(edges.iter().map(insert).collect(), EdgeAuthor::alone("test", &self.ledger), false);
        self.say(cmd.unwrap().unwrap());
    }

    /// A valve's count this long ago, its only one.
    fn hear(&mut self, key: &str, half: Half, ago_s: u64, count: u64) {
        let cell = name(key).half_of(half, 0);
        let valve = ValveId { group: GroupId { dc: DcId(0), group: 0, incarnation: 1 }, lane: 0 };
        let mut row = Row::default();
        row.add(&self.view.series_of("qa").unwrap().horizon, time(NOW_S - ago_s), count).unwrap();
        self.view.merge(&cell, valve, count).unwrap();
        self.view.merge_row(&cell, valve, &row).unwrap();
        // A cell that is new flows on with the next step.
        self.follow();
    }

    fn direct(&self, keys: &[&str]) -> Vec<(i128, i128)> {
        asked(&Shown { view: &self.view, ledger: &self.ledger }, keys)
    }

    fn total(&self, keys: &[&str]) -> Vec<(i128, i128)> {
        asked(&ShownTotals { view: &self.view, ledger: &self.ledger }, keys)
    }
}

#[test]
fn windows_of_totals_have_each_ancestor_once_and_those_of_direct_counts_none() {
    let mut place = Place::new();
    place.hear("answer", Half::Up, HOUR_S, 7);
    place.hear("answer", Half::Down, 2 * HOUR_S, 2);
    place.hear("old", Half::Up, 100 * DAY_S, 40);
    place.hear("author", Half::Up, 3 * HOUR_S, 100);
    let keys = ["answer", "author", "site", "alone"];
    assert_eq!(place.total(&keys), [(5, 5), (100, 100), (0, 0), (0, 0)], "nothing flows yet");
    // Two paths from the answer to the site.
    place.insert(&[("answer", "author"), ("answer", "topic"), ("author", "site"), ("topic", "site"), ("old", "site")]);
    assert_eq!(place.direct(&keys), [(5, 5), (100, 100), (0, 0), (0, 0)]);
    assert_eq!(place.total(&keys), [(5, 5), (105, 105), (145, 105), (0, 0)]);
    place.hear("topic", Half::Up, 5 * HOUR_S, 1);
    assert_eq!(place.total(&["topic", "site"]), [(6, 6), (146, 106)]);
    let days = SeriesQuery {
        asked: Asked::Last("1d".parse().unwrap()),
        every: "1d".parse().unwrap(),
        anchor: Anchor::End,
        error_s: Some(HOUR_S),
        zone: Zone::UTC,
    };
    let source = ShownTotals { view: &place.view, ledger: &place.ledger };
    let read = read_series(&source, WallMs(NOW_S * 1_000), "qa", &[name("site")], &days).unwrap();
    assert_eq!(read.counters[0].values.iter().flatten().map(|counted| counted.value).collect::<Vec<_>>(), [106]);
}

#[test]
fn a_view_that_shows_no_counts_shows_no_totals() {
    let mut place = Place::new();
    place.hear("answer", Half::Up, HOUR_S, 7);
    place.insert(&[("answer", "site")]);
    assert_eq!(place.total(&["site"]), [(7, 7)]);
    place.view.show_from(1);
    assert_eq!(place.total(&["answer", "site"]), [(0, 0), (0, 0)]);
}
