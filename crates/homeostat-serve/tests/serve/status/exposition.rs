//! A strict parser for the Prometheus text format, version 0.0.4.

use std::collections::{BTreeMap, BTreeSet};

/// Labels by name.
pub(super) type Labels = BTreeMap<String, String>;

/// The samples of a family by the suffix of their names.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) of_type: String,
    pub(super) help: String,
    pub(super) samples: Vec<(String, Labels, f64)>,
}

/// Parses a text. Panics if it violates a rule of the format.
pub(super) fn read(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has no end");
    let mut families = BTreeMap::<String, Family>::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let (kind, rest) = rest.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            assert!(is_name(name, true), "{line}");
            if name != current {
                assert!(!families.contains_key(name), "the family {name} begins twice");
                name.clone_into(&mut current);
            }
            let family = families.entry(name.to_owned()).or_default();
            assert!(family.samples.is_empty(), "{line} comes after samples");
            let field = if kind == "HELP" { &mut family.help } else { &mut family.of_type };
            assert!(matches!(kind, "HELP" | "TYPE") && field.is_empty() && !value.is_empty(), "{line}");
            value.clone_into(field);
            continue;
        }
        let (name, labels, value) = sample(line);
        let family = families.get_mut(&current).unwrap_or_else(|| panic!("{line} has no family"));
        let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{line} is not of {current}"));
        let allowed: &[&str] = if family.of_type == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(allowed.contains(&suffix), "{line}");
        let is_new = !family.samples.iter().any(|(known, of, _)| known == suffix && *of == labels);
        assert!(is_new, "{line} occurs twice");
        family.samples.push((suffix.to_owned(), labels, value));
    }
    for (name, family) in &families {
        assert!(["counter", "gauge", "histogram"].contains(&&*family.of_type), "{name}: {}", family.of_type);
        // Kubernetes names this counter differently.
        let is_count = name.ends_with("_total") || name == "authentication_attempts";
        assert_eq!(family.of_type == "counter", is_count, "{name}");
        if family.of_type == "histogram" {
            check_histogram(name, family);
        }
    }
    families
}

/// Checks that each label set has rising buckets that end with infinity, a sum, and the count of the last bucket.
fn check_histogram(name: &str, family: &Family) {
    let without_bound = |labels: &Labels| {
        let mut labels = labels.clone();
        labels.remove("le");
        labels
    };
    let sets: BTreeSet<_> = family.samples.iter().map(|(_, labels, _)| without_bound(labels)).collect();
    for labels in sets {
        let of_set = |suffix: &str| {
            let samples = family.samples.iter().filter(|(known, of, _)| known == suffix && without_bound(of) == labels);
            samples.map(|(_, labels, value)| (labels.get("le").cloned(), *value)).collect::<Vec<_>>()
        };
        let buckets = of_set("_bucket");
        let bounds: Vec<f64> = buckets.iter().map(|(bound, _)| float(bound.as_ref().unwrap())).collect();
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{name} {labels:?}: {bounds:?}");
        assert!(bounds.last().unwrap().is_infinite(), "{name} {labels:?} has no bucket +Inf");
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {labels:?}: {buckets:?}");
        let (sum, count) = (of_set("_sum"), of_set("_count"));
        assert_eq!((sum.len(), count.len()), (1, 1));
        assert_eq!(count[0].1.to_bits(), buckets.last().unwrap().1.to_bits(), "{name} {labels:?}");
    }
}

/// Splits a sample into name, labels and value. There is no timestamp.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, true), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label, false), "{line}");
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match characters.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("{line}: \\{other}"),
                    }),
                    (_, other) => value.push(other),
                }
            };
            assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
            rest = &after[end + 1..];
            match rest.split_at(1) {
                (",", more) => rest = more,
                ("}", more) => break rest = more,
                other => panic!("{line}: {other:?}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    (name.to_owned(), labels, float(value))
}

fn float(text: &str) -> f64 {
    let is_number = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e'));
    match text {
        "+Inf" => f64::INFINITY,
        _ if is_number => text.parse().unwrap(),
        _ => panic!("{text} is not a number"),
    }
}

fn is_name(name: &str, of_metric: bool) -> bool {
    let allowed = |c: char| c.is_ascii_alphabetic() || c == '_' || (of_metric && c == ':');
    name.starts_with(allowed) && name.chars().all(|c| allowed(c) || c.is_ascii_digit())
}

#[test]
fn the_reader_finds_faults() {
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    assert_eq!(read(&format!("{head}a_total{{b=\"\\\\\\\"\\n\"}} 7\n"))["a_total"].samples[0].1["b"], "\\\"\n");
    for wrong in [
        "a_total 7\n".to_owned(),
        format!("{head}a_total 7"),
        format!("{head}a_total 7\na_total 8\n"),
        format!("{head}b_total 7\n"),
        format!("{head}a_total{{b=\"\\x\"}} 7\n"),
        format!("{head}a_total{{b-c=\"\"}} 7\n"),
        format!("{head}a_total seven\n"),
        format!("{head}a_total 1\n{head}"),
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n".to_owned(),
        "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n"
            .to_owned(),
    ] {
        assert!(std::panic::catch_unwind(|| read(&wrong)).is_err(), "{wrong}");
    }
}
