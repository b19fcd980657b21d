//! Calls from several threads at once.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use super::fixture::{CaseResult, Refusal, failed, same};
use homeostat::base::ThreadOptions;
use homeostat_objects::ClientError;

/// Runs `body` in several threads at once, and returns their results.
#[track_caller]
pub(super) fn together<T: Send + 'static>(
    threads: usize,
    body: impl Fn(usize) -> CaseResult<T> + Send + Sync + 'static,
) -> CaseResult<Vec<T>> {
    let (sender, results) = channel();
    let (body, start) = (Arc::new(body), Arc::new(Barrier::new(threads)));
    for number in 0..threads {
        let (sender, body, start) = (sender.clone(), Arc::clone(&body), Arc::clone(&start));
        let run = move || {
            start.wait();
            let _ = sender.send((number, body(number)));
        };
        ThreadOptions::new().spawn(format!("conformance-{number}"), run).map_err(failed)?;
    }
    drop(sender);
    let mut done: Vec<_> = results.iter().collect();
    done.sort_by_key(|(number, _)| *number);
    let done = done.into_iter().map(|(_, result)| result).collect::<CaseResult<Vec<T>>>()?;
    same("the threads that finished", done.len(), threads)?;
    Ok(done)
}

/// Runs `write` in several threads at once. One must succeed, and its result is returned; the others must fail with
/// `refusal`.
#[track_caller]
pub(super) fn only_one_succeeds<T: Send + 'static>(
    threads: usize,
    refusal: Refusal,
    write: impl Fn(usize) -> Result<T, ClientError> + Send + Sync + 'static,
) -> CaseResult<T> {
    let results = together(threads, move |thread| Ok(write(thread)))?;
    let mut written = Vec::new();
    for result in results {
        match result {
            Ok(object) => written.push(object),
            Err(error) => same("the refusal of a thread", Refusal::of(&error), refusal)?,
        }
    }
    same("the threads that succeeded", written.len(), 1)?;
    Ok(written.remove(0))
}
