//! Reading ahead: what is far apart in memory is read before it is worked on, many at once.
//!
//! Work on one of millions of rows waits for memory several times, each time for one place. Reads that do not depend on each other
//! overlap: a pass that only reads what the next few will need costs a fraction of those waits.

/// So many are read ahead: what they need stays in the first caches until it is worked on.
pub const AHEAD: usize = 64;

/// Before the work on the item at `at`: reads what the next items need, if that was not done. What `read` returns only keeps the reads
/// from being left out.
#[inline]
pub fn ahead<T>(items: &[T], at: usize, read: impl Fn(&T) -> u64) {
    if at.is_multiple_of(AHEAD) {
        let next = items.iter().skip(at).take(AHEAD);
        std::hint::black_box(next.fold(0u64, |sum, item| sum.wrapping_add(read(item))));
    }
}
