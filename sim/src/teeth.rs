//! Deliberate bugs: before a checker is trusted, the code is broken on purpose and the checker must fire. These are made here,
//! by changing what passes between machines, disks and the log; bugs inside a machine are hooks of `tidemark_proto::teeth`,
//! which only the `teeth` feature compiles.

use tidemark_proto::ids::GroupId;
use tidemark_proto::ledger::Ledger;
use tidemark_proto::msg::{Account, FromClient, FromGroup, LedgerCmd, Opened, Place, Report, ToGroup};
use tidemark_proto::teeth::Bug;

/// A deliberate bug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutation {
    #[default]
    None,
    /// Nodes hear that an entry is durable before it is: answers, offers and feed come from uncommitted state.
    AnswerBeforeCommit,
    /// A batch that is sent again is taken for a new one.
    DedupeSkipped,
    /// Grants reach groups larger than the ledger made them.
    GrantInflated,
    /// Recalls never reach their group.
    RecallIgnored,
    /// Arming takes a base for granted that the group has not reported.
    ArmingSkipsGroup,
    /// Rights count as returned that are still out, so that awards are made too early.
    AwardWithRightsOut,
    /// The winner is answered "counted".
    CountedForWinner,
    /// A view shows everything it has heard of.
    ViewNotClamped,
    /// A view's promise to stay below a milestone is made up.
    ViewAckForged,
    /// A fence is answered without being logged.
    FenceNotLogged,
    /// Places never reach their group.
    PlacesLost,
    /// Exact numbers are one too high now and then.
    NumberShifted,
    /// A single voter is a majority: two leaders commit different entries.
    NoQuorum,
    /// The feed claims more than was counted.
    FeedInflated,
    /// A checkpoint comes back without one of its rows.
    RowLost,
    /// The ledger's leader speaks of entries that are not committed yet.
    LedgerSpeaksBeforeCommit,
    /// A claim is answered as counted once it is said.
    ClaimAnsweredEarly,
    /// A machine leaves a rule out; needs the `teeth` feature.
    Inside(Bug),
}

/// Every rule that a run shows to be missing when it is switched off.
pub const INSIDE: [Bug; 89] = [
    Bug::StaleEpochTaken,
    Bug::DedupeSkipped,
    Bug::StaleLeaderTaken,
    Bug::CertifiedFromQueue,
    Bug::GrantUnclamped,
    Bug::ArmingSkipsBases,
    Bug::OfferTakenTwice,
    Bug::PlacedWhileRightsOut,
    Bug::DecidedTooEarly,
    Bug::ReportGoesBack,
    Bug::StaleDefinition,
    Bug::StandForgotten,
    Bug::NotHeldKept,
    Bug::OrderUnsaid,
    Bug::ToldGoesBack,
    Bug::ServesUnfilled,
    Bug::LeftForgotten,
    Bug::OwnerIgnored,
    Bug::OldDiskTrusted,
    Bug::ClaimTakenTwice,
    Bug::ClaimTakenLate,
    Bug::ClaimOfAnybody,
    Bug::ClaimNameLoose,
    Bug::ClaimPassesTooFar,
    Bug::ClaimOverOfAnother,
    Bug::ClaimTimeMoves,
    Bug::ClaimEndsEarly,
    Bug::RevokedInPlace,
    Bug::ClosedReportTaken,
    Bug::LateKept,
    Bug::RevokedEarly,
    Bug::RevokedAtElection,
    Bug::AnsweredWithoutLease,
    Bug::DedupePerClient,
    Bug::FeedBeforeSync,
    Bug::RecalledOnce,
    Bug::StaleRecallHonoured,
    Bug::LeadershipGapTaken,
    Bug::ReturnedStaysUsable,
    Bug::ResetIgnored,
    Bug::ResetNotShown,
    Bug::StaleReset,
    Bug::ForgottenTaken,
    Bug::ForgottenInUse,
    Bug::ForgottenEarly,
    Bug::AwardedAgain,
    Bug::LostStaysOpen,
    Bug::LostReportTaken,
    Bug::LanesFromConfig,
    Bug::WrittenOffForgotten,
    Bug::IncarnationReused,
    Bug::EraForgetsAwards,
    Bug::EraForgetsCounts,
    Bug::WithheldIsArmed,
    Bug::PairAnswersAsOne,
    Bug::ReturnUnseen,
    Bug::SetAsideLate,
    Bug::DownReplenishes,
    Bug::DownTwice,
    Bug::GrowOnlyGoesDown,
    Bug::ResetIgnoredByDown,
    Bug::TailRefused,
    Bug::JoinedUnguarded,
    Bug::JoinedUnheard,
    Bug::ExpiredKept,
    Bug::LastPartOnly,
    Bug::ToldForgotten,
    Bug::DiamondCountedTwice,
    Bug::RemovedThoughReached,
    Bug::BucketsStay,
    Bug::CountAmidMoveLost,
    Bug::ResetStaysInTotals,
    Bug::EdgesTwice,
    Bug::CycleTaken,
    Bug::ShareOfHome,
    Bug::ShelvedForgotten,
    Bug::LatePartAlone,
    Bug::LeftTwice,
    Bug::TotalLeftTwice,
    Bug::SourceUnnoted,
    Bug::RangeStays,
    Bug::RaisedUncopied,
    Bug::ShownForgotten,
    Bug::RaisedLate,
    Bug::CountedIdForgotten,
    Bug::IdsNotSaved,
    Bug::OtherContentTaken,
    Bug::LateIdsTaken,
    Bug::OlderViewShown,
];

