//! Limits: no queue, message or buffer passes its named limit.

use super::Findings;
use tidemark_proto::ledger::CounterLedger;
use tidemark_proto::limits::{BLOCK_ITEMS_MAX, MESSAGE_BYTES_MAX, UNDECIDED_ITEMS_MAX};

const NAME: &str = "limits";

/// A log entry or message of so many bytes.
pub fn message(findings: &mut Findings, what: &str, bytes: usize) {
    findings.check(NAME, bytes <= MESSAGE_BYTES_MAX, || format!("{what} of {bytes} bytes"));
}

/// After an entry of the ledger. One offer may pass the limit of the window; the next is not taken.
pub fn window(findings: &mut Findings, counter: u16, state: &CounterLedger) {
    let undecided = state.window().undecided();
    findings.check(NAME, undecided <= UNDECIDED_ITEMS_MAX + BLOCK_ITEMS_MAX, || {
        format!("counter {counter}: {undecided} undecided")
    });
}

/// A client's buffer.
pub fn buffer(findings: &mut Findings, client: usize, held: usize, max: usize) {
    findings.check(NAME, held <= max, || format!("client {client} holds {held} bytes of {max}"));
}
