//! Event types that are renamed, deleted, and used again, and the dimensions that are added to them.
//!
//! A blob keeps the names of its commit for ever. Each change of a name is an entry of the manifest, and each partition notes its last
//! commit before that entry. So a reader applies the later changes to the rows of an earlier blob, and a rename writes no file. The
//! manifest refuses a commit that did not know a change, as with erasures. So blobs of later commits have the new names.
//!
//! Owners list their event types when they claim, so the manifest knows the names in use.

use crate::blob::{Epoch, Seq};
use crate::event::{EventTypes, Meaning, Meanings, TypeDimensions, ValuesMax, is_event_type_name};
use crate::limits::{DIMENSION_BYTES_MAX, DIMENSIONS_MAX, EVENT_TYPES_MAX, TYPE_CHANGES_MAX, VALUES_MAX};
use crate::rollup::{RollupRow, Rollups, RowError};
use crate::teeth::{Bug, bites};
use crate::values::{DimensionNames, DimensionNumber, is_dimension_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A change of event types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TypeChange {
    /// Rows of a type count under another name, and so do events that still arrive under the old name.
    Rename {
        from: String,
        to: String,
        /// In a request: whether `to` may be in use already. In a made change: whether it was, so that both became one type.
        merges: bool,
    },
    /// Rows of a type are removed, and its events are refused.
    Delete { name: String },
    /// A deleted or renamed name stands for a new type, without the earlier rows.
    Add { name: String },
    /// Events of a type may have a value for a dimension from now on.
    AddDimension {
        name: String,
        dimension: String,
        /// A flush keeps so many values for each tenant. Further values count as [`OTHER`](crate::values::OTHER).
        values_max: u32,
    },
}

/// The dimensions of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dimensions {
    /// In the order in which they were added. They keep their numbers for ever.
    pub names: DimensionNames,
    /// Of each type with dimensions: how many values a flush keeps for a tenant.
    pub of_types: BTreeMap<String, BTreeMap<DimensionNumber, u32>>,
}

impl Dimensions {
    fn follow(&mut self, change: &TypeChange) {
        match change {
            TypeChange::Rename { from, to, .. } => {
                let moved = self.of_types.remove(from).unwrap_or_default();
                // The merged type has the dimensions of both types.
                for (dimension, values_max) in moved {
                    self.bound(to, dimension, values_max);
                }
            }
            TypeChange::Delete { name } | TypeChange::Add { name } => {
                self.of_types.remove(name);
            }
            TypeChange::AddDimension { name, dimension, values_max } => {
                if self.names.find(dimension).is_none() {
                    self.names.push(dimension.clone());
                }
                if let Some(number) = self.names.find(dimension) {
                    self.bound(name, number, *values_max);
                }
            }
        }
    }

    fn bound(&mut self, name: &str, dimension: DimensionNumber, values_max: u32) {
        let known = self.of_types.entry(name.to_owned()).or_default().entry(dimension).or_default();
        *known = values_max.max(*known);
    }

    /// The bound of a dimension of a type; `None`: the type has no such dimension.
    fn values_max(&self, name: &str, dimension: &str) -> Option<u32> {
        self.of_types.get(name)?.get(&self.names.find(dimension)?).copied()
    }

    fn of(&self, types: &[String]) -> TypeDimensions {
        let of_type = |name: &String| -> ValuesMax { self.of_types.get(name).cloned().unwrap_or_default() };
        TypeDimensions { names: self.names.clone(), of_types: types.iter().map(of_type).collect() }
    }
}

/// A change, and the time of its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub change: TypeChange,
    /// In milliseconds since 1970, by the clock of the proposer. It is at least that of each earlier change.
    pub at_ms: u64,
    /// Rows of the intake's log before this row were acknowledged before the change. It is at least that of each earlier change.
    pub log_row: u64,
}

/// The meaning of a name that is no longer an event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormerName {
    /// Its events count under this name.
    Alias(String),
    Deleted,
}

