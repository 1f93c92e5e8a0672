//! The real query log that the demo replays, and the sessions derived from it: one for each line of each repetition.

use std::sync::OnceLock;

use ring::digest::{SHA256, digest};
use tidemark_proto::ids::SessionId;

const LOG: &str = include_str!("../../../deploy/reference/excite-small.log");
/// Bytes of a session's digest.
const SESSION_BYTES: usize = 16;

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Anonymous id of the user.
    pub user: &'static str,
    /// When, `yymmddhhmmss`.
    pub time: &'static str,
    /// The text of the query; may be empty.
    pub text: &'static str,
}

/// The log's lines in their order, which is by user and time. Lines that are not of its form are left out.
pub fn queries() -> &'static [Query] {
    static QUERIES: OnceLock<Vec<Query>> = OnceLock::new();
    QUERIES.get_or_init(|| LOG.lines().filter_map(parse_line).collect())
}

fn parse_line(line: &'static str) -> Option<Query> {
    let mut fields = line.splitn(3, '\t');
    Some(Query { user: fields.next()?, time: fields.next()?, text: fields.next()?.trim() })
}

/// Goes through the log again and again from a place of its own; a front end has one.
#[derive(Clone, Debug)]
pub struct Replay {
    at: usize,
    repetition: u64,
    /// Told apart from the other front ends, and from other runs.
    salt: u64,
}

impl Replay {
    /// Front end `number` of `of`, starting in its own part of the log; runs with different seeds have different sessions.
    pub fn new(number: usize, of: usize, seed: u64) -> Replay {
        let at = queries().len() * number / of.max(1);
        Replay { at, repetition: 0, salt: mix(seed ^ mix(number as u64 + 1)) }
    }

    /// The next line with its session: the digest that stands for it. Sessions are as distinct as lines, repetitions and
    /// front ends are.
    pub fn next_hit(&mut self) -> (&'static Query, SessionId) {
        let query = &queries()[self.at];
        let digest = stem(self.at) ^ u128::from(mix(self.repetition.wrapping_add(self.salt)));
        self.at += 1;
        if self.at == queries().len() {
            (self.at, self.repetition) = (0, self.repetition + 1);
        }
        (query, SessionId(digest.to_be_bytes()))
    }
}

/// The part of a digest that a line alone gives: hashed once per process, since a hash per hit would cost more than
/// everything else that a front end does.
fn stem(at: usize) -> u128 {
    static STEMS: OnceLock<Vec<u128>> = OnceLock::new();
    STEMS.get_or_init(|| queries().iter().enumerate().map(|(line, query)| stem_of(line, query)).collect())[at]
}

/// Lines may say the same twice, so their number is part of it.
fn stem_of(line: usize, query: &Query) -> u128 {
    let hash = digest(&SHA256, format!("{line}\t{}\t{}", query.user, query.time).as_bytes());
    hash.as_ref().iter().take(SESSION_BYTES).fold(0, |stem, &byte| stem << 8 | u128::from(byte))
}

/// SplitMix64's finish: a bijection that spreads neighbouring numbers over all bits.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_log_is_the_one_that_its_description_says() {
        let queries = queries();
        assert_eq!(queries.len(), 4_501);
        assert_eq!(queries.iter().map(|query| query.user).collect::<HashSet<_>>().len(), 891);
        assert_eq!(queries.iter().filter(|query| query.text.is_empty()).count(), 533);
    }

    #[test]
    fn every_hit_has_a_session_of_its_own() {
        let mut seen = HashSet::new();
        for front_end in 0..4 {
            let mut replay = Replay::new(front_end, 4, 1);
            assert!((0..3 * queries().len()).all(|_| seen.insert(replay.next_hit().1)));
        }
        assert!(seen.insert(Replay::new(0, 4, 2).next_hit().1), "another run, other sessions");
    }

    #[test]
    fn front_ends_replay_different_parts_in_the_log_s_order() {
        let mut first = Replay::new(0, 2, 1);
        let mut second = Replay::new(1, 2, 1);
        assert_eq!(first.next_hit().0, &queries()[0]);
        assert_eq!(first.next_hit().0, &queries()[1]);
        assert_eq!(second.next_hit().0, &queries()[2_250]);
    }
}
