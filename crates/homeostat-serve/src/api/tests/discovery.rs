//! Discovery and `OpenAPI` documents.

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
    let json = request("GET /openapi/v2").to(&served).json();
    assert_eq!(json["swagger"], "2.0");
    let site = &json["definitions"]["com.example.v1.Site"];
    assert_eq!(site["properties"]["spec"]["properties"]["pages"]["type"], "integer");
    assert_eq!(site["properties"]["metadata"]["$ref"], "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let sites = &json["paths"]["/apis/example.com/v1/namespaces/{namespace}/sites"];
    assert_eq!(sites["post"]["parameters"][3]["schema"]["$ref"], "#/definitions/com.example.v1.Site");
    assert_eq!(sites["get"]["responses"]["200"]["schema"]["$ref"], "#/definitions/com.example.v1.SiteList");
    assert_eq!(sites["get"]["parameters"][0]["type"], "string");
    let text = json.to_string();
    for name in text.split("\"#/definitions/").skip(1).filter_map(|part| part.split('"').next()) {
        assert!(json["definitions"].get(name).is_some(), "{name}");
    }
}

#[test]
fn documents_have_tags_so_that_clients_need_not_read_them_again() {
    let served = served();
    let url = request("GET /openapi/v3").to(&served).json()["paths"]["api/v1"]["serverRelativeURL"].clone();
    for path in ["/openapi/v2", "/openapi/v3", url.as_str().unwrap(), "/apis", "/api/v1"] {
        let line = format!("GET {path}");
        let first = request(&line).to(&served);
        let tag = first.headers["etag"].to_str().unwrap();
        assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() == 18, "{tag}");
        assert_eq!(request(&line).to(&served).headers["etag"], tag);
        for known in [tag.to_owned(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let again = request(&line).header(IF_NONE_MATCH, &known).to(&served);
            assert_eq!((again.code, again.bytes.len(), &again.headers["etag"]), (304, 0, &first.headers["etag"]));
        }
        let changed = request(&line).header(IF_NONE_MATCH, "\"other\"").to(&served);
        assert_eq!((changed.code, changed.bytes), (200, first.bytes));
    }
    let message = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let (json, message) = (request("GET /openapi/v2"), request("GET /openapi/v2").accept(message));
    assert_ne!(json.to(&served).headers["etag"], message.to(&served).headers["etag"]);
}

#[test]
fn kinds_come_and_go() {
    let served = served();
    let widget = || KindDefinition::new(Kind::namespaced("example.com", "v1", "Widget"));
    let widgets = "GET /apis/example.com/v1/namespaces/default/widgets";
    let document = || request("GET /openapi/v3/apis/example.com/v1").to(&served).text;
    let answer = || (request(widgets).to(&served).code, document().contains("com.example.v1.Widget"));
    assert_eq!((answer(), served.api.kinds().len()), ((404, false), 2));
    served.api.serve(widget()).unwrap();
    assert_eq!((answer(), served.api.clone().kinds().len()), ((200, true), 3));
    // The same kind with another plural.
    served.api.serve(widget().kind().clone().with_plural("widgetry")).unwrap();
    assert_eq!((answer().0, served.api.kinds().len()), (404, 3));
    served.api.withdraw(widget().kind());
    served.api.withdraw(widget().kind());
    assert_eq!((answer(), served.api.kinds().len()), ((404, false), 2));
    let refused = served.api.serve(widget().schema(json!({"type": "nothing"}))).unwrap_err();
    assert!(refused.to_string().contains("Widget"), "{refused}");
    assert_eq!(served.api.kinds().len(), 2);
    // A version that is not served.
    served.api.serve(widget()).unwrap();
    served.api.serve(widget().not_served()).unwrap();
    assert_eq!((answer(), served.api.kinds().len()), ((404, false), 2));

    // Stored namespaces replace the virtual ones, and give way to them again.
    let namespaces = || request("GET /api/v1/namespaces").to(&served).json()["items"].as_array().unwrap().len();
    let stored = Kind::cluster("", "v1", "Namespace");
    served.api.serve(stored.clone()).unwrap();
    assert_eq!(namespaces(), 0);
    served.api.withdraw(&stored);
    assert_eq!(namespaces(), 1);
}

#[test]
fn a_watch_goes_on_when_its_kind_is_withdrawn() {
    let served = served();
    let (client, api) = (served.client.clone(), served.api.clone());
    let after = move |parts| {
        if parts == 1 {
            api.withdraw(&NODE);
            client.create(&NODE, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b"}})).unwrap();
        }
    };
    served.client.create(&NODE, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})).unwrap();
    let gone = CancellationToken::new();
    let end = gone.clone();
    let mut calls: Box<dyn FnMut(usize) + Send> = Box::new(after);
    let after = move |parts| {
        calls(parts);
        if parts == 2 {
            end.cancel();
        }
    };
    let mut sink = Kept { after: Some(Box::new(after)), ..Kept::default() };
    let answer = request("GET /api/v1/nodes?watch=true").streamed(&served.api, &mut sink, &gone);
    let names: Vec<_> = answer.events().iter().map(|event| event["object"]["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(request("GET /api/v1/nodes").to(&served).code, 404);
}