/// The event types of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    listed: BTreeSet<String>,
    /// Whether blobs have only the listed names. Blobs of directories of earlier versions may have others.
    is_whole: bool,
    changes: Vec<Changed>,
    /// It follows from the changes.
    former: BTreeMap<String, FormerName>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaRefused {
    #[error("event type {0:?} is no name: lower-case letters, digits, `_` or `-`, beginning with a letter")]
    Name(String),
    #[error("event type {name} is unknown; known are: {known}")]
    Unknown { name: String, known: String },
    #[error("event type {name} is now called {now}: name that one")]
    Renamed { name: String, now: String },
    #[error("event type {0} is deleted: `tidemark-streams types add` begins a new type of this name")]
    Deleted(String),
    #[error("event type {0} has this name already")]
    SameName(String),
    #[error(
        "event type {0} exists: choose another name, or ask for a merge (`--merge`, `merge=true`), which cannot be undone"
    )]
    Exists(String),
    #[error("{name} is an earlier name of event type {now}: `tidemark-streams types add {name}` frees the name first")]
    AliasInUse { name: String, now: String },
    #[error(
        "{0} is the name of a deleted event type, and events of that type may still come: choose another name, or free this one by \
         `tidemark-streams types add {0}` and ask for a merge (`--merge`, `merge=true`)"
    )]
    DeletedName(String),
    #[error("{EVENT_TYPES_MAX} event types are in use: delete a type that is not needed, or name fewer")]
    TooManyTypes,
    #[error(
        "dimension {0:?} is no name: 1 to {DIMENSION_BYTES_MAX} lower-case letters, digits or `_`, beginning with a letter, and not the \
         name of a field or column, such as tenant or hour"
    )]
    DimensionName(String),
    #[error("event type {name} has dimension {dimension} already, with at most {values_max} values: this bound stays")]
    DimensionExists { name: String, dimension: String, values_max: u32 },
    #[error(
        "dimension {dimension} is one too many: a directory has at most {DIMENSIONS_MAX} for ever, and has {known}"
    )]
    TooManyDimensions { dimension: String, known: String },
    #[error("at most {0} values: give a bound from 1 to {VALUES_MAX}")]
    ValuesMax(u32),
    #[error("{TYPE_CHANGES_MAX} changes of event types were made, the most that a manifest keeps")]
    TooManyChanges,
    #[error(
        "blobs of an earlier version do not say their event types: stop the server and run `tidemark-streams types list`, which reads \
         them once"
    )]
    Unlisted,
}

impl Default for Schema {
    fn default() -> Schema {
        Schema { listed: BTreeSet::new(), is_whole: true, changes: Vec::new(), former: BTreeMap::new() }
    }
}

impl Schema {
    /// The names that are in use.
    pub fn listed(&self) -> &BTreeSet<String> {
        &self.listed
    }

