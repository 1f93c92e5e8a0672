//! `POST /v1/hops` and `POST /v1/hops/count`: queries that are sent on to another data centre.

use super::body::{AddedBody, CounterBody};
use super::namespaces::check_namespace;
use super::operation::Ask;
use super::routes::session_of;
use super::typed::{InTime, Json};
use super::{Added, AggregatorProcess, Failure};
use crate::hop::HOP_LIFE_S;
use crate::hops::{HopAsked, HopCounted, HopIssued, Hops};
use crate::names::parse_counter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemark_proto::ids::CounterName;

/// `POST /v1/hops`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssueHopBody {
    /// Name of the data centre that shall count the query.
    pub home: String,
    /// `NAMESPACE/KEY`, 1 to 8 of them; each gets 1.
    #[schemars(schema_with = "crate::schemas::hop_counters")]
    pub counters: Vec<String>,
    /// Token of the session that asks; only its digest is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schemas::session_or_null")]
    pub session: Option<String>,
    /// The query's own id, 1 to 128 visible ASCII characters: asked again, it is the same hop.
    #[schemars(schema_with = "crate::schemas::id")]
    pub id: String,
    /// How long the token may be used, in seconds, up to a day; a quarter of an hour when left out.
    #[serde(default = "life_s")]
    #[schemars(range(min = 1, max = 86_400))]
    pub expires_s: u64,
}

fn life_s() -> u64 {
    HOP_LIFE_S
}

/// Answer to [`IssueHopBody`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HopIssuedBody {
    pub hop: String,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
    /// Whether this data centre reaches the home at present; if not, have the hop counted here.
    pub reachable: bool,
}

/// `POST /v1/hops/count`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountHopBody {
    pub hop: String,
}

/// Answer to [`CountHopBody`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HopCountedBody {
    /// The data centre that has counted it.
    pub dc: String,
    /// A place for each counter, in the hop's order; `null` if the other data centre has counted it: ask that data centre.
    pub counted: Option<Vec<HopPlaceBody>>,
}

/// A hop's place in one counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HopPlaceBody {
    pub counter: CounterBody,
    #[serde(flatten)]
    pub place: AddedBody,
}

pub(super) async fn issue<B: AggregatorProcess>(
    ask: Ask<B>,
    asked: IssueHopBody,
) -> Result<Json<HopIssuedBody>, Failure> {
    let shared = &ask.shared;
    let counter = |text: &String| {
        let counter = parse_counter(text).map_err(|error| Failure::invalid("counters", error))?;
        check_namespace(shared, counter.namespace()).map(|()| counter)
    };
    let counters = asked.counters.iter().map(counter).collect::<Result<Vec<CounterName>, _>>()?;
    let session_for = |token: &str| -> Result<_, Failure> {
        let ids = counters.iter().map(|counter| session_of(shared, token, counter));
        Ok(ids.collect::<Result<Vec<_>, _>>()?.first().copied())
    };
    let session = asked.session.as_deref().map(session_for).transpose()?.flatten();
    let asked = HopAsked { home: asked.home, counters, session, id: asked.id, life_s: asked.expires_s };
    let HopIssued { token, expires, reachable } = hops(&*shared.backend)?.issue(asked)?;
    Ok(Json(HopIssuedBody { hop: token, expires, reachable }))
}

/// The token is the permission: it was issued for exactly this.
pub(super) async fn count<B: AggregatorProcess>(
    ask: Ask<B>,
    said: CountHopBody,
) -> Result<InTime<HopCountedBody>, Failure> {
    ask.shared.access.check_origin(ask.headers())?;
    let counted = hops(&*ask.shared.backend)?.count(&said.hop).await?;
    let is_pending = counted.places.iter().flatten().any(|place| *place == Added::Pending);
    Ok(InTime::new(HopCountedBody::from(counted), is_pending))
}

fn hops<B: AggregatorProcess>(backend: &B) -> Result<&Hops, Failure> {
    backend.hops().ok_or_else(|| Failure::NotFound("hops are counted by aggregators only".to_owned()))
}

impl From<HopCounted> for HopCountedBody {
    fn from(counted: HopCounted) -> HopCountedBody {
        let HopCounted { hop, dc, places } = counted;
        let place = |(counter, added): (&CounterName, _)| HopPlaceBody {
            counter: counter.into(),
            place: AddedBody::from(added),
        };
        HopCountedBody { dc, counted: places.map(|places| hop.counters.iter().zip(places).map(place).collect()) }
    }
}
