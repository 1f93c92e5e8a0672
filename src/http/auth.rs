//! Who may do what: a bearer token for everything that changes state, and for reads unless they are configured open.

use super::{Failure, LIVE_PROTOCOL};
use crate::token::Token;
use axum::http::{HeaderMap, header};

/// Stands before the token among a WebSocket's protocols: a browser can set no other header there.
pub const PROTOCOL_TOKEN_PREFIX: &str = "bearer.";

/// Who may do what.
#[derive(Clone, Debug)]
pub struct Access {
    pub token: Token,
    /// Whether reading needs no token.
    pub open_reads: bool,
}

impl Access {
    /// For what changes state.
    pub(super) fn write(&self, headers: &HeaderMap) -> Result<(), Failure> {
        match presented(headers) {
            Some(token) if self.token.is(token) => Ok(()),
            Some(_) => Err(Failure::Unauthorized("the token is not that of this process")),
            None => Err(Failure::Unauthorized("a token is needed: Authorization: Bearer TOKEN")),
        }
    }

    /// For what only reads.
    pub(super) fn read(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if self.open_reads { Ok(()) } else { self.write(headers) }
    }
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    let of_header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    of_header.map(str::trim).or_else(|| of_protocols(headers))
}

fn of_protocols(headers: &HeaderMap) -> Option<&str> {
    let offered = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    let mut names = offered.split(',').map(str::trim);
    names.clone().find(|&name| name == LIVE_PROTOCOL)?;
    names.find_map(|name| name.strip_prefix(PROTOCOL_TOKEN_PREFIX))
}
