//! Content negotiation: the form of answer that a client accepts.

use http::header::ACCEPT;

use super::protobuf;
use super::status::StatusError;
use crate::http::IncomingRequest;
use homeostat_objects::Kind;

pub(super) const JSON: &str = "application/json";

/// The form of the objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectForm {
    /// Complete objects in JSON.
    Whole,
    /// Complete objects in protocol buffers.
    Protobuf,
    /// `PartialObjectMetadata`.
    MetadataOnly,
    /// A `Table` of this `meta.k8s.io` version.
    Table(&'static str),
}

/// The form of a discovery answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiscoveryForm {
    /// Separate answers for groups and resources.
    Separate,
    /// One list of this `apidiscovery.k8s.io` version for everything.
    Aggregated(&'static str),
}

/// A media range in an `Accept` header.
struct MediaRange<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        Self { media, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    }

    fn parameter(&self, name: &str) -> &'a str {
        self.parameters.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| *value)
    }

    fn is_json(&self) -> bool {
        [JSON, "application/*", "*/*"].contains(&self.media)
    }
}

fn ranges(request: &IncomingRequest) -> Vec<MediaRange<'_>> {
    let header = request.header(ACCEPT).filter(|header| !header.trim().is_empty()).unwrap_or("*/*");
    header.split(',').map(MediaRange::read).collect()
}

/// Returns the first accepted form for objects of a kind. As in Kubernetes, most kinds have no protocol buffer form,
/// so clients that prefer protocol buffers get JSON.
pub(super) fn object_form(request: &IncomingRequest, kind: &Kind) -> Result<ObjectForm, StatusError> {
    let has_protobuf = protobuf::is_known(kind);
    let form = |range: &MediaRange<'_>| {
        if range.media == protobuf::MEDIA && range.parameter("as").is_empty() && has_protobuf {
            return Some(ObjectForm::Protobuf);
        }
        if !range.is_json() {
            return None;
        }
        match (range.parameter("as"), range.parameter("v")) {
            ("", _) => Some(ObjectForm::Whole),
            ("Table", "v1") => Some(ObjectForm::Table("v1")),
            ("Table", "v1beta1") => Some(ObjectForm::Table("v1beta1")),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1") => Some(ObjectForm::MetadataOnly),
            _ => None,
        }
    };
    let refused = || StatusError::not_acceptable(if has_protobuf { &[JSON, protobuf::MEDIA] } else { &[JSON] });
    ranges(request).iter().find_map(form).ok_or_else(refused)
}

/// Returns the first accepted discovery form.
pub(super) fn discovery_form(request: &IncomingRequest) -> Result<DiscoveryForm, StatusError> {
    let form = |range: &MediaRange<'_>| {
        if !range.is_json() {
            return None;
        }
        match (range.parameter("as"), range.parameter("v")) {
            ("", _) => Some(DiscoveryForm::Separate),
            ("APIGroupDiscoveryList", "v2") => Some(DiscoveryForm::Aggregated("v2")),
            ("APIGroupDiscoveryList", "v2beta1") => Some(DiscoveryForm::Aggregated("v2beta1")),
            _ => None,
        }
    };
    ranges(request).iter().find_map(form).ok_or_else(|| StatusError::not_acceptable(&[JSON]))
}

/// Returns whether the client explicitly accepts this media type.
pub(super) fn accepts(request: &IncomingRequest, media: &str) -> bool {
    ranges(request).iter().any(|range| range.media == media)
}
