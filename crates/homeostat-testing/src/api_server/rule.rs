//! Rules: they decide which answer a request gets.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use homeostat_serve::IncomingRequest;

use super::answer::ServerAnswer;

/// A condition for requests to an [`ApiServer`](super::ApiServer), and their answers.
///
/// Each request takes the next answer. Once all answers have been used, the rule no longer applies, unless it has an
/// answer [for the rest](Self::otherwise).
///
/// # Examples
///
/// The first list is refused, and the second one succeeds:
///
/// ```
/// use homeostat_testing::{ServerAnswer, ServerRule};
///
/// let rule = ServerRule::new("GET", "/api/v1/configmaps")
///     .answer(ServerAnswer::error(429, "TooManyRequests", "storage is (re)initializing").header("Retry-After", "1"));
/// # let _ = rule;
/// ```
#[derive(Clone)]
#[must_use = "a rule does nothing until a server has it"]
pub struct ServerRule {
    method: String,
    path: String,
    conditions: Vec<RequestTest>,
    answers: VecDeque<ServerAnswer>,
    rest: Option<ServerAnswer>,
}

type RequestTest = Arc<dyn Fn(&IncomingRequest) -> bool + Send + Sync>;

impl ServerRule {
    /// Returns a rule for a method (for example `GET`) and a path without a query. A path that ends with `*` matches
    /// all paths with this beginning.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            conditions: Vec::new(),
            answers: VecDeque::new(),
            rest: None,
        }
    }

    /// Adds a condition: a query parameter has this value.
    pub fn query(self, name: &str, value: &str) -> Self {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.when(move |request| request.parameter(&name) == Some(&value))
    }

    /// Adds a condition. It runs on threads of the server, under its lock, and must not use the server.
    pub fn when(mut self, condition: impl Fn(&IncomingRequest) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Arc::new(condition));
        self
    }

    /// Adds an answer for one request.
    pub fn answer(mut self, answer: ServerAnswer) -> Self {
        self.answers.push_back(answer);
        self
    }

    /// Sets the answer for all later requests, once each [`answer`](Self::answer) has been used.
    pub fn otherwise(self, answer: ServerAnswer) -> Self {
        Self { rest: Some(answer), ..self }
    }

    /// Takes the answer for a request, if the rule applies.
    pub(super) fn take(&mut self, request: &IncomingRequest) -> Option<ServerAnswer> {
        let has_path = match self.path.strip_suffix('*') {
            Some(start) => request.path().starts_with(start),
            None => request.path() == self.path,
        };
        let applies = self.method == request.method() && has_path && self.conditions.iter().all(|holds| holds(request));
        if !applies {
            return None;
        }
        self.answers.pop_front().or_else(|| self.rest.clone())
    }
}

impl fmt::Debug for ServerRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRule")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("answers", &self.answers)
            .field("rest", &self.rest)
            .finish_non_exhaustive()
    }
}
