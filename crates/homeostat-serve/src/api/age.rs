//! Ages for people, in the form that `kubectl` uses.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Formats an age with one or two units: `90s`, `5m30s`, `3h`, `12d`. Larger ages are rounded more.
pub(super) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let two = |most: (u64, &str), rest: (u64, &str)| {
        let (whole, more) = (seconds / most.0, seconds % most.0 / rest.0);
        if more == 0 { format!("{whole}{}", most.1) } else { format!("{whole}{}{more}{}", most.1, rest.1) }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two((MINUTE, "m"), (1, "s")),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two((HOUR, "h"), (MINUTE, "m")),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two((DAY, "d"), (HOUR, "h")),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => two((YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (179 * 60 + 59, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 90, "3h1m"),
            (8 * HOUR, "8h"),
            (47 * HOUR + 59 * 60, "47h"),
            (2 * DAY, "2d"),
            (7 * DAY + 5 * HOUR, "7d5h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 3 * DAY, "2y3d"),
            (8 * YEAR + DAY, "8y"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
