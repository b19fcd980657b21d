//! The rows of the table, with their cells, figures and targets.

use crate::runner::{Cell, Results, Summary};

/// The peers that have a column. The first is homeostat.
pub(crate) const COLUMNS: &[&str] = &[
    "homeostat",
    "naive-fold",
    "naive-sip",
    "crossbeam-channel",
    "delayqueue",
    "kube-scheduler",
    "kube-controller",
    "wheel-crate",
];

/// A row: one measure of one variant of one workload.
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) variant: &'static str,
    /// The case, as the table shows it.
    pub(crate) case: &'static str,
    /// The name of the figure, and its label.
    pub(crate) metric: &'static str,
    pub(crate) measure: &'static str,
    /// The cells in the columns of homeostat and of naive-fold.
    pub(crate) ours: &'static str,
    pub(crate) naive: &'static str,
    pub(crate) goals: Vec<Goal>,
    /// Whether the plot includes it.
    pub(crate) plotted: bool,
}

/// A comparison and its target.
pub(crate) struct Goal {
    pub(crate) against: Against,
    pub(crate) limit: Option<Limit>,
}

pub(crate) enum Against {
    Peer(&'static str),
    /// Another cell and figure, and their label.
    Other(Cell, &'static str, &'static str),
    /// No comparison: the figure itself.
    Nothing,
}

#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl Row {
    pub(crate) fn cell(&self, column: &'static str) -> Cell {
        let peer = match column {
            "homeostat" => self.ours,
            "naive-fold" => self.naive,
            other => other,
        };
        Cell { workload: self.workload, variant: self.variant, peer }
    }

    /// Returns the compared value: a ratio, or the figure itself.
    pub(crate) fn value(&self, goal: &Goal, results: &Results) -> Option<Summary> {
        let ours = (self.cell("homeostat"), self.metric);
        match goal.against {
            Against::Peer(peer) => results.ratio(ours, (self.cell(peer), self.metric)),
            Against::Other(cell, metric, _) => results.ratio(ours, (cell, metric)),
            Against::Nothing => results.summary(ours.0, ours.1),
        }
    }

    fn plotted(mut self) -> Self {
        self.plotted = true;
        self
    }

    fn ours(mut self, peer: &'static str) -> Self {
        self.ours = peer;
        self
    }

    fn naive(mut self, peer: &'static str) -> Self {
        self.naive = peer;
        self
    }

    fn at_most(self, limit: f64, against: Against) -> Self {
        self.goal(against, Some(Limit::AtMost(limit)))
    }

    fn at_least(self, limit: f64, against: Against) -> Self {
        self.goal(against, Some(Limit::AtLeast(limit)))
    }

    fn beside(self, against: Against) -> Self {
        self.goal(against, None)
    }

    fn goal(mut self, against: Against, limit: Option<Limit>) -> Self {
        self.goals.push(Goal { against, limit });
        self
    }
}

const FOLD: Against = Against::Peer("naive-fold");
const SIP: Against = Against::Peer("naive-sip");
const CROSSBEAM: Against = Against::Peer("crossbeam-channel");
const DELAYQUEUE: Against = Against::Peer("delayqueue");

