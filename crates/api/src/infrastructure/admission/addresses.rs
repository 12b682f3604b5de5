//! Addresses, ranges and networks as people write them.

use std::net::IpAddr;

use ipnet::IpNet;

/// Addresses from one to another, both included and of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    first: IpAddr,
    last: IpAddr,
}

impl Span {
    /// Reads `10.0.0.5`, `10.0.0.5-10.0.0.9` or `10.0.0.0/24`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is neither an address, nor a range (first-last), nor a network (address/prefix)"
            )
        };
        let text = text.trim();
        if let Ok(network) = text.parse::<IpNet>() {
            return Ok(Self {
                first: network.network(),
                last: network.broadcast(),
            });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first: IpAddr = first.trim().parse().map_err(|_| wrong())?;
        let last: IpAddr = last.trim().parse().map_err(|_| wrong())?;
        if first.is_ipv6() != last.is_ipv6() || first > last {
            return Err(wrong());
        }
        Ok(Self { first, last })
    }

    pub(super) fn is_ipv6(&self) -> bool {
        self.first.is_ipv6()
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.first <= address && address <= self.last
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Whether a text may be a host's name.
pub(super) fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // All digits and dots is an address with a mistake in it, not a name.
    text.len() <= 253
        && text.split('.').all(label)
        && !text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_knows_what_it_holds() {
        let span = Span::parse("10.0.0.0/30").unwrap();
        assert!(span.contains("10.0.0.3".parse().unwrap()));
        assert!(!span.contains("10.0.0.4".parse().unwrap()));
        assert!(!span.contains("2001:db8::1".parse().unwrap()));
        assert!(span.overlaps(&Span::parse("10.0.0.3-10.0.0.9").unwrap()));
        assert!(!span.overlaps(&Span::parse("10.0.0.4-10.0.0.9").unwrap()));
        assert!(!span.overlaps(&Span::parse("::/0").unwrap()));
    }

    #[test]
    fn nonsense_is_no_span() {
        for text in [
            "10.0.0",
            "10.0.0.9-10.0.0.5",
            "10.0.0.1-2001:db8::1",
            "",
            "10.0.0.0/40",
        ] {
            assert!(Span::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_broken_address_is_no_host_name() {
        assert!(is_host_name("api.example.com"));
        assert!(!is_host_name("10.0.0.256"));
        assert!(!is_host_name("not a name"));
        assert!(!is_host_name(""));
    }
}
