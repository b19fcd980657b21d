//! Cases for each keyword, in the manner of the test suite of JSON schema: a schema, a value, and the fields with faults.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

use serde_json::{Value, json};

use super::StructuralSchema;

/// Returns the faults of a value in the field `v`.
fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {"v": schema}})).unwrap();
    schema.faults(&json!({"v": value}), None).iter().map(ToString::to_string).collect()
}

fn assert_all(schema: &Value, valid: &[Value], invalid: &[Value]) {
    for value in valid {
        assert_eq!(faults(schema, value), Vec::<String>::new(), "{schema} {value}");
    }
    for value in invalid {
        let faults = faults(schema, value);
        assert!(!faults.is_empty(), "{schema} {value}");
        assert!(faults.iter().all(|fault| fault.starts_with('v')), "{faults:?}");
    }
}

#[test]
fn types() {
    let (int, float, text) = (json!(1), json!(1.5), json!("a"));
    let (array, object, truth, null) = (json!([]), json!({}), json!(true), json!(null));
    assert_all(
        &json!({"type": "integer"}),
        &[int.clone(), json!(1.0), json!(u64::MAX)],
        &[float.clone(), text.clone(), null.clone()],
    );
    assert_all(&json!({"type": "number"}), &[int.clone(), float.clone()], &[text.clone(), truth.clone()]);
    assert_all(&json!({"type": "string"}), &[text.clone(), json!("")], &[int.clone(), array.clone(), null.clone()]);
    assert_all(&json!({"type": "boolean"}), &[truth.clone(), json!(false)], &[int.clone(), json!("true"), json!(0)]);
    assert_all(&json!({"type": "array"}), std::slice::from_ref(&array), &[object.clone(), text.clone()]);
    assert_all(&json!({"type": "object"}), std::slice::from_ref(&object), &[array.clone(), null.clone()]);
    assert_all(&json!({"type": "string", "nullable": true}), &[text.clone(), null.clone()], std::slice::from_ref(&int));
    assert_all(&json!({"type": ["string", "null"]}), &[text.clone(), null.clone()], std::slice::from_ref(&int));
    assert_all(&json!({"type": ["string", "integer"]}), &[text.clone(), int.clone()], &[null.clone(), float.clone()]);
    assert_all(&json!({"x-kubernetes-int-or-string": true}), &[text, int], &[float, truth]);
    assert_all(&json!({}), &[array, object, null], &[]);
}

#[test]
fn numbers() {
    assert_all(&json!({"type": "number", "minimum": 1.1}), &[json!(1.1), json!(2)], &[json!(0.6)]);
    assert_all(&json!({"type": "integer", "minimum": -2}), &[json!(-2), json!(0)], &[json!(-3)]);
    assert_all(&json!({"type": "number", "maximum": 3}), &[json!(3), json!(2.6)], &[json!(3.5)]);
    assert_all(
        &json!({"minimum": 1, "exclusiveMinimum": true, "type": "number"}),
        &[json!(1.1)],
        &[json!(1), json!(0)],
    );
    assert_all(&json!({"exclusiveMaximum": 3, "type": "number"}), &[json!(2.9)], &[json!(3), json!(4)]);
    assert_all(&json!({"multipleOf": 2, "type": "integer"}), &[json!(10), json!(0)], &[json!(7)]);
    assert_all(&json!({"multipleOf": 0.01, "type": "number"}), &[json!(0.07), json!(4.35)], &[json!(0.075)]);
    assert_all(&json!({"type": "integer", "format": "int32"}), &[json!(2_147_483_647)], &[json!(2_147_483_648_i64)]);
    assert_all(&json!({"type": "integer", "format": "int64"}), &[json!(i64::MAX)], &[json!(u64::MAX)]);
}

#[test]
fn texts() {
    assert_all(&json!({"type": "string", "minLength": 2}), &[json!("foo"), json!("fo")], &[json!("f"), json!("ä")]);
    assert_all(&json!({"type": "string", "maxLength": 2}), &[json!("äö"), json!("")], &[json!("foo")]);
    assert_all(&json!({"type": "string", "pattern": "^a*$"}), &[json!("aaa"), json!("")], &[json!("abc")]);
    assert_all(&json!({"type": "string", "pattern": "a+"}), &[json!("xxaayy")], &[json!("xy")]);
    assert_all(&json!({"type": "string", "enum": ["a", "b"]}), &[json!("a")], &[json!("c"), json!("")]);
    assert_all(
        &json!({"enum": [1, {"a": [false]}]}),
        &[json!(1), json!(1.0), json!({"a": [false]})],
        &[json!(true), json!({"a": [0]})],
    );
}

