//! A search engine's front end, as a customer would write one: a page with a query box, in each data centre of the demo.
//!
//! It counts each query three times at once, for the session that the page shows. The counters are that of all queries, that of
//! visitors' own queries with a milestone at every tenth, and that of its country. A query has an id of its own, drawn by the
//! page, and counts once however often it is sent. A query from a country with another home data centre is redirected there with
//! a hop token.

mod countries;

pub use countries::{CountriesError, Country, homes};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::Response;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidemark_proto::ids::CounterName;
use tidemark_server::api::body::{AwardBody, CounterBody};
use tidemark_server::backend::LocalBackend;
use tidemark_server::hop::HOP_LIFE_S;
use tidemark_server::hops::{HopAsked, HopCounted, HopIssued, Hops};
use tidemark_server::http::{
    Access, AggregatorProcess, Asset, CountHopBody, Failure, HopCountedBody, answer, no_params, only_post,
};
use tidemark_server::session::{Session, SessionRefusal};

/// Longest query, in bytes. Longer: `400`.
pub const QUERY_BYTES_MAX: usize = 1_024;
/// An id has this number of hexadecimal digits, drawn at random by the page.
const ID_DIGITS: usize = 32;
/// Milestones on the page when it opens.
const AWARDS_SHOWN: usize = 10;
/// A country's counter is named so, with its code behind.
const COUNTRY_KEY: &str = "country-";
/// How long a visitor's session lasts.
const SESSION_LIFE_S: u64 = 24 * 3_600;

const PAGE: &str = include_str!("search.html");
const STYLE: &str = include_str!("search.css");
const SCRIPT: &str = include_str!("search.js");
const OWN_AWARDS: &str = include_str!("own.js");
const LIBRARY: &str = include_str!("../../client/web/tidemark.js");

/// The common state of the front ends of all data centres.
#[derive(Clone, Debug, Serialize)]
pub struct Sites {
    /// In the layout's order.
    pub sites: Vec<SiteOfFront>,
    pub countries: Vec<Country>,
    /// Of all queries, and of visitors' own.
    #[serde(serialize_with = "as_text")]
    pub all: CounterName,
    #[serde(serialize_with = "as_text")]
    pub visitors: CounterName,
}

/// The front end of one data centre.
#[derive(Clone, Debug, Serialize)]
pub struct SiteOfFront {
    pub dc: String,
    /// `http://HOST:PORT`.
    pub url: String,
}

fn as_text<S: serde::Serializer>(counter: &CounterName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&CounterBody::from(counter))
}

struct Front {
    sites: Arc<Sites>,
    /// Index of its own site.
    own: usize,
    backend: Arc<LocalBackend>,
    access: Access,
    /// Whether queries are counted; not when the demo ends.
    taking: Arc<AtomicBool>,
}

/// The answer to the page's first question.
#[derive(Serialize)]
struct Setup<'a> {
    own: usize,
    /// The newest, oldest first, and where a subscription goes on.
    awards: Vec<AwardBody>,
    after: String,
    #[serde(flatten)]
    sites: &'a Sites,
}

/// Nothing is said with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoBody {}

#[derive(Serialize)]
struct NewSession {
    session: String,
    expires: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    /// Its text. It is not kept.
    q: String,
    id: String,
    /// Code of the country that it comes from; left out, it counts here.
    country: Option<String>,
}

/// The result of a query.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Counted(HopCountedBody),
    /// It counts at the home of its country.
    Redirect {
        redirect: Redirect,
    },
}

/// Where a query goes, and what it takes along.
#[derive(Serialize)]
struct Redirect {
    dc: String,
    url: String,
    hop: String,
}

/// The routes of the front end at `sites.sites[own]`.
pub fn router(
    sites: Arc<Sites>,
    own: usize,
    backend: Arc<LocalBackend>,
    access: Access,
    taking: Arc<AtomicBool>,
) -> Router {
    let policy = policy(&sites);
    let front = Arc::new(Front { sites, own, backend, access, taking });
    let asset = |kind: &'static str, text: &'static str| Asset::new(kind, text).route();
    let page = Asset::new("text/html; charset=utf-8", PAGE)
        .with(header::CONTENT_SECURITY_POLICY, policy)
        .with(header::HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"))
        // By its origin a page knows that a visitor comes from another of ours.
        .with(header::REFERRER_POLICY, HeaderValue::from_static("strict-origin"));
    let asked = Router::new()
        .route("/front/session", post(new_session))
        .route("/front/query", post(query))
        .route("/front/hop", post(hop))
        .method_not_allowed_fallback(only_post)
        .route("/front/setup", get(setup))
        .layer(from_fn(no_params))
        .with_state(front);
    asked
        .route("/", page.route())
        .route("/assets/search.css", asset("text/css; charset=utf-8", STYLE))
        .route("/assets/search.js", asset("text/javascript; charset=utf-8", SCRIPT))
        .route("/assets/own.js", asset("text/javascript; charset=utf-8", OWN_AWARDS))
        .route("/assets/tidemark.js", asset("text/javascript; charset=utf-8", LIBRARY))
}

/// The page loads nothing from elsewhere, and talks to the front ends only.
fn policy(sites: &Sites) -> HeaderValue {
    let mut connect = String::from("'self'");
    for site in &sites.sites {
        connect += &format!(" {} {}", site.url, site.url.replacen("http", "ws", 1));
    }
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src {connect}; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).expect("addresses are visible ASCII")
}

