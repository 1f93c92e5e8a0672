//! Numbers as people write them on a command line: `1000`, `1_000_000`, `10k`, `1.5M`, `1e9`.

/// Meanings of the letters behind a number, as powers of ten.
const SUFFIXES: [(&[char], u32); 3] = [(&['k', 'K'], 3), (&['M'], 6), (&['G'], 9)];
/// More powers of ten fit no counter.
const POWER_MAX: u32 = 18;
const EXPECTED: &str = "a whole number expected, such as 1000, 1_000_000, 10k, 1.5M or 1e9";

/// Reads a number of at least 0.
pub fn parse_count(text: &str) -> Result<u64, String> {
    if text.contains(',') {
        return Err(format!("{text:?}: write {} for one number; a comma separates numbers", text.replace(',', "_")));
    }
    let refused = || format!("{text:?}: {EXPECTED}");
    let (digits, power) = split_power(text).ok_or_else(refused)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = plain_digits(whole).ok_or_else(refused)?;
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= power).ok_or_else(refused)?;
    if digits.contains('.') && (fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(refused());
    }
    let zeros = "0".repeat((power - places) as usize);
    let too_large = |_| format!("{text:?}: at most {} fits", u64::MAX);
    format!("{whole}{fraction}{zeros}").parse().map_err(too_large)
}

/// Reads a number of either sign.
pub fn parse_signed(text: &str) -> Result<i64, String> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let count = parse_count(digits).map_err(|error| error.replacen(&format!("{digits:?}"), &format!("{text:?}"), 1))?;
    i64::try_from(sign * i128::from(count)).map_err(|_| format!("{text:?}: {} to {} fit", i64::MIN, i64::MAX))
}

/// Reads numbers with commas between them. A text that may as well be one number with commas in it is refused.
pub fn parse_counts(text: &str) -> Result<Vec<u64>, String> {
    let groups: Vec<&str> = text.split(',').collect();
    let is_group = |group: &&str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    let first = groups[0];
    let begins = (1..=3).contains(&first.len()) && first.bytes().all(|byte| byte.is_ascii_digit());
    if groups.len() > 1 && begins && groups[1..].iter().all(is_group) {
        let one = text.replace(',', "_");
        let several = groups.join(" --at ");
        return Err(format!("{text:?} may be one number or {}: write --at {one}, or --at {several}", groups.len()));
    }
    groups.into_iter().map(|group| parse_count(group.trim())).collect()
}

/// The digits, and the power of ten behind them.
fn split_power(text: &str) -> Option<(&str, u32)> {
    if let Some((digits, power)) = text.split_once(['e', 'E']) {
        let is_plain = power.bytes().all(|byte| byte.is_ascii_digit());
        return power.parse().ok().filter(|power| is_plain && *power <= POWER_MAX).map(|power| (digits, power));
    }
    let suffix = SUFFIXES.iter().find_map(|(letters, power)| Some((text.strip_suffix(*letters)?, *power)));
    Some(suffix.unwrap_or((text, 0)))
}

/// Without `_` between digits.
fn plain_digits(text: &str) -> Option<String> {
    let is_good = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split('_').all(is_good).then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        let good = [
            ("0", 0),
            ("1000", 1_000),
            ("1_000_000", 1_000_000),
            ("10k", 10_000),
            ("10K", 10_000),
            ("1.5M", 1_500_000),
            ("2G", 2_000_000_000),
            ("1e9", 1_000_000_000),
            ("2.5E3", 2_500),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, value) in good {
            assert_eq!(parse_count(text), Ok(value), "{text}");
        }
        for text in [
            "", "k", "1.5", "1.", ".5k", "1e", "1e-3", "1e+3", "1e19", "1__0", "_1", "1_", "1 000", "0x10", "1m", "-1",
            "1.2345k",
        ] {
            assert!(parse_count(text).unwrap_err().contains(EXPECTED), "{text}");
        }
        assert!(parse_count("20e18").unwrap_err().contains("at most"));
        assert!(parse_count("1,000").unwrap_err().contains("write 1_000 for one number"));
        assert_eq!((parse_signed("-2k"), parse_signed("7")), (Ok(-2_000), Ok(7)));
        assert_eq!(parse_signed("-9223372036854775808"), Ok(i64::MIN));
        assert!(parse_signed("9e18").is_ok() && parse_signed("1e19").is_err() && parse_signed("10e18").is_err());
        assert!(parse_signed("-x").unwrap_err().starts_with("\"-x\""));
    }

    #[test]
    fn several_numbers_are_told_from_one_with_commas() {
        assert_eq!(parse_counts("2,5"), Ok(vec![2, 5]));
        assert_eq!(parse_counts("1000,1000000, 1e9"), Ok(vec![1_000, 1_000_000, 1_000_000_000]));
        assert_eq!(parse_counts("100"), Ok(vec![100]));
        for text in ["1,000,000", "10,500", "1,234"] {
            assert!(parse_counts(text).unwrap_err().contains("may be one number"), "{text}");
        }
        assert!(parse_counts("1,").is_err());
    }
}
