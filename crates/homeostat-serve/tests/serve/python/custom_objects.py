"""Each verb of `CustomObjectsApi`."""

from kubernetes import client

from support import APPLY, GROUP, JSON_PATCH, MERGE, PLURAL, VERSION, connect, equal, fails, names, run, site

api = client.CustomObjectsApi(connect())


def place(namespace):
    return {"group": GROUP, "version": VERSION, "namespace": namespace, "plural": PLURAL}


def create(namespace, *sites):
    for one in sites:
        api.create_namespaced_custom_object(**place(namespace), body=one)


def creation(namespace):
    created = api.create_namespaced_custom_object(**place(namespace), body=site("blue", "Blue"))
    equal(created["spec"], {"title": "Blue", "pages": 1})
    equal((created["kind"], created["metadata"]["namespace"]), ("Site", namespace))
    assert created["metadata"]["uid"] and created["metadata"]["creationTimestamp"]
    equal(api.get_namespaced_custom_object(**place(namespace), name="blue"), created)
    with fails(409, "AlreadyExists", 'sites.example.com "blue" already exists'):
        create(namespace, site("blue"))

    generated = site("")
    generated["metadata"] = {"generateName": "site-"}
    named = api.create_namespaced_custom_object(**place(namespace), body=generated)
    assert named["metadata"]["name"].startswith("site-"), named

    api.create_namespaced_custom_object(**place(namespace), body=site("dry"), dry_run="All")
    with fails(404, "NotFound", 'sites.example.com "dry" not found'):
        api.get_namespaced_custom_object(**place(namespace), name="dry")


def refusals(namespace):
    wrong = site("blue")
    wrong["spec"]["pages"] = -1
    with fails(422, "Invalid") as status:
        create(namespace, wrong)
    equal(status["details"]["causes"][0]["field"], "spec.pages")
    with fails(422, "Invalid", "is the title of another site"):
        create(namespace, site("blue", "Taken"))
    unknown = site("blue")
    unknown["spec"]["titel"] = "x"
    with fails(400, "BadRequest", 'unknown field "spec.titel"'):
        api.create_namespaced_custom_object(**place(namespace), body=unknown, field_validation="Strict")
    try:
        api.list_namespaced_custom_object(GROUP, VERSION, namespace, "houses")
    except client.ApiException as error:
        equal(error.status, 404)
    else:
        raise AssertionError("houses are listed")


def lists(namespace):
    create(namespace, site("a", tier="front"), site("b", tier="back"), site("c"))

    def listed(**options):
        return api.list_namespaced_custom_object(**place(namespace), **options)

    equal(listed()["kind"], "SiteList")
    for selector, expected in [
        ("tier=front", ["a"]),
        ("tier!=front", ["b", "c"]),
        ("tier in (front, back)", ["a", "b"]),
        ("tier,tier notin (back)", ["a"]),
        ("!tier", ["c"]),
    ]:
        equal(names(listed(label_selector=selector)["items"]), expected)
    equal(names(listed(field_selector="metadata.name!=b")["items"]), ["a", "c"])
    with fails(400, "BadRequest", "labelSelector"):
        listed(label_selector="tier=(")

    page = listed(limit=2)
    found = names(page["items"])
    equal(len(found), 2)
    create(namespace, site("d"))
    rest = listed(limit=2, _continue=page["metadata"]["continue"])
    assert not rest["metadata"].get("continue"), rest["metadata"]
    # All pages show one state.
    equal(found + names(rest["items"]), ["a", "b", "c"])

    everywhere = api.list_cluster_custom_object(GROUP, VERSION, PLURAL, label_selector="tier=back")
    equal([one["metadata"]["namespace"] for one in everywhere["items"]], [namespace])


def patches(namespace):
    create(namespace, site("blue", "Blue", tier="front", old="x"))
    at = {**place(namespace), "name": "blue"}
    body = {"metadata": {"labels": {"old": None}}, "spec": {"title": "Navy", "tags": {"a": "b"}}}
    patched = api.patch_namespaced_custom_object(**at, body=body, _content_type=MERGE)
    equal(patched["metadata"]["labels"], {"tier": "front"})
    equal(patched["spec"], {"title": "Navy", "pages": 1, "tags": {"a": "b"}})

    steps = [
        {"op": "test", "path": "/spec/title", "value": "Navy"},
        {"op": "test", "path": "/metadata/finalizers", "value": None},
        {"op": "replace", "path": "/spec/pages", "value": 7},
        {"op": "remove", "path": "/spec/tags"},
    ]
    patched = api.patch_namespaced_custom_object(**at, body=steps, _content_type=JSON_PATCH)
    equal(patched["spec"], {"title": "Navy", "pages": 7})
    with fails(422, "Invalid"):
        api.patch_namespaced_custom_object(**at, body=steps, _content_type=JSON_PATCH)
    # The client sends a merge patch, unless it is told otherwise.
    equal(api.patch_namespaced_custom_object(**at, body={"spec": {"pages": 6}})["spec"]["pages"], 6)

    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"pages": 8}}
    with fails(409, "Conflict"):
        api.patch_namespaced_custom_object(**at, body=stale, _content_type=MERGE)
    with fails(404, "NotFound"):
        api.patch_namespaced_custom_object(**place(namespace), name="none", body={}, _content_type=MERGE)