    /// The first of some names that no event type has or had. `None`: there is none, or older blobs may have it. `accepted` are the names
    /// that a server takes now; it may have counted none of them yet.
    pub fn first_unknown<'n>(&self, names: &'n [String], accepted: &[String]) -> Option<&'n str> {
        let is_known =
            |name: &String| self.listed.contains(name) || accepted.contains(name) || self.former.contains_key(name);
        let unknown = names.iter().find(|name| !is_known(name)).map(String::as_str);
        let has_names = !self.listed.is_empty() || !accepted.is_empty();
        unknown.filter(|_| self.is_whole && has_names)
    }

    /// Whether blobs have only the listed names.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn changes(&self) -> &[Changed] {
        &self.changes
    }

    /// Names that are no longer event types.
    pub fn former(&self) -> &BTreeMap<String, FormerName> {
        &self.former
    }

    /// The present name of an event type; `None`: it is deleted.
    pub fn present<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        match self.former.get(name) {
            None => Some(name),
            Some(FormerName::Alias(now)) => Some(now),
            Some(FormerName::Deleted) => None,
        }
    }

    /// When a name was deleted, itself or with the type that it was an earlier name of.
    pub fn deleted_at_ms(&self, name: &str) -> Option<u64> {
        let mut former = BTreeMap::new();
        let mut deleted_at_ms = None;
        for changed in &self.changes {
            follow(&mut former, &changed.change);
            deleted_at_ms = match former.get(name) {
                Some(FormerName::Deleted) => deleted_at_ms.or(Some(changed.at_ms)),
                Some(FormerName::Alias(_)) | None => None,
            };
        }
        deleted_at_ms
    }

    /// The dimensions of its types.
    pub fn dimensions(&self) -> Dimensions {
        let mut dimensions = Dimensions::default();
        self.changes.iter().for_each(|changed| dimensions.follow(&changed.change));
        dimensions
    }

    /// Whether a dimension was ever added.
    pub fn has_dimensions(&self) -> bool {
        self.changes.iter().any(|changed| matches!(changed.change, TypeChange::AddDimension { .. }))
    }

    /// Whether types were merged in a directory with dimensions. Then values of rows depend on the time at which they were counted.
    pub fn has_merged_dimensions(&self) -> bool {
        let is_merge = |changed: &Changed| matches!(changed.change, TypeChange::Rename { merges: true, .. });
        self.has_dimensions() && self.changes.iter().any(is_merge)
    }

    pub fn has_deletions(&self) -> bool {
        self.changes.iter().any(|changed| matches!(changed.change, TypeChange::Delete { .. }))
    }

    /// Adds the names that an owner counts. `None`: an owner of an earlier version, which did not list them.
    pub(crate) fn claim(&mut self, names: Option<&[String]>) -> Result<(), SchemaRefused> {
        let Some(names) = names else {
            self.is_whole = false;
            return Ok(());
        };
        self.list(names)
    }

    /// Adds the names of blobs of earlier versions.
    pub(crate) fn list_all(&mut self, names: &[String]) -> Result<bool, SchemaRefused> {
        self.list(names)?;
        Ok(!std::mem::replace(&mut self.is_whole, true))
    }

    fn list(&mut self, names: &[String]) -> Result<(), SchemaRefused> {
        let new: BTreeSet<&String> =
            names.iter().filter(|name| !self.former.contains_key(*name) && !self.listed.contains(*name)).collect();
        if let Some(name) = new.iter().find(|name| !is_event_type_name(name)) {
            return Err(SchemaRefused::Name(name.chars().take(40).collect()));
        }
        if !new.is_empty() && self.listed.len() + new.len() > EVENT_TYPES_MAX {
            return Err(SchemaRefused::TooManyTypes);
        }
        self.listed.extend(new.into_iter().cloned());
        Ok(())
    }

    /// Makes a change. `false`: it was made before.
    pub(crate) fn change(&mut self, asked: &Changed) -> Result<bool, SchemaRefused> {
        let change = &asked.change;
        if self.is_made(change) {
            return Ok(false);
        }
        self.check(change)?;
        if self.changes.len() >= TYPE_CHANGES_MAX {
            return Err(SchemaRefused::TooManyChanges);
        }
        let mut made = asked.clone();
        // Only the manifest knows the names in use. The identities of types depend on whether two types became one.
        if let TypeChange::Rename { to, merges, .. } = &mut made.change {
            *merges = *merges && self.listed.contains(to);
        }
        if let Some(last) = self.changes.last() {
            made.at_ms = made.at_ms.max(last.at_ms);
            made.log_row = made.log_row.max(last.log_row);
        }
        self.changes.push(made);
        follow(&mut self.former, change);
        match change {
            TypeChange::Rename { from, to, .. } => {
                self.listed.remove(from);
                self.listed.insert(to.clone());
            }
            TypeChange::Delete { name } => {
                self.listed.remove(name);
            }
            TypeChange::Add { name } => {
                self.listed.insert(name.clone());
            }
            TypeChange::AddDimension { .. } => {}
        }
        Ok(true)
    }

    fn is_made(&self, change: &TypeChange) -> bool {
        match change {
            TypeChange::Rename { from, to, .. } => {
                from != to && matches!(self.former.get(from), Some(FormerName::Alias(now)) if now == to)
            }
            TypeChange::Delete { name } => self.former.get(name) == Some(&FormerName::Deleted),
            TypeChange::Add { name } => self.listed.contains(name),
            TypeChange::AddDimension { name, dimension, values_max } => {
                self.dimensions().values_max(name, dimension) == Some(*values_max)
            }
        }
    }

    fn check(&self, change: &TypeChange) -> Result<(), SchemaRefused> {
        if !self.is_whole {
            return Err(SchemaRefused::Unlisted);
        }
        match change {
            TypeChange::Rename { from, to, merges } => self.check_rename(from, to, *merges),
            TypeChange::Delete { name } => self.check_listed(name),
            TypeChange::Add { name } => {
                check_name(name)?;
                match self.listed.len() < EVENT_TYPES_MAX {
                    true => Ok(()),
                    false => Err(SchemaRefused::TooManyTypes),
                }
            }
            TypeChange::AddDimension { name, dimension, values_max } => {
                self.check_listed(name)?;
                self.check_dimension(name, dimension, *values_max)
            }
        }
    }

    fn check_dimension(&self, name: &str, dimension: &str, values_max: u32) -> Result<(), SchemaRefused> {
        check_dimension(dimension, values_max)?;
        let known = self.dimensions();
        if let Some(values_max) = known.values_max(name, dimension) {
            let dimension = dimension.to_owned();
            return Err(SchemaRefused::DimensionExists { name: name.to_owned(), dimension, values_max });
        }
        if known.names.find(dimension).is_none() && known.names.all().len() >= DIMENSIONS_MAX {
            let dimension = dimension.to_owned();
            return Err(SchemaRefused::TooManyDimensions { dimension, known: known.names.shown() });
        }
        Ok(())
    }

    fn check_rename(&self, from: &str, to: &str, merges: bool) -> Result<(), SchemaRefused> {
        self.check_listed(from)?;
        check_name(to)?;
        if from == to {
            return Err(SchemaRefused::SameName(from.to_owned()));
        }
        if self.listed.contains(to) && !merges && !bites(Bug::RenameMergesUnasked) {
            return Err(SchemaRefused::Exists(to.to_owned()));
        }
        match self.former.get(to) {
            Some(FormerName::Alias(now)) if now != from => {
                Err(SchemaRefused::AliasInUse { name: to.to_owned(), now: now.clone() })
            }
            // Producers may still send events of the deleted type.
            Some(FormerName::Deleted) => Err(SchemaRefused::DeletedName(to.to_owned())),
            Some(FormerName::Alias(_)) | None => Ok(()),
        }
    }

    fn check_listed(&self, name: &str) -> Result<(), SchemaRefused> {
        check_name(name)?;
        if self.listed.contains(name) {
            return Ok(());
        }
        Err(match self.former.get(name) {
            Some(FormerName::Alias(now)) => SchemaRefused::Renamed { name: name.to_owned(), now: now.clone() },
            Some(FormerName::Deleted) => SchemaRefused::Deleted(name.to_owned()),
            None => {
                let known = self.listed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                SchemaRefused::Unknown { name: name.to_owned(), known }
            }
        })
    }

    /// Restores the state from a snapshot.
    pub(crate) fn restored(
        listed: Vec<String>,
        is_whole: bool,
        changes: Vec<Changed>,
    ) -> Result<Schema, SchemaRefused> {
        let mut schema = Schema { is_whole, ..Schema::default() };
        if changes.len() > TYPE_CHANGES_MAX {
            return Err(SchemaRefused::TooManyChanges);
        }
        for changed in changes {
            changed.change.names().try_for_each(check_name)?;
            if let TypeChange::AddDimension { dimension, values_max, .. } = &changed.change {
                check_dimension(dimension, *values_max)?;
            }
            follow(&mut schema.former, &changed.change);
            schema.changes.push(changed);
        }
        schema.list(&listed)?;
        let names = schema.dimensions().names;
        match names.all().get(DIMENSIONS_MAX) {
            None => Ok(schema),
            Some(dimension) => {
                Err(SchemaRefused::TooManyDimensions { dimension: dimension.clone(), known: names.shown() })
            }
        }
    }

    /// The event types of an owner or a server with this configuration, after all changes.
    pub fn effective(&self, configured: &EventTypes) -> EventTypes {
        if self.changes.is_empty() {
            return configured.clone();
        }
        let names = self.taken(configured);
        let all: BTreeSet<&str> = self.changes.iter().flat_map(|changed| changed.change.names()).collect();
        let mut eras: Vec<Meanings> = Vec::new();
        let mut former = BTreeMap::new();
        for known in 0..=self.changes.len() {
            let renaming = Renaming::of(self.changes[known..].iter().map(|changed| &changed.change));
            let meaning = |name: &str| match former_name(&former, name).and_then(|name| renaming.name(name)) {
                None => Some(Meaning::Deleted),
                Some(now) => names.iter().position(|known| known == now).map(Meaning::of_position),
            };
            let meanings: BTreeMap<String, Option<Meaning>> =
                all.iter().map(|name| ((*name).to_owned(), meaning(name))).collect();
            // Rows of the log before a change mean what they meant then.
            match eras.last_mut().filter(|era| era.meanings == meanings) {
                Some(era) => era.before_row = self.log_row_of(known),
                None => eras.push(Meanings { before_row: self.log_row_of(known), meanings }),
            }
            if let Some(next) = self.changes.get(known) {
                follow(&mut former, &next.change);
            }
        }
        let dimensions = self.dimensions().of(&names);
        EventTypes::renamed(names, eras, self.identities(), dimensions)
    }

    /// The present names of the configured types, and of the types that had these names before.
    fn taken(&self, configured: &EventTypes) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut take = |name: Option<&str>| {
            if let Some(name) = name.filter(|name| !names.iter().any(|known| known == name)) {
                names.push(name.to_owned());
            }
        };
        configured.names().iter().for_each(|name| take(self.present(name)));
        let mut former = BTreeMap::new();
        for (known, changed) in self.changes.iter().enumerate() {
            let renaming = Renaming::of(self.changes[known..].iter().map(|changed| &changed.change));
            for name in configured.names() {
                take(former_name(&former, name).and_then(|name| renaming.name(name)));
            }
            follow(&mut former, &changed.change);
        }
        names
    }

    fn log_row_of(&self, change: usize) -> u64 {
        self.changes.get(change).map_or(u64::MAX, |changed| changed.log_row)
    }

    /// The name under which a type has always been known.
    pub fn identity(&self, name: &str) -> String {
        self.identities().remove(name).unwrap_or_else(|| name.to_owned())
    }

    /// The identity of each name that differs from it. Ids of events and of files derive from the identity. They stay the same when
    /// a type is renamed, and differ when its name is reused.
    fn identities(&self) -> BTreeMap<String, String> {
        let mut identities: BTreeMap<String, String> = BTreeMap::new();
        for (number, changed) in self.changes.iter().enumerate() {
            match &changed.change {
                TypeChange::Rename { from, to, merges: false } => {
                    let identity = identities.get(from).cloned().unwrap_or_else(|| from.clone());
                    identities.insert(to.clone(), identity);
                }
                // Events of both types keep their ids.
                TypeChange::Rename { merges: true, .. } | TypeChange::Delete { .. } => {}
                TypeChange::AddDimension { .. } => {}
                TypeChange::Add { name } => {
                    // No name of a type has this sign.
                    identities.insert(name.clone(), format!("{name}#{number}"));
                }
            }
        }
        identities
    }
}

