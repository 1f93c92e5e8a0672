//! Refuses texts before planning: a query may have only listed statements and functions, and bounded size and depth.

use super::refused::Refused;
use crate::frames::Refusal;
use crate::limits::{
    CAST_DEPTH_MAX, CHAIN_MAX, NESTING_MAX, QUERY_DEPTH_MAX, RELATIONS_MAX, SELECTS_MAX, SQL_BYTES_MAX, TOKENS_MAX,
};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, GroupByExpr, ObjectName, OrderBy, OrderByKind, Query, Select, SetExpr,
    SetOperator, SetQuantifier, Statement, TableFactor, Value, ValueWithSpan, Visit, Visitor, visit_expressions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::ops::ControlFlow;

/// The only table function.
pub const LOCAL: &str = "impressions_local";

/// Functions of one row. No function makes a text much longer than its arguments, or reads anything but its arguments.
pub const SCALARS: [&str; 79] = [
    "abs",
    "acos",
    "ascii",
    "asin",
    "atan",
    "atan2",
    "bit_length",
    "btrim",
    "cbrt",
    "ceil",
    "character_length",
    "chr",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "cos",
    "current_date",
    "current_time",
    "date_bin",
    "date_part",
    "date_trunc",
    "degrees",
    "ends_with",
    "exp",
    "find_in_set",
    "floor",
    "from_unixtime",
    "gcd",
    "greatest",
    "initcap",
    "isnan",
    "iszero",
    "lcm",
    "least",
    "left",
    "levenshtein",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "make_date",
    "nanvl",
    "now",
    "nullif",
    "nvl",
    "nvl2",
    "octet_length",
    "pi",
    "power",
    "radians",
    "replace",
    "reverse",
    "right",
    "round",
    "rtrim",
    "signum",
    "sin",
    "split_part",
    "sqrt",
    "starts_with",
    "strpos",
    "substr",
    "substr_index",
    "tan",
    "to_char",
    "to_date",
    "to_hex",
    "to_local_time",
    "to_timestamp",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_seconds",
    "to_unixtime",
    "translate",
    "trunc",
    "upper",
];
/// Functions of many rows.
pub const AGGREGATES: [&str; 22] = [
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "avg",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "first_value",
    "last_value",
    "max",
    "median",
    "min",
    "nth_value",
    "percentile_cont",
    "stddev",
    "stddev_pop",
    "sum",
    "var",
    "var_pop",
];
/// Functions of a window.
pub const WINDOWS: [&str; 11] = [
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];
/// Other names of functions above.
const ALIASES: [(&str, &str); 18] = [
    ("character_length", "char_length"),
    ("character_length", "length"),
    ("date_part", "datepart"),
    ("date_part", "extract"),
    ("date_trunc", "datetrunc"),
    ("current_date", "today"),
    ("btrim", "trim"),
    ("strpos", "instr"),
    ("strpos", "position"),
    ("substr", "substring"),
    ("power", "pow"),
    ("to_char", "date_format"),
    ("now", "current_timestamp"),
    ("nvl", "ifnull"),
    ("avg", "mean"),
    ("stddev", "stddev_samp"),
    ("var", "var_samp"),
    ("var", "var_sample"),
];

/// Levels of [`NESTING_MAX`] that the parser needs around the first expression.
const OUTER_LEVELS: usize = 3;

/// A text that may be planned.
#[derive(Debug)]
pub struct Checked {
    pub statement: Statement,
    /// The largest number after a `$`.
    pub params: usize,
}

