//! Increments with ids: each counts once in the group that owns its id, through whichever process it comes.
//!
//! The owner of an id is a fixed function of it ([`tidemark_proto::owners`]). This process sends the increment there, through a client that
//! goes to no other group; the group keeps the ids in its log (decision 0060). Nothing is kept here.

use crate::api::{Add, AddId, Added, Failure};
use crate::clock::wall_now;
use crate::names::{counter_text, sha256_prefix};
use crate::patience::{DURABLE_PATIENCE, GONE_AFTER, LEADERLESS_MAX, PLACE_PATIENCE};
use std::time::Duration;
use tidemark_aggregator::Aggregator;
use tidemark_client::{Client, Hit, HitError, HitOutcome, OnceHit, SeenGroup};
use tidemark_proto::client::AddError;
use tidemark_proto::ids::{DcId, Half};
use tidemark_proto::limits::{AGE_UNIT, IDS_KEPT_AGES};
use tidemark_proto::msg::ItemId;
use tidemark_proto::owners::{Owner, owner_of};
use tidemark_proto::series::UnixTime;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// How long the owner of an id in another data centre is waited for; then the increment is in doubt.
const ELSEWHERE_PATIENCE: Duration = Duration::from_secs(8);
/// Pause before the place of an increment that counted before is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The interval of checks whether the ledger knows the owners of ids.
const TELL_INTERVAL: Duration = Duration::from_millis(200);
/// Clocks of callers and of this process differ by less than this.
const SKEW_S: u32 = 60;

/// Counts increments with ids at their owners. Clones count at the same ones.
#[derive(Clone)]
pub struct Idempotency {
    aggregator: Aggregator,
    client: Client,
}

/// The owner of an id, as this process reaches it.
pub(crate) struct Reached {
    pub client: Client,
    /// `DC/GROUP`.
    pub name: String,
    is_own_dc: bool,
    dc: DcId,
}

impl Idempotency {
    pub fn new(aggregator: &Aggregator, client: &Client) -> Idempotency {
        Idempotency { aggregator: aggregator.clone(), client: client.clone() }
    }

    /// Counts one increment, unless its id has counted: then the answer is that of the first time.
    ///
    /// # Errors
    /// The id was used for something else, is too old, or its owner cannot say whether it has counted.
    pub async fn add(&self, add: &Add, id: &AddId) -> Result<Added, Failure> {
        let owner = self.reach(&id.digest, id.home.as_deref())?;
        let until = Instant::now() + owner.patience();
        let hit = self.submit(&owner, add, id, until).await?;
        owner.durable(&hit, until).await?;
        self.place(&owner, add, id, hit).await
    }

    /// Sends an increment to the owner of its id.
    pub(crate) async fn submit(&self, owner: &Reached, add: &Add, id: &AddId, until: Instant) -> Result<Hit, Failure> {
        self.check_age(owner, id, until).await?;
        let hit = once_hit(add, id);
        match timeout_at(until, owner.client.hit_once(&add.counter, hit)).await {
            Ok(hit) => hit.map_err(|error| owner.failure(error)),
            Err(_) => Err(Failure::NotServing("earlier increments wait for an answer".to_owned())),
        }
    }

    /// The place of an increment that is durable. Of one that counted before it may not be known yet: it is asked for again.
    async fn place(&self, owner: &Reached, add: &Add, id: &AddId, hit: Hit) -> Result<Added, Failure> {
        let until = Instant::now() + PLACE_PATIENCE;
        let mut hit = hit;
        loop {
            match hit.within(until.saturating_duration_since(Instant::now())).await {
                Ok(HitOutcome::Placed(place)) => return Ok(Added::Placed(place)),
                Ok(HitOutcome::Pending(_)) => return Ok(Added::Pending),
                Err(HitError::PlaceUnknown) if Instant::now() + ASK_AGAIN < until => {}
                Err(HitError::PlaceUnknown) => return Ok(Added::Pending),
                Err(error) => return Err(owner.failure(error)),
            }
            sleep(ASK_AGAIN).await;
            hit = owner.client.hit_once(&add.counter, once_hit(add, id)).await.map_err(|error| owner.failure(error))?;
        }
    }

