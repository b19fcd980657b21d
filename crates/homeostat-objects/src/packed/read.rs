//! Reads JSON directly into its packed form, without an intermediate [`Value`]. The result is the same as with
//! [`pack`], but the fields are always sorted by name.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value, json};

use super::buffers::{FieldPlace, ReadBuffers};
use super::{ARRAY, FALSE, NULL, TRUE, pack};
use crate::Kind;

/// The only field of the object that represents a number's digits, if a program uses `serde_json` with
/// `arbitrary_precision`.
const NUMBER: &str = "$serde_json::private::Number";

/// Reads an object without `metadata.managedFields`. Sets its `apiVersion` and `kind` if `kind` is given. Replaces the
/// content of the buffers, and returns the packed object.
pub(crate) fn read_object<'de, 'b, D: Deserializer<'de>>(
    deserializer: D,
    kind: Option<&Kind>,
    buffers: &'b mut ReadBuffers,
) -> Result<&'b str, D::Error> {
    buffers.text.clear();
    buffers.fields.clear();
    ValueSeed { part: ReadPart::Object(kind), writer: buffers }.deserialize(deserializer)?;
    Ok(&buffers.text)
}

/// A part of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadPart<'a> {
    /// The whole object. Sets this kind on it.
    Object(Option<&'a Kind>),
    /// The metadata: `null`, or an object with fields.
    Metadata,
    Other,
}

impl ReadPart<'_> {
    /// Returns which part a field is.
    fn field(self, name: &str) -> Self {
        if matches!(self, Self::Object(_)) && name == "metadata" { Self::Metadata } else { Self::Other }
    }

    fn leaves_out(self, name: &str) -> bool {
        match self {
            Self::Object(kind) => kind.is_some() && (name == "apiVersion" || name == "kind"),
            Self::Metadata => name == "managedFields",
            Self::Other => false,
        }
    }
}

/// Reads the name of a field. Returns its beginning.
struct NameSeed<'w>(&'w mut ReadBuffers);

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        self.0.name(name);
        Ok(self.0.text.len() - name.len())
    }
}

