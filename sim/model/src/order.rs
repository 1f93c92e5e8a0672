//! I7: what was answered as placed before an increment was asked for stands before it, should it win.
//!
//! Only a queued increment can win. When it is queued, the places that the other groups know are noted with it: a bit per position,
//! positions of one group together, one such field per position of its own queue. Certified increments need no note, as an award has to
//! have all of them before it; nor those of its own group, which stand in one queue.

use super::config::Config;
use super::groups::Part;

/// Bits of one field: positions of each other group.
fn field_bits(config: &Config) -> usize {
    (config.groups - 1) * config.increments()
}

/// Whether the notes of a configuration fit.
pub fn fits(config: &Config) -> bool {
    field_bits(config) * config.increments() <= u32::BITS as usize
}

/// The notes of a group that went from one state to another while the others know of `placed`.
pub fn note(config: &Config, notes: u32, was: &Part, is: &Part, placed: u32) -> u32 {
    let bits = field_bits(config);
    let mask = (1 << bits) - 1;
    let mut notes = notes;
    for (pos, item) in is.queued.iter().enumerate() {
        if item.placed {
            notes &= !(mask << (pos * bits));
        } else if pos >= was.queued.len() {
            notes |= placed << (pos * bits);
        }
    }
    notes
}

/// The places that the groups other than `of` know, as one field.
pub fn placed_elsewhere(config: &Config, of: usize, placed: impl Iterator<Item = u32>) -> u32 {
    let others = placed.enumerate().filter(|(group, _)| *group != of).map(|(_, placed)| placed);
    others.enumerate().map(|(at, placed)| placed << (at * config.increments())).sum()
}

/// The positions of `group` that were placed when the increment at `pos` of the group `of` was asked for.
pub fn noted(config: &Config, notes: u32, of: usize, pos: u64, group: usize) -> u32 {
    let at = if group < of { group } else { group - 1 };
    let field = notes >> (pos as usize * field_bits(config));
    field >> (at * config.increments()) & ((1 << config.increments()) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::named;

    #[test]
    fn a_note_is_found_under_its_position_and_group() {
        let config = named("three").expect("a configuration");
        let placed = placed_elsewhere(config, 1, [0b01, 0b11, 0b10].into_iter());
        let notes = placed << field_bits(config);
        let of = |group| noted(config, notes, 1, 1, group);
        assert_eq!((of(0), of(2), noted(config, notes, 1, 0, 0)), (0b01, 0b10, 0));
        assert!(crate::config::all().all(fits));
    }
}
