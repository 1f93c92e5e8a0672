//! The bodies of requests and answers. Apart from domain types, so that those stay free to change; the command line's
//! client reads what the server writes by the same types.

mod at;
mod signed;

pub use at::EventAt;
pub use signed::Signed;

use super::series::Of;
use super::{Added, AnewReason, AwardPosition, ClaimTurn, Failure, HealthCheck, ReadVersion};
use crate::json;
use crate::names::{hex, key_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::ids::{CounterName, GroupId};
use tidemark_proto::ledger::{Births, Turn, TurnKind};
use tidemark_proto::msg::{Award, MilestoneSpec, Place, Policy, Reading};

/// `GET /readyz?verbose`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadyBody {
    pub ready: bool,
    pub checks: Vec<HealthCheck>,
}

/// `POST …/add`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddBody {
    /// Weight, 1 when left out; a negative one is counted down, where the counter's namespace allows that.
    #[serde(default = "one")]
    #[schemars(schema_with = "crate::schemas::delta")]
    pub delta: Signed,
    /// The session's token; only its digest is kept. A decrement has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::session_or_null")]
    pub session: Option<String>,
    /// When it happened; when it is logged, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<EventAt>,
    /// Whether the answer has the counter's value and a version, for which it waits until they include this increment.
    #[serde(default, skip_serializing_if = "is_false")]
    pub value: bool,
    /// Sent again with the same id, 1 to 128 visible ASCII characters, it is not counted again. The header `Idempotency-Key` says the
    /// same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::id_or_null")]
    pub id: Option<String>,
    /// Name of the data centre that remembers the id; left out: one that follows from the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// When it was first sent with this id. An id that is sent later than ids are remembered is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_sent: Option<EventAt>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn one() -> Signed {
    Signed(1)
}

/// Answer to [`AddBody`]: `{"place":"counted"}`, `{"place":"number","number":7}`,
/// `{"place":"milestone","at":1000,"first":1000}` or `{"place":"pending"}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "place", rename_all = "lowercase")]
pub enum AddedBody {
    Counted,
    Number { number: u64 },
    Milestone { at: u64, first: u64 },
    Pending,
}

/// Answer to [`AddBody`] with what it asked for besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddAnswerBody {
    #[serde(flatten)]
    pub place: AddedBody,
    /// The counter's value in this data centre; together with `pending` it includes this increment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Signed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// The version that a read must ask for (`at_least`) to include this increment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why there is no value. The increment is counted all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_unknown: Option<String>,
}

impl AddAnswerBody {
    /// An answer without a value.
    pub fn new(added: Added) -> AddAnswerBody {
        let place = AddedBody::from(added);
        AddAnswerBody { place, value: None, pending: None, version: None, value_unknown: None }
    }

    /// With the value, or why it is not known.
    pub fn with_value(self, fresh: Result<(Reading, ReadVersion), Failure>) -> AddAnswerBody {
        match fresh {
            Ok((reading, version)) => AddAnswerBody {
                value: Some(Signed(reading.value())),
                pending: Some(reading.pending),
                version: Some(version.to_string()),
                ..self
            },
            Err(failure) => AddAnswerBody { value_unknown: Some(failure.to_string()), ..self },
        }
    }
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CounterBody {
    pub namespace: String,
    /// As [`key_text`] writes it.
    pub key: String,
}

/// `GET` of a counter's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadingBody {
    pub counter: CounterBody,
    /// Never exceeds what happened; never goes back here, but by what is counted down: it is `up` less `down`.
    pub value: Signed,
    /// Something was counted on it once, as far as is known here.
    #[serde(default = "is_known_by_default")]
    pub known: bool,
    /// Durable or heard of, but not yet in `value`.
    pub pending: u64,
    /// Upper bound as of `ledger_index`, for counters with milestones.
    pub at_most: Option<Signed>,
    pub ledger_index: u64,
    /// How often the counter began again; left out while it never has. Halves of one generation never go back.
    #[serde(default, skip_serializing_if = "is_first")]
    pub generation: u32,
    #[serde(flatten)]
    pub halves: Option<HalvesBody>,
}

