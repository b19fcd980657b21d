#![allow(clippy::unwrap_used, reason = "a test, or its helper, that cannot continue has failed")]

use super::*;

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn sent(api_version: &str, kind: &str, inner: &[u8]) -> Vec<u8> {
    let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [MAGIC, &field(1, &types), &field(2, inner), &field(3, b""), &field(4, b"")].concat()
}

#[test]
fn objects_that_kubectl_creates_are_read() {
    let entry = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
    // As `kubectl create` sends them, with the fields that it always sends.
    let always = [field(4, b""), field(5, b""), field(6, b""), vec![7 << 3, 0], field(8, b"")].concat();
    let labels = [field(11, &entry(b"a", b"1")), field(11, &entry(b"b", b""))].concat();
    let meta = field(1, &[field(1, b"m"), field(2, b""), field(3, b"default"), always, labels].concat());
    let expected = json!({"name": "m", "namespace": "default", "labels": {"a": "1", "b": ""}});
    let map = [meta.clone(), field(2, &entry(b"x", b"y")), field(3, &entry(b"z", &[0xff]))].concat();
    assert_eq!(
        object(&sent("v1", "ConfigMap", &map)).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": expected, "data": {"x": "y"}, "binaryData": {"z": "/w=="},
        })
    );
    let secret = [meta.clone(), field(2, &entry(b"x", b"y")), field(3, b"Opaque")].concat();
    assert_eq!(
        object(&sent("v1", "Secret", &secret)).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": expected, "data": {"x": "eQ=="}, "type": "Opaque",
        })
    );
    let namespace = [meta.clone(), field(2, b""), field(3, b"")].concat();
    assert_eq!(
        object(&sent("v1", "Namespace", &namespace)).unwrap(),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": expected})
    );
    for end in 0..map.len() {
        // No prefix makes the reader panic.
        let _ = object(&sent("v1", "ConfigMap", &map[..end]));
    }
}

/// The bytes of a lease that client-go creates when it starts to lead.
#[test]
fn a_lease_of_client_go_is_read() {
    let time = field(4, &[0x08, 0xc0, 0xe8, 0xf5, 0xd0, 0x06, 0x10, 0x80, 0x94, 0xef, 0x3a]);
    let spec = [field(1, b"pod-0"), vec![2 << 3, 15], time, vec![5 << 3, 0]].concat();
    let lease = [field(1, &field(1, b"lock")), field(2, &spec)].concat();
    assert_eq!(
        object(&sent("coordination.k8s.io/v1", "Lease", &lease)).unwrap(),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lock"},
            "spec": {
                "holderIdentity": "pod-0", "leaseDurationSeconds": 15, "renewTime": "2026-06-01T12:00:00.123456Z",
                "leaseTransitions": 0,
            },
        })
    );
}

/// Objects of each kind with all fields.
fn samples() -> [Value; 7] {
    let meta = json!({
        "name": "a", "generateName": "a-", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 300,
        "creationTimestamp": "2026-05-01T10:00:00Z", "deletionTimestamp": "1969-12-31T23:59:59Z",
        "deletionGracePeriodSeconds": 0, "labels": {"l": "1", "empty": ""}, "annotations": {"n": "2"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "o", "controller": false, "blockOwnerDeletion": true},
            {"apiVersion": "v1", "kind": "Node", "name": "m", "uid": "p"},
        ],
        "finalizers": ["example.com/a", "example.com/b"],
        "managedFields": [{
            "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "2026-05-01T10:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:a": {}}}, "subresource": "status",
        }],
    });
    let reference = json!({
        "kind": "Site", "namespace": "ns", "name": "home", "uid": "u", "apiVersion": "example.com/v1", "resourceVersion": "3",
        "fieldPath": "spec.a",
    });
    let source = json!({"component": "c", "host": "h"});
    let series = json!({"count": 5, "lastObservedTime": "2026-05-01T10:00:00.000001Z"});
    let (first, micro) = ("2026-05-01T10:00:00Z", "2026-05-01T10:00:00.123456Z");
    [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "y"}, "binaryData": {"z": "/w=="},
            "immutable": false,
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"x": "eQ=="}, "type": "Opaque", "immutable": true,
        }),
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": meta, "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {
            "holderIdentity": "", "leaseDurationSeconds": 15, "acquireTime": micro, "renewTime": micro, "leaseTransitions": 0,
            "strategy": "OldestEmulationVersion", "preferredHolder": "b",
        }}),
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": reference, "reason": "R", "message": "m",
            "source": source, "firstTimestamp": first, "lastTimestamp": first, "count": 4, "type": "Normal", "eventTime": micro,
            "series": series, "action": "A", "related": reference, "reportingComponent": "c", "reportingInstance": "i",
        }),
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": meta, "regarding": reference, "reason": "R",
            "note": "m", "deprecatedSource": source, "deprecatedFirstTimestamp": first, "deprecatedLastTimestamp": first,
            "deprecatedCount": 4, "type": "Normal", "eventTime": micro, "series": series, "action": "A", "related": reference,
            "reportingController": "c", "reportingInstance": "i",
        }),
        json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {"resourceVersion": "9"}, "status": "Failure", "message": "m",
            "reason": "Expired", "code": 410, "details": {
                "name": "n", "group": "g", "kind": "k", "uid": "u", "retryAfterSeconds": 1,
                "causes": [{"reason": "r", "message": "m", "field": "f"}],
            },
        }),
    ]
}

