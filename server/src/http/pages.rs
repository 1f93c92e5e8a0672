//! The pages of every server: all counters with awards and health, the cluster on a map, one counter over time, one award with its proof,
//! and the API. They load nothing from elsewhere and talk only to this server.

use super::asset::Asset;
use axum::Router;
use axum::http::{HeaderValue, header};

/// Styles and scripts are files of ours.
const FILES_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                            base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The pages and what they load.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let asset = |kind: &'static str, text: &'static str| Asset::new(kind, text).route();
    let files_page = |text: &'static str| page(FILES_POLICY, text).route();
    Router::new()
        .route("/console", console().route())
        .route("/assets/console/console.css", asset(CSS, include_str!("console/console.css")))
        .route("/assets/console/console.js", asset(JAVASCRIPT, include_str!("console/console.js")))
        .route("/assets/site/site.js", asset(JAVASCRIPT, include_str!("site/site.js")))
        .route("/assets/site/favicon.svg", asset(SVG, include_str!("site/favicon.svg")))
        .route("/cluster", files_page(include_str!("cluster/cluster.html")))
        .route("/counter", files_page(include_str!("counter/counter.html")))
        .route("/assets/counter/counter.css", asset(CSS, include_str!("counter/counter.css")))
        .route("/assets/counter/counter.js", asset(JAVASCRIPT, include_str!("counter/counter.js")))
        .route("/assets/counter/series-chart.js", asset(JAVASCRIPT, include_str!("counter/series-chart.js")))
        .route("/assets/counter/edge-graph.js", asset(JAVASCRIPT, include_str!("counter/edge-graph.js")))
        .route("/api", files_page(include_str!("api/api.html")))
        .route("/assets/api/api.css", asset(CSS, include_str!("api/api.css")))
        .route("/assets/api/api.js", asset(JAVASCRIPT, include_str!("api/api.js")))
        .route("/award", files_page(include_str!("award/award.html")))
        .route("/assets/award/award.css", asset(CSS, include_str!("award/award.css")))
        .route("/assets/award/award.js", asset(JAVASCRIPT, include_str!("award/award.js")))
        .route("/assets/cluster/award-links.js", asset(JAVASCRIPT, include_str!("cluster/award-links.js")))
        .route("/assets/cluster/cluster.css", asset(CSS, include_str!("cluster/cluster.css")))
        .route("/assets/cluster/cluster.js", asset(JAVASCRIPT, include_str!("cluster/cluster.js")))
        .route("/assets/cluster/map.js", asset(JAVASCRIPT, include_str!("cluster/map.js")))
        .route("/assets/cluster/chart.js", asset(JAVASCRIPT, include_str!("cluster/chart.js")))
        .route("/assets/cluster/land.js", asset(JAVASCRIPT, include_str!("cluster/land.js")))
        .route("/assets/cluster/tidemark.js", asset(JAVASCRIPT, include_str!("../../../client/web/tidemark.js")))
}

/// The console, which is also the first page where no front end has one.
pub(super) fn console() -> Asset {
    page(FILES_POLICY, include_str!("console/console.html"))
}

fn page(policy: &'static str, text: &'static str) -> Asset {
    Asset::new("text/html; charset=utf-8", text)
        .with(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy))
        .with(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"))
}
