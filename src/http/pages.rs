//! The pages of every server: totals and awards as they come, in one file, the cluster on a map, and one award with its proof.
//! They load nothing from elsewhere and talk to nobody but us.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::compression::CompressionLayer;

const TOTALS_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";
/// Of pages whose styles and scripts are files of ours.
const FILES_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                            base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The pages and what they load.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let asset = |kind: &'static str, text: &'static str| get(async move || ([(header::CONTENT_TYPE, kind)], text));
    Router::new()
        .route("/totals", get(totals))
        .route("/cluster", get(async || page(FILES_POLICY, include_str!("cluster/cluster.html"))))
        .route("/award", get(async || page(FILES_POLICY, include_str!("award/award.html"))))
        .route("/assets/award/award.css", asset(CSS, include_str!("award/award.css")))
        .route("/assets/award/award.js", asset(JAVASCRIPT, include_str!("award/award.js")))
        .route("/assets/cluster/award-links.js", asset(JAVASCRIPT, include_str!("cluster/award-links.js")))
        .route("/assets/cluster/cluster.css", asset(CSS, include_str!("cluster/cluster.css")))
        .route("/assets/cluster/cluster.js", asset(JAVASCRIPT, include_str!("cluster/cluster.js")))
        .route("/assets/cluster/map.js", asset(JAVASCRIPT, include_str!("cluster/map.js")))
        .route("/assets/cluster/chart.js", asset(JAVASCRIPT, include_str!("cluster/chart.js")))
        .route("/assets/cluster/land.js", asset(JAVASCRIPT, include_str!("cluster/land.js")))
        .route("/assets/cluster/tidemark.js", asset(JAVASCRIPT, include_str!("../../client/web/tidemark.js")))
        .layer(CompressionLayer::new())
}

/// The page of totals, which is also the first one where no front end has one.
pub(super) async fn totals() -> Response {
    page(TOTALS_POLICY, include_str!("page.html"))
}

fn page(policy: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}