type Shared = State<Arc<Front>>;

async fn setup(State(front): Shared) -> Response {
    let (position, _) = front.backend.subscribe();
    let awards = front.backend.newest_awards(&[&front.sites.all, &front.sites.visitors], AWARDS_SHOWN);
    let births = front.backend.history().births;
    let awards = awards.iter().map(|award| AwardBody::new(award, &births)).collect();
    let after = position.marked(&births).to_string();
    let setup = Setup { own: front.own, awards, after, sites: &front.sites };
    answer::json(StatusCode::OK, &setup)
}

/// A real front end would keep some in stock, from `POST /v1/sessions`; this one has the keys.
async fn new_session(State(front): Shared, headers: HeaderMap, bytes: Bytes) -> Result<Response, Failure> {
    let NoBody {} = tidemark_server::api::body::parse(&bytes)?;
    front.access.check_origin(&headers)?;
    let (mut sessions, expires) = front.access.sessions()?.issue(front.sites.all.namespace(), 1, SESSION_LIFE_S)?;
    let session = sessions.pop().ok_or_else(|| Failure::NotServing("no session was issued".to_owned()))?;
    Ok(answer::json(StatusCode::OK, &NewSession { session, expires }))
}

async fn query(State(front): Shared, headers: HeaderMap, bytes: Bytes) -> Result<Response, Failure> {
    let session = front.access.live(&headers)?.ok_or(Failure::Unauthorized("a session is needed"))?;
    let query: Query = tidemark_server::api::body::parse(&bytes)?;
    check(&query)?;
    if session.namespace != front.sites.all.namespace() {
        return Err(SessionRefusal::OtherNamespace { namespace: session.namespace }.into());
    }
    front.check_taking()?;
    let home = front.home_of(query.country.as_deref())?;
    let issued = front.issue(&query, &session, home)?;
    if home != front.own && issued.reachable {
        let SiteOfFront { dc, url } = front.sites.sites[home].clone();
        let redirect = Redirect { dc, url, hop: issued.token };
        return Ok(answer::json(StatusCode::OK, &Answer::Redirect { redirect }));
    }
    // At home, or where it is, as the home cannot be reached.
    front.count(&issued.token).await
}

/// A query that was sent on to us, or that comes back because its home does not answer.
async fn hop(State(front): Shared, headers: HeaderMap, bytes: Bytes) -> Result<Response, Failure> {
    front.access.check_origin(&headers)?;
    let CountHopBody { hop } = tidemark_server::api::body::parse(&bytes)?;
    front.check_taking()?;
    front.count(&hop).await
}

fn check(query: &Query) -> Result<(), Failure> {
    let bytes = query.q.trim().len();
    if bytes == 0 || bytes > QUERY_BYTES_MAX {
        return Err(Failure::invalid("query", format!("query of {bytes} bytes: 1 to {QUERY_BYTES_MAX} allowed")));
    }
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if query.id.len() != ID_DIGITS || !query.id.bytes().all(is_digit) {
        let reason = format!("id is {:?}: {ID_DIGITS} digits 0-9 and a-f expected", query.id);
        return Err(Failure::invalid("id", reason));
    }
    Ok(())
}

impl Front {
    fn check_taking(&self) -> Result<(), Failure> {
        match self.taking.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(Failure::NotServing("the front end is stopping".to_owned())),
        }
    }

    /// The site at which a country's queries count.
    fn home_of(&self, country: Option<&str>) -> Result<usize, Failure> {
        let Some(code) = country else { return Ok(self.own) };
        let known = self.sites.countries.iter().find(|country| country.code == code);
        let unknown = || Failure::invalid("country", format!("there is no country {code:?}: ISO 3166-1, two letters"));
        known.map(|country| country.home).ok_or_else(unknown)
    }

    fn issue(&self, query: &Query, session: &Session, home: usize) -> Result<HopIssued, Failure> {
        let Sites { all, visitors, sites, .. } = &*self.sites;
        let mut counters = vec![all.clone(), visitors.clone()];
        if let Some(code) = &query.country {
            let name = CounterName::new(all.namespace(), format!("{COUNTRY_KEY}{code}").as_bytes());
            counters.push(name.map_err(|error| Failure::invalid("country", error))?);
        }
        let asked = HopAsked {
            home: sites[home].dc.clone(),
            counters,
            session: Some(session.id),
            id: query.id.clone(),
            life_s: HOP_LIFE_S,
        };
        self.hops()?.issue(asked)
    }

    async fn count(&self, token: &str) -> Result<Response, Failure> {
        let counted: HopCounted = self.hops()?.count(token).await?;
        Ok(answer::json(StatusCode::OK, &Answer::Counted(counted.into())))
    }

    fn hops(&self) -> Result<&Hops, Failure> {
        self.backend.hops().ok_or_else(|| Failure::NotServing("there are no keys for hops".to_owned()))
    }
}