    /// The client of the group that owns an id.
    pub(crate) fn reach(&self, digest: &[u8; 16], home: Option<&str>) -> Result<Reached, Failure> {
        let cluster = self.aggregator.cluster();
        let home = home.map(|name| cluster.dc(name)).transpose().map_err(|error| Failure::invalid("home", error))?;
        let (owner, forgotten) = self.aggregator.with_ledger(|ledger| {
            let owner = owner_of(ledger.id_owners(), digest, home);
            (owner, owner.is_some_and(|owner| ledger.is_forgotten(owner.dc)))
        });
        let unknown = || Failure::NotServing("the ledger does not say yet which data centres own ids".to_owned());
        let Owner { dc, group } = owner.ok_or_else(unknown)?;
        let dc_name = cluster.name_of(dc).unwrap_or_default();
        let name = format!("{dc_name}/{group}");
        if forgotten {
            let message = format!(
                "data centre {dc_name}, which owned this id, was forgotten: whether it counted is not known. Name another data centre \
                 as the home of a new id"
            );
            return Err(Failure::Unavailable { code: "id_owner_lost", message });
        }
        let elsewhere = |error: tidemark_client::GroupError| Failure::NotServing(error.to_string());
        let client = self.client.at_group(dc_name, group).map_err(elsewhere)?;
        Ok(Reached { client, name, is_own_dc: dc == self.aggregator.dc(), dc })
    }

    /// Refuses an id that its owner may have counted and forgotten.
    async fn check_age(&self, owner: &Reached, id: &AddId, until: Instant) -> Result<(), Failure> {
        let sent_s = id.first_sent.map(seconds_ago).transpose()?;
        let replaced = self.aggregator.cluster().era > 0 || self.has_predecessor(owner);
        let group = match owner.client.group() {
            Some(group) => Some(group),
            None if replaced => owner.group_seen(until).await,
            None => None,
        };
        let kept = group.map_or(IDS_KEPT_AGES, |group| group.ids_kept);
        if let Some(sent_s) = sent_s.filter(|sent_s| *sent_s > ages_s(kept)) {
            let name = &owner.name;
            let kept_s = ages_s(kept);
            let message = format!(
                "the id was first sent {sent_s} s ago, and group {name} remembers ids for {kept_s} s: whether it counted is not known"
            );
            return Err(Failure::Invalid { code: "id_too_old", message });
        }
        if !replaced {
            return Ok(());
        }
        let Some(group) = group else { return Err(owner.in_doubt("cannot be reached")) };
        // It remembers nothing of the group before it, and is as old as it says at least.
        let reach_s = ages_s(group.age.min(kept)).saturating_sub(SKEW_S);
        match sent_s {
            None if group.age >= kept => Ok(()),
            Some(sent_s) if sent_s < reach_s => Ok(()),
            _ => {
                let name = &owner.name;
                let kept_s = ages_s(kept);
                let message = format!(
                    "group {name}, which owns this id, replaced a lost group: for {kept_s} s it is not known whether an id \
                     counted before. Name another data centre as the home of a new id, or say first_sent, if that is less than {reach_s} s ago"
                );
                Err(Failure::Unavailable { code: "id_owner_lost", message })
            }
        }
    }

    fn has_predecessor(&self, owner: &Reached) -> bool {
        let group = owner.client.group().map(|group| group.id);
        self.aggregator.with_ledger(|ledger| match group {
            Some(group) => ledger.has_predecessor(group),
            // Unknown yet: whether there was ever more than one of that data centre's number.
            None => ledger.groups().keys().filter(|group| owner.may_be(**group)).count() > 1,
        })
    }
}

impl Reached {
    /// How long it is waited for.
    pub fn patience(&self) -> Duration {
        if self.is_own_dc { DURABLE_PATIENCE } else { ELSEWHERE_PATIENCE }
    }

    fn may_be(&self, group: tidemark_proto::ids::GroupId) -> bool {
        group.dc == self.dc && self.name.ends_with(&format!("/{}", group.group))
    }

