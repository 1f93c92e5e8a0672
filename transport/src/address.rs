//! Network addresses as people write them: a host name or an IP address, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// Longest host name, in bytes, without a dot at its end (RFC 1035).
pub const HOST_BYTES_MAX: usize = 253;
/// Longest label of a host name, in bytes: what stands between two dots (RFC 1035).
pub const LABEL_BYTES_MAX: usize = 63;
/// Characters of a refused value that an error message shows.
const SHOWN_MAX: usize = 300;

/// A text that is no address. The value in each is what was given, cut to 300 characters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Nothing stands behind a colon.
    #[error("{value:?} has no port: HOST:PORT is expected, such as node-0.example:7300 or [::1]:7300")]
    NoPort {
        /// The text.
        value: String,
    },
    /// Nothing stands in front of the port.
    #[error("{value:?} has no host: HOST:PORT is expected, such as node-0.example:7300")]
    NoHost {
        /// The text.
        value: String,
    },
    /// The port is no number, or out of range.
    #[error("{value:?} has the port {port:?}; 1 to 65535 is expected")]
    Port {
        /// The text.
        value: String,
        /// The text behind the last colon.
        port: String,
    },
    /// An IPv6 address without brackets: its port could be a part of it.
    #[error("{value:?} is an IPv6 address without brackets; [{host}]:PORT is expected")]
    Brackets {
        /// The text.
        value: String,
        /// The address.
        host: Ipv6Addr,
    },
    /// No IPv6 address stands between brackets.
    #[error("{value:?}: {host:?} is no IPv6 address, which is expected between brackets")]
    Ipv6 {
        /// The text.
        value: String,
        /// The text of the host.
        host: String,
    },
    /// A name with a last label that is a number: resolvers take it for an IPv4 address.
    #[error("{value:?} ends like an IPv4 address and is none: four numbers of 0 to 255 are expected, or a host name")]
    Ipv4 {
        /// The text.
        value: String,
    },
    /// The name is too long.
    #[error("{value:?} has a host name of {bytes} bytes; at most {HOST_BYTES_MAX} are allowed")]
    HostTooLong {
        /// The text.
        value: String,
        /// The name's length.
        bytes: usize,
    },
    /// A label has no characters or too many.
    #[error("{value:?} has a label of {bytes} bytes ({label:?}); labels of 1 to {LABEL_BYTES_MAX} are allowed")]
    Label {
        /// The text.
        value: String,
        /// The label.
        label: String,
        /// The label's length.
        bytes: usize,
    },
    /// A label has a character that none may have.
    #[error("{value:?} has {found:?} in its host name; a-z, 0-9, - and _ are allowed (other letters as xn--…)")]
    Character {
        /// The text.
        value: String,
        /// The first of them.
        found: char,
    },
    /// A label begins or ends with a hyphen.
    #[error("{value:?} has the label {label:?}; a label must not begin or end with a hyphen")]
    Hyphen {
        /// The text.
        value: String,
        /// The label.
        label: String,
    },
}

/// A host and a port: where a process is reached. A host name is resolved whenever it is dialled.
///
/// As text it is `node-0.example:7300`, `192.0.2.1:7300` or `[2001:db8::1]:7300`. Names are kept in lower case, as DNS does not distinguish
/// cases. Two different names may be the same host: this is unknown before they are resolved.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort(Kind);

/// The part in front of the port.
pub(crate) enum Host<'a> {
    Ip(SocketAddr),
    Name(&'a str),
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Ip(SocketAddr),
    Name { host: Arc<str>, port: u16 },
}

