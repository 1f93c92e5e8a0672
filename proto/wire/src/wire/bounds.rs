//! Bounds of the parts of messages: accounts, batches, reasons, chunks of a feed.
//!
//! Names must be valid, lists and texts have a greatest length, and numbers that are indexes or amounts have a greatest value.
//! Ids, nonces, epochs, revisions, sequence numbers and positions in logs are only identities: each value of their type is
//! allowed.
//!
//! Two values of a client's batch are not checked here: deltas, and numbers of counters. A wrong one is answered with
//! [`BatchError`] and the connection goes on.

use super::{WireError, at_most, cells_valid, name, namespace};
use crate::msg::*;
use tidemark_types::limits::*;

/// A reason for people, or another text that is only shown.
pub fn text(text: &str) -> Result<(), WireError> {
    at_most("bytes of a text", text.len() as u64, TEXT_BYTES_MAX as u64)
}

/// The lane of a component.
pub(super) fn lane_valid(lane: u8) -> Result<(), WireError> {
    at_most("lane, plus one", u64::from(lane) + 1, LANES_MAX.into())
}

pub(super) fn batch_error_valid(error: &BatchError) -> Result<(), WireError> {
    match error {
        BatchError::UnknownNamespace(of) | BatchError::GrowOnly(of) => namespace(of),
        BatchError::Overflow { counter, .. } => name(counter),
        BatchError::Overloaded { what, .. } => text(what),
        BatchError::NotServing(reason) => text(reason),
        BatchError::Delta { idx, .. } | BatchError::Event { idx, .. } => {
            at_most("item of a batch, plus one", u64::from(*idx) + 1, BATCH_ITEMS_MAX as u64)
        }
        BatchError::Gap { .. }
        | BatchError::Fenced { .. }
        | BatchError::Expired { .. }
        | BatchError::UnknownNumber(_)
        | BatchError::Empty
        | BatchError::TooManyItems { .. }
        | BatchError::UnknownLane { .. }
        | BatchError::Times { .. }
        | BatchError::IdsLate { .. }
        | BatchError::Ids { .. } => Ok(()),
    }
}

pub(super) fn group_cmd_valid(cmd: &GroupCmd) -> Result<(), WireError> {
    match cmd {
        GroupCmd::Boot { lanes, .. } => at_most("lanes", (*lanes).into(), LANES_MAX.into()),
        GroupCmd::Batch(batch) => batch_valid(batch),
        GroupCmd::Fence { lane, .. } => lane_valid(*lane),
        GroupCmd::Ledger(message) => to_group_valid(message),
        GroupCmd::Keyed(Keyed { batch, ids, .. }) => {
            batch_valid(batch)?;
            ids_valid(ids)
        }
        GroupCmd::IdTerms(terms) => at_most("ids of a group", terms.max.into(), IDS_MAX_MAX.into()),
        GroupCmd::Age(_) | GroupCmd::Lease { .. } | GroupCmd::Compact { .. } => Ok(()),
    }
}

/// The ids of a batch; whether they cover its items is answered with [`BatchError::Ids`].
pub(super) fn ids_valid(ids: &[ItemId]) -> Result<(), WireError> {
    at_most("ids of a batch", ids.len() as u64, BATCH_ITEMS_MAX as u64)?;
    ids.iter().try_for_each(|id| at_most("items of an id", id.items.into(), ID_ITEMS_MAX.into()))
}

/// Batches in the log were checked before, and their deltas are checked when they are applied.
fn batch_valid(Batch { lane, items, times, .. }: &Batch) -> Result<(), WireError> {
    lane_valid(*lane)?;
    at_most("items of a batch", items.len() as u64, BATCH_ITEMS_MAX as u64)?;
    at_most("event times of a batch", times.len() as u64, items.len() as u64)
}

pub(super) fn to_group_valid(message: &ToGroup) -> Result<(), WireError> {
    let namespaces = |what, names: &[String]| {
        at_most(what, names.len() as u64, NAMESPACES_MAX as u64)?;
        names.iter().try_for_each(|of| namespace(of))
    };
    match message {
        ToGroup::Confirmed { accounts, .. } => {
            at_most("accounts of a group", accounts.len() as u64, GUARDED_COUNTERS_MAX as u64)?;
            accounts.iter().try_for_each(account_valid)
        }
        ToGroup::FencedOut { .. } => Ok(()),
        ToGroup::Account(account) => account_valid(account),
        ToGroup::Placed(placed) => placed_valid(placed),
        ToGroup::Namespaces(names) => namespaces("namespaces", names),
        ToGroup::UpDown(names) => namespaces("namespaces that may go down", names),
        ToGroup::Spread(counters) => {
            at_most("spread counters", counters.len() as u64, SPREAD_ASKED_MAX as u64)?;
            counters.iter().try_for_each(name)
        }
        ToGroup::Opened(opened) => opened_valid(opened),
        ToGroup::Generations(begun) => {
            at_most("counters that began again", begun.len() as u64, GENERATIONS_PER_MESSAGE_MAX as u64)?;
            begun.iter().try_for_each(|(counter, _)| name(counter))
        }
        ToGroup::Resets { after, upto, begun } => {
            at_most("counters that began again", begun.len() as u64, GENERATIONS_PER_MESSAGE_MAX as u64)?;
            at_most("number behind which resets are told", *after, *upto)?;
            begun.iter().try_for_each(|(counter, _)| name(counter))
        }
        ToGroup::Begun { opened, won } => {
            at_most("winners of an epoch", won.len() as u64, PLACED_RUNS_MAX as u64)?;
            won.iter().try_for_each(placed_valid)?;
            opened_valid(opened)
        }
        ToGroup::Series(terms) => {
            at_most("namespaces with series", terms.len() as u64, NAMESPACES_MAX as u64)?;
            terms.iter().try_for_each(|(of, _)| namespace(of))
        }
    }
}

fn account_valid(account: &Account) -> Result<(), WireError> {
    at_most("granted rights", account.granted, GRANTED_CUMULATIVE_MAX)?;
    at_most("spent rights", account.acked_spent, GRANTED_CUMULATIVE_MAX)?;
    name(&account.counter)
}

fn opened_valid(opened: &Opened) -> Result<(), WireError> {
    at_most("spent rights", opened.closed_spent, GRANTED_CUMULATIVE_MAX)?;
    account_valid(&opened.account)
}

fn placed_valid(placed: &Placed) -> Result<(), WireError> {
    at_most("runs of places", placed.runs.len() as u64, PLACED_RUNS_MAX as u64)?;
    name(&placed.counter)
}

pub(super) fn chunk_valid(chunk: &FeedChunk) -> Result<(), WireError> {
    chunk.components.iter().try_for_each(|&(_, lane, value)| {
        lane_valid(lane)?;
        at_most("component", value, COMPONENT_MAX)
    })?;
    chunk.rows.iter().try_for_each(|(_, lane, _)| lane_valid(*lane))?;
    cells_valid(&chunk.cells)
}
