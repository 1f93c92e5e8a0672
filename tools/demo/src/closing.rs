//! The findings of a run: collected while it goes on, and printed as one line of JSON or as a few for people.

use serde::Serialize;

use super::messages::{Latency, LoadReport, MilestoneHit};
use crate::cost::Cost;
use crate::figures::{Figure, rounded};
use tidemark::layout::Layout;

/// The allowance over `RTT_i + 2q` that an award's median has.
const AWARD_ALLOWANCE_MS: f64 = 60.0;

/// An award as this run saw it. Moments are microseconds since 1970 by this machine's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AwardSeen {
    /// The milestone.
    pub at: u64,
    /// The exact number of the increment (of the first of its weight).
    pub ordinal: u64,
    /// Index of the winner's data centre.
    pub dc: usize,
    /// Increments that the ledger had placed one by one, since the last award.
    pub sequenced: u64,
    /// When a frame about it reached a subscribed WebSocket at the winner's data centre.
    pub frame_unix_us: Option<u64>,
    /// When this run heard of it.
    pub seen_unix_us: u64,
}

/// A data centre that was cut off from all others, and what waited for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CutSeen {
    pub dc: String,
    pub from_s: f64,
    pub to_s: f64,
    /// Rights that it held, as the ledger knew, when it was cut off.
    pub outstanding: u64,
    /// The most increments that the ledger held and could not decide at one moment.
    pub pending_max: u64,
    /// The most answers that waited for a place at one moment (of one a second) in the other data centres, those on their way to
    /// the ledger and back included.
    pub pending_elsewhere_max: u64,
    /// Moments (one every 10 ms while it was cut off) at which more were undecided than rights outstanding anywhere, plus one.
    pub pending_over: u64,
    /// From its return to the next award.
    pub award_after_ms: Option<f64>,
    #[serde(skip)]
    pub healed_unix_us: Option<u64>,
}

/// Everything that the closing line is made of.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub awards: Vec<AwardSeen>,
    /// The reports of the winners' front ends.
    pub winners: Vec<MilestoneHit>,
    pub load: LoadReport,
    /// Weight counted in the views, without what was there before.
    pub counted: u64,
    /// Whether all views were equal in the end.
    pub views_equal: bool,
    /// From the last durable answer until all views were equal.
    pub converged_ms: Option<f64>,
    pub cost: Cost,
    pub peak_rss_mib: f64,
    pub wall_s: f64,
    /// Durable commits per second of each node while the load ran.
    pub commits_per_s: Vec<f64>,
    pub rate_per_s: f64,
    pub cuts: Vec<CutSeen>,
}

/// The closing line. Latencies in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Closing {
    /// The first milestone awarded, and the exact number of the increment that reached it.
    pub milestone: Option<u64>,
    pub ordinal: Option<u64>,
    pub awards: usize,
    pub sent: u64,
    pub acknowledged: u64,
    pub counted: u64,
    pub numbered: u64,
    pub pending: u64,
    pub unanswered: u64,
    pub overloaded: u64,
    pub failed: u64,
    pub unknown: u64,
    /// Increments placed one by one for the first milestone, and L.
    pub sequenced: Option<u64>,
    pub sequenced_limit: f64,
    /// All increments that were durable before they were placed.
    pub sequenced_total: u64,
    /// Winner's durable answer → frame on a WebSocket subscribed at its data centre: the median.
    pub award_ms: Option<f64>,
    pub converged_ms: Option<f64>,
    pub views_equal: bool,
    pub cpu_s: f64,
    pub cores: f64,
    pub rss_mb: f64,
    pub wall_s: f64,
    pub rate_per_s: f64,
    pub ack_ms_p50: f64,
    pub ack_ms_p99: f64,
    pub ack_ms_max: f64,
    pub place_ms_p99: f64,
    /// How late the generator itself was.
    pub late_ms_p99: f64,
    pub commits_per_s: Option<Figure>,
    pub cold_acknowledged: u64,
    pub milestones: Vec<u64>,
    pub ordinals: Vec<u64>,
    /// By milestone, as a multiple of L.
    pub sequenced_ratio: Option<Figure>,
    pub award: Option<Figure>,
    /// From when the winner should have been sent: includes the client's own batching and the commit.
    pub award_from_sending: Option<Figure>,
    /// `award − RTT_i − 2q`: its median may be at most 60.
    pub award_over_round_trips: Option<Figure>,
    pub award_over_round_trips_limit: f64,
    pub cuts: Vec<CutSeen>,
}

