"""easykube: objects of a kind that the client discovers, and their watch."""

import faulthandler
import os

from easykube import ApiError, Configuration

faulthandler.dump_traceback_later(120, exit=True)

configuration = Configuration(base_url=os.environ["SERVER"], default_namespace="default", default_field_manager="easykube")
with configuration.sync_client() as client:
    sites = client.api("example.com/v1").resource("sites")
    blue = sites.create({"metadata": {"name": "blue", "labels": {"tier": "front"}}, "spec": {"title": "Blue"}})
    assert blue["spec"]["pages"] == 1, "the server sets the default"
    blue["spec"]["title"] = "Light blue"
    replaced = sites.replace("blue", blue)
    assert replaced["metadata"]["generation"] == 2
    try:
        sites.replace("blue", blue)
    except ApiError as error:
        assert error.status_code == 409, error
    else:
        raise AssertionError("a stale version was written")
    assert sites.patch("blue", {"spec": {"pages": 3}})["spec"] == {"title": "Light blue", "pages": 3}
    red = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "red"}, "spec": {"title": "Red"}}
    applied = client.apply_object(red, force=True)
    assert client.apply_object(red, force=True)["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    assert [one["metadata"]["name"] for one in sites.list()] == ["blue", "red"]
    assert [one["metadata"]["name"] for one in sites.list(labels={"tier": "front"})] == ["blue"]
    initial, events = sites.watch_list()
    assert [one["metadata"]["name"] for one in initial] == ["blue", "red"]
    sites.delete("red")
    with events as stream:
        event = next(iter(stream))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "red"), event
    client.api("v1").resource("configmaps").create({"metadata": {"name": "colours"}, "data": {"sky": "blue"}})
    sites.delete("blue")
    try:
        sites.fetch("blue")
    except ApiError as error:
        assert error.status_code == 404, error
    else:
        raise AssertionError("a deleted site is found")
