//! The table, in Markdown.

use std::fmt::Write;

use crate::machine::Machine;
use crate::rows::{Against, COLUMNS, Goal, Limit, Row, rows};
use crate::runner::{Results, Summary};

pub(crate) fn markdown(machine: &Machine, results: &Results, rounds: u32, quick: bool) -> String {
    let mut text = String::from("# homeostat and its peers, side by side\n\n");
    if quick {
        text.push_str("**A smoke run with a hundredth of the sizes: these figures mean nothing.**\n\n");
    }
    let Machine { cpu, cores, memory, kernel, toolchain, commit, load } = machine;
    let round = if rounds == 1 { "one round".to_owned() } else { format!("{rounds} interleaved rounds") };
    let _ = write!(
        text,
        "Medians of {round}; in brackets the lowest and the highest figure. Each figure of each round was measured in a new \
         process. A cell that waits for a minute was measured in the first round only. A ratio is homeostat's median divided by the other median; in brackets the lowest and the highest ratio of a \
         round. [`compare/README.md`](compare/README.md) explains the rows.\n\n\
         - machine: {cpu}, {cores} cores, {memory}, Linux {kernel}; load averages before the run: {load}\n- toolchain: {toolchain}\n\
         - commit: {commit}\n\n"
    );
    let rows: Vec<Row> = rows().into_iter().filter(|row| results.has(row.workload, row.variant)).collect();
    let verdicts: Vec<bool> =
        rows.iter().flat_map(|row| row.goals.iter().filter_map(|goal| verdict(row, goal, results))).collect();
    let met = verdicts.iter().filter(|met| **met).count();
    let _ = writeln!(text, "{} targets: {met} met, {} not met.\n", verdicts.len(), verdicts.len() - met);

    let _ = writeln!(text, "| workload | case | measure | {} | ratio, target |", COLUMNS.join(" | "));
    let _ = writeln!(text, "|---|---|---|{}---|", "--:|".repeat(COLUMNS.len()));
    for row in &rows {
        let _ = write!(text, "| {} | {} | {} |", row.workload, row.case, row.measure);
        for column in COLUMNS {
            let figure = results.summary(row.cell(column), row.metric);
            let _ = write!(text, " {} |", figure.map_or_else(|| "–".to_owned(), |figure| spread(figure, rounds)));
        }
        let goals: Vec<String> = row.goals.iter().filter_map(|goal| judged(row, goal, results, rounds)).collect();
        let _ = writeln!(text, " {} |", goals.join("<br>"));
    }
    text.push_str(NOTES);
    text
}

const NOTES: &str = "
A dash: the peer cannot do this, or the row does not compare it.
`kube-scheduler` is `kube_runtime::scheduler`, driven as by its controller. Its clock ticks in milliseconds, so a key that is
due at once waits for the next tick (W1, and W2 at 1e3, where the wall time is that wait).
`crossbeam-channel` and `wheel-crate` (`hierarchical_hash_wheel_timer`) do not remove duplicates.
";

/// Returns whether the goal is met. `None` without a target, or if a cell was not measured.
fn verdict(row: &Row, goal: &Goal, results: &Results) -> Option<bool> {
    Some(goal.limit?.is_met(row.value(goal, results)?.median))
}

fn judged(row: &Row, goal: &Goal, results: &Results, rounds: u32) -> Option<String> {
    let value = row.value(goal, results)?;
    let mut text = match goal.against {
        Against::Peer("naive-fold") => format!("{} × {}", ratio(value, rounds), row.naive),
        Against::Peer(peer) => format!("{} × {peer}", ratio(value, rounds)),
        Against::Other(_, _, name) => format!("{} × {name}", ratio(value, rounds)),
        Against::Nothing => String::new(),
    };
    let (sign, limit) = match goal.limit {
        None => return Some(text),
        Some(Limit::AtMost(limit)) => ("≤", limit),
        Some(Limit::AtLeast(limit)) => ("≥", limit),
    };
    let separator = if text.is_empty() { "" } else { ", " };
    let met = if verdict(row, goal, results)? { "met" } else { "**not met**" };
    let _ = write!(text, "{separator}{sign} {limit}: {met}");
    Some(text)
}

fn ratio(value: Summary, rounds: u32) -> String {
    let Summary { median, min, max } = value;
    if rounds == 1 { format!("{median:.2}") } else { format!("{median:.2} ({min:.2}–{max:.2})") }
}

fn spread(figure: Summary, rounds: u32) -> String {
    let Summary { median, min, max } = figure;
    if rounds == 1 || min == max {
        number(median)
    } else {
        format!("{} ({}–{})", number(median), number(min), number(max))
    }
}

/// Formats a number with three significant digits and thousands separators.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 && value.fract() != 0.0 => format!("{value:.2}"),
        size if size < 100.0 && value.fract() != 0.0 => format!("{value:.1}"),
        _ => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (place, digit) in digits.chars().enumerate() {
                if place > 0 && (digits.len() - place).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Cell;

    fn machine() -> Machine {
        let text = || "x".to_owned();
        Machine {
            cpu: text(),
            cores: 2,
            memory: text(),
            kernel: text(),
            toolchain: text(),
            commit: text(),
            load: text(),
        }
    }

    fn measured(ours: &[f64], naive: &[f64]) -> Results {
        let mut results = Results::default();
        for (peer, values) in [("homeostat", ours), ("naive-fold", naive)] {
            for value in values {
                let figures = [("cpu_ns".to_owned(), *value)].into();
                results.add(Cell { workload: "W1w", variant: "u64", peer }, figures);
            }
        }
        results
    }

    #[test]
    fn a_row_shows_medians_spread_ratio_and_verdict() {
        let text = markdown(&machine(), &measured(&[30.0, 50.0, 40.0], &[100.0, 100.0, 200.0]), 3, false);
        assert!(text.contains("| 40 (30–50) | 100 (100–200) |"), "{text}");
        assert!(text.contains("0.40 (0.20–0.50) × naive-fold, ≤ 0.8: met"), "{text}");
        assert!(text.contains("1 targets: 1 met, 0 not met."), "{text}");
    }

    #[test]
    fn a_target_that_is_missed_says_so() {
        let text = markdown(&machine(), &measured(&[90.0], &[100.0]), 1, false);
        assert!(text.contains("0.90 × naive-fold, ≤ 0.8: **not met**"), "{text}");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        assert_eq!([0.0, 1.234, 12.34, 123.4, 1_234_567.0].map(number), ["0", "1.23", "12.3", "123", "1,234,567"]);
    }
}
