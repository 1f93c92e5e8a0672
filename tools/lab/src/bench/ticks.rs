//! A timer finer than tokio's, which has a clock that ticks once a millisecond: as long as all that an answer may take.
//!
//! It is a file that the thread of the reads waits for together with its sockets. A thread beside it that slept and then woke it cost a
//! switch more for each tick, and kept a core from being free when another thread was to wake. Of 50,000 reads a second on two cores the
//! p99 was four times as long.

pub use self::imp::Ticks;

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::time::Duration;

    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
    use rustix::time::{timerfd_create, timerfd_settime};
    use tokio::net::unix::pipe::Receiver;

    /// It is read like a pipe: eight bytes, once a tick has passed.
    pub struct Ticks(Receiver);

    impl Ticks {
        /// For less than a second.
        pub fn every(span: Duration) -> io::Result<Ticks> {
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            let span = Timespec { tv_sec: 0, tv_nsec: span.subsec_nanos().into() };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: span, it_value: span })?;
            Receiver::from_owned_fd_unchecked(timer).map(Ticks)
        }

        /// Until a tick has passed since the last call.
        pub async fn next(&self) -> io::Result<()> {
            loop {
                self.0.readable().await?;
                match self.0.try_read(&mut [0; size_of::<u64>()]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read.map(drop),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::time::Duration;

    /// As fine as tokio's.
    pub struct Ticks(Duration);

    impl Ticks {
        pub fn every(span: Duration) -> io::Result<Ticks> {
            Ok(Ticks(span))
        }

        pub async fn next(&self) -> io::Result<()> {
            tokio::time::sleep(self.0).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Ticks;

    #[tokio::test]
    async fn no_tick_comes_before_its_time() -> std::io::Result<()> {
        let every = Duration::from_micros(200);
        let begun = Instant::now();
        let ticks = Ticks::every(every)?;
        for passed in 1..=20 {
            ticks.next().await?;
            assert!(begun.elapsed() >= every * passed, "{passed} ticks after {:?}", begun.elapsed());
        }
        Ok(())
    }
}
