//! Rewrites and rules that keep queries away from known faults of the engine (DataFusion 55.2), each of which gives wrong rows.
//!
//! | fault | remedy |
//! |---|---|
//! | a filter above a join reaches the column of that name on the other side (25259) | the physical rule that moves filters is left out |
//! | `a = 'x' AND 'x' = a` becomes false for texts (24763) | literals stand on the right before filters are pushed down |
//! | NULL in a list of `IN` is lost when lists are combined (24258) | values that are no constants become comparisons |
//!
//! The walls refuse two further forms: `EXCEPT ALL` and `INTERSECT ALL`, and a constant before `NOT IN (SELECT ...)` (8241).

use super::refused::Refused;
use crate::limits::SQL_BYTES_MAX;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{self, LogicalPlan};
use datafusion::optimizer::optimizer::{ApplyOrder, Optimizer};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement, UnaryOperator, Value, visit_expressions_mut};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The logical rules of the engine, with [`LiteralsRight`] before each that pushes filters down.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Vec::new();
    for rule in Optimizer::new().rules {
        if rule.name() == "push_down_filter" {
            rules.push(Arc::new(LiteralsRight));
        }
        rules.push(rule);
    }
    rules
}

/// The physical rules of the engine without those that move filters.
pub fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    PhysicalOptimizer::new().rules.into_iter().filter(|rule| !rule.name().starts_with("FilterPushdown")).collect()
}

/// Turns comparisons of a literal with something else.
#[derive(Debug)]
struct LiteralsRight;

impl OptimizerRule for LiteralsRight {
    fn name(&self) -> &str {
        "literals_right"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) => plan.map_expressions(|expr| expr.transform_up(turned)),
            _ => Ok(Transformed::no(plan)),
        }
    }
}

fn turned(expr: logical_expr::Expr) -> Result<Transformed<logical_expr::Expr>> {
    use logical_expr::Expr::{BinaryExpr, Literal};
    let BinaryExpr(mut compared) = expr else { return Ok(Transformed::no(expr)) };
    let is_turned = matches!(*compared.left, Literal(..)) && !matches!(*compared.right, Literal(..));
    // Only comparisons can be turned.
    match compared.op.swap().filter(|_| is_turned) {
        Some(op) => {
            std::mem::swap(&mut compared.left, &mut compared.right);
            compared.op = op;
            Ok(Transformed::yes(BinaryExpr(compared)))
        }
        None => Ok(Transformed::no(BinaryExpr(compared))),
    }
}

/// Makes comparisons of the values of `IN` that are no constants: `a IN (1, NULL)` becomes `a IN (1) OR a = NULL`.
///
/// # Errors
/// The query becomes too long.
pub fn compare_values_of_lists(statement: &mut Statement) -> std::result::Result<(), Refused> {
    let mut bytes = 0;
    let rewritten = visit_expressions_mut(statement, |expr| {
        let Expr::InList { expr: compared, list, negated } = expr else { return ControlFlow::Continue(()) };
        let (constants, others): (Vec<Expr>, Vec<Expr>) = list.drain(..).partition(is_constant);
        if others.is_empty() {
            *list = constants;
            return ControlFlow::Continue(());
        }
        // Each comparison repeats the expression before `IN`.
        bytes += others.len() * compared.to_string().len();
        if bytes > SQL_BYTES_MAX {
            let what = "bytes of expressions before IN, for all values that are no constants";
            return ControlFlow::Break(Refused::complex(what, bytes, SQL_BYTES_MAX));
        }
        let op = if *negated { BinaryOperator::NotEq } else { BinaryOperator::Eq };
        let comparison = |value| binary((**compared).clone(), op.clone(), Expr::Nested(Box::new(value)));
        let mut parts: Vec<Expr> = others.into_iter().map(comparison).collect();
        if !constants.is_empty() {
            parts.push(Expr::InList { expr: compared.clone(), list: constants, negated: *negated });
        }
        let joined = joined(parts, if *negated { BinaryOperator::And } else { BinaryOperator::Or });
        *expr = Expr::Nested(Box::new(joined));
        ControlFlow::Continue(())
    });
    match rewritten {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refused) => Err(refused),
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// Joins expressions in a tree of small depth. There is one at least.
fn joined(mut parts: Vec<Expr>, op: BinaryOperator) -> Expr {
    let half = parts.len() / 2;
    if half == 0 {
        return parts.remove(0);
    }
    let right = parts.split_off(half);
    let left = joined(parts, op.clone());
    binary(left, op.clone(), joined(right, op))
}

/// Whether an expression is a number, a text or a truth value.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => !matches!(value.value, Value::Null | Value::Placeholder(_)),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_constant(expr),
        _ => false,
    }
}
