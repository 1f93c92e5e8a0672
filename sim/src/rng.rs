//! The one source of randomness of a run: SplitMix64 (Steele, Lea, Flood 2014). Own because a seed must mean the same run
//! for ever, whatever a library's next version does.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// An independent generator for one concern, so that a new draw there does not change every other concern.
    pub fn fork(&self, concern: u64) -> Rng {
        let mut rng = Rng(self.0 ^ concern.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        Rng(rng.next())
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0 .. n`; 0 for `n` = 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `low ..= high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `n` times of 10,000.
    pub fn per_10k(&mut self, n: u32) -> bool {
        n > 0 && self.below(10_000) < u64::from(n)
    }

    /// Uniform in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_numbers_for_ever() {
        let mut rng = Rng::new(1234567);
        assert_eq!([rng.next(), rng.next()], [6457827717110365317, 3203168211198807973]);
        assert!((0..1_000).all(|_| rng.below(7) < 7));
        assert_ne!(rng.fork(1).next(), rng.fork(2).next());
    }
}
