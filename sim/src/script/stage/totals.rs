//! Edges and totals: counters named by a letter or a word, and the view of one data centre that is told of whatever is counted.

use super::{Done, Stage};
use tidemark_proto::graph::{Edge, EdgeChange};
use tidemark_proto::ids::{CounterName, DcId, GroupId, ValveId};
use tidemark_proto::ledger::{Changes, EdgeAuthor, Ledger};
use tidemark_proto::msg::LedgerCmd;
use tidemark_proto::view::View;

/// Edges, pairs and buckets of a step.
const STEP: usize = 16;

/// The view, and whether the ledger knows of it.
#[derive(Debug)]
pub struct Totals {
    view: View,
    begun: bool,
}

impl Default for Totals {
    fn default() -> Totals {
        Totals { view: View::new(DcId(0), 1), begun: false }
    }
}

impl Totals {
    pub fn on_ledger(&mut self, changes: &Changes, ledger: &Ledger) {
        self.view.on_ledger(changes, ledger);
    }

    pub fn check_invariants(&self) {
        self.view.check_all();
    }
}

fn named(key: &str) -> Result<CounterName, String> {
    CounterName::new("t", key.as_bytes()).map_err(|error| error.to_string())
}

/// `+FROM>TO` or `-FROM>TO`.
fn change(word: &str) -> Result<EdgeChange<CounterName>, String> {
    let wrong = || format!("{word:?} is not +FROM>TO or -FROM>TO");
    let (sign, ends) = word.split_at_checked(1).ok_or_else(wrong)?;
    let (from, to) = ends.split_once('>').ok_or_else(wrong)?;
    let edge = Edge { from: named(from)?, to: named(to)? };
    match sign {
        "+" => Ok(EdgeChange::Insert(edge)),
        "-" => Ok(EdgeChange::Remove(edge)),
        _ => Err(wrong()),
    }
}

impl Stage {
    fn begin_totals(&mut self) -> Result<(), String> {
        if !std::mem::replace(&mut self.totals.begun, true) {
            if self.ledger.namespaces().next().is_none() {
                self.ledger_applies(LedgerCmd::Namespace("t".into()))?;
            }
            self.ledger_applies(LedgerCmd::View(DcId(0).into()))?;
        }
        Ok(())
    }

    /// `edges +FROM>TO… -FROM>TO…`: all or none of them, in the ledger; the view is told and has done nothing yet.
    pub fn edges(&mut self, words: &[&str]) -> Done {
        self.begin_totals()?;
        let changes = words.iter().map(|word| change(word)).collect::<Result<Vec<_>, _>>()?;
        match self.ledger.edges(changes, EdgeAuthor::alone("who", &self.ledger), false) {
            Ok(Some(cmd)) => self.ledger_applies(cmd),
            Ok(None) => Ok(Vec::new()),
            Err(error) => Ok(vec![format!("refused: {error}")]),
        }
    }

    /// `count COUNTER WEIGHT`: the view is told of it.
    pub fn count(&mut self, key: &str, weight: u64) -> Done {
        self.begin_totals()?;
        let counter = named(key)?;
        let group = GroupId { dc: DcId(0), group: 0, incarnation: 1 };
        let generation = self.ledger.resets().generation(&counter);
        let counted = self.totals.view.component_of(&counter, generation, group) + weight;
        let merged = self.totals.view.merge(&counter.total_of(generation), ValveId { group, lane: 0 }, counted);
        merged.map_err(|error| error.to_string())?;
        Ok(Vec::new())
    }

    /// The view carries out all changes.
    pub fn settle(&mut self) -> Done {
        while self.totals.view.step_graph(STEP, &self.ledger) {}
        Ok(Vec::new())
    }

    /// Its process starts anew: totals are counted from nothing.
    pub fn restart_view(&mut self) -> Done {
        self.totals.view.on_start(&self.ledger);
        Ok(Vec::new())
    }

    /// `totals COUNTER…`: own counts and totals.
    pub fn totals(&mut self, keys: &[&str]) -> Done {
        let view = &self.totals.view;
        let ledger = &self.ledger;
        let progress = view.graph_progress();
        let one = |key: &&str| {
            let total = view.total(&named(key)?, ledger);
            Ok(format!("{key} {} total {}", total.direct.up, total.up))
        };
        let all = keys.iter().map(one).collect::<Result<Vec<_>, String>>()?;
        let waiting = match progress.waiting {
            0 => String::new(),
            waiting => format!("; waiting {waiting}"),
        };
        Ok(vec![format!("after {} changes: {}{waiting}", progress.index, all.join(", "))])
    }
}
