//! Images are taken while a run goes on, of data centres that the seed names, with what is on their disks. At its end all disks are gone:
//! a new era begins with these images, and perhaps with what one data centre still had.

use super::{Event, World};
use crate::checkers::eras::{self, Known};
use std::collections::BTreeMap;
use tidemark_proto::aggregator::{ImageReader, RowError, ViewImage, is_of_image};
use tidemark_proto::ids::{CounterName, DcId};
use tidemark_proto::ledger::{Ledger, OpenMilestones};
use tidemark_proto::shards::Ranges;

/// The image of one data centre.
#[derive(Debug)]
pub struct Image {
    ledger: Ledger,
    view: ViewImage,
}

/// The seed of the hashes of images.
const IMAGE_SEED: u64 = 11;

impl World {
    /// The content of an aggregator's disk, without anything that could speak for it.
    pub(super) fn view_image(&mut self, at: usize) -> Option<ViewImage> {
        let home = DcId(self.home_of(at) as u16);
        let of_shard = |rows: &BTreeMap<Vec<u8>, Vec<u8>>| {
            let mut reader = ImageReader::new(home, IMAGE_SEED);
            let mut rows = rows.iter().filter(|(key, _)| is_of_image(key));
            rows.try_for_each(|(key, value)| reader.take(key, value)).and_then(|()| reader.finish())
        };
        let shards = self.aggregators[at].rows().map(of_shard).collect::<Result<Vec<ViewImage>, RowError>>();
        match shards {
            Ok(shards) => {
                let mut image = ViewImage::empty(home, IMAGE_SEED, self.ranges());
                match shards.iter().try_for_each(|shard| image.merge(shard)) {
                    Ok(()) => Some(image),
                    Err(error) => {
                        self.audit.findings.found("eras", error.to_string());
                        None
                    }
                }
            }
            Err(error) => {
                self.audit.findings.found("recovery", format!("image of aggregator {at}: {error}"));
                None
            }
        }
    }

    /// Of a pair whichever runs is asked, of more all of them.
    pub(super) fn on_image(&mut self, dc: usize) {
        if self.faults_over {
            return;
        }
        let is_split = self.seats().are_split(DcId(dc as u16));
        let running = self.aggregators_of(dc).into_iter().filter(|&at| self.aggregators[at].is_up());
        for at in running.take(if is_split { usize::MAX } else { 1 }).collect::<Vec<_>>() {
            let ledger = self.aggregators[at].ledger.clone();
            self.coverage.saw_times("image of the second of a pair", u64::from(!is_split && self.id_of(at).seat == 1));
            if let Some(view) = self.view_image(at) {
                self.images.push(Image { ledger, view });
            }
        }
    }

    pub(super) fn plan_images(&mut self) {
        for &(at, dc) in &self.plan.eras.images {
            self.queue.push(at, Event::Image { dc });
        }
    }

    /// All is lost at the end of the run.
    pub(super) fn audit_eras(&mut self) {
        let mut images = std::mem::take(&mut self.images);
        if images.is_empty() || self.engine.is_some() {
            return;
        }
        let open = self.plan.eras.survivor.map_or(OpenMilestones::Withhold, |_| OpenMilestones::Rearm);
        if let Some(survivor) = self.plan.eras.survivor {
            let Some(view) = self.view_image(survivor) else { return };
            // The operator that rearms knows that nothing was awarded that no copy knows: here the copy is complete.
            images.push(Image { ledger: self.reference.clone(), view });
        }
        let mut view = ViewImage::empty(DcId(0), IMAGE_SEED, Ranges::whole());
        for image in &images {
            if let Err(error) = view.merge(&image.view) {
                return self.audit.findings.found("eras", error.to_string());
            }
        }
        let copies: Vec<Ledger> = images.into_iter().map(|image| image.ledger).collect();
        self.cover_era(&copies);
        let next = match Ledger::in_new_era(copies.clone(), view.view(), open) {
            Ok(next) => next,
            Err(error) => return self.audit.findings.found("eras", error.to_string()),
        };
        next.check_invariants();
        eras::keeps_awards(&mut self.audit.findings, &next, &copies);
        for counter in 0..self.names.len() {
            self.audit_era_of(counter, &next, &view);
        }
    }

    fn audit_era_of(&mut self, counter: usize, next: &Ledger, view: &ViewImage) {
        let name = self.names[counter].clone();
        let Some(state) = next.counter(&name) else { return };
        let awarded = awards_of(&self.reference, &name);
        let number = self.audit.oracle.number(counter as u16, state.epoch() - 1);
        let happened = self.audit.oracle.totals[usize::from(number)];
        let known = Known { name: &name, awarded: &awarded, happened };
        eras::begins_well(&mut self.audit.findings, next, view.view(), &known);
        eras::goes_on(&mut self.audit.findings, next.clone(), &name);
    }

    fn cover_era(&mut self, copies: &[Ledger]) {
        self.coverage.saw("new era");
        let newest = copies.iter().max_by_key(|copy| copy.applied());
        let all: usize = self.names.iter().map(|name| awards_of(&self.reference, name).len()).sum();
        let known = |ledger: &Ledger| self.names.iter().map(|name| awards_of(ledger, name).len()).sum::<usize>();
        let forgotten = newest.is_some_and(|newest| known(newest) < all);
        let differ = copies.iter().any(|copy| known(copy) < newest.map_or(0, known));
        self.coverage.saw_times("new era from images older than an award", u64::from(forgotten));
        self.coverage.saw_times("new era from copies of which one lacks an award", u64::from(differ));
    }
}

fn awards_of(ledger: &Ledger, name: &CounterName) -> Vec<u64> {
    ledger.counter(name).map_or_else(Vec::new, |state| state.awards().keys().copied().collect())
}