impl Record {
    /// The closing line of a run in `layout`.
    pub fn close(&self, layout: &Layout) -> Closing {
        let counts = self.load.tally.total();
        let zone = layout.zone(self.rate_per_s);
        let mut awards = self.awards.clone();
        awards.sort_by_key(|award| award.at);
        let first = awards.first();
        let award = Figure::of_costs(self.award_ms(|winner| winner.durable_unix_us).collect());
        let Latency { p50_ms, p99_ms, max_ms, .. } = self.load.tally.ack;
        Closing {
            milestone: first.map(|award| award.at),
            ordinal: first.map(|award| award.ordinal),
            awards: awards.len(),
            sent: counts.sent,
            acknowledged: counts.acknowledged,
            counted: self.counted,
            numbered: counts.numbered,
            pending: counts.pending(),
            unanswered: self.load.unanswered,
            overloaded: counts.overloaded,
            failed: counts.failed,
            unknown: counts.unknown,
            sequenced: first.map(|award| award.sequenced),
            sequenced_limit: rounded(zone),
            sequenced_total: counts.sequenced,
            award_ms: award.as_ref().map(|award| rounded(award.median)),
            converged_ms: self.converged_ms.map(rounded),
            views_equal: self.views_equal,
            cpu_s: rounded(self.cost.cpu_s),
            cores: rounded(self.cost.cpu_s / self.wall_s.max(f64::MIN_POSITIVE)),
            rss_mb: rounded(self.peak_rss_mib),
            wall_s: rounded(self.wall_s),
            rate_per_s: self.rate_per_s,
            ack_ms_p50: p50_ms,
            ack_ms_p99: p99_ms,
            ack_ms_max: max_ms,
            place_ms_p99: self.load.placement.p99_ms,
            late_ms_p99: self.load.lateness.p99_ms,
            commits_per_s: Figure::of_costs(self.commits_per_s.iter().copied().map(rounded).collect()),
            cold_acknowledged: counts.cold_acknowledged,
            milestones: awards.iter().map(|award| award.at).collect(),
            ordinals: awards.iter().map(|award| award.ordinal).collect(),
            sequenced_ratio: (zone > 0.0).then(|| ratios(&awards, zone)).flatten(),
            award,
            award_from_sending: Figure::of_costs(self.award_ms(|winner| winner.sent_unix_us).collect()),
            award_over_round_trips: self.over_round_trips(layout),
            award_over_round_trips_limit: AWARD_ALLOWANCE_MS,
            cuts: self.cuts.iter().map(|cut| self.close_cut(cut)).collect(),
        }
    }

    /// From a moment of each winner's life to its frame.
    fn award_ms(&self, from: impl Fn(&MilestoneHit) -> u64) -> impl Iterator<Item = f64> {
        self.pairs().map(move |(winner, frame_us)| ms_between(from(winner), frame_us))
    }

    /// Awards with a known winner and a known frame.
    fn pairs(&self) -> impl Iterator<Item = (&MilestoneHit, u64)> {
        self.awards.iter().filter_map(|award| {
            let winner = self.winners.iter().find(|winner| winner.at == award.at)?;
            Some((winner, award.frame_unix_us?))
        })
    }

    fn close_cut(&self, cut: &CutSeen) -> CutSeen {
        let healed = cut.healed_unix_us.unwrap_or(u64::MAX);
        let next = self.awards.iter().map(|award| award.seen_unix_us).filter(|&seen| seen >= healed).min();
        CutSeen { award_after_ms: next.map(|seen| ms_between(healed, seen)), ..cut.clone() }
    }

    fn over_round_trips(&self, layout: &Layout) -> Option<Figure> {
        let over = self.pairs().map(|(winner, frame_us)| {
            let round_trips_ms = layout.rtt_ms[winner.site][layout.leader] + 2.0 * layout.quorum_ms;
            rounded(ms_between(winner.durable_unix_us, frame_us) - round_trips_ms)
        });
        Figure::of_costs(over.collect())
    }
}

fn ms_between(from_us: u64, to_us: u64) -> f64 {
    rounded((to_us as f64 - from_us as f64) / 1_000.0)
}

fn ratios(awards: &[AwardSeen], zone: f64) -> Option<Figure> {
    Figure::of_costs(awards.iter().map(|award| rounded(award.sequenced as f64 / zone)).collect())
}

