//! Compares versions.

/// Returns whether a version is older than another version of the same watch. If one of them is not a decimal number,
/// returns false.
pub(super) fn is_older(version: &str, than: &str) -> bool {
    number(version).zip(number(than)).is_some_and(|(version, than)| version < than)
}

/// Returns whether a watch that has reached `seen` has passed a version. If one of them is not a decimal number,
/// returns false.
pub(super) fn is_reached(version: &str, seen: &str) -> bool {
    number(version).zip(number(seen)).is_some_and(|(version, seen)| version <= seen)
}

/// Returns a decimal number of any length in a form that can be compared.
fn number(version: &str) -> Option<(usize, &str)> {
    let is_number = !version.is_empty() && version.bytes().all(|digit| digit.is_ascii_digit());
    let digits = version.trim_start_matches('0');
    is_number.then_some((digits.len(), digits))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_decimal_numbers_of_any_length() {
        let long = "9".repeat(40);
        for (one, other) in [("9", "10"), ("0", "1"), ("099", "100"), ("18446744073709551615", &long), ("5", "0006")] {
            assert!(is_older(one, other) && !is_older(other, one), "{one} {other}");
            assert!(is_reached(one, other) && !is_reached(other, one), "{one} {other}");
        }
        for (one, other) in [("", "1"), ("a", "b"), ("1", "x2"), ("007", "7"), ("-2", "1"), ("1.5", "2")] {
            assert!(!is_older(one, other) && !is_older(other, one), "{one} {other}");
        }
        assert!(is_reached("7", "7") && is_reached("007", "7"));
        for (one, other) in [("", ""), ("", "1"), ("1", ""), ("a", "a")] {
            assert!(!is_reached(one, other), "{one} {other}");
        }
    }
}
