//! Whether a [`Client`] keeps [the rules that every client keeps](Client#the-rules-that-every-client-keeps).
//!
//! Each rule has cases, and each case a name. [`check`] runs all of them; [`conformance_tests!`](crate::conformance_tests) makes a
//! test of each.
//!
//! # Examples
//!
//! ```
//! use homeostat::objects::{Client, MemoryClient};
//! use homeostat::testing::conformance::{self, Backend, Verdict};
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
//! assert_eq!(conformance::run(&Memory, "update_of_a_stale_version_is_a_conflict"), Verdict::Passed);
//! ```

mod applying;
mod cascading;
mod creating;
mod deleting;
mod fixture;
mod owners;
mod patching;
mod racing;
mod reading;
mod updating;
mod validating;
mod watching;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use self::fixture::{Outcome, Stop, Subject};
use crate::base::thread::panic_message;
use crate::objects::{Client, Kind};

/// The kind of most objects in the cases. They are in the namespaces `default` and `other`.
pub const WIDGET: Kind = Kind::namespaced("conformance.example.com", "v1", "Widget");

/// The kind of those in no namespace.
pub const ZONE: Kind = Kind::cluster("conformance.example.com", "v1", "Zone");

/// What keeps objects, as far as the cases need to know it.
pub trait Backend {
    /// A client without an object. Called once a case.
    fn client(&self) -> Arc<dyn Client>;

    /// How many changes a watch can go back: this many for certain, and never twice as many. `None`, the default, if that is not
    /// known: then it is not asked when it is [`Gone`](crate::objects::ClientError::Gone).
    fn history(&self) -> Option<usize> {
        None
    }

    /// Whether objects are deleted after their owners: by default they are.
    fn cascades(&self) -> bool {
        true
    }
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The client keeps the rule.
    Passed,
    /// The back end cannot be asked: why.
    Skipped(String),
    /// The client does not: what it did.
    Failed(String),
}

/// What came of all cases.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each with its name.
    pub verdicts: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// The names of the cases that have been skipped.
    pub fn skipped(&self) -> impl Iterator<Item = &'static str> {
        self.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Skipped(_))).map(|(name, _)| *name)
    }

    /// The names of the cases that have failed.
    pub fn failed(&self) -> impl Iterator<Item = &'static str> {
        self.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_))).map(|(name, _)| *name)
    }
}

impl fmt::Display for Report {
    /// How many there are of each sort, and a line for each that has not passed.
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

/// A rule, and how it is asked.
type Case = (&'static str, fn(&Subject) -> Outcome);

/// Gives the list of all cases to another macro, after its own arguments.
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
                create_gives_no_status,
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
            updating:
                update_replaces_all_but_status,
                update_ignores_a_status,
                update_status_writes_nothing_else,
                update_status_replaces_and_removes,
                update_in_no_namespace,
                update_of_nothing_is_not_found,
                update_of_a_stale_version_is_a_conflict,
                update_of_another_uid_is_a_conflict,
                update_of_the_object_before_a_deletion_is_a_conflict,
                update_without_a_version_is_invalid,
                update_to_what_is_there_keeps_the_version,
                generation_rises_with_what_is_wanted,
                what_the_client_sets_stays_as_it_is;
            deleting:
                delete_removes,
                delete_sets_a_time_after_that_of_the_creation,
                delete_in_no_namespace,
                delete_of_nothing_is_not_found,
                delete_waits_for_finalizers,
                delete_of_what_is_deleted_changes_nothing,
                delete_takes_no_new_finalizers,
                generation_rises_when_a_deletion_begins,
                deleting_objects_are_written_as_others,
                a_patch_takes_the_last_finalizer_away,
                finalizers_without_a_deletion_hold_nothing,
                a_status_does_not_remove,
                purge_removes_at_once,
                preconditions_are_kept,
                delete_collection_deletes_what_is_selected,
                delete_by_many_at_once_succeeds_once;
            owners:
                owners_are_kept,
                owners_in_another_namespace_are_invalid,
                owners_are_one_controller_at_most,
                owners_are_named_in_full,
                owners_are_found_in_any_version,
                what_belongs_to_a_deleted_object_is_deleted,
                what_belongs_to_a_purged_object_is_deleted,
                what_belongs_to_a_zone_is_deleted,
                what_belongs_to_several_goes_with_the_last,
                what_belongs_to_no_object_is_deleted,
                what_comes_to_belong_to_no_object_is_deleted,
                what_no_longer_belongs_to_it_stays,
                a_chain_of_owners_is_deleted,
                a_circle_of_owners_is_deleted,
                finalizers_hold_what_belongs_to_a_deleted_object;
            cascading:
                in_the_foreground_the_owner_goes_last,
                in_the_foreground_the_owner_waits_for_what_blocks,
                in_the_foreground_the_owner_waits_for_nothing_else,
                in_the_foreground_an_owner_without_any_goes_at_once,
                in_the_foreground_finalizers_hold_the_owner_too,
                in_the_foreground_what_has_another_owner_stays,
                in_the_foreground_after_a_deletion_in_the_background,
                orphans_stay,
                orphans_of_an_owner_with_finalizers_stay;
            patching:
                patch_merges_as_the_standard_says,
                patch_takes_steps_as_the_standard_says,
                patch_does_all_steps_or_none,
                patch_that_is_none_is_invalid,
                patch_of_nothing_is_not_found,
                patch_of_a_stale_version_is_a_conflict,
                patch_of_another_uid_is_a_conflict,
                patch_leaves_the_status,
                patch_of_the_status_leaves_the_rest,
                patch_to_what_is_there_keeps_the_version,
                patch_changes_no_name_and_no_kind,
                patch_of_labels_removes_with_null;
            applying:
                apply_creates,
                apply_changes_its_fields,
                apply_removes_what_it_no_longer_has,
                apply_of_what_is_there_keeps_the_version,
                apply_against_another_owner_is_a_conflict,
                apply_of_the_same_value_shares_it,
                apply_with_force_takes_fields,
                apply_owns_arrays_as_a_whole,
                apply_of_an_empty_object_leaves_place_for_others,
                apply_has_no_conflict_with_other_writers,
                apply_leaves_alone_what_others_have_written_since,
                apply_leaves_the_status,
                apply_to_a_new_object_of_the_name_forgets_owners,
                apply_of_a_stale_version_or_another_uid_is_a_conflict,
                apply_of_the_uid_of_a_gone_object_is_a_conflict,
                apply_without_a_name_is_invalid,
                apply_of_finalizers_and_owners;
            validating:
                names_are_subdomains,
                names_are_there,
                namespaces_are_dns_labels,
                widgets_are_in_a_namespace,
                zones_are_in_no_namespace,
                label_keys_are_qualified_names,
                label_values_are_short_words,
                finalizers_are_qualified_names,
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
        const CASES: &[Case] = &[$($((stringify!($name), $module::$name)),*),*];
    };
}
__conformance_cases!([table]);