/// Parses a text and checks each part of it.
///
/// # Errors
/// [`Refused`].
pub fn check(sql: &str) -> Result<Checked, Refused> {
    if sql.len() > SQL_BYTES_MAX {
        return Err(Refused::complex("bytes of text", sql.len(), SQL_BYTES_MAX));
    }
    let syntax = |error: ParserError| match error {
        ParserError::RecursionLimitExceeded => {
            Refused::new(Refusal::Complex, format!("the query is nested more than {NESTING_MAX} deep: divide it"))
        }
        error @ (ParserError::TokenizerError(_) | ParserError::ParserError(_)) => {
            Refused::new(Refusal::Syntax, error.to_string())
        }
    };
    // The tokenizer executes such a comment, and tokenizes nested comments repeatedly.
    if sql.contains("/*!") {
        return Err(Refused::not_allowed("the text /*!, also within quotes: send it as a value"));
    }
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().map_err(|e| syntax(e.into()))?;
    let count = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).count();
    if count > TOKENS_MAX {
        return Err(Refused::complex("tokens", count, TOKENS_MAX));
    }
    let types = types_within_types(&tokens);
    if types > NESTING_MAX {
        return Err(Refused::complex("types of many values", types, NESTING_MAX));
    }
    let depth = depth(&tokens);
    if depth > NESTING_MAX - OUTER_LEVELS {
        return Err(Refused::complex("brackets, signs and NOTs within each other", depth, NESTING_MAX - OUTER_LEVELS));
    }
    let mut parser =
        Parser::new(&GenericDialect {}).with_recursion_limit(NESTING_MAX).with_tokens_with_locations(tokens);
    let mut statements = parser.parse_statements().map_err(syntax)?;
    let statement = match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => statement,
        (Some(_), false) => return Err(Refused::not_allowed("more than one statement")),
        (None, _) => return Err(Refused::not_allowed("an empty text")),
    };
    let params = Walls::look_at(&statement)?;
    Ok(Checked { statement, params })
}

/// Counts places where a nested type may begin, because the parser does not bound the depth of types.
fn types_within_types(tokens: &[TokenWithSpan]) -> usize {
    const NAMES: [&str; 9] =
        ["array", "struct", "union", "nullable", "lowcardinality", "map", "nested", "tuple", "table"];
    let is_name = |token: &Token| match token {
        Token::Word(word) => {
            word.quote_style.is_none() && NAMES.iter().any(|name| word.value.eq_ignore_ascii_case(name))
        }
        _ => false,
    };
    let tokens = tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    let mut is_after_name = false;
    let begins = |token: &&Token| {
        let begins = **token == Token::LBracket || is_after_name && matches!(token, Token::Lt | Token::LParen);
        is_after_name = is_name(token);
        begins
    };
    tokens.filter(begins).count()
}

/// The depth of brackets, with the operators before a value. The parser nests each of them. It reports some texts that are too deep as
/// wrong, because it then takes NOT for the name of a column.
fn depth(tokens: &[TokenWithSpan]) -> usize {
    let is_prefix = |token: &Token| match token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("not"),
        _ => matches!(token, Token::Minus | Token::Plus | Token::Tilde),
    };
    let tokens = tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    let mut deepest = 0;
    // The levels of each open bracket with the operators before it, and the operators before the next token.
    let mut open: Vec<usize> = Vec::new();
    let mut nested = 0;
    let mut row = 0;
    for token in tokens {
        match token {
            Token::LParen => {
                open.push(row + 1);
                nested += row + 1;
                row = 0;
            }
            Token::RParen => {
                nested -= open.pop().unwrap_or_default();
                row = 0;
            }
            token if is_prefix(token) => row += 1,
            _ => row = 0,
        }
        deepest = deepest.max(nested + row);
    }
    deepest
}

/// Checks a statement while it walks through it.
#[derive(Default)]
struct Walls {
    depth: usize,
    /// The depth of queries and of casts, of which the engine plans each level several times.
    queries: usize,
    casts: usize,
    selects: usize,
    relations: usize,
    params: usize,
}