#[test]
fn formats() {
    for (format, valid, invalid) in [
        ("date-time", "2024-02-29T12:00:00.5+01:00", "2023-02-29T12:00:00Z"),
        ("date-time", "1990-12-31T23:59:59z", "1990-12-31 23:59:59Z"),
        ("date", "2024-02-29", "2023-02-29"),
        ("ipv4", "192.168.0.1", "127.0.0.256"),
        ("ipv6", "::1", "12345::"),
        ("ip", "::1", "localhost"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("cidr", "fd00::/8", "fd00::"),
        ("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08aa9811eab4aa73b441d16380"),
        ("byte", "aGVsbG8=", "a?"),
        ("email", "joe.bloggs@example.com", "2962"),
        ("hostname", "www.example.com", "-bad-.example"),
        ("uri", "http://foo.bar/?baz=qux#quux", "//foo.bar"),
        ("uri", "urn:isbn:1", "bar baz:x y"),
    ] {
        assert_all(&json!({"type": "string", "format": format}), &[json!(valid)], &[json!(invalid)]);
    }
    assert_all(&json!({"type": "string", "format": "password"}), &[json!("anything")], &[]);
}

#[test]
fn the_pattern_of_a_text_that_is_too_long_is_not_checked() {
    let short = json!({"type": "string", "maxLength": 3, "pattern": "^a*$"});
    assert_eq!(faults(&short, &json!("bbbb")), ["v: Too long: must have at most 3 characters"]);
    assert_eq!(faults(&short, &json!("bbb")).len(), 1);
}

#[test]
fn arrays() {
    let of_texts = json!({"type": "array", "items": {"type": "string"}});
    assert_all(&of_texts, &[json!([]), json!(["a"])], &[json!(["a", 1])]);
    assert_eq!(faults(&of_texts, &json!(["a", 1])), ["v[1]: Invalid value: 1: must be of type string"]);
    assert_all(
        &json!({"type": "array", "minItems": 1, "maxItems": 2}),
        &[json!([1]), json!([1, 2])],
        &[json!([]), json!([1, 2, 3])],
    );
    let unique = json!({"type": "array", "uniqueItems": true});
    assert_all(
        &unique,
        &[json!([1, 2]), json!([1, true]), json!([{"a": 1}, {"a": 2}]), json!([[1], [2]])],
        &[json!([1, 1]), json!([1, 1.0]), json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}])],
    );
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    assert_all(
        &map,
        &[json!([{"name": "a"}, {"name": "b"}])],
        &[json!([{"name": "a", "x": 1}, {"name": "a", "x": 2}])],
    );
}

#[test]
fn objects() {
    let schema = json!({
        "type": "object", "required": ["foo"],
        "properties": {"foo": {"type": "integer"}, "bar": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}},
    });
    assert_all(&schema, &[json!({"foo": 1}), json!({"foo": 1, "quux": []})], &[json!({}), json!({"foo": "a"})]);
    assert_eq!(
        faults(&schema, &json!({"foo": null, "bar": {}})),
        ["v.bar.a: Required value: must be set", "v.foo: Invalid value: null: must be of type integer",]
    );
    let map = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    assert_all(&map, &[json!({}), json!({"a": 1})], &[json!({"a.b": "1"})]);
    assert_eq!(faults(&map, &json!({"a.b": "1"}))[0], "v[a.b]: Invalid value: \"1\": must be of type integer");
    assert_all(
        &json!({"type": "object", "minProperties": 1, "maxProperties": 2}),
        &[json!({"a": 1})],
        &[json!({}), json!({"a": 1, "b": 2, "c": 3})],
    );
}

