//! The layer between a file of Parquet and the library that reads it: a guard, and the columns that are understood.

pub mod coded;
pub mod columns;
pub mod guard;
pub mod lists;
pub mod prefixed;
mod walk;
