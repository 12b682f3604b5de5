//! Disk sizes as PVE writes them: `528K`, `1G`, `1536`.

/// Bytes in a size with an optional unit.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 'K') => (&text[..at], 1_u64 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        (at, 'T') => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    scaled(number, unit)
}

/// A decimal number times a unit, exact for whole numbers.
pub(crate) fn scaled(number: &str, unit: u64) -> Option<u64> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match number.split_once('.') {
        None if digits(number) => number.parse::<u64>().ok()?.checked_mul(unit),
        Some((whole, fraction)) if digits(whole) && digits(fraction) && fraction.len() <= 9 => {
            let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
            let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
            let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
            whole.checked_add(u64::try_from(part / u128::from(scale)).ok()?)
        }
        _ => None,
    }
}

/// The largest unit that divides the size.
pub(crate) fn print(bytes: u64) -> String {
    for (unit, suffix) in [
        (1_u64 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "K"),
    ] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{suffix}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// The way progress lines speak of sizes: `528.0 KiB`, `1.0 GiB`.
pub(crate) fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut tenths = u128::from(bytes) * 10;
    let mut at = 0;
    while tenths >= 10_240 && at + 1 < units.len() {
        tenths = tenths.div_ceil(1024);
        at += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, units[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_as_pve_does() {
        assert_eq!(print(1 << 30), "1G");
        assert_eq!(print(540_672), "528K");
        assert_eq!(print(4 << 20), "4M");
        assert_eq!(print(1536), "1536");
        assert_eq!(print(3 << 29), "1536M");
    }

    #[test]
    fn sizes_parse_with_units_and_decimals() {
        assert_eq!(parse("1G"), Some(1 << 30));
        assert_eq!(parse("0.5G"), Some(1 << 29));
        assert_eq!(parse("1536"), Some(1536));
        assert_eq!(parse("2x"), None);
        assert_eq!(parse(""), None);
        assert_eq!(scaled("0.5", 1 << 30), Some(1 << 29));
    }

    #[test]
    fn progress_lines_round_to_a_tenth() {
        assert_eq!(human(0), "0.0 B");
        assert_eq!(human(540_672), "528.0 KiB");
        assert_eq!(human(1 << 30), "1.0 GiB");
        assert_eq!(human(1536), "1.5 KiB");
    }
}
