//! How the group grows older: its leader writes it into the log, by a clock that only measures durations.

use super::NodeCore;
use tidemark_types::time::Time;
use tidemark_wire::msg::GroupCmd;

impl NodeCore {
    /// Each time that this process has led for the length of an age, the group is one older. The wait of an earlier leader is not
    /// known here, so changes of the leader only make it younger.
    pub(super) fn run_ages(&mut self, now: Time) {
        // With nothing to forget, time does not matter.
        if !self.group.is_last_boot(self.nonce) || self.group.streams() == 0 && self.group.ids() == 0 {
            self.aged_at = None;
            return;
        }
        let since = *self.aged_at.get_or_insert(now);
        if since + self.config.age_unit <= now {
            self.aged_at = Some(now);
            self.log.push_cmd(&self.config, GroupCmd::Age(self.group.age() + 1));
        }
    }

    /// Once in a leadership, if it is not so already.
    pub(super) fn say_id_terms(&mut self) {
        if self.id_terms_said || !self.group.is_last_boot(self.nonce) {
            return;
        }
        self.id_terms_said = true;
        let terms = self.config.id_terms;
        if self.group.id_terms() != terms {
            self.log.push_cmd(&self.config, GroupCmd::IdTerms(terms));
        }
    }

    pub(super) fn ages_due(&self) -> Option<Time> {
        self.aged_at.map(|since| since + self.config.age_unit)
    }
}
