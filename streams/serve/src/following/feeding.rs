//! The task that follows: a snapshot, and then commands, from one server after the other.

use super::{FeedError, Following, Known, Seen, ok};
use crate::feed_client::Get;
use crate::messages::SUBJECT;
use hyper::StatusCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemark_streams_core::event::EventTypes;
use tidemark_streams_core::feed::{FollowError, Followed, Follower, Page, Served, SessionId, Snapshot};
use tidemark_streams_core::limits::{COMMAND_BYTES_MAX, FEED_PAGE_BYTES_MAX};
use tidemark_streams_core::manifest::{Command, Outcome, SetTypes, TypesSet};
use tidemark_streams_core::schema::TypeChange;

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(200);
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of a snapshot: of some 20 million blobs. A larger one is refused.
pub const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
/// Bytes of a page: of its commands, the last of which may be long, and of what is said beside them.
const PAGE_BYTES_MAX: usize = FEED_PAGE_BYTES_MAX + COMMAND_BYTES_MAX + (1 << 20);

impl Following {
    /// Follows until it is dropped.
    pub async fn run(self: Arc<Self>) {
        loop {
            for address in &self.settings.servers {
                let Err(error) = self.follow(address).await;
                self.state().problem = Some(error.to_string());
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Follows one server until that fails.
    async fn follow(&self, address: &str) -> Result<std::convert::Infallible, FeedError> {
        loop {
            let followed = self.seen.borrow().filter(|_| self.is_followed(address));
            let page = match followed {
                None => None,
                Some(seen) => self.page(address, seen).await?,
            };
            match page {
                Some(page) => self.apply(address, &page)?,
                // The server does not have what comes next.
                None => self.take_snapshot(address).await?,
            }
        }
    }

    fn is_followed(&self, address: &str) -> bool {
        self.state().known.as_ref().is_some_and(|known| known.address == address)
    }

    /// The next commands; `None`: the server wants a snapshot to be taken.
    async fn page(&self, address: &str, seen: Seen) -> Result<Option<Page>, FeedError> {
        let Seen { session: SessionId(session), index } = seen;
        let path = format!("/v1/feed/commands?session={session}&after={index}");
        let get = Get { address, path: &path, bytes_max: PAGE_BYTES_MAX, timeout: PAGE_TIMEOUT };
        let reply = self.client.get(&get).await?;
        if reply.status == StatusCode::CONFLICT {
            return Ok(None);
        }
        let page = Page::decode(&ok(address, reply)?);
        page.map(Some).map_err(|error| FeedError::Decode { address: address.to_owned(), error })
    }

    fn apply(&self, address: &str, page: &Page) -> Result<(), FeedError> {
        let mut state = self.state();
        let Some(known) = &mut state.known else { return Err(FeedError::Silent) };
        let followed = known.follower.follow(page).map_err(|error| {
            // The state may be any now. Nothing is answered from it.
            self.stores.counters.feeds_broken.add(1);
            FeedError::Follow { address: address.to_owned(), error }
        });
        let followed = match followed {
            Ok(followed) => followed,
            Err(error) => {
                state.known = None;
                self.seen.send_replace(None);
                return Err(error);
            }
        };
        known.heard_at = Instant::now();
        known.age_ms = page.told.age_ms;
        let seen = Seen { session: page.session, index: known.follower.index() };
        let schema = Arc::clone(known.follower.manifest().schema());
        let types = configured(known.follower.served());
        state.problem = None;
        drop(state);
        self.names.follow(&schema, &types);
        followed.iter().for_each(|followed| self.note(followed));
        self.publish(seen);
        Ok(())
    }

    async fn take_snapshot(&self, address: &str) -> Result<(), FeedError> {
        let path = "/v1/feed/snapshot";
        let get = Get { address, path, bytes_max: SNAPSHOT_BYTES_MAX, timeout: SNAPSHOT_TIMEOUT };
        let asked_at = Instant::now();
        let body = ok(address, self.client.get(&get).await?)?;
        let decode = |error| FeedError::Decode { address: address.to_owned(), error };
        let refused = |error: FollowError| FeedError::Follow { address: address.to_owned(), error };
        let restored = tokio::task::spawn_blocking(move || {
            let snapshot = Snapshot::decode(&body).map_err(Box::new);
            snapshot.map(|snapshot| (snapshot.told.age_ms, Follower::restore(snapshot, SUBJECT)))
        });
        let (age_ms, follower) = restored.await.map_err(|_| FeedError::Ended)?.map_err(|error| decode(*error))?;
        let follower = follower.map_err(refused)?;
        follower.check_directory(&self.settings.directory).map_err(refused)?;
        let seen = Seen { session: follower.served().session, index: follower.index() };
        let types = configured(follower.served());
        let mut state = self.state();
        // A manifest that is too old to answer from says nothing of its successor.
        if let Ok(before) = self.known(&state) {
            follower.check_successor_of(&before.follower).map_err(refused)?;
        }
        self.names.follow(follower.manifest().schema(), &types);
        let is_other = state.known.as_ref().is_none_or(|known| known.follower.served().session != seen.session);
        state.known = Some(Known { follower, address: address.to_owned(), heard_at: asked_at, age_ms });
        state.problem = None;
        drop(state);
        // Erasures may be among what was missed.
        self.stores.forget_blobs();
        if is_other {
            self.stores.commits.clear();
        }
        self.stores.counters.snapshots.add(1);
        self.publish(seen);
        Ok(())
    }

    fn publish(&self, seen: Seen) {
        self.seen.send_if_modified(|before| before.replace(seen) != Some(seen));
    }

    /// Notes what a command changes beside the manifest.
    fn note(&self, followed: &Followed) {
        let Followed { command, outcome, at_ms } = followed;
        match command {
            Command::Commit(commit) => {
                let is_applied = matches!(outcome, Outcome::Commit { result: Ok(_), .. });
                if is_applied && commit.progress.is_some() {
                    self.stores.commits.record(commit.epoch, commit.seq, *at_ms);
                }
                if commit.erased > 0 {
                    self.stores.forget_blobs();
                }
            }
            // Rows that queries have read go too.
            Command::Erase(_) | Command::Types(SetTypes { set: TypesSet::Change(TypeChange::Delete { .. }), .. }) => {
                self.stores.forget_blobs();
            }
            Command::Types(_)
            | Command::Replace(_)
            | Command::Claim(_)
            | Command::Fence(_)
            | Command::Layout(_)
            | Command::Pause(_)
            | Command::Retention(_)
            | Command::Expire(_)
            | Command::ExpireUnnumbered(_)
            | Command::TestTenant(_) => {}
        }
    }
}

/// The event types that a server was configured with.
fn configured(served: &Served) -> EventTypes {
    EventTypes::new(&served.types).unwrap_or_else(|_| EventTypes::none())
}
