//! Prefetch: places far apart in memory are read before the work on them, many at once.
//!
//! Work on one of millions of rows waits for memory several times, each time for one place. Reads that do not depend on each
//! other overlap: a pass that only reads the memory of the next few items costs a fraction of those waits.

/// The number of items that are read ahead: their memory stays in the first caches until the work on them.
pub const AHEAD: usize = 64;

/// Before the work on the item at `at`: prefetches the next items, unless that was done. The result of `read` only keeps the
/// compiler from removing the reads.
#[inline]
pub fn ahead<T>(items: &[T], at: usize, read: impl Fn(&T) -> u64) {
    if at.is_multiple_of(AHEAD) {
        let next = items.iter().skip(at).take(AHEAD);
        std::hint::black_box(next.fold(0u64, |sum, item| sum.wrapping_add(read(item))));
    }
}
