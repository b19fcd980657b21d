//! A test suite for implementations of [`Client`].
//!
//! It checks [the rules that every client keeps](Client#the-rules-that-every-client-keeps). Each rule has one or more
//! cases, and each case has a name. [`conformance_tests!`](crate::conformance_tests) turns each case into a test;
//! [`check`] runs all cases in one test.
//!
//! # Examples
//!
//! ```
//! use homeostat_objects::{Client, MemoryClient};
//! use homeostat_testing::conformance::{self, Backend, Verdict};
//! use std::sync::Arc;
//!
//! struct Memory;
//!
//! impl Backend for Memory {
//!     fn client(&self) -> Arc<dyn Client> {
//!         Arc::new(MemoryClient::new())
//!     }
//! }
//!
//! assert_eq!(conformance::run(&Memory, "writes_of_a_stale_version_are_conflicts"), Verdict::Passed);
//! ```

mod applying;
mod cascading;
mod creating;
mod deleting;
mod fixture;
mod objects;
mod owners;
mod patching;
mod racing;
mod reading;
mod threads;
mod updating;
mod validating;
mod watching;
mod writing;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use self::fixture::{CaseResult, NotPassed, TestedClient};
use homeostat::rt::panic_message;
use homeostat_objects::{Capabilities, Client};

pub use self::objects::{WIDGET, ZONE};

/// A store of objects under test. Cases that need a [capability](Self::capabilities) that it lacks are skipped.
pub trait Backend {
    /// Returns a client that has no objects. Called once for each case.
    fn client(&self) -> Arc<dyn Client>;

    /// Returns how many changes a watch can go back.
    ///
    /// A watch must work from a version this many changes ago, and must fail with
    /// [`Gone`](homeostat_objects::ClientErrorKind::Gone) from twice as many. The default `None` means unknown, and
    /// skips the cases of `Gone`.
    fn history(&self) -> Option<usize> {
        None
    }

    /// Returns the abilities of this client and its server. The default is what the client declares.
    ///
    /// Override this if the server lacks a part, for example the garbage collector of Kubernetes.
    fn capabilities(&self, client: &dyn Client) -> Capabilities {
        client.capabilities()
    }
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The client keeps the rule.
    Passed,
    /// The case does not apply to the back end, for this reason.
    Skipped(String),
    /// The client breaks the rule. The text says where and how.
    Failed(String),
}

