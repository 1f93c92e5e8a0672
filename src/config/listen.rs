//! Where a process opens its socket, which need not be where others reach it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use tidemark_transport::{BindError, Credentials, Endpoint, EndpointOptions, HostPort};

/// The setting of a process for its socket: an IP address, a port, both or nothing. A missing part is that of the advertised address, at
/// which others reach the process by the layout; of a host name, all addresses of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenAddress {
    ip: Option<IpAddr>,
    port: Option<u16>,
}

/// A text that says nothing of a socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is nothing to listen at: an IP address of this machine, :PORT or both are expected, such as 0.0.0.0, [::]:7300 or :7300, with a \
     port of 1 to 65535"
)]
pub struct ListenError(String);

impl ListenAddress {
    /// Opens the socket of a process that others reach at `advertised`.
    ///
    /// # Errors
    /// The address is in use, or not one of this machine's.
    pub fn bind(
        self,
        advertised: &HostPort,
        credentials: Credentials,
        options: EndpointOptions,
    ) -> Result<Endpoint, BindError> {
        let port = self.port.unwrap_or(advertised.port());
        match (self.ip, advertised.ip()) {
            (Some(ip), _) => Endpoint::bind(SocketAddr::new(ip, port), credentials, options),
            (None, Some(mut addr)) => {
                addr.set_port(port);
                Endpoint::bind(addr, credentials, options)
            }
            (None, None) => Endpoint::bind_any(port, credentials, options),
        }
    }

    /// Whether the IP address is that of the layout.
    pub fn is_advertised(self) -> bool {
        self.ip.is_none()
    }
}

impl FromStr for ListenAddress {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<ListenAddress, ListenError> {
        let refused = || ListenError(text.chars().take(100).collect());
        let port = |text: &str| {
            let number = text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()));
            number.map(Some).ok_or_else(refused)
        };
        if text.is_empty() {
            return Ok(ListenAddress::default());
        }
        if let Some(text) = text.strip_prefix(':').filter(|text| !text.starts_with(':')) {
            return Ok(ListenAddress { ip: None, port: port(text)? });
        }
        if let Ok(addr) = text.parse::<SocketAddr>() {
            return Ok(ListenAddress { ip: Some(addr.ip()), port: port(&addr.port().to_string())? });
        }
        let inner = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
        let ip = inner.map_or_else(|| text.parse().ok(), |inner| inner.parse().ok().map(IpAddr::V6));
        ip.map(|ip| ListenAddress { ip: Some(ip), port: None }).ok_or_else(refused)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip, self.port) {
            (None, None) => Ok(()),
            (None, Some(port)) => write!(f, ":{port}"),
            (Some(ip), None) => ip.fmt(f),
            (Some(ip), Some(port)) => SocketAddr::new(ip, port).fmt(f),
        }
    }
}

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ListenAddress, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_takes_an_ip_address_a_port_both_or_nothing() {
        let read =
            |text: &str| text.parse::<ListenAddress>().map(|listen| (listen.ip.map(|ip| ip.to_string()), listen.port));
        let ip = |text: &str| Some(text.to_owned());
        assert_eq!(read(""), Ok((None, None)));
        assert_eq!(read(":7300"), Ok((None, Some(7_300))));
        assert_eq!(read("0.0.0.0"), Ok((ip("0.0.0.0"), None)));
        assert_eq!((read("::"), read("[::]")), (Ok((ip("::"), None)), Ok((ip("::"), None))));
        assert_eq!(read("10.0.0.1:80"), Ok((ip("10.0.0.1"), Some(80))));
        assert_eq!(read("[::1]:65535"), Ok((ip("::1"), Some(65_535))));
        for text in ["", ":7300", "0.0.0.0", "::", "10.0.0.1:80", "[::1]:65535"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_of_a_machine_is_refused_with_its_value() {
        for text in
            ["localhost", "localhost:80", "10.0.0.1:0", ":0", ":65536", ":+1", ":", "10.0.0.256", "[10.0.0.1]", "[::1"]
        {
            let error = text.parse::<ListenAddress>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("1 to 65535"), "{error}");
        }
    }
}
