"""lightkube: objects and watches of a kind that the program names, and config maps."""

import faulthandler

from lightkube import ApiError, Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

faulthandler.dump_traceback_later(120, exit=True)

client = Client(field_manager="lightkube")
Site = create_namespaced_resource("example.com", "v1", "Site", "sites")


def site(name, title, **labels):
    return Site(metadata=ObjectMeta(name=name, labels=labels), spec={"title": title})


blue = client.create(site("blue", "Blue", tier="front"))
assert blue.spec["pages"] == 1, "the server sets the default"
blue.spec["title"] = "Light blue"
replaced = client.replace(blue)
assert replaced.metadata.generation == 2
try:
    client.replace(blue)
except ApiError as error:
    assert error.status.code == 409, error.status
else:
    raise AssertionError("a stale version was written")
patched = client.patch(Site, "blue", {"spec": {"pages": 3}}, patch_type=PatchType.MERGE)
assert (patched.spec["title"], patched.spec["pages"]) == ("Light blue", 3)
applied = client.apply(site("red", "Red"))
assert client.apply(site("red", "Red")).metadata.resourceVersion == applied.metadata.resourceVersion
assert [one.metadata.name for one in client.list(Site)] == ["blue", "red"]
assert [one.metadata.name for one in client.list(Site, chunk_size=1)] == ["blue", "red"]
assert [one.metadata.name for one in client.list(Site, labels={"tier": "front"})] == ["blue"]


seen = []
for event, one in client.watch(Site):
    seen.append((event, one.metadata.name))
    if len(seen) == 2:
        client.delete(Site, "red")
    elif len(seen) == 3:
        break
assert seen == [("ADDED", "blue"), ("ADDED", "red"), ("DELETED", "red")], seen

client.create(ConfigMap(metadata=ObjectMeta(name="colours"), data={"sky": "blue"}))
assert client.get(ConfigMap, "colours").data == {"sky": "blue"}
client.delete(Site, "blue")
try:
    client.get(Site, "blue")
except ApiError as error:
    assert error.status.reason == "NotFound", error.status
else:
    raise AssertionError("a deleted site is found")
