//! What answers queries, in a server and in a process that only answers queries.

use crate::fetch::Fetcher;
use crate::pin_source::PinSource;
use crate::query_log::QueryLog;
use crate::query_stores::QueryStores;
use crate::settings::SqlSettings;
use crate::token_keys::TokenKeys;
use std::sync::Arc;
use tidemark_streams_sql::pool::Pool;
use tidemark_streams_store::directory::BlobReader;
use tidemark_streams_store::uploads::Uploads;

/// The state that queries share.
pub struct Queries {
    pub source: PinSource,
    pub fetcher: Arc<Fetcher>,
    pub stores: Arc<QueryStores>,
    /// Requests need a token that these keys know.
    pub keys: Option<TokenKeys>,
    /// Tables of tenants for queries in SQL.
    pub tables: Uploads,
    pub sql: Arc<Pool>,
    pub sql_log: QueryLog,
}

/// What [`Queries`] are made of.
pub struct QueryParts {
    pub source: PinSource,
    pub reader: BlobReader,
    pub stores: Arc<QueryStores>,
    pub keys: Option<TokenKeys>,
    pub tables: Uploads,
}

impl Queries {
    pub fn new(parts: QueryParts, sql: &SqlSettings) -> Queries {
        let QueryParts { source, reader, stores, keys, tables } = parts;
        let sql_log = QueryLog::new(sql.log.clone());
        let fetcher = Arc::new(Fetcher::new(reader, Arc::clone(&stores)));
        Queries { source, fetcher, stores, keys, tables, sql: Pool::new(sql.pool()), sql_log }
    }
}