/// The names of all cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, _)| *name)
}

/// Runs all cases, each with a client of its own.
///
/// # Panics
///
/// At the end, if cases have failed, with their names and what was wrong.
#[track_caller]
pub fn check(backend: &impl Backend) -> Report {
    let report = report(backend);
    assert!(report.failed().next().is_none(), "{report}");
    report
}

/// Runs all cases, each with a client of its own, and says what came of them.
pub fn report(backend: &impl Backend) -> Report {
    Report { verdicts: CASES.iter().map(|(name, case)| (*name, judge(backend, *case))).collect() }
}

/// Runs one case.
///
/// # Panics
///
/// If there is none of this name.
#[track_caller]
pub fn run(backend: &impl Backend, name: &str) -> Verdict {
    let case = CASES.iter().find(|(known, _)| *known == name);
    let Some((_, case)) = case else { panic!("there is no case {name:?}") };
    judge(backend, *case)
}

fn judge(backend: &impl Backend, case: fn(&Subject) -> Outcome) -> Verdict {
    let ask = AssertUnwindSafe(|| case(&Subject::new(backend.client(), backend.history(), backend.cascades())));
    match catch_unwind(ask) {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(Stop::Skipped(why))) => Verdict::Skipped(why),
        Ok(Err(Stop::Failed(why))) => Verdict::Failed(why),
        Err(panic) => Verdict::Failed(format!("panicked: {}", panic_message(&*panic))),
    }
}

/// What a test of [`conformance_tests!`](crate::conformance_tests) does.
#[doc(hidden)]
#[track_caller]
pub fn verify(backend: &impl Backend, name: &str, skipped: &[&str]) {
    let expected = if skipped.contains(&name) { "skipped" } else { "passed" };
    match run(backend, name) {
        Verdict::Passed => {
            assert_eq!(expected, "passed", "the case is among those skipped, but the back end can be asked");
        }
        Verdict::Skipped(why) => assert_eq!(expected, "skipped", "the case is not among those skipped, but {why}"),
        Verdict::Failed(why) => panic!("{why}"),
    }
}

/// Makes a test of each case of the [conformance suite](crate::testing::conformance), for a [`Backend`].
///
/// Behind it the cases that cannot be asked of it: one that is skipped without being named there fails, as does one that is named
/// and not skipped.
///
/// # Examples
///
/// ```
/// # use homeostat::objects::{Client, MemoryClient};
/// # use std::sync::Arc;
/// struct Memory;
///
/// impl homeostat::testing::conformance::Backend for Memory {
///     fn client(&self) -> Arc<dyn Client> {
///         Arc::new(MemoryClient::new())
///     }
/// }
///
/// homeostat::conformance_tests!(Memory, skipped: [
///     "list_goes_on_from_before_the_history_is_gone", "watch_from_before_the_history_is_gone",
/// ]);
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($backend:expr $(, skipped: [$($skipped:literal),* $(,)?])? $(,)?) => {
        $crate::__conformance_cases! { [$crate::__conformance_tests] ($backend) [$($($skipped),*)?] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($backend:tt $skipped:tt $($module:ident: $($name:ident),*;)*) => {
        $($($crate::__conformance_tests! { @ $backend $skipped $name })*)*
    };
    (@ ($backend:expr) $skipped:tt $name:ident) => {
        #[test]
        fn $name() {
            $crate::testing::conformance::verify(&$backend, stringify!($name), &$skipped);
        }
    };
}
