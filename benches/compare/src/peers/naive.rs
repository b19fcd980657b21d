//! A design that a competent engineer can write in an afternoon. Like client-go, it has one lock, a list of ready
//! keys, a set of dirty keys and a set of keys in process. A heap with its own thread holds the delays.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque, hash_map};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use hashbrown::hash_set::Entry;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The queue. A key is stored twice: in the list and in `dirty`, later in `processing` and by its worker. Taking a key
/// clones nothing.
pub(crate) struct Naive<K, S> {
    line: Mutex<Line<K, S>>,
    ready: Condvar,
}

struct Line<K, S> {
    queue: VecDeque<K>,
    /// Ready keys, and keys that become ready once they are no longer being processed.
    dirty: HashSet<K, S>,
    processing: HashSet<K, S>,
    closed: bool,
}

impl<K: Clone + Eq + Hash, S: BuildHasher + Default> Naive<K, S> {
    pub(crate) fn new() -> Self {
        let line =
            Line { queue: VecDeque::new(), dirty: HashSet::default(), processing: HashSet::default(), closed: false };
        Self { line: Mutex::new(line), ready: Condvar::new() }
    }

    /// Returns whether the key was not dirty before.
    pub(crate) fn enqueue(&self, key: K) -> bool {
        let mut line = self.line.lock();
        if line.closed {
            return false;
        }
        let Line { queue, dirty, processing, .. } = &mut *line;
        let Entry::Vacant(vacant) = dirty.entry(key) else {
            return false;
        };
        let wanted = vacant.insert();
        if processing.contains(wanted.get()) {
            return true;
        }
        queue.push_back(wanted.get().clone());
        drop(line);
        self.ready.notify_one();
        true
    }

    /// The same for a borrowed key, which is cloned only if it is new.
    pub(crate) fn enqueue_ref<Q>(&self, key: &Q) -> bool
    where
        K: std::borrow::Borrow<Q> + for<'a> From<&'a Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut line = self.line.lock();
        if line.closed || line.dirty.contains(key) {
            return false;
        }
        line.dirty.insert(K::from(key));
        if line.processing.contains(key) {
            return true;
        }
        line.queue.push_back(K::from(key));
        drop(line);
        self.ready.notify_one();
        true
    }

    fn enqueue_all(&self, keys: impl Iterator<Item = K>) {
        let mut added = 0;
        let mut line = self.line.lock();
        let Line { queue, dirty, processing, closed } = &mut *line;
        if *closed {
            return;
        }
        for key in keys {
            if let Entry::Vacant(vacant) = dirty.entry(key) {
                let wanted = vacant.insert();
                if !processing.contains(wanted.get()) {
                    queue.push_back(wanted.get().clone());
                    added += 1;
                }
            }
        }
        drop(line);
        for _ in 0..added {
            self.ready.notify_one();
        }
    }

    pub(crate) fn try_get(&self) -> Option<K> {
        self.line.lock().take()
    }

    /// Blocks until a key is ready. `None` once the queue is closed and empty.
    pub(crate) fn get(&self) -> Option<K> {
        let mut line = self.line.lock();
        loop {
            if let Some(key) = line.take() {
                return Some(key);
            }
            if line.closed {
                return None;
            }
            self.ready.wait(&mut line);
        }
    }

    pub(crate) fn done(&self, key: K) {
        let mut line = self.line.lock();
        let mine = line.processing.take(&key);
        if line.dirty.contains(&key) {
            line.queue.push_back(key);
            drop(line);
            self.ready.notify_one();
        } else {
            drop(line);
        }
        // Drop it outside the lock.
        drop(mine);
    }

    pub(crate) fn close(&self) {
        self.line.lock().closed = true;
        self.ready.notify_all();
    }
}

impl<K: Eq + Hash, S: BuildHasher> Line<K, S> {
    fn take(&mut self) -> Option<K> {
        let key = self.queue.pop_front()?;
        if let Some(wanted) = self.dirty.take(&key) {
            self.processing.insert(wanted);
        }
        Some(key)
    }
}

/// The delays. A key's earliest delay wins.
pub(crate) struct Delays<K, S> {
    shared: Arc<Shared<K, S>>,
    timer: Option<JoinHandle<()>>,
}

struct Shared<K, S> {
    pending: Mutex<Pending<K, S>>,
    sooner: Condvar,
    queue: Arc<Naive<K, S>>,
}

struct Pending<K, S> {
    heap: BinaryHeap<Reverse<Due<K>>>,
    /// The valid delay of each key. All other heap entries were replaced by an earlier delay.
    due: HashMap<K, Instant, S>,
    stopping: bool,
}

struct Due<K> {
    at: Instant,
    key: K,
}

impl<K, S> Delays<K, S>
where
    K: Clone + Eq + Hash + Send + 'static,
    S: BuildHasher + Default + Send + 'static,
{
    pub(crate) fn new(queue: Arc<Naive<K, S>>) -> Self {
        let pending = Pending { heap: BinaryHeap::new(), due: HashMap::default(), stopping: false };
        let shared = Arc::new(Shared { pending: Mutex::new(pending), sooner: Condvar::new(), queue });
        let timer = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        });
        Self { shared, timer: Some(timer) }
    }

    pub(crate) fn enqueue_after(&self, key: K, delay: Duration) {
        let at = Instant::now() + delay;
        let mut pending = self.shared.pending.lock();
        let Pending { heap, due, .. } = &mut *pending;
        let key = match due.entry(key) {
            hash_map::Entry::Occupied(known) if *known.get() <= at => return,
            hash_map::Entry::Occupied(mut known) => {
                known.insert(at);
                known.key().clone()
            }
            hash_map::Entry::Vacant(new) => {
                let key = new.key().clone();
                new.insert(at);
                key
            }
        };
        let sooner = heap.peek().is_none_or(|Reverse(first)| at < first.at);
        heap.push(Reverse(Due { at, key }));
        drop(pending);
        if sooner {
            self.shared.sooner.notify_one();
        }
    }
}

