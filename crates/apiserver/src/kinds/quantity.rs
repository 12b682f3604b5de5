//! Quantities such as `500m` or `1Gi`, in the one form in which Kubernetes writes each.
//!
//! The same amount can be written in many ways; the server keeps the family of the suffix (decimal,
//! binary or exponent) and rewrites the rest, so `0.5` becomes `500m` and `1024Mi` becomes `1Gi`.

use std::fmt::Write as _;

/// What is wrong with a text that should be a quantity.
const FORM: &str = "quantities must match the regular expression \
                    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

const NANO: i128 = 1_000_000_000;

/// The family a suffix belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

/// An amount in billionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quantity {
    nanos: i128,
    family: Family,
}

impl Quantity {
    /// Reads a quantity; amounts finer than a billionth are rounded up.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && part.is_empty() || part.contains('.') {
            return Err(FORM);
        }
        let (family, scale) = scale(suffix)?;
        let nanos = amount(whole, part, scale);
        Ok(Self {
            nanos: if negative { -nanos } else { nanos },
            family,
        })
    }

    /// The amount, rounded up to thousandths as amounts of resources are.
    pub(super) fn round_to_milli(self) -> Self {
        let unit = NANO / 1000;
        let rest = self.nanos.rem_euclid(unit);
        let nanos = match (rest, self.nanos < 0) {
            (0, _) => self.nanos,
            (rest, false) => self.nanos - rest + unit,
            // Away from zero.
            (rest, true) => self.nanos - rest,
        };
        Self { nanos, ..self }
    }

    /// The amount in billionths.
    pub(super) fn nanos(self) -> i128 {
        self.nanos
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return f.write_char('0');
        }
        if self.nanos < 0 {
            f.write_char('-')?;
        }
        let nanos = self.nanos.abs();
        if self.family == Family::Binary && nanos >= 1024 * NANO {
            // Binary suffixes have no fractions.
            let mut number = nanos.div_euclid(NANO) + i128::from(nanos % NANO != 0);
            let mut power = 0;
            while number % 1024 == 0 && power < 6 {
                number /= 1024;
                power += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
            return write!(f, "{number}{suffix}");
        }
        let (mut number, mut exponent) = (nanos, -9);
        while number % 1000 == 0 && exponent < 18 {
            number /= 1000;
            exponent += 3;
        }
        match (self.family, exponent) {
            (_, 0) => write!(f, "{number}"),
            (Family::Exponent, exponent) => write!(f, "{number}e{exponent}"),
            (_, exponent) => {
                let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent);
                write!(f, "{number}{}", suffix.map_or("", |(name, _)| name))
            }
        }
    }
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// What a suffix multiplies with: a power of two or of ten.
#[derive(Clone, Copy)]
enum Scale {
    Two(u32),
    Ten(i32),
}

fn scale(suffix: &str) -> Result<(Family, Scale), &'static str> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Ok((Family::Decimal, Scale::Ten(*power)));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = binary.iter().position(|name| *name == suffix) {
        let power = u32::try_from(at + 1).unwrap_or_default() * 10;
        return Ok((Family::Binary, Scale::Two(power)));
    }
    let exponent = suffix.strip_prefix(['e', 'E']);
    if let Some(power) = exponent.and_then(|text| text.parse().ok()) {
        return Ok((Family::Exponent, Scale::Ten(power)));
    }
    // Letters, a sign and digits, in this order, have the form of a suffix.
    let rest = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let formed = rest.bytes().all(|byte| byte.is_ascii_digit());
    Err(if formed { SUFFIX } else { FORM })
}

/// `whole.part` times the scale, in billionths, rounded up; amounts beyond reach stop there.
fn amount(whole: &str, part: &str, scale: Scale) -> i128 {
    let digits = format!("{whole}{part}");
    let mut number: i128 = digits
        .parse()
        .unwrap_or(if digits.is_empty() { 0 } else { i128::MAX });
    let mut power = 9 - i32::try_from(part.len()).unwrap_or(i32::MAX);
    match scale {
        Scale::Two(bits) => number = number.saturating_mul(1_i128 << bits),
        Scale::Ten(exponent) => power = power.saturating_add(exponent),
    }
    while power > 0 && number != 0 && number != i128::MAX {
        number = number.saturating_mul(10);
        power -= 1;
    }
    let mut inexact = false;
    while power < 0 && number != 0 {
        inexact |= number % 10 != 0;
        number /= 10;
        power += 1;
    }
    let limit = i128::from(i64::MAX) * NANO;
    (number + i128::from(inexact)).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text).map_or_else(str::to_owned, |q| q.to_string())
    }

    #[test]
    fn each_amount_has_one_form() {
        for (given, expected) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("512", "512"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("12e2", "1200"),
            ("100Ki", "100Ki"),
            ("0.5Ki", "512"),
            ("-3", "-3"),
            ("0Gi", "0"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            assert_eq!(canonical(given), expected, "{given}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["lots", "", "1..2", "1 Gi", "Gi", "1KiB", "1e3m"] {
            assert_eq!(canonical(text), FORM, "{text}");
        }
        for text in ["1mm", "1e", "1Ki3"] {
            assert_eq!(canonical(text), SUFFIX, "{text}");
        }
    }

    #[test]
    fn resources_are_counted_in_thousandths() {
        let round = |text| Quantity::parse(text).unwrap().round_to_milli().to_string();
        assert_eq!(round("1u"), "1m");
        assert_eq!(round("1.5"), "1500m");
    }
}
