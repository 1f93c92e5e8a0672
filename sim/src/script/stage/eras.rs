//! Images, new eras that begin with them, and data centres that never return.

use super::{Done, Held, Stage};
use crate::script::words;
use tidemark_proto::ids::{DcId, GroupId, Half, ValveId};
use tidemark_proto::ledger::{Ledger, OpenMilestones};
use tidemark_proto::view::View;

/// The ending of a data centre's name in an earlier era.
const BEFORE: &str = "-before";

/// The ledger and what is known of components, at one moment.
#[derive(Debug)]
pub struct Image {
    ledger: Ledger,
    components: Vec<(GroupId, u64)>,
}

impl Stage {
    /// The group that a data centre founds: of one that was there in an era before, the next incarnation.
    pub(super) fn next_id(&self, name: &str) -> GroupId {
        match self.sites.get(&format!("{name}{BEFORE}")) {
            Some(before) => GroupId { incarnation: before.id.incarnation + 1, ..before.id },
            None => GroupId { dc: DcId(self.sites.len() as u16), group: 0, incarnation: 1 },
        }
    }

    pub(super) fn is_before(name: &str) -> bool {
        name.ends_with(BEFORE)
    }

    /// The counts in views of groups of an earlier era.
    pub(super) fn known_before(&self) -> u64 {
        let state = self.ledger.counter(&self.counter());
        let before = self.sites.iter().filter(|(name, _)| Self::is_before(name));
        before.map(|(_, site)| state.map_or(0, |state| state.known_of(site.id))).sum()
    }

    /// Takes an image of the ledger and of all components.
    pub fn image(&mut self, name: &str) -> Done {
        let counter = self.counter();
        let component = |site: &super::Site| {
            let cell = site.group.cell_of(&counter, Half::Up);
            (site.id, site.group.table().find(&cell).map_or(0, |slot| site.group.sum(slot)))
        };
        let present = self.sites.iter().filter(|(name, _)| !Self::is_before(name));
        let components: Vec<_> = present.map(|(_, site)| component(site)).collect();
        let said: Vec<String> = components.iter().map(|(id, value)| format!("{} {value}", self.name_of(*id))).collect();
        self.images.insert(name.to_owned(), Image { ledger: self.ledger.clone(), components });
        let milestones = words::milestones(&self.ledger, &counter);
        Ok(vec![format!("image {name}: {}; milestones: {milestones}", said.join(", "))])
    }

    /// `rearm IMAGE…` or `withhold IMAGE…`: everything is lost, and begins anew with what the images know. Processes of the earlier era may
    /// run on, under another name.
    pub fn era(&mut self, choice: &str, images: &[&str]) -> Done {
        let open = match choice {
            "rearm" => OpenMilestones::Rearm,
            "withhold" => OpenMilestones::Withhold,
            _ => return Err("era rearm|withhold IMAGE…".into()),
        };
        let counter = self.counter();
        let mut view = View::new(DcId(0), 1);
        let mut copies = Vec::new();
        for name in images {
            let image = self.images.get(*name).ok_or_else(|| format!("no image {name:?}"))?;
            copies.push(image.ledger.clone());
            let generation = image.ledger.resets().generation(&counter);
            for &(group, value) in &image.components {
                let merged = view.merge(&counter.total_of(generation), ValveId { group, lane: 0 }, value);
                merged.map_err(|error| error.to_string())?;
            }
        }
        self.ledger = Ledger::in_new_era(copies, &view, open).map_err(|error| error.to_string())?;
        self.index = self.ledger.applied().0;
        let sites = std::mem::take(&mut self.sites).into_iter();
        let renamed =
            sites.map(|(name, site)| if Self::is_before(&name) { (name, site) } else { (name + BEFORE, site) });
        self.sites = renamed.collect();
        self.streams.clear();
        Ok(vec![format!("a new era: milestones: {}", words::milestones(&self.ledger, &counter))])
    }

    /// An operator has given the data centre up; the command is on its way to the ledger.
    pub fn forget(&mut self, name: &str) -> Done {
        let dc = self.site(name)?.id.dc;
        match self.ledger.forgetting(dc, false) {
            Ok(cmd) => self.hold(Held::ToLedger(cmd)),
            Err(error) => Ok(vec![format!("refused: {error}")]),
        }
    }
}