impl HostPort {
    pub(crate) fn host(&self) -> Host<'_> {
        match &self.0 {
            Kind::Ip(addr) => Host::Ip(*addr),
            Kind::Name { host, .. } => Host::Name(host),
        }
    }

    /// The address, if no name has to be resolved for it.
    pub fn ip(&self) -> Option<SocketAddr> {
        match &self.0 {
            Kind::Ip(addr) => Some(*addr),
            Kind::Name { .. } => None,
        }
    }

    /// The host name, if it has one.
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Kind::Ip(_) => None,
            Kind::Name { host, .. } => Some(host),
        }
    }

    /// The port; 0 only in an address that was made of a [`SocketAddr`] with that port.
    pub fn port(&self) -> u16 {
        match &self.0 {
            Kind::Ip(addr) => addr.port(),
            Kind::Name { port, .. } => *port,
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(addr: SocketAddr) -> HostPort {
        HostPort(Kind::Ip(addr))
    }
}

impl From<&HostPort> for HostPort {
    fn from(address: &HostPort) -> HostPort {
        address.clone()
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<HostPort, AddressError> {
        let value = || shortened(text);
        if let Ok(host) = text.parse::<Ipv6Addr>() {
            return Err(AddressError::Brackets { value: value(), host });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port),
            _ => return Err(AddressError::NoPort { value: value() }),
        };
        let refused = || AddressError::Port { value: value(), port: shortened(port) };
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let number = port.parse::<u16>().ok().filter(|number| is_number && *number > 0).ok_or_else(refused)?;
        if let Some(inner) = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
            // An address with a zone, such as fe80::1%2, is one with its port only.
            let addr = text.parse::<SocketAddr>().ok().filter(SocketAddr::is_ipv6);
            let refused = || AddressError::Ipv6 { value: value(), host: shortened(inner) };
            return addr.map(HostPort::from).ok_or_else(refused);
        }
        match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => Ok(HostPort::from(SocketAddr::new(ip.into(), number))),
            Ok(IpAddr::V6(host)) => Err(AddressError::Brackets { value: value(), host }),
            Err(_) => {
                check_name(text, host)?;
                Ok(HostPort(Kind::Name { host: host.to_ascii_lowercase().into(), port: number }))
            }
        }
    }
}

