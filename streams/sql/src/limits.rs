//! Every limit of SQL, by name, with the behaviour at the limit.

/// Bytes of the text of a query. A longer one is refused: `sql_text`.
pub const SQL_BYTES_MAX: usize = 64 << 10;
/// Tokens of a query. A query with more is refused: `sql_complex`.
pub const TOKENS_MAX: usize = 20_000;
/// Nesting depth of a text in the parser. A deeper query is refused: `sql_complex`.
pub const NESTING_MAX: usize = 50;
/// Depth of a parsed expression, where a chain such as `a OR b OR c` nests too. A deeper expression is refused: `sql_complex`.
pub const CHAIN_MAX: usize = 500;
/// SELECTs within each other. A deeper query is refused: `sql_complex`.
pub const QUERY_DEPTH_MAX: usize = 12;
/// CASTs within each other. A deeper one is refused: `sql_complex`.
pub const CAST_DEPTH_MAX: usize = 12;
/// Tables that a query names. A query with more is refused: `sql_complex`.
pub const RELATIONS_MAX: usize = 100;
/// SELECTs of a query. A query with more is refused: `sql_complex`.
pub const SELECTS_MAX: usize = 100;
/// Values for `$1`, `$2`, and so on. More are refused: `sql_params`.
pub const PARAMS_MAX: usize = 100;
/// Bytes of a text among the values. A longer one is refused: `sql_params`.
pub const PARAM_BYTES_MAX: usize = 4_096;

/// Dimensions of a directory, each of which is a column. The parent checks that the core has the same limit.
pub const DIMENSIONS_MAX: usize = 4;
/// Bytes of an uploaded table. A larger file is refused: `too_large`.
pub const UPLOAD_BYTES_MAX: usize = 8 << 20;
/// Uploaded tables of a tenant. A further one is refused: `tables_full`.
pub const UPLOADS_MAX: usize = 16;
/// Columns of an uploaded table. A table with more is refused: `sql_table`.
pub const UPLOAD_COLUMNS_MAX: usize = 100;
/// Bytes of the name of an uploaded table or of its column. A longer name is refused: `table_name`, `sql_table`.
pub const UPLOAD_NAME_BYTES_MAX: usize = 64;
/// Bytes of an uploaded table in one message. The next message has the rest.
pub const UPLOAD_PART_BYTES_MAX: usize = 1 << 20;
/// Bytes of a message between parent and child. A longer one ends the child.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Rows of one message. The next message has the rest. Rows with the longest texts fit a message.
pub const FRAME_ROWS_MAX: usize = 8_192;
/// Rows of one batch in the engine of a child.
pub const BATCH_ROWS_MAX: usize = 8_192;
/// Columns of a result. A query with more is refused: `sql_complex`.
pub const COLUMNS_MAX: usize = 200;
/// Bytes of the message of an error. A longer one is cut.
pub const MESSAGE_BYTES_MAX: usize = 2_048;

/// Smallest and largest number of children.
pub const CHILDREN_MIN: usize = 2;
pub const CHILDREN_MAX: usize = 8;
/// Queries without a turn, which read or wait, of tenants that are known for quick queries, and the same of all others. A further one is
/// refused if no turn is free: `sql_busy`.
pub const WAITING_MAX: usize = 64;
/// Milliseconds for which a child works for a query before the query is slow: its child works behind other processes, and at most half of
/// the children execute slow queries.
pub const QUICK_CPU_MS: u64 = 25;
/// Priority (nice) of a child that works for a slow query: the lowest one.
pub const SLOW_NICE: i32 = 19;
/// Priority (nice) of a child that works for a tenant without a record of quick queries: behind known tenants, before slow queries.
pub const UNTRIED_NICE: i32 = 10;
/// Seconds for which further queries of a tenant are slow from their start, once one of its queries was slow.
pub const SLOW_TENANT_S: u64 = 10;
/// Milliseconds for which children work for a tenant in a minute before its queries are slow from their start.
pub const QUICK_TENANT_CPU_MS: u64 = 6_000;
/// Queries that a child answers. Then it ends, and the next query starts another child.
pub const CHILD_QUERIES_MAX: u64 = 1_000;
/// Memory that a child may hold after a query, beyond the memory of its start. A child with more ends.
pub const CHILD_GROWTH_BYTES_MAX: u64 = 128 << 20;
/// Stack of the child's thread.
pub const STACK_BYTES: usize = 64 << 20;
/// Memory that a child may map beyond the memory of a query: for its stack, for memory kept from earlier queries, and for its
/// allocator. A child that maps more aborts.
pub const DATA_SLACK_BYTES: u64 = STACK_BYTES as u64 + CHILD_GROWTH_BYTES_MAX + (64 << 20);

/// Tenants whose use of the present minute is known. With more, the pool forgets tenants without a running query.
pub const TENANTS_MAX: usize = 100_000;
/// Seconds of the window in which a tenant's time and rows are summed.
pub const BUDGET_WINDOW_S: u64 = 60;

/// Bytes of a query's shape in the log. A longer one is cut.
pub const SHAPE_BYTES_MAX: usize = 4_096;
