//! A logger that keeps the lines with registered names.
//!
//! The process has one logger, and tests may run in parallel. Therefore each test gives its components unique names.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::{Condvar, Mutex};

/// A log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its level.
    pub level: Level,
    /// Its text.
    pub message: String,
    /// Its fields, by name.
    pub fields: BTreeMap<String, String>,
}

impl Line {
    /// Returns the value of a field, or an empty string.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// The fields that may hold the registered name of a line. The first present field counts.
const NAMES: [&str; 10] = [
    "source",
    "subscription",
    "elector",
    "pool",
    "controller",
    "component",
    "reconciler",
    "object",
    "manager",
    "server",
];

#[derive(Default)]
struct Collector {
    lines: Mutex<BTreeMap<String, Vec<Line>>>,
    grown: Condvar,
}

impl Log for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("homeostat")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut fields = Fields::default();
        let _ = record.key_values().visit(&mut fields);
        let Some(name) = NAMES.iter().find_map(|name| fields.0.get(*name)) else {
            return;
        };
        let mut lines = self.lines.lock();
        if let Some(lines) = lines.get_mut(name) {
            lines.push(Line { level: record.level(), message: record.args().to_string(), fields: fields.0 });
            self.grown.notify_all();
        }
    }

    fn flush(&self) {}
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        self.0.insert(key.to_string(), value.to_string());
        Ok(())
    }
}

fn collector() -> &'static Collector {
    static COLLECTOR: OnceLock<&'static Collector> = OnceLock::new();
    COLLECTOR.get_or_init(|| {
        let collector: &Collector = Box::leak(Box::default());
        log::set_logger(collector).expect("no other logger in this binary");
        log::set_max_level(LevelFilter::Trace);
        collector
    })
}

/// The lines with one name.
pub struct Logs(&'static str);

impl Logs {
    /// Keeps the lines with this name from now on.
    pub fn of(name: &'static str) -> Self {
        let before = collector().lines.lock().insert(name.to_owned(), Vec::new());
        assert_eq!(before, None, "{name} is taken");
        Self(name)
    }

    /// Returns all lines so far.
    pub fn all(&self) -> Vec<Line> {
        collector().lines.lock()[self.0].clone()
    }

    /// Returns the lines at `level`.
    pub fn at(&self, level: Level) -> Vec<Line> {
        self.all().into_iter().filter(|line| line.level == level).collect()
    }

    /// Waits for a line at `level` with `text` in its message.
    pub fn wait_for(&self, level: Level, text: &str) -> Line {
        let collector = collector();
        let mut lines = collector.lines.lock();
        loop {
            let found = lines[self.0].iter().find(|line| line.level == level && line.message.contains(text));
            if let Some(line) = found {
                return line.clone();
            }
            collector.grown.wait(&mut lines);
        }
    }
}