/// Reads a value.
struct ValueSeed<'a, 'w> {
    part: ReadPart<'a>,
    writer: &'w mut ReadBuffers,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.part {
            ReadPart::Object(_) => deserializer.deserialize_map(self),
            ReadPart::Metadata => deserializer.deserialize_option(self),
            ReadPart::Other => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.part == ReadPart::Other { "any valid JSON value" } else { "a JSON object" })
    }

    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.writer.byte(NULL);
        Ok(())
    }

    fn visit_bool<E>(self, bool: bool) -> Result<(), E> {
        self.writer.byte(if bool { TRUE } else { FALSE });
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.writer.number(&number.into());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.writer.number(&number.into());
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        match Number::from_f64(number) {
            Some(number) => self.writer.number(&number),
            None => self.writer.byte(NULL),
        }
        Ok(())
    }

    fn visit_str<E>(self, string: &str) -> Result<(), E> {
        self.writer.string(string);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let start = self.writer.text.len();
        while seq.next_element_seed(ValueSeed { part: ReadPart::Other, writer: self.writer })?.is_some() {}
        self.writer.header(ARRAY, start);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { part, writer } = self;
        let (start, first) = (writer.text.len(), writer.fields.len());
        let mut is_sorted = true;
        if let ReadPart::Object(Some(kind)) = part {
            for (name, value) in [("apiVersion", &*kind.api_version()), ("kind", kind.name())] {
                let begin = writer.text.len();
                writer.name(name);
                let at = writer.text.len();
                writer.string(value);
                writer.fields.push(FieldPlace { begin, name: at - name.len(), value: at, end: writer.text.len() });
            }
        }
        loop {
            let begin = writer.text.len();
            let Some(at) = map.next_key_seed(NameSeed(writer))? else { break };
            let mut field = FieldPlace { begin, name: at, value: writer.text.len(), end: 0 };
            let name = &writer.text[at..];
            if part.leaves_out(name) {
                writer.text.truncate(begin);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if let Some(last) = writer.fields[first..].last() {
                is_sorted &= last.name(&writer.text) < name.as_bytes();
            }
            if name == NUMBER && begin == start {
                let digits = map.next_value::<Value>()?;
                match Value::deserialize(json!({NUMBER: digits})).map_err(de::Error::custom)? {
                    Value::Number(number) => {
                        writer.text.truncate(begin);
                        writer.number(&number);
                        return Ok(());
                    }
                    object => writer.text.push_str(&pack(&object[NUMBER])),
                }
            } else {
                let part = part.field(name);
                map.next_value_seed(ValueSeed { part, writer })?;
            }
            field.end = writer.text.len();
            writer.fields.push(field);
        }
        writer.end_object(start, first, is_sorted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    fn read(text: &[u8], part: ReadPart<'_>) -> Result<String, String> {
        let mut buffers = ReadBuffers::default();
        buffers.text.push_str("before");
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let seed = ValueSeed { part, writer: &mut buffers };
        seed.deserialize(&mut deserializer).and_then(|()| deserializer.end()).map_err(|error| error.to_string())?;
        Ok(buffers.text.strip_prefix("before").unwrap().to_owned())
    }

    /// Reads the text as a [`Value`] and packs that.
    fn parsed(text: &[u8], change: impl FnOnce(&mut Value)) -> Result<String, String> {
        let mut value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        change(&mut value);
        Ok(pack(&value).to_string())
    }

    fn any_number() -> impl Strategy<Value = String> {
        let borders = [
            i64::MIN.to_string(),
            i64::MAX.to_string(),
            u64::MAX.to_string(),
            "18446744073709551616".to_owned(),
            "-9223372036854775809".to_owned(),
            "-0".to_owned(),
            "-0.0".to_owned(),
            "1e999".to_owned(),
            "1e-999".to_owned(),
            "01".to_owned(),
        ];
        prop_oneof!["-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", select(borders.to_vec())]
    }

    fn any_string() -> impl Strategy<Value = String> {
        let escaped = r#""([a-c]|é|\\n|\\"|\\\\|\\/|\\u0061|\\u00E9|\\ud83d\\ude00){0,70}""#;
        let plain = prop_oneof![".{0,80}", "x{62,66}", "y{4090,4100}"];
        prop_oneof![
            4 => escaped,
            4 => plain.prop_map(|text| serde_json::to_string(&text).unwrap()),
            1 => Just(r#""\ud83d""#.to_owned()),
        ]
    }

    /// Names that often repeat, in different spellings.
    fn any_name() -> impl Strategy<Value = String> {
        prop_oneof![
            8 => r#""([ab]|\\u0061|é){0,2}""#,
            2 => any_string(),
            1 => Just(format!("\"{NUMBER}\"")),
        ]
    }

    fn object(fields: &[(String, String)]) -> String {
        let fields = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>();
        format!("{{{}}}", fields.join(" ,"))
    }

    /// Any JSON text, and some text that is not JSON.
    fn any_text() -> impl Strategy<Value = String> {
        let word = select(vec!["null", "true", "false"]).prop_map(str::to_owned);
        prop_oneof![word, any_number(), any_string()].prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(|items| format!("[{}]", items.join(",\n"))),
                prop::collection::vec((any_name(), inner), 0..8).prop_map(|fields| object(&fields)),
            ]
        })
    }

    fn any_metadata() -> impl Strategy<Value = String> {
        let name = select(vec!["\"name\"", "\"managedFields\"", "\"labels\"", r#""managed\u0046ields""#]);
        let fields = prop::collection::vec((name.prop_map(str::to_owned), any_text()), 0..6);
        prop_oneof![1 => Just("null".to_owned()), 8 => fields.prop_map(|fields| object(&fields))]
    }

    fn any_object() -> impl Strategy<Value = String> {
        let name = select(vec!["\"apiVersion\"", "\"kind\"", "\"data\"", "\"spec\"", "\"managedFields\"", "\"a\""]);
        let field = prop_oneof![
            (name.prop_map(str::to_owned), any_text()),
            any_metadata().prop_map(|metadata| ("\"metadata\"".to_owned(), metadata)),
            any_metadata().prop_map(|other| ("\"spec\"".to_owned(), format!("{{\"metadata\": {other}}}"))),
        ];
        prop::collection::vec(field, 0..8).prop_map(|fields| object(&fields))
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_its_value_is_packed(text in any_text(), cut in any::<Index>()) {
            prop_assert_eq!(read(text.as_bytes(), ReadPart::Other), parsed(text.as_bytes(), |_| ()), "{}", text);
            let cut = &text.as_bytes()[..cut.index(text.len())];
            prop_assert_eq!(read(cut, ReadPart::Other), parsed(cut, |_| ()), "a part of {}", text);
        }

        #[test]
        fn an_object_is_read_without_managed_fields_and_with_its_kind(text in any_object(), has_kind in any::<bool>()) {
            let deployment = Kind::namespaced("apps", "v1", "Deployment");
            let expected = parsed(text.as_bytes(), |object| {
                if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                    metadata.remove("managedFields");
                }
                if has_kind {
                    object["apiVersion"] = "apps/v1".into();
                    object["kind"] = "Deployment".into();
                }
            });
            // Skipped fields are not read, so they may be invalid.
            if expected.is_ok() {
                let part = ReadPart::Object(has_kind.then_some(&deployment));
                prop_assert_eq!(read(text.as_bytes(), part), expected, "{}", text);
            }
        }
    }

    #[test]
    fn the_depth_is_limited_as_for_values() {
        for levels in [126, 127, 128, 129] {
            let (open, close) = (r#"[{"a":"#.repeat(levels / 2), "}]".repeat(levels / 2));
            for text in [format!("{open}1{close}"), format!("[{open}1{close}]"), format!("{open}[]{close}")] {
                assert_eq!(read(text.as_bytes(), ReadPart::Other), parsed(text.as_bytes(), |_| ()), "{levels}");
            }
        }
        assert!(read("[".repeat(127).as_bytes(), ReadPart::Other).unwrap_err().contains("EOF"));
        assert!(read("[".repeat(128).as_bytes(), ReadPart::Other).unwrap_err().contains("recursion limit"));
    }

    #[test]
    fn metadata_that_are_neither_null_nor_an_object_are_refused() {
        for metadata in ["1", "\"x\"", "[]", "true"] {
            let text = format!("{{\"metadata\": {metadata}}}");
            let error = read(text.as_bytes(), ReadPart::Object(None)).unwrap_err();
            assert!(error.contains("invalid type") && error.contains("expected a JSON object"), "{error}");
        }
        assert!(read(b"[]", ReadPart::Object(None)).is_err());
    }
}