/// Bugs that the model check is for: rules that random runs seldom depend on.
pub const SMALL: [Mutation; 9] = [
    Mutation::LedgerSpeaksBeforeCommit,
    Mutation::Inside(Bug::BaseForgotten),
    Mutation::Inside(Bug::OfferGapTaken),
    Mutation::Inside(Bug::ArmedOverBudget),
    Mutation::Inside(Bug::NumberedWithoutBases),
    Mutation::Inside(Bug::PlacesForgotten),
    Mutation::Inside(Bug::NeverRevoked),
    Mutation::Inside(Bug::NeverDeferred),
    Mutation::Inside(Bug::DecidedBehindBlock),
];

/// Every bug that needs no hook in a machine, for the tests.
pub const ALL: [Mutation; 16] = [
    Mutation::AnswerBeforeCommit,
    Mutation::DedupeSkipped,
    Mutation::GrantInflated,
    Mutation::RecallIgnored,
    Mutation::ArmingSkipsGroup,
    Mutation::AwardWithRightsOut,
    Mutation::CountedForWinner,
    Mutation::ViewNotClamped,
    Mutation::ViewAckForged,
    Mutation::FenceNotLogged,
    Mutation::PlacesLost,
    Mutation::NumberShifted,
    Mutation::NoQuorum,
    Mutation::FeedInflated,
    Mutation::RowLost,
    Mutation::ClaimAnsweredEarly,
];

impl Mutation {
    /// Tells the machines of this thread which rule to leave out.
    pub fn enter(self) {
        #[cfg(feature = "teeth")]
        tidemark_proto::teeth::leave_out(match self {
            Mutation::Inside(bug) => Some(bug),
            _ => None,
        });
    }

    /// Changes what reaches a group from its aggregator; `None` is lost.
    pub fn to_group(self, message: ToGroup) -> Option<ToGroup> {
        match (self, message) {
            (Mutation::GrantInflated, ToGroup::Account(account)) if account.granted > 0 => {
                Some(ToGroup::Account(Account { granted: account.granted + 50, ..account }))
            }
            (Mutation::RecallIgnored, ToGroup::Account(account)) => {
                Some(ToGroup::Account(Account { recall: false, ..account }))
            }
            (Mutation::GrantInflated, ToGroup::Opened(Opened { mut account, leased, closed_spent })) => {
                account.granted += if account.granted > 0 { 50 } else { 0 };
                Some(ToGroup::Opened(Opened { account, leased, closed_spent }))
            }
            (Mutation::RecallIgnored, ToGroup::Opened(Opened { account, leased, closed_spent })) => {
                let account = Account { recall: false, ..account };
                Some(ToGroup::Opened(Opened { account, leased, closed_spent }))
            }
            (Mutation::PlacesLost, ToGroup::Placed(_)) => None,
            (Mutation::CountedForWinner, ToGroup::Placed(mut placed)) => {
                for run in &mut placed.runs {
                    if matches!(run.place, Place::Milestone { .. }) {
                        run.place = Place::Counted;
                    }
                }
                Some(ToGroup::Placed(placed))
            }
            (Mutation::NumberShifted, ToGroup::Placed(mut placed)) => {
                for run in &mut placed.runs {
                    if let Place::Number(n) = &mut run.place {
                        *n += u64::from(run.first_pos % 7 == 0);
                    }
                }
                Some(ToGroup::Placed(placed))
            }
            (_, message) => Some(message),
        }
    }