/// All rows, by workload.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for ((variant, case), limit) in KEYS.into_iter().zip([1.0, 0.75, 0.7]) {
        for (metric, measure) in TIMES {
            let row = row("W1", variant, case, metric, measure).at_most(limit, FOLD);
            let row = if variant == "u64" { row.at_most(1.25, CROSSBEAM) } else { row.beside(CROSSBEAM) };
            rows.push(if metric == "cpu_ns" { row.plotted() } else { row });
        }
    }
    for (variant, case, limit) in [
        ("u64", "`u64`, foldhash set by hand on both sides", 1.0),
        ("arc", "`Arc<str>`, foldhash set by hand on both sides", 0.75),
        ("string", "`String`, foldhash set by hand on both sides", 0.7),
    ] {
        rows.push(row("W1", variant, case, "cpu_ns", CPU).ours("homeostat-fold").at_most(limit, FOLD));
    }
    for (variant, case) in [
        ("u64", "`u64`, SipHash on both sides"),
        ("arc", "`Arc<str>`, SipHash on both sides"),
        ("string", "`String`, SipHash on both sides"),
    ] {
        rows.push(row("W1", variant, case, "cpu_ns", CPU).ours("homeostat-sip").at_most(1.0, SIP));
    }
    for (variant, case) in
        [("u64", "`u64`, timing on"), ("arc", "`Arc<str>`, timing on"), ("string", "`String`, timing on")]
    {
        rows.push(row("W1", variant, case, "cpu_ns", CPU).ours("homeostat-timing").beside(FOLD));
    }
    for (variant, case) in KEYS {
        for (metric, measure) in TIMES {
            let row = row("W1w", variant, case, metric, measure).at_most(0.8, FOLD);
            rows.push(if metric == "cpu_ns" { row.plotted() } else { row });
        }
    }
    rows.push(row("W1w", "u64-drain", "`u64`, 1e6 keys in line, no enqueue", "cpu_ns", CPU).beside(FOLD));
    sizes(&mut rows);
    duplicates(&mut rows);
    threads(&mut rows);
    timers(&mut rows);
    for (variant, case, limit) in [
        ("ready-u64", "ready `u64`", 64.0),
        ("delayed-u64", "delayed `u64`", 72.0),
        ("ready-string", "ready `String`, moved in", 145.0),
    ] {
        let row = row("W6", variant, case, "bytes", "peak resident growth, bytes a key");
        rows.push(row.at_most(limit, Against::Nothing).beside(FOLD).plotted());
    }
    let row_of = |metric, measure| row("W7", "u64", "`u64`", metric, measure);
    rows.push(row_of("p50_us", "wake p50, µs").at_most(1.1, FOLD).plotted());
    rows.push(row_of("p99_us", "wake p99, µs").beside(FOLD));
    rows.push(row_of("cpu_ns", "CPU ns a wake").at_most(1.0, FOLD));
    let row_of = |metric, measure| row("idle", "u64", "1e6 keys delayed by an hour, 5 s", metric, measure);
    // An hour spans this many wheel levels, with one cascade each.
    rows.push(row_of("switches", "switches of all threads but main").at_most(5.0, Against::Nothing));
    rows.push(row_of("cpu_us", "CPU µs").beside(FOLD));
    controllers(&mut rows);
    workers(&mut rows);
    rows
}

const CPU: &str = "CPU ns";
const KEYS: [(&str, &str); 3] = [("u64", "`u64`"), ("arc", "`Arc<str>`"), ("string", "`String`")];
const TIMES: [(&str, &str); 2] = [("cpu_ns", CPU), ("wall_ns", "wall ns")];

fn row(
    workload: &'static str,
    variant: &'static str,
    case: &'static str,
    metric: &'static str,
    measure: &'static str,
) -> Row {
    let (ours, naive) = ("homeostat", "naive-fold");
    Row { workload, variant, case, metric, measure, ours, naive, goals: Vec::new(), plotted: false }
}

fn sizes(rows: &mut Vec<Row>) {
    for (variant, case) in [
        ("u64-1000", "`u64`, 1e3"),
        ("u64-10000", "`u64`, 1e4"),
        ("u64-100000", "`u64`, 1e5"),
        ("u64-1000000", "`u64`, 1e6"),
        ("arc-1000", "`Arc<str>`, 1e3"),
        ("arc-1000000", "`Arc<str>`, 1e6"),
        ("string-1000", "`String`, 1e3"),
        ("string-1000000", "`String`, 1e6"),
    ] {
        if !variant.ends_with("-1000000") {
            rows.push(row("W2", variant, case, "cpu_ns", CPU).beside(FOLD));
            continue;
        }
        let limit = if variant == "string-1000000" { 0.43 } else { 0.7 };
        let cpu = row("W2", variant, case, "cpu_ns", CPU).at_most(limit, FOLD).plotted();
        rows.push(if variant == "u64-1000000" {
            let small = Cell { workload: "W2", variant: "u64-1000", peer: "homeostat" };
            cpu.at_most(3.0, Against::Other(small, "cpu_ns", "itself at 1e3"))
        } else {
            cpu
        });
        rows.push(row("W2", variant, case, "wall_ns", "wall ns").at_most(limit, FOLD));
        rows.push(row("W2", variant, case, "warm_cpu_ns", "CPU ns, queue grown before").beside(FOLD));
    }
}

