//! Random types, with their JSON schemas as schemars writes them, their values as serde writes them, and a reader as
//! strict as `deny_unknown_fields`. A stored value must be read as the value that was written.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

/// A random type.
#[derive(Clone, Debug)]
pub enum Type {
    Bool,
    /// An integer within bounds.
    Integer(i64, i64),
    NonZero,
    Text,
    Letter(Vec<&'static str>),
    Unit,
    Any,
    Option(Box<Type>),
    List(Box<Type>),
    Map(Box<Type>),
    /// A map with numbers as keys.
    Numbered(Box<Type>),
    Tuple(Vec<Type>),
    Struct(Struct),
    Enum(Enum),
}

#[derive(Clone, Debug)]
pub struct Struct {
    fields: Vec<Field>,
    flat: Vec<Flat>,
    denies: bool,
}

#[derive(Clone, Debug)]
pub struct Field {
    name: &'static str,
    of: Type,
    /// A field with a default may be missing.
    default: Option<Value>,
}

#[derive(Clone, Debug)]
pub enum Flat {
    Enum(Enum),
    OptionalEnum(Enum),
    Struct(Struct),
    OptionalStruct(Struct),
    Map(Type),
    Any,
}

#[derive(Clone, Debug)]
pub struct Enum {
    tag: Tag,
    variants: Vec<(&'static str, Variant)>,
    denies: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    External,
    Internal,
    Adjacent,
    Untagged,
}

#[derive(Clone, Debug)]
pub enum Variant {
    Unit,
    Newtype(Type),
    Struct(Struct),
}

fn types() -> BoxedStrategy<Type> {
    let leaf = prop_oneof![
        Just(Type::Bool),
        select(vec![(0, 255), (-5, 5), (1, 9), (i64::MIN, i64::MAX)])
            .prop_map(|(least, most)| Type::Integer(least, most)),
        Just(Type::NonZero),
        Just(Type::Text),
        subsequence(vec!["x", "y", "z"], 1..=3).prop_map(Type::Letter),
        Just(Type::Unit),
        Just(Type::Any),
    ];
    let types = leaf.prop_recursive(4, 40, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let one = fields(inner.clone(), &["a", "b", "c", "d"]);
        let many = (one.clone(), one.clone(), any::<bool>(), any::<bool>());
        let many =
            many.prop_map(|(one, other, is_one, denies)| (if is_one { vec![one] } else { vec![one, other] }, denies));
        let structs = many.prop_map(|(mut all, denies)| Struct { fields: all.remove(0), flat: Vec::new(), denies });
        let enums = enums(inner.clone(), structs.clone().boxed());
        let flat = prop_oneof![
            enums.clone().prop_map(flattenable).prop_map(Flat::Enum),
            enums.clone().prop_map(flattenable).prop_map(Flat::OptionalEnum),
            structs.clone().prop_map(Flat::Struct),
            structs.clone().prop_map(Flat::OptionalStruct),
            inner.clone().prop_map(Flat::Map),
            Just(Flat::Any),
        ];
        let flat = (fields(inner.clone(), &["p", "q"]), flat, any::<bool>());
        let flat = flat.prop_map(|(fields, flat, has_rest)| {
            let has_rest = has_rest && !matches!(flat, Flat::Map(_) | Flat::Any);
            let rest = has_rest.then_some(Flat::Any);
            Struct { fields, flat: std::iter::once(flat).chain(rest).collect(), denies: false }
        });
        prop_oneof![
            2 => boxed.clone().prop_map(Type::Option),
            1 => boxed.clone().prop_map(Type::List),
            1 => boxed.clone().prop_map(Type::Map),
            1 => boxed.prop_map(Type::Numbered),
            1 => vec(inner, 1..3).prop_map(Type::Tuple),
            3 => structs.prop_map(Type::Struct),
            4 => flat.prop_map(Type::Struct),
            4 => enums.prop_map(Type::Enum),
        ]
    });
    types.boxed()
}

fn fields(types: impl Strategy<Value = Type> + Clone + 'static, names: &[&'static str]) -> BoxedStrategy<Vec<Field>> {
    let field = |name: &'static str| {
        let field = types.clone().prop_flat_map(move |of| {
            let default = prop_oneof![2 => Just(None), 1 => values(&of).prop_map(Some)];
            (Just(of), default).prop_map(move |(of, default)| Field { name, of, default })
        });
        option::of(field.boxed())
    };
    let all: Vec<_> = names.iter().map(|name| field(name)).collect();
    all.prop_map(|fields| fields.into_iter().flatten().collect()).boxed()
}

