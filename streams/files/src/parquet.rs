//! The layer between a file of Parquet and the library that reads it: a guard, and the columns that are understood.

mod coded;
pub mod columns;
pub mod guard;
mod walk;
