//! A child serves one tenant. `tenants_see_nothing_of_each_other` of `streams/cli` has generated queries of several tenants.

use super::*;
use tidemark_streams_sql::pool::{Ended, Stats};

#[tokio::test]
async fn child_has_one_tenant_in_its_life() {
    let pool = Pool::new(PoolSettings { children: 2, ..settings() });
    let mut children = std::collections::BTreeMap::new();
    // A known tenant goes on with its child.
    for tenant in ["a", "b", "c"] {
        until_known(&pool, tenant).await;
    }
    let known = pool.stats();
    for tenant in ["a", "b", "a", "b", "c", "b", "a", "c", "c"] {
        let session = pool.begin(tenant).await.unwrap();
        let id = session.id().unwrap();
        let before = children.insert(id, tenant);
        assert!(before.is_none_or(|before| before == tenant), "{tenant} got the child of {before:?}");
        carry_out(session, query(pool.settings(), "SELECT 1"), &[]).await.unwrap();
        assert!(pool.stats().alive() <= 2, "{:?}", pool.stats());
    }
    // a and b end the children of before, and have a child each. c ends the child of a, the oldest. b goes on. a ends the child of c, and c
    // the child of b.
    let stats = pool.stats();
    let of_tenants = |stats: &Stats| stats.ended.get(&Ended::Tenant).copied().unwrap_or_default();
    assert_eq!((stats.started - known.started, of_tenants(&stats) - of_tenants(&known)), (5, 5), "{stats:?}");
}