impl Closing {
    /// One line for programs.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and lists of them are JSON")
    }

    /// A few lines for people.
    pub fn text(&self) -> String {
        let mut lines = vec![format!(
            "{} sent, {} durable, {} counted in all views{}; {} overloaded, {} failed, {} unknown, {} unanswered",
            self.sent,
            self.acknowledged,
            self.counted,
            if self.views_equal { "" } else { " (views not equal)" },
            self.overloaded,
            self.failed,
            self.unknown,
            self.unanswered,
        )];
        if let (Some(milestone), Some(ordinal)) = (self.milestone, self.ordinal) {
            lines.push(format!(
                "milestone {milestone}: awarded to increment number {ordinal}; {} award(s) in all; {} of them sequenced one \
                 by one for the first, L is {:.0}",
                self.awards,
                self.sequenced.unwrap_or(0),
                self.sequenced_limit,
            ));
        }
        if let Some(award) = &self.award {
            lines.push(format!("award on a WebSocket: median {:.0} ms, worst {:.0} ms", award.median, award.worst));
        }
        let converged = self.converged_ms.map_or("never".to_owned(), |ms| format!("{ms:.0} ms after the last answer"));
        for cut in &self.cuts {
            let award = cut.award_after_ms.map_or("none".to_owned(), |ms| format!("{ms:.0} ms after its return"));
            lines.push(format!(
                "{} was cut off holding {} rights: at most {} increments undecided, next award {award}",
                cut.dc, cut.outstanding, cut.pending_max
            ));
        }
        lines.push(format!(
            "durable answer: p50 {:.1} ms, p99 {:.1} ms; views equal {converged}; {:.2} cores, {:.0} MiB",
            self.ack_ms_p50, self.ack_ms_p99, self.cores, self.rss_mb
        ));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{Counts, Tally};
    use super::*;

    fn record() -> Record {
        let winner = |at, site, durable_ms: u64| MilestoneHit {
            at,
            first: at,
            site,
            sent_unix_us: (durable_ms - 20) * 1_000,
            durable_unix_us: durable_ms * 1_000,
            placed_unix_us: 0,
            sequenced: 0,
        };
        let award = |at, dc, sequenced, frame_ms: Option<u64>| AwardSeen {
            at,
            ordinal: at,
            dc,
            sequenced,
            frame_unix_us: frame_ms.map(|ms| ms * 1_000),
            seen_unix_us: at * 1_000,
        };
        let counts = Counts { sent: 100, acknowledged: 100, counted: 97, milestones: 3, ..Counts::default() };
        Record {
            awards: vec![award(200, 1, 30, Some(5_300)), award(100, 0, 10, Some(1_100)), award(300, 0, 20, None)],
            winners: vec![winner(100, 0, 1_000), winner(200, 1, 5_000), winner(300, 0, 9_000)],
            load: LoadReport { tally: Tally { sites: vec![counts], ..Tally::default() }, ..LoadReport::default() },
            counted: 100,
            views_equal: true,
            cost: Cost { cpu_s: 3.0, ..Cost::default() },
            wall_s: 2.0,
            rate_per_s: 1_000.0,
            ..Record::default()
        }
    }

    #[test]
    fn the_line_has_the_names_that_were_agreed() {
        let layout = Layout::part(&["usa-1", "europe-1", "asia-0"]).unwrap();
        let line = record().close(&layout).json();
        assert!(!line.contains('\n'));
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        for name in ["milestone", "ordinal", "awards", "acknowledged", "counted", "sequenced", "sequenced_limit"] {
            assert!(json[name].is_number(), "{name} in {line}");
        }
        for name in ["award_ms", "converged_ms", "cpu_s", "rss_mb", "cores", "ack_ms_p50", "ack_ms_p99", "overloaded"] {
            assert!(json.get(name).is_some(), "{name} in {line}");
        }
        assert_eq!((&json["milestone"], &json["sequenced"], &json["cores"]), (&100.into(), &10.into(), &1.5.into()));
    }

    #[test]
    fn an_award_is_measured_against_its_own_distance() {
        let layout = Layout::part(&["usa-1", "europe-1", "asia-0"]).unwrap();
        let closing = record().close(&layout);
        assert_eq!(closing.award.as_ref().unwrap().values, [300.0, 100.0], "the one without a frame is left out");
        assert_eq!(closing.award_from_sending.unwrap().values, [320.0, 120.0]);
        let round_trips = [layout.rtt_ms[1][layout.leader], layout.rtt_ms[0][layout.leader]];
        let expected =
            [300.0 - round_trips[0] - 2.0 * layout.quorum_ms, 100.0 - round_trips[1] - 2.0 * layout.quorum_ms];
        let over = closing.award_over_round_trips.unwrap().values;
        assert!(
            over.iter().zip(expected).all(|(found, wanted)| (found - wanted).abs() < 0.02),
            "{over:?} {expected:?}"
        );
    }

    #[test]
    fn after_a_cut_the_next_award_counts() {
        let cut = CutSeen { dc: "asia-0".into(), healed_unix_us: Some(150_000), ..CutSeen::default() };
        let record = Record { cuts: vec![cut], ..record() };
        let closing = record.close(&Layout::part(&["usa-1", "europe-1", "asia-0"]).unwrap());
        assert_eq!(closing.cuts[0].award_after_ms, Some(50.0));
        assert!(closing.text().contains("asia-0 was cut off"));
    }

    #[test]
    fn a_run_without_an_award_says_so() {
        let layout = Layout::single();
        let closing = Record::default().close(&layout);
        assert_eq!((closing.milestone, closing.awards, closing.award_ms), (None, 0, None));
        assert!(closing.sequenced_ratio.is_none());
        assert!(closing.text().contains("0 sent"));
    }
}
