//! A session for one query: a catalog with only the tenant's tables, and the allowed functions.

use super::engine_faults;
use super::provider::NamedTable;
use super::refused::Refused;
use super::tables::{LocalFunction, TableKind, Tables};
use super::uploads::Upload;
use super::walls::{self, AGGREGATES, Checked, LOCAL, SCALARS, WINDOWS};
use crate::frames::{Param, Query, ReadColumns, Refusal, UploadPart};
use crate::limits::{BATCH_ROWS_MAX, COLUMNS_MAX};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider,
    SchemaProvider,
};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::execution::{SessionState, SessionStateDefaults, TaskContext};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::optimizer::OptimizerRule;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig};
use datafusion::sql::parser::Statement;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use tidemark_proto::series::calendar::Zone;

/// The name of the catalog, and of its only schema. The engine's message about an unknown table shows them.
const CATALOG: &str = "tidemark";
const SCHEMA: &str = "streams";
/// The table of all rows.
const IMPRESSIONS: &str = "impressions";

/// A query that was planned.
pub struct Prepared {
    context: Arc<TaskContext>,
    plan: Arc<dyn ExecutionPlan>,
    tables: Arc<Tables>,
    /// In the order of the query.
    uploads: Vec<Upload>,
    memory_bytes: u64,
}

impl Prepared {
    /// Checks a text and plans it.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn of(query: &Query) -> Result<Prepared, Refused> {
        let Checked { mut statement, params } = walls::check(&query.sql)?;
        engine_faults::compare_values_of_lists(&mut statement)?;
        if params != query.params.len() {
            let message = format!("{} values for {params} parameters of the query", query.params.len());
            return Err(Refused::new(Refusal::Params, message));
        }
        let zone = Zone::named(&query.zone).map_err(|error| Refused::new(Refusal::Params, error))?;
        let memory_bytes = query.memory_bytes;
        let refused = |error: DataFusionError| with_tables(Refused::of(&error, memory_bytes), query);
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(memory_bytes as usize));
        let tables = Arc::new(Tables::new(&pool, memory_bytes));
        let mut state = state(&pool).map_err(refused)?;
        let local = LocalFunction {
            tables: Arc::clone(&tables),
            zone,
            params: query.params.clone(),
            dimensions: query.dimensions.clone(),
        };
        state.register_udtf(LOCAL, Arc::new(local));
        let schema = MemorySchemaProvider::new();
        let register = |name: &str, table: NamedTable| schema.register_table(name.to_owned(), Arc::new(table));
        register(IMPRESSIONS, tables.table(TableKind::All, &query.dimensions)).map_err(refused)?;
        for name in query.types.iter().filter(|name| *name != IMPRESSIONS) {
            let table = tables.table(TableKind::Type(name.clone()), &query.dimensions);
            register(name, table).map_err(refused)?;
        }
        let new_upload = |table| Upload::new(table, &pool, memory_bytes);
        let uploads: Vec<Upload> = query.uploads.iter().map(new_upload).collect();
        for (table, upload) in query.uploads.iter().zip(&uploads) {
            register(&table.name, upload.table()).map_err(refused)?;
        }
        state.register_catalog_list(catalogs(schema).map_err(refused)?);
        let statement = Statement::Statement(Box::new(statement));
        let plan = state.statement_to_plan(statement).await.map_err(refused)?;
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        options.verify_plan(&plan).map_err(refused)?;
        let values: Vec<ScalarValue> = query.params.iter().map(value).collect();
        let plan = plan.with_param_values(ParamValues::from(values)).map_err(refused)?;
        let columns = plan.schema().fields().len();
        // A text such as `FROM click` gives rows without values.
        if columns == 0 {
            return Err(Refused::new(Refusal::Plan, "the result has no columns: name at least one after SELECT"));
        }
        if columns > COLUMNS_MAX {
            return Err(Refused::complex("columns of the result", columns, COLUMNS_MAX));
        }
        // Only the plan of the execution says which columns it reads.
        let plan = state.create_physical_plan(&plan).await.map_err(refused)?;
        Ok(Prepared { context: task_context(&state), plan, tables, uploads, memory_bytes })
    }

    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The columns of rows that it reads. A query that names no table needs no rows.
    pub fn reads(&self) -> Option<ReadColumns> {
        self.tables.are_named().then(|| self.tables.reads())
    }

    /// The uploaded tables that it names.
    pub fn named_uploads(&self) -> Vec<u32> {
        let named = (0..).zip(&self.uploads).filter(|(_, upload)| upload.is_named());
        named.map(|(at, _)| at).collect()
    }

    /// Takes a part of an uploaded table.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn upload(&self, part: &UploadPart) -> Result<(), Refused> {
        let missing = || Refused::new(Refusal::Internal, "a part of a table that the query does not have");
        self.uploads.get(part.table as usize).ok_or_else(missing)?.add(part)
    }

    /// All parts of uploaded tables have arrived.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn close_uploads(&self) -> Result<(), Refused> {
        self.uploads.iter().filter(|upload| upload.is_named()).try_for_each(Upload::close)
    }

    /// # Errors
    /// [`Refused`].
    pub fn execute(&self) -> Result<Batches, Refused> {
        let refused = |error: DataFusionError| Refused::of(&error, self.memory_bytes);
        let stream = execute_stream(Arc::clone(&self.plan), Arc::clone(&self.context)).map_err(refused)?;
        Ok(Batches { stream, memory_bytes: self.memory_bytes })
    }
}

