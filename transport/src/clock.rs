//! The clock for leases and ages: it never goes back, no process sets it, and it goes on while the machine is suspended.

use std::time::Duration;

/// Time since a process began to measure it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Duration,
}

impl Clock {
    /// A clock that shows nothing yet.
    pub fn start() -> Clock {
        Clock { origin: since_boot() }
    }

    /// How long ago it was started.
    pub fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.origin)
    }

    /// Sleeps until it shows `at`. The time of a suspension counts only once the timer fires: a caller that needs to know reads the clock
    /// again.
    pub async fn sleep_until(&self, at: Duration) {
        tokio::time::sleep(at.saturating_sub(self.elapsed())).await;
    }
}

/// Rust's `Instant` stands still while the machine is suspended, and a lease must not.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).expect("the time since the machine started is not negative")
}

/// Elsewhere what the standard library has; on macOS, as on Linux, that stands still while the machine is suspended.
#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_goes_on_and_sleeps_no_shorter_than_it_is_told() {
        let clock = Clock::start();
        let at = Duration::from_millis(30);
        clock.sleep_until(at).await;
        let first = clock.elapsed();
        assert!(first >= at, "{first:?}");
        clock.sleep_until(at).await;
        assert!(clock.elapsed() >= first);
    }

    /// `/proc/uptime` counts what the machine was suspended, as this clock must.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_the_one_that_counts_suspensions() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split(' ').next().unwrap().parse().unwrap())
        };
        let before = uptime();
        let shown = since_boot();
        let after = uptime();
        let tick = Duration::from_millis(10);
        assert!(before <= shown + tick && shown <= after + tick, "{before:?} {shown:?} {after:?}");
    }
}