/// Checks a host name; `text` is for errors. A dot at its end says that no search domain is to be tried.
fn check_name(text: &str, host: &str) -> Result<(), AddressError> {
    let value = || shortened(text);
    let name = host.strip_suffix('.').unwrap_or(host);
    if host.is_empty() {
        return Err(AddressError::NoHost { value: value() });
    }
    if name.len() > HOST_BYTES_MAX {
        return Err(AddressError::HostTooLong { value: value(), bytes: name.len() });
    }
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    for label in name.split('.') {
        if label.is_empty() || label.len() > LABEL_BYTES_MAX {
            return Err(AddressError::Label { value: value(), label: label.to_owned(), bytes: label.len() });
        }
        if let Some(found) = label.chars().find(|c| !allowed(c)) {
            return Err(AddressError::Character { value: value(), found });
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(AddressError::Hyphen { value: value(), label: label.to_owned() });
        }
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if is_number(last) { Err(AddressError::Ipv4 { value: value() }) } else { Ok(()) }
}

/// Whether `inet_aton`, which resolvers ask first, takes a label for a part of an IPv4 address: decimal or hexadecimal.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Ip(addr) => addr.fmt(f),
            Kind::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Debug for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for HostPort {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostPort, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> AddressError {
        text.parse::<HostPort>().unwrap_err()
    }

    #[test]
    fn names_and_ip_addresses_are_read() {
        for text in ["node-0.tidemark.svc:7171", "localhost:7100", "a:1", "my_host.example.:65535", "7.is.a.name:7"] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.ip()), (text, None));
            assert_eq!(address.name(), text.rsplit_once(':').map(|(host, _)| host));
        }
        for text in ["127.0.0.1:7100", "[::1]:7100", "[2001:db8::1]:1", "[fe80::1%2]:65535"] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!((address.ip(), address.name()), (text.parse().ok(), None));
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("Node-0.Example:80".parse::<HostPort>(), "node-0.example:80".parse());
    }

    #[test]
    fn bad_ports_are_refused_with_value_and_limit() {
        for port in ["0", "65536", "x", "", "+1", "-1", "99999999999", "1 "] {
            let text = format!("node-0:{port}");
            let error = refused(&text);
            assert_eq!(error, AddressError::Port { value: text.clone(), port: port.to_owned() });
            assert!(error.to_string().contains(&format!("{text:?}")) && error.to_string().contains("1 to 65535"));
        }
        for text in ["node-0", "127.0.0.1", "[::1]", ""] {
            assert_eq!(refused(text), AddressError::NoPort { value: text.to_owned() });
        }
    }

    #[test]
    fn bad_hosts_are_refused_with_value_and_limit() {
        let value = |text: &str| text.to_owned();
        assert_eq!(refused(":80"), AddressError::NoHost { value: value(":80") });
        for text in ["::1", "::1:80", "fe80::1:7100"] {
            assert!(matches!(refused(text), AddressError::Brackets { .. }), "{text}");
        }
        for text in ["[node]:80", "[]:80", "[127.0.0.1]:80", "[::1%x]:80"] {
            assert!(matches!(refused(text), AddressError::Ipv6 { .. }), "{text}");
        }
        for text in ["10.0.0.256:80", "10.0.0:80", "1:80", "0x7f.1:80", "a.0X7F:80", "10.0.0.1.:80"] {
            assert_eq!(refused(text), AddressError::Ipv4 { value: value(text) });
        }
        for (text, found) in [("a b:80", ' '), ("http://a:80", ':'), ("a/b:80", '/'), ("bücher.example:80", 'ü')] {
            assert_eq!(refused(text), AddressError::Character { value: value(text), found });
        }
        for (text, label) in [("-a.b:80", "-a"), ("a.b-:80", "b-")] {
            assert_eq!(refused(text), AddressError::Hyphen { value: value(text), label: label.to_owned() });
        }
        for text in ["a..b:80", ".a:80", ".:80", "a..:80"] {
            assert!(matches!(refused(text), AddressError::Label { bytes: 0, .. }), "{text}");
        }
    }

    #[test]
    fn limits_of_names_are_those_of_dns() {
        let label = "x".repeat(LABEL_BYTES_MAX);
        assert!(format!("{label}:80").parse::<HostPort>().is_ok());
        assert!(matches!(refused(&format!("{label}x:80")), AddressError::Label { bytes: 64, .. }));
        let longest = [&label[..], &label, &label, &label[..61]].join(".");
        assert_eq!(longest.len(), HOST_BYTES_MAX);
        assert!(format!("{longest}:80").parse::<HostPort>().is_ok());
        assert!(format!("{longest}.:80").parse::<HostPort>().is_ok(), "the dot at the end is not counted");
        let error = refused(&format!("{longest}x:80"));
        assert!(matches!(error, AddressError::HostTooLong { bytes: 254, .. }));
        assert!(error.to_string().contains("254 bytes; at most 253"), "{error}");
        assert!(refused(&"x".repeat(100_000)).to_string().len() < 500);
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_refused(text in ".{0,80}") {
            if let Ok(address) = text.parse::<HostPort>() {
                prop_assert_eq!(address.to_string().parse::<HostPort>(), Ok(address));
            }
        }

        #[test]
        fn every_name_within_the_limits_is_read(
            labels in prop::collection::vec("[a-z_]([a-z0-9_-]{0,61}[a-z0-9_])?", 1..4),
            port in 1..=u16::MAX,
        ) {
            let text = format!("{}:{port}", labels.join("."));
            let address: HostPort = text.parse().unwrap();
            prop_assert_eq!((address.to_string(), address.port()), (text, port));
        }

        #[test]
        fn every_ip_address_is_read(ip: IpAddr, port in 1..=u16::MAX) {
            let addr = SocketAddr::new(ip, port);
            prop_assert_eq!(addr.to_string().parse::<HostPort>(), Ok(HostPort::from(addr)));
        }
    }
}
