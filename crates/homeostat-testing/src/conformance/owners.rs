//! Valid and invalid owner references.

use serde_json::{Value, json};

use super::fixture::{CaseResult, InPart, Refusal, TestedClient, holds, same};
use super::objects::{owned_by, owner, widget, widget_in, with, zone};
use homeostat_objects::ClientError;

const B: &str = "Widget default/b";
const PATH: &str = "metadata.ownerReferences";

pub(super) fn owners_are_kept(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    let zone = client.create(zone("z"))?;
    let said = owned_by("b", &[&a, &zone]);
    let said = with(said, "/metadata/ownerReferences/0/controller", json!(true));
    let b = client.create(said.clone())?;
    same("owners", &b["metadata"]["ownerReferences"], &said["metadata"]["ownerReferences"])?;
    same("the stored object", client.get("b")?, b)
}

/// Either such a reference is invalid, or the dependent is deleted because it has no owner.
pub(super) fn owners_in_another_namespace_own_nothing(client: &TestedClient) -> CaseResult {
    client.needs_cascading()?;
    let a = client.create(widget_in("other", "a"))?;
    let owners = json!([owner(&a)]);
    own_nothing(client, client.create(owned_by("b", &[&a]))).in_part("create")?;
    let _ = client.remove("b");
    let said = with(client.create(widget("b"))?, "/metadata/ownerReferences", owners.clone());
    own_nothing(client, client.update(said)).in_part("update")?;
    let _ = client.remove("b");
    client.create(widget("b"))?;
    own_nothing(client, client.merge("b", json!({"metadata": {"ownerReferences": owners}}))).in_part("patch")
}

fn own_nothing(client: &TestedClient, written: Result<Value, ClientError>) -> CaseResult {
    match written {
        Ok(_) => client.vanishes("b"),
        Err(error) => {
            same(&format!("the kind of the error \"{error}\""), Refusal::of(&error), Refusal::Invalid)?;
            let is_named = error.causes().iter().any(|cause| cause.field.starts_with(PATH));
            holds(&format!("{error} names the field"), is_named)
        }
    }
}

pub(super) fn owners_are_one_controller_at_most(client: &TestedClient) -> CaseResult {
    let (a, c) = (client.create(widget("a"))?, client.create(widget("c"))?);
    let managed = |object: &Value| with(owner(object), "/controller", json!(true));
    let two = json!([managed(&a), managed(&c)]);
    let said = with(widget("b"), "/metadata/ownerReferences", two.clone());
    client.invalid(B, PATH, "", || client.create(said))?;
    let b = client.create(with(widget("b"), "/metadata/ownerReferences", json!([managed(&a), owner(&c)])))?;
    client.invalid(B, PATH, "", || client.update(with(b, "/metadata/ownerReferences", two.clone())))?;
    client.invalid(B, PATH, "", || client.merge("b", json!({"metadata": {"ownerReferences": two}})))
}

pub(super) fn owners_are_named_in_full(client: &TestedClient) -> CaseResult {
    let a = client.create(widget("a"))?;
    for field in ["apiVersion", "kind", "name", "uid"] {
        let path = format!("/metadata/ownerReferences/0/{field}");
        let said = with(owned_by("b", &[&a]), "/metadata/ownerReferences", json!([owner(&a)]));
        client.invalid(B, PATH, "", || client.create(with(said, &path, json!("")))).in_part(field)?;
    }
    let said = with(owned_by("b", &[&a]), "/metadata/ownerReferences/0/apiVersion", json!("a/b/c"));
    client.invalid(B, PATH, "a/b/c", || client.create(said))
}
