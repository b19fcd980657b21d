//! The browser tab of a page: its title and its icon tell the health.

use super::attention::count;
use super::escape::line;
use crate::api::KindCount;
use crate::status::{CheckResult, all_ok};
use homeostat::manager::ManagerStatus;

/// Returns the address of an SVG picture with one element.
macro_rules! icon {
    ($element:literal) => {
        concat!(
            "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3C",
            $element,
            "/%3E%3C/svg%3E"
        )
    };
}

/// How much a page needs a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TabLevel {
    Good,
    /// Something fails, but the program works.
    Warn,
    /// The program does not do its work.
    Bad,
}

/// The tab of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tab {
    pub(super) level: TabLevel,
    /// The state in a few words. Announced when it changes.
    pub(super) words: String,
    /// The title. It begins with the trouble, if any.
    pub(super) title: String,
}

impl Tab {
    /// Returns the tab of a page that tells no health.
    pub(super) fn plain(title: String) -> Self {
        Self { level: TabLevel::Good, words: String::new(), title }
    }

    /// Returns the tab of the status page.
    pub(super) fn of(status: &ManagerStatus, kinds: &[KindCount], live: &[CheckResult], ready: &[CheckResult]) -> Self {
        let troubles = count(status, kinds);
        let words = match (all_ok(live), all_ok(ready)) {
            (true, true) => "live and ready",
            (true, false) => "live, not ready",
            (false, true) => "not live, but ready",
            (false, false) => "not live, not ready",
        };
        let (level, begin) = match (all_ok(live), all_ok(ready), troubles) {
            (false, ..) => (TabLevel::Bad, "not live · ".to_owned()),
            (true, false, _) => (TabLevel::Bad, "not ready · ".to_owned()),
            (true, true, 0) => (TabLevel::Good, String::new()),
            (true, true, troubles) => (TabLevel::Warn, format!("{troubles} to check · ")),
        };
        Self { level, words: words.to_owned(), title: format!("{begin}{}", status.name) }
    }

    /// Returns the icon as an address. Its form differs too, so that it is clear without colours.
    pub(super) fn icon(&self) -> &'static str {
        match self.level {
            TabLevel::Good => icon!("circle cx='8' cy='8' r='7' fill='%231f9d4d'"),
            TabLevel::Warn => icon!("path d='M8 1l7.5 14H.5z' fill='%23e0a100'"),
            TabLevel::Bad => icon!("path d='M5 1h6l4 4v6l-4 4H5l-4-4V5z' fill='%23d92d20'"),
        }
    }

    /// Returns the attributes of the page's header, from which the script takes title and icon.
    pub(super) fn attributes(&self) -> String {
        format!(
            "data-health=\"{}\" data-title=\"{}\" data-icon=\"{}\"",
            line(&self.words),
            line(&self.title),
            self.icon()
        )
    }
}
