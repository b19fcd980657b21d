//! Decides whether to repeat a request. Plain values.

use std::time::Duration;

use homeostat::base::Exponential;
use homeostat::rt::Draws;

/// The result of one attempt, as far as it affects the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestAttempt {
    /// The request was not sent, because the connection failed.
    NotSent,
    /// The server may have received the request, but no answer arrived.
    Lost,
    /// The server answered.
    Answered { status: u16, retry_after: Option<Duration> },
    /// The server has not reached the version that the request names.
    Behind { retry_after: Option<Duration> },
}

/// How often a request is repeated because the server has not reached a version, as in client-go (`rest/request.go`,
/// `maxRetries`).
const MOST_BEHIND: u32 = 10;

/// The limits for repetitions within a call.
#[derive(Clone, Debug)]
pub(crate) struct RetryLimits {
    /// The timeout of the whole call.
    pub(crate) time: Duration,
    /// How often to repeat after connection failures, and after failures without a delay from the server.
    pub(crate) connections: u32,
    /// The delays between attempts.
    pub(crate) backoff: Exponential,
}

impl Default for RetryLimits {
    fn default() -> Self {
        let backoff = Exponential::new(Duration::from_millis(100), Duration::from_secs(5)).jitter(0.2);
        Self { time: Duration::from_secs(90), connections: 3, backoff }
    }
}

/// How often a call was repeated so far, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repetitions {
    /// Connection failures, and failures without a delay from the server.
    pub(crate) connections: u32,
    /// Answers with a delay from the server.
    pub(crate) answers: u32,
    /// The server had not reached the version.
    pub(crate) behind: u32,
}

/// Returns the delay before the next attempt, or `None` if there must be no further attempt.
///
/// `reads` says whether the request changes nothing. A write is repeated only if the server certainly did not execute
/// it. `spent` is the time since the call began, and `draw` is a random number.
pub(crate) fn next_delay(
    reads: bool,
    attempt: RequestAttempt,
    repeated: &mut Repetitions,
    spent: Duration,
    limits: &RetryLimits,
    draw: u64,
) -> Option<Duration> {
    let (count, most, asked) = match attempt {
        RequestAttempt::NotSent => (&mut repeated.connections, limits.connections, None),
        RequestAttempt::Lost if reads => (&mut repeated.connections, limits.connections, None),
        RequestAttempt::Answered { status: 429, retry_after } => (&mut repeated.answers, u32::MAX, retry_after),
        RequestAttempt::Answered { status: 503, retry_after: Some(after) } => {
            (&mut repeated.answers, u32::MAX, Some(after))
        }
        RequestAttempt::Answered { status: 504, retry_after: Some(after) } if reads => {
            (&mut repeated.answers, u32::MAX, Some(after))
        }
        // Such an answer may come from a proxy that cannot reach its server.
        RequestAttempt::Answered { status: 503 | 504, retry_after: None } if reads => {
            (&mut repeated.connections, limits.connections, None)
        }
        RequestAttempt::Behind { retry_after: Some(after) } if reads => {
            (&mut repeated.behind, MOST_BEHIND, Some(after))
        }
        _ => return None,
    };
    if *count >= most {
        return None;
    }
    *count += 1;
    // A server that lags behind catches up regardless of how many clients ask.
    let step = if matches!(attempt, RequestAttempt::Behind { .. }) { 1 } else { *count };
    let backoff = limits.backoff.jittered(step, draw);
    // Clients that were refused together must return at different times, and none too early.
    let delay =
        asked.map_or(backoff, |asked| backoff.max(asked.saturating_add(asked.mul_f64(0.2 * Draws::unit(draw)))));
    (spent.saturating_add(delay) < limits.time).then_some(delay)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn answered(status: u16, retry_after: Option<Duration>) -> RequestAttempt {
        RequestAttempt::Answered { status, retry_after }
    }

    fn delay(reads: bool, attempt: RequestAttempt) -> Option<Duration> {
        next_delay(reads, attempt, &mut Repetitions::default(), Duration::ZERO, &RetryLimits::default(), 1 << 63)
    }

    #[test]
    fn only_safe_requests_are_repeated() {
        let refused = Some(SECOND);
        let table = [
            // Columns: attempt, whether a read is repeated, whether a write is repeated.
            (RequestAttempt::NotSent, true, true),
            (RequestAttempt::Lost, true, false),
            (answered(429, None), true, true),
            (answered(429, refused), true, true),
            (answered(503, None), true, false),
            (answered(503, refused), true, true),
            (answered(504, None), true, false),
            (answered(504, refused), true, false),
            (answered(200, refused), false, false),
            (answered(401, None), false, false),
            (answered(404, None), false, false),
            (answered(409, None), false, false),
            (answered(500, refused), false, false),
            (RequestAttempt::Behind { retry_after: refused }, true, false),
            (RequestAttempt::Behind { retry_after: None }, false, false),
        ];
        for (attempt, read, write) in table {
            assert_eq!((delay(true, attempt).is_some(), delay(false, attempt).is_some()), (read, write), "{attempt:?}");
        }
    }

    /// The delays of a call in which every attempt ends like this.
    fn delays(reads: bool, attempt: RequestAttempt) -> Vec<Duration> {
        let (mut repeated, limits) = (Repetitions::default(), RetryLimits::default());
        let next = || next_delay(reads, attempt, &mut repeated, Duration::ZERO, &limits, 0);
        std::iter::from_fn(next).take(1_000).collect()
    }

    #[test]
    fn failures_without_a_delay_are_tried_four_times_in_all() {
        for attempt in [RequestAttempt::NotSent, RequestAttempt::Lost, answered(503, None), answered(504, None)] {
            assert_eq!(delays(true, attempt), [80, 160, 320].map(Duration::from_millis), "{attempt:?}");
        }
        assert_eq!(delays(true, answered(503, Some(SECOND))).len(), 1_000, "until the time of the call is over");
    }

    #[test]
    fn a_server_that_lags_is_asked_eleven_times_in_all() {
        assert_eq!(delays(true, RequestAttempt::Behind { retry_after: Some(SECOND) }), [SECOND; 10]);
    }

    fn attempts() -> impl Strategy<Value = RequestAttempt> {
        let delays = prop::option::of((0..u64::MAX).prop_map(Duration::from_millis));
        let answers = (prop::sample::select(vec![200, 404, 409, 429, 500, 503, 504]), delays);
        prop_oneof![
            Just(RequestAttempt::NotSent),
            Just(RequestAttempt::Lost),
            answers.prop_map(|(status, retry_after)| answered(status, retry_after)),
        ]
    }

    proptest! {
        /// The delays of a call end within its timeout, and are never shorter than the server asks for.
        #[test]
        fn the_time_of_a_call_is_kept(
            reads: bool,
            tries in prop::collection::vec((attempts(), any::<u64>(), 0..10_000_u64), 1..200),
        ) {
            let limits = RetryLimits::default();
            let (mut spent, mut repeated) = (Duration::ZERO, Repetitions::default());
            for (attempt, draw, took) in tries {
                let before = spent + Duration::from_millis(took);
                let Some(delay) = next_delay(reads, attempt, &mut repeated, before, &limits, draw) else { break };
                spent = before + delay;
                prop_assert!(spent < limits.time);
                prop_assert!(delay >= Duration::from_millis(80));
                if let RequestAttempt::Answered { retry_after: Some(asked), .. } = attempt {
                    prop_assert!(delay >= asked);
                }
                prop_assert!(repeated.connections <= limits.connections);
                prop_assert!(reads || attempt != RequestAttempt::Lost);
            }
        }
    }
}