fn enums(types: impl Strategy<Value = Type> + Clone + 'static, structs: BoxedStrategy<Struct>) -> BoxedStrategy<Enum> {
    let variant = prop_oneof![
        Just(Variant::Unit),
        types.prop_map(Variant::Newtype),
        structs.clone().prop_map(Variant::Struct),
        structs.prop_map(Variant::Struct),
    ];
    let tags = select(vec![Tag::External, Tag::Internal, Tag::Adjacent, Tag::Untagged]);
    let all = (tags, vec(variant, 1..4), any::<bool>());
    let all = all.prop_map(|(tag, variants, denies)| {
        let variants = variants.into_iter().map(|variant| match variant {
            Variant::Newtype(of) if tag == Tag::Internal && !is_taggable(&of) => Variant::Unit,
            variant => variant,
        });
        Enum { tag, variants: ["A", "B", "C"].into_iter().zip(variants).collect(), denies }
    });
    all.boxed()
}

/// Returns an enum that a struct can flatten: serde flattens only objects, and no name may occur twice.
fn flattenable(mut of: Enum) -> Enum {
    for (_, variant) in &mut of.variants {
        let is_flat = match variant {
            Variant::Newtype(Type::Struct(inner)) => inner.flat.is_empty(),
            Variant::Newtype(of) => matches!(of, Type::Map(_) | Type::Any),
            _ => true,
        };
        if [Tag::Internal, Tag::Untagged].contains(&of.tag) && !is_flat {
            *variant = Variant::Unit;
        }
    }
    of
}

/// Returns whether an internally tagged variant can hold this type, which must be an object without another tag.
/// Schemars describes a tagged `Value` as a unit.
fn is_taggable(of: &Type) -> bool {
    let is_tagged = |flat: &Flat| matches!(flat, Flat::Enum(of) | Flat::OptionalEnum(of) if of.tag == Tag::Internal);
    match of {
        Type::Struct(of) => !of.flat.iter().any(is_tagged),
        of => matches!(of, Type::Map(_)),
    }
}

// Values.

fn values(of: &Type) -> BoxedStrategy<Value> {
    match of {
        Type::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Type::Integer(least, most) => {
            prop_oneof![Just(*least), Just(*most), *least..=*most].prop_map(Value::from).boxed()
        }
        Type::NonZero => prop_oneof![-9..0, 1..9].prop_map(Value::from).boxed(),
        Type::Text => select(vec!["", "x", "1", "long text"]).prop_map(Value::from).boxed(),
        Type::Letter(letters) => select(letters.clone()).prop_map(Value::from).boxed(),
        Type::Unit => Just(Value::Null).boxed(),
        Type::Any => any_values(),
        Type::Option(of) => prop_oneof![Just(Value::Null), values(of)].boxed(),
        Type::List(of) => vec(values(of), 0..3).prop_map(Value::from).boxed(),
        Type::Map(of) => object(vec((select(vec!["a", "b", "x"]), values(of)), 0..3)),
        Type::Numbered(of) => object(vec((select(vec!["0", "17"]), values(of)), 0..3)),
        Type::Tuple(all) => all.iter().map(values).collect::<Vec<_>>().prop_map(Value::from).boxed(),
        Type::Struct(of) => struct_values(of),
        Type::Enum(of) => enum_values(of),
    }
}

/// Values that may resemble values of a known type.
fn any_values() -> BoxedStrategy<Value> {
    let leaf = select(vec![json!(null), json!(true), json!(7), json!("x"), json!({}), json!([null])]);
    let names = select(vec!["a", "b", "A", "x"]);
    let nested = leaf.prop_recursive(3, 12, 3, move |inner| {
        prop_oneof![object(vec((names.clone(), inner.clone()), 1..3)), vec(inner, 1..3).prop_map(Value::from)]
    });
    nested.boxed()
}

