"""Shared by the programs: the connection to the server, objects, and checks."""

import contextlib
import faulthandler
import json

from kubernetes import client, config

GROUP, VERSION, PLURAL = "example.com", "v1", "sites"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

# A program that hangs prints where, and fails.
faulthandler.dump_traceback_later(120, exit=True)


def connect():
    """Returns a client with the settings of the kubeconfig."""
    config.load_kube_config()
    return client.ApiClient()


def site(name, title="A title", **labels):
    """Returns a site. The server sets its namespace."""
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Site", "metadata": metadata, "spec": {"title": title}}


def names(items):
    """Returns the names of objects, in the order of the list."""
    return [item["metadata"]["name"] for item in items]


def equal(found, expected):
    assert found == expected, f"found {found!r}, not {expected!r}"


@contextlib.contextmanager
def fails(code, reason, part=""):
    """Checks that a call fails with this code, reason, and part of the message. Yields the `Status` of the server."""
    status = {}
    try:
        yield status
    except client.ApiException as error:
        status.update(json.loads(error.body))
        equal((error.status, status["code"], status["reason"]), (code, code, reason))
        assert part in status["message"], status["message"]
    else:
        raise AssertionError(f"the call did not fail with {reason}")


def run(*cases):
    """Runs cases. Each has a namespace of its own."""
    for case in cases:
        print(case.__name__, flush=True)
        case(case.__name__.replace("_", "-"))
