//! `plan`: what a number of users and events means in writes, bytes, memory, cores and money.
//!
//! The defaults are the numbers of the article that this layout comes from. The page prints the article's layout beside ours.

mod figures;
mod input;
mod print;

use crate::args::PlanArgs;
use crate::error::{CliError, InputError, PLAN_BYTES_MAX};
use figures::figures;
use input::Input;
use std::io::{Read, Write};
use std::path::Path;

pub fn run(args: &PlanArgs, out: &mut impl Write) -> Result<(), CliError> {
    let input = match &args.file {
        Some(path) => read(path).map_err(|error| CliError::Plan { path: path.clone(), error })?,
        None => Input::default(),
    };
    let figures = figures(&input);
    match args.json {
        true => Ok(print::json(&input, &figures, out)?),
        false => Ok(print::table(&input, &figures, out)?),
    }
}

fn read(path: &Path) -> Result<Input, InputError> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(PLAN_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > PLAN_BYTES_MAX {
        return Err(InputError::Long);
    }
    let is_json = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    if is_json { Input::from_json(&text) } else { Input::from_toml(&text) }
}