fn object(fields: impl Strategy<Value = Vec<(&'static str, Value)>> + 'static) -> BoxedStrategy<Value> {
    fields.prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()).boxed()
}

fn joined(parts: Vec<BoxedStrategy<Value>>) -> BoxedStrategy<Value> {
    let join = |parts: Vec<Value>| {
        let objects = parts.into_iter().map(|part| part.as_object().cloned().unwrap_or_default());
        objects.fold(Map::new(), |mut all, part| {
            for (name, value) in part {
                all.entry(name).or_insert(value);
            }
            all
        })
    };
    parts.prop_map(move |parts| Value::Object(join(parts))).boxed()
}

fn struct_values(of: &Struct) -> BoxedStrategy<Value> {
    let fields = of.fields.iter().map(|field| {
        let name = field.name;
        let present = values(&field.of).prop_map(move |value| json!({name: value}));
        if field.default.is_some() { prop_oneof![present, Just(json!({}))].boxed() } else { present.boxed() }
    });
    let flat = of.flat.iter().map(|flat| match flat {
        Flat::Enum(of) => flat_enum_values(of),
        Flat::OptionalEnum(of) => prop_oneof![Just(json!({})), flat_enum_values(of)].boxed(),
        Flat::Struct(of) => struct_values(of),
        Flat::OptionalStruct(of) => prop_oneof![Just(json!({})), struct_values(of)].boxed(),
        Flat::Map(of) => object(vec((select(vec!["x", "y"]), values(of)), 0..3)),
        Flat::Any => object(vec((select(vec!["x", "y"]), any_values()), 0..3)),
    });
    joined(fields.chain(flat).collect())
}

/// A flattened unit variant is an object with `null`, or nothing.
fn flat_enum_values(of: &Enum) -> BoxedStrategy<Value> {
    let tag = of.tag;
    let values = enum_values(of).prop_map(move |value| match value {
        Value::String(name) if tag == Tag::External => json!({name: null}),
        Value::Object(fields) => Value::Object(fields),
        Value::Null => json!({}),
        other => json!({"x": other}),
    });
    values.boxed()
}

fn enum_values(of: &Enum) -> BoxedStrategy<Value> {
    let tag = of.tag;
    let variants = of.variants.iter().map(|(name, variant)| {
        let name = *name;
        let content = match variant {
            Variant::Unit => Just(Value::Null).boxed(),
            Variant::Newtype(of) => values(of),
            Variant::Struct(of) => struct_values(of),
        };
        let is_unit = matches!(variant, Variant::Unit);
        let written = content.prop_map(move |content| match tag {
            Tag::External if is_unit => json!(name),
            Tag::External => json!({name: content}),
            Tag::Internal => {
                let mut fields = content.as_object().cloned().unwrap_or_default();
                fields.insert("type".to_owned(), name.into());
                Value::Object(fields)
            }
            Tag::Adjacent if is_unit => json!({"t": name}),
            Tag::Adjacent => json!({"t": name, "c": content}),
            Tag::Untagged => content,
        });
        written.boxed()
    });
    proptest::strategy::Union::new(variants).boxed()
}

// Schemas.

/// Returns the schema of a type as schemars writes it.
pub fn schema(of: &Type) -> Value {
    match of {
        Type::Bool => json!({"type": "boolean"}),
        Type::Integer(i64::MIN, _) => json!({"type": "integer", "format": "int64"}),
        Type::Integer(least, most) => json!({"type": "integer", "format": "int32", "minimum": least, "maximum": most}),
        Type::NonZero => json!({"type": "integer", "format": "int32", "not": {"const": 0}}),
        Type::Text => json!({"type": "string"}),
        Type::Letter(letters) => json!({"type": "string", "enum": letters}),
        Type::Unit => json!({"type": "null"}),
        Type::Any => json!(true),
        Type::Option(of) => with_null(schema(of)),
        Type::List(of) => json!({"type": "array", "items": schema(of)}),
        Type::Map(of) => json!({"type": "object", "additionalProperties": schema(of)}),
        Type::Numbered(of) => {
            json!({"type": "object", "additionalProperties": false, "patternProperties": {r"^\d+$": schema(of)}})
        }
        Type::Tuple(all) => {
            let items: Vec<_> = all.iter().map(schema).collect();
            json!({"type": "array", "prefixItems": items, "minItems": all.len(), "maxItems": all.len()})
        }
        Type::Struct(of) => struct_schema(of),
        Type::Enum(of) => enum_schema(of),
    }
}