/// Lists all tables in the error of a query that names a table which does not exist.
fn with_tables(refused: Refused, query: &Query) -> Refused {
    let engines = format!("table '{CATALOG}.{SCHEMA}.");
    let unknown = refused.message.split_once(&engines).and_then(|(_, rest)| rest.strip_suffix("' not found"));
    let Some(unknown) = unknown.filter(|_| refused.refusal == Refusal::Plan) else { return refused };
    let types = query.types.iter().map(String::as_str).filter(|name| *name != IMPRESSIONS);
    let uploads = query.uploads.iter().map(|table| table.name.as_str());
    let known: Vec<&str> = std::iter::once(IMPRESSIONS).chain(types).chain(uploads).collect();
    let message = format!("there is no table {unknown:?}; the tables: {}, {LOCAL}(zone)", known.join(", "));
    Refused::new(Refusal::Plan, message)
}

/// One catalog with one schema.
fn catalogs(schema: MemorySchemaProvider) -> Result<Arc<dyn CatalogProviderList>, DataFusionError> {
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(schema))?;
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    Ok(Arc::new(catalogs))
}

/// The context in which a plan is executed. It has no functions: the plan holds those that it calls, and `SessionState::task_ctx` would
/// copy all of them.
fn task_context(state: &SessionState) -> Arc<TaskContext> {
    let id = state.session_id().to_owned();
    let config = state.config().clone();
    let runtime = Arc::clone(state.runtime_env());
    Arc::new(TaskContext::new(
        None,
        id,
        config,
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        HashMap::new(),
        runtime,
    ))
}

/// The result of a query, as it comes.
pub struct Batches {
    stream: SendableRecordBatchStream,
    memory_bytes: u64,
}

impl Batches {
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

/// The next batch of a result.
///
/// # Errors
/// [`Refused`].
pub async fn next(batches: &mut Batches) -> Result<Option<RecordBatch>, Refused> {
    let memory_bytes = batches.memory_bytes;
    batches.stream.next().await.transpose().map_err(|error| Refused::of(&error, memory_bytes))
}

/// A session without files, stores, and functions of tables. It uses one thread.
fn state(pool: &Arc<dyn MemoryPool>) -> Result<SessionState, DataFusionError> {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(BATCH_ROWS_MAX)
        .with_information_schema(false)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, SCHEMA);
    let options = config.options_mut();
    options.execution.enable_recursive_ctes = false;
    options.execution.collect_statistics = false;
    // The check fails for right plans: the two kinds of plan do not know equally well which expressions are never null.
    options.execution.skip_physical_aggregate_schema_check = true;
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime =
        RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool)).with_disk_manager_builder(disk).build_arc()?;
    runtime.deregister_object_store(ObjectStoreUrl::local_filesystem().as_ref())?;
    let parts = &*PARTS;
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_expr_planners(SessionStateDefaults::default_expr_planners())
        .with_optimizer_rules(parts.optimizer_rules.clone())
        .with_physical_optimizer_rules(parts.physical_rules.clone())
        .with_scalar_functions(parts.scalars.clone())
        .with_aggregate_functions(parts.aggregates.clone())
        .with_window_functions(parts.windows.clone())
        .build();
    // Sets the time that `now()` returns.
    state.mark_start_execution();
    Ok(state)
}

/// Parts of each state: the allowed functions, and the rules of the optimizer.
struct Parts {
    scalars: Vec<Arc<ScalarUDF>>,
    aggregates: Vec<Arc<AggregateUDF>>,
    windows: Vec<Arc<WindowUDF>>,
    optimizer_rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    physical_rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
}

/// A process makes them once.
static PARTS: LazyLock<Parts> = LazyLock::new(|| {
    let scalars = datafusion::functions::all_default_functions();
    let aggregates = datafusion::functions_aggregate::all_default_aggregate_functions();
    let windows = datafusion::functions_window::all_default_window_functions();
    Parts {
        scalars: scalars.into_iter().filter(|known| SCALARS.contains(&known.name())).collect(),
        aggregates: aggregates.into_iter().filter(|known| AGGREGATES.contains(&known.name())).collect(),
        windows: windows.into_iter().filter(|known| WINDOWS.contains(&known.name())).collect(),
        optimizer_rules: engine_faults::optimizer_rules(),
        physical_rules: engine_faults::physical_rules(),
    }
});

fn value(param: &Param) -> ScalarValue {
    match param {
        Param::Null => ScalarValue::Null,
        Param::Bool(value) => ScalarValue::Boolean(Some(*value)),
        Param::Int(value) => ScalarValue::Int64(Some(*value)),
        Param::Float(value) => ScalarValue::Float64(Some(*value)),
        Param::Text(value) => ScalarValue::Utf8(Some(value.clone())),
    }
}
