//! Conditions of a query on the event type. Tables apply them to the rows of a message before they make columns of them.

use super::tables::TYPE_COLUMN;
use datafusion::arrow::array::{Array, BooleanArray, StringViewArray, UInt8Array};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

/// Conditions on the event type. A row is selected if it meets all of them.
#[derive(Clone, Debug, Default)]
pub struct TypeConditions(Vec<Expr>);

impl TypeConditions {
    /// Whether a condition consists only of `=`, `<>`, `IN`, `AND`, `OR` and `NOT` over the event type, texts, and truth values.
    pub fn can_apply(condition: &Expr) -> bool {
        evaluate(condition, "").is_some()
    }

    /// A condition for the table of an event type.
    pub fn only(name: &str) -> TypeConditions {
        let column = Expr::Column(Column::from_name(TYPE_COLUMN));
        TypeConditions(vec![column.eq(Expr::Literal(ScalarValue::Utf8(Some(name.to_owned())), None))])
    }

    /// These conditions, and others that a table can apply.
    #[must_use]
    pub fn and(mut self, others: &[Expr]) -> TypeConditions {
        self.0.extend_from_slice(others);
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows that meet the conditions. `None`: all rows meet them.
    pub fn selection(&self, types: &StringViewArray, type_of: &UInt8Array) -> Option<BooleanArray> {
        let mut is_selected = [false; 1 << u8::BITS];
        for (is_selected, name) in is_selected.iter_mut().zip(types.iter()) {
            *is_selected = name.is_some_and(|name| self.select(name));
        }
        let of_named = &is_selected[..types.len().min(is_selected.len())];
        if of_named.iter().all(|is_selected| *is_selected) {
            return None;
        }
        let numbers = type_of.values();
        let rows = BooleanBuffer::collect_bool(numbers.len(), |row| is_selected[usize::from(numbers[row])]);
        Some(BooleanArray::from(rows))
    }

    fn select(&self, name: &str) -> bool {
        self.0.iter().all(|condition| evaluate(condition, name) == Some(Some(true)))
    }
}

/// Decides a condition for an event type: true, false, or `Some(None)` for NULL. `None`: the condition has a part that only the engine can
/// decide. The engine may simplify parts of a condition to literals after a table has accepted it.
fn evaluate(condition: &Expr, name: &str) -> Option<Option<bool>> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And => Some(and(evaluate(left, name)?, evaluate(right, name)?)),
            Operator::Or => Some(not(and(not(evaluate(left, name)?), not(evaluate(right, name)?)))),
            Operator::Eq => Some(Some(compared(left, right)? == name)),
            Operator::NotEq => Some(Some(compared(left, right)? != name)),
            _ => None,
        },
        Expr::Not(inner) => evaluate(inner, name).map(not),
        Expr::Literal(ScalarValue::Boolean(value), _) => Some(*value),
        Expr::InList(list) if is_type(&list.expr) => {
            let names = list.list.iter().map(text).collect::<Option<Vec<_>>>()?;
            Some(Some(names.contains(&name) != list.negated))
        }
        _ => None,
    }
}

fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}

fn not(value: Option<bool>) -> Option<bool> {
    value.map(|value| !value)
}

/// The text that a condition compares the type with.
fn compared<'e>(left: &'e Expr, right: &'e Expr) -> Option<&'e str> {
    match (is_type(left), is_type(right)) {
        (true, _) => text(right),
        (false, true) => text(left),
        (false, false) => None,
    }
}

fn is_type(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name == TYPE_COLUMN)
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text), _) => {
            text.as_deref()
        }
        _ => None,
    }
}
