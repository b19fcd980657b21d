"""kr8s: objects of a class that the program names, and config maps."""

import faulthandler
import os

import kr8s
from kr8s.objects import ConfigMap, new_class

faulthandler.dump_traceback_later(120, exit=True)

api = kr8s.api(kubeconfig=os.environ["KUBECONFIG"])
Site = new_class("Site", version="example.com/v1", namespaced=True)


def site(name, title):
    return Site({"metadata": {"name": name, "namespace": "default"}, "spec": {"title": title}}, api=api)


blue = site("blue", "Blue")
assert not blue.exists()
blue.create()
assert blue.exists()
assert blue.spec.pages == 1, "the server sets the default"
blue.patch({"spec": {"title": "Light blue"}})
blue.label({"tier": "front"})
assert Site.get("blue", namespace="default", api=api).spec.title == "Light blue"
site("red", "Red").create()
assert sorted(one.name for one in api.get(Site, namespace="default")) == ["blue", "red"]
assert [one.name for one in api.get(Site, namespace="default", label_selector="tier=front")] == ["blue"]

seen = []
for event, one in api.watch(Site, namespace="default"):
    seen.append((event, one.name))
    if len(seen) == 2:
        one.delete()
    elif len(seen) == 3:
        break
assert seen == [("ADDED", "blue"), ("ADDED", "red"), ("DELETED", "red")], seen

try:
    site("taken", "Taken").create()
except kr8s.ServerError as error:
    assert "is the title of another site" in str(error), error
else:
    raise AssertionError("a refused site is stored")

colours = ConfigMap({"metadata": {"name": "colours", "namespace": "default"}, "data": {"sky": "blue"}}, api=api)
colours.create()
assert ConfigMap.get("colours", namespace="default", api=api).data.sky == "blue"
blue.refresh()
blue.delete()
blue.wait("delete", timeout=30)
assert not blue.exists()
