// @kubernetes/client-node: custom objects, typed calls, a watch and an informer.
import assert from "node:assert";
import { createRequire } from "node:module";

// The packages are not beside this file.
const k8s = createRequire(`${process.env.NODE_FOLDER}/`)("@kubernetes/client-node");

setTimeout(() => { console.error("the program hangs"); process.exit(1); }, 120_000).unref();
const config = new k8s.KubeConfig();
config.loadFromDefault();
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const core = config.makeApiClient(k8s.CoreV1Api);
const place = { group: "example.com", version: "v1", namespace: "default", plural: "sites" };
const site = (name, title) =>
  ({ apiVersion: "example.com/v1", kind: "Site", metadata: { name, namespace: "default" }, spec: { title } });

const blue = await objects.create(site("blue", "Blue"));
assert.equal(blue.spec.pages, 1);
await assert.rejects(objects.create(site("taken", "Taken")), (error) =>
  error.code === 422 && error.body.includes("is the title of another site"));
const patched = await custom.patchNamespacedCustomObject(
  { ...place, name: "blue", body: [{ op: "replace", path: "/spec/title", value: "Light blue" }] });
assert.equal(patched.spec.title, "Light blue");
blue.spec.title = "Dark blue";
await assert.rejects(objects.replace(blue), (error) => error.code === 409);
await custom.createNamespacedCustomObject({ ...place, body: site("red", "Red") });
const list = await custom.listNamespacedCustomObject(place);
assert.deepEqual(list.items.map((item) => item.metadata.name), ["blue", "red"]);

const seen = [];
await new Promise((resolve, reject) => {
  const watch = new k8s.Watch(config);
  watch.watch("/apis/example.com/v1/namespaces/default/sites", {}, async (type, object) => {
    seen.push(`${type} ${object.metadata.name}`);
    if (seen.length === 2) await custom.deleteNamespacedCustomObject({ ...place, name: "red" });
    if (seen.length === 3) resolve();
  }, reject).catch(reject);
});
assert.deepEqual(seen, ["ADDED blue", "ADDED red", "DELETED red"]);

const informer = k8s.makeInformer(config, "/api/v1/namespaces/default/configmaps",
  () => core.listNamespacedConfigMap({ namespace: "default" }));
const told = new Promise((resolve, reject) => {
  informer.on("add", resolve);
  informer.on("error", reject);
});
await informer.start();
await core.createNamespacedConfigMap(
  { namespace: "default", body: { metadata: { name: "colours" }, data: { sky: "blue" } } });
assert.deepEqual((await told).data, { sky: "blue" });
await informer.stop();
await objects.delete(site("blue", "Blue"));
await assert.rejects(objects.read(site("blue", "Blue")), (error) => error.code === 404);
process.exit(0);
