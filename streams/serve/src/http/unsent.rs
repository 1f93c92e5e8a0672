//! Bytes of answers that clients have not read yet. They hold space until they are sent, so clients that do not read cost a bounded memory.

use super::answer::Failure;
use crate::settings::{UNSENT_BYTES_MAX, UNSENT_FREE_BYTES, UNSENT_TENANT_BYTES_MAX};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedSemaphorePermit;

/// Space for answers. A tenant has a part of it, so no tenant takes the space of all.
#[derive(Debug, Default)]
pub struct Space(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    bytes: usize,
    of_tenants: BTreeMap<String, usize>,
}

/// Bytes of a tenant, until it is dropped.
#[derive(Debug)]
struct Part {
    space: Arc<Space>,
    tenant: String,
    bytes: usize,
}

/// Bytes that hold their space until they are sent.
struct Held<S> {
    bytes: Vec<u8>,
    _space: S,
}

impl<S> AsRef<[u8]> for Held<S> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes that keep their part of a reserved space. The rest of it is released now.
pub fn within(mut bytes: Vec<u8>, mut space: OwnedSemaphorePermit) -> Bytes {
    bytes.shrink_to_fit();
    // An answer may exceed its reserved space, because it has fields beside its rows.
    let taken = bytes.len().min(space.num_permits());
    Bytes::from_owner(Held { bytes, _space: space.split(taken) })
}

impl Space {
    /// Bytes that take their space, unless they are few. An answer that is larger than the space is sent alone.
    ///
    /// # Errors
    /// `overloaded`: answers that were not read leave no space.
    pub fn held(self: &Arc<Space>, tenant: &str, bytes: Bytes) -> Result<Bytes, Failure> {
        if bytes.len() <= UNSENT_FREE_BYTES {
            return Ok(bytes);
        }
        self.taken().take(tenant, bytes.len())?;
        let part = Part { space: Arc::clone(self), tenant: tenant.to_owned(), bytes: bytes.len() };
        let mut bytes = Vec::from(bytes);
        bytes.shrink_to_fit();
        Ok(Bytes::from_owner(Held { bytes, _space: part }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn take(&mut self, tenant: &str, bytes: usize) -> Result<(), Failure> {
        let of_tenant = self.of_tenants.get(tenant).copied().unwrap_or_default();
        if of_tenant > 0 && of_tenant + bytes > UNSENT_TENANT_BYTES_MAX {
            return Err(full("the tenant", of_tenant, bytes, UNSENT_TENANT_BYTES_MAX));
        }
        if self.bytes > 0 && self.bytes + bytes > UNSENT_BYTES_MAX {
            return Err(full("all tenants", self.bytes, bytes, UNSENT_BYTES_MAX));
        }
        self.bytes += bytes;
        *self.of_tenants.entry(tenant.to_owned()).or_default() += bytes;
        Ok(())
    }
}

fn full(owner: &str, taken: usize, bytes: usize, max: usize) -> Failure {
    let message = format!(
        "answers of {owner} that clients have not read take {taken} bytes, and this one needs {bytes}: at most {max}; read them, or ask \
         for fewer rows"
    );
    Failure::later("overloaded", message)
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut taken = self.space.taken();
        taken.bytes -= self.bytes;
        if let Some(of_tenant) = taken.of_tenants.get_mut(&self.tenant) {
            *of_tenant -= self.bytes;
            if *of_tenant == 0 {
                taken.of_tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    #[test]
    fn result_holds_its_space_until_it_is_sent() {
        let space = Arc::new(Semaphore::new(100));
        let largest = Arc::clone(&space).try_acquire_many_owned(60).unwrap();
        let answer = within(vec![7; 10], largest);
        assert_eq!(space.available_permits(), 90);
        let sending = answer.slice(5..);
        drop(answer);
        assert_eq!((sending.len(), space.available_permits()), (5, 90));
        drop(sending);
        assert_eq!(space.available_permits(), 100);
    }

    #[test]
    fn large_answers_beyond_the_space_are_refused() {
        let space = Arc::new(Space::default());
        let held = |tenant: &str, bytes: usize| space.held(tenant, vec![7; bytes].into());
        let of_tenants: Vec<Bytes> =
            (0..4).map(|tenant| held(&tenant.to_string(), UNSENT_TENANT_BYTES_MAX).unwrap()).collect();
        let refused = |tenant: &str| {
            let refused = held(tenant, UNSENT_FREE_BYTES + 1).unwrap_err();
            assert_eq!((refused.code, refused.retry_after_s), ("overloaded", Some(1)));
            refused.message
        };
        assert!(refused("0").starts_with("answers of the tenant that clients have not read take 67108864 bytes"));
        assert!(refused("4").starts_with("answers of all tenants that clients have not read take 268435456 bytes"));
        assert_eq!(held("0", UNSENT_FREE_BYTES).unwrap().len(), UNSENT_FREE_BYTES, "a small one needs no space");
        drop(of_tenants);
        let alone = held("0", UNSENT_BYTES_MAX + 1).unwrap();
        assert!(refused("0").ends_with("read them, or ask for fewer rows"));
        drop(alone);
        let taken = space.taken();
        assert_eq!((taken.bytes, taken.of_tenants.len()), (0, 0));
    }

    #[test]
    fn answers_at_the_same_time_stay_within_the_space() {
        let space = Arc::new(Space::default());
        let part = UNSENT_TENANT_BYTES_MAX / 3;
        let held: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| space.held("a", vec![7; part].into()).ok())).collect();
            let held: Vec<Option<Bytes>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            held.iter().flatten().count()
        });
        assert_eq!(held, 3);
        assert_eq!(space.taken().bytes, 0);
    }
}
