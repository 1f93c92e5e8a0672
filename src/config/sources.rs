//! Where a value came from: the file, the environment or a flag; and the errors that say so.

use super::{ConfigError, read};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Environment variables start with this.
const ENVIRONMENT_PREFIX: &str = "TIDEMARK_";

/// The settings that override the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// All variables of the environment; variables without a key are left alone, since others may use the prefix too.
    pub environment: BTreeMap<String, String>,
    /// `KEY=VALUE`, in their order.
    pub flags: Vec<String>,
}

impl Overrides {
    /// This process's environment, and flags.
    pub fn from_process(flags: Vec<String>) -> Overrides {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Overrides { environment: std::env::vars_os().filter_map(text).collect(), flags }
    }
}

/// The settings of one kind of process.
pub trait Settings: Serialize + DeserializeOwned + Default {
    /// Checks what the types do not express.
    fn check(&self, checks: &mut Checks);

    /// Relative paths are meant relative to the file's folder.
    fn resolve(&mut self, folder: &Path);

    /// Reads the file, applies the overrides, checks all values.
    ///
    /// # Errors
    /// [`ConfigError`]: it names the file, variable or flag, the key, the value and what is allowed.
    fn load(path: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let (mut settings, origins) = merged::<Self>(path, overrides)?;
        let mut checks = Checks { file: path.to_owned(), origins, failed: None };
        settings.check(&mut checks);
        checks.failed.map_or(Ok(()), Err)?;
        settings.resolve(path.parent().unwrap_or(Path::new("")));
        Ok(settings)
    }
}

/// Collects the first value that is not allowed.
pub struct Checks {
    file: PathBuf,
    origins: BTreeMap<String, String>,
    failed: Option<ConfigError>,
}

impl Checks {
    /// A number within limits, both included.
    pub fn number(&mut self, key: &str, value: u64, min: u64, max: u64) {
        self.require(key, value, min <= value && value <= max, || format!("it must be {min} to {max}"));
    }

    /// Anything else.
    pub fn require(&mut self, key: &str, value: impl ToString, holds: bool, expected: impl FnOnce() -> String) {
        if holds || self.failed.is_some() {
            return;
        }
        let origin = self.origins.get(key).cloned().unwrap_or_else(|| self.file.display().to_string());
        let key = key.to_owned();
        let value = value.to_string();
        let expected = expected();
        self.failed = Some(ConfigError::Value { origin, key, value, expected });
    }
}

/// The file with its overrides, and where each overridden key's value came from.
fn merged<S: Settings>(path: &Path, overrides: &Overrides) -> Result<(S, BTreeMap<String, String>), ConfigError> {
    let refused = |error: toml::de::Error| ConfigError::Toml { path: path.to_owned(), message: error.to_string() };
    let text = read(path)?;
    // On its own first: its errors show the line.
    toml::from_str::<S>(&text).map_err(refused)?;
    let mut table: Table = toml::from_str(&text).map_err(refused)?;
    let keys = keys::<S>();
    let mut origins = BTreeMap::new();
    for (key, default) in &keys {
        let name = format!("{ENVIRONMENT_PREFIX}{}", key.to_uppercase().replace('.', "_"));
        if let Some(text) = overrides.environment.get(&name) {
            set(&mut table, &mut origins, key, typed(&name, key, text, default)?, name.clone());
            fits::<S>(&table, &name, key, text)?;
        }
    }
    for flag in &overrides.flags {
        let (key, text) = flag.split_once('=').ok_or_else(|| ConfigError::Flag { text: flag.clone() })?;
        let known = || keys.keys().cloned().collect::<Vec<_>>().join(", ");
        let default = keys.get(key).ok_or_else(|| ConfigError::UnknownKey { key: key.to_owned(), known: known() })?;
        let origin = "--set".to_owned();
        set(&mut table, &mut origins, key, typed(&origin, key, text, default)?, origin.clone());
        fits::<S>(&table, &origin, key, text)?;
    }
    let settings = Value::Table(table).try_into().map_err(refused)?;
    Ok((settings, origins))
}

/// The error of the override that was put into the table last, if that is none of the key's values.
fn fits<S: Settings>(table: &Table, origin: &str, key: &str, text: &str) -> Result<(), ConfigError> {
    let refused = |error: toml::de::Error| {
        let origin = origin.to_owned();
        let key = key.to_owned();
        let expected = error.message().to_owned();
        ConfigError::Value { origin, key, value: format!("{text:?}"), expected }
    };
    Value::Table(table.clone()).try_into::<S>().map(drop).map_err(refused)
}

/// All keys by their dotted names, with their defaults.
pub(super) fn keys<S: Settings>() -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let defaults = Table::try_from(S::default()).expect("settings are TOML");
    flatten("", defaults, &mut found);
    found
}

pub(super) fn flatten(prefix: &str, table: Table, found: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match value {
            Value::Table(inner) => flatten(&format!("{key}."), inner, found),
            value @ (Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_)) => drop(found.insert(key, value)),
        }
    }
}

/// A text as a value of the default's type.
fn typed(origin: &str, key: &str, text: &str, default: &Value) -> Result<Value, ConfigError> {
    let value = match default {
        Value::String(_) => Some(Value::String(text.to_owned())),
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    };
    let expected = || match default {
        Value::Integer(_) => "an integer is expected".to_owned(),
        other @ (Value::String(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_)) => format!("a {} is expected", other.type_str()),
    };
    let origin = origin.to_owned();
    let key = key.to_owned();
    value.ok_or_else(|| ConfigError::Value { origin, key, value: format!("{text:?}"), expected: expected() })
}

fn set(table: &mut Table, origins: &mut BTreeMap<String, String>, key: &str, value: Value, origin: String) {
    origins.insert(key.to_owned(), origin);
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value)),
        Some((section, name)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                inner.insert(name.to_owned(), value);
            }
        }
    }
}
