//! The part of a failing run that makes it fail: the shortest list of faults, commands and clients that a search by halves finds (Zeller
//! and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002).
//!
//! A run with less in it is another run: its chances fall otherwise from the first difference on. So a list that was found fails, and none
//! of its parts can be left out alone; it need not be the shortest of all.

use crate::plan::{Only, Plan};
use std::collections::BTreeSet;

/// A part of a plan that a run can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Fault(usize),
    Admin(usize),
    Client(usize),
    /// That machines of a data centre come and go.
    Moves(usize),
    /// That some processes are of the next version.
    Versions,
}

/// All parts of a plan, those first that are most likely not needed.
pub fn parts(plan: &Plan) -> Vec<Part> {
    let clients = (0..plan.clients.len()).map(Part::Client);
    let faults = (0..plan.faults.len()).map(Part::Fault);
    let admin = (0..plan.admin.len()).filter(|&index| !plan.admin[index].1.is_needed()).map(Part::Admin);
    let versions = plan.versions.is_mixed().then_some(Part::Versions);
    let moves = (0..plan.sites.len()).filter(|&dc| plan.moves.of(dc).is_some()).map(Part::Moves);
    versions.into_iter().chain(moves).chain(clients).chain(faults).chain(admin).collect()
}

/// A run of these parts only.
pub fn only(parts: &[Part]) -> Only {
    let of = |index: &dyn Fn(&Part) -> Option<usize>| Some(parts.iter().filter_map(index).collect::<BTreeSet<usize>>());
    Only {
        faults: of(&|part| if let Part::Fault(index) = part { Some(*index) } else { None }),
        admin: of(&|part| if let Part::Admin(index) = part { Some(*index) } else { None }),
        clients: of(&|part| if let Part::Client(index) = part { Some(*index) } else { None }),
        moves: of(&|part| if let Part::Moves(dc) = part { Some(*dc) } else { None }),
        one_version: !parts.contains(&Part::Versions),
    }
}

/// A part of `all`, which fails, that fails too, and of which no single element can be left out. `fails` is never asked about `all`
/// itself.
pub fn shrink<T: Clone>(all: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut left = all.to_vec();
    let mut pieces = 2;
    while left.len() > 1 {
        let size = left.len().div_ceil(pieces);
        let starts = (0..left.len()).step_by(size);
        let found = starts.map(|start| without(&left, start, size)).find(|fewer| fails(fewer));
        match found {
            Some(fewer) => {
                pieces = (pieces - 1).clamp(2, fewer.len().max(2));
                left = fewer;
            }
            None if size == 1 => return left,
            None => pieces = (2 * pieces).min(left.len()),
        }
    }
    if left.len() == 1 && fails(&[]) {
        left.clear();
    }
    left
}

fn without<T: Clone>(all: &[T], start: usize, size: usize) -> Vec<T> {
    let end = (start + size).min(all.len());
    [&all[..start], &all[end..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_together_is_found_wherever_it_stands() {
        let all: Vec<u32> = (0..40).collect();
        for needed in [vec![7], vec![0, 39], vec![3, 4, 5], vec![1, 12, 23, 34], vec![], all.clone()] {
            let mut asked = 0;
            let found = shrink(&all, |some| {
                asked += 1;
                needed.iter().all(|one| some.contains(one))
            });
            assert_eq!(found, needed);
            assert!(asked <= 40 * 40 + 3 * 40, "{asked} runs");
        }
    }
}