fn duplicates(rows: &mut Vec<Row>) {
    for (metric, measure) in TIMES {
        rows.push(row("W3", "u64", "`u64`", metric, measure).at_most(1.0, FOLD));
    }
    rows.push(row("W3", "arc", "`Arc<str>`", "cpu_ns", CPU).beside(FOLD));
    for (metric, measure) in TIMES {
        let case = "`String`, by reference here";
        rows.push(row("W3", "string", case, metric, measure).at_most(0.7, FOLD));
    }
    let both = "`String`, by reference on both sides";
    rows.push(row("W3", "string", both, "cpu_ns", CPU).naive("naive-fold-ref").beside(FOLD));
    let neither = "`String`, by value on both sides";
    rows.push(row("W3", "string", neither, "cpu_ns", CPU).ours("homeostat-owned").beside(FOLD));
    for row in rows.iter_mut().filter(|row| row.workload == "W3" && row.metric == "cpu_ns") {
        row.plotted = row.ours == "homeostat" && row.naive == "naive-fold";
    }
}

fn threads(rows: &mut Vec<Row>) {
    for (variant, case, least_share) in [
        ("2p2c", "2 producers + 2 consumers", Some(0.25)),
        ("1p1c", "1 producer + 1 consumer", None),
        ("4p4c", "4 producers + 4 consumers", Some(0.125)),
        ("2p2c-paced", "2 + 2, no duplicates", Some(0.25)),
        ("1p1c-paced", "1 + 1, no duplicates", None),
        ("4p4c-paced", "4 + 4, no duplicates", Some(0.125)),
    ] {
        let row_of = |metric, measure| row("W4", variant, case, metric, measure);
        let mut cpu = row_of("cpu_ns", "CPU ns per (enqueue + dequeue)").at_most(0.5, FOLD).beside(CROSSBEAM);
        cpu.plotted = !variant.starts_with("4p4c");
        rows.push(cpu);
        rows.push(row_of("mops", "million (enqueue + dequeue) a second").at_least(2.0, FOLD).beside(CROSSBEAM));
        if !variant.ends_with("-paced") {
            rows.push(row_of("cpu_ns_per_dequeue", "CPU ns per dequeue alone").beside(FOLD));
            rows.push(row_of("dequeues_per_enqueue", "dequeues per enqueue"));
        }
        // Half of an equal share.
        if let Some(least) = least_share {
            rows.push(row_of("least_share", "least share of a consumer").at_least(least, Against::Nothing));
        }
    }
}

fn timers(rows: &mut Vec<Row>) {
    for (variant, case, limit) in [
        ("100000", "1e5 delays within 1 s", 0.9),
        ("1000000", "1e6 delays within 1 s", 0.9),
        ("100000-minute", "1e5 delays within 60 s", 0.4),
    ] {
        let row_of = |metric, measure| row("W5", variant, case, metric, measure);
        rows.push(row_of("set_cpu_ns", "CPU ns of setting one").at_most(0.5, FOLD).plotted());
        rows.push(row_of("set_wall_ns", "wall ns of setting one").beside(FOLD));
        rows.push(row_of("total_cpu_ms", "CPU ms to the end").at_most(limit, DELAYQUEUE).beside(FOLD).plotted());
        rows.push(row_of("early", "early ones").at_most(0.0, Against::Nothing));
        rows.push(row_of("p50_ms", "late p50, ms").beside(DELAYQUEUE));
        rows.push(row_of("p99_ms", "late p99, ms").beside(DELAYQUEUE));
    }
    // Half and all of the slack, plus 0.5 ms and 1 ms for waking two threads.
    for (variant, case, p50, p99) in [
        ("1ms", "delays of 1 ms", 0.57, 1.13),
        ("100ms", "delays of 100 ms", 0.7, 1.4),
        ("1s", "delays of 1 s", 2.5, 4.9),
        ("1min", "delays of 1 min", 4.7, 9.4),
    ] {
        let row_of = |metric, measure| row("late", variant, case, metric, measure);
        rows.push(row_of("early", "early ones").at_most(0.0, Against::Nothing));
        rows.push(row_of("p50_ms", "late p50, ms").at_most(p50, Against::Nothing).beside(DELAYQUEUE));
        rows.push(row_of("p99_ms", "late p99, ms").at_most(p99, Against::Nothing).beside(DELAYQUEUE));
    }
}