#[test]
fn alternatives() {
    let any = json!({"anyOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]});
    assert_all(&any, &[json!(1), json!(2.5), json!(3)], &[json!(1.5)]);
    let one = json!({"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]});
    assert_all(&one, &[json!(1), json!(2.5)], &[json!(3), json!(1.5)]);
    assert_all(&json!({"allOf": [{"maximum": 30}, {"minimum": 20}]}), &[json!(25)], &[json!(35), json!(15)]);
    assert_all(&json!({"not": {"type": "integer"}}), &[json!("foo")], &[json!(1)]);
    let variants = json!({"oneOf": [
        {"type": "object", "required": ["disk"], "properties": {"disk": {"type": "string"}}},
        {"type": "object", "required": ["net"], "properties": {"net": {"type": "string"}}},
    ]});
    assert_all(&variants, &[json!({"disk": "a"}), json!({"net": "b"})], &[json!({}), json!({"disk": "a", "net": "b"})]);
    assert!(faults(&variants, &json!({}))[0].ends_with("the nearest: v.disk: Required value: must be set"));
}

/// The schema of a type, in the form in which `schemars` writes it.
fn generated() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Site", "description": "A website.", "type": "object",
        "properties": {
            "apiVersion": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {"$ref": "#/$defs/Spec"},
            "status": {"anyOf": [{"$ref": "#/$defs/Status"}, {"type": "null"}], "default": {"pages": 0}},
        },
        "required": ["metadata", "spec", "status"],
        "$defs": {
            "Spec": {"type": "object", "required": ["title"], "properties": {
                "title": {"type": "string"},
                "mode": {"oneOf": [{"type": "string", "const": "Fast", "description": "Quick."}, {"type": "string", "enum": ["Slow"]}]},
                "owner": {"type": ["string", "null"]},
                "size": {"$ref": "#/$defs/Size", "description": "The size.", "default": {"pages": 1}},
                "any": true,
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "Size": {"type": "object", "properties": {"pages": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}}},
            "Status": {"type": "object", "properties": {"pages": {"type": "integer"}}},
        },
    })
}

#[test]
fn the_schema_of_a_type_becomes_structural() {
    let schema = StructuralSchema::new(&generated()).unwrap();
    assert_eq!(
        *schema.json(),
        json!({
            "description": "A website.", "type": "object",
            "properties": {
                "spec": {"type": "object", "required": ["title"], "properties": {
                    "title": {"type": "string"},
                    "mode": {"type": "string", "enum": ["Fast", "Slow"]},
                    "owner": {"type": "string", "nullable": true},
                    "size": {
                        "type": "object", "description": "The size.", "default": {"pages": 1},
                        "properties": {"pages": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}},
                    },
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                }},
                "status": {"type": "object", "nullable": true, "properties": {"pages": {"type": "integer"}}},
            },
            "required": ["spec"],
        })
    );
    // A structural schema stays as it is.
    assert_eq!(StructuralSchema::new(schema.json()).unwrap().json(), schema.json());
}

#[test]
fn unknown_fields_are_removed() {
    let schema = StructuralSchema::new(&generated()).unwrap();
    let mut site = json!({
        "apiVersion": "x", "kind": "Site", "metadata": {"name": "a", "any": 1}, "extra": 1,
        "spec": {"title": "t", "titel": "t", "any": {"a": [{"b": 1}]}, "labels": {"a.b": "c"}, "size": {"pages": 2, "lines": 3}},
    });
    assert_eq!(schema.prune(&mut site), ["extra", "spec.size.lines", "spec.titel"]);
    assert_eq!(
        site["spec"],
        json!({"title": "t", "any": {"a": [{"b": 1}]}, "labels": {"a.b": "c"}, "size": {"pages": 2}})
    );
    assert_eq!(site["metadata"], json!({"name": "a", "any": 1}));

    let items = json!({"type": "array", "items": {"type": "object", "properties": {"a": {}}}});
    let variants = json!({"oneOf": [
        {"type": "object", "properties": {"disk": {"type": "string"}}}, {"type": "object", "properties": {"net": {}}},
    ]});
    let map = json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"in": {"type": "object"}}});
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true});
    let properties = json!({"items": items, "variants": variants, "map": map, "open": open, "embedded": embedded});
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": properties})).unwrap();
    let mut object = json!({
        "items": [{"a": 1}, {"b": 1}], "variants": {"disk": "d", "net": 1, "other": 2}, "map": {"x": {"a": 1, "b": 2}},
        "open": {"more": {"deep": 1}, "in": {"no": 1}}, "embedded": {"apiVersion": "v1", "kind": "Pod", "spec": {}},
    });
    let removed = schema.prune(&mut object);
    assert_eq!(removed, ["embedded.spec", "items[1].b", "map[x].b", "open.in.no", "variants.other"]);
    assert_eq!(object["open"], json!({"more": {"deep": 1}, "in": {}}));
}

#[test]
fn defaults_are_filled_in_from_the_outside_in() {
    let size = json!({"type": "object", "default": {}, "properties": {"pages": {"type": "integer", "default": 3}}});
    let list = json!({"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}});
    let owner = json!({"type": "string", "nullable": true, "default": "root"});
    let spec = json!({"type": "object", "properties": {"size": size, "list": list, "owner": owner}});
    let schema = StructuralSchema::new(&json!({"type": "object", "properties": {"spec": spec}})).unwrap();
    let filled = |mut object: Value| {
        schema.fill_in(&mut object);
        object
    };
    assert_eq!(filled(json!({})), json!({}));
    assert_eq!(filled(json!({"spec": {}})), json!({"spec": {"size": {"pages": 3}, "owner": "root"}}));
    let given = json!({"spec": {"size": null, "owner": null, "list": [{}, {"on": false}]}});
    let expected = json!({"spec": {"size": {"pages": 3}, "owner": null, "list": [{"on": true}, {"on": false}]}});
    assert_eq!(filled(given), expected);
}

#[test]
fn unusable_schemas_are_refused_with_their_path() {
    let fault = |schema: Value| {
        let whole = json!({"type": "object", "properties": {"spec": schema}, "$defs": {"Loop": {"properties": {"l": {"$ref": "#/$defs/Loop"}}}}});
        StructuralSchema::new(&whole).unwrap_err().to_string()
    };
    for (schema, expected) in [
        (json!({"type": "text"}), "the schema of spec is unusable: \"text\" is not a type"),
        (json!({"properties": {"a": {"pattern": "["}}}), "spec.a"),
        (json!({"$ref": "#/$defs/None"}), "\"#/$defs/None\", which is not defined"),
        (json!({"$ref": "#/$defs/Loop"}), "contains itself"),
        (json!({"x-kubernetes-validations": [{"rule": "true"}]}), "CEL"),
        (json!({"minimum": "1"}), "its minimum is \"1\""),
        (json!({"required": [1]}), "1 is not a name"),
        (json!({"items": 3}), "3 is not a schema"),
    ] {
        let found = fault(schema);
        assert!(found.contains(expected), "{found}");
    }
}