fn check_name(name: &str) -> Result<(), SchemaRefused> {
    if is_event_type_name(name) { Ok(()) } else { Err(SchemaRefused::Name(name.chars().take(40).collect())) }
}

fn check_dimension(dimension: &str, values_max: u32) -> Result<(), SchemaRefused> {
    if !is_dimension_name(dimension) {
        return Err(SchemaRefused::DimensionName(dimension.chars().take(40).collect()));
    }
    if (1..=VALUES_MAX).contains(&values_max) { Ok(()) } else { Err(SchemaRefused::ValuesMax(values_max)) }
}

fn former_name<'a>(former: &'a BTreeMap<String, FormerName>, name: &'a str) -> Option<&'a str> {
    match former.get(name) {
        None => Some(name),
        Some(FormerName::Alias(now)) => Some(now),
        Some(FormerName::Deleted) => None,
    }
}

/// Follows a change in the names that are no types any more.
fn follow(former: &mut BTreeMap<String, FormerName>, change: &TypeChange) {
    let mut replace = |name: &String, by: &FormerName| {
        let is_alias = |known: &&mut FormerName| matches!(known, FormerName::Alias(now) if now == name);
        former.values_mut().filter(is_alias).for_each(|known| *known = by.clone());
        former.insert(name.clone(), by.clone());
    };
    match change {
        TypeChange::Rename { from, to, .. } => {
            replace(from, &FormerName::Alias(to.clone()));
            former.remove(to);
        }
        TypeChange::Delete { name } => replace(name, &FormerName::Deleted),
        TypeChange::Add { name } => {
            former.remove(name);
        }
        TypeChange::AddDimension { .. } => {}
    }
}

