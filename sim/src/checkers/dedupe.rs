//! Dedupe: a batch is counted once however often it arrives, and a fenced stream takes nothing more.

use super::Findings;
use crate::oracle::Oracle;
use tidemark_proto::ids::ClientId;

const NAME: &str = "dedupe";

/// The result of reading a committed entry.
pub fn read(findings: &mut Findings, read: Result<(), String>) {
    if let Err(what) = read {
        findings.found(NAME, what);
    }
}

/// A node answered a fence by knowing nothing of the stream any more: nothing came of it for as long as it is remembered.
pub fn forgotten(findings: &mut Findings, oracle: &Oracle, group: u16, of: ClientId, lane: u8) {
    let truth = &oracle.groups[usize::from(group)];
    let used = truth.streams.get(&(of, lane)).filter(|stream| stream.last > 0).map(|stream| stream.used);
    let old = used.is_none_or(|used| used.saturating_add(oracle.streams_kept) < truth.age);
    findings.check(NAME, old, || {
        format!("group {group}, of age {}, forgot {of:?} lane {lane}, which was used at age {used:?}", truth.age)
    });
}

/// A node refused a batch as one of a client that may have been forgotten: `since` is the group's age when it welcomed that client.
pub fn expired(findings: &mut Findings, oracle: &Oracle, group: u16, client: ClientId, since: u32) {
    let age = oracle.groups[usize::from(group)].age;
    findings.check(NAME, since.saturating_add(oracle.streams_kept) < age, || {
        format!("group {group}, of age {age}, refused {client:?} as forgotten, whom it welcomed at age {since}")
    });
}

/// A node answered a fence: the log says the same, and has ended the stream.
pub fn fenced(findings: &mut Findings, oracle: &Oracle, group: u16, of: ClientId, lane: u8, last_seq: u64) {
    let stream = oracle.groups[usize::from(group)].streams.get(&(of, lane));
    let agrees = stream.is_some_and(|stream| stream.fenced && stream.last == last_seq);
    findings.check(NAME, agrees, || {
        let known = stream.map(|stream| (stream.last, stream.fenced));
        format!("group {group} answered fence of {of:?} lane {lane} with {last_seq}; its log says {known:?}")
    });
}
