//! Why a request was not carried out: a status, a code for programs and a text for people.

use super::namespaces::UNKNOWN_NAMESPACE;
use axum::http::{StatusCode, header};
use tidemark_aggregator::{CatchUpError, ForgetError, FreshError, NotReady, VoterError};
use tidemark_client::HitError;
use tidemark_consensus::raft::{ChangeError, ReadError};
use tidemark_proto::client::AddError;
use tidemark_proto::ledger::{
    DeclareError, DefineError, DisarmError, ForgetError as Refused, MoveError, SetAsideError,
};
use tidemark_proto::msg::BatchError;

/// Why a request was not carried out. In all cases but [`Failure::InDoubt`] nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The request is wrong; the text names the value and the limit.
    #[error("{message}")]
    Invalid { code: &'static str, message: String },
    #[error("{0}")]
    NotFound(String),
    /// There is no such thing, and programs may have to know which kind.
    #[error("{message}")]
    Absent { code: &'static str, message: String },
    /// Refused by the rules of HTTP.
    #[error("{}", .0.message)]
    Http(Box<HttpRefusal>),
    /// The request differs from what its id stands for.
    #[error("{message}")]
    Mismatch { code: &'static str, message: String },
    /// It cannot be carried out at present. Nothing was counted by it.
    #[error("{message}")]
    Unavailable { code: &'static str, message: String },
    /// It contradicts what is already so.
    #[error("{message}")]
    Conflict { code: &'static str, message: String },
    #[error("{0}")]
    Unauthorized(&'static str),
    /// A session's token is not believed.
    #[error("{message}")]
    Session { code: &'static str, message: String },
    #[error("{0}")]
    Forbidden(String),
    #[error("{what} is {value}: at most {max} allowed")]
    TooLarge { what: &'static str, value: String, max: usize },
    #[error("overloaded: {what} is at its limit of {limit}")]
    Overloaded { what: String, limit: u64 },
    #[error("not serving: {0}")]
    NotServing(String),
    /// It may or may not have been carried out.
    #[error("in doubt: {0}")]
    InDoubt(String),
}

/// A failure with an HTTP status of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRefusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    pub(crate) headers: Vec<(header::HeaderName, &'static str)>,
}

impl Failure {
    pub fn invalid(code: &'static str, reason: impl ToString) -> Failure {
        Failure::Invalid { code, message: reason.to_string() }
    }

    pub(crate) fn http(status: StatusCode, code: &'static str, message: impl ToString) -> Failure {
        Failure::Http(Box::new(HttpRefusal { status, code, message: message.to_string(), headers: Vec::new() }))
    }

    /// Says this too, where it is one of HTTP.
    pub(crate) fn with_header(mut self, name: header::HeaderName, value: &'static str) -> Failure {
        if let Failure::Http(refusal) = &mut self {
            refusal.headers.push((name, value));
        }
        self
    }

    /// For programs; stays the same when texts change.
    pub fn code(&self) -> &'static str {
        match self {
            Failure::Invalid { code, .. }
            | Failure::Absent { code, .. }
            | Failure::Mismatch { code, .. }
            | Failure::Unavailable { code, .. }
            | Failure::Conflict { code, .. }
            | Failure::Session { code, .. } => code,
            Failure::Http(refusal) => refusal.code,
            Failure::NotFound(_) => "not_found",
            Failure::Unauthorized(_) => "unauthorized",
            Failure::Forbidden(_) => "forbidden",
            Failure::TooLarge { .. } => "too_large",
            Failure::Overloaded { .. } => "overloaded",
            Failure::NotServing(_) => "not_serving",
            Failure::InDoubt(_) => "in_doubt",
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Failure::Invalid { .. } => StatusCode::BAD_REQUEST,
            Failure::NotFound(_) | Failure::Absent { .. } => StatusCode::NOT_FOUND,
            Failure::Http(refusal) => refusal.status,
            Failure::Mismatch { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Failure::Conflict { .. } => StatusCode::CONFLICT,
            Failure::Unauthorized(_) | Failure::Session { .. } => StatusCode::UNAUTHORIZED,
            Failure::Forbidden(_) => StatusCode::FORBIDDEN,
            Failure::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Failure::Overloaded { .. } | Failure::NotServing(_) | Failure::Unavailable { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failure::InDoubt(_) => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

impl From<NotReady> for Failure {
    fn from(why: NotReady) -> Failure {
        Failure::NotServing(why.to_string())
    }
}

impl From<CatchUpError> for Failure {
    fn from(error: CatchUpError) -> Failure {
        Failure::NotServing(error.to_string())
    }
}

impl From<FreshError> for Failure {
    fn from(error: FreshError) -> Failure {
        match error {
            FreshError::Busy { limit } => {
                Failure::Overloaded { what: "reads that wait for the groups".to_owned(), limit: limit as u64 }
            }
            FreshError::Stops | FreshError::NotReached { .. } => Failure::NotServing(error.to_string()),
        }
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Failure {
        let message = error.to_string();
        match error {
            BatchError::UnknownNamespace(_) => Failure::Absent { code: UNKNOWN_NAMESPACE, message },
            BatchError::Delta { .. } => Failure::Invalid { code: "delta", message },
            BatchError::Overflow { .. } => Failure::Conflict { code: "overflow", message },
            BatchError::Event { .. } => Failure::Invalid { code: "event_time", message },
            BatchError::GrowOnly(namespace) => {
                let declared = "declare that they may with `updown` in the cluster's layout";
                let message = format!("{message}; {declared}, or with `tidemark serve --updown {namespace}`");
                Failure::Conflict { code: "grow_only", message }
            }
            BatchError::Overloaded { what, limit } => Failure::Overloaded { what, limit },
            BatchError::NotServing(reason) => Failure::NotServing(reason),
            BatchError::IdsLate { .. } | BatchError::Ids { .. } => Failure::NotServing(message),
            BatchError::Gap { .. }
            | BatchError::Fenced { .. }
            | BatchError::Expired { .. }
            | BatchError::UnknownNumber(_)
            | BatchError::Empty
            | BatchError::Times { .. }
            | BatchError::TooManyItems { .. }
            | BatchError::UnknownLane { .. } => Failure::NotServing(message),
        }
    }
}

impl From<DefineError> for Failure {
    fn from(error: DefineError) -> Failure {
        let message = error.to_string();
        match error {
            DefineError::UnknownNamespace(_) => Failure::Absent { code: UNKNOWN_NAMESPACE, message },
            DefineError::NotAbove { .. } => Failure::Conflict { code: "not_above", message },
            DefineError::Awarded { .. } => Failure::Conflict { code: "awarded", message },
            DefineError::Range { .. } => Failure::Invalid { code: "milestone", message },
            DefineError::Policy { .. } | DefineError::RulePolicy { .. } | DefineError::OfRulePolicy { .. } => {
                Failure::Conflict { code: "policy", message }
            }
            DefineError::Nothing => Failure::Invalid { code: "nothing_defined", message },
            DefineError::GuardedCounters(max) => {
                Failure::Overloaded { what: "guarded counters".to_owned(), limit: max as u64 }
            }
        }
    }
}

impl From<DeclareError> for Failure {
    fn from(error: DeclareError) -> Failure {
        let message = error.to_string();
        match error {
            DeclareError::Unknown(_) => Failure::NotFound(message),
            DeclareError::Lost(_) => Failure::Conflict { code: "lost", message },
            DeclareError::Heard { .. } => Failure::Conflict { code: "heard", message },
        }
    }
}

impl From<ForgetError> for Failure {
    fn from(error: ForgetError) -> Failure {
        let message = error.to_string();
        let code = match error {
            ForgetError::Majority { .. } => "majority",
            ForgetError::Ledger(Refused::Forgotten(_)) => "forgotten",
            ForgetError::Ledger(Refused::Heard { .. } | Refused::Connected(_)) => "heard",
            ForgetError::Ledger(Refused::Last(_)) => "last",
            ForgetError::Ledger(Refused::Unknown(_)) => return Failure::NotFound(message),
        };
        Failure::Conflict { code, message }
    }
}

impl From<SetAsideError> for Failure {
    fn from(error: SetAsideError) -> Failure {
        let code = match error {
            SetAsideError::Unknown => return Failure::NotFound(error.to_string()),
            SetAsideError::Alone => "alone",
            SetAsideError::Connected => "connected",
        };
        Failure::Conflict { code, message: error.to_string() }
    }
}

impl From<MoveError> for Failure {
    fn from(error: MoveError) -> Failure {
        let code = match error {
            MoveError::Unknown { .. } => return Failure::NotFound(error.to_string()),
            MoveError::NotSplit(_) => "not-split",
            MoveError::First => "first",
            MoveError::Moving(_) => "moving",
            MoveError::NotMoving(_) => "not-moving",
            MoveError::NotHeld(_) => "not-held",
            MoveError::Held(_) => "held",
            MoveError::TooMany(_) => "too-many",
            MoveError::NotConnected => "not-connected",
            MoveError::Split { .. } => "split",
            MoveError::Splitting(_) => "splitting",
            MoveError::CutElsewhere(_) => "cut-elsewhere",
            MoveError::NotWithin { .. } => "not-within",
            MoveError::Numbers(_) => "too-many",
        };
        Failure::Conflict { code, message: error.to_string() }
    }
}

impl From<VoterError> for Failure {
    fn from(error: VoterError) -> Failure {
        let code = match error {
            VoterError::NotLeader { .. } => "elsewhere",
            VoterError::Forgotten(_) => "forgotten",
            VoterError::NoMember(_) => "no-member",
            VoterError::Votes(_) | VoterError::VotesNot(_) | VoterError::Paired { .. } => "votes",
            VoterError::Last(_) => "last",
            VoterError::Full { .. } => "full",
            VoterError::Unreached(_) => "unreached",
            VoterError::Behind { .. } => "behind",
            VoterError::Majority { .. } | VoterError::Read(ReadError::NoQuorum(_)) => "majority",
            VoterError::Read(ReadError::NotLeader { .. }) => "elsewhere",
            VoterError::Read(ReadError::Stopped) => return Failure::NotServing(error.to_string()),
            VoterError::UnderWay | VoterError::Change(ChangeError::Refused(_)) => "under-way",
            VoterError::Change(_) | VoterError::Note(_) => return Failure::InDoubt(error.to_string()),
        };
        Failure::Conflict { code, message: error.to_string() }
    }
}

impl From<DisarmError> for Failure {
    fn from(error: DisarmError) -> Failure {
        Failure::Conflict { code: "by_rule", message: error.to_string() }
    }
}

impl From<HitError> for Failure {
    fn from(error: HitError) -> Failure {
        let message = error.to_string();
        match error {
            HitError::Time(_) => Failure::Invalid { code: "event_time", message },
            HitError::Overloaded { limit } => {
                Failure::Overloaded { what: "hits of this process".into(), limit: limit as u64 }
            }
            HitError::Failed(AddError::Refused(error)) => error.into(),
            HitError::Failed(AddError::Delta { .. }) => Failure::Invalid { code: "delta", message },
            HitError::Unknown => Failure::InDoubt(message),
            HitError::Name(_) | HitError::PlaceUnknown | HitError::Closed => Failure::NotServing(message),
            HitError::Failed(
                AddError::Overloaded { .. }
                | AddError::TooHeavy
                | AddError::TooManyCounters
                | AddError::Withdrawn
                | AddError::Closed
                | AddError::IdReused
                | AddError::IdsFull { .. }
                | AddError::IdFenced
                | AddError::IdLate
                | AddError::IdsUnknown,
            ) => Failure::NotServing(message),
        }
    }
}
