//! Reads the flat JSON objects of the state topics.
//!
//! The audit needs numbers, texts and null at the top level of an object; nested values are validated and ignored. The
//! whole input must be one object (RFC 8259), because a mirror writes nothing else.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Maximum nesting of values; eomirror's own records have two levels.
const DEEPEST: usize = 32;

/// A value at the top level.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    /// `null`.
    Null,
    /// A whole number of 64 bits.
    Number(i64),
    /// A text with its escapes resolved.
    Text(Cow<'a, str>),
    /// A boolean, a fraction, an array or an object.
    Other,
}

/// Fields of an object in their order, duplicates included.
type Fields<'a> = Vec<(Cow<'a, str>, Value<'a>)>;

/// Returns the fields of the object in `bytes`; `None` if they are not one object.
pub(super) fn object(bytes: &[u8]) -> Option<Fields<'_>> {
    let mut reader = serde_json::Deserializer::from_str(std::str::from_utf8(bytes).ok()?);
    let fields = (&mut reader).deserialize_map(Top).ok()?;
    reader.end().ok()?;
    Some(fields)
}

struct Top;

impl<'de> Visitor<'de> for Top {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key_seed(Nested(0))? {
            let Value::Text(name) = name else {
                return Err(A::Error::custom("a name is not a text"));
            };
            fields.push((name, map.next_value_seed(Nested(1))?));
        }
        Ok(fields)
    }
}

/// A value at this depth.
#[derive(Clone, Copy)]
struct Nested(usize);

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = Value<'de>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        if self.0 > DEEPEST {
            return Err(D::Error::custom("values are nested too deeply"));
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _value: bool) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(value).map_or(Value::Other, Value::Number))
    }

    fn visit_f64<E>(self, _value: f64) -> Result<Self::Value, E> {
        Ok(Value::Other)
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        while elements.next_element_seed(Self(self.0 + 1))?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_key_seed(Self(0))?.is_some() {
            map.next_value_seed(Self(self.0 + 1))?;
        }
        Ok(Value::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::{Value, object};
    use proptest::prelude::*;

    #[test]
    fn fields_come_in_order_and_nested_values_are_ignored() {
        let read =
            object(br#" {"a": -3, "b":null,"c":"x\u00e4\n","d":{"e":[1,{"f":2.5}]},"g":true} "#)
                .unwrap();
        let expected = [
            ("a", Value::Number(-3)),
            ("b", Value::Null),
            ("c", Value::Text("x\u{e4}\n".into())),
            ("d", Value::Other),
            ("g", Value::Other),
        ];
        assert_eq!(read.len(), expected.len());
        for ((name, value), (expected_name, expected_value)) in read.iter().zip(&expected) {
            assert_eq!((name.as_ref(), value), (*expected_name, expected_value));
        }
    }

    #[test]
    fn input_that_is_not_one_object_is_refused() {
        for bad in [
            "",
            "{",
            "{}x",
            "[1]",
            "3",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":+1}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\q"}"#,
            "{a:1}",
        ] {
            assert_eq!(object(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_depth_of_values_is_limited() {
        let deep = |depth| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(object(deep(32).as_bytes()).is_some());
        assert_eq!(object(deep(33).as_bytes()), None);
        assert_eq!(object(deep(100_000).as_bytes()), None);
        let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert_eq!(object(objects.as_bytes()), None);
    }

    #[test]
    fn numbers_beyond_64_bits_and_fractions_are_no_numbers() {
        for (text, expected) in [
            ("9223372036854775807", Value::Number(i64::MAX)),
            ("-9223372036854775808", Value::Number(i64::MIN)),
            ("9223372036854775808", Value::Other),
            ("18446744073709551616", Value::Other),
            ("1.0", Value::Other),
            ("1e3", Value::Other),
        ] {
            let json = format!("{{\"a\":{text}}}");
            let read = object(json.as_bytes()).unwrap();
            assert_eq!(read[0].1, expected, "{text}");
        }
    }

    #[test]
    fn a_repeated_name_keeps_every_value_in_order() {
        let read = object(br#"{"a":1,"a":"x"}"#).unwrap();
        let values: Vec<_> = read.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [Value::Number(1), Value::Text("x".into())]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = object(&bytes);
        }

        #[test]
        fn a_text_survives(text in "[a-zA-Z0-9\"\\\\\n\u{e4}\u{1f600}]{0,20}") {
            let quoted: String = text.chars().map(|letter| match letter {
                '"' => "\\\"".to_owned(),
                '\\' => "\\\\".to_owned(),
                '\n' => "\\u000a".to_owned(),
                '\u{1f600}' => "\\ud83d\\ude00".to_owned(),
                other => other.to_string(),
            }).collect();
            let json = format!("{{\"k\":\"{quoted}\"}}");
            let read = object(json.as_bytes()).unwrap();
            prop_assert_eq!(&read[0].1, &Value::Text(text.into()));
        }
    }
}
