//! `tidemark namespaces`: how a namespace keeps series.

use super::{Outcome, block_on, show};
use crate::remote::Remote;
use clap::{Args, Subcommand};
use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::BTreeMap;
use tidemark_server::series::{OutOfRangeBody, PolicyBody, TermsBody, parse_keep};

/// Arguments of `tidemark namespaces`.
#[derive(Debug, Args)]
pub struct Namespaces {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show how a namespace keeps time series, or change it with --keep
    #[command(
        after_help = "Examples:\n  tidemark namespaces series search\n  tidemark namespaces series search --keep 1m:2d,1h:30d,1d:730d"
    )]
    Series {
        /// Name of the namespace
        namespace: String,
        /// Granularities, and how long their buckets are kept: 1m:2d,1h:30d,1d:730d
        #[arg(long, value_parser = parse_keep)]
        keep: Option<BTreeMap<String, String>>,
        /// How late an event may be [default: 1h]
        #[arg(long, requires = "keep")]
        late: Option<String>,
        /// How far an event may be in the future [default: 5m]
        #[arg(long, requires = "keep")]
        ahead: Option<String>,
        /// Treatment of an event that is later or further in the future
        #[arg(long, value_enum, default_value = "refuse", requires = "keep")]
        out_of_range: OutOfRangeBody,
    },
}

pub fn run(args: Namespaces) -> Outcome {
    block_on(async {
        let Namespaces { action: Action::Series { namespace, keep, late, ahead, out_of_range }, remote } = args;
        let path = format!("/v1/namespaces/{}/series", utf8_percent_encode(&namespace, NON_ALPHANUMERIC));
        let terms: TermsBody = match keep {
            Some(keep) => {
                let wanted = PolicyBody { keep, late, ahead, out_of_range };
                remote.call(Method::PUT, &path, Some(&wanted)).await?
            }
            None => remote.get(&path).await?,
        };
        show(remote.json, &terms, || text(&terms))
    })
}

fn text(terms: &TermsBody) -> String {
    let Some(policy) = &terms.policy else { return format!("{} keeps no series", terms.namespace) };
    let kept = policy.keep.iter().map(|(granularity, kept)| format!("{granularity} for {kept}"));
    let kept = kept.collect::<Vec<_>>().join(", ");
    let bounds = [&policy.late, &policy.ahead].map(|bound| bound.as_deref().unwrap_or("0s"));
    let otherwise = match policy.out_of_range {
        OutOfRangeBody::Refuse => "is refused",
        OutOfRangeBody::Total => "counts in the total only",
    };
    let [late, ahead] = bounds;
    let namespace = &terms.namespace;
    let revision = terms.revision;
    format!(
        "{namespace} keeps {kept}; an event more than {late} late or {ahead} ahead {otherwise} (revision {revision})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_told_in_one_line() {
        let policy = PolicyBody {
            keep: parse_keep("1h:30d,1m:2d").unwrap(),
            late: Some("1h".into()),
            ahead: Some("5m".into()),
            out_of_range: OutOfRangeBody::Total,
        };
        let terms =
            TermsBody { namespace: "qa".into(), revision: 2, since_s: Some(5), policy: Some(policy), updown: None };
        assert_eq!(
            text(&terms),
            "qa keeps 1h for 30d, 1m for 2d; an event more than 1h late or 5m ahead counts in the total only (revision 2)"
        );
        assert_eq!(text(&TermsBody { policy: None, ..terms }), "qa keeps no series");
    }
}
