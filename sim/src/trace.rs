//! The trace of a run: a hash of everything that happened, and, for a replay, the words.

use tidemark_proto::time::Time;

/// Hash of all events and outputs so far; lines only when asked for.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    print: bool,
    pub lines: Vec<String>,
}

/// Where hashes begin.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn mix(hash: u64, number: u64) -> u64 {
    let mixed = u128::from(hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (mixed as u64) ^ ((mixed >> 64) as u64) ^ number.rotate_left(17)
}

/// Hash of a text.
pub fn hash_of(text: &str) -> u64 {
    text.bytes().fold(BASIS, |hash, byte| mix(hash, byte.into()))
}

impl Trace {
    pub fn new(print: bool) -> Trace {
        Trace { hash: BASIS, print, lines: Vec::new() }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Notes something that happened, by a few numbers; the words are made only when they are printed.
    pub fn note(&mut self, now: Time, kind: u8, numbers: [u64; 3], words: impl FnOnce() -> String) {
        for number in [now.0, u64::from(kind)].into_iter().chain(numbers) {
            self.hash = mix(self.hash, number);
        }
        if self.print {
            self.lines.push(format!("{:>12.6} {}", now.0 as f64 / 1e6, words()));
        }
    }

    /// Lines noted since the last call.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}