#[test]
fn written_messages_are_read_back_unchanged() {
    for sample in samples() {
        let bytes = encoded(&sample).unwrap();
        assert_eq!(object(&bytes).unwrap(), sample);
        for end in 0..bytes.len() {
            // No prefix makes the reader panic.
            let _ = object(&bytes[..end]);
        }
    }
}

#[test]
fn a_list_has_its_metadata_and_items() {
    let [.., lease, _, _, _] = samples();
    let list = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {"resourceVersion": "9", "continue": "t"},
        "items": [lease, {"metadata": {"name": "b"}, "spec": {"leaseDurationSeconds": "no number"}}],
    });
    let bytes = encoded(&list).unwrap();
    let envelope = WireMessage::read(bytes.strip_prefix(MAGIC).unwrap()).unwrap();
    let types = WireMessage::read(envelope.bytes(1).unwrap()).unwrap();
    assert_eq!((types.text(1), types.text(2)), ("coordination.k8s.io/v1", "LeaseList"));
    let list = WireMessage::read(envelope.bytes(2).unwrap()).unwrap();
    let meta = WireMessage::read(list.bytes(1).unwrap()).unwrap();
    assert_eq!((meta.text(2), meta.text(3)), ("9", "t"));
    let items: Vec<_> = list.fields().filter(|(number, ..)| *number == 2).collect();
    let item = |at: usize| {
        let fields = messages::of_kind("coordination.k8s.io/v1", "Lease").unwrap();
        Value::from(json_of(&WireMessage::read(items[at].2).unwrap(), fields).unwrap())
    };
    assert_eq!((items.len(), &item(0)["spec"], item(1)), (2, &lease["spec"], json!({"metadata": {"name": "b"}})));
    assert_eq!(encoded(&json!({"apiVersion": "v1", "kind": "PodList", "items": []})), None);
}

#[test]
fn a_frame_of_a_watch_has_its_length_first() {
    assert_eq!(watch_frame("ADDED", b"k8s\0x"), b"\x00\x00\x00\x10\x0a\x05ADDED\x12\x07\x0a\x05k8s\0x");
}

#[test]
fn a_message_that_would_lose_something_is_refused() {
    let meta = |more: Vec<u8>| field(1, &[field(1, b"m"), more].concat());
    let refused = |kind: &str, inner: &[u8]| object(&sent("v1", kind, inner)).unwrap_err();
    assert_eq!(refused("Pod", &meta(vec![])), ReadFault::UnknownKind("v1 Pod".to_owned()));
    let unknown = [meta(vec![]), vec![9 << 3, 1]].concat();
    let ReadFault::UnknownField(fault) = refused("ConfigMap", &unknown) else { panic!("it was read") };
    assert!(fault.starts_with("number 9 beside metadata, data"), "{fault}");
    assert!(matches!(refused("Secret", &meta(field(15, b"x"))), ReadFault::UnknownField(_)));
    // Bytes that are not text, and a number in place of a name.
    let bytes = [meta(vec![]), field(2, &[field(1, b"x"), field(2, &[0xff])].concat())].concat();
    for inner in [bytes, field(1, &[1 << 3, 7]), vec![0x0b]] {
        assert_eq!(refused("ConfigMap", &inner), ReadFault::Malformed, "{inner:?}");
    }
}

#[test]
fn malformed_messages_are_refused() {
    for text in [&b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], b"k8s\0\x0b", b"k8s\0\x0a\x05ab", b"{}"]
    {
        assert_eq!(object(text), Err(ReadFault::Malformed), "{text:?}");
    }
}
