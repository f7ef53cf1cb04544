//! Finds fields in a JSON document (RFC 8259) by the bytes that they occupy, so that an edit leaves all others alone.
//!
//! The whole document is validated, also where no path leads. Names are compared decoded, so `"\u0061"` is `"a"`. Where
//! an object has a name twice, all of its values are found.

use std::ops::Range;

use super::path::{Path, Step};

/// Maximum depth of nested arrays and objects. A deeper document is as unreadable as one that is no JSON.
pub(super) const MOST_DEPTH: usize = 128;

/// Maximum number of paths of one search, which are bits of a number.
pub(super) const MOST_PATHS: usize = 64;

/// The document is no JSON, or nested too deeply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Calls `found` with the bytes of each value that one of the paths leads to, in ascending order. Values within a found
/// value are not searched.
pub(super) fn search(
    document: &[u8],
    paths: &[Path],
    found: impl FnMut(Range<usize>),
) -> Result<(), Malformed> {
    if std::str::from_utf8(document).is_err() {
        return Err(Malformed);
    }
    let all = match paths.len() {
        0 => 0,
        count @ 1..MOST_PATHS => (1_u64 << count) - 1,
        _ => u64::MAX,
    };
    let mut scanner = Scanner {
        document,
        at: 0,
        paths,
        found,
        name: Vec::new(),
    };
    scanner.blanks();
    scanner.value(0, all).ok_or(Malformed)?;
    scanner.blanks();
    (scanner.at == document.len())
        .then_some(())
        .ok_or(Malformed)
}

struct Scanner<'a, F> {
    document: &'a [u8],
    at: usize,
    paths: &'a [Path],
    found: F,
    /// A decoded name.
    name: Vec<u8>,
}