    /// Waits until an increment is durable.
    pub async fn durable(&self, hit: &Hit, until: Instant) -> Result<(), Failure> {
        let reason = tokio::select! {
            biased;
            durable = hit.durable() => return durable.map_err(|error| self.failure(error)),
            () = sleep_until(until) => "did not answer in time".to_owned(),
            reason = self.client.until_gone(GONE_AFTER, LEADERLESS_MAX) => format!("cannot be reached ({reason})"),
        };
        // An increment that was not sent need not be sent later; it stays unknown whether an earlier copy has counted.
        self.client.withdraw(hit).await;
        Err(self.in_doubt(&reason))
    }

    async fn group_seen(&self, until: Instant) -> Option<SeenGroup> {
        while self.client.group().is_none() && Instant::now() < until {
            sleep_until(until.min(Instant::now() + ASK_AGAIN)).await;
        }
        self.client.group()
    }

    fn in_doubt(&self, why: &str) -> Failure {
        Failure::InDoubt(format!(
            "group {}, which owns the id, {why}: repeat the request with the same id, here or in that data centre",
            self.name
        ))
    }

    fn failure(&self, error: HitError) -> Failure {
        let message = error.to_string();
        match error {
            HitError::Failed(AddError::IdReused) => Failure::Mismatch { code: "id_reused", message },
            HitError::Failed(AddError::IdsFull { .. }) => {
                Failure::Unavailable { code: "ids_full", message: format!("group {}: {message}", self.name) }
            }
            HitError::Failed(AddError::IdFenced) => Failure::Conflict { code: "id_fenced", message },
            HitError::Failed(AddError::IdLate | AddError::Withdrawn) | HitError::Unknown => {
                self.in_doubt("did not say whether it has counted")
            }
            error @ (HitError::Name(_)
            | HitError::Time(_)
            | HitError::Overloaded { .. }
            | HitError::Failed(_)
            | HitError::PlaceUnknown
            | HitError::Closed) => error.into(),
        }
    }
}

/// Says which data centres own ids, until the ledger knows: those of the layout that the cluster began with, as the first says that it is
/// heard.
pub async fn tell_owners(aggregator: &Aggregator) {
    while !say_owners(aggregator).await {
        sleep(TELL_INTERVAL).await;
    }
}

/// Says it once, unless the ledger knows: whether it does.
pub async fn say_owners(aggregator: &Aggregator) -> bool {
    if aggregator.with_ledger(|ledger| !ledger.id_owners().is_empty()) {
        return true;
    }
    let dcs = (0..).zip(&aggregator.cluster().dcs);
    let owners = dcs.map(|(dc, layout)| (DcId(dc), layout.nodes.len() as u16)).collect();
    aggregator.set_id_owners(owners).await;
    false
}

/// The 128 bits that stand for an id in its namespace.
pub fn digest_of(namespace: &str, id: &str) -> [u8; 16] {
    sha256_prefix(&[b"tidemark id ", namespace.as_bytes(), b"\0", id.as_bytes()])
}

/// The sent form of an increment with an id. Its content is all its counts.
fn once_hit(add: &Add, id: &AddId) -> OnceHit {
    let Add { counter, half, delta, session, event, .. } = add;
    let half_text = if *half == Half::Up { "up" } else { "down" };
    let session_text = session.map(|session| session.to_string()).unwrap_or_default();
    let event_text = event.map(|event| event.s().to_string()).unwrap_or_default();
    let content = format!("{half_text} {delta} {session_text} {event_text} {}", counter_text(counter));
    let content = sha256_prefix(&[b"tidemark id content ", content.as_bytes()]);
    let id = ItemId { digest: id.digest, content, items: 1 };
    OnceHit { half: *half, session: *session, weight: *delta, event: *event, id }
}

fn ages_s(ages: u32) -> u32 {
    u32::try_from(u64::from(ages) * AGE_UNIT.0 / 1_000_000).unwrap_or(u32::MAX)
}

/// How long ago it was. A time ahead of this process's clock, by more than clocks differ, is refused.
fn seconds_ago(at: UnixTime) -> Result<u32, Failure> {
    let now = UnixTime::from_wall(wall_now());
    if at.s() > now.s().saturating_add(SKEW_S.into()) {
        let message =
            format!("first_sent is {} s ahead of this process's clock: at most {SKEW_S} allowed", at.s() - now.s());
        return Err(Failure::Invalid { code: "first_sent", message });
    }
    Ok(u32::try_from(now.s().saturating_sub(at.s())).unwrap_or(u32::MAX))
}
