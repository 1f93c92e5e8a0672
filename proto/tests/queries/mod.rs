//! Questions about series and their answers, through the facade.

mod asks;
mod events;
mod gathered;
mod keys;
mod messages;
mod totals;
