//! A table in the catalog of a query. It has no statistics, and notes that the query names it.

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rows of a table.
pub trait TableRows: fmt::Debug + Send + Sync {
    /// All columns.
    fn schema(&self) -> &SchemaRef;

    /// Whether the table can apply a condition. The engine does not apply such a condition again.
    fn can_apply(&self, condition: &Expr) -> bool;

    /// The rows that meet `conditions`, with only the columns at these indexes of the schema. The table can apply all conditions.
    ///
    /// # Errors
    /// There is no such column.
    fn scan(&self, columns: &[usize], conditions: &[Expr]) -> Result<Arc<dyn PartitionStream>>;
}

/// A table whose rows are streamed when a query reads it.
#[derive(Debug)]
pub struct NamedTable {
    pub rows: Arc<dyn TableRows>,
    /// Set once a query names the table.
    pub is_named: Arc<AtomicBool>,
}

#[async_trait]
impl TableProvider for NamedTable {
    fn schema(&self) -> SchemaRef {
        self.is_named.store(true, Ordering::Relaxed);
        Arc::clone(self.rows.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let applied = |can_apply: bool| match can_apply {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(|filter| applied(self.rows.can_apply(filter))).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.rows.schema().fields().len()).collect();
        let rows = self.rows.scan(projection.unwrap_or(&all), filters)?;
        let schema = Arc::clone(rows.schema());
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![rows], None, None, false, limit)?))
    }
}
