//! Hop tokens: a query that is sent on to its country's data centre carries one, and counts once, wherever the browser takes it.
//!
//! A token is `h1.KEY.EXPIRES.CONTENT.MAC`. KEY is the session key that signed it, EXPIRES the end of its life (seconds since
//! 1970). CONTENT is the increments with session and data centres (JSON, as hexadecimal digits), and MAC the first 128 bits of
//! HMAC-SHA-256 over all that. It names the data centre that may count: the home; or the origin, if the home cannot be reached.
//! Of the two, the origin's group decides by its log ([`tidemark_proto::named`]), so that no order of visits, reloads, crashes
//! and retries counts it twice.

use crate::names::{counter_text, from_hex, hex, is_id, parse_counter, sha256_prefix};
use crate::session::{SessionKeys, SessionRefusal, now_s};
use serde::{Deserialize, Serialize};
use tidemark_proto::ids::{CounterName, SessionId};
pub use tidemark_proto::limits::HOP_BYTES_MAX;
use tidemark_proto::limits::{AGE_UNIT, IDS_KEPT_AGES};
use tidemark_proto::msg::ItemId;
use tidemark_proto::named::NAMED_ITEMS_MAX;

/// Longest life of a token.
pub const HOP_LIFE_MAX_S: u64 = 24 * 3_600;
/// The life of a token by default.
pub const HOP_LIFE_S: u64 = 900;
// A token is no good any more before the group may have forgotten what it counted.
const _: () = assert!(HOP_LIFE_MAX_S * 1_000_000 <= IDS_KEPT_AGES as u64 * AGE_UNIT.0);
/// Longest id that the caller gives a query, in bytes.
pub const HOP_ID_BYTES_MAX: usize = 128;
/// The origin answers for a token that has ended at the home just now.
const ENDED_GRACE_S: u64 = 120;

const VERSION: &str = "h1";
const KIND: &str = "hop h1";

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The data centre that sends it on.
    pub origin: String,
    /// The data centre that is to count it.
    pub home: String,
    /// The query's own id: the same query, sent on again, gets the same name.
    pub id: String,
    pub session: Option<SessionId>,
    /// Each is counted once, with weight 1.
    pub counters: Vec<CounterName>,
}

/// Why a token is not issued.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum HopError {
    #[error("{0} counters: 1 to {NAMED_ITEMS_MAX} allowed")]
    Counters(usize),
    #[error("{counter} is listed twice")]
    Twice { counter: CounterName },
    #[error("id of {bytes} bytes: 1 to {HOP_ID_BYTES_MAX} visible ASCII characters allowed")]
    Id { bytes: usize },
    #[error("expires_s is {0}: 1 to {HOP_LIFE_MAX_S} allowed")]
    Life(u64),
    #[error("a hop token of {bytes} bytes: at most {HOP_BYTES_MAX} allowed; name fewer or shorter counters")]
    TooLong { bytes: usize },
}

/// Why a token is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HopRefusal {
    #[error("the hop token has no such form")]
    Malformed,
    #[error("the hop token is signed by no key of this cluster")]
    UnknownKey,
    #[error("the hop token's signature is wrong")]
    Forged,
    #[error("the hop token ended at {at} (seconds since 1970)")]
    Expired { at: u64 },
}

/// A hop as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    origin: String,
    home: String,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    counters: Vec<String>,
}

impl Hop {
    /// The id under which each of the two data centres counts it or fences it. It is made of origin, home and the query's own id, so that
    /// one id counts once, whatever the rest of the token says. The counters, their order and the session are its content.
    pub fn id(&self) -> ItemId {
        let parts =
            [&b"tidemark hop "[..], self.origin.as_bytes(), b" ", self.home.as_bytes(), b" ", self.id.as_bytes()];
        let mut counters: Vec<String> = self.counters.iter().map(counter_text).collect();
        counters.sort_unstable();
        let session = self.session.map(|session| session.to_string()).unwrap_or_default();
        let counters = serde_json::to_string(&(session, counters)).expect("texts are JSON");
        let content = sha256_prefix(&[b"tidemark hop content ", counters.as_bytes()]);
        ItemId { digest: sha256_prefix(&parts), content, items: 0 }
    }

