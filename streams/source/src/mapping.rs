//! Which columns of a file are the tenant, the listing, the time, the count and the type of an event.

use tidemark_streams_core::event::is_event_type_name;

/// The type of events, unless another is named.
pub const TYPE_DEFAULT: &str = "impression";
/// Names of columns that an error shows.
const NAMES_SHOWN_MAX: usize = 20;

/// Names of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub tenant: String,
    pub listing: String,
    pub at: String,
    /// `None`: each row counts 1.
    pub count: Option<String>,
    pub event_type: TypeOf,
}

/// Where the type of an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeOf {
    /// All rows are of this type.
    All(String),
    /// In a column of this name.
    Column(String),
}

/// A value for each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns<T> {
    pub tenant: T,
    pub listing: T,
    pub at: T,
    pub count: T,
    pub event_type: T,
}

/// Why a mapping is none, or does not fit a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    #[error("--map {0:?}: FIELD=COLUMN is expected; fields are tenant, listing, at, n and type")]
    Form(String),
    #[error("--map names {0} twice")]
    Twice(&'static str),
    #[error("--map lacks {0}: name its column, such as {0}=COLUMN")]
    Missing(&'static str),
    #[error("--map has type={0}, and --type is given too: leave one out")]
    TwoTypes(String),
    #[error("--type {0:?}: at most 32 lower-case letters, digits, `_` or `-`, beginning with a letter")]
    Type(String),
    #[error("the file has no column {name:?}: its columns are {columns}")]
    NoColumn { name: String, columns: String },
    #[error("the file has two columns {0:?}: give them different names")]
    TwoColumns(String),
}

impl<T> Columns<T> {
    #[inline]
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Columns<U> {
        Columns {
            tenant: change(self.tenant),
            listing: change(self.listing),
            at: change(self.at),
            count: change(self.count),
            event_type: change(self.event_type),
        }
    }

    /// As [`Columns::map`], up to the first error.
    pub fn try_map<U, E>(self, mut change: impl FnMut(T) -> Result<U, E>) -> Result<Columns<U>, E> {
        Ok(Columns {
            tenant: change(self.tenant)?,
            listing: change(self.listing)?,
            at: change(self.at)?,
            count: change(self.count)?,
            event_type: change(self.event_type)?,
        })
    }

    pub fn as_ref(&self) -> Columns<&T> {
        let Columns { tenant, listing, at, count, event_type } = self;
        Columns { tenant, listing, at, count, event_type }
    }

    pub fn as_mut(&mut self) -> Columns<&mut T> {
        let Columns { tenant, listing, at, count, event_type } = self;
        Columns { tenant, listing, at, count, event_type }
    }
}

impl Mapping {
    /// Reads `tenant=COLUMN,listing=COLUMN,at=COLUMN[,n=COLUMN][,type=COLUMN]`, and the type of all rows.
    ///
    /// # Errors
    /// [`MappingError`].
    pub fn parse(text: &str, event_type: Option<&str>) -> Result<Mapping, MappingError> {
        let mut found = Columns::<Option<String>>::default();
        for part in text.split(',') {
            let form = || MappingError::Form(part.to_owned());
            let (field, column) = part.split_once('=').ok_or_else(form)?;
            let (name, place) = match field.trim() {
                "tenant" => ("tenant", &mut found.tenant),
                "listing" => ("listing", &mut found.listing),
                "at" => ("at", &mut found.at),
                "n" => ("n", &mut found.count),
                "type" => ("type", &mut found.event_type),
                _ => return Err(form()),
            };
            if column.trim().is_empty() {
                return Err(form());
            }
            if place.replace(column.trim().to_owned()).is_some() {
                return Err(MappingError::Twice(name));
            }
        }
        let event_type = match (found.event_type, event_type) {
            (Some(column), None) => TypeOf::Column(column),
            (Some(column), Some(_)) => return Err(MappingError::TwoTypes(column)),
            (None, name) => TypeOf::All(name.unwrap_or(TYPE_DEFAULT).to_owned()),
        };
        if let TypeOf::All(name) = &event_type
            && !is_event_type_name(name)
        {
            return Err(MappingError::Type(name.clone()));
        }
        Ok(Mapping {
            tenant: found.tenant.ok_or(MappingError::Missing("tenant"))?,
            listing: found.listing.ok_or(MappingError::Missing("listing"))?,
            at: found.at.ok_or(MappingError::Missing("at"))?,
            count: found.count,
            event_type,
        })
    }

    /// The names of its columns; `None` where a column is not read.
    pub fn names(&self) -> Columns<Option<&str>> {
        Columns {
            tenant: Some(&self.tenant),
            listing: Some(&self.listing),
            at: Some(&self.at),
            count: self.count.as_deref(),
            event_type: match &self.event_type {
                TypeOf::All(_) => None,
                TypeOf::Column(name) => Some(name),
            },
        }
    }

    /// Where its columns stand among those of a file. Upper and lower case of ASCII letters are the same.
    ///
    /// # Errors
    /// A column is missing, or there are two of it.
    pub fn find<S: AsRef<str>>(&self, columns: &[S]) -> Result<Columns<Option<usize>>, MappingError> {
        self.names().try_map(|name| {
            let Some(name) = name else { return Ok(None) };
            let is_it = |at: &usize| columns[*at].as_ref().eq_ignore_ascii_case(name);
            let mut found = (0..columns.len()).filter(is_it);
            match (found.next(), found.next()) {
                (Some(at), None) => Ok(Some(at)),
                (Some(_), Some(_)) => Err(MappingError::TwoColumns(name.to_owned())),
                (None, _) => {
                    let shown: Vec<&str> = columns.iter().take(NAMES_SHOWN_MAX).map(AsRef::as_ref).collect();
                    Err(MappingError::NoColumn { name: name.to_owned(), columns: shown.join(", ") })
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_is_read_from_its_text() {
        let mapping = Mapping::parse("tenant=store_id, listing=product_id,at=ts,n=quantity", None).unwrap();
        assert_eq!(mapping.event_type, TypeOf::All("impression".into()));
        let found = mapping.find(&["quantity", "TS", "store_id", "product_id", "price"]).unwrap();
        assert_eq!((found.tenant, found.at, found.count, found.event_type), (Some(2), Some(1), Some(0), None));
        assert!(mapping.find(&["ts", "store_id"]).unwrap_err().to_string().contains("its columns are ts, store_id"));
        assert_eq!(mapping.find(&["ts", "Ts", "store_id", "product_id"]), Err(MappingError::TwoColumns("ts".into())));
    }

    #[test]
    fn mapping_that_is_none_is_refused() {
        let refused = |text: &str, event_type| Mapping::parse(text, event_type).unwrap_err();
        assert_eq!(refused("tenant=a,listing=b", None), MappingError::Missing("at"));
        assert_eq!(refused("tenant=a,tenant=b", None), MappingError::Twice("tenant"));
        assert_eq!(refused("tenant", None), MappingError::Form("tenant".into()));
        assert_eq!(refused("price=a", None), MappingError::Form("price=a".into()));
        assert_eq!(refused("tenant=a,listing=b,at=c,type=d", Some("click")), MappingError::TwoTypes("d".into()));
        assert_eq!(refused("tenant=a,listing=b,at=c", Some("Click")), MappingError::Type("Click".into()));
    }
}
