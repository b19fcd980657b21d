//! How busy threads and controllers are.

use std::time::Duration;

use super::history::{HistorySample, PER_MINUTE, PERIOD};
use homeostat::controller::ActiveRun;

/// The hung runs among these, each with its time since its start, the longest first.
pub(super) fn hung<'a>(runs: impl IntoIterator<Item = &'a ActiveRun>) -> Vec<Duration> {
    let mut hung: Vec<_> = runs.into_iter().filter(|run| run.overdue).map(|run| run.elapsed).collect();
    hung.sort_unstable_by(|one, other| other.cmp(one));
    hung
}

/// Returns how much of the time of these samples the places ran keys, in percent, without these hung runs. `None`
/// without places, or if the samples are of less than a minute.
#[expect(clippy::cast_precision_loss, reason = "a ratio, shown with two digits")]
pub(super) fn busy(samples: &[HistorySample], places: usize, hung: &[Duration]) -> Option<f64> {
    if samples.len() < PER_MINUTE || places == 0 {
        return None;
    }
    let active = (1..).zip(samples.iter().rev()).map(|(age, sample)| {
        // A sample before the start of a hung run is without it.
        let hung = hung.iter().filter(|elapsed| **elapsed >= PERIOD * age).count();
        (sample.active - hung as f64).max(0.0)
    });
    Some((active.sum::<f64>() * 100.0 / (samples.len() * places) as f64).min(100.0))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_hung_run_is_left_out_of_the_samples_after_its_start_only() {
        let full = [HistorySample { active: 2.0, ..HistorySample::default() }; PER_MINUTE];
        assert_eq!(busy(&full, 2, &[]), Some(100.0));
        assert_eq!(busy(&full, 2, &[PERIOD * 6]), Some(75.0));
        assert_eq!(busy(&full, 2, &[PERIOD * 100]), Some(50.0));
        assert_eq!((busy(&full[1..], 2, &[]), busy(&full, 0, &[])), (None, None));
    }
}
