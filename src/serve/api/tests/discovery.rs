//! Discovery and documents.

use super::*;

#[test]
fn discovery_has_a_form_for_old_and_new_clients() {
    let served = served();
    let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    let answer = request("GET /apis").accept(new).to(&served);
    assert_eq!(answer.headers["content-type"], "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    assert_eq!(answer.json()["items"][0]["metadata"]["name"], "example.com");
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    let answer = request("GET /api").accept(beta).to(&served);
    assert_eq!(answer.json()["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    let answer = request("GET /apis").accept("application/json, */*").to(&served);
    assert_eq!(
        (&answer.json()["kind"], &answer.headers["vary"]),
        (&json!("APIGroupList"), &HeaderValue::from_static("accept"))
    );
    // Only the roots have an aggregated form.
    let answer = request("GET /apis/example.com/v1").accept(new).to(&served);
    assert_eq!(
        (&answer.json()["kind"], &answer.headers["content-type"]),
        (&json!("APIResourceList"), &HeaderValue::from_static("application/json"))
    );
}

#[test]
fn documents_are_found_by_the_index() {
    let served = served();
    let index = request("GET /openapi/v3").to(&served).json();
    let url = index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = request(&format!("GET {url}")).to(&served).json();
    let site = &document["components"]["schemas"]["com.example.v1.Site"];
    assert_eq!(site["properties"]["spec"]["description"], "The wish.");
    assert!(document["paths"]["/apis/example.com/v1/namespaces/{namespace}/sites/{name}/status"]["patch"].is_object());
    assert_eq!(request("GET /openapi/v3/apis/other.com/v1").to(&served).code, 404);
    let old =
        request("GET /openapi/v2").accept("application/com.github.proto-openapi.spec.v2@v1.0+protobuf").to(&served);
    assert!(old.text.starts_with("\n\u{3}2.0"));
    assert_eq!(old.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert_eq!(request("GET /openapi/v2").to(&served).json()["swagger"], "2.0");
}
