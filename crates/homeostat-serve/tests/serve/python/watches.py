"""Watches: time-outs, selections, new watches that continue, and versions that are too old."""

from kubernetes import client, watch

from support import GROUP, MERGE, PLURAL, VERSION, connect, equal, run, site

connection = connect()
api = client.CustomObjectsApi(connection)
core = client.CoreV1Api(connection)


def place(namespace):
    return {"group": GROUP, "version": VERSION, "namespace": namespace, "plural": PLURAL}


def create(namespace, name, **labels):
    return api.create_namespaced_custom_object(**place(namespace), body=site(name, **labels))


def patch(namespace, name, body):
    return api.patch_namespaced_custom_object(**place(namespace), name=name, body=body, _content_type=MERGE)


def stream(namespace, watcher=None, **options):
    """Yields events of sites: the type, the name, the version."""
    watcher = watcher or watch.Watch()
    call = api.list_namespaced_custom_object
    for event in watcher.stream(call, **place(namespace), **options):
        meta = event["object"]["metadata"]
        yield event["type"], meta.get("name"), meta["resourceVersion"]


def changes(events):
    return [(kind, name) for kind, name, _ in events]


def time_outs(namespace):
    version = api.list_namespaced_custom_object(**place(namespace))["metadata"]["resourceVersion"]
    create(namespace, "blue")
    patch(namespace, "blue", {"spec": {"pages": 2}})
    api.delete_namespaced_custom_object(**place(namespace), name="blue")
    create(namespace, "red")
    expected = [("ADDED", "blue"), ("MODIFIED", "blue"), ("DELETED", "blue"), ("ADDED", "red")]
    # The watch ends because of its time-out. It has begun with all the changes.
    equal(changes(stream(namespace, resource_version=version, timeout_seconds=1)), expected)
    # Without a version, it begins with the objects that exist.
    equal(changes(stream(namespace, timeout_seconds=1)), [("ADDED", "red")])


def writes_are_seen(namespace):
    create(namespace, "blue")
    seen = []
    for event in stream(namespace, timeout_seconds=60):
        seen.append(event)
        if len(seen) == 1:
            patch(namespace, "blue", {"spec": {"pages": 2}})
        elif len(seen) == 2:
            api.delete_namespaced_custom_object(**place(namespace), name="blue")
        else:
            break
    equal(changes(seen), [("ADDED", "blue"), ("MODIFIED", "blue"), ("DELETED", "blue")])


def later_watches_continue(namespace):
    create(namespace, "a")
    watcher = watch.Watch()
    seen = []
    for event in stream(namespace, watcher, timeout_seconds=60):
        seen.append(event)
        watcher.stop()
    create(namespace, "b")
    # The same watcher remembers its version.
    for event in stream(namespace, watcher, resource_version=seen[-1][2], timeout_seconds=60):
        seen.append(event)
        watcher.stop()
    create(namespace, "c")
    # A server ends each watch after a time. Without a time-out of its own, the client goes on with a new request.
    for event in stream(namespace, watcher, resource_version=seen[-1][2]):
        seen.append(event)
        if len(seen) == 4:
            watcher.stop()
        else:
            create(namespace, "d")
    equal(changes(seen), [("ADDED", name) for name in "abcd"])


def selections(namespace):
    version = create(namespace, "a", tier="back")["metadata"]["resourceVersion"]
    patch(namespace, "a", {"metadata": {"labels": {"tier": "front"}}})
    create(namespace, "b")
    patch(namespace, "a", {"spec": {"pages": 2}})
    patch(namespace, "a", {"metadata": {"labels": {"tier": "back"}}})
    selected = stream(namespace, label_selector="tier=front", resource_version=version, timeout_seconds=1)
    equal(changes(selected), [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")])
    named = stream(namespace, field_selector="metadata.name=b", resource_version=version, timeout_seconds=1)
    equal(changes(named), [("ADDED", "b")])


def initial_events(namespace):
    create(namespace, "a")
    options = {"send_initial_events": True, "resource_version_match": "NotOlderThan", "allow_watch_bookmarks": True}
    watcher = watch.Watch()
    seen = []
    for event in watcher.stream(core.list_namespaced_config_map, namespace, timeout_seconds=60, **options):
        seen.append(event["type"])
        if event["type"] == "BOOKMARK":
            equal(event["raw_object"]["metadata"]["annotations"], {"k8s.io/initial-events-end": "true"})
            core.create_namespaced_config_map(namespace, {"metadata": {"name": "colours"}, "data": {"a": "1"}})
        else:
            # The object has its type.
            equal(event["object"].data, {"a": "1"})
            watcher.stop()
    equal(seen, ["BOOKMARK", "ADDED"])


def versions_that_are_too_old(namespace):
    try:
        for event in stream(namespace, resource_version="1", timeout_seconds=60):
            raise AssertionError(f"the watch has begun with {event}")
    except client.ApiException as error:
        equal(error.status, 410)
        assert error.reason.startswith("Expired: "), error.reason
    else:
        raise AssertionError("the watch has ended without an error")


run(time_outs, writes_are_seen, later_watches_continue, selections, initial_events, versions_that_are_too_old)