impl TypeChange {
    fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            TypeChange::Rename { from, to, .. } => (from, Some(to)),
            TypeChange::Delete { name } | TypeChange::Add { name } | TypeChange::AddDimension { name, .. } => {
                (name, None)
            }
        };
        [Some(first), second].into_iter().flatten().map(String::as_str)
    }
}

/// The combined effect of consecutive changes on the names of rows. Other names stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renaming(Vec<Renamed>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Renamed {
    from: String,
    /// `None`: rows of it are deleted.
    to: Option<String>,
}

impl Renaming {
    pub fn of<'a>(changes: impl Iterator<Item = &'a TypeChange>) -> Renaming {
        let mut renaming = Renaming::default();
        changes.for_each(|change| renaming.push(change));
        renaming
    }

    /// Appends a change.
    pub fn push(&mut self, change: &TypeChange) {
        let (from, to) = match change {
            TypeChange::Rename { from, to, .. } => (from, Some(to)),
            TypeChange::Delete { name } => (name, None),
            TypeChange::Add { .. } | TypeChange::AddDimension { .. } => return,
        };
        let is_known = self.0.iter().any(|renamed| renamed.from == *from);
        for renamed in self.0.iter_mut().filter(|renamed| renamed.to.as_ref() == Some(from)) {
            renamed.to = to.cloned();
        }
        if !is_known {
            self.0.push(Renamed { from: from.clone(), to: to.cloned() });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The present name of a row's type; `None`: the type is deleted.
    pub fn name<'a>(&'a self, stored: &'a str) -> Option<&'a str> {
        match self.0.iter().find(|renamed| renamed.from == stored) {
            None => Some(stored),
            Some(renamed) => renamed.to.as_deref(),
        }
    }

    /// A row under its present name; `None`: it is deleted.
    pub fn row<'a>(&'a self, row: &RollupRow<'a>) -> Option<RollupRow<'a>> {
        Some(RollupRow { event_type: self.name(row.event_type)?, ..*row })
    }

    /// Rows under their present names, without deleted rows. `None`: no row changes.
    ///
    /// # Errors
    /// There are too many rows. This never happens for rows that came from one set.
    pub fn rows(&self, rows: &Rollups) -> Result<Option<Rollups>, RowError> {
        if rows.types().iter().all(|name| self.name(name) == Some(name)) {
            return Ok(None);
        }
        let mut renamed = Rollups::new();
        rows.iter().filter_map(|row| self.row(&row).map(|row| renamed.push_checked(row))).collect::<Result<(), _>>()?;
        renamed.combine();
        Ok(Some(renamed))
    }
}

/// The position of a change of event types among the commits of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The epoch at the time of the change. Owners of later epochs knew the change before they took a row.
    pub epoch: Epoch,
    /// The last commit or expiry before the change.
    pub before: Seq,
}