/// Of a counter of which something was counted down, both halves: neither goes back here. Milestones are about `up`. Of others they are
/// left out, and `up` is the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HalvesBody {
    pub up: u64,
    pub down: u64,
}

impl HalvesBody {
    pub fn of(reading: &Reading) -> Option<HalvesBody> {
        let Reading { up, down, .. } = *reading;
        (down > 0).then_some(HalvesBody { up, down })
    }
}

/// The meaning of an answer without this field.
pub(crate) fn is_known_by_default() -> bool {
    true
}

/// Whether something was counted on a counter once, as far as its reading shows.
pub(crate) fn is_known(reading: &Reading) -> bool {
    reading.up > 0 || reading.down > 0 || reading.pending > 0 || reading.generation > 0
}

fn is_first(generation: &u32) -> bool {
    *generation == 0
}

/// Several values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadingsBody {
    pub counters: Vec<ReadingBody>,
}

/// Why a total has no milestones.
const MILESTONE_OF_TOTAL: &str = "milestones stand on direct counts: a total is derived from the counts of others along edges, which may be taken \
     away again, so no increment is its n-th; define it on the counters that are counted, or count each event on this one too";

/// `PUT …/milestones`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DefineBody {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schemas::milestones")]
    pub at: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::milestone_or_null")]
    pub every: Option<u64>,
    /// `strict` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::milestone_or_null")]
    pub sequence_from: Option<u64>,
    /// Which of its counts; only direct ones have milestones.
    #[serde(default, skip_serializing_if = "Of::is_direct")]
    pub of: Of,
}

/// A milestone's policy about rights that are out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyBody {
    /// Waits for the data centre to return the rights
    Strict,
    /// Revokes the rights after a lease
    Timely,
}

impl From<Policy> for PolicyBody {
    fn from(policy: Policy) -> PolicyBody {
        match policy {
            Policy::Strict => PolicyBody::Strict,
            Policy::Timely => PolicyBody::Timely,
        }
    }
}

/// An award as it is shown; the whole of it stands in its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwardBody {
    pub counter: CounterBody,
    pub at: u64,
    /// Milestones awarded to the same increment: `at, at + step, …`, `count` of them.
    pub step: u64,
    pub count: u64,
    /// The increment covers `first ..= first + delta - 1`.
    pub first: u64,
    pub delta: u64,
    /// The group that counted it: its data centre's number and its own.
    pub dc: u16,
    pub group: u16,
    pub client: String,
    pub session: Option<String>,
    /// Its position, for `?after=`.
    pub position: String,
    /// When it was decided, by the clock of the ledger's leader: RFC 3339, in UTC. Left out of awards from before times were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The same in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_unix_ms: Option<u64>,
}

/// Several awards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwardsBody {
    pub awards: Vec<AwardBody>,
    /// Where to go on (`?after=`), when there may be more.
    pub next: Option<String>,
}

/// The result of an award's claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimTurnBody {
    pub counter: CounterBody,
    /// The award's (first) milestone.
    pub at: u64,
    #[schemars(schema_with = "crate::schemas::turn")]
    pub state: TurnKind,
    /// The award that names the session: the award's own, or a later award of the counter, after it passed to that winner.
    pub holder: u64,
    /// Digest of the holder's session.
    pub session: Option<String>,
    /// Where it stands among all awards and turns of claims.
    pub position: String,
}

/// A message of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum LiveBody {
    Total(ReadingBody),
    Award(AwardBody),
    /// An award of the subscriber's own session.
    Yours(AwardBody),
    /// The result of the claim of an award that the subscriber's own session may, or might, claim.
    Claim(ClaimTurnBody),
    /// A rehearsal of the messages to a session that has won.
    Trial(TrialBody),
    /// Where a subscription begins: in which birth of the cluster, and where it wants awards, the position behind which they follow.
    Begin {
        birth: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<String>,
    },
    /// The subscriber cannot go on where it was, and goes on behind `position`: what it may not have seen stands there.
    Anew {
        of: Whose,
        reason: AnewReason,
        given: String,
        position: String,
    },
    /// There was nothing to tell for a while.
    Here,
}