impl<K: Clone + Eq + Hash, S: BuildHasher + Default> Shared<K, S> {
    /// The body of the timer thread.
    fn run(&self) {
        let mut ripe = Vec::new();
        let mut pending = self.pending.lock();
        while !pending.stopping {
            let next = pending.take_due(Instant::now(), &mut ripe);
            if !ripe.is_empty() {
                MutexGuard::unlocked(&mut pending, || self.queue.enqueue_all(ripe.drain(..)));
                continue;
            }
            match next {
                Some(at) => {
                    self.sooner.wait_until(&mut pending, at);
                }
                None => self.sooner.wait(&mut pending),
            }
        }
    }
}

impl<K: Eq + Hash, S: BuildHasher> Pending<K, S> {
    /// Moves due keys into `ripe`, and returns the next due time.
    fn take_due(&mut self, now: Instant, ripe: &mut Vec<K>) -> Option<Instant> {
        loop {
            let first = self.heap.peek_mut()?;
            if first.0.at > now {
                return Some(first.0.at);
            }
            let Reverse(Due { at, key }) = std::collections::binary_heap::PeekMut::pop(first);
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                ripe.push(key);
            }
        }
    }
}

impl<K, S> Drop for Delays<K, S> {
    fn drop(&mut self) {
        self.shared.pending.lock().stopping = true;
        self.shared.sooner.notify_one();
        if let Some(timer) = self.timer.take() {
            // This fails only if the thread has panicked, and then the panic was printed.
            let _ = timer.join();
        }
    }
}

impl<K> PartialEq for Due<K> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<K> Eq for Due<K> {}

impl<K> PartialOrd for Due<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Due<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::fast::RandomState;

    type Queue = Naive<String, RandomState>;

    fn queue() -> Arc<Queue> {
        Arc::new(Queue::new())
    }

    #[test]
    fn a_key_is_in_line_once_and_first_in_is_first_out() {
        let queue = queue();
        assert!(queue.enqueue("a".into()));
        assert!(queue.enqueue_ref("b"));
        assert!(!queue.enqueue("a".into()));
        assert!(!queue.enqueue_ref("b"));
        assert_eq!(queue.try_get().as_deref(), Some("a"));
        assert_eq!(queue.try_get().as_deref(), Some("b"));
        assert_eq!(queue.try_get(), None);
    }

    #[test]
    fn a_key_in_process_is_given_to_nobody_else_and_runs_again() {
        let queue = queue();
        queue.enqueue("a".into());
        let taken = queue.try_get().unwrap();
        assert!(queue.enqueue("a".into()));
        assert!(!queue.enqueue("a".into()));
        assert_eq!(queue.try_get(), None);
        queue.done(taken);
        let again = queue.try_get().unwrap();
        queue.done(again);
        assert_eq!(queue.try_get(), None);
        assert!(queue.enqueue("a".into()));
    }

    #[test]
    fn a_blocked_consumer_is_woken_by_a_key_and_by_the_end() {
        let queue = queue();
        let consumer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || {
                let mut seen = Vec::new();
                while let Some(key) = queue.get() {
                    seen.push(key.clone());
                    queue.done(key);
                }
                seen
            }
        });
        queue.enqueue("a".into());
        queue.enqueue("b".into());
        queue.close();
        assert!(!queue.enqueue("c".into()));
        assert_eq!(consumer.join().unwrap(), ["a", "b"]);
    }

    #[test]
    fn nothing_is_lost_between_two_producers_and_two_consumers() {
        let queue = Arc::new(Naive::<u64, RandomState>::new());
        let consumers = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut seen = Vec::new();
                while let Some(key) = queue.get() {
                    seen.push(key);
                    queue.done(key);
                }
                seen
            })
        });
        let producers = [0, 1].map(|side| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (0..20_000).for_each(|i| assert!(queue.enqueue(2 * i + side))))
        });
        producers.into_iter().for_each(|thread| thread.join().unwrap());
        queue.close();
        let mut seen: Vec<u64> = consumers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..40_000).collect::<Vec<_>>());
    }

    #[test]
    fn the_earliest_delay_of_a_key_counts_and_none_is_early() {
        let queue = queue();
        let delays = Delays::new(Arc::clone(&queue));
        let start = Instant::now();
        delays.enqueue_after("late".into(), Duration::from_secs(3600));
        delays.enqueue_after("b".into(), Duration::from_millis(60));
        delays.enqueue_after("a".into(), Duration::from_secs(3600));
        delays.enqueue_after("a".into(), Duration::from_millis(30));
        delays.enqueue_after("a".into(), Duration::from_millis(90));
        assert_eq!(queue.get().as_deref(), Some("a"));
        assert!(start.elapsed() >= Duration::from_millis(30));
        queue.done("a".into());
        assert_eq!(queue.get().as_deref(), Some("b"));
        assert!(start.elapsed() >= Duration::from_millis(60));
        assert_eq!(queue.try_get(), None);
    }
}
