//! Amounts of memory and disk, in bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount of memory or disk.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Size(u64);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Size {
    /// Nothing at all.
    pub const ZERO: Size = Size(0);

    /// So many bytes.
    pub const fn bytes(n: u64) -> Self {
        Self(n)
    }

    /// So many mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(MIB))
    }

    /// So many gibibytes.
    pub const fn gib(n: u64) -> Self {
        Self(n.saturating_mul(GIB))
    }

    /// The amount in bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// The amount in whole mebibytes, rounded up: what is asked for must fit.
    pub const fn as_mib(self) -> u64 {
        self.0.div_ceil(MIB)
    }

    /// Reads PVE's own notation: digits with an optional K, M, G or T.
    pub fn from_pve(text: &str) -> Option<Self> {
        let (number, unit) = match text.char_indices().next_back()? {
            (_, c) if c.is_ascii_digit() => (text, 1),
            (at, 'K') => (&text[..at], KIB),
            (at, 'M') => (&text[..at], MIB),
            (at, 'G') => (&text[..at], GIB),
            (at, 'T') => (&text[..at], GIB << 10),
            _ => return None,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit).map(Self);
        }
        let (whole, fraction) = number.split_once('.')?;
        if fraction.is_empty()
            || fraction.len() > 9
            || !fraction.bytes().all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let scale = 10u64.pow(u32::try_from(fraction.len()).ok()?);
        let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit) / u128::from(scale);
        let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
        whole.checked_add(u64::try_from(part).ok()?).map(Self)
    }

    /// Writes PVE's notation for `resize`: the largest unit that divides the amount.
    pub fn to_pve(self) -> String {
        match self.0 {
            n if n != 0 && n.is_multiple_of(GIB) => format!("{}G", n / GIB),
            n if n != 0 && n.is_multiple_of(MIB) => format!("{}M", n / MIB),
            n if n != 0 && n.is_multiple_of(KIB) => format!("{}K", n / KIB),
            n => n.to_string(),
        }
    }

    /// Writes the amount in GiB as PVE wants it in `storage:SIZE`, decimals included.
    pub fn to_pve_gib(self) -> String {
        let whole = self.0 / GIB;
        let rest = self.0 % GIB;
        if rest == 0 {
            return whole.to_string();
        }
        // Nine decimals of a GiB are about one byte; rounding up never allocates too little.
        let decimals = (u128::from(rest) * 1_000_000_000).div_ceil(u128::from(GIB));
        if decimals >= 1_000_000_000 {
            return (whole + 1).to_string();
        }
        let text = format!("{whole}.{decimals:09}");
        text.trim_end_matches('0').to_owned()
    }
}

impl std::ops::Add for Size {
    type Output = Size;
    fn add(self, other: Size) -> Size {
        Size(self.0.saturating_add(other.0))
    }
}

impl std::ops::Sub for Size {
    type Output = Size;
    fn sub(self, other: Size) -> Size {
        Size(self.0.saturating_sub(other.0))
    }
}

impl std::iter::Sum for Size {
    fn sum<I: Iterator<Item = Size>>(sizes: I) -> Size {
        sizes.fold(Size::ZERO, std::ops::Add::add)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n != 0 && n.is_multiple_of(GIB) => write!(f, "{} GiB", n / GIB),
            n if n >= 10 * GIB => write!(f, "{} GiB", n / GIB),
            n if n >= MIB => write!(f, "{} MiB", n / MIB),
            n => write!(f, "{n} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_for_resize_reads_back(bytes in 0u64..1 << 50) {
            let size = Size::bytes(bytes);
            prop_assert_eq!(Size::from_pve(&size.to_pve()), Some(size));
        }

        #[test]
        fn an_allocation_is_never_smaller_than_asked(bytes in 1u64..1 << 50) {
            let text = format!("{}G", Size::bytes(bytes).to_pve_gib());
            prop_assert!(Size::from_pve(&text).unwrap().as_bytes() + 1 >= bytes);
        }

        #[test]
        fn reading_never_panics(text in ".{0,12}") {
            let _ = Size::from_pve(&text);
        }
    }

    #[test]
    fn pve_units_are_read() {
        assert_eq!(Size::from_pve("10G"), Some(Size::gib(10)));
        assert_eq!(Size::from_pve("528K"), Some(Size::bytes(528 * 1024)));
        assert_eq!(Size::from_pve("2.5G"), Some(Size::mib(2560)));
        assert_eq!(Size::from_pve("1T"), Some(Size::gib(1024)));
        assert_eq!(Size::from_pve("x"), None);
    }
}
