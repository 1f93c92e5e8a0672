//! The messages of a loader about times without an answer: one when such a time has begun, and one when it is over.

use tidemark_proto::time::{Span, Time};
use tidemark_transport::HostPort;

/// Nodes are restarted and lead elsewhere; a shorter outage is not worth a line.
const SAID_AFTER: Span = Span::from_secs(10);
const US_PER_S: u64 = Span::from_secs(1).0;

/// Since when there is no link, and what was said of it.
#[derive(Debug)]
pub struct Outage {
    /// The words for an outage, and for its end.
    said: (&'static str, &'static str),
    /// The nodes that are tried.
    tried: String,
    since: Option<Time>,
    /// Why the last link ended, or none came about.
    why: Option<String>,
    /// The one that was said, and nothing since.
    said_since: Option<Time>,
}

impl Outage {
    /// An outage from now on: no node has answered yet.
    pub fn new(nodes: &[HostPort], now: Time) -> Outage {
        let said = ("no node has answered", "a node answers again");
        Outage::of(said, nodes.iter().map(HostPort::to_string).collect::<Vec<_>>().join(", "), now)
    }

    /// The same in other words: what is said of an outage, and of its end.
    pub fn of(said: (&'static str, &'static str), tried: String, now: Time) -> Outage {
        Outage { said, tried, since: Some(now), why: None, said_since: None }
    }

    /// A node has answered.
    pub fn up(&mut self) {
        (self.since, self.why) = (None, None);
    }

    /// There is no link, or none any more.
    pub fn down(&mut self, now: Time, why: Option<String>) {
        self.since.get_or_insert(now);
        self.why = why.or_else(|| self.why.take());
    }

    /// The message that is due now.
    pub fn news(&mut self, now: Time) -> Option<String> {
        match (self.since, self.said_since) {
            (Some(since), None) if now - since >= SAID_AFTER => {
                self.said_since = Some(since);
                let why = self.why.as_deref().unwrap_or("nothing has come back");
                let (waited_s, Outage { said: (gone, _), tried, .. }) = ((now - since).0 / US_PER_S, &*self);
                Some(format!("{gone} for {waited_s} s, and it goes on trying: {tried}; the last error: {why}"))
            }
            (None, Some(since)) => {
                self.said_since = None;
                Some(format!("{} after {} s", self.said.1, (now - since).0 / US_PER_S))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time(s * US_PER_S)
    }

    fn outage() -> Outage {
        Outage::new(&["192.0.2.1:7001".parse().unwrap(), "192.0.2.2:7001".parse().unwrap()], at(0))
    }

    #[test]
    fn nobody_from_the_beginning_is_said_once_with_who_was_tried_and_the_last_error() {
        let mut outage = outage();
        outage.down(at(3), Some("refused".to_owned()));
        outage.down(at(6), Some("timed out".to_owned()));
        outage.down(at(7), None);
        assert_eq!(outage.news(at(9)), None);
        let said = outage.news(at(10)).unwrap();
        assert!(
            ["10 s", "192.0.2.1:7001, 192.0.2.2:7001", "timed out"].iter().all(|part| said.contains(part)),
            "{said}"
        );
        assert_eq!(outage.news(at(1_000)), None);
    }

    #[test]
    fn what_was_said_is_taken_back_once() {
        let mut outage = outage();
        assert!(outage.news(at(10)).is_some());
        outage.up();
        let said = outage.news(at(25)).unwrap();
        assert!(said.contains("again after 25 s"), "{said}");
        assert_eq!(outage.news(at(26)), None);
        outage.down(at(30), Some("gone".to_owned()));
        assert!(outage.news(at(40)).unwrap().contains("gone"), "each outage is said");
    }

    #[test]
    fn what_is_short_is_not_worth_a_line_however_often_it_comes() {
        let mut outage = outage();
        for minute in 0..5 {
            outage.up();
            outage.down(at(60 * minute), None);
            assert_eq!(outage.news(at(60 * minute + 9)), None);
        }
    }
}
