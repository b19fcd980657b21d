//! W5, late, the delayed half of W6, and idle.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use parking_lot::Mutex;

use super::Scale;
use crate::meter::{Figures, Stopwatch, percentile, process_cpu, resident, switches_of_others, wait_until_idle};
use crate::peers::{Delays, kube};

/// The number of settings for each clock reading, so that readings cost little.
const STAMPED: usize = 16;
const HOUR: Duration = Duration::from_secs(3600);

/// W5: `count` delays that end within `span` after all are set, in a different order than they are set.
pub(super) fn spread<D: Delays>(count: usize, span: Duration) -> Figures {
    // Longer than any peer needs to set all delays.
    let lead = Duration::from_millis(250) + Duration::from_nanos(2_000) * count as u32;
    // A step that is coprime with the count visits every place once.
    let step = (1..).map(|extra| count * 5 / 8 + extra).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    let delay = |number: usize| lead + span.mul_f64((number * step % count) as f64 / count as f64);

    let (fired, delays) = watched::<D>(count);
    let mut due = Vec::with_capacity(count);
    let set = OnceLock::new();
    let watch = Stopwatch::start();
    delays.while_setting(|delays| {
        for first in (0..count).step_by(STAMPED) {
            let now = Instant::now();
            for number in first..(first + STAMPED).min(count) {
                let delay = delay(number);
                due.push(now + delay);
                delays.set(number as u64, delay);
            }
        }
        let _ = set.set(watch.stop());
    });
    delays.join();
    let spent = watch.stop();

    let mut figures = set.get().copied().unwrap_or_default().named("set_cpu_ns", "set_wall_ns", count);
    figures.insert("total_cpu_ms".to_owned(), spent.cpu.as_secs_f64() * 1e3);
    figures.extend(lateness(&fired, &due));
    figures
}

/// Late: `count` delays of one length, set a few milliseconds apart.
pub(super) fn late<D: Delays>(count: usize, delay: Duration) -> Figures {
    /// Coprime with the ticks of all peers, so that delays end at any phase of a tick.
    const PAUSE: Duration = Duration::from_nanos(3_141_593);
    let (fired, delays) = watched::<D>(count);
    let mut due = Vec::with_capacity(count);
    delays.while_setting(|delays| {
        for number in 0..count {
            due.push(Instant::now() + delay);
            delays.set(number as u64, delay);
            thread::sleep(PAUSE);
        }
    });
    delays.join();
    lateness(&fired, &due)
}

type Fired = Arc<Mutex<Vec<(usize, Instant)>>>;

/// Returns a timer, and the keys that its consumer has received with their times. The consumer ends after `count`
/// keys.
fn watched<D: Delays>(count: usize) -> (Fired, D) {
    let fired = Fired::new(Mutex::new(Vec::with_capacity(count)));
    let delays = D::start({
        let fired = Arc::clone(&fired);
        let mut left = count;
        // Until it has ended, only the consumer uses the lock.
        move |key| {
            fired.lock().push((key as usize, Instant::now()));
            left -= 1;
            left > 0
        }
    });
    (fired, delays)
}

/// Returns how many keys were early, and how late the others were.
fn lateness(fired: &Fired, due: &[Instant]) -> Figures {
    let fired = std::mem::take(&mut *fired.lock());
    let count = due.len();
    assert_eq!(fired.len(), count, "every key fires once");
    let mut late: Vec<f64> = Vec::with_capacity(count);
    let mut early = 0.0;
    for (key, at) in fired {
        if at < due[key] {
            early += 1.0;
        }
        late.push(at.saturating_duration_since(due[key]).as_secs_f64() * 1e3);
    }
    late.sort_by(f64::total_cmp);
    [("early", early), ("p50_ms", percentile(&late, 0.5)), ("p99_ms", percentile(&late, 0.99))]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// W6: the peak growth of the process per delayed key.
pub(super) fn memory<D: Delays>(count: usize) -> Result<Figures> {
    let delays = D::start(|_| true);
    let (before, _) = resident()?;
    delays.while_setting(|delays| {
        for number in 0..count {
            delays.set(number as u64, HOUR);
            // Keys must not pile up in a channel to another thread, because that memory is not measured here.
            if number % 1_024 == 1_023 {
                settle();
            }
        }
    });
    wait_until_idle();
    let (_, peak) = resident()?;
    end_with([("bytes", (peak - before) / count as f64)], delays)
}

/// The same on one thread. The scheduler empties its channel after every thousand requests.
pub(super) fn kube_memory(count: usize) -> Result<Figures> {
    kube::block_on(async {
        let mut line = kube::Line::new();
        line.settle();
        let (before, _) = resident()?;
        for number in 0..count as u64 {
            line.enqueue_after(number, HOUR);
            if number % 1_024 == 1_023 {
                line.settle();
            }
        }
        line.settle();
        let (_, peak) = resident()?;
        Ok([("bytes".to_owned(), (peak - before) / count as f64)].into())
    })
}

/// Idle: the context switches of all threads except the main one while nothing is due for an hour.
pub(super) fn idle<D: Delays>(count: usize, scale: Scale) -> Result<Figures> {
    let window = Duration::from_secs(if scale.quick { 1 } else { 5 });
    let delays = D::start(|_| true);
    delays.while_setting(|delays| (0..count).for_each(|number| delays.set(number as u64, HOUR)));
    wait_until_idle();
    let (switches, cpu) = (switches_of_others()?, process_cpu());
    thread::sleep(window);
    let (switches, cpu) = (switches_of_others()? - switches, process_cpu() - cpu);
    end_with([("switches", switches), ("cpu_us", cpu.as_secs_f64() * 1e6)], delays)
}

/// Gives other threads time to catch up.
fn settle() {
    thread::sleep(Duration::from_micros(200));
}

/// Ends the process without waiting for the hour-long delays.
fn end_with<D: Delays>(figures: impl IntoIterator<Item = (&'static str, f64)>, delays: D) -> Result<Figures> {
    std::mem::forget(delays);
    Ok(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