    /// Changes what a group says to its aggregator.
    pub fn from_group(self, message: FromGroup) -> FromGroup {
        match (self, message) {
            (Mutation::FeedInflated, FromGroup::Feed(mut chunk)) => {
                chunk.components.iter_mut().for_each(|(slot, _, value)| *value += u64::from(*slot == 0));
                FromGroup::Feed(chunk)
            }
            (_, message) => message,
        }
    }

    /// Changes what reaches a node from a client; `last` is the stream's last batch.
    pub fn to_node(self, message: FromClient, last: u64) -> FromClient {
        match (self, message) {
            (Mutation::DedupeSkipped, FromClient::Batch { lane, seq, defs, items, times }) if seq == last => {
                FromClient::Batch { lane, seq: seq + 1, defs, items, times }
            }
            (_, message) => message,
        }
    }

    /// The commands that slip into the ledger's log behind these commands.
    pub fn forged(self, ledger: &Ledger, cmds: &[LedgerCmd]) -> Vec<LedgerCmd> {
        match self {
            Mutation::ArmingSkipsGroup => cmds.iter().filter_map(|cmd| forged_base(ledger, cmd)).collect(),
            Mutation::AwardWithRightsOut => cmds.iter().filter_map(|cmd| forged_return(ledger, cmd)).collect(),
            Mutation::ViewAckForged => cmds.iter().flat_map(|cmd| forged_acks(ledger, cmd)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Behind one group's first report, one for a group that has not reported.
fn forged_base(ledger: &Ledger, cmd: &LedgerCmd) -> Option<LedgerCmd> {
    let LedgerCmd::Report(report) = cmd else { return None };
    let group = ledger.counter(&report.counter)?.bases_missing().find(|group| *group != report.group)?;
    let start = ledger.confirmed(group)?.nonce;
    Some(LedgerCmd::Report(Report { group, start, base: 0, spent: 0, returned: 0, placed_upto: 0, ..report.clone() }))
}

/// Behind an offer, a return of everything that another group holds.
fn forged_return(ledger: &Ledger, cmd: &LedgerCmd) -> Option<LedgerCmd> {
    let LedgerCmd::Offer(offer) = cmd else { return None };
    let state = ledger.counter(&offer.counter)?;
    let holds = |(group, _): &(&GroupId, _)| **group != offer.group;
    let (&group, account) = state.accounts().iter().filter(holds).find(|(_, account)| account.out() > 0)?;
    Some(LedgerCmd::Report(Report {
        counter: offer.counter.clone(),
        epoch: state.epoch(),
        group,
        start: ledger.confirmed(group)?.nonce,
        generation: account.generation,
        spent: account.spent,
        returned: account.granted - account.spent,
        base: account.base.unwrap_or(0),
        report_no: account.report_no,
        placed_upto: 0,
        rate_per_s: account.rate_per_s,
    }))
}

/// Behind a definition, promises of every view.
fn forged_acks(ledger: &Ledger, cmd: &LedgerCmd) -> Vec<LedgerCmd> {
    let LedgerCmd::Report(_) = cmd else { return Vec::new() };
    let of = |&dc: &_| ledger.awaiting_view(dc).into_iter().map(move |awaiting| awaiting.answer(dc, true));
    ledger.views().iter().flat_map(of).collect()
}