impl<F: FnMut(Range<usize>)> Scanner<'_, F> {
    fn peek(&self) -> Option<u8> {
        self.document.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Reads a value at `depth`, within which the paths of `active` go on.
    fn value(&mut self, depth: usize, active: u64) -> Option<()> {
        match self.peek()? {
            b'{' => self.object(depth, active),
            b'[' => self.array(depth, active),
            b'"' => self.string(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize, active: u64) -> Option<()> {
        self.open(depth)?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let start = self.at;
            self.string()?;
            let next = self.below(depth, active, Some(start..self.at), 0);
            self.blanks();
            self.take(b':')?;
            self.blanks();
            self.inner(depth, next)?;
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.take(b'}'),
            }
            self.blanks();
        }
    }

    fn array(&mut self, depth: usize, active: u64) -> Option<()> {
        self.open(depth)?;
        if self.take(b']').is_some() {
            return Some(());
        }
        for index in 0.. {
            let next = self.below(depth, active, None, index);
            self.inner(depth, next)?;
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.take(b']'),
            }
            self.blanks();
        }
        None
    }

    fn open(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.blanks();
        (depth < MOST_DEPTH).then_some(())
    }

    /// Reads a value of an object or array, to which the paths of `next` lead.
    fn inner(&mut self, depth: usize, next: u64) -> Option<()> {
        let ends = self.bits(next).any(|path| path.steps.len() == depth + 1);
        let start = self.at;
        self.value(depth + 1, if ends { 0 } else { next })?;
        if ends {
            (self.found)(start..self.at);
        }
        self.blanks();
        Some(())
    }

    fn bits(&self, active: u64) -> impl Iterator<Item = &Path> {
        let paths = self.paths.iter().enumerate();
        paths.filter_map(move |(bit, path)| (active & (1 << bit) != 0).then_some(path))
    }

    /// Returns the paths of `active` that lead to a field, whose name has these bytes, or to an item.
    fn below(
        &mut self,
        depth: usize,
        active: u64,
        name: Option<Range<usize>>,
        index: usize,
    ) -> u64 {
        if active == 0 {
            return 0;
        }
        let is_field = name.is_some();
        if let Some(name) = name {
            self.name.clear();
            decode(&self.document[name], &mut self.name);
        }
        let mut next = 0;
        for (bit, path) in self.paths.iter().enumerate() {
            let leads = active & (1 << bit) != 0
                && match &path.steps[depth] {
                    Step::Field(name) => is_field && *name == self.name,
                    Step::Item(item) => !is_field && *item == index,
                    Step::Every => !is_field,
                };
            next |= u64::from(leads) << bit;
        }
        next
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            let rest = self.document.get(self.at..)?;
            let plain = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
            self.at += plain + 1;
            match rest[plain] {
                b'"' => return Some(()),
                b'\\' => {
                    let escape = self.peek()?;
                    self.at += 1;
                    match escape {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                        b'u' => {
                            let digits = self.document.get(self.at..self.at + 4)?;
                            digits
                                .iter()
                                .all(u8::is_ascii_hexdigit)
                                .then(|| self.at += 4)?;
                        }
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let end = self.at + word.len();
        (self.document.get(self.at..end)? == word).then(|| self.at = end)
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.take(b'-');
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Appends the text of a valid string literal, quotes included, to `text`. A surrogate without its other half is
/// replaced by U+FFFD.
pub(super) fn decode(literal: &[u8], text: &mut Vec<u8>) {
    let mut rest = &literal[1..literal.len().max(2) - 1];
    while let Some(plain) = rest.iter().position(|byte| *byte == b'\\') {
        text.extend_from_slice(&rest[..plain]);
        let size = escape_size(&rest[plain..]);
        let escape = &rest[plain..plain + size];
        let decoded = match escape.get(1) {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let units = escape.chunks(6).map(|unit| hex(&unit[2..]));
                char::decode_utf16(units)
                    .next()
                    .and_then(Result::ok)
                    .unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            Some(other) => char::from(*other),
            None => char::REPLACEMENT_CHARACTER,
        };
        text.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[plain + size..];
    }
    text.extend_from_slice(rest);
}

/// Returns the size of the escaped character at the start of `rest`, which for a surrogate pair has two escapes.
pub(super) fn escape_size(rest: &[u8]) -> usize {
    if rest.get(1) != Some(&b'u') {
        return 2;
    }
    let unit = |at: usize| rest.get(at + 2..at + 6).map(hex);
    let high = unit(0).is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
    let follows = rest.get(6..8) == Some(b"\\u");
    if high && follows && unit(6).is_some_and(|unit| (0xdc00..0xe000).contains(&unit)) {
        12
    } else {
        6
    }
}

fn hex(digits: &[u8]) -> u16 {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u16::from_str_radix(digits, 16).ok())
        .unwrap_or(0xfffd)
}

#[cfg(test)]
mod tests {
    use super::{Malformed, decode, search};
    use crate::transform::path::Path;
    use proptest::prelude::*;

    fn found(document: &str, paths: &[&str]) -> Result<Vec<String>, Malformed> {
        let paths: Vec<_> = paths
            .iter()
            .map(|path| Path::parse(path).unwrap())
            .collect();
        let mut values = Vec::new();
        search(document.as_bytes(), &paths, |span| {
            values.push(document[span].to_owned());
        })?;
        Ok(values)
    }

    #[test]
    fn values_are_found_by_their_bytes() {
        let document = r#" {"a" : [ {"b":1e2}, {"b":"x\"]}"}, 3 ] , "c":{"d":null,"d":[true]}, "\u0065":-0.5} "#;
        for (path, values) in [
            ("$.a[*].b", vec!["1e2", r#""x\"]}""#]),
            ("$.a[1]", vec![r#"{"b":"x\"]}"}"#]),
            ("$.c.d", vec!["null", "[true]"]),
            ("$.e", vec!["-0.5"]),
            ("$.c", vec![r#"{"d":null,"d":[true]}"#]),
            ("$.x.y", vec![]),
            ("$.a.b", vec![]),
            ("$.c[0]", vec![]),
        ] {
            assert_eq!(found(document, &[path]).unwrap(), values, "{path}");
        }
    }

    #[test]
    fn a_value_within_a_found_one_is_not_found_again() {
        assert_eq!(
            found(r#"{"a":{"b":1}}"#, &["$.a.b", "$.a"]).unwrap(),
            [r#"{"b":1}"#]
        );
    }

    #[test]
    fn what_is_no_json_is_malformed() {
        for document in [
            "",
            " ",
            "{",
            "}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "01",
            "1.",
            "+1",
            "1e",
            "-",
            "nul",
            "true false",
            "\"a",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\n\"",
            "{a:1}",
            "'a'",
            "NaN",
            "[1]]",
            "{,}",
        ] {
            assert_eq!(found(document, &["$.a"]), Err(Malformed), "{document}");
        }
        assert_eq!(search(b"\"\xff\"", &[], |_| ()), Err(Malformed));
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(found(&nested(128), &["$.a"]).is_ok());
        assert!(found(&nested(129), &["$.a"]).is_err());
        assert!(found(&nested(1_000_000), &["$.a"]).is_err());
    }

    #[test]
    fn escapes_are_decoded() {
        for (literal, text) in [
            (r#""""#, ""),
            (r#""a\n\t\b\f\r\/\\\"""#, "a\n\t\u{8}\u{c}\r/\\\""),
            (r#""\u00e9\ud83d\ude00z""#, "\u{e9}\u{1f600}z"),
            (r#""\ud83dz\ude00""#, "\u{fffd}z\u{fffd}"),
        ] {
            let mut decoded = Vec::new();
            decode(literal.as_bytes(), &mut decoded);
            assert_eq!(String::from_utf8(decoded).unwrap(), text);
        }
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[abc]|\\PC{0,4}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Another parser finds the same values.
        #[test]
        fn a_path_finds_what_another_parser_finds(document in json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) };
            let text = text.unwrap();
            for (path, pointer) in [("$.a", "/a"), ("$.a.b", "/a/b"), ("$[1].c", "/1/c")] {
                // a pointer also reads "1" as a name
                let is_array = document.is_array();
                let expected = document.pointer(pointer).filter(|_| pointer != "/1/c" || is_array);
                let values = found(&text, &[path]).unwrap();
                prop_assert_eq!(values.len(), usize::from(expected.is_some()));
                for value in values {
                    let value: serde_json::Value = serde_json::from_str(&value).unwrap();
                    prop_assert_eq!(Some(&value), expected);
                }
            }
        }

        /// Another parser accepts the same texts.
        #[test]
        fn the_same_texts_are_json(text in "[\\[\\]{}:,\"\\\\ntrueals0-9.eE+ -]{0,12}|\\PC{0,8}") {
            let theirs = match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(_) => true,
                // it is a number all the same
                Err(error) => error.to_string().starts_with("number out of range"),
            };
            prop_assert_eq!(found(&text, &["$.a"]).is_ok(), theirs);
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let paths = [Path::parse("$.a[*]").unwrap()];
            let _ = search(&bytes, &paths, |_| ());
        }
    }
}
