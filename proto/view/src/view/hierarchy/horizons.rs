//! The buckets that namespaces keep, of direct counts and of totals.

use std::collections::{BTreeMap, BTreeSet};
use tidemark_ledger::ledger::Ledger;
use tidemark_types::series::{Granularity, Horizon};

/// By number of a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Horizons {
    numbers: BTreeMap<String, u16>,
    kept: Vec<Kept>,
    /// Pairs of namespaces between which edges were permitted when it was last looked.
    permissions: usize,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    own: Option<Horizon>,
    /// The own one, merged with those of all namespaces that may flow here.
    of_totals: Option<Horizon>,
}

/// The effect of another horizon.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    /// Buckets of totals have expired.
    pub expired: bool,
    /// Other granularities are kept than before.
    pub regranulated: bool,
}

impl Horizons {
    pub fn number_of(&self, namespace: &str) -> Option<u16> {
        self.numbers.get(namespace).copied()
    }

    /// The number of a namespace, a new one if it has none: there are at most [`NAMESPACES_MAX`](tidemark_types::limits::NAMESPACES_MAX).
    pub fn number(&mut self, namespace: &str) -> u16 {
        self.number_of(namespace).unwrap_or_else(|| {
            let number = self.kept.len() as u16;
            self.numbers.insert(namespace.to_owned(), number);
            self.kept.push(Kept::default());
            number
        })
    }

    /// The horizon of direct counts.
    #[inline]
    pub fn own(&self, number: u16) -> Option<&Horizon> {
        self.kept[usize::from(number)].own.as_ref()
    }

    #[inline]
    pub fn of_totals(&self, number: u16) -> Option<&Horizon> {
        self.kept[usize::from(number)].of_totals.as_ref()
    }

    pub fn set(&mut self, namespace: &str, horizon: &Horizon, ledger: &Ledger) -> Effect {
        let number = self.number(namespace);
        let own = &mut self.kept[usize::from(number)].own;
        let granularities =
            |horizon: &Horizon| horizon.first().iter().map(|first| first.0).collect::<Vec<Granularity>>();
        let regranulated = own.as_ref().map(granularities) != Some(granularities(horizon));
        if own.as_ref().is_some_and(|own| own.first() == horizon.first()) {
            return Effect::default();
        }
        *own = Some(horizon.clone());
        let sinks = reached(namespace, |from, to| (from, to), ledger);
        Effect { expired: self.derive(sinks, ledger), regranulated }
    }

    /// Edges may have been permitted. Returns whether buckets of totals have expired with that.
    pub fn on_permissions(&mut self, ledger: &Ledger) -> bool {
        let permissions = ledger.graph().allowed().count();
        if permissions == self.permissions {
            return false;
        }
        self.permissions = permissions;
        let all = self.numbers.keys().cloned().collect();
        self.derive(all, ledger)
    }

    /// Merges the totals' horizons of namespaces anew. Returns whether they keep less than before.
    fn derive(&mut self, namespaces: BTreeSet<String>, ledger: &Ledger) -> bool {
        let mut expired = false;
        for namespace in namespaces {
            let Some(number) = self.number_of(&namespace) else { continue };
            let mut kept = self.own(number).cloned();
            let sources = reached(&namespace, |from, to| (to, from), ledger);
            if let Some(kept) = &mut kept {
                let numbers = sources.iter().filter_map(|source| self.number_of(source));
                numbers.filter_map(|number| self.own(number)).for_each(|own| kept.merge(own));
            }
            let of_totals = &mut self.kept[usize::from(number)].of_totals;
            expired |= of_totals.as_ref().map(Horizon::first) != kept.as_ref().map(Horizon::first);
            *of_totals = kept;
        }
        expired
    }
}

/// The namespaces that are reached from one by permissions, itself included; `way` turns them round or does not.
fn reached(
    of: &str,
    way: impl for<'n> Fn(&'n str, &'n str) -> (&'n str, &'n str),
    ledger: &Ledger,
) -> BTreeSet<String> {
    let mut all = BTreeSet::from([of.to_owned()]);
    loop {
        let steps = ledger.graph().allowed().map(|(from, to)| way(from, to));
        let new: Vec<String> =
            steps.filter(|(from, to)| all.contains(*from) && !all.contains(*to)).map(|(_, to)| to.to_owned()).collect();
        if new.is_empty() {
            return all;
        }
        all.extend(new);
    }
}