/// The event types of a partition: the schema, and the position of each change of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypesOf {
    pub schema: Arc<Schema>,
    pub positions: Vec<Position>,
}

impl TypesOf {
    /// The effect of all changes after a commit.
    pub fn since(&self, commit: Seq) -> Renaming {
        self.between(commit, Seq(u64::MAX))
    }

    /// The effect of the changes between a commit and a later commit.
    pub fn between(&self, from: Seq, to: Seq) -> Renaming {
        let is_between = |(_, position): &(&Changed, &Position)| from <= position.before && position.before < to;
        Renaming::of(self.changes().filter(is_between).map(|(changed, _)| &changed.change))
    }

    /// The changes and their positions.
    fn changes(&self) -> impl DoubleEndedIterator<Item = (&Changed, &Position)> {
        self.schema.changes.iter().zip(&self.positions)
    }

    /// Whether a name was reused after a commit: a type was added under the earlier name of another one.
    pub fn has_reused_names_since(&self, commit: Seq) -> bool {
        let mut earlier = BTreeSet::new();
        self.changes().any(|(changed, position)| match &changed.change {
            TypeChange::Rename { from: name, .. } | TypeChange::Delete { name } => {
                earlier.insert(name);
                false
            }
            TypeChange::Add { name } => earlier.contains(name) && commit <= position.before,
            TypeChange::AddDimension { .. } => false,
        })
    }

