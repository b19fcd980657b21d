//! Small charts as inline SVG. All charts in a column have the same scale, so their heights can be compared.

use std::fmt::Write;

use super::history::{HistorySample, SAMPLES};

/// The width of one sample in chart units.
const STEP: usize = 2;
const WIDTH: usize = SAMPLES * STEP;
const HEIGHT: f64 = 24.0;

/// Draws bars: the total, and in it the failures in their colour.
pub(super) fn bars(samples: &[HistorySample], most: f64, label: &str) -> String {
    let (mut whole, mut failed) = (String::new(), String::new());
    for (x, sample) in places(samples) {
        bar(&mut whole, x, sample.runs, most);
        bar(&mut failed, x, sample.errors, most);
    }
    frame(label, &format!("<path class=\"bar\" d=\"{whole}\"/><path class=\"bad\" d=\"{failed}\"/>"))
}

/// Draws the area below the values.
pub(super) fn area(samples: &[HistorySample], of: fn(&HistorySample) -> f64, most: f64, label: &str) -> String {
    let mut path = String::new();
    for (x, sample) in places(samples) {
        bar(&mut path, x, of(sample), most);
    }
    frame(label, &format!("<path class=\"area\" d=\"{path}\"/>"))
}

/// Draws a mark for each sample that has a value.
pub(super) fn marks(
    samples: &[HistorySample],
    of: fn(&HistorySample) -> Option<f64>,
    most: f64,
    label: &str,
) -> String {
    let mut path = String::new();
    for (x, sample) in places(samples) {
        if let Some(value) = of(sample) {
            let y = (HEIGHT - height(value, most)).min(HEIGHT - 2.0);
            // Writing to a `String` cannot fail.
            let _ = write!(path, "M{x} {y:.1}h{STEP}v2h-{STEP}z");
        }
    }
    frame(label, &format!("<path class=\"mark\" d=\"{path}\"/>"))
}

/// Returns the samples with their left edges. The newest is on the right.
fn places(samples: &[HistorySample]) -> impl Iterator<Item = (usize, &HistorySample)> {
    let first = SAMPLES - samples.len().min(SAMPLES);
    samples.iter().enumerate().map(move |(number, sample)| ((first + number) * STEP, sample))
}

fn bar(path: &mut String, x: usize, value: f64, most: f64) {
    let height = height(value, most);
    if height > 0.0 {
        let _ = write!(path, "M{x} {HEIGHT}v-{height:.1}h{STEP}v{height:.1}z");
    }
}

/// Returns the height of a value. A value above zero is at least one unit high.
fn height(value: f64, most: f64) -> f64 {
    if value > 0.0 && most > 0.0 { (value / most * HEIGHT).clamp(1.0, HEIGHT) } else { 0.0 }
}

/// `label` must already be escaped.
fn frame(label: &str, content: &str) -> String {
    format!(
        "<svg class=\"spark\" role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         preserveAspectRatio=\"none\"><path class=\"base\" d=\"M0 {HEIGHT}h{WIDTH}\"/>{content}</svg>"
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sample_is_at_the_right_and_the_highest_fills_the_height() {
        let samples = [
            HistorySample { runs: 1.0, errors: 0.0, ..HistorySample::default() },
            HistorySample { runs: 4.0, errors: 2.0, ..HistorySample::default() },
        ];
        let svg = bars(&samples, 4.0, "runs");
        assert!(svg.contains("class=\"bar\" d=\"M116 24v-6.0h2v6.0zM118 24v-24.0h2v24.0z\""), "{svg}");
        assert!(svg.contains("class=\"bad\" d=\"M118 24v-12.0h2v12.0z\""), "{svg}");
    }

    #[test]
    fn small_values_are_seen_and_missing_ones_are_not() {
        assert!((height(0.001, 1000.0) - 1.0).abs() < 1e-9);
        assert!(height(0.0, 1000.0).abs() < 1e-9 && height(5.0, 0.0).abs() < 1e-9);
        let svg = marks(&[HistorySample::default()], |_| None, 1.0, "times");
        assert!(svg.contains("class=\"mark\" d=\"\""), "{svg}");
    }
}
