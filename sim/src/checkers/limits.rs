//! Limits: no queue, message or buffer passes its named limit.

use super::Findings;
use tidemark_proto::ledger::CounterLedger;
use tidemark_proto::limits::{MESSAGE_BYTES_MAX, OFFER_ITEMS_MAX, UNDECIDED_ITEMS_MAX};

const NAME: &str = "limits";

/// Checks a log entry or message of this number of bytes.
pub fn message(findings: &mut Findings, what: &str, bytes: usize) {
    findings.check(NAME, bytes <= MESSAGE_BYTES_MAX, || format!("{what} of {bytes} bytes"));
}

/// After an entry of the ledger. A single offer may pass the limit of the window; the next is not taken.
pub fn window(findings: &mut Findings, counter: u16, state: &CounterLedger) {
    let load = state.window().load();
    findings.check(NAME, load <= UNDECIDED_ITEMS_MAX + 2 * OFFER_ITEMS_MAX as u64, || {
        format!("counter {counter}: {load} undecided")
    });
}

/// A client's buffer.
pub fn buffer(findings: &mut Findings, client: usize, held: usize, max: usize) {
    findings.check(NAME, held <= max, || format!("client {client} holds {held} bytes of {max}"));
}
