//! Reads the flat JSON objects of the state topics.
//!
//! The values that the audit needs are numbers, texts and null at the top level of an object; what is nested is
//! checked and passed over. The whole input must be one object (RFC 8259), because a record that is only nearly one
//! was not written by a mirror.

use std::borrow::Cow;

/// How deep values may be nested; ours are two deep.
const DEEPEST: usize = 32;

/// A value at the top level.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    /// `null`.
    Null,
    /// A whole number of 64 bits.
    Number(i64),
    /// A text, its escapes resolved.
    Text(Cow<'a, str>),
    /// A boolean, a fraction, an array or an object.
    Other,
}

/// The fields of the object that `bytes` are, in their order; `None` where they are none.
pub(super) fn object(bytes: &[u8]) -> Option<Vec<(Cow<'_, str>, Value<'_>)>> {
    let mut reader = Reader {
        text: std::str::from_utf8(bytes).ok()?,
    };
    let fields = reader.fields(0)?;
    reader.space();
    reader.text.is_empty().then_some(fields)
}

struct Reader<'a> {
    text: &'a str,
}

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.text = self.text.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    /// Takes `token`, behind any space.
    fn take(&mut self, token: &str) -> Option<()> {
        self.space();
        self.text = self.text.strip_prefix(token)?;
        Some(())
    }

    fn fields(&mut self, depth: usize) -> Option<Vec<(Cow<'a, str>, Value<'a>)>> {
        self.take("{")?;
        let mut fields = Vec::new();
        if self.take("}").is_some() {
            return Some(fields);
        }
        loop {
            self.space();
            let name = self.string()?;
            self.take(":")?;
            fields.push((name, self.value(depth + 1)?));
            if self.take("}").is_some() {
                return Some(fields);
            }
            self.take(",")?;
        }
    }

    fn elements(&mut self, depth: usize) -> Option<()> {
        self.take("[")?;
        if self.take("]").is_some() {
            return Some(());
        }
        loop {
            self.value(depth + 1)?;
            if self.take("]").is_some() {
                return Some(());
            }
            self.take(",")?;
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value<'a>> {
        if depth > DEEPEST {
            return None;
        }
        self.space();
        match self.text.as_bytes().first()? {
            b'"' => self.string().map(Value::Text),
            b'{' => self.fields(depth).map(|_| Value::Other),
            b'[' => self.elements(depth).map(|()| Value::Other),
            b'n' => self.take("null").map(|()| Value::Null),
            b't' => self.take("true").map(|()| Value::Other),
            b'f' => self.take("false").map(|()| Value::Other),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Option<Value<'a>> {
        let end = self
            .text
            .find(|letter: char| !matches!(letter, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(self.text.len());
        let (number, rest) = self.text.split_at(end);
        self.text = rest;
        // the parsers of Rust take a sign that JSON does not know
        if number.starts_with('+') {
            return None;
        }
        match number.parse::<i64>() {
            Ok(whole) => Some(Value::Number(whole)),
            Err(_) => number.parse::<f64>().ok().map(|_| Value::Other),
        }
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        let text = self.text.strip_prefix('"')?;
        let end = text.find(['"', '\\'])?;
        if text.as_bytes()[end] == b'"' {
            self.text = &text[end + 1..];
            return Some(Cow::Borrowed(&text[..end]));
        }
        let mut whole = text[..end].to_owned();
        let mut letters = text[end..].chars();
        loop {
            match letters.next()? {
                '"' => break,
                '\\' => whole.push(escaped(&mut letters)?),
                letter => whole.push(letter),
            }
        }
        self.text = letters.as_str();
        Some(Cow::Owned(whole))
    }
}

/// The letter of an escape, behind its backslash; half a surrogate pair is none.
fn escaped(letters: &mut std::str::Chars<'_>) -> Option<char> {
    Some(match letters.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => {
            let first = unit(letters)?;
            let second = match first {
                0xd800..=0xdbff => {
                    (letters.next()? == '\\' && letters.next()? == 'u').then_some(())?;
                    Some(unit(letters)?)
                }
                _ => None,
            };
            let units = std::iter::once(first).chain(second);
            let mut decoded = char::decode_utf16(units);
            let letter = decoded.next()?.ok()?;
            decoded.next().is_none().then_some(letter)?
        }
        letter @ ('"' | '\\' | '/') => letter,
        _ => return None,
    })
}

fn unit(letters: &mut std::str::Chars<'_>) -> Option<u16> {
    let mut unit = 0_u16;
    for _ in 0..4 {
        let digit = letters.next()?.to_digit(16)?;
        unit = (unit << 4) | u16::try_from(digit).ok()?;
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use super::{Value, object};
    use proptest::prelude::*;

    #[test]
    fn fields_come_in_order_and_nested_values_are_passed_over() {
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
    fn what_is_not_one_object_is_refused() {
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
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(object(deep.as_bytes()), None);
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
