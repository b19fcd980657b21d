//! Tests of the API, called within this process.
#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

mod admission;
mod discovery;
mod events;
mod namespaces;
mod objects;
mod protobuf;
mod reviews;
mod watches;
mod writes;

use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use super::*;
use crate::access::{AccessRequest, Authorizer, UserInfo};
use crate::admission::Rejection;
use crate::http::ReplyBody;
use homeostat_objects::{Kind, KindDefinition, MemoryClient, PrintColumn};

pub(super) const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
pub(super) const NODE: Kind = Kind::cluster("", "v1", "Node");
pub(super) const SITES: &str = "/apis/example.com/v1/namespaces/default/sites";
pub(super) const HOME: &str = "/apis/example.com/v1/namespaces/default/sites/home";

/// The served kinds and their client.
pub(super) struct Served {
    pub(super) client: MemoryClient,
    pub(super) api: ObjectApi,
}

/// A request to send.
pub(super) struct Sent {
    request: IncomingRequest,
}

/// A completely read answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) headers: HeaderMap,
    pub(super) bytes: Vec<u8>,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the objects of a watch with the types of their events.
    pub(super) fn events(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Returns a site with a schema, defaults and hooks, and a node without them.
pub(super) fn served() -> Served {
    let client = MemoryClient::builder().seed(7).build();
    let spec = json!({
        "type": "object", "required": ["title"], "description": "The wish.",
        "properties": {
            "title": {"type": "string", "minLength": 1}, "pages": {"type": "integer", "minimum": 0, "default": 1},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}}, "slug": {"type": "string"},
        },
    });
    let status = json!({"type": "object", "properties": {"ready": {"type": "boolean"}}});
    let site = KindDefinition::new(SITE)
        .short_name("si")
        .category("all")
        .column(PrintColumn::string("Title", ".spec.title"))
        .column(PrintColumn::boolean("Ready", ".status.ready").wide())
        .schema(json!({"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}}));
    let site = ServedResource::new(site)
        .mutate(|_, site| {
            if let Some(title) = site["spec"]["title"].as_str() {
                site["spec"]["slug"] = json!(title.to_lowercase());
            }
            Ok(())
        })
        .validate(|request, site| match (request.old, site["spec"]["title"].as_str()) {
            (_, Some("Forbidden")) => Err(Rejection::forbidden("this title is taken")),
            (Some(old), _) if site["spec"]["pages"].as_i64() < old["spec"]["pages"].as_i64() => {
                Err(Rejection::invalid("spec.pages", site["spec"]["pages"].to_string(), "must not fall"))
            }
            _ => Ok(()),
        })
        .validate_deletion(|_, site| {
            if site["spec"]["title"] == "Kept" { Err(Rejection::forbidden("it is kept")) } else { Ok(()) }
        });
    let api =
        ObjectApi::builder(Arc::new(client.clone())).serve(site).serve(KindDefinition::new(NODE).with_status(false));
    Served { client, api: api.build().unwrap() }
}

/// Creates a request, such as `GET /api/v1/nodes?limit=1`.
pub(super) fn request(line: &str) -> Sent {
    let (method, target) = line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(a, b)| (a.to_owned(), b.to_owned()));
    Sent {
        request: IncomingRequest {
            method: method.parse::<Method>().unwrap(),
            path: path.to_owned(),
            segments: path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            query: query.collect(),
            headers: HeaderMap::new(),
            body: Vec::new(),
            user: UserInfo::new("eve"),
            peer: ([127, 0, 0, 1], 4_000).into(),
            connection: 1,
        },
    }
}

impl Sent {
    pub(super) fn accept(mut self, media: &'static str) -> Self {
        self.request.headers.insert(ACCEPT, HeaderValue::from_static(media));
        self
    }

    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.request.headers.insert(name, HeaderValue::from_str(value).unwrap());
        self
    }

    pub(super) fn body(mut self, body: &Value) -> Self {
        self.request.body = body.to_string().into_bytes();
        self
    }

    pub(super) fn bytes(mut self, media: &'static str, body: &[u8]) -> Self {
        self.request.headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        self.request.body = body.to_vec();
        self
    }

    pub(super) fn to(self, served: &Served) -> Answer {
        self.send_to(&served.api)
    }

    pub(super) fn send_to(self, api: &ObjectApi) -> Answer {
        self.streamed(api, &mut Kept::default(), &CancellationToken::new())
    }

    /// Sends the request. The parts of a stream go to the sink.
    pub(super) fn streamed(self, api: &ObjectApi, sink: &mut Kept, gone: &CancellationToken) -> Answer {
        let Reply { status, headers, body, .. } = api.handle(&self.request);
        let bytes = match body {
            ReplyBody::Full(bytes) => bytes,
            ReplyBody::Parts(write) => {
                write(&mut sink.bytes).unwrap();
                std::mem::take(&mut sink.bytes)
            }
            ReplyBody::Stream(run) => {
                run(&mut ReplyStream::new(sink, gone)).unwrap();
                std::mem::take(&mut sink.bytes)
            }
            ReplyBody::HangUp => unreachable!("no object API hangs up"),
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { code: status.as_u16(), headers, bytes, text }
    }
}

/// Keeps the bytes of a stream, and calls a function after each part.
#[derive(Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
    pub(super) parts: usize,
    pub(super) after: Option<Box<dyn FnMut(usize) + Send>>,
    /// The largest number of bytes that the body may keep in memory, if there is a limit.
    pub(super) most: Option<usize>,
}

impl ReplySink for Kept {
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        self.parts += 1;
        if let Some(after) = &mut self.after {
            after(self.parts);
        }
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> bool {
        self.most.is_none_or(|most| bytes <= most)
    }
}

pub(super) fn site(name: &str, title: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"namespace": "default", "name": name},
        "spec": {"title": title},
    })
}

/// Creates a site.
pub(super) fn create(served: &Served, name: &str, title: &str) -> Value {
    let answer = request(&format!("POST {SITES}")).body(&site(name, title)).to(served);
    assert_eq!(answer.code, 201, "{answer:?}");
    answer.json()
}

pub(super) fn merge_patch(path: &str, change: &Value) -> Sent {
    request(&format!("PATCH {path}")).bytes("application/merge-patch+json", change.to_string().as_bytes())
}

pub(super) fn apply(path: &str, applied: &Value) -> Sent {
    request(&format!("PATCH {path}")).bytes("application/apply-patch+yaml", applied.to_string().as_bytes())
}

use crate::http::{ReplySink, ReplyStream};
use homeostat::base::CancellationToken;
