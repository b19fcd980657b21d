//! Writes metrics in the text format of Prometheus, version 0.0.4.
//!
//! Libraries for this format count in registries of their own, so this is a writer of our own: it writes the live
//! counts of controllers.

use std::fmt::{self, Write};
use std::time::Duration;

use homeostat::export::{Labels, MetricKind, MetricSink, MetricValue};
use homeostat::run::Histogram;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metrics text. All samples of a family must follow its head, before the next head.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
    family: &'static str,
}

impl Exposition {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Adds a sample of a count.
    pub(super) fn count(&mut self, labels: Labels<'_>, count: u64) {
        self.line_of("", labels, None, format_args!("{count}"));
    }

    /// Adds a sample of a number of things.
    pub(super) fn size(&mut self, labels: Labels<'_>, size: usize) {
        self.line_of("", labels, None, format_args!("{size}"));
    }

    /// Adds a sample of a duration, in seconds.
    pub(super) fn seconds(&mut self, labels: Labels<'_>, duration: Duration) {
        self.float(labels, duration.as_secs_f64());
    }

    /// Adds a sample of any number.
    pub(super) fn float(&mut self, labels: Labels<'_>, value: f64) {
        self.line_of("", labels, None, format_args!("{value}"));
    }

    /// Adds the samples of a histogram: cumulative buckets, the sum in seconds, and the count.
    fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let mut below = 0;
        for (bound, in_bucket) in histogram.buckets() {
            below += in_bucket;
            let bound = if bound.is_infinite() { "+Inf".to_owned() } else { bound.to_string() };
            self.line_of("_bucket", labels, Some(&bound), format_args!("{below}"));
        }
        self.line_of("_sum", labels, None, format_args!("{}", histogram.sum().as_secs_f64()));
        self.line_of("_count", labels, None, format_args!("{below}"));
    }

    fn line_of(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>, value: fmt::Arguments<'_>) {
        let mut line = format!("{}{suffix}", self.family);
        let mut separator = '{';
        for (name, label) in labels.iter().copied().chain(le.map(|le| ("le", le))) {
            line.push(separator);
            line.push_str(name);
            line.push_str("=\"");
            escape(&mut line, label);
            line.push('"');
            separator = ',';
        }
        if separator == ',' {
            line.push('}');
        }
        self.line(format_args!("{line} {value}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

impl MetricSink for Exposition {
    fn family(&mut self, name: &'static str, kind: MetricKind, help: &'static str) {
        self.family = name;
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, labels: Labels<'_>, value: MetricValue<'_>) {
        match value {
            MetricValue::Count(count) => self.count(labels, count),
            MetricValue::Seconds(time) => self.seconds(labels, time),
            MetricValue::Times(histogram) => self.histogram(labels, histogram),
        }
    }
}

/// Adds the value of a label. The format escapes backslashes, double quotes and line feeds, and allows all other
/// characters.
fn escape(line: &mut String, label: &str) {
    for character in label.chars() {
        match character {
            '\\' => line.push_str("\\\\"),
            '"' => line.push_str("\\\""),
            '\n' => line.push_str("\\n"),
            other => line.push(other),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use homeostat::{Action, BoxError, Context, Controller, ManualClock, WorkerPool};

    #[test]
    fn labels_are_escaped() {
        let mut text = Exposition::default();
        text.family("a_total", MetricKind::Counter, "Things");
        text.count(&[("name", "a\\b\"c\nd é"), ("controller", "")], 7);
        text.count(&[], 8);
        let expected = "# HELP a_total Things\n# TYPE a_total counter\n\
            a_total{name=\"a\\\\b\\\"c\\nd é\",controller=\"\"} 7\na_total 8\n";
        assert_eq!(text.into_text(), expected);
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_infinity() {
        let held = ManualClock::new();
        let clock = held.clock();
        let pool = WorkerPool::builder().clock(clock.clone()).start().unwrap();
        let reconcile = move |_cx: &Context, takes: &Duration| -> Result<Action, BoxError> {
            held.advance(*takes);
            Ok(Action::await_change())
        };
        let runs = Controller::builder("runs", reconcile).clock(clock).build().unwrap().start(&pool).unwrap();
        for duration in [Duration::from_micros(1), Duration::from_millis(50), Duration::from_secs(2000)] {
            runs.enqueue(duration);
            runs.wait(&duration, Duration::MAX).unwrap();
        }
        let histogram = runs.metrics().work_time;
        let mut text = Exposition::default();
        text.family("time_seconds", MetricKind::Histogram, "Times");
        text.histogram(&[("name", "a")], &histogram);
        let text = text.into_text();
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), 31);
        assert_eq!(lines[0], "time_seconds_bucket{name=\"a\",le=\"0.000001\"} 1");
        assert_eq!(lines[13], "time_seconds_bucket{name=\"a\",le=\"0.025\"} 1");
        assert_eq!(lines[14], "time_seconds_bucket{name=\"a\",le=\"0.05\"} 2");
        assert_eq!(lines[27], "time_seconds_bucket{name=\"a\",le=\"1000\"} 2");
        assert_eq!(lines[28], "time_seconds_bucket{name=\"a\",le=\"+Inf\"} 3");
        assert_eq!(lines[29], "time_seconds_sum{name=\"a\"} 2000.050001");
        assert_eq!(lines[30], "time_seconds_count{name=\"a\"} 3");
    }
}
