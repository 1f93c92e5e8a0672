//! Fixed hashes: equal on every machine and in every release. Neither is a defence against chosen collisions by itself;
//! tables that hold names from outside take a seed.

use crate::ids::CounterName;

/// FNV-1a over 64 bits with a final mix. Part of the wire contract through [`lane_of`].
pub fn name_hash(name: &CounterName) -> u64 {
    hash_of_name(name.namespace(), name.key())
}

/// The lane of a counter that is not on the spread list. Part of the wire contract: FNV-1a (64 bits) over namespace, a zero
/// byte and key, folded with 2^64 / golden ratio ([`name_hash`]), modulo the number of lanes.
pub fn lane_of(counter: &CounterName, lanes: u8) -> u8 {
    (name_hash(counter) % u64::from(lanes.max(1))) as u8
}

/// The same of a name in parts.
pub fn hash_of_name(namespace: &str, key: &[u8]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = namespace.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, add);
    mix(key.iter().fold(add(hash, &0), add), 0x9e37_79b9_7f4a_7c15)
}

/// A seeded hash of bytes for tables in memory; eight bytes at a time. Its values never leave a process.
pub fn bytes_hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash ^ u64::from_le_bytes(*word), 0xe703_7ed1_a0b4_28db);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash ^ u64::from_le_bytes(last), 0x8ebc_6af0_9c88_c6e3)
}

/// Folded multiplication.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_hash_is_what_it_was() {
        let name = CounterName::new("search", b"queries").unwrap();
        assert_eq!(name_hash(&name), 5_769_317_629_015_850_768);
    }
}
