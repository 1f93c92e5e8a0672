//! Which tenants' rows a blob may hold.
//!
//! A scope says it by itself, whatever the layout is by now. So a query finds the blobs of a tenant although buckets were counted
//! in another way when these blobs were written.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::xxh3_64;

/// The stable hash of a tenant's id: XXH3 with 64 bits. It is part of what the manifest keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TenantHash(pub u64);

/// The tenants with hashes that leave a remainder.
///
/// With V virtual partitions, virtual partition v is the slice `v` of V. With B buckets in each, bucket b of it is the slice `v +
/// V * b` of `V * B`. There the hash modulo V is v, and the hash divided by V, modulo B, is b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slice {
    pub modulus: u32,
    pub remainder: u32,
}

/// Some listings of one large tenant: those with hashes that leave the remainder `part` of `parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    pub tenant: TenantHash,
    pub parts: u32,
    pub part: u32,
}

/// Which rows a blob may hold. Rows of other tenants are not in it; a tenant within the scope may have rows elsewhere too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    Slice(Slice),
    Part(Part),
}

impl TenantHash {
    pub fn of(tenant: &str) -> TenantHash {
        TenantHash(xxh3_64(tenant.as_bytes()))
    }
}

impl Slice {
    /// All tenants.
    pub const ALL: Slice = Slice { modulus: 1, remainder: 0 };

    /// The slice of a tenant. A modulus of 0 counts as 1.
    pub fn of(tenant: TenantHash, modulus: u32) -> Slice {
        let modulus = modulus.max(1);
        Slice { modulus, remainder: (tenant.0 % u64::from(modulus)) as u32 }
    }
}

impl Part {
    /// The part of a listing. A number of parts of 0 counts as 1.
    pub fn of(tenant: TenantHash, listing: &str, parts: u32) -> Part {
        let parts = parts.max(1);
        Part { tenant, parts, part: (xxh3_64(listing.as_bytes()) % u64::from(parts)) as u32 }
    }
}

impl Scope {
    /// All rows.
    pub const ALL: Scope = Scope::Slice(Slice::ALL);

    /// Whether rows of a tenant may be in it.
    pub fn may_hold(&self, tenant: TenantHash) -> bool {
        match self {
            Scope::Slice(slice) => Slice::of(tenant, slice.modulus) == *slice,
            Scope::Part(part) => part.tenant == tenant,
        }
    }

    /// Whether a row of a tenant and listing belongs to it.
    pub fn holds(&self, tenant: TenantHash, listing: &str) -> bool {
        match self {
            Scope::Slice(_) => self.may_hold(tenant),
            Scope::Part(part) => Part::of(tenant, listing, part.parts) == *part,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Scope::Slice(slice) => slice.remainder < slice.modulus,
            Scope::Part(part) => part.part < part.parts,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Slice(Slice::ALL) => f.write_str("all"),
            Scope::Slice(slice) => write!(f, "{}/{}", slice.remainder, slice.modulus),
            Scope::Part(part) => write!(f, "{:016x}:{}/{}", part.tenant.0, part.part, part.parts),
        }
    }
}

/// A text that names no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no scope")]
pub struct ScopeError(String);

impl FromStr for Scope {
    type Err = ScopeError;

    /// The text that `Display` gives, and no other.
    fn from_str(text: &str) -> Result<Scope, ScopeError> {
        let scope = match (text, text.split_once(':')) {
            ("all", _) => Some(Scope::ALL),
            (_, None) => numbers(text).map(|(remainder, modulus)| Scope::Slice(Slice { modulus, remainder })),
            (_, Some((tenant, of_part))) => part(tenant, of_part),
        };
        let is_same = |scope: &Scope| scope.is_valid() && scope.to_string() == text;
        scope.filter(is_same).ok_or_else(|| ScopeError(text.chars().take(40).collect()))
    }
}

fn part(tenant: &str, of_part: &str) -> Option<Scope> {
    let tenant = TenantHash(u64::from_str_radix(tenant, 16).ok()?);
    let (part, parts) = numbers(of_part)?;
    Some(Scope::Part(Part { tenant, parts, part }))
}

fn numbers(text: &str) -> Option<(u32, u32)> {
    let (first, second) = text.split_once('/')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored blobs depend on these values.
    #[test]
    fn hashes_are_what_they_were() {
        assert_eq!(TenantHash::of("367"), TenantHash(0xfcf9_ed70_ec7e_f0ca));
        assert_eq!(Part::of(TenantHash(1), "1095275", 1_000).part, 320);
    }

    #[test]
    fn bucket_is_a_slice_of_its_virtual_partition() {
        for tenant in ["a", "b", "367", "a shop"] {
            let hash = TenantHash::of(tenant);
            let partition = Slice::of(hash, 10);
            let bucket = Slice::of(hash, 10 * 7);
            assert_eq!(bucket.remainder % 10, partition.remainder);
            assert_eq!(u64::from(bucket.remainder / 10), hash.0 / 10 % 7);
            assert!(Scope::Slice(bucket).may_hold(hash) && Scope::ALL.may_hold(hash));
        }
    }

    #[test]
    fn scopes_are_shown_in_short() {
        assert_eq!(Scope::ALL.to_string(), "all");
        assert_eq!(Scope::Slice(Slice { modulus: 70, remainder: 3 }).to_string(), "3/70");
        let part = Part { tenant: TenantHash(0xab), parts: 4, part: 1 };
        assert_eq!(Scope::Part(part).to_string(), "00000000000000ab:1/4");
        for scope in [Scope::ALL, Scope::Slice(Slice { modulus: 70, remainder: 3 }), Scope::Part(part)] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        for text in ["", "0/1", "4/4", "ab:1/4", "00000000000000ab:4/4", "3/70/1", "-1/2", "ALL"] {
            assert!(text.parse::<Scope>().is_err(), "{text}");
        }
    }
}