    /// A token, and when it ends.
    ///
    /// # Errors
    /// The hop or the time is invalid.
    pub fn issue(&self, keys: &SessionKeys, life_s: u64) -> Result<(String, u64), HopError> {
        self.check()?;
        if life_s == 0 || life_s > HOP_LIFE_MAX_S {
            return Err(HopError::Life(life_s));
        }
        let expires = now_s() + life_s;
        let text = format!("{expires}.{}", hex(self.content().as_bytes()));
        let (key, mac) = keys.sign(KIND, &text);
        let token = format!("{VERSION}.{key}.{text}.{mac}");
        match token.len() {
            0..=HOP_BYTES_MAX => Ok((token, expires)),
            bytes => Err(HopError::TooLong { bytes }),
        }
    }

    /// Believes a token that one of the keys signed and that has not ended.
    ///
    /// # Errors
    /// Why not.
    pub fn verify(keys: &SessionKeys, token: &str) -> Result<Hop, HopRefusal> {
        Hop::verify_at(keys, token, now_s())
    }

    /// [`Hop::verify`], also of one that ended a moment ago.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn verify_late(keys: &SessionKeys, token: &str) -> Result<Hop, HopRefusal> {
        Hop::verify_at(keys, token, now_s().saturating_sub(ENDED_GRACE_S))
    }

    fn verify_at(keys: &SessionKeys, token: &str, now_s: u64) -> Result<Hop, HopRefusal> {
        if token.len() > HOP_BYTES_MAX {
            return Err(HopRefusal::Malformed);
        }
        let [VERSION, key, expires, content, mac] = token.split('.').collect::<Vec<_>>()[..] else {
            return Err(HopRefusal::Malformed);
        };
        keys.check(key, KIND, &format!("{expires}.{content}"), mac)?;
        let at: u64 = expires.parse().map_err(|_| HopRefusal::Malformed)?;
        if at <= now_s {
            return Err(HopRefusal::Expired { at });
        }
        let hop = from_hex(content).and_then(|json| serde_json::from_slice::<Content>(&json).ok()?.hop());
        hop.filter(|hop| hop.check().is_ok()).ok_or(HopRefusal::Malformed)
    }

    fn check(&self) -> Result<(), HopError> {
        if self.counters.is_empty() || self.counters.len() > NAMED_ITEMS_MAX {
            return Err(HopError::Counters(self.counters.len()));
        }
        let twice = self.counters.iter().enumerate().find(|(at, counter)| self.counters[..*at].contains(counter));
        if let Some((_, counter)) = twice {
            return Err(HopError::Twice { counter: counter.clone() });
        }
        let bytes = self.id.len();
        match is_id(&self.id, HOP_ID_BYTES_MAX) {
            true => Ok(()),
            false => Err(HopError::Id { bytes }),
        }
    }

    fn content(&self) -> String {
        let content = Content {
            origin: self.origin.clone(),
            home: self.home.clone(),
            id: self.id.clone(),
            session: self.session.map(|session| session.to_string()),
            counters: self.counters.iter().map(counter_text).collect(),
        };
        serde_json::to_string(&content).expect("texts are JSON")
    }
}

impl Content {
    fn hop(self) -> Option<Hop> {
        let session = |text: String| Some(SessionId(from_hex(&text)?.try_into().ok()?));
        let session = match self.session {
            Some(text) => Some(session(text)?),
            None => None,
        };
        let counters = self.counters.iter().map(|text| parse_counter(text).ok()).collect::<Option<_>>()?;
        Some(Hop { origin: self.origin, home: self.home, id: self.id, session, counters })
    }
}

