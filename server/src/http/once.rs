//! The id of an increment, from a request's headers or body: a request that is sent again with its id is not counted again.

use super::body::EventAt;
use super::{AddId, Failure};
use crate::idempotency::digest_of;
use crate::names::is_id;
use axum::http::HeaderMap;
use tidemark_proto::ids::CounterName;

/// Longest id of an increment, in bytes: that of an `Idempotency-Key`.
pub const IDEMPOTENCY_BYTES_MAX: usize = 128;
const REFUSED: &str = "1 to 128 visible ASCII characters are allowed";

/// The id of an increment in a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub id: Option<String>,
    pub home: Option<String>,
    pub first_sent: Option<EventAt>,
}

impl Said {
    /// The content of the headers `Idempotency-Key`, `Idempotency-Home` and `Idempotency-First-Sent`.
    pub fn of(headers: &HeaderMap) -> Result<Said, Failure> {
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default().to_owned());
        let first_sent = header("idempotency-first-sent").map(|text| match text.parse() {
            Ok(seconds) => EventAt::Seconds(seconds),
            Err(_) => EventAt::Text(text),
        });
        let said = Said { id: header("idempotency-key"), home: header("idempotency-home"), first_sent };
        match &said.id {
            Some(id) if !is_id(id, IDEMPOTENCY_BYTES_MAX) => Err(Failure::invalid("idempotency_key", REFUSED)),
            _ => Ok(said),
        }
    }

    /// The content of the body, or else of these headers; both may say the same.
    pub fn or(self, headers: &Said) -> Result<Said, Failure> {
        if let (Some(body), Some(header)) = (&self.id, &headers.id)
            && body != header
        {
            let message =
                format!("the body's id is {body:?} and the header's Idempotency-Key {header:?}: give one of them");
            return Err(Failure::invalid("id", message));
        }
        let Said { id, home, first_sent } = headers.clone();
        Ok(Said { id: self.id.or(id), home: self.home.or(home), first_sent: self.first_sent.or(first_sent) })
    }

    /// The id for an increment of a counter.
    pub fn id_of(self, counter: &CounterName) -> Result<Option<AddId>, Failure> {
        let Said { id, home, first_sent } = self;
        let Some(id) = id else {
            return match home.is_some() || first_sent.is_some() {
                true => Err(Failure::invalid("id", "home and first_sent belong to an id, and there is none")),
                false => Ok(None),
            };
        };
        // A line of many has the key and its number behind it.
        if !is_id(&id, IDEMPOTENCY_BYTES_MAX + "#10000".len()) {
            return Err(Failure::invalid("id", format!("id of {} bytes: {REFUSED}", id.len())));
        }
        let first_sent = first_sent.as_ref().map(EventAt::time).transpose();
        let first_sent = first_sent.map_err(|error| Failure::invalid("first_sent", error))?;
        Ok(Some(AddId { digest: digest_of(counter.namespace(), &id), home, first_sent }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(key: &str) -> HeaderMap {
        HeaderMap::from_iter([("idempotency-key".parse().unwrap(), key.parse().unwrap())])
    }

    fn said(id: &str) -> Said {
        Said { id: Some(id.to_owned()), ..Said::default() }
    }

    #[test]
    fn a_header_and_a_body_may_say_the_same_id() {
        let header = Said::of(&headers("pay-1")).unwrap();
        let counter = CounterName::new("shop", b"sold").unwrap();
        let by_body = said("pay-1").or(&header).unwrap().id_of(&counter).unwrap().unwrap();
        let by_header = Said::default().or(&header).unwrap().id_of(&counter).unwrap().unwrap();
        assert_eq!(by_body, by_header);
        assert_eq!(said("pay-2").or(&header).unwrap_err().code(), "id");
    }

    #[test]
    fn ids_of_two_namespaces_are_two() {
        let id = |namespace| said("1").id_of(&CounterName::new(namespace, b"sold").unwrap()).unwrap().unwrap();
        assert_ne!(id("shop"), id("site"));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let counter = CounterName::new("shop", b"sold").unwrap();
        for wrong in ["", "a b", &"x".repeat(150)] {
            assert_eq!(said(wrong).id_of(&counter).unwrap_err().code(), "id", "{wrong:?}");
        }
        assert_eq!(Said::of(&headers(&"x".repeat(129))).unwrap_err().code(), "idempotency_key");
        let alone = Said { home: Some("fra".to_owned()), ..Said::default() };
        assert_eq!(alone.id_of(&counter).unwrap_err().code(), "id");
    }
}