def replacements(namespace):
    create(namespace, site("blue", "Blue"))
    at = {**place(namespace), "name": "blue"}
    first = api.get_namespaced_custom_object(**at)
    changed = {**first, "spec": {"title": "Navy", "pages": 2}}
    second = api.replace_namespaced_custom_object(**at, body=changed)
    equal(second["spec"], {"title": "Navy", "pages": 2})
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    equal(second["metadata"]["generation"], first["metadata"]["generation"] + 1)
    with fails(409, "Conflict", "Operation cannot be fulfilled"):
        api.replace_namespaced_custom_object(**at, body=changed)


def status(namespace):
    create(namespace, site("blue", "Blue"))
    at = {**place(namespace), "name": "blue"}
    body = {"status": {"phase": "Up"}, "spec": {"title": "Not stored"}}
    patched = api.patch_namespaced_custom_object_status(**at, body=body, _content_type=MERGE)
    equal((patched["status"], patched["spec"]["title"]), ({"phase": "Up"}, "Blue"))
    changed = {**patched, "status": {"phase": "Down"}}
    replaced = api.replace_namespaced_custom_object_status(**at, body=changed)
    equal((replaced["status"], replaced["metadata"]["generation"]), ({"phase": "Down"}, 1))
    equal(api.get_namespaced_custom_object_status(**at)["status"], {"phase": "Down"})
    with fails(409, "Conflict"):
        api.replace_namespaced_custom_object_status(**at, body=changed)
    # A change of the object leaves its status as it is.
    changed = {**replaced, "status": {"phase": "Not stored"}, "spec": {"title": "Navy"}}
    replaced = api.replace_namespaced_custom_object(**at, body=changed)
    equal((replaced["status"], replaced["spec"]["title"]), ({"phase": "Down"}, "Navy"))


def server_side_apply(namespace):
    at = {**place(namespace), "name": "blue"}

    def apply(title, manager, **options):
        body = site("blue", title)
        return api.patch_namespaced_custom_object(
            **at, body=body, _content_type=APPLY, field_manager=manager, **options
        )

    # The server answers 201 to an apply that creates. The client returns nothing for that.
    equal(apply("Blue", "alice"), None)
    equal(api.get_namespaced_custom_object(**at)["spec"]["title"], "Blue")
    equal(apply("Blue", "alice")["spec"]["title"], "Blue")
    with fails(409, "Conflict", 'conflict with "alice": .spec.title') as status:
        apply("Navy", "bob")
    equal(status["details"]["causes"][0]["reason"], "FieldManagerConflict")
    applied = apply("Navy", "bob", force=True)
    equal(applied["spec"]["title"], "Navy")
    managers = {entry["manager"] for entry in applied["metadata"]["managedFields"]}
    assert "bob" in managers, managers
    with fails(400, "BadRequest", "fieldManager"):
        api.patch_namespaced_custom_object(**at, body=site("blue"), _content_type=APPLY)


def deletion(namespace):
    create(namespace, site("blue"), site("red"))
    at = {**place(namespace), "name": "blue"}
    other = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
    with fails(409, "Conflict"):
        api.delete_namespaced_custom_object(**at, body=other)
    api.delete_namespaced_custom_object(**at, dry_run="All")
    deleted = api.delete_namespaced_custom_object(**at, propagation_policy="Foreground", grace_period_seconds=0)
    equal((deleted["kind"], deleted["status"], deleted["details"]["name"]), ("Status", "Success", "blue"))
    with fails(404, "NotFound"):
        api.delete_namespaced_custom_object(**at)

    at["name"] = "red"
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    api.patch_namespaced_custom_object(**at, body=held, _content_type=MERGE)
    deleting = api.delete_namespaced_custom_object(**at, body=client.V1DeleteOptions())
    assert deleting["metadata"]["deletionTimestamp"], deleting
    equal(names(api.list_namespaced_custom_object(**place(namespace))["items"]), ["red"])
    freed = {"metadata": {"finalizers": None}}
    api.patch_namespaced_custom_object(**at, body=freed, _content_type=MERGE)
    equal(api.list_namespaced_custom_object(**place(namespace))["items"], [])


def collections(namespace):
    create(namespace, site("a", tier="front"), site("b", tier="back"), site("c", tier="front"))
    api.delete_collection_namespaced_custom_object(**place(namespace), label_selector="tier=front")
    equal(names(api.list_namespaced_custom_object(**place(namespace))["items"]), ["b"])
    api.delete_collection_namespaced_custom_object(**place(namespace))
    equal(api.list_namespaced_custom_object(**place(namespace))["items"], [])


run(
    creation,
    refusals,
    lists,
    patches,
    replacements,
    status,
    server_side_apply,
    deletion,
    collections,
)
