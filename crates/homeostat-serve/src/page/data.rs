//! The data that a page shows, and small parts that several sections use.

use std::fmt::{Display, Write};
use std::time::{Duration, Instant, SystemTime};

use super::escape::{Escaped, key, key_path, line, lines, name, path};
use super::history::History;
use super::past_actions::PastActions;
use super::units::{ago, size};
use crate::status::{CheckResult, ProcessFacts};
use homeostat::manager::ManagerStatus;

/// The data of one point in time.
pub(super) struct PageData<'a> {
    pub(super) status: &'a ManagerStatus,
    pub(super) live: &'a [CheckResult],
    pub(super) ready: &'a [CheckResult],
    pub(super) process: &'a ProcessFacts,
    pub(super) history: &'a History,
    /// The version of the program.
    pub(super) version: Option<&'a str>,
    pub(super) past: &'a PastActions,
    /// Whether the lists show all rows.
    pub(super) all: bool,
}

/// Returns the largest number of rows of a list, which is `few` unless all are shown.
pub(super) fn most(all: bool, few: usize) -> usize {
    if all { 1_000 } else { few }
}

impl PageData<'_> {
    pub(super) fn now(&self) -> Instant {
        self.status.taken_at
    }

    /// Returns the time of the data, by the manager's clock and on the wall clock.
    pub(super) fn times(&self) -> (Instant, SystemTime) {
        (self.status.taken_at, self.status.time_of_day)
    }

    /// Returns the largest number of rows of a list of this page, see [`most`].
    pub(super) fn most(&self, few: usize) -> usize {
        most(self.all, few)
    }

    /// Returns the remark of the list with this heading: its length, or the number of its rows and a link to all.
    pub(super) fn remark(&self, id: &str, shown: usize, all: usize) -> String {
        remark(shown, all, &if self.all { String::new() } else { format!("?all=1#{id}") })
    }

    /// Returns an age as HTML.
    pub(super) fn ago(&self, age: Duration) -> String {
        ago(self.status.time_of_day, age)
    }
}

/// The colour class of a chip. Its text must be clear without the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChipColour {
    Good,
    Warn,
    Bad,
    Calm,
}

impl ChipColour {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Calm => "calm",
        }
    }
}

/// Returns a framed label.
pub(super) fn chip(colour: ChipColour, text: impl Display) -> String {
    format!("<span class=\"chip {}\">{}</span>", colour.class(), Escaped(text))
}

/// Returns a link to a key's page.
pub(super) fn key_link(controller: &str, shown: &str) -> String {
    format!("<a class=\"key\" href=\"{}\">{}</a>", key_path(controller, shown), key(shown))
}

/// Returns a link to a controller's page.
pub(super) fn controller_link(controller: &str) -> String {
    format!("<a class=\"name\" href=\"{}\">{}</a>", path(&["controllers", controller]), name(controller))
}

/// A placeholder for a missing value.
pub(super) const DASH: &str = "<span class=\"none\">–</span>";

/// Adds a table cell. On narrow screens its label is shown before it, and a cell without a value is hidden. `content`
/// is HTML.
pub(super) fn cell(out: &mut String, class: &str, label: &str, content: impl Display) {
    let content = content.to_string();
    let is_empty = content.is_empty() || (content.starts_with("<span class=\"none\">") && !content.contains("<svg"));
    let class = [class, if is_empty { "empty" } else { "" }].join(" ");
    // Writing to a `String` cannot fail.
    let _ = write!(out, "<td class=\"{}\" data-label=\"{label}\">{content}</td>", class.trim());
}

/// Returns a fact of a list of figures, with a class for its value. `value` is HTML.
pub(super) fn figure(out: &mut String, name: &str, value: impl Display, class: &str) {
    // Writing to a `String` cannot fail.
    let _ = write!(out, "<div><dt>{name}</dt><dd class=\"{class}\">{value}</dd></div>");
}

/// Begins a table with a caption for screen readers and its column heads, each with class and HTML.
pub(super) fn table(out: &mut String, class: &str, caption: &str, heads: &[(&str, &str)]) {
    let _ = write!(out, "<table class=\"cards {class}\"><caption class=\"unseen\">{caption}</caption><thead><tr>");
    for (class, head) in heads {
        let _ = write!(out, "<th scope=\"col\" class=\"{class}\">{head}</th>");
    }
    out.push_str("</tr></thead><tbody>");
}

/// Adds the cell that names a row. `content` is HTML.
pub(super) fn row_name(out: &mut String, content: impl Display) {
    let _ = write!(out, "<tr><th scope=\"row\">{content}</th>");
}

/// Returns a number, in a muted colour if it is zero, and with this colour otherwise.
pub(super) fn number(count: usize, colour: ChipColour) -> String {
    let class = match (count, colour) {
        (0, _) => "none",
        (_, ChipColour::Calm) => "",
        _ => colour.class(),
    };
    format!("<span class=\"{class}\">{}</span>", size(count))
}

/// The longest text that a table shows without a click.
const SHORT: usize = 72;

/// Returns a text that may be long: its beginning, and the rest after a click. `id` identifies the detail after a
/// refresh.
pub(super) fn detail(id: &str, text: &str) -> String {
    let is_short = text.chars().count() <= SHORT && !text.contains('\n');
    if is_short {
        return line(text).to_string();
    }
    // The style truncates the line at the edge of its cell.
    let begin: String = text.lines().next().unwrap_or_default().chars().take(2 * SHORT).collect();
    format!(
        "<details data-id=\"{}\"><summary>{}…</summary><pre>{}</pre></details>",
        Escaped(id),
        line(&begin),
        lines(text)
    )
}

/// Returns the remark of a list. `link` leads to all rows and needs no further escape. It may be empty.
pub(super) fn remark(shown: usize, all: usize, link: &str) -> String {
    match (shown < all, link) {
        (false, _) => size(all),
        (true, "") => format!("{} of {}", size(shown), size(all)),
        (true, link) => format!("{} of {} <a href=\"{link}\">show all</a>", size(shown), size(all)),
    }
}

/// Returns the heading of a section, with a remark.
pub(super) fn heading(id: &str, title: &str, remark: &str) -> String {
    let remark = if remark.is_empty() { String::new() } else { format!(" <small>{remark}</small>") };
    format!("<h2 id=\"{id}\">{title}{remark}</h2>")
}
