//! Reads packed values into types, without an intermediate copy. The rules are the same as for reading a
//! [`Value`](serde_json::Value), with one exception: as in JSON text, an array can represent the fields of an enum's
//! variant.

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Error;

use super::{FieldIter, ItemIter, Packed, PackedNode};

/// The most nested arrays and objects that are read. Reading recurses, and a stored object has at most about 125
/// levels.
const LEVELS: u32 = 256;

impl Packed<'_> {
    /// Reads the value into a type.
    pub(crate) fn to_typed<T: DeserializeOwned>(self) -> Result<T, Error> {
        T::deserialize(Reader { value: self, levels: LEVELS })
    }
}

/// A value that is being read.
#[derive(Clone, Copy)]
struct Reader<'de> {
    value: Packed<'de>,
    /// How many more levels may follow.
    levels: u32,
}

impl Reader<'_> {
    /// Enters an array or object.
    fn levels_below(self) -> Result<u32, Error> {
        self.levels.checked_sub(1).ok_or_else(|| Error::custom(format!("it is nested more than {LEVELS} levels deep")))
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value.node() {
            PackedNode::Null => visitor.visit_unit(),
            PackedNode::Bool(bool) => visitor.visit_bool(bool),
            PackedNode::Number(number) => number.deserialize_any(visitor),
            PackedNode::String(text) => visitor.visit_borrowed_str(text),
            PackedNode::Array(items) => {
                let mut items = Content { items, levels: self.levels_below()?, read: 0 };
                let value = visitor.visit_seq(&mut items)?;
                match items.items.count() {
                    0 => Ok(value),
                    more => Err(Error::invalid_length(items.read + more, &"fewer elements in array")),
                }
            }
            PackedNode::Object(fields) => {
                let mut fields = MapEntries { fields, value: None, levels: self.levels_below()?, read: 0 };
                let value = visitor.visit_map(&mut fields)?;
                match fields.fields.count() {
                    0 => Ok(value),
                    more => Err(Error::invalid_length(fields.read + more, &"fewer elements in map")),
                }
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if matches!(self.value.node(), PackedNode::Null) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let other = match self.value.node() {
            PackedNode::String(variant) => {
                return BorrowedStrDeserializer::new(variant).deserialize_enum(name, variants, visitor);
            }
            PackedNode::Object(fields) => {
                if fields.clone().count() != 1 {
                    return Err(Error::invalid_value(Unexpected::Map, &"map with a single key"));
                }
                let entries = MapEntries { fields, value: None, levels: self.levels_below()?, read: 0 };
                return MapAccessDeserializer::new(entries).deserialize_enum(name, variants, visitor);
            }
            PackedNode::Null => Unexpected::Unit,
            PackedNode::Bool(bool) => Unexpected::Bool(bool),
            PackedNode::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(unsigned), _) => Unexpected::Unsigned(unsigned),
                (None, Some(signed)) => Unexpected::Signed(signed),
                _ => Unexpected::Float(number.as_f64().unwrap_or_default()),
            },
            PackedNode::Array(_) => Unexpected::Seq,
        };
        Err(Error::invalid_type(other, &"string or map"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// The items of an array while they are read.
struct Content<'de> {
    items: ItemIter<'de>,
    levels: u32,
    read: usize,
}

impl<'de> SeqAccess<'de> for Content<'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(value) = self.items.next() else { return Ok(None) };
        self.read += 1;
        seed.deserialize(Reader { value, levels: self.levels }).map(Some)
    }
}

/// The fields of an object while they are read.
struct MapEntries<'de> {
    fields: FieldIter<'de>,
    /// The value that belongs to the name that was read last.
    value: Option<Packed<'de>>,
    levels: u32,
    read: usize,
}

impl<'de> MapAccess<'de> for MapEntries<'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        self.read += 1;
        self.value = Some(value);
        seed.deserialize(Name(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let value = self.value.take().ok_or_else(|| Error::custom("value is missing"))?;
        seed.deserialize(Reader { value, levels: self.levels })
    }
}

/// The name of a field. A map can have numbers or bools as keys, which JSON writes as strings.
struct Name<'de>(&'de str);

/// Reads a name as a number, if it is one.
macro_rules! numbers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let is_number = self.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
            if !is_number {
                return visitor.visit_borrowed_str(self.0);
            }
            let mut text = serde_json::Deserializer::from_str(self.0);
            let number = text.$method(visitor)?;
            text.end().map(|()| number)
        })*
    };
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => visitor.visit_borrowed_str(other),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // A name is never null.
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        BorrowedStrDeserializer::new(self.0).deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
