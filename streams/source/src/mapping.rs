//! Which columns of a file are the tenant, the listing, the time, the count and the type of an event, and the values of dimensions.

use tidemark_streams_core::event::{EventTypes, is_event_type_name};
use tidemark_streams_core::values::{DimensionNames, is_dimension_name};

/// Bytes of a separator of listings.
const SEPARATOR_BYTES_MAX: usize = 8;
/// The type of events, unless another is named.
pub const TYPE_DEFAULT: &str = "impression";
/// Names of columns that an error shows.
const NAMES_SHOWN_MAX: usize = 20;

/// Names of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// `None`: the catalogue knows the tenant of each listing.
    pub tenant: Option<String>,
    pub listing: String,
    /// The column of listings has pages: each listing of a page is a row of its own. `None`: it has one listing.
    pub pages: Option<Pages>,
    /// `None` in a file of listings: its rows have no time.
    pub at: Option<String>,
    /// `None`: each row counts 1.
    pub count: Option<String>,
    pub event_type: TypeOf,
    pub values: Vec<ValueColumn>,
}

/// How a page names its listings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// What stands between two listings of a text. `None`: pages are lists, and a text is none.
    pub separator: Option<String>,
}

/// A column with the values of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueColumn {
    pub dimension: String,
    pub column: String,
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
    /// Of the dimensions of a mapping, in its order.
    pub values: Vec<T>,
}

/// Why a mapping is none, or does not fit a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    #[error("--map {0:?}: FIELD=COLUMN is expected; fields are tenant, listing or listings, at, n and type")]
    Form(String),
    #[error("--map names listing and listings: leave one out")]
    ListingAndListings,
    #[error(
        "--listings-separator {0:?}: --map names no listings=COLUMN; a column with one listing in a row has no separator"
    )]
    SeparatorWithoutPages(String),
    #[error("--listings-separator {0:?}: 1 to {SEPARATOR_BYTES_MAX} bytes without white space and control characters")]
    Separator(String),
    #[error("--map {0}=COLUMN: a file of listings has the fields tenant and listing only")]
    NotOfListings(String),
    #[error("--map names {0} twice")]
    Twice(String),
    #[error(
        "--map {dimension}={column}: {dimension} is no field and no dimension; fields are tenant, listing or listings, at, n and type; \
         dimensions: {known}. Add a dimension by `tidemark-streams types add-dimension`"
    )]
    UnknownDimension { dimension: String, column: String, known: String },
    #[error(
        "--map {dimension}={column}: event type {event_type} has no dimension {dimension}; its dimensions: {known}. Add it by \
         `tidemark-streams types add-dimension {event_type} {dimension}`, and a new event type first by \
         `tidemark-streams types add {event_type}`"
    )]
    OtherDimension { dimension: String, column: String, event_type: String, known: String },
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
            values: self.values.into_iter().map(change).collect(),
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
            values: self.values.into_iter().map(change).collect::<Result<_, E>>()?,
        })
    }

    pub fn as_ref(&self) -> Columns<&T> {
        let Columns { tenant, listing, at, count, event_type, values } = self;
        Columns { tenant, listing, at, count, event_type, values: values.iter().collect() }
    }

    pub fn as_mut(&mut self) -> Columns<&mut T> {
        let Columns { tenant, listing, at, count, event_type, values } = self;
        Columns { tenant, listing, at, count, event_type, values: values.iter_mut().collect() }
    }
}

