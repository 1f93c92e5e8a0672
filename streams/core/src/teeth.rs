//! Deliberate bugs, for the simulator's tests that its checkers bite. Without the `teeth` feature, as in every shipped build,
//! [`bites`] is `false` at compile time. With it, it is `false` unless a thread has left a rule out.

/// One rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The collector deletes a blob that is not live because it is old, whatever its epoch and number.
    OrphansCollectedByAge,
    /// A merge applies although a blob that it removes is not live.
    MergeWithoutLiveCheck,
    /// A commit applies although its number is not above the last one.
    NumbersMayFall,
    /// A claim applies whatever its generation is.
    ClaimWithoutGeneration,
    /// A query adds the owner's rows wherever they begin.
    OwnerRowsWithoutFrom,
    /// A follower adds the owner's rows although another epoch has read them.
    HeldRowsOfOtherEpoch,
    /// A follower adds the owner's rows although it does not know the same erasures and changes of event types.
    HeldRowsOfOtherRevision,
    /// A follower calls an answer whole although rows are missing behind the last ones.
    HeldRowsWithoutEnd,
    /// A chunk of the manifest is not written again when a blob of it was removed.
    RemovalsLeftOutOfSnapshot,
    /// A query looks for a tenant's bucket by today's number of buckets, not by that of each blob.
    BucketsOfToday,
    /// A merge cuts rows by the tenant in front, of which it remembers the bucket.
    BucketOfTenantBefore,
    /// A period that has a blob is not merged again when late rows come.
    LateRowsLeftOut,
    /// Merges are due at the end of the hour or day, not spread behind it.
    MergesAtMidnight,
    /// A replay counts dead letters, and their blob stays live.
    ReplayKeepsLetters,
    /// An owner takes rows although its partition is paused.
    RowsTakenWhilePaused,
    /// A claim does not take the pause over.
    PauseForgottenByClaim,
    /// A blob expires when its first hour is too old, not its last one.
    ExpiryByFirstHour,
    /// Horizons follow the clock, however far it is ahead of all rows.
    ExpiryByClock,
    /// A late copy of an expiry removes the blobs that are too old by now.
    LateExpiries,
    /// A late row is counted although it is older than what is kept.
    ExpiredRowsComeBack,
    /// A query shows what is left of days that are not kept.
    ExpiredRowsShown,
    /// A commit applies although its owner did not know an erasure.
    CommitsBeforeErasure,
    /// A blob is written again with its erased rows.
    ErasedRowsInMerges,
    /// Rows that were read before an erasure are flushed with it.
    ErasedRowsInFlushes,
    /// Dead letters that were read before an erasure are flushed with it.
    ErasedLettersInFlushes,
    /// A commit applies although its owner did not know a change of event types.
    CommitsBeforeTypeChange,
    /// A rename accepts a new name that has rows of its own.
    RenameMergesUnasked,
    /// A merge keeps the earlier names of its rows.
    OldNamesInMerges,
    /// Rows that were read before a change of event types are flushed under their earlier names.
    OldNamesInFlushes,
    /// A query shows rows under the names of their blobs.
    OldNamesShown,
    /// A blob is taken for clean of deleted types without being written again.
    DeletedRowsStay,
    /// A claim ignores the changes of event types.
    TypesForgottenByClaim,
    /// Rows of the intake's log are judged by the present names, not by those at their row.
    LogRowsJudgedAsNow,
    /// A merge puts rows of test tenants into the blobs of others.
    TestRowsShared,
    /// A merge writes rows without the values of their dimensions.
    ValuesLostInMerges,
    /// Events with values beyond the bound of a dimension are left out.
    OtherValuesDropped,
    /// A blob that was rebuilt stays live beside its replacement.
    RebuiltBlobStays,
    /// A merge does not say in its blobs which blobs it replaces.
    InputsNotRecorded,
    /// A lost manifest is built again without comparing which blobs were live.
    RecoveredWithoutDigest,
    /// The log is cut up to counted rows that are not archived.
    LogCutBeforeArchive,
    /// Files of the archive are trusted at a start, although a power cut may take their names back.
    UnsyncedRawFilesTrusted,
    /// A reader of the archive says of missing rows that they were erased.
    RawHolesPassedOver,
    /// Files of the archive stay beyond their days.
    OldRawFilesStay,
    /// Files of the archive count as clean without a look for erased rows.
    ErasedRawRowsStay,
    /// Rows of past days are replaced although other blobs are live than those that were recounted.
    ReplaceWithoutLiveCheck,
    /// A replacement leaves out the rows of other days in the blobs that it removes.
    EdgeRowsDropped,
    /// An owner replaces the blobs that it knows, and not those that were recounted.
    LateRowsReplaced,
}

#[cfg(feature = "teeth")]
mod on {
    use super::Bug;
    use std::cell::Cell;

    thread_local!(static BITTEN: Cell<Option<Bug>> = const { Cell::new(None) });

    /// Leaves a rule out on this thread from now on, or none.
    pub fn bite(bug: Option<Bug>) {
        BITTEN.set(bug);
    }

    pub fn bites(bug: Bug) -> bool {
        BITTEN.get() == Some(bug)
    }
}

#[cfg(feature = "teeth")]
pub use on::{bite, bites};

/// Whether this rule is left out.
#[cfg(not(feature = "teeth"))]
pub const fn bites(_: Bug) -> bool {
    false
}
