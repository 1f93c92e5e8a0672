//! Permissions: a bearer token for everything that changes state, and for reads unless they are configured open; a session's token for a
//! browser's view of its own namespace. A browser's requests must come from a page that is allowed to send them.

use super::{Failure, LIVE_PROTOCOL};
use crate::session::{Session, SessionKeys, SessionRefusal};
use crate::token::Token;
use axum::http::{HeaderMap, HeaderValue, header};

/// Stands before the token among a WebSocket's protocols: a browser can set no other header there.
pub const PROTOCOL_TOKEN_PREFIX: &str = "bearer.";
/// Stands before a session's token there.
pub const PROTOCOL_SESSION_PREFIX: &str = "session.";
/// Names a session's token in an `Authorization` header.
const SESSION_SCHEME: &str = "Session";

/// The permissions of callers.
#[derive(Clone, Debug)]
pub struct Access {
    pub token: Token,
    /// Whether reading needs no token.
    pub open_reads: bool,
    /// Issue and verify the tokens of sessions; a node has none.
    pub sessions: Option<SessionKeys>,
    /// Pages besides our own that may show sessions and live totals: `https://search.example`.
    pub origins: Vec<String>,
}

impl Access {
    /// For what changes state.
    pub(super) fn write(&self, headers: &HeaderMap) -> Result<(), Failure> {
        match bearer(headers) {
            Some(token) if self.token.is(token) => Ok(()),
            Some(_) => Err(Failure::Unauthorized(
                "the token is not that of this process: send Authorization: Bearer TOKEN with the token in http.token_file \
                 (default: DATA_DIR/token)",
            )),
            None => Err(Failure::Unauthorized(
                "a token is needed: send Authorization: Bearer TOKEN with the token in http.token_file (default: DATA_DIR/token)",
            )),
        }
    }

    /// For what only reads.
    pub(super) fn read(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if self.open_reads { Ok(()) } else { self.write(headers) }
    }

    /// For what a browser may see live: with a session's token, of its namespace; else as for any reader.
    pub fn live(&self, headers: &HeaderMap) -> Result<Option<Session>, Failure> {
        self.check_origin(headers)?;
        match presented_session(headers) {
            Some(token) => Ok(Some(self.sessions()?.verify(token)?)),
            None => self.read(headers).map(|()| None),
        }
    }

    pub fn sessions(&self) -> Result<&SessionKeys, Failure> {
        let elsewhere = || Failure::NotFound("sessions are known to aggregators only".to_owned());
        self.sessions.as_ref().ok_or_else(elsewhere)
    }

    /// A browser says which page sends a request. Others do not, and are not asked.
    pub fn check_origin(&self, headers: &HeaderMap) -> Result<(), Failure> {
        match headers.get(header::ORIGIN) {
            Some(origin) if self.allowed_origin(headers).is_none() => {
                let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
                Err(Failure::Forbidden(format!("pages of {origin:?} may not ask here: see http.origins")))
            }
            _ => Ok(()),
        }
    }

    /// The origin of a request, if it is our own page's or one that is allowed. Any owner of a domain can point it at our
    /// address, so a domain does not make an origin ours. Under a name, our own page must be allowed like any other.
    pub(super) fn allowed_origin<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        let value = headers.get(header::ORIGIN)?;
        let origin = value.to_str().ok()?;
        let own = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
        (own == Some(host) && is_address(host) || self.origins.iter().any(|allowed| allowed == origin)).then_some(value)
    }
}

/// Whether a page's origin is written as browsers write it.
pub fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    host.is_some_and(|host| {
        !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]".contains(&byte))
    })
}

fn is_address(authority: &str) -> bool {
    let host =
        authority.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(authority, |(host, _)| host);
    host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    authorization(headers, "Bearer").or_else(|| of_protocols(headers, PROTOCOL_TOKEN_PREFIX))
}

fn presented_session(headers: &HeaderMap) -> Option<&str> {
    authorization(headers, SESSION_SCHEME).or_else(|| of_protocols(headers, PROTOCOL_SESSION_PREFIX))
}

fn authorization<'h>(headers: &'h HeaderMap, scheme: &str) -> Option<&'h str> {
    // Schemes are names without regard to case (RFC 9110, section 11.1).
    let (given, credentials) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    given.eq_ignore_ascii_case(scheme).then_some(credentials.trim())
}

fn of_protocols<'h>(headers: &'h HeaderMap, prefix: &str) -> Option<&'h str> {
    let offered = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    let mut names = offered.split(',').map(str::trim);
    names.clone().find(|&name| name == LIVE_PROTOCOL)?;
    names.find_map(|name| name.strip_prefix(prefix))
}

impl From<SessionRefusal> for Failure {
    fn from(refusal: SessionRefusal) -> Failure {
        let message = refusal.to_string();
        let code = match refusal {
            SessionRefusal::Malformed => "session_malformed",
            SessionRefusal::UnknownKey => "session_key",
            SessionRefusal::Forged => "session_forged",
            SessionRefusal::Expired { .. } => "session_expired",
            SessionRefusal::OtherNamespace { .. } => "session_namespace",
        };
        Failure::Session { code, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_page_is_at_an_address_and_not_at_somebodys_name() {
        for own in ["127.0.0.1:8480", "localhost:8480", "[::1]:8480", "10.0.0.1", "localhost"] {
            assert!(is_address(own), "{own}");
        }
        for name in ["evil.example:8480", "127.0.0.1.evil.example", "localhost.evil.example:80"] {
            assert!(!is_address(name), "{name}");
        }
    }

    #[test]
    fn a_scheme_is_known_whatever_its_case() {
        let headers = |text| HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(text))]);
        for text in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(bearer(&headers(text)), Some("abc"), "{text}");
        }
        assert_eq!(presented_session(&headers("session abc")), Some("abc"));
        for text in ["Bearerabc", "Session abc", "Bearer", ""] {
            assert_eq!(bearer(&headers(text)), None, "{text}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host_as_browsers_write_them() {
        assert!(is_origin("https://search.example") && is_origin("http://[::1]:8480"));
        for wrong in ["search.example", "https://", "https://Search.example", "https://a.example/", "null", "*"] {
            assert!(!is_origin(wrong), "{wrong}");
        }
    }
}
