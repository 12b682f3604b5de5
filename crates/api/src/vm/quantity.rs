//! Amounts of memory and disk: Kubernetes quantities, kept as bytes.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An amount of bytes, written as a Kubernetes quantity (`"40Gi"`, `"512M"`, `1073741824`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Why a text is not a quantity.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} is not an amount of bytes: write a number with Ki, Mi, Gi, Ti or k, M, G, T, for example \"40Gi\""
)]
pub struct QuantityError(String);

const UNITS: [(&str, u64); 10] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
];

impl Bytes {
    /// So many GiB.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// So many MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Whole MiB, rounded up: the unit PVE counts memory in.
    pub const fn as_mib(self) -> u64 {
        self.0.div_ceil(1 << 20)
    }

    /// Whole GiB, rounded up: the unit PVE allocates disks in.
    pub const fn as_gib(self) -> u64 {
        self.0.div_ceil(1 << 30)
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || QuantityError(text.to_owned());
        let (digits, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
            .unwrap_or((text, 1));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty()
            || !(whole.to_owned() + fraction)
                .bytes()
                .all(|b| b.is_ascii_digit())
        {
            return Err(wrong());
        }
        if fraction.len() > 9 {
            return Err(wrong());
        }
        let scale = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| wrong())?);
        let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
        let bytes = digits
            .checked_mul(u128::from(unit))
            .ok_or_else(wrong)?
            .div_ceil(scale);
        u64::try_from(bytes).map(Self).map_err(|_| wrong())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS[..5]
            .iter()
            .rev()
            .find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match unit {
            Some((suffix, unit)) => write!(f, "{}{suffix}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // As many digits before each unit as are sure to fit; a pattern does not look at numbers.
        let number = |digits: u8| format!(r"[0-9]{{1,{digits}}}(\.[0-9]{{1,9}})?");
        let units = [
            ("(Ki|k)", 16),
            ("Mi?", 13),
            ("Gi?", 10),
            ("Ti?", 7),
            ("Pi?", 4),
        ];
        let mut forms = vec![number(19)];
        forms.extend(units.map(|(unit, digits)| number(digits) + unit));
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": format!("^({})$", forms.join("|")),
            "minimum": 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_kubernetes_reads_them() {
        for (text, bytes) in [
            ("40Gi", 40 << 30),
            ("16Gi", 16 << 30),
            ("1.5Gi", 3 << 29),
            ("512M", 512_000_000),
            ("1024", 1024),
            ("0.1k", 100),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
    }

    #[test]
    fn what_the_schema_lets_in_can_be_read() {
        let schema = Bytes::json_schema(&mut SchemaGenerator::default());
        let pattern = schema.get("pattern").and_then(|it| it.as_str()).unwrap();
        let pattern = regex::Regex::new(pattern).unwrap();
        for (unit, _) in UNITS.into_iter().chain([("", 1)]) {
            let most = (1..30)
                .rev()
                .map(|digits| "9".repeat(digits) + ".999999999" + unit);
            let most = most
                .into_iter()
                .find(|text| pattern.is_match(text))
                .unwrap();
            assert!(most.parse::<Bytes>().is_ok(), "{most}");
        }
        for text in ["40Gi", "1.5Ti", "512M", "1024", "16383Ti", "64k"] {
            assert!(pattern.is_match(text), "{text}");
        }
        for text in ["-1Gi", "99999999Pi", "Gi", "4GB", "1.1234567891"] {
            assert!(!pattern.is_match(text), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in [
            "",
            "Gi",
            "-1Gi",
            "4 Gi",
            "4GB",
            "1.1234567891",
            "99999999Pi",
        ] {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.contains("\"40Gi\""), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes: u64) {
            proptest::prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
    }
}
