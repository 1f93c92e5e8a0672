//! The body for a receiver: the award, or the result of its claim, as HTTP shows it, and the fields for idempotency and verification.

use crate::api::body::{AwardBody, ClaimTurnBody};
use crate::api::position::birth_text;
use crate::api::{AwardPosition, News};
use crate::names::{hex, sha256_prefix};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;
use tidemark_proto::ids::LogIndex;
use tidemark_proto::ledger::Births;

/// Bytes of an id's digest.
const ID_BYTES: usize = 16;

/// The body of a delivery.
#[derive(Serialize)]
struct EventBody<'a> {
    r#type: &'static str,
    /// The same for every retry, every data centre and every receiver: a receiver that has seen it has seen this award.
    id: &'a str,
    cluster: &'a str,
    #[serde(flatten)]
    award: AwardBody,
    /// Where any aggregator shows the certificate.
    certificate: String,
}

/// The body of a delivery about a claim.
#[derive(Serialize)]
struct ClaimBody<'a> {
    r#type: &'static str,
    id: &'a str,
    cluster: &'a str,
    #[serde(flatten)]
    turn: ClaimTurnBody,
}

/// The body of a trial: nothing in it looks like an award.
#[derive(Serialize)]
struct TestBody<'a> {
    r#type: &'static str,
    id: &'a str,
    test: bool,
    cluster: &'a str,
    webhook: &'a str,
}

/// The id of a delivery: a digest of what no two awards or turns of claims share.
pub fn id_of(cluster: &str, news: &News, births: &Births) -> String {
    let AwardPosition { index, at, .. } = news.position();
    let namespace = news.counter().namespace();
    let key = news.counter().key();
    let (kind, epoch) = match news {
        News::Award(award) => ("award", format!(" {}", award.epoch)),
        News::Claim(_) => ("claim", String::new()),
    };
    // A cluster that was founded anew decides other awards at the same indices.
    let birth = birth_text(births.of(LogIndex(index)));
    // Neither names of clusters nor namespaces hold blanks. The key may hold any byte, and stands last.
    let text = format!("tidemark {kind} {cluster} {birth} {index} {at}{epoch} {namespace} ");
    format!("{kind}_{}", hex(&sha256_prefix::<ID_BYTES>(&[text.as_bytes(), key])))
}

/// The body for an award or a claim: the same bytes whenever it is sent.
pub fn body_of(cluster: &str, id: &str, news: &News, births: &Births) -> String {
    match news {
        News::Award(award) => {
            let key = percent_encode(award.counter.key(), NON_ALPHANUMERIC);
            let certificate = format!("/v1/awards/{}/{key}/{}/certificate", award.counter.namespace(), award.at);
            text(&EventBody { r#type: "award", id, cluster, award: AwardBody::new(award, births), certificate })
        }
        News::Claim(turn) => text(&ClaimBody { r#type: "claim", id, cluster, turn: ClaimTurnBody::new(turn, births) }),
    }
}

/// The body of a trial delivery.
pub fn test_body(cluster: &str, id: &str, webhook: &str) -> String {
    text(&TestBody { r#type: "test", id, test: true, cluster, webhook })
}

fn text(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("our bodies are JSON")
}
