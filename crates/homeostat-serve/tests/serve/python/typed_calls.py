"""Calls with types: built-in kinds that the program serves, discovery, and questions about access."""

from kubernetes import client, watch

from support import connect, equal, fails, run, site

connection = connect()
core = client.CoreV1Api(connection)
events = client.EventsV1Api(connection)


def config_map(name, labels=None, **data):
    metadata = client.V1ObjectMeta(name=name, labels=labels)
    return client.V1ConfigMap(metadata=metadata, data=data)


def discovery(_):
    version = client.VersionApi(connection).get_code()
    equal(version.major, "1")
    assert version.git_version.startswith("v1."), version
    groups = [group.name for group in client.ApisApi(connection).get_api_versions().groups]
    equal(groups, ["events.k8s.io", "example.com"])
    equal(client.CoreApi(connection).get_api_versions().versions, ["v1"])
    found = {one.name: one for one in core.get_api_resources().resources}
    equal(sorted(found), ["configmaps", "events", "namespaces"])
    equal((found["configmaps"].namespaced, found["namespaces"].namespaced), (True, False))
    found = [one.name for one in events.get_api_resources().resources]
    equal(found, ["events"])
    group = client.EventsApi(connection).get_api_group()
    equal(group.preferred_version.group_version, "events.k8s.io/v1")


def config_maps(namespace):
    created = core.create_namespaced_config_map(namespace, config_map("colours", {"tier": "front"}, a="1"))
    equal((created.data, created.metadata.namespace), ({"a": "1"}, namespace))
    assert created.metadata.creation_timestamp and created.metadata.uid
    read = core.read_namespaced_config_map("colours", namespace)
    equal(read, created)

    patched = core.patch_namespaced_config_map("colours", namespace, {"data": {"b": "2"}})
    equal(patched.data, {"a": "1", "b": "2"})
    read.data = {"c": "3"}
    with fails(409, "Conflict"):
        core.replace_namespaced_config_map("colours", namespace, read)
    patched.data = {"c": "3"}
    equal(core.replace_namespaced_config_map("colours", namespace, patched).data, {"c": "3"})

    core.create_namespaced_config_map(namespace, config_map("shapes"))
    listed = core.list_namespaced_config_map(namespace, label_selector="tier=front")
    equal([one.metadata.name for one in listed.items], ["colours"])
    assert listed.metadata.resource_version
    names = []
    token = None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=1, _continue=token)
        names += [one.metadata.name for one in page.items]
        token = page.metadata._continue or ""
    equal(names, ["colours", "shapes"])
    found = core.list_config_map_for_all_namespaces(field_selector="metadata.name=shapes")
    equal([one.metadata.namespace for one in found.items], [namespace])

    deleted = core.delete_namespaced_config_map("colours", namespace)
    # The client leaves the answer to a deletion without a type.
    equal((deleted["status"], deleted["details"]["name"]), ("Success", "colours"))
    with fails(404, "NotFound", 'configmaps "colours" not found'):
        core.read_namespaced_config_map("colours", namespace)
    core.delete_collection_namespaced_config_map(namespace)
    equal(core.list_namespaced_config_map(namespace).items, [])


def namespaces(namespace):
    core.create_namespaced_config_map(namespace, config_map("colours"))
    found = {one.metadata.name: one.status.phase for one in core.list_namespace().items}
    equal((found["default"], found[namespace]), ("Active", "Active"))
    equal(core.read_namespace(namespace).metadata.name, namespace)
    with fails(404, "NotFound"):
        core.read_namespace("none")
    body = client.V1Namespace(metadata=client.V1ObjectMeta(name="new"))
    created = core.create_namespace(body)
    equal((created.metadata.name, created.status.phase), ("new", "Active"))
    with fails(409, "AlreadyExists"):
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    with fails(405, "MethodNotAllowed", "virtual"):
        core.delete_namespace(namespace)
    events = watch.Watch().stream(core.list_namespace, timeout_seconds=1)
    equal({(event["type"], event["object"].metadata.name) for event in events} >= {("ADDED", namespace)}, True)


def event_forms(namespace):
    custom = client.CustomObjectsApi(connection)
    blue = custom.create_namespaced_custom_object("example.com", "v1", namespace, "sites", site("blue"))
    regarding = client.V1ObjectReference(
        api_version="example.com/v1", kind="Site", namespace=namespace, name="blue", uid=blue["metadata"]["uid"]
    )
    event = client.EventsV1Event(
        metadata=client.V1ObjectMeta(name="blue.1"),
        regarding=regarding,
        type="Normal",
        action="Paint",
        reason="Painted",
        note="The site is blue now.",
        event_time="2026-05-01T10:00:00.123456Z",
        reporting_controller="painter",
        reporting_instance="painter-0",
    )
    created = events.create_namespaced_event(namespace, event)
    equal((created.note, created.event_time.microsecond), ("The site is blue now.", 123456))
    series = {"series": {"count": 2, "lastObservedTime": "2026-05-01T10:09:00.000000Z"}}
    equal(events.patch_namespaced_event("blue.1", namespace, series).series.count, 2)

    listed = core.list_namespaced_event(namespace, field_selector="involvedObject.name=blue")
    [read] = listed.items
    equal((read.message, read.series.count, read.reporting_component), ("The site is blue now.", 2, "painter"))
    equal((read.involved_object.kind, read.series.last_observed_time.minute), ("Site", 9))
    equal(core.read_namespaced_event("blue.1", namespace).reason, "Painted")
    equal(len(core.list_event_for_all_namespaces().items), 1)

    older = client.CoreV1Event(
        metadata=client.V1ObjectMeta(name="blue.2"),
        involved_object=regarding,
        type="Normal",
        reason="Painted",
        message="The site is blue again.",
        count=1,
        first_timestamp="2026-05-01T10:00:00Z",
        source=client.V1EventSource(component="painter"),
    )
    created = core.create_namespaced_event(namespace, older)
    equal((created.count, created.source.component, created.first_timestamp.hour), (1, "painter", 10))
    equal(core.patch_namespaced_event("blue.2", namespace, {"count": 2}).count, 2)
    newer = custom.get_namespaced_custom_object("events.k8s.io", "v1", namespace, "events", "blue.2")
    equal((newer["deprecatedCount"], newer["note"]), (2, "The site is blue again."))
    core.delete_namespaced_event("blue.2", namespace)
    equal(events.delete_namespaced_event("blue.1", namespace)["status"], "Success")
    equal(core.list_namespaced_event(namespace).items, [])


def access(namespace):
    authorization = client.AuthorizationV1Api(connection)

    def may(verb, group, resource):
        attributes = client.V1ResourceAttributes(namespace=namespace, verb=verb, group=group, resource=resource)
        spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        review = client.V1SelfSubjectAccessReview(spec=spec)
        return authorization.create_self_subject_access_review(review).status.allowed

    equal((may("create", "example.com", "sites"), may("get", "", "secrets")), (True, False))
    spec = client.V1SelfSubjectRulesReviewSpec(namespace=namespace)
    rules = authorization.create_self_subject_rules_review(client.V1SelfSubjectRulesReview(spec=spec)).status
    assert any("sites" in rule.resources for rule in rules.resource_rules), rules
    authentication = client.AuthenticationV1Api(connection)
    me = authentication.create_self_subject_review(client.V1SelfSubjectReview())
    equal(me.status.user_info.username, "system:anonymous")


run(discovery, config_maps, namespaces, event_forms, access)
