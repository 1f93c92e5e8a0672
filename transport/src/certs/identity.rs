//! Names of processes as their certificates carry them: a URI that says everything, and DNS names to dial by.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Longest cluster name, in bytes.
pub const CLUSTER_BYTES_MAX: usize = 32;
/// Longest name of a data centre, in bytes.
pub const DC_BYTES_MAX: usize = 32;
/// Longest name of a process, in bytes.
pub const NAME_BYTES_MAX: usize = 48;

/// The names of a data centre's aggregators but the first, in the order of their seats; the first has any other.
pub const FURTHER_AGGREGATORS: [&str; 7] = ["second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"];

const SCHEME: &str = "tidemark://";
const DNS_SUFFIX: &str = "tidemark";
const ROLE_BYTES_MAX: usize = 10;
/// RFC 1035: a label has at most 63 bytes, a name at most 253 as text.
const _: () = assert!(NAME_BYTES_MAX <= 63 && DC_BYTES_MAX <= 63 && CLUSTER_BYTES_MAX <= 63);
const _: () = assert!(NAME_BYTES_MAX + ROLE_BYTES_MAX + DC_BYTES_MAX + CLUSTER_BYTES_MAX + DNS_SUFFIX.len() + 4 <= 253);

/// A name that cannot stand in a certificate. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name has no characters.
    #[error("the {what} is empty")]
    Empty {
        /// Which name.
        what: &'static str,
    },
    /// The name is longer than its limit.
    #[error("the {what} starting with {start:?} has {bytes} bytes, the limit is {limit}")]
    TooLong {
        /// Which name.
        what: &'static str,
        /// Its first characters.
        start: String,
        /// Its length.
        bytes: usize,
        /// The longest that is allowed.
        limit: usize,
    },
    /// The name has a character outside `a-z`, `0-9` and `-`.
    #[error("the {what} {value:?} contains {found:?}, allowed are a-z, 0-9 and -")]
    Character {
        /// Which name.
        what: &'static str,
        /// The name.
        value: String,
        /// The first character that is not allowed.
        found: char,
    },
    /// The name begins or ends with `-`, which DNS labels must not.
    #[error("the {what} {value:?} begins or ends with a hyphen")]
    Hyphen {
        /// Which name.
        what: &'static str,
        /// The name.
        value: String,
    },
    /// Only nodes and aggregators can be dialled.
    #[error("a process with the role {role} accepts no connections, expected node or aggregator")]
    NotServer {
        /// The role that was asked for.
        role: Role,
    },
}

/// Text that is no identity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// The text does not have the shape `tidemark://<cluster>/<dc>/<role>/<name>`.
    #[error("{0:?} is not of the form tidemark://<cluster>/<dc>/<role>/<name>")]
    Shape(String),
    /// The third part is no role.
    #[error("{0:?} is no role, expected node, aggregator, client or operator")]
    Role(String),
    /// One of the names is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// The role of a process in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Holds valves; accepts connections.
    Node,
    /// Merges and answers readers; accepts connections.
    Aggregator,
    /// A front end; only dials.
    Client,
    /// A person's tool; only dials.
    Operator,
}

impl Role {
    const ALL: [Self; 4] = [Self::Node, Self::Aggregator, Self::Client, Self::Operator];

    /// The role as it stands in certificates.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Aggregator => "aggregator",
            Self::Client => "client",
            Self::Operator => "operator",
        }
    }

    /// Whether processes of this role accept connections.
    pub fn is_server(self) -> bool {
        matches!(self, Self::Node | Self::Aggregator)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| IdentityError::Role(shortened(text)))
    }
}

/// A process of a cluster. Its names are always valid.
///
/// As text it is `tidemark://<cluster>/<dc>/<role>/<name>`, which is also the URI in its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    cluster: String,
    dc: String,
    role: Role,
    name: String,
}

impl Identity {
    /// Checks the names: `a-z`, `0-9` and inner `-`, at most [`CLUSTER_BYTES_MAX`], [`DC_BYTES_MAX`] and
    /// [`NAME_BYTES_MAX`] bytes.
    pub fn new(cluster: &str, dc: &str, role: Role, name: &str) -> Result<Self, NameError> {
        check_cluster(cluster)?;
        check_name("data centre", dc, DC_BYTES_MAX)?;
        check_name("process name", name, NAME_BYTES_MAX)?;
        Ok(Self { cluster: cluster.to_owned(), dc: dc.to_owned(), role, name: name.to_owned() })
    }

    /// The cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The data centre.
    pub fn dc(&self) -> &str {
        &self.dc
    }

    /// The role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The name of the process, unique among those of its role in its data centre.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which of its data centre's aggregators it is: 1 and so on by the names [`FURTHER_AGGREGATORS`], by any other name 0. Any other
    /// process has 0.
    pub fn seat(&self) -> u8 {
        let further = FURTHER_AGGREGATORS.iter().position(|name| self.role == Role::Aggregator && self.name == *name);
        further.map_or(0, |further| further as u8 + 1)
    }

    /// The first 8 bytes of the SHA-256 of the identity as text: the same for every certificate of the same process.
    pub fn digest(&self) -> u64 {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.to_string().as_bytes());
        digest.as_ref().iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// The DNS names that a certificate of this process carries: for its role in its data centre, and for itself.
    /// Empty for roles that accept no connections.
    pub fn dns_names(&self) -> Vec<String> {
        if !self.role.is_server() {
            return Vec::new();
        }
        let role = format!("{}.{}.{}.{DNS_SUFFIX}", self.role, self.dc, self.cluster);
        let own = format!("{}.{role}", self.name);
        vec![role, own]
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}/{}", self.cluster, self.dc, self.role, self.name)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let shape = || IdentityError::Shape(shortened(text));
        let path = text.strip_prefix(SCHEME).ok_or_else(shape)?;
        let parts: Vec<&str> = path.split('/').collect();
        let [cluster, dc, role, name] = parts[..] else {
            return Err(shape());
        };
        Ok(Self::new(cluster, dc, role.parse()?, name)?)
    }
}