fn controllers(rows: &mut Vec<Row>) {
    const KUBE: Against = Against::Peer("kube-controller");
    let row_of = |metric, measure| row("controller", "create", "1e5 objects are listed", metric, measure);
    rows.push(row_of("cpu_ns", "CPU ns an object").at_most(0.2, KUBE).plotted());
    rows.push(row_of("wall_ns", "wall ns an object").beside(KUBE));
    rows.push(row_of("bytes", "peak resident growth, bytes an object").beside(KUBE));
    for (variant, case) in [
        ("waves", "1e4 objects change, until each has run, 20 times"),
        ("storm", "1e4 objects change 20 times each, at once"),
    ] {
        let row_of = |metric, measure| row("controller", variant, case, metric, measure);
        let cpu = row_of("cpu_ns", "CPU ns a change");
        rows.push(if variant == "waves" { cpu.at_most(0.2, KUBE).plotted() } else { cpu.beside(KUBE) });
        rows.push(row_of("wall_ns", "wall ns a change").beside(KUBE));
        rows.push(row_of("runs", "runs a change").beside(KUBE));
    }
    let row_of = |metric, measure| row("controller", "resync", "1e4 keys run every second, 5 s", metric, measure);
    rows.push(row_of("cpu_ns", "CPU ns a run").at_most(0.2, KUBE));
    rows.push(row_of("runs", "runs of a key a second").beside(KUBE));
}

fn workers(rows: &mut Vec<Row>) {
    let cycle = |variant| Cell { workload: "W1w", variant, peer: "homeostat" };
    for (variant, case) in [("1", "1 thread"), ("2", "2 threads"), ("4", "4 threads")] {
        let like = || Against::Other(cycle("u64-drain"), "cpu_ns", "W1w over 1e6 keys in line");
        let row_of = |metric, measure| row("workers", variant, case, metric, measure);
        let against = Against::Other(cycle("u64"), "cpu_ns", "W1w");
        rows.push(row_of("net_cpu_ns", "CPU ns a key, less 0 clock reads").at_most(2.0, against).beside(like()));
        rows.push(row_of("wall_ns", "wall ns a key"));
        let timeout = row_of("net_cpu_ns", "CPU ns a key with a timeout, less 1 clock read").ours("homeostat-timeout");
        rows.push(timeout.beside(Against::Other(cycle("u64"), "cpu_ns", "W1w")).beside(like()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::PLAN;

    /// A row or goal that names an unmeasured cell would be empty.
    #[test]
    fn every_row_and_goal_names_cells_of_the_plan() {
        let planned = |cell: Cell| {
            PLAN.iter().any(|workload| {
                workload.name == cell.workload
                    && workload.variants.contains(&cell.variant)
                    && workload.peers.contains(&cell.peer)
            })
        };
        for row in rows() {
            assert!(planned(row.cell("homeostat")), "{} {}", row.workload, row.variant);
            for goal in &row.goals {
                match goal.against {
                    Against::Peer(peer) => assert!(planned(row.cell(peer)), "{} {} {peer}", row.workload, row.variant),
                    Against::Other(cell, ..) => assert!(planned(cell), "{cell:?}"),
                    Against::Nothing => {}
                }
            }
        }
    }
}
