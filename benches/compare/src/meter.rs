//! The measured quantities and how to read them.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// The figures of one cell by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Wall time, and the CPU time of all threads of the process, in user and kernel mode.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

/// The times of a stopwatch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { cpu: process_cpu(), wall: Instant::now() }
    }

    pub(crate) fn stop(self) -> Spent {
        let wall = self.wall.elapsed();
        Spent { wall, cpu: process_cpu().saturating_sub(self.cpu) }
    }
}

impl Spent {
    /// Returns nanoseconds of CPU time and wall time per operation.
    pub(crate) fn per(self, ops: usize) -> Figures {
        self.named("cpu_ns", "wall_ns", ops)
    }

    pub(crate) fn named(self, cpu: &str, wall: &str, ops: usize) -> Figures {
        let per = |time: Duration| time.as_nanos() as f64 / ops as f64;
        [(cpu.to_owned(), per(self.cpu)), (wall.to_owned(), per(self.wall))].into()
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

pub(crate) fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Blocks until the process uses no CPU time, because its other threads have finished.
pub(crate) fn wait_until_idle() {
    loop {
        let before = process_cpu();
        std::thread::sleep(Duration::from_millis(100));
        if process_cpu() - before < Duration::from_millis(2) {
            return;
        }
    }
}

/// Returns the cost of reading the system's clock once.
pub(crate) fn clock_read_ns() -> f64 {
    const READS: usize = 1_000_000;
    let watch = Stopwatch::start();
    for _ in 0..READS {
        black_box(Instant::now());
    }
    watch.stop().cpu.as_nanos() as f64 / READS as f64
}

/// Returns the resident memory and its peak in bytes.
pub(crate) fn resident() -> Result<(f64, f64)> {
    memory_of("self")
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_of(process: u32) -> Result<f64> {
    memory_of(&process.to_string()).map(|(resident, _)| resident)
}

fn memory_of(process: &str) -> Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("this needs Linux' /proc")?;
    let kib = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim_end_matches("kB").trim().parse::<f64>()? * 1024.0)
    };
    Ok((kib("VmRSS:")?, kib("VmHWM:")?))
}

/// Returns the CPU time of all threads of a process. On most systems, its resolution is a hundredth of a second.
pub(crate) fn cpu_of(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("this needs Linux' /proc")?;
    // The name in parentheses may contain spaces. User and kernel time are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(Duration::from_secs_f64(ticks.iter().sum::<u64>() as f64 / clock_ticks_per_second() as f64))
}

/// Returns the context switches of all threads except the main one. At each switch, a thread went to sleep or was
/// suspended.
pub(crate) fn switches_of_others() -> Result<f64> {
    let main = std::process::id().to_string();
    let mut switches = 0.0;
    for task in fs::read_dir("/proc/self/task").context("this needs Linux' /proc")? {
        let task = task?;
        if task.file_name().to_str() == Some(main.as_str()) {
            continue;
        }
        let status = fs::read_to_string(task.path().join("status"))?;
        for line in status.lines() {
            if let Some((name, count)) = line.split_once(':')
                && name.ends_with("voluntary_ctxt_switches")
            {
                switches += count.trim().parse::<f64>()?;
            }
        }
    }
    Ok(switches)
}

/// Calls a function with each number, on several threads. Returns the duration of each call in microseconds.
pub(crate) fn spread(
    threads: usize,
    numbers: Range<usize>,
    call: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<Vec<f64>> {
    let next = AtomicUsize::new(numbers.start);
    thread::scope(|scope| {
        let work = || -> Result<Vec<f64>> {
            let mut latencies = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return Ok(latencies);
                }
                let start = Instant::now();
                call(number)?;
                latencies.push(start.elapsed().as_nanos() as f64 / 1_000.0);
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().expect("a caller does not panic")?);
        }
        Ok(all)
    })
}

/// Returns the quantile `part` (0 to 1) of the sorted values.
pub(crate) fn percentile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 0.99), 99.0);
    }

    #[test]
    fn a_busy_process_spends_cpu_time() {
        let watch = Stopwatch::start();
        assert!(clock_read_ns() > 0.0);
        assert!(watch.stop().cpu > Duration::ZERO);
        let (now, peak) = resident().unwrap();
        assert!(now > 0.0 && peak > 0.0);
        let own = std::process::id();
        assert!(resident_of(own).unwrap() > 0.0);
        let (before, other) = (process_cpu(), cpu_of(own).unwrap());
        // Ticks of up to 10 ms, rounded down or up.
        assert!(other.abs_diff(before) < Duration::from_millis(100), "{other:?} and {before:?}");
    }
}
