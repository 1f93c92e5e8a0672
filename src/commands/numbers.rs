//! Numbers as people write them on a command line: `1000`, `1_000_000`, `10k`, `1.5M`, `1e9`.

/// Meanings of the letters behind a number, as powers of ten.
const SUFFIXES: [(&[char], u32); 3] = [(&['k', 'K'], 3), (&['M'], 6), (&['G'], 9)];
/// More powers of ten fit no counter.
const POWER_MAX: u32 = 18;

/// Why a text is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    #[error("{text:?}: a whole number expected, such as 1000, 1_000_000, 10k, 1.5M or 1e9")]
    NotWhole { text: String },
    #[error("{text:?}: write {} for one number; a comma separates numbers", text.replace(',', "_"))]
    Comma { text: String },
    #[error("{text:?}: at most {} fits", u64::MAX)]
    TooLarge { text: String },
    #[error("{text:?}: {} to {} fit", i64::MIN, i64::MAX)]
    OutOfRange { text: String },
    #[error(
        "{text:?} may be one number or {}: write --at {}, or --at {}",
        text.split(',').count(), text.replace(',', "_"), text.replace(',', " --at ")
    )]
    Ambiguous { text: String },
}

impl NumberError {
    /// The same of the text with its sign.
    fn about(self, text: &str) -> NumberError {
        let text = text.to_owned();
        match self {
            NumberError::NotWhole { .. } => NumberError::NotWhole { text },
            NumberError::Comma { .. } => NumberError::Comma { text },
            NumberError::TooLarge { .. } | NumberError::OutOfRange { .. } => NumberError::OutOfRange { text },
            NumberError::Ambiguous { .. } => NumberError::Ambiguous { text },
        }
    }
}

/// Reads a number of at least 0.
pub fn parse_count(text: &str) -> Result<u64, NumberError> {
    if text.contains(',') {
        return Err(NumberError::Comma { text: text.to_owned() });
    }
    let refused = || NumberError::NotWhole { text: text.to_owned() };
    let (digits, power) = split_power(text).ok_or_else(refused)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = plain_digits(whole).ok_or_else(refused)?;
    let places = u32::try_from(fraction.len()).ok().filter(|places| *places <= power).ok_or_else(refused)?;
    if digits.contains('.') && (fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(refused());
    }
    let zeros = "0".repeat((power - places) as usize);
    let too_large = |_| NumberError::TooLarge { text: text.to_owned() };
    format!("{whole}{fraction}{zeros}").parse().map_err(too_large)
}

/// Reads a number of either sign.
pub fn parse_signed(text: &str) -> Result<i64, NumberError> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let count = parse_count(digits).map_err(|error| error.about(text))?;
    i64::try_from(sign * i128::from(count)).map_err(|_| NumberError::OutOfRange { text: text.to_owned() })
}

/// Reads numbers with commas between them. A text that may as well be one number with commas in it is refused.
pub fn parse_counts(text: &str) -> Result<Vec<u64>, NumberError> {
    let groups: Vec<&str> = text.split(',').collect();
    let is_group = |group: &&str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    let first = groups[0];
    let begins = (1..=3).contains(&first.len()) && first.bytes().all(|byte| byte.is_ascii_digit());
    if groups.len() > 1 && begins && groups[1..].iter().all(is_group) {
        return Err(NumberError::Ambiguous { text: text.to_owned() });
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
            assert_eq!(parse_count(text), Err(NumberError::NotWhole { text: text.to_owned() }));
        }
        assert!(parse_count("20e18").unwrap_err().to_string().contains("at most"));
        assert!(parse_count("1,000").unwrap_err().to_string().contains("write 1_000 for one number"));
        assert_eq!((parse_signed("-2k"), parse_signed("7")), (Ok(-2_000), Ok(7)));
        assert_eq!(parse_signed("-9223372036854775808"), Ok(i64::MIN));
        assert!(parse_signed("9e18").is_ok() && parse_signed("1e19").is_err() && parse_signed("10e18").is_err());
        assert!(parse_signed("-x").unwrap_err().to_string().starts_with("\"-x\""));
    }

    #[test]
    fn several_numbers_are_told_from_one_with_commas() {
        assert_eq!(parse_counts("2,5"), Ok(vec![2, 5]));
        assert_eq!(parse_counts("1000,1000000, 1e9"), Ok(vec![1_000, 1_000_000, 1_000_000_000]));
        assert_eq!(parse_counts("100"), Ok(vec![100]));
        for text in ["1,000,000", "10,500", "1,234"] {
            assert!(parse_counts(text).unwrap_err().to_string().contains("may be one number"), "{text}");
        }
        assert!(parse_counts("1,").is_err());
    }
}