impl Walls {
    fn look_at(statement: &Statement) -> Result<usize, Refused> {
        let query = match statement {
            Statement::Query(query) => query,
            // The engine fails on some plans that it draws as a tree.
            Statement::Explain { format: Some(_), .. } | Statement::Explain { options: Some(_), .. } => {
                return Err(Refused::not_allowed("EXPLAIN with FORMAT or options"));
            }
            Statement::Explain { statement, .. } => match &**statement {
                Statement::Query(query) => query,
                _ => return Err(Refused::not_allowed("EXPLAIN of a statement that is no query")),
            },
            _ => return Err(Refused::not_allowed("a statement that is no query")),
        };
        let mut walls = Walls::default();
        match query.visit(&mut walls) {
            ControlFlow::Continue(()) => Ok(walls.params),
            ControlFlow::Break(refused) => Err(refused),
        }
    }
}

fn not_allowed(what: &str) -> ControlFlow<Refused> {
    ControlFlow::Break(Refused::not_allowed(what))
}

fn below(what: &str, found: usize, max: usize) -> ControlFlow<Refused> {
    if found > max { ControlFlow::Break(Refused::complex(what, found, max)) } else { ControlFlow::Continue(()) }
}

impl Visitor for Walls {
    type Break = Refused;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Refused> {
        let Query { with, body, order_by, limit_clause: _, fetch: _, .. } = query;
        let Query { locks, for_clause, settings, format_clause, pipe_operators, .. } = query;
        if with.as_ref().is_some_and(|with| with.recursive) {
            return not_allowed("WITH RECURSIVE");
        }
        if !locks.is_empty() || for_clause.is_some() || settings.is_some() {
            return not_allowed("FOR or SETTINGS after a query");
        }
        if format_clause.is_some() || !pipe_operators.is_empty() {
            return not_allowed("FORMAT or |> after a query");
        }
        if order_by.as_ref().is_some_and(|order| !is_plain_order(order)) {
            return not_allowed("ORDER BY with ALL, WITH FILL or INTERPOLATE");
        }
        // A chain of UNIONs nests on the left side.
        let mut bodies = vec![&**body];
        let mut operations = 0;
        while let Some(body) = bodies.pop() {
            let SetExpr::SetOperation { left, op, set_quantifier, right } = body else { continue };
            operations += 1;
            below("UNIONs in a row", operations, SELECTS_MAX)?;
            let is_of_sets = matches!(set_quantifier, SetQuantifier::None | SetQuantifier::Distinct);
            if *op != SetOperator::Union && !is_of_sets {
                // The engine drops all duplicates, as without ALL.
                return not_allowed("EXCEPT ALL or INTERSECT ALL");
            }
            bodies.extend([&**left, &**right]);
        }
        self.depth += 1;
        self.queries += 1;
        below("SELECTs within each other", self.queries, QUERY_DEPTH_MAX)
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Refused> {
        self.depth -= 1;
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Refused> {
        self.selects += 1;
        below("SELECTs", self.selects, SELECTS_MAX)?;
        match ignored_clause(select) {
            Some(clause) => not_allowed(clause),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Refused> {
        self.relations += 1;
        below("tables", self.relations, RELATIONS_MAX)?;
        match relation.0.as_slice() {
            [_] => ControlFlow::Continue(()),
            _ => not_allowed("a name of a table with a dot"),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Refused> {
        match factor {
            TableFactor::Table { args: Some(_), name, .. } if !name.to_string().eq_ignore_ascii_case(LOCAL) => {
                not_allowed(&format!("the table function {name}, where only {LOCAL} is"))
            }
            TableFactor::Table {
                name: _,
                alias: _,
                args: _,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                let has_hints = !with_hints.is_empty() || !index_hints.is_empty() || !partitions.is_empty();
                let is_part = version.is_some() || *with_ordinality || json_path.is_some() || sample.is_some();
                match has_hints || is_part {
                    true => not_allowed("a table with hints, versions, samples or parts"),
                    false => ControlFlow::Continue(()),
                }
            }
            TableFactor::Derived { lateral: false, sample: None, subquery: _, alias: _ }
            | TableFactor::NestedJoin { table_with_joins: _, alias: _ } => ControlFlow::Continue(()),
            _ => not_allowed("LATERAL, UNNEST, PIVOT, a sample, or a function in place of a table"),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Refused> {
        self.depth += 1;
        below("parts of an expression within each other or in a chain", self.depth, CHAIN_MAX)?;
        match expr {
            Expr::Function(function) => allowed_function(function),
            Expr::Cast { .. } => {
                self.casts += 1;
                below("CASTs within each other", self.casts, CAST_DEPTH_MAX)
            }
            // The engine keeps rows although the subquery has NULL.
            Expr::InSubquery { expr, negated: true, .. } if !has_name(expr) => {
                not_allowed("NOT IN (SELECT ...) after an expression without a column")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Refused> {
        self.depth -= 1;
        self.casts -= usize::from(matches!(expr, Expr::Cast { .. }));
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<Refused> {
        let Value::Placeholder(name) = &value.value else { return ControlFlow::Continue(()) };
        match name.strip_prefix('$').and_then(|number| number.parse().ok()) {
            Some(number @ 1..) => {
                self.params = self.params.max(number);
                ControlFlow::Continue(())
            }
            Some(0) | None => {
                let message = format!("{name}: values are named $1, $2 and so on");
                ControlFlow::Break(Refused::new(Refusal::Params, message))
            }
        }
    }
}

/// Whether an expression names a column.
fn has_name(expr: &Expr) -> bool {
    visit_expressions(expr, |expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

/// The first clause of a SELECT that the engine does not execute. The engine ignores some of these clauses, so results would be wrong.
fn ignored_clause(select: &Select) -> Option<&'static str> {
    // Each field is named, so that a new field does not compile until this function handles it.
    let Select {
        select_token: _,
        optimizer_hints,
        distinct: _,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection: _,
        exclude,
        into,
        from: _,
        lateral_views,
        prewhere,
        selection: _,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having: _,
        named_window: _,
        qualify: _,
        window_before_qualify: _,
        value_table_mode,
        flavor: _,
    } = select;
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
    let clauses = [
        (into.is_some(), "SELECT INTO"),
        (!lateral_views.is_empty(), "LATERAL VIEW"),
        (!connect_by.is_empty(), "CONNECT BY"),
        (prewhere.is_some(), "PREWHERE"),
        (!modifiers.is_empty(), "GROUP BY with GROUPING SETS after expressions, or WITH ROLLUP, CUBE or TOTALS"),
        (value_table_mode.is_some(), "SELECT AS VALUE or AS STRUCT"),
        (exclude.is_some(), "EXCLUDE after the columns"),
        (select_modifiers.is_some() || !optimizer_hints.is_empty(), "SELECT with modifiers or hints"),
        (top.is_some(), "TOP"),
        (!cluster_by.is_empty() || !distribute_by.is_empty() || !sort_by.is_empty(), "CLUSTER, DISTRIBUTE or SORT BY"),
    ];
    clauses.into_iter().find(|(is_there, _)| *is_there).map(|(_, clause)| clause)
}

fn is_plain_order(order: &OrderBy) -> bool {
    let OrderBy { kind, interpolate } = order;
    let is_plain = match kind {
        OrderByKind::Expressions(exprs) => exprs.iter().all(|expr| expr.with_fill.is_none()),
        OrderByKind::All(_) => false,
    };
    is_plain && interpolate.is_none()
}

fn allowed_function(function: &Function) -> ControlFlow<Refused> {
    // The engine ignores parameters.
    if !matches!(function.parameters, FunctionArguments::None) {
        return not_allowed("a function with two lists of arguments");
    }
    let name = function.name.to_string().to_ascii_lowercase();
    let of_alias = ALIASES.iter().find(|(_, alias)| *alias == name).map(|(name, _)| *name);
    let known = of_alias.unwrap_or(&name);
    let is_known = SCALARS.contains(&known) || AGGREGATES.contains(&known) || WINDOWS.contains(&known);
    if is_known {
        return ControlFlow::Continue(());
    }
    let message = format!("there is no function {name:?}: the reference of SQL lists the functions");
    ControlFlow::Break(Refused::new(Refusal::NotAllowed, message))
}

#[cfg(test)]
mod tests;
