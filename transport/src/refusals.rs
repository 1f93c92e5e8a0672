//! Diallers that were not admitted, in the log: each kind once a minute and address, with how often it happened meanwhile.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::endpoint::AcceptError;

/// The same is not said again within this time.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Addresses and kinds that are remembered; the oldest is forgotten for a further one.
const KINDS_MAX: usize = 256;

/// Logged refusals, and how often each happened since.
#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<(SocketAddr, u8), (Instant, u64)>);

impl Refusals {
    /// Logs that a dialler was not admitted. A dialler that gave up by itself, as the attempts of a peer that was reached by another one
    /// do, is no warning.
    pub fn note(&mut self, error: &AcceptError) {
        let Some(kind) = kind_of(error) else { return tracing::debug!(%error, "a dialler gave up") };
        if let Some(before) = self.due((error.addr(), kind)) {
            tracing::warn!(%error, times_since_last = before, "connection refused");
        }
    }

    /// How often it happened since it was said, if it is to be said again.
    fn due(&mut self, key: (SocketAddr, u8)) -> Option<u64> {
        let now = Instant::now();
        match self.0.get_mut(&key) {
            Some((said, times)) if now - *said < SAY_EVERY => {
                *times += 1;
                None
            }
            Some((said, times)) => {
                *said = now;
                Some(std::mem::take(times))
            }
            None => {
                if self.0.len() >= KINDS_MAX
                    && let Some(oldest) = self.0.iter().min_by_key(|(_, (said, _))| *said).map(|(key, _)| *key)
                {
                    self.0.remove(&oldest);
                }
                self.0.insert(key, (now, 0));
                Some(0)
            }
        }
    }
}

/// Kinds of refusals; none for a dialler that has gone.
fn kind_of(error: &AcceptError) -> Option<u8> {
    match error {
        AcceptError::NoCertificate { .. } => Some(0),
        AcceptError::Refused { .. } => Some(1),
        AcceptError::Protocol { .. } => Some(2),
        AcceptError::RefusedByPeer { .. } => Some(3),
        AcceptError::TimedOut { .. } | AcceptError::Lost { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_said_once_a_minute_with_its_number() {
        let mut refusals = Refusals::default();
        let of = |last: u8| (SocketAddr::from(([127, 0, 0, last], 7171)), 1);
        assert_eq!(refusals.due(of(1)), Some(0));
        assert_eq!(refusals.due(of(2)), Some(0), "another address");
        for _ in 0..600 {
            tokio::time::advance(Duration::from_millis(90)).await;
            assert_eq!(refusals.due(of(1)), None);
        }
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(refusals.due(of(1)), Some(600));
        for address in 0..=u16::MAX {
            let [high, low] = address.to_be_bytes();
            refusals.due((SocketAddr::from(([10, 0, high, low], 7171)), 1));
        }
        assert_eq!(refusals.0.len(), KINDS_MAX);
    }
}