fn with_null(mut schema: Value) -> Value {
    let Value::Object(fields) = &mut schema else { return schema };
    if ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|keyword| fields.contains_key(*keyword)) {
        return json!({"anyOf": [schema, {"type": "null"}]});
    }
    match fields.get_mut("type") {
        Some(Value::String(name)) if name != "null" => {
            let both = json!([name, "null"]);
            fields.insert("type".to_owned(), both);
        }
        _ => {}
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    schema
}

fn struct_schema(of: &Struct) -> Value {
    let mut out = json!({"type": "object"});
    for field in &of.fields {
        let mut property = schema(&field.of);
        if let (Some(default), Value::Object(fields)) = (&field.default, &mut property) {
            fields.insert("default".to_owned(), default.clone());
        }
        out["properties"][field.name] = property;
        if field.default.is_none() && !matches!(field.of, Type::Option(_)) {
            push(&mut out, "required", field.name.into());
        }
    }
    if of.denies {
        out["additionalProperties"] = false.into();
    }
    for flat in &of.flat {
        match flat {
            Flat::Enum(of) => flatten(&mut out, &flat_enum(of, false)),
            Flat::OptionalEnum(of) => flatten(&mut out, &flat_enum(of, true)),
            Flat::Struct(of) => flatten(&mut out, &opened(struct_schema(of))),
            Flat::OptionalStruct(of) => {
                let mut inner = opened(struct_schema(of));
                inner.as_object_mut().unwrap().remove("required");
                flatten(&mut out, &inner);
            }
            Flat::Map(of) => flatten(&mut out, &schema(&Type::Map(Box::new(of.clone())))),
            Flat::Any => flatten(&mut out, &json!(true)),
        }
    }
    out
}

fn push(schema: &mut Value, keyword: &str, value: Value) {
    match &mut schema[keyword] {
        Value::Array(all) => all.push(value),
        empty => *empty = json!([value]),
    }
}

/// Returns the schema of a flattened enum.
fn flat_enum(of: &Enum, is_optional: bool) -> Value {
    let mut schema = enum_schema(of);
    let unit = |name: &Value| {
        let name = name.as_str().unwrap();
        json!({"type": "object", "properties": {name: {"type": "null"}}, "required": [name]})
    };
    let values = |schema: &Value| (schema["type"] == "string").then(|| schema["enum"].as_array().cloned()).flatten();
    if let Some(all) = values(&schema) {
        schema = json!({"oneOf": all.iter().map(unit).collect::<Vec<_>>()});
    } else if let Some(all) = values(&schema["oneOf"][0]) {
        let branches = schema["oneOf"].as_array_mut().unwrap();
        branches.remove(0);
        branches.extend(all.iter().map(unit));
    }
    if is_optional {
        if let Some(branches) = schema.as_object_mut().unwrap().remove("oneOf") {
            schema = json!({"anyOf": [{"oneOf": branches}, {}]});
        } else if let Some(Value::Array(branches)) = schema.get_mut("anyOf") {
            branches.push(json!({}));
        }
    }
    opened(schema)
}

/// Removes `additionalProperties: false` everywhere.
fn opened(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            fields.retain(|keyword, value| !(keyword == "additionalProperties" && *value == false));
            fields.values_mut().for_each(|value| *value = opened(value.take()));
        }
        Value::Array(all) => all.iter_mut().for_each(|value| *value = opened(value.take())),
        _ => {}
    }
    schema
}

fn flatten(out: &mut Value, inner: &Value) {
    let out = out.as_object_mut().unwrap();
    let is_complex =
        |schema: &Map<String, Value>| ["allOf", "anyOf", "oneOf"].iter().any(|name| schema.contains_key(*name));
    let Value::Object(inner) = inner else {
        let keyword = if is_complex(out) { "unevaluatedProperties" } else { "additionalProperties" };
        out.entry(keyword).or_insert(true.into());
        return;
    };
    for (keyword, value) in inner {
        match (&**keyword, out.get_mut(keyword), value) {
            ("required" | "allOf", Some(Value::Array(known)), Value::Array(more)) => known.extend(more.iter().cloned()),
            ("properties", Some(Value::Object(known)), Value::Object(more)) => known.extend(more.clone()),
            ("oneOf" | "anyOf", Some(_), more) => {
                let known = out.remove(keyword).unwrap();
                out.insert("allOf".to_owned(), json!([{keyword.clone(): known}, {keyword.clone(): more}]));
            }
            (_, None, _) => drop(out.insert(keyword.clone(), value.clone())),
            _ => {}
        }
    }
}

