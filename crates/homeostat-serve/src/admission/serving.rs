//! Admission reviews on a [`Server`](crate::Server).

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use serde_json::Value;

use super::review::{AdmissionReviewer, ReviewStage};
use crate::http::{Handler, IncomingRequest, LoggedOutcome, Reply};
use crate::server::ServerBuilder;
use homeostat::rt::one_line;

impl ServerBuilder {
    /// Answers a Kubernetes API server's admission reviews: mutating ones at `<path>/mutate`, validating ones at
    /// `<path>/validate`.
    ///
    /// The path, such as `/admission`, must not be below `/api`, `/apis`, `/openapi` or `/version`. Each reviewer
    /// needs its own path.
    ///
    /// A Kubernetes API server calls webhooks only over HTTPS, so the server needs `tls` (feature `tls`). If the API
    /// server reaches this server through a service, add the service's name with [`allow_host`](Self::allow_host), such
    /// as `webhooks.default.svc`.
    ///
    /// A review is answered with status 200 even if it refuses the object. The write log shows each review with the
    /// status of its decision, such as 403, and marks dry runs. A body with a type other than `application/json` gets
    /// status 415. A body that is not JSON gets status 400.
    ///
    /// # Access
    ///
    /// The server's rules apply: a review needs a user, and the [authorization](Self::authorize) is asked about the
    /// verb `create` and the path, such as `/admission/mutate`. This user is the API server. Hooks receive the user
    /// who writes the object, as the API server reports it. A client that may send reviews can therefore claim any
    /// user.
    ///
    /// By default, an API server sends webhooks no credentials. You can do one of the following:
    ///
    /// - Safer: give the API server credentials in the file of its flag `--admission-control-config-file`. They are a
    ///   certificate for `client_certificates`, or a [token](Self::token).
    /// - Add both paths to the [public paths](Self::public_path). Everyone who reaches the server can then call the
    ///   hooks. Restrict access in the network, and write hooks that have no side effects and reveal no secrets.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat_objects::Kind;
    /// use homeostat_serve::{AdmissionReviewer, Rejection, ServedResource, Server, UserInfo};
    /// use serde_json::json;
    /// use std::net::Ipv4Addr;
    ///
    /// let vms = ServedResource::new(Kind::namespaced("example.com", "v1", "Vm")).validate(|_, vm| match vm["spec"]["cores"].as_u64() {
    ///     Some(1..) => Ok(()),
    ///     _ => Err(Rejection::invalid("spec.cores", vm["spec"]["cores"].to_string(), "must be at least 1")),
    /// });
    /// let server = Server::builder((Ipv4Addr::LOCALHOST, 0))
    ///     // With the feature `tls`: `.tls("server.pem", "server.key").client_certificates("clients.pem")`
    ///     .token("a-long-secret", UserInfo::new("kube-apiserver"))
    ///     .admission_reviews("/admission", &AdmissionReviewer::new([vms])?)
    ///     .build()?
    ///     .start()?;
    /// let configuration = json!({
    ///     "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
    ///     "metadata": {"name": "vms.example.com"},
    ///     "webhooks": [{
    ///         "name": "vms.example.com",
    ///         "clientConfig": {"url": format!("{}/admission/validate", server.url()), "caBundle": "…"},
    ///         "rules": [{
    ///             "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["vms"], "operations": ["CREATE", "UPDATE"],
    ///         }],
    ///         "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
    ///     }],
    /// });
    /// # drop((server, configuration));
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn admission_reviews(self, path: impl Into<String>, reviewer: &AdmissionReviewer) -> Self {
        let path = path.into();
        let stages = [("mutate", ReviewStage::Mutate), ("validate", ReviewStage::Validate)];
        stages.into_iter().fold(self, |builder, (name, stage)| {
            let handler = ReviewHandler { reviewer: reviewer.clone(), stage };
            builder.review_handler(format!("{path}/{name}"), Arc::new(handler))
        })
    }
}

/// Answers the reviews at one path.
struct ReviewHandler {
    reviewer: AdmissionReviewer,
    stage: ReviewStage,
}

impl Handler for ReviewHandler {
    fn handle(&self, request: &IncomingRequest) -> Reply {
        if request.method != Method::POST {
            let reply = Reply::text(StatusCode::METHOD_NOT_ALLOWED, "a review must be sent by POST\n");
            return reply.with_header("allow", "POST");
        }
        let sent = request.header(CONTENT_TYPE).unwrap_or_default();
        let media = sent.split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/json") {
            let message = format!("the body is {:?}, but must be application/json\n", one_line(media));
            return Reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        }
        let review: Value = match serde_json::from_slice(&request.body) {
            Ok(review) => review,
            Err(error) => return Reply::text(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}\n")),
        };
        let answer = self.reviewer.answer(&review, self.stage);
        let refusal = answer.pointer("/response/status/code").and_then(Value::as_u64);
        let status = refusal.and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        let dry_run = review.pointer("/request/dryRun") == Some(&Value::Bool(true));
        let logged = Some(LoggedOutcome { status: status.unwrap_or(StatusCode::OK), dry_run });
        Reply { logged, ..Reply::json(StatusCode::OK, &answer) }
    }
}