/// The results of all cases.
#[derive(Clone, Debug)]
pub struct ConformanceReport {
    /// The name and the result of each case.
    pub verdicts: Vec<(&'static str, Verdict)>,
}

impl ConformanceReport {
    /// Returns the names of the skipped cases.
    pub fn skipped(&self) -> impl Iterator<Item = &'static str> {
        self.names_of(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    /// Returns the names of the failed cases.
    pub fn failed(&self) -> impl Iterator<Item = &'static str> {
        self.names_of(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    fn names_of(&self, wanted: fn(&Verdict) -> bool) -> impl Iterator<Item = &'static str> {
        self.verdicts.iter().filter(move |(_, verdict)| wanted(verdict)).map(|(name, _)| *name)
    }
}

impl fmt::Display for ConformanceReport {
    /// Writes the counts, and a line for each case that did not pass.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, skipped) = (self.failed().count(), self.skipped().count());
        write!(f, "of {} cases {failed} failed, {skipped} were skipped", self.verdicts.len())?;
        for (name, verdict) in &self.verdicts {
            match verdict {
                Verdict::Passed => {}
                Verdict::Skipped(why) => write!(f, "\n  skipped {name}: {why}")?,
                Verdict::Failed(why) => write!(f, "\n  failed {name}: {why}")?,
            }
        }
        Ok(())
    }
}

/// Calls another macro with its arguments and the list of all cases.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ([$($then:tt)*] $($arguments:tt)*) => {
        $($then)*! { $($arguments)*
            reading:
                get_gives_what_was_written,
                get_of_nothing_is_not_found,
                list_of_nothing_has_a_version,
                list_is_in_the_order_of_the_keys,
                list_is_of_a_namespace,
                list_selects_by_labels,
                list_selects_by_fields,
                list_selects_by_name,
                list_is_as_of_one_version,
                list_in_pages_has_all_objects_once,
                list_in_pages_is_as_of_the_version_of_the_first,
                list_goes_on_from_a_token_only,
                list_goes_on_from_before_the_history_is_gone,
                versions_are_never_used_twice,
                what_was_given_out_does_not_change;
            creating:
                create_sets_what_the_client_sets,
                create_ignores_what_the_client_sets,
                create_makes_the_uid,
                create_sets_a_time_in_whole_seconds,
                create_of_a_name_that_is_there_already_exists,
                create_of_one_name_in_two_namespaces_and_kinds,
                create_after_a_deletion_makes_another_object,
                create_of_an_object_with_a_version_is_invalid,
                create_makes_a_name,
                create_makes_names_in_no_namespace,
                create_cuts_the_start_of_a_long_name,
                empty_metadata_is_not_kept,
                create_by_many_at_once_succeeds_once,
                create_by_many_at_once_makes_names_and_uids_once;
            writing:
                writes_of_nothing_are_not_found,
                writes_of_a_stale_version_are_conflicts,
                writes_of_another_uid_are_conflicts,
                writes_of_what_is_there_keep_the_version,
                status_is_written_by_its_methods_only;
            updating:
                update_replaces_all_but_status,
                update_status_writes_nothing_else,
                update_status_replaces_and_removes,
                update_in_no_namespace,
                update_without_a_version_is_invalid,
                generation_rises_with_what_is_wanted,
                what_the_client_sets_stays_as_it_is,
                update_with_a_deletion_time_is_invalid;
            deleting:
                delete_removes,
                delete_sets_a_time_after_that_of_the_creation,
                delete_in_no_namespace,
                delete_waits_for_finalizers,
                delete_of_what_is_deleted_changes_nothing,
                delete_takes_no_new_finalizers,
                generation_rises_when_a_deletion_begins,
                deleting_objects_are_written_as_others,
                a_patch_takes_the_last_finalizer_away,
                finalizers_without_a_deletion_hold_nothing,
                a_status_does_not_remove,
                purge_removes_at_once,
                a_grace_period_holds_no_widget,
                delete_collection_deletes_what_is_selected,
                delete_by_many_at_once_succeeds_once;
            owners:
                owners_are_kept,
                owners_in_another_namespace_own_nothing,
                owners_are_one_controller_at_most,
                owners_are_named_in_full;
            cascading:
                owners_of_unknown_kinds_count_as_existing,
                what_belongs_to_a_deleted_object_is_deleted,
                what_belongs_to_a_purged_object_is_deleted,
                what_belongs_to_a_zone_is_deleted,
                what_belongs_to_several_goes_with_the_last,
                what_belongs_to_no_object_is_deleted,
                what_comes_to_belong_to_no_object_is_deleted,
                what_no_longer_belongs_to_it_stays,
                a_chain_of_owners_is_deleted,
                a_circle_of_owners_is_deleted,
                finalizers_hold_what_belongs_to_a_deleted_object,
                in_the_foreground_the_owner_goes_last,
                in_the_foreground_the_owner_waits_for_what_blocks,
                in_the_foreground_the_owner_waits_for_nothing_else,
                in_the_foreground_an_owner_without_any_goes_at_once,
                in_the_foreground_finalizers_hold_the_owner_too,
                in_the_foreground_what_has_another_owner_stays,
                in_the_foreground_after_a_deletion_in_the_background,
                in_the_background_after_a_deletion_in_the_foreground,
                a_deletion_replaces_the_finalizers_for_dependents,
                in_the_foreground_the_finalizers_of_dependents_are_replaced,
                orphans_stay,
                orphans_of_an_owner_with_finalizers_stay;
            patching:
                patch_merges_as_the_standard_says,
                patch_takes_steps_as_the_standard_says,
                patch_does_all_steps_or_none,
                patch_that_is_none_is_invalid,
                patch_of_the_status_leaves_the_rest,
                patch_changes_no_name_and_no_kind,
                patch_of_labels_removes_with_null,
                patch_in_no_namespace;
            applying:
                apply_creates,
                apply_changes_its_fields,
                apply_removes_what_it_no_longer_has,
                apply_against_another_owner_is_a_conflict,
                apply_of_the_same_value_shares_it,
                apply_with_force_takes_fields,
                apply_owns_arrays_as_a_whole,
                apply_of_an_empty_object_leaves_place_for_others,
                apply_with_force_wins_over_other_writers,
                apply_leaves_alone_what_others_have_written_since,
                apply_to_a_new_object_of_the_name_forgets_owners,
                apply_of_the_uid_of_a_gone_object_is_a_conflict,
                apply_without_a_name_is_invalid,
                apply_owns_finalizers_and_owners_one_by_one,
                apply_of_finalizers_and_owners,
                apply_of_the_status_leaves_the_rest,
                apply_of_the_status_has_its_own_owners,
                apply_of_an_admitted_state_stores_it;
            validating:
                names_are_subdomains,
                names_are_there,
                namespaces_are_dns_labels,
                widgets_are_in_a_namespace,
                zones_are_in_no_namespace,
                label_keys_are_qualified_names,
                label_values_are_short_words,
                finalizers_are_qualified_names,
                finalizers_for_dependents_exclude_each_other,
                owners_are_objects,
                objects_have_metadata,
                objects_are_of_the_kind;
            watching:
                watch_tells_what_each_call_returned,
                watch_from_no_version_begins_with_all,
                watch_of_nothing_begins_with_a_bookmark,
                watch_is_of_one_kind,
                watch_is_of_a_namespace,
                watch_selects_by_labels,
                watch_selects_by_fields,
                watch_resumes_from_every_version,
                watch_from_now_tells_what_is_next,
                watch_from_any_version_begins_with_all,
                watch_ends_when_it_is_stopped,
                watch_that_is_stopped_before_it_begins_ends,
                watch_from_before_the_history_is_gone,
                watch_that_lags_misses_nothing_unsaid,
                watch_tells_what_can_be_read;
            racing:
                racing_updates_are_all_counted,
                racing_updates_are_all_told,
                racing_updates_of_one_version_succeed_once,
                racing_writers_of_their_own_objects_have_no_conflicts,
                racing_patches_are_all_done,
                racing_appliers_conflict_or_share,
                racing_changes_are_told_once_and_in_order,
                racing_watches_begin_without_a_gap,
                racing_children_of_a_deleted_object_are_deleted;
        }
    };
}