impl Mapping {
    /// Reads `[tenant=COLUMN,]listing=COLUMN,at=COLUMN[,n=COLUMN][,type=COLUMN][,DIMENSION=COLUMN]`, and the type of all rows. Pages have
    /// `listings=COLUMN` in place of `listing`.
    /// [`Mapping::check_dimensions`] checks the names of dimensions.
    ///
    /// # Errors
    /// [`MappingError`].
    pub fn parse(text: &str, event_type: Option<&str>) -> Result<Mapping, MappingError> {
        let Named { columns: found, listings, values } = Named::parse(text)?;
        let pages = listings.as_ref().map(|_| Pages::default());
        let listing = match (found.listing, listings) {
            (Some(_), Some(_)) => return Err(MappingError::ListingAndListings),
            (one, page) => one.or(page).ok_or(MappingError::Missing("listing"))?,
        };
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
            tenant: found.tenant,
            listing,
            pages,
            at: Some(found.at.ok_or(MappingError::Missing("at"))?),
            count: found.count,
            event_type,
            values,
        })
    }

    /// The same with a separator of the listings of a page.
    ///
    /// # Errors
    /// The mapping has no pages, or this is no separator.
    pub fn separated(mut self, separator: Option<&str>) -> Result<Mapping, MappingError> {
        let Some(text) = separator else { return Ok(self) };
        let pages = self.pages.as_mut().ok_or_else(|| MappingError::SeparatorWithoutPages(text.to_owned()))?;
        let is_visible = |letter: char| !letter.is_whitespace() && !letter.is_control();
        if text.is_empty() || text.len() > SEPARATOR_BYTES_MAX || !text.chars().all(is_visible) {
            return Err(MappingError::Separator(text.chars().take(SEPARATOR_BYTES_MAX).collect()));
        }
        pages.separator = Some(text.to_owned());
        Ok(self)
    }

    /// Reads `tenant=COLUMN,listing=COLUMN`: the columns of a file of listings.
    ///
    /// # Errors
    /// [`MappingError`].
    pub fn of_listings(text: &str) -> Result<Mapping, MappingError> {
        let Named { columns, listings, values } = Named::parse(text)?;
        let Columns { tenant, listing, at, count, event_type, values: _ } = columns;
        let others = [("listings", listings), ("at", at), ("n", count), ("type", event_type)];
        let other = others.into_iter().find_map(|(field, column)| column.map(|_| field.to_owned()));
        if let Some(field) = other.or_else(|| values.into_iter().next().map(|value| value.dimension)) {
            return Err(MappingError::NotOfListings(field));
        }
        Ok(Mapping {
            tenant: Some(tenant.ok_or(MappingError::Missing("tenant"))?),
            listing: listing.ok_or(MappingError::Missing("listing"))?,
            pages: None,
            at: None,
            count: None,
            event_type: TypeOf::All(TYPE_DEFAULT.to_owned()),
            values: Vec::new(),
        })
    }

    /// Checks that a directory has the dimensions.
    ///
    /// # Errors
    /// [`MappingError::UnknownDimension`].
    pub fn check_dimensions(&self, names: &DimensionNames) -> Result<(), MappingError> {
        match self.values.iter().find(|value| names.find(&value.dimension).is_none()) {
            None => Ok(()),
            Some(ValueColumn { dimension, column }) => Err(MappingError::UnknownDimension {
                dimension: dimension.clone(),
                column: column.clone(),
                known: names.shown(),
            }),
        }
    }

    /// Checks that the type of all rows has the dimensions. Where each row has its own type, each row is checked instead.
    ///
    /// # Errors
    /// [`MappingError::OtherDimension`].
    pub fn check_dimensions_of_type(&self, types: &EventTypes) -> Result<(), MappingError> {
        let name = match &self.event_type {
            TypeOf::All(name) => name,
            TypeOf::Column(_) => return Ok(()),
        };
        let names = types.find(name).map(|event_type| types.dimensions_of(event_type)).unwrap_or_default();
        match self.values.iter().find(|value| names.find(&value.dimension).is_none()) {
            None => Ok(()),
            Some(ValueColumn { dimension, column }) => Err(MappingError::OtherDimension {
                dimension: dimension.clone(),
                column: column.clone(),
                event_type: types.present(name).to_owned(),
                known: names.shown(),
            }),
        }
    }

    /// The names of its columns; `None` where a column is not read.
    pub fn names(&self) -> Columns<Option<&str>> {
        Columns {
            tenant: self.tenant.as_deref(),
            listing: Some(&self.listing),
            at: self.at.as_deref(),
            count: self.count.as_deref(),
            event_type: match &self.event_type {
                TypeOf::All(_) => None,
                TypeOf::Column(name) => Some(name),
            },
            values: self.values.iter().map(|value| Some(value.column.as_str())).collect(),
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

/// The columns that a text names.
struct Named {
    columns: Columns<Option<String>>,
    /// The column of pages.
    listings: Option<String>,
    values: Vec<ValueColumn>,
}

impl Named {
    fn parse(text: &str) -> Result<Named, MappingError> {
        let mut found = Columns::<Option<String>>::default();
        let mut listings = None;
        let mut values: Vec<ValueColumn> = Vec::new();
        for part in text.split(',') {
            let form = || MappingError::Form(part.to_owned());
            let (field, column) = part.split_once('=').ok_or_else(form)?;
            let field = field.trim();
            let column = column.trim().to_owned();
            if column.is_empty() {
                return Err(form());
            }
            let is_twice = match field {
                "tenant" => found.tenant.replace(column).is_some(),
                "listing" => found.listing.replace(column).is_some(),
                "listings" => listings.replace(column).is_some(),
                "at" => found.at.replace(column).is_some(),
                "n" => found.count.replace(column).is_some(),
                "type" => found.event_type.replace(column).is_some(),
                _ if is_dimension_name(field) => {
                    let is_twice = values.iter().any(|known| known.dimension == field);
                    values.push(ValueColumn { dimension: field.to_owned(), column });
                    is_twice
                }
                _ => return Err(form()),
            };
            if is_twice {
                return Err(MappingError::Twice(field.to_owned()));
            }
        }
        Ok(Named { columns: found, listings, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_streams_core::manifest::{Command, Manifest, SetTypes, TypesSet};
    use tidemark_streams_core::schema::TypeChange;

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
        assert_eq!(refused("tenant=a,tenant=b", None), MappingError::Twice("tenant".into()));
        assert_eq!(refused("country=a,country=b", None), MappingError::Twice("country".into()));
        assert_eq!(refused("tenant", None), MappingError::Form("tenant".into()));
        assert_eq!(refused("price-eur=a", None), MappingError::Form("price-eur=a".into()));
        let unknown = Mapping::parse("tenant=a,listing=b,at=c,price=d", None).unwrap();
        let error = unknown.check_dimensions(&DimensionNames::default()).unwrap_err().to_string();
        assert!(error.starts_with("--map price=d: price is no field and no dimension") && error.contains("none"));
        assert_eq!(refused("tenant=a,listing=b,at=c,type=d", Some("click")), MappingError::TwoTypes("d".into()));
        assert_eq!(refused("tenant=a,listing=b,at=c", Some("Click")), MappingError::Type("Click".into()));
    }

    #[test]
    fn mapping_of_pages_has_listings_in_place_of_a_listing() {
        let pages = |separator: Option<&str>| Mapping::parse("tenant=t,listings=l,at=a", None)?.separated(separator);
        let separator = |text: &str| pages(Some(text)).map(|mapping| mapping.pages.unwrap().separator);
        assert_eq!(pages(None).unwrap().pages, Some(Pages { separator: None }));
        assert_eq!(pages(None).unwrap().listing, "l");
        assert_eq!((separator("|"), separator("::")), (Ok(Some("|".to_owned())), Ok(Some("::".to_owned()))));
        for text in ["", " ", "a b", "\u{1}", "123456789"] {
            assert_eq!(separator(text), Err(MappingError::Separator(text.chars().take(8).collect())));
        }
        let refused = |text: &str| Mapping::parse(text, None).unwrap_err();
        assert_eq!(refused("tenant=t,listing=l,listings=l,at=a"), MappingError::ListingAndListings);
        assert_eq!(refused("tenant=t,listings=l,listings=m,at=a"), MappingError::Twice("listings".into()));
        let one = Mapping::parse("tenant=t,listing=l,at=a", None).unwrap();
        assert_eq!(one.separated(Some("|")), Err(MappingError::SeparatorWithoutPages("|".into())));
    }

    #[test]
    fn mapping_of_listings_has_a_tenant_and_a_listing() {
        let mapping = Mapping::of_listings("listing=item,tenant=shop").unwrap();
        let found = mapping.find(&["item", "shop", "at"]).unwrap();
        assert_eq!((found.tenant, found.listing, found.at), (Some(1), Some(0), None));
        let refused = |text: &str| Mapping::of_listings(text).unwrap_err();
        assert_eq!(refused("listing=item"), MappingError::Missing("tenant"));
        assert_eq!(refused("tenant=shop"), MappingError::Missing("listing"));
        for field in ["listings", "at", "n", "type", "country"] {
            let text = format!("tenant=shop,listing=item,{field}=x");
            assert_eq!(refused(&text), MappingError::NotOfListings(field.to_owned()));
        }
    }

    /// Impressions have a country, clicks have none.
    fn types_with_country() -> EventTypes {
        let names = ["impression".to_owned(), "click".to_owned()];
        let name = "impression".to_owned();
        let change = TypeChange::AddDimension { name, dimension: "country".to_owned(), values_max: 9 };
        let mut manifest = Manifest::new();
        for set in [TypesSet::List(names.to_vec()), TypesSet::Change(change)] {
            manifest.apply(&Command::Types(SetTypes { set, asked_at_ms: 0, log_row: 0 }));
        }
        manifest.schema().effective(&EventTypes::new(&names).unwrap())
    }

    #[test]
    fn type_of_all_rows_has_to_have_each_dimension() {
        let types = types_with_country();
        let check = |text: &str, event_type| {
            let mapping = Mapping::parse(&format!("tenant=a,listing=b,at=c,{text}"), event_type).unwrap();
            mapping.check_dimensions_of_type(&types)
        };
        assert_eq!(check("country=land", Some("impression")), Ok(()));
        assert_eq!(check("country=land,type=kind", None), Ok(()), "each row is checked");
        assert_eq!(check("n=d", Some("click")), Ok(()));
        for event_type in ["click", "view"] {
            let refused = check("country=land", Some(event_type)).unwrap_err().to_string();
            let begin =
                format!("--map country=land: event type {event_type} has no dimension country; its dimensions: none.");
            assert!(refused.starts_with(&begin), "{refused}");
            assert!(refused.contains(&format!("types add-dimension {event_type} country`")), "{refused}");
        }
        let refused = check("country=land,surface=d", Some("impression")).unwrap_err().to_string();
        assert!(refused.contains("impression has no dimension surface; its dimensions: country."), "{refused}");
    }
}
