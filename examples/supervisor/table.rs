//! The status table.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::unit::{Phase, Unit};

const HEADS: [&str; 6] = ["NAME", "STATE", "PID", "RESTARTS", "SINCE", "LAST EXIT"];

/// Returns a header line and one line for each service. A column is as wide as its widest cell.
pub(crate) fn render<'a>(units: impl IntoIterator<Item = &'a Unit>, now: Instant) -> String {
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(units.into_iter().map(|unit| cells(unit, now)));
    let widths: [usize; HEADS.len()] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut table = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

fn cells(unit: &Unit, now: Instant) -> [String; HEADS.len()] {
    let none = || "-".to_owned();
    [
        unit.service.name.to_string(),
        state(&unit.phase, now),
        unit.process().map_or_else(none, |process| process.id().to_string()),
        unit.restarts().to_string(),
        span(now.saturating_duration_since(unit.since)),
        match &unit.phase {
            Phase::Failed(why) => why.clone(),
            _ => unit.last_exit.map_or_else(none, |exit| exit.to_string()),
        },
    ]
}

fn state(phase: &Phase, now: Instant) -> String {
    match phase {
        Phase::Down => "stopped".to_owned(),
        Phase::Starting => "starting".to_owned(),
        Phase::Failed(_) => "failed".to_owned(),
        Phase::Running(_) => "running".to_owned(),
        Phase::Stopping { killed: false, .. } => "stopping".to_owned(),
        Phase::Stopping { killed: true, .. } => "killed".to_owned(),
        Phase::Backoff { until } => format!("back in {}", span(until.saturating_duration_since(now))),
        Phase::Ended => "ended".to_owned(),
    }
}

/// Returns a duration in its two largest units: `300ms`, `1.5s`, `5m 07s`, `2h 05m`, `3d 04h`.
pub(crate) fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 => format!("{}ms", length.as_millis()),
        1..60 => format!("{:.1}s", length.as_secs_f64()),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}