/// The peer that a dialler expects to meet: any server of a role in a data centre, or one of them by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerName {
    dc: String,
    role: Role,
    name: Option<String>,
}

impl PeerName {
    /// Any process of this role in this data centre.
    pub fn any(dc: &str, role: Role) -> Result<Self, NameError> {
        check_name("data centre", dc, DC_BYTES_MAX)?;
        if !role.is_server() {
            return Err(NameError::NotServer { role });
        }
        Ok(Self { dc: dc.to_owned(), role, name: None })
    }

    /// A single process.
    pub fn one(dc: &str, role: Role, name: &str) -> Result<Self, NameError> {
        check_name("process name", name, NAME_BYTES_MAX)?;
        Ok(Self { name: Some(name.to_owned()), ..Self::any(dc, role)? })
    }

    /// The DNS name that the peer's certificate must carry.
    pub fn dns_name(&self, cluster: &str) -> String {
        let role = format!("{}.{}.{cluster}.{DNS_SUFFIX}", self.role, self.dc);
        match &self.name {
            Some(name) => format!("{name}.{role}"),
            None => role,
        }
    }
}

/// Checks a cluster's name.
pub(crate) fn check_cluster(cluster: &str) -> Result<(), NameError> {
    check_name("cluster name", cluster, CLUSTER_BYTES_MAX)
}

/// The URI of a cluster itself, in its CA's certificate.
pub(crate) fn cluster_uri(cluster: &str) -> String {
    format!("{SCHEME}{cluster}")
}

/// The cluster that a CA's URI names.
pub(crate) fn cluster_of_uri(uri: &str) -> Option<&str> {
    uri.strip_prefix(SCHEME).filter(|cluster| check_cluster(cluster).is_ok())
}

fn check_name(what: &'static str, value: &str, limit: usize) -> Result<(), NameError> {
    if value.is_empty() {
        return Err(NameError::Empty { what });
    }
    if value.len() > limit {
        return Err(NameError::TooLong { what, start: shortened(value), bytes: value.len(), limit });
    }
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-');
    if let Some(found) = value.chars().find(|c| !allowed(*c)) {
        return Err(NameError::Character { what, value: value.to_owned(), found });
    }
    if value.starts_with('-') || value.ends_with('-') {
        return Err(NameError::Hyphen { what, value: value.to_owned() });
    }
    Ok(())
}

/// Enough of a text to recognise it in an error message.
fn shortened(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identity_survives_its_text() {
        let identity = Identity::new("demo", "usa-0", Role::Aggregator, "a1").unwrap();
        assert_eq!(identity.to_string(), "tidemark://demo/usa-0/aggregator/a1");
        assert_eq!(identity.to_string().parse::<Identity>().unwrap(), identity);
    }

    #[test]
    fn the_seat_of_an_aggregator_is_in_its_name() {
        let seat = |role, name: &str| Identity::new("demo", "usa-0", role, name).unwrap().seat();
        for (further, name) in FURTHER_AGGREGATORS.iter().enumerate() {
            assert_eq!(usize::from(seat(Role::Aggregator, name)), further + 1, "{name}");
            assert_eq!(seat(Role::Node, name), 0, "{name}");
        }
        for first in ["0", "first", "1", "ninth"] {
            assert_eq!(seat(Role::Aggregator, first), 0, "{first}");
        }
    }

    #[test]
    fn only_servers_have_dns_names() {
        let node = Identity::new("demo", "usa-0", Role::Node, "n1").unwrap();
        assert_eq!(node.dns_names(), ["node.usa-0.demo.tidemark", "n1.node.usa-0.demo.tidemark"]);
        let client = Identity::new("demo", "usa-0", Role::Client, "fe1").unwrap();
        assert!(client.dns_names().is_empty());
        assert_eq!(PeerName::any("usa-0", Role::Client), Err(NameError::NotServer { role: Role::Client }));
    }

    #[test]
    fn a_bad_name_is_refused_with_its_reason() {
        let dc = |dc: &str| Identity::new("demo", dc, Role::Node, "n").unwrap_err();
        assert_eq!(dc(""), NameError::Empty { what: "data centre" });
        assert!(matches!(dc(&"x".repeat(33)), NameError::TooLong { bytes: 33, limit: 32, .. }));
        assert!(matches!(dc("Usa"), NameError::Character { found: 'U', .. }));
        assert!(matches!(dc("usa-"), NameError::Hyphen { .. }));
    }

    #[test]
    fn a_bad_uri_is_refused_with_its_reason() {
        let parse = |text: &str| text.parse::<Identity>().unwrap_err();
        assert!(matches!(parse("http://demo/usa-0/node/n"), IdentityError::Shape(_)));
        assert!(matches!(parse("tidemark://demo/usa-0/node"), IdentityError::Shape(_)));
        assert!(matches!(parse("tidemark://demo/usa-0/king/n"), IdentityError::Role(role) if role == "king"));
        assert!(matches!(parse("tidemark://demo/usa_0/node/n"), IdentityError::Name(_)));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in ".{0,200}") {
            if let Ok(identity) = text.parse::<Identity>() {
                prop_assert_eq!(identity.to_string(), text);
            }
        }
    }
}
