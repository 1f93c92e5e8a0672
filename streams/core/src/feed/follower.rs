//! A manifest that is followed in another process.

use super::{Mark, Page, Reach, Served, SessionId, Snapshot, Subject};
use crate::codec::DecodeError;
use crate::manifest::{Command, Manifest, Outcome, Restore, SnapshotError};
use crate::query::{Plan, plan_of_tenant};
use crate::time::HourRange;

/// The manifest as a follower knows it.
#[derive(Clone, Debug)]
pub struct Follower {
    subject: Subject,
    served: Served,
    manifest: Manifest,
    reach: Reach,
}

/// A command that a follower has applied.
#[derive(Clone, Debug)]
pub struct Followed {
    pub command: Command,
    pub outcome: Outcome,
    /// When the server applied it, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Why a snapshot or a page is not taken. The follower takes a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error("a snapshot: {0}")]
    Snapshot(#[from] SnapshotError),
    #[error("command {index}: {error}")]
    Command { index: u64, error: DecodeError },
    #[error("a page is of session {:016x}, and {:016x} is followed", named.0, known.0)]
    OtherSession { named: SessionId, known: SessionId },
    #[error("a page begins after {after}, and {index} commands are applied")]
    OtherIndex { after: u64, index: u64 },
    #[error("the state at index {} is not that of the server: {found:?}, and {expected:?} is expected", expected.index)]
    OtherState { found: Box<Mark>, expected: Box<Mark> },
    #[error("a snapshot is of directory {named}, and the blobs are of {known}")]
    OtherDirectory { named: String, known: String },
    #[error("a snapshot is of epoch {named}, and {known} is followed: its server was replaced")]
    OldEpoch { named: u64, known: u64 },
}

impl Follower {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// [`FollowError`].
    pub fn restore(snapshot: Snapshot, subject: Subject) -> Result<Follower, FollowError> {
        let Snapshot { served, mark, told, rows } = snapshot;
        let mut restore = Restore::new();
        rows.iter().try_for_each(|row| restore.add(&row.key, &row.value))?;
        let follower = Follower { subject, served, manifest: restore.finish()?, reach: told.reach };
        follower.check(mark)?;
        Ok(follower)
    }

    /// Whether this may replace what was followed before. Another server of the same directory may be one that was fenced.
    ///
    /// # Errors
    /// [`FollowError`].
    pub fn check_successor_of(&self, before: &Follower) -> Result<(), FollowError> {
        let named = self.mark().epoch.0;
        let known = before.mark().epoch.0;
        if named < known { Err(FollowError::OldEpoch { named, known }) } else { Ok(()) }
    }

    /// Refuses blobs of another directory.
    ///
    /// # Errors
    /// [`FollowError`].
    pub fn check_directory(&self, known: &str) -> Result<(), FollowError> {
        let named = &self.served.directory;
        match named == known {
            true => Ok(()),
            false => Err(FollowError::OtherDirectory { named: named.clone(), known: known.to_owned() }),
        }
    }

    /// Applies a page of commands. After an error the state may be any: it is dropped.
    ///
    /// # Errors
    /// [`FollowError`].
    pub fn follow(&mut self, page: &Page) -> Result<Vec<Followed>, FollowError> {
        let named = page.session;
        let known = self.served.session;
        if named != known {
            return Err(FollowError::OtherSession { named, known });
        }
        if page.after != self.index() {
            return Err(FollowError::OtherIndex { after: page.after, index: self.index() });
        }
        let mut followed = Vec::with_capacity(page.commands.len());
        for logged in &page.commands {
            let index = self.index() + 1;
            let decoded = Command::decode(&logged.command);
            let command = decoded.map_err(|error| FollowError::Command { index, error })?;
            let outcome = self.manifest.apply(&command);
            followed.push(Followed { command, outcome, at_ms: logged.at_ms });
        }
        self.check(page.mark)?;
        self.reach = page.told.reach;
        Ok(followed)
    }

    fn check(&self, expected: Mark) -> Result<(), FollowError> {
        let found = self.mark();
        match found == expected {
            true => Ok(()),
            false => Err(FollowError::OtherState { found: found.into(), expected: expected.into() }),
        }
    }

    /// Plans a query of one tenant at the present index.
    pub fn plan(&self, tenant: &str, hours: HourRange) -> Plan {
        plan_of_tenant(&self.manifest, self.subject.partition, tenant, hours)
    }

    pub fn mark(&self) -> Mark {
        Mark::of(&self.manifest, self.subject)
    }

    pub fn index(&self) -> u64 {
        self.manifest.index()
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn served(&self) -> &Served {
        &self.served
    }

    /// How far the blobs of the present index are.
    pub fn reach(&self) -> Reach {
        self.reach
    }
}
