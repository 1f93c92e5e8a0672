//! Deliberate bugs, for the simulator's tests that its checkers bite. Without the `teeth` feature, as in every shipped build,
//! [`bites`] is `false` at compile time; with it, unless a thread has left a rule out.

/// A rule that is left out.
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
    /// A batch with ids that may be forgotten already is taken.
    LateIdsTaken,
    /// A group's answer to an audit is taken though the view does not stand where it does.
    OlderViewShown,
    /// A group answers an audit of a generation that it has ended, though it may have dropped its cells.
    EndedLifeAudited,
    /// A queued increment is certified when rights arrive.
    CertifiedFromQueue,
    /// The ledger grants the full request of a stale proposer.
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
    /// An answer about a shard that another aggregator holds is shown though it lacks counts that were shown before.
    StandForgotten,
    /// An aggregator keeps messages about counters that it does not hold.
    NotHeldKept,
    /// Ranges of counters that are laid by a piece of their keys are asked for as if they lay in the order of their names.
    OrderUnsaid,
    /// A reading of a guarded counter that is not held here is shown, even if it is lower than an earlier one.
    ToldGoesBack,
    /// An aggregator that joins a range's holders shows the range before it has all of it.
    ServesUnfilled,
    /// The values that a range showed here are forgotten when it leaves.
    LeftForgotten,
    /// The evicted buckets of a row are taken for 0 if a part of the row comes late.
    ShelvedForgotten,
    /// Memory evicts buckets that were raised since they were written.
    LetGoRaised,
    /// A group's late increment of an evicted bucket is reported without the earlier count of the bucket.
    LatePartAlone,
    /// Buckets that leave a group's memory stay there as well.
    LeftTwice,
    /// Old buckets of a total that leave memory stay there as well.
    TotalLeftTwice,
    /// The range of a new ancestor is not noted: its share is requested from no aggregator.
    SourceUnnoted,
    /// The amount that a split range added to totals stays beside the amounts of its parts.
    RangeStays,
    /// Increments of a counter after it was copied into a part of its range are not copied again.
    RaisedUncopied,
    /// The values shown of a range before its split are not required of its parts.
    ShownForgotten,
    /// A view's answer to an earlier arming of a milestone counts for the present one.
    StaleAckTaken,
    /// Any client that names a stream may use it.
    OwnerIgnored,
    /// Commands of a deposed leader count wherever they are committed.
    StaleLeaderTaken,
    /// A group that becomes guarded ignores its increments until then.
    BaseForgotten,
    /// A group gives rights back and goes on spending them.
    ReturnedStaysUsable,
    /// An offer is taken although positions before it are missing.
    OfferGapTaken,
    /// A milestone is armed although rights reach it.
    ArmedOverBudget,
    /// Increments are numbered although a group has not reported its earlier count.
    NumberedWithoutBases,
    /// Places are forgotten when they are given, and not when their group knows them.
    PlacesForgotten,
    /// A group is let in although the ledger knows more of it than its disk does.
    OldDiskTrusted,
    /// One of a pair of views answers for both.
    PairAnswersAsOne,
    /// A view that was set aside shows its data as soon as it runs again.
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
    /// A new leader of the ledger takes groups that it has not heard of yet for long silent.
    RevokedAtElection,
    /// A group's rights are not revoked although its lease is over.
    NeverRevoked,
    /// Items behind a block without names are decided as if the block kept its turn whatever becomes of its group.
    DecidedBehindBlock,
    /// A block without names keeps its turn at the milestone, though its group is gone and has not named the increment there.
    NeverDeferred,
    /// Rights are revoked before the lease is over.
    RevokedEarly,
    /// A certified increment is answered although the lease is over.
    AnsweredWithoutLease,
    /// Increments certified beyond the end of a generation count as they are.
    LateKept,
    /// Increments to a cell of an ended generation count in that generation.
    ResetIgnored,
    /// A view that starts anew takes a milestone that was armed in an earlier state of the ledger for armed.
    NoteForgotten,
    /// Streams that a group has forgotten are new to it.
    ForgottenTaken,
    /// A group forgets streams with queued increments.
    ForgottenInUse,
    /// A group forgets no stream.
    NothingForgotten,
    /// A group forgets streams, and refuses their clients, in half the time for which they are to be remembered.
    ForgottenEarly,
    /// A group gives nothing back.
    NothingGivenBack,
    /// A group that frees ended cells forgets present ones.
    PresentForgotten,
    /// A consumer of the feed keeps the slots that it knows when the group has numbered them anew.
    NumbersKept,
    /// A group takes a page of resets for all that it missed, although one before it was lost.
    GapHeard,
    /// A view keeps ended generations.
    OverKept,
    /// No slot of an ended cell of a view goes to a new cell.
    SlotsKept,
    /// The slot of an ended cell goes to a new cell before the ended cell is empty on disk.
    FreedUnsaved,
    /// New cells get slots although feeds and peers' numbers still refer to the ended cells in them.
    ReferencesKept,
    /// A reused slot keeps its number for peers.
    TagKept,
    /// A late definition of a slot's earlier number replaces the newer definition.
    LateTagTaken,
    /// Counts are written to disk under the name of the ended cell that had the slot before.
    CountsUnnamed,
    /// The rows of ended cells go to no new cell.
    RowsKept,
    /// A new cell's namespace is not written before its name.
    NamespaceUnsaved,
    /// A group has heard of a guarded counter's reset before it begins the new account.
    BegunUnseen,
    /// A view shows all generations of a counter.
    ResetNotShown,
    /// A reset is carried out although another came between.
    StaleReset,
    /// A counter that begins again ends an epoch in groups that have not heard of their winners in it.
    WinnersUntold,
    /// A counter that begins again has milestones at which there are awards.
    AwardedAgain,
    /// A group is declared lost, and its generation continues: its rights stay outstanding.
    LostStaysOpen,
    /// A report of a group that was declared lost counts.
    LostReportTaken,
    /// A replica has the valves that its own configuration asks for.
    LanesFromConfig,
    /// Certificates leave out the written-off weight.
    WrittenOffForgotten,
    /// Certificates leave out the weight that stands behind the award though it was answered as counted before.
    HeldUnsaid,
    /// Counts of a lost group that views show are counted although they reach a milestone.
    RemainsOverBudget,
    /// A new era begins with an older copy of the ledger than the newest there is.
    EraForgetsAwards,
    /// A new era ignores the known counts of earlier groups.
    EraForgetsCounts,
    /// A milestone waits for the view of a data centre that never returns.
    ForgottenIsAwaited,
    /// In a new era a milestone is armed that may have been awarded.
    WithheldIsArmed,
    /// A group that is founded anew reuses the incarnation of the lost one.
    IncarnationReused,
    /// An award that is claimed may be claimed again.
    ClaimTakenTwice,
    /// A claim counts also when its time is over.
    ClaimTakenLate,
    /// Any session may claim an award.
    ClaimOfAnybody,
    /// Every claim of a session is reported as the requester's own.
    ClaimNameLoose,
    /// An unclaimed award passes to the winner of the newest award and not of the next.
    ClaimPassesTooFar,
    /// The end of an earlier holder's time ends that of the present one.
    ClaimOverOfAnother,
    /// Each leader says anew until when an award may be claimed.
    ClaimTimeMoves,
    /// A new leader ends claims at once.
    ClaimEndsEarly,
    /// A client has one numbered stream per group instead of one per valve.
    DedupePerClient,
    /// The feed contains entries that are not yet synced.
    FeedBeforeSync,
    /// A recall that is lost is not sent again.
    RecalledOnce,
    /// A recall that was made before a grant, and comes after it, decides the remaining rights.
    StaleRecallHonoured,
    /// Reports of a group about an earlier epoch count.
    StaleEpochTaken,
    /// Entries of a leadership count although others before them were lost.
    LeadershipGapTaken,
    /// A decrement gives rights back that were spent.
    DownReplenishes,
    /// A retry of decrements counts again.
    DownTwice,
    /// A counter of a namespace that only grows may go down.
    GrowOnlyGoesDown,
    /// Decrements on their way when their counter begins again count in the ended generation.
    ResetIgnoredByDown,
    /// A message with a tail, as a later version sends it, is refused.
    TailRefused,
    /// A group that joins gets no account of counters that are guarded by then.
    JoinedUnguarded,
    /// A group that joins counts before the ledger has told it which counters are guarded.
    JoinedUnheard,
    /// Nothing expires.
    ExpiredKept,
    /// Of a row that changed twice, only the last change is sent.
    LastPartOnly,
    /// A row that changes while a checkpoint is being made is saved as it is after that.
    SavedLate,
    /// A component that changes again after an aggregator was told of it is not recorded anew.
    ToldForgotten,
    /// A count that reaches a counter already is added to its total again when another path comes.
    DiamondCountedTwice,
    /// The counts of a removed edge are subtracted although another path is left.
    RemovedThoughReached,
    /// A change of the graph moves all-time counts, and no buckets.
    BucketsStay,
    /// Increments during an edge move stay out of the totals on its other side.
    CountAmidMoveLost,
    /// The counts of a counter from before it began again stay in the totals that it flowed to.
    ResetStaysInTotals,
    /// An edge moves counts into the share of the range in which they arrive, and not of that from which they come.
    ShareOfHome,
    /// Raised counts are carried into totals after cells that are new were taken in with them.
    RaisedLate,
    /// A late copy of a command changes edges again.
    EdgesTwice,
    /// An edge that closes a cycle is carried out.
    CycleTaken,
}

/// Whether this build can leave out rules.
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

/// Whether a test fails on this thread while the rule is left out. The test must not record its failures.
#[cfg(feature = "teeth")]
pub fn is_shown_by(bug: Bug, test: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    leave_out(Some(bug));
    let shown = std::panic::catch_unwind(test);
    leave_out(None);
    shown.is_err()
}