    /// Whether a change in an epoch, between one commit and a later commit, leaves open how rows were counted that the owner took before
    /// the later commit: a reused name, a new dimension, or a merge of types whose values had bounds of their own.
    pub fn is_ambiguous(&self, epoch: Epoch, from: Seq, to: Seq) -> bool {
        let is_between = |(_, position): &(&Changed, &Position)| {
            position.epoch == epoch && from <= position.before && position.before < to
        };
        let has_dimensions = self.schema.has_dimensions();
        let is_ambiguous = |changed: &Changed| match changed.change {
            TypeChange::Add { .. } | TypeChange::AddDimension { .. } => true,
            TypeChange::Rename { merges, .. } => merges && has_dimensions,
            TypeChange::Delete { .. } => false,
        };
        self.changes().filter(is_between).any(|(changed, _)| is_ambiguous(changed))
    }

    /// The schema that the owner of a commit knew.
    pub fn known_by(&self, commit: Seq) -> Schema {
        let known = self.positions.iter().take_while(|position| position.before < commit).count();
        let mut former = BTreeMap::new();
        let changes: Vec<Changed> = self.schema.changes.iter().take(known).cloned().collect();
        changes.iter().for_each(|changed| follow(&mut former, &changed.change));
        Schema { listed: self.schema.listed.clone(), is_whole: self.schema.is_whole, changes, former }
    }

    /// Commits up to this one may have added rows of types that were deleted since. `None`: no type was deleted.
    pub fn deleted_to(&self) -> Option<Seq> {
        let is_deletion = |(changed, _): &(&Changed, &Position)| matches!(changed.change, TypeChange::Delete { .. });
        self.changes().rev().find(is_deletion).map(|(_, position)| position.before)
    }
}

#[cfg(test)]
mod tests;
