//! Deliberate bugs, for the simulator's tests that its checkers bite. Without the `teeth` feature, as in every shipped build,
//! [`bites`] is `false` at compile time; with it, unless a thread has left a rule out.

/// One rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A batch that is sent again is counted again.
    DedupeSkipped,
    /// An id is counted and not remembered.
    CountedIdForgotten,
    /// Ids are no part of checkpoints.
    IdsNotSaved,
    /// An id that comes again with other content is answered as if it were the same.
    OtherContentTaken,
    /// A batch whose ids may be forgotten already is taken.
    LateIdsTaken,
    /// A group's answer to an audit is taken though the view does not stand where it does.
    OlderViewShown,
    /// A queued increment is certified when rights arrive.
    CertifiedFromQueue,
    /// The ledger grants what a stale proposer asked for.
    GrantUnclamped,
    /// A milestone is armed before every group has reported its base.
    ArmingSkipsBases,
    /// An offer that is said again is taken again.
    OfferTakenTwice,
    /// The head of the window gets exact ordinals, and awards, while rights are out.
    PlacedWhileRightsOut,
    /// A place is decided as if nothing were out.
    DecidedTooEarly,
    /// Reports are believed in the order of their arrival.
    ReportGoesBack,
    /// A definition or removal is carried out although another came between.
    StaleDefinition,
    /// An answer about a shard that another aggregator holds is shown though it lacks what was shown before.
    StandForgotten,
    /// An aggregator keeps what it is told of counters that it does not hold.
    NotHeldKept,
    /// Ranges of counters that are laid by a piece of their keys are asked for as if they lay in the order of their names.
    OrderUnsaid,
    /// A reading of a guarded counter that is not held here is shown whatever was shown before.
    ToldGoesBack,
    /// A range is shown by who joins its holders before that one has it.
    ServesUnfilled,
    /// What a range showed here is forgotten when it leaves.
    LeftForgotten,
    /// What is on the shelf of a row is taken for 0 where a part of it comes late.
    ShelvedForgotten,
    /// Memory lets go of what was raised since it was written.
    LetGoRaised,
    /// A group tells of a bucket on the shelf that was counted in late what came since.
    LatePartAlone,
    /// What leaves a group's memory stays there as well.
    LeftTwice,
    /// Old buckets of a total that leave memory stay there as well.
    TotalLeftTwice,
    /// The range of a new ancestor is not noted: its share is asked of nobody.
    SourceUnnoted,
    /// What a range that was split added to totals stays beside what its parts add.
    RangeStays,
    /// What is counted of a counter after it was copied into a part of its range is not copied again.
    RaisedUncopied,
    /// What was shown of a range that is split since is not asked of its parts.
    ShownForgotten,
    /// A view's answer to an earlier arming of a milestone counts for the present one.
    StaleAckTaken,
    /// Whoever names a stream may speak for it.
    OwnerIgnored,
    /// What a deposed leader proposed counts wherever it is committed.
    StaleLeaderTaken,
    /// A group that becomes guarded takes what it has counted until then for nothing.
    BaseForgotten,
    /// A group gives rights back and goes on spending them.
    ReturnedStaysUsable,
    /// An offer is taken although positions before it are missing.
    OfferGapTaken,
    /// A milestone is armed although rights reach it.
    ArmedOverBudget,
    /// Increments are numbered although a group has not said what it counted before.
    NumberedWithoutBases,
    /// Places are forgotten when they are given, and not when their group knows them.
    PlacesForgotten,
    /// A group is let in although the ledger knows more of it than its disk does.
    OldDiskTrusted,
    /// One of a pair of views answers for both.
    PairAnswersAsOne,
    /// A view that was set aside shows what it has as soon as it runs again.
    ReturnUnseen,
    /// A view is set aside although it has started again since.
    SetAsideLate,
    /// A group's rights are revoked, and its generation goes on.
    RevokedInPlace,
    /// A report of a generation that was closed counts.
    ClosedReportTaken,
    /// Rights are revoked although a report came after the leader's decision.
    RenewalIgnored,
    /// A group is granted rights before it knows that a generation was closed.
    GrantUnheard,
    /// A strict milestone is armed although a group has late increments.
    ArmedWhileLate,
    /// A single milestone that a rule covers has a policy of its own.
    PoliciesMixed,
    /// Who begins to lead the ledger takes what it has not heard for old.
    RevokedAtElection,
    /// What a group holds is not revoked although its lease is over.
    NeverRevoked,
    /// What stands behind a block without names is decided as if that kept its turn whatever becomes of its group.
    DecidedBehindBlock,
    /// A block whose group is gone and has not said who stands at the milestone keeps its turn.
    NeverDeferred,
    /// Rights are revoked before the lease is over.
    RevokedEarly,
    /// A certified increment is answered although the lease is over.
    AnsweredWithoutLease,
    /// What was certified beyond the end of a generation counts as it is.
    LateKept,
    /// What is sent to a cell of a generation that is over counts in that.
    ResetIgnored,
    /// A view that starts anew takes what was armed in an earlier state of the ledger for armed.
    NoteForgotten,
    /// What a group has forgotten is new to it.
    ForgottenTaken,
    /// A group forgets streams of which increments are queued.
    ForgottenInUse,
    /// A group forgets no stream.
    NothingForgotten,
    /// A group forgets streams, and refuses their clients, in half the time for which they are to be remembered.
    ForgottenEarly,
    /// A group gives nothing back.
    NothingGivenBack,
    /// A group that gives back what is over forgets what is present.
    PresentForgotten,
    /// A consumer of the feed keeps the slots that it knows when the group has numbered them anew.
    NumbersKept,
    /// A group takes a page of resets for all that it missed, although one before it was lost.
    GapHeard,
    /// A view keeps what is over.
    OverKept,
    /// A view shows all generations of a counter.
    ResetNotShown,
    /// A reset is carried out although another came between.
    StaleReset,
    /// A counter that begins again ends an epoch in groups that have not heard of their winners in it.
    WinnersUntold,
    /// A counter that begins again has milestones at which there are awards.
    AwardedAgain,
    /// A group is declared lost, and its generation goes on: what it holds stays outstanding.
    LostStaysOpen,
    /// A report of a group that was declared lost counts.
    LostReportTaken,
    /// A replica has the valves that its own configuration asks for.
    LanesFromConfig,
    /// Certificates do not say what was written off.
    WrittenOffForgotten,
    /// Certificates do not say what stands behind them though it was answered as counted before.
    HeldUnsaid,
    /// What views show of a lost group is counted although it reaches a milestone.
    RemainsOverBudget,
    /// A new era begins with an older copy of the ledger than the newest there is.
    EraForgetsAwards,
    /// A new era takes what is known of groups of before for nothing.
    EraForgetsCounts,
    /// A milestone waits for the view of a data centre that never returns.
    ForgottenIsAwaited,
    /// In a new era a milestone is armed that may have been awarded.
    WithheldIsArmed,
    /// A group that is founded anew takes the incarnation of the one that was lost.
    IncarnationReused,
    /// An award that is claimed may be claimed again.
    ClaimTakenTwice,
    /// A claim counts also when its time is over.
    ClaimTakenLate,
    /// Whoever claims an award may.
    ClaimOfAnybody,
    /// Who asks is told of any claim of its session that it is its own.
    ClaimNameLoose,
    /// What nobody claims passes to the winner of the newest award and not of the next.
    ClaimPassesTooFar,
    /// The end of an earlier holder's time ends that of the present one.
    ClaimOverOfAnother,
    /// Each leader says anew until when an award may be claimed.
    ClaimTimeMoves,
    /// Who begins to lead ends claims at once.
    ClaimEndsEarly,
    /// A client has one numbered stream per group instead of one per valve.
    DedupePerClient,
    /// The feed tells of entries whose sync is still under way.
    FeedBeforeSync,
    /// A recall that is lost is not sent again.
    RecalledOnce,
    /// A recall that was made before a grant, and comes after it, says what remains.
    StaleRecallHonoured,
    /// What a group says of an earlier epoch counts.
    StaleEpochTaken,
    /// Entries of a leadership count although others before them were lost.
    LeadershipGapTaken,
    /// A decrement gives rights back that were spent.
    DownReplenishes,
    /// A retry of decrements counts again.
    DownTwice,
    /// A counter of a namespace that only grows may go down.
    GrowOnlyGoesDown,
    /// Decrements on their way when their counter begins again count in what is over.
    ResetIgnoredByDown,
    /// A message with a tail, as a later version sends it, is refused.
    TailRefused,
    /// A group that joins gets no account of what is guarded by then.
    JoinedUnguarded,
    /// A group that joins counts before the ledger has told it what is guarded.
    JoinedUnheard,
    /// Nothing expires.
    ExpiredKept,
    /// Of a row that changed twice, only the last change is told.
    LastPartOnly,
    /// A row that changes while a checkpoint is being made is saved as it is after that.
    SavedLate,
    /// What changes again after an aggregator was told of it is not recorded anew.
    ToldForgotten,
    /// What reaches a counter already is added to its total again when another path comes.
    DiamondCountedTwice,
    /// What a removed edge carried is taken off although another path is left.
    RemovedThoughReached,
    /// A change of the graph moves all-time counts, and no buckets.
    BucketsStay,
    /// What is counted while an edge is moved stays out of the totals on its other side.
    CountAmidMoveLost,
    /// What a counter counted before it began again stays in the totals that it flowed to.
    ResetStaysInTotals,
    /// An edge moves counts into the share of the range in which they arrive, and not of that from which they come.
    ShareOfHome,
    /// What was raised is carried into totals after cells that are new were taken in with it.
    RaisedLate,
    /// A late copy of a command changes edges again.
    EdgesTwice,
    /// An edge that closes a cycle is carried out.
    CycleTaken,
}

/// Whether rules can be left out in this build.
pub const COMPILED: bool = cfg!(feature = "teeth");

#[cfg(feature = "teeth")]
thread_local! {
    static BUG: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether the rule is left out in this run.
#[cfg(feature = "teeth")]
pub fn bites(bug: Bug) -> bool {
    BUG.get() == Some(bug)
}

/// Whether the rule is left out: never.
#[cfg(not(feature = "teeth"))]
#[inline(always)]
pub const fn bites(_: Bug) -> bool {
    false
}

/// Leaves a rule out on this thread, or none.
#[cfg(feature = "teeth")]
pub fn leave_out(bug: Option<Bug>) {
    BUG.set(bug);
}

/// Whether a test fails on this thread while the rule is left out. The test must not be one that records its failures.
#[cfg(feature = "teeth")]
pub fn is_shown_by(bug: Bug, test: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    leave_out(Some(bug));
    let shown = std::panic::catch_unwind(test);
    leave_out(None);
    shown.is_err()
}
