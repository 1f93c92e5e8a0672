//! Why a connection ended, in words of this crate.

use quinn::ConnectionError;
use thiserror::Error;

/// Why a connection is no more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConnectionLost {
    /// We closed it, or our endpoint.
    #[error("closed here")]
    ClosedHere,
    /// The peer closed it.
    #[error("closed by the peer: {reason}")]
    ClosedByPeer {
        /// The reason that the peer gave.
        reason: String,
    },
    /// Nothing came for the idle timeout.
    #[error("nothing heard for the idle timeout")]
    TimedOut,
    /// The peer's endpoint does not know the connection, as after a restart.
    #[error("the peer does not know the connection any more")]
    Reset,
    /// The peer broke the protocol, or says that we did.
    #[error("protocol violation: {reason}")]
    Protocol {
        /// The error of QUIC.
        reason: String,
    },
}

impl From<ConnectionError> for ConnectionLost {
    #[allow(clippy::wildcard_enum_match_arm, reason = "ConnectionError is of another crate and grows")]
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::LocallyClosed => Self::ClosedHere,
            ConnectionError::TimedOut => Self::TimedOut,
            ConnectionError::Reset => Self::Reset,
            ConnectionError::ApplicationClosed(close) => {
                Self::ClosedByPeer { reason: String::from_utf8_lossy(&close.reason).into_owned() }
            }
            other => Self::Protocol { reason: other.to_string() },
        }
    }
}
