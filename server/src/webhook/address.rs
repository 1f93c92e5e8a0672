//! Which addresses a webhook may reach. Others control DNS entries, and these must not lead us to addresses that only we can
//! reach. Such addresses are other processes of this machine, its network, or a cloud's metadata service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the public Internet (IANA's special-purpose registries, RFC 6890 and its successors). An IPv6
/// address that stands for an IPv4 one is judged as that.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    let this_network = a == 0;
    let shared = a == 100 && (64..128).contains(&b);
    let protocols = (a, b, c) == (192, 0, 0);
    let relays = (a, b, c) == (192, 88, 99);
    let benchmarks = a == 198 && (18..20).contains(&b);
    // Multicast, what is reserved, and broadcast.
    let above = a >= 224;
    let named = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_documentation();
    !(this_network || shared || protocols || relays || benchmarks || above || named)
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let [first, second, ..] = v6.segments();
    let embedded = |at: usize| {
        let octets = v6.octets();
        Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3])
    };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    match (first, second) {
        // Translated (RFC 6052), all of the well-known prefix.
        (0x64, 0xff9b) if v6.segments()[2..6] == [0; 4] => is_public_v4(embedded(12)),
        // 6to4 (RFC 3056).
        (0x2002, _) => is_public_v4(embedded(2)),
        // Protocol assignments, Teredo and ORCHID among them; documentation.
        (0x2001, 0..0x200 | 0xdb8) | (0x3fff, 0..0x1000) => false,
        // Global unicast; everything else is local, multicast, unspecified or reserved.
        (0x2000..0x4000, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_public_internet_is_known() {
        let private = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ];
        for text in private {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn what_is_public_is_known() {
        let public = [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2001:4860::1",
            "2002:101:101::1",
            "2606:4700::1",
            "3ffe::1",
        ];
        for text in public {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