macro_rules! table {
    ($($module:ident: $($name:ident),*;)*) => {
        const CASES: &[Case] = &[$($(Case {
            name: stringify!($name),
            needs_cascading: matches!(stringify!($module).as_bytes(), b"cascading"),
            run: $module::$name,
        }),*),*];
    };
}
__conformance_cases!([table]);

/// Returns the names of all cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Runs all cases, each with a new client.
///
/// # Panics
///
/// Panics after the last case if cases failed. The message names them and gives their reports.
#[track_caller]
pub fn check(backend: &impl Backend) -> ConformanceReport {
    let report = report(backend);
    assert!(report.failed().next().is_none(), "{report}");
    report
}

/// Runs all cases, each with a new client, and returns their results.
pub fn report(backend: &impl Backend) -> ConformanceReport {
    ConformanceReport { verdicts: CASES.iter().map(|case| (case.name, case.run(backend))).collect() }
}

/// Runs one case.
///
/// # Panics
///
/// Panics if no case has this name.
#[track_caller]
pub fn run(backend: &impl Backend, name: &str) -> Verdict {
    let Some(case) = CASES.iter().find(|case| case.name == name) else { panic!("there is no case {name:?}") };
    case.run(backend)
}

struct Case {
    name: &'static str,
    needs_cascading: bool,
    run: fn(&TestedClient) -> CaseResult,
}

impl Case {
    fn run(&self, backend: &impl Backend) -> Verdict {
        let run = AssertUnwindSafe(|| {
            let client = backend.client();
            let capabilities = backend.capabilities(&*client);
            let client = TestedClient::new(client, backend.history(), capabilities);
            if self.needs_cascading {
                client.needs_cascading()?;
            }
            (self.run)(&client)
        });
        match catch_unwind(run) {
            Ok(Ok(())) => Verdict::Passed,
            Ok(Err(NotPassed::Skipped(why))) => Verdict::Skipped(why),
            Ok(Err(NotPassed::Failed(why))) => Verdict::Failed(why),
            Err(panic) => Verdict::Failed(format!("panicked: {}", panic_message(&*panic))),
        }
    }
}

/// The body of a test of [`conformance_tests!`](crate::conformance_tests).
#[doc(hidden)]
#[track_caller]
pub fn verify(backend: &impl Backend, name: &str, skipped: &[&str]) {
    match (run(backend, name), skipped.contains(&name)) {
        (Verdict::Passed, false) | (Verdict::Skipped(_), true) => {}
        (Verdict::Passed, true) => panic!("the test lists {name} as skipped, but the case applies and passes"),
        (Verdict::Skipped(why), false) => panic!("the test does not list {name} as skipped, but {why}"),
        (Verdict::Failed(why), _) => panic!("{why}"),
    }
}

/// Turns each case of the [conformance suite](crate::conformance) into a test, for a [`Backend`].
///
/// Cases that do not apply to the back end are skipped. After `skipped`, give an array or a `Vec` of their names. A
/// test fails if its case is skipped but not listed, or listed but not skipped.
///
/// # Examples
///
/// ```
/// # use homeostat_objects::{Client, MemoryClient};
/// # use std::sync::Arc;
/// struct Memory;
///
/// impl homeostat_testing::conformance::Backend for Memory {
///     fn client(&self) -> Arc<dyn Client> {
///         Arc::new(MemoryClient::new())
///     }
/// }
///
/// homeostat_testing::conformance_tests!(Memory, skipped: [
///     "list_goes_on_from_before_the_history_is_gone", "watch_from_before_the_history_is_gone",
/// ]);
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($backend:expr $(,)?) => {
        $crate::conformance_tests!($backend, skipped: []);
    };
    ($backend:expr, skipped: $skipped:expr $(,)?) => {
        $crate::__conformance_cases! { [$crate::__conformance_tests] ($backend) ($skipped) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($backend:tt $skipped:tt $($module:ident: $($name:ident),*;)*) => {
        $($($crate::__conformance_tests! { @ $backend $skipped $name })*)*
    };
    (@ ($backend:expr) ($skipped:expr) $name:ident) => {
        #[test]
        fn $name() {
            $crate::conformance::verify(&$backend, stringify!($name), &$skipped);
        }
    };
}
