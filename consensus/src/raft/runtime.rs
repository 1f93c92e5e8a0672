//! The asynchronous runtime that openraft runs on: tokio, with one source of randomness that a simulation can seed.
//!
//! openraft draws little: how long a member waits before it stands for election, and when it first asks again. In a process
//! these draws come from the operating system; on a thread that [`seed_thread`] was called on they are a function of the seed
//! and of their order, so that a run on a paused clock can be repeated.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::time::Duration;

use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From here on, what members on this thread draw is a function of `seed`; `None`: drawn from the operating system again.
/// Meant for a simulation that runs all members on one thread.
pub fn seed_thread(seed: Option<u64>) {
    SEED.set(seed);
}

/// tokio, but for its random numbers.
pub struct Runtime(TokioRuntime);

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runtime")
    }
}

/// An odd constant with its bits well mixed, so that seeds drawn one after the other have little in common.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = ChaCha8Rng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(error)
    }

    fn thread_rng() -> ChaCha8Rng {
        match SEED.get() {
            Some(seed) => {
                SEED.set(Some(seed.wrapping_add(STEP)));
                ChaCha8Rng::seed_from_u64(seed)
            }
            None => rand::make_rng(),
        }
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    fn spawn_blocking<F, T>(f: F) -> impl Future<Output = Result<T, io::Error>> + Send
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        TokioRuntime::spawn_blocking(f)
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    fn draws() -> Vec<u64> {
        (0..4).map(|_| Runtime::thread_rng().random_range(0..u64::MAX)).collect()
    }

    #[test]
    fn draws_are_a_function_of_the_seed_and_of_their_order_and_else_of_nothing() {
        let seeded = |seed| {
            seed_thread(Some(seed));
            draws()
        };
        let first = seeded(7);
        assert_eq!(seeded(7), first);
        assert_ne!(seeded(8), first);
        seed_thread(None);
        assert_ne!(draws(), draws());
    }
}