fn enum_schema(of: &Enum) -> Value {
    if of.tag == Tag::External {
        let is_unit = |variant: &Variant| matches!(variant, Variant::Unit);
        let units: Vec<_> = of.variants.iter().filter(|(_, variant)| is_unit(variant)).map(|(name, _)| *name).collect();
        let others = of.variants.iter().filter(|(_, variant)| !is_unit(variant)).map(|(name, variant)| {
            json!({"type": "object", "properties": {*name: content(variant)}, "required": [name], "additionalProperties": false})
        });
        let values = (!units.is_empty()).then(|| json!({"type": "string", "enum": units}));
        if units.len() == of.variants.len() {
            return values.unwrap();
        }
        return json!({"oneOf": values.into_iter().chain(others).collect::<Vec<_>>()});
    }
    let branches = of.variants.iter().map(|(name, variant)| match of.tag {
        Tag::Internal => {
            let mut schema = if matches!(variant, Variant::Unit) { json!({}) } else { content(variant) };
            schema["type"] = "object".into();
            schema["properties"]["type"] = json!({"type": "string", "const": name});
            push(&mut schema, "required", "type".into());
            if of.denies && matches!(variant, Variant::Unit) {
                schema["additionalProperties"] = false.into();
            }
            schema
        }
        Tag::Adjacent => {
            let mut schema = json!({
                "type": "object", "properties": {"t": {"type": "string", "const": name}}, "required": ["t"],
            });
            if !matches!(variant, Variant::Unit) {
                schema["properties"]["c"] = content(variant);
                push(&mut schema, "required", "c".into());
            }
            schema
        }
        Tag::External | Tag::Untagged => content(variant),
    });
    let keyword = if of.tag == Tag::Untagged { "anyOf" } else { "oneOf" };
    json!({keyword: branches.collect::<Vec<_>>()})
}

fn content(variant: &Variant) -> Value {
    match variant {
        Variant::Unit => json!({"type": "null"}),
        Variant::Newtype(of) => schema(of),
        Variant::Struct(of) => struct_schema(of),
    }
}

// Readers. They return a value with all defaults, or `None` if the value has another type.

