//! What a receiver is told: the award as HTTP shows it, and what it needs to be idempotent and to check it.

use crate::http::AwardPosition;
use crate::http::body::AwardBody;
use crate::names::hex;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use ring::digest;
use serde::Serialize;
use tidemark_proto::msg::Award;

/// Bytes of an id's digest.
const ID_BYTES: usize = 16;

/// The body of a delivery.
#[derive(Serialize)]
struct EventBody<'a> {
    r#type: &'static str,
    /// The same for every retry, every data centre and every receiver: who has seen it has seen this award.
    id: &'a str,
    cluster: &'a str,
    #[serde(flatten)]
    award: AwardBody,
    /// Where any aggregator shows the certificate.
    certificate: String,
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

/// The id of an award's delivery: a digest of what no two awards share.
pub fn id_of(cluster: &str, award: &Award) -> String {
    let AwardPosition { index, at, .. } = AwardPosition::of(award);
    let (namespace, key, epoch) = (award.counter.namespace(), award.counter.key(), award.epoch);
    // Neither names of clusters nor namespaces hold blanks, and the key, which may hold anything, stands last.
    let text = format!("tidemark award {cluster} {index} {at} {epoch} {namespace} ");
    let digest = digest::digest(&digest::SHA256, &[text.as_bytes(), key].concat());
    format!("award_{}", hex(&digest.as_ref()[..ID_BYTES]))
}

/// What is sent of an award: the same bytes whenever it is sent.
pub fn body_of(cluster: &str, id: &str, award: &Award) -> String {
    let key = percent_encode(award.counter.key(), NON_ALPHANUMERIC);
    let certificate = format!("/v1/awards/{}/{key}/{}/certificate", award.counter.namespace(), award.at);
    text(&EventBody { r#type: "award", id, cluster, award: award.into(), certificate })
}

/// What is sent when somebody tries a receiver out.
pub fn test_body(cluster: &str, id: &str, webhook: &str) -> String {
    text(&TestBody { r#type: "test", id, test: true, cluster, webhook })
}

fn text(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("our bodies are JSON")
}
