//! Numbers as people read them.

/// Whole numbers in groups of three digits; below ten one decimal, if it is not zero.
pub fn grouped(value: f64) -> String {
    let tenths = (value * 10.0).round();
    if value < 10.0 && tenths % 10.0 != 0.0 {
        return format!("{:.1}", tenths / 10.0);
    }
    let digits = format!("{}", value.round() as u64);
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes with a decimal prefix, three digits at most.
pub fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        (value, unit) = (value / 1_000.0, unit + 1);
    }
    format!("{} {}", grouped(value), units[unit])
}

/// Microseconds as milliseconds.
pub fn ms(us: u64) -> String {
    format!("{} ms", grouped(us as f64 / 1_000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        let of = [0.0, 0.04, 7.26, 9.96, 1_234.4, 1e12].map(grouped);
        assert_eq!(of, ["0", "0", "7.3", "10", "1,234", "1,000,000,000,000"]);
        assert_eq!([0.0, 999.6, 1_234.0, 2.5e7].map(bytes), ["0 B", "1 kB", "1.2 kB", "25 MB"]);
        assert_eq!(ms(38_640), "39 ms");
    }
}
