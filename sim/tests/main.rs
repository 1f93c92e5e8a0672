//! The simulator on the shipped core: seeds, golden scripts, deliberate bugs, ids, and the memory of days.

mod callers;
mod month;
mod scripts;
mod seeds;
mod teeth;