/// Reads a value of a type. Returns it with all defaults, or `None` if it has another type.
pub fn read(of: &Type, value: &Value) -> Option<Value> {
    match of {
        Type::Bool => value.is_boolean().then(|| value.clone()),
        Type::Integer(least, most) => value.as_i64().filter(|number| (least..=most).contains(&number)).map(Value::from),
        Type::NonZero => value.as_i64().filter(|number| *number != 0).map(Value::from),
        Type::Text => value.is_string().then(|| value.clone()),
        Type::Letter(letters) => letters.iter().any(|letter| value == letter).then(|| value.clone()),
        Type::Unit => value.is_null().then_some(Value::Null),
        Type::Any => Some(value.clone()),
        Type::Option(of) => {
            if value.is_null() {
                Some(Value::Null)
            } else {
                read(of, value)
            }
        }
        Type::List(of) => value.as_array()?.iter().map(|item| read(of, item)).collect(),
        Type::Map(of) | Type::Numbered(of) => {
            let fields = value.as_object()?.iter().map(|(name, value)| Some((name.clone(), read(of, value)?)));
            fields.collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        Type::Tuple(all) => {
            let items = value.as_array().filter(|items| items.len() == all.len())?;
            all.iter().zip(items).map(|(of, item)| read(of, item)).collect()
        }
        Type::Struct(of) => read_struct(of, value.as_object()?, !of.flat.is_empty()),
        Type::Enum(of) => read_enum(of, value),
    }
}

fn read_struct(of: &Struct, fields: &Map<String, Value>, allows_others: bool) -> Option<Value> {
    let mut out = Map::new();
    let mut rest = fields.clone();
    for field in &of.fields {
        let value = match (rest.remove(field.name), &field.default) {
            (Some(value), _) => read(&field.of, &value)?,
            (None, Some(default)) => read(&field.of, default)?,
            (None, None) if matches!(field.of, Type::Option(_)) => Value::Null,
            (None, None) => return None,
        };
        out.insert(field.name.to_owned(), value);
    }
    for flat in &of.flat {
        // The flattened types before have taken their fields.
        let others = rest.iter().filter(|(name, _)| ["x", "y"].contains(&&***name));
        let all: Value = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        let (value, name) = match flat {
            Flat::Enum(of) => (read_flat_enum(of, &rest)?, "enum"),
            Flat::OptionalEnum(of) => (read_flat_enum(of, &rest).unwrap_or_default(), "enum"),
            Flat::Struct(of) => (read_struct(of, &rest, true)?, "struct"),
            Flat::OptionalStruct(of) => (read_struct(of, &rest, true).unwrap_or_default(), "struct"),
            Flat::Map(of) => (read(&Type::Map(Box::new(of.clone())), &all)?, "map"),
            Flat::Any => (all, "any"),
        };
        out.insert(format!("flat {name}"), value);
    }
    (allows_others || rest.is_empty()).then_some(Value::Object(out))
}

/// Reads an enum that shares an object with other fields.
fn read_flat_enum(of: &Enum, fields: &Map<String, Value>) -> Option<Value> {
    let of_variant = |name: &str, variant: &Variant| -> Option<Value> {
        let read = match variant {
            Variant::Unit if of.tag == Tag::External => fields.get(name)?.is_null().then_some(Value::Null),
            Variant::Struct(inner) if [Tag::Internal, Tag::Untagged].contains(&of.tag) => {
                read_struct(inner, fields, true)
            }
            Variant::Newtype(Type::Struct(inner)) if [Tag::Internal, Tag::Untagged].contains(&of.tag) => {
                read_struct(inner, fields, true)
            }
            _ if of.tag == Tag::External => read_content(variant, fields.get(name)?),
            _ if of.tag == Tag::Adjacent => read_content(variant, fields.get("c").unwrap_or(&Value::Null)),
            Variant::Unit => Some(Value::Null),
            _ => read_content(variant, &Value::Object(fields.clone())),
        };
        Some(json!({name: read?}))
    };
    of.variants.iter().find_map(|(name, variant)| {
        let is_tagged = match of.tag {
            Tag::Internal => fields.get("type")? == name,
            Tag::Adjacent => fields.get("t")? == name,
            Tag::External | Tag::Untagged => true,
        };
        is_tagged.then(|| of_variant(name, variant)).flatten()
    })
}

fn read_enum(of: &Enum, value: &Value) -> Option<Value> {
    of.variants.iter().find_map(|(name, variant)| {
        let content = match of.tag {
            Tag::External if matches!(variant, Variant::Unit) => return (value == name).then(|| value.clone()),
            Tag::External => value.as_object().filter(|fields| fields.len() == 1)?.get(*name)?.clone(),
            Tag::Internal => {
                let mut fields = value.as_object()?.clone();
                (fields.remove("type")? == **name).then_some(())?;
                if matches!(variant, Variant::Unit) {
                    fields.is_empty().then_some(Value::Null)?
                } else {
                    Value::Object(fields)
                }
            }
            Tag::Adjacent => {
                let fields = value.as_object()?;
                (*fields.get("t")? == **name).then(|| fields.get("c").cloned().unwrap_or_default())?
            }
            Tag::Untagged => value.clone(),
        };
        Some(json!({*name: read_content(variant, &content)?}))
    })
}

fn read_content(variant: &Variant, content: &Value) -> Option<Value> {
    match variant {
        Variant::Unit => content.is_null().then_some(Value::Null),
        Variant::Newtype(of) => read(of, content),
        Variant::Struct(of) => read(&Type::Struct(of.clone()), content),
    }
}

/// Returns random types, each with some of its values.
pub fn types_with_values() -> impl Strategy<Value = (Type, Vec<Value>)> {
    types().prop_flat_map(|of| {
        let values = vec(values(&of), 1..6);
        (Just(of), values)
    })
}