impl From<SessionRefusal> for HopRefusal {
    fn from(refusal: SessionRefusal) -> HopRefusal {
        match refusal {
            SessionRefusal::UnknownKey => HopRefusal::UnknownKey,
            SessionRefusal::Forged => HopRefusal::Forged,
            SessionRefusal::Malformed | SessionRefusal::Expired { .. } | SessionRefusal::OtherNamespace { .. } => {
                HopRefusal::Malformed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::session_id;
    use proptest::prelude::*;

    fn hop() -> Hop {
        let counter = |key: &[u8]| CounterName::new("search", key).unwrap();
        Hop {
            origin: "usa-1".to_owned(),
            home: "europe-2".to_owned(),
            id: "7c0ffee".to_owned(),
            session: Some(session_id("incognito").unwrap()),
            counters: vec![counter(b"queries"), counter(b"country.FI"), counter(b"100%\xff")],
        }
    }

    #[test]
    fn a_token_says_what_it_was_issued_for_until_it_ends() {
        let keys = SessionKeys::random().unwrap();
        let (token, expires) = hop().issue(&keys, 60).unwrap();
        assert_eq!(Hop::verify(&keys, &token), Ok(hop()));
        assert_eq!(Hop::verify_at(&keys, &token, expires), Err(HopRefusal::Expired { at: expires }));
        assert_eq!(Hop::verify_at(&keys, &token, expires - 1), Ok(hop()));
        assert_eq!(Hop::verify(&SessionKeys::random().unwrap(), &token), Err(HopRefusal::UnknownKey));
    }

    #[test]
    fn a_query_is_its_id_and_the_rest_is_its_content() {
        let changed = |change: fn(&mut Hop)| {
            let mut other = hop();
            change(&mut other);
            (other.id().digest == hop().id().digest, other.id().content == hop().id().content)
        };
        assert_eq!(changed(|_| ()), (true, true));
        assert_eq!(changed(|hop| hop.counters.reverse()), (true, true), "in another order they are the same");
        assert_eq!(changed(|hop| hop.session = None), (true, false));
        assert_eq!(changed(|hop| drop(hop.counters.pop())), (true, false));
        let others: [fn(&mut Hop); 3] = [
            |hop| hop.origin = "usa-2".to_owned(),
            |hop| hop.home = "europe-1".to_owned(),
            |hop| hop.id = "7c0ffef".to_owned(),
        ];
        others.iter().for_each(|change| assert_eq!(changed(*change), (false, true)));
    }

    #[test]
    fn a_session_token_is_no_hop_token() {
        let keys = SessionKeys::random().unwrap();
        let session = keys.issue("search", 1, 60).unwrap().0.remove(0);
        assert_eq!(Hop::verify(&keys, &session), Err(HopRefusal::Malformed));
        assert!(keys.verify(&hop().issue(&keys, 60).unwrap().0).is_err());
    }

    #[test]
    fn what_is_asked_has_limits() {
        let keys = SessionKeys::random().unwrap();
        let refused = |change: fn(&mut Hop), life| {
            let mut hop = hop();
            change(&mut hop);
            hop.issue(&keys, life).unwrap_err().to_string()
        };
        assert_eq!(refused(|hop| hop.counters.clear(), 60), "0 counters: 1 to 8 allowed");
        assert!(refused(|hop| hop.counters.push(hop.counters[0].clone()), 60).contains("is listed twice"));
        assert!(refused(|hop| hop.id = "a b".to_owned(), 60).starts_with("id of 3 bytes"));
        assert_eq!(refused(|_| (), 86_401), "expires_s is 86401: 1 to 86400 allowed");
        let long = |hop: &mut Hop| {
            hop.counters = (0..8).map(|n| CounterName::new("search", &[b'a' + n; 255]).unwrap()).collect();
        };
        assert!(refused(long, 60).contains("at most 4096 allowed"));
    }

    proptest! {
        #[test]
        fn a_changed_token_is_refused(at in any::<prop::sample::Index>(), to in "[ -~]") {
            let keys = SessionKeys::random().unwrap();
            let token = hop().issue(&keys, 60).unwrap().0;
            let at = at.index(token.len());
            let changed = format!("{}{to}{}", &token[..at], &token[at + 1..]);
            prop_assert!(changed == token || Hop::verify(&keys, &changed).is_err(), "{}", changed);
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in ".{0,300}") {
            prop_assert!(Hop::verify(&SessionKeys::random().unwrap(), &text).is_err());
        }
    }
}
