"""The dynamic client: discovery, and each verb."""

from kubernetes import dynamic
from kubernetes.dynamic import exceptions

from support import JSON_PATCH, MERGE, connect, equal, run, site

connection = connect()
dyn = dynamic.DynamicClient(connection)
sites = dyn.resources.get(api_version="example.com/v1", kind="Site")


def refused(kind, reason, call, *arguments, **options):
    """Checks that a call fails with an exception of this kind."""
    try:
        call(*arguments, **options)
    except kind as error:
        assert reason in str(error.body), error.body
    else:
        raise AssertionError(f"{call} did not fail with {kind}")


def discovery(_):
    equal((sites.name, sites.namespaced, sites.singular_name), ("sites", True, "site"))
    equal((list(sites.short_names), list(sites.categories)), (["si"], ["all"]))
    assert {"create", "deletecollection", "watch"} <= set(sites.verbs), sites.verbs
    equal(sites.subresources["status"].kind, "Site")
    assert dyn.version["kubernetes"]["gitVersion"].startswith("v1."), dyn.version
    equal([one.kind for one in dyn.resources.search(group="events.k8s.io") if one.kind == "Event"], ["Event"])
    equal(dyn.resources.get(api_version="v1", kind="ConfigMap").short_names, ["cm"])
    eager = dynamic.DynamicClient(connection, discoverer=dynamic.discovery.EagerDiscoverer)
    found = {(one.group_version, one.name) for one in eager.resources.search() if hasattr(one, "verbs")}
    for expected in [("example.com/v1", "sites"), ("v1", "configmaps"), ("v1", "namespaces"), ("v1", "events")]:
        assert expected in found, found
    try:
        dyn.resources.get(api_version="example.com/v1", kind="House")
    except exceptions.ResourceNotFoundError:
        pass
    else:
        raise AssertionError("a house was found")


def verbs(namespace):
    created = sites.create(body=site("blue", "Blue", tier="front"), namespace=namespace)
    equal((created.kind, created.metadata.name, created.spec.pages), ("Site", "blue", 1))
    refused(exceptions.ConflictError, "AlreadyExists", sites.create, body=site("blue"), namespace=namespace)
    sites.create(body=site("red", "Red"), namespace=namespace)

    equal(sites.get(name="blue", namespace=namespace).to_dict(), created.to_dict())
    refused(exceptions.NotFoundError, "NotFound", sites.get, name="none", namespace=namespace)
    listed = sites.get(namespace=namespace, label_selector="tier=front")
    equal([one.metadata.name for one in listed.items], ["blue"])
    page = sites.get(namespace=namespace, limit=1)
    rest = sites.get(namespace=namespace, limit=1, _continue=page.metadata["continue"])
    equal([one.metadata.name for one in page.items + rest.items], ["blue", "red"])

    at = {"name": "blue", "namespace": namespace}
    # The client sends a strategic merge patch, unless it is told otherwise.
    equal(sites.patch(body={"spec": {"pages": 2}}, **at).spec.pages, 2)
    equal(sites.patch(body={"spec": {"pages": 3}}, content_type=MERGE, **at).spec.pages, 3)
    steps = [{"op": "add", "path": "/spec/tags", "value": {"a": "b"}}]
    equal(sites.patch(body=steps, content_type=JSON_PATCH, **at).spec.tags.to_dict(), {"a": "b"})
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    # It has an array.
    refused(exceptions.DynamicApiError, "UnsupportedMediaType", sites.patch, body=held, **at)

    body = sites.get(**at).to_dict()
    body["spec"]["title"] = "Navy"
    equal(sites.replace(body=body, namespace=namespace).spec.title, "Navy")
    refused(exceptions.ConflictError, "Conflict", sites.replace, body=body, namespace=namespace)
    body = sites.get(**at).to_dict()
    body["spec"]["pages"] = -1
    refused(exceptions.UnprocessibleEntityError, "spec.pages", sites.replace, body=body, namespace=namespace)
    del body["metadata"]["resourceVersion"]
    refused(exceptions.UnprocessibleEntityError, "resourceVersion", sites.replace, body=body, namespace=namespace)

    equal(sites.delete(**at).status, "Success")
    refused(exceptions.NotFoundError, "NotFound", sites.delete, **at)
    sites.delete(namespace=namespace, label_selector="!tier")
    equal(sites.get(namespace=namespace).items, [])


def status(namespace):
    sites.create(body=site("blue", "Blue"), namespace=namespace)
    at = {"name": "blue", "namespace": namespace}
    patched = sites.status.patch(body={"status": {"phase": "Up"}}, content_type=MERGE, **at)
    equal((patched.status.phase, patched.spec.title), ("Up", "Blue"))
    body = patched.to_dict()
    body["status"]["phase"] = "Down"
    equal(sites.status.replace(body=body, namespace=namespace).status.phase, "Down")
    equal(sites.status.get(**at).status.phase, "Down")


def server_side_apply(namespace):
    applied = sites.server_side_apply(body=site("blue", "Blue"), namespace=namespace, field_manager="alice")
    equal(applied.spec.title, "Blue")
    other = {"body": site("blue", "Navy"), "namespace": namespace, "field_manager": "bob"}
    refused(exceptions.ConflictError, "FieldManagerConflict", sites.server_side_apply, **other)
    equal(sites.server_side_apply(**other, force_conflicts=True).spec.title, "Navy")


def watches(namespace):
    sites.create(body=site("blue", "Blue"), namespace=namespace)
    seen = []
    for event in sites.watch(namespace=namespace, timeout=60):
        seen.append((event["type"], event["object"].spec.title))
        if len(seen) == 1:
            sites.patch(body={"spec": {"title": "Navy"}}, name="blue", namespace=namespace)
        elif len(seen) == 2:
            sites.delete(name="blue", namespace=namespace)
        else:
            break
    equal(seen, [("ADDED", "Blue"), ("MODIFIED", "Navy"), ("DELETED", "Navy")])


run(discovery, verbs, status, server_side_apply, watches)