/// Which awards of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// All awards: `after`.
    Awards,
    /// The session's own, and what became of their claims: `own_after`.
    Own,
}

impl LiveBody {
    /// As it is sent.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("our messages are JSON")
    }
}

/// `POST /v1/sessions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueBody {
    /// The namespace that the sessions are for.
    #[schemars(schema_with = "crate::schemas::namespace")]
    pub namespace: String,
    /// How many tokens.
    #[serde(default = "one_session")]
    #[schemars(range(min = 1, max = 10_000))]
    pub count: usize,
    /// How long they live, in seconds; a day when left out.
    #[serde(default = "a_day_s")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub expires_s: u64,
}

fn one_session() -> usize {
    1
}

fn a_day_s() -> u64 {
    24 * 3_600
}

/// Answer to [`IssueBody`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionsBody {
    pub sessions: Vec<String>,
    /// When they end, in seconds since 1970.
    pub expires: u64,
}

impl From<Added> for AddedBody {
    fn from(added: Added) -> AddedBody {
        match added {
            Added::Pending => AddedBody::Pending,
            Added::Placed(Place::Counted) => AddedBody::Counted,
            Added::Placed(Place::Number(number)) => AddedBody::Number { number },
            Added::Placed(Place::Milestone { at, first }) => AddedBody::Milestone { at, first },
        }
    }
}

impl From<&CounterName> for CounterBody {
    fn from(counter: &CounterName) -> CounterBody {
        CounterBody { namespace: counter.namespace().to_owned(), key: key_text(counter.key()) }
    }
}

impl std::fmt::Display for CounterBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.key)
    }
}

impl ReadingBody {
    pub fn new(counter: &CounterName, reading: &Reading) -> ReadingBody {
        let Reading { pending, ledger_index, generation, .. } = *reading;
        ReadingBody {
            counter: counter.into(),
            value: Signed(reading.value()),
            known: is_known(reading),
            pending,
            at_most: reading.value_at_most().map(Signed),
            ledger_index,
            generation,
            halves: HalvesBody::of(reading),
        }
    }
}

impl DefineBody {
    /// The request to the ledger. Refused: a milestone of a total.
    pub(crate) fn spec(self) -> Result<MilestoneSpec, Failure> {
        let DefineBody { at, every, policy, sequence_from, of } = self;
        let policy = match policy {
            None | Some(PolicyBody::Strict) => Policy::Strict,
            Some(PolicyBody::Timely) => Policy::Timely,
        };
        match of {
            Of::Direct => Ok(MilestoneSpec { at, every, policy, sequence_from }),
            Of::Total => Err(Failure::invalid("milestone_of_total", MILESTONE_OF_TOTAL)),
        }
    }
}

impl AwardBody {
    pub fn new(award: &Award, births: &Births) -> AwardBody {
        let GroupId { dc, group, .. } = award.group;
        AwardBody {
            counter: (&award.counter).into(),
            at: award.at,
            step: award.step,
            count: award.count,
            first: award.first,
            delta: award.delta,
            dc: dc.0,
            group,
            client: hex(&award.client.0.to_be_bytes()),
            session: award.session.map(|session| hex(&session.0)),
            position: AwardPosition::of(award).marked(births).to_string(),
            time: award.time.map(|time| time.to_string()),
            time_unix_ms: award.time.map(|time| time.0),
        }
    }
}

impl ClaimTurnBody {
    pub fn new(turn: &ClaimTurn, births: &Births) -> ClaimTurnBody {
        let Turn { kind, holder } = turn.turn;
        ClaimTurnBody {
            counter: (&turn.counter).into(),
            at: turn.at,
            state: kind,
            holder,
            session: turn.session.map(|session| hex(&session.0)),
            position: turn.position().marked(births).to_string(),
        }
    }
}

/// Reads a request's body, an object; an empty body is an empty one.
pub fn parse<B: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<B, Failure> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    json::from_slice(bytes).map_err(|error| Failure::invalid("malformed_body", format!("the body: {error}")))
}

/// The message to the session's pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialBody {
    pub counter: CounterBody,
    pub at: u64,
}
