//! Rules of a link that leave records out, and change keys, headers and JSON fields of others.
//!
//! # Contract
//!
//! * Rules apply in their order; each sees the record as the rules before it left it.
//! * The result depends on the record and the rules alone. A repeated transaction writes the same bytes, on either
//!   plane, and `verify` can compare a copy with what its original becomes.
//! * An edit of a JSON field replaces the bytes of its value. All other bytes of the document stay as they are.
//! * Offsets, timestamps and partitions are not changed.
//!
//! ```text
//! hash      lower-case hexadecimal HMAC-SHA256 with the rule's secret, of the text: of the decoded string in JSON, of
//!           the bytes elsewhere. So equal texts have equal hashes, wherever they stand.
//! null      JSON null, a null key, a null header value
//! truncate  the first characters of a text (bytes where it is not UTF-8); null for a number, boolean, array or object
//! ```
//!
//! Null, and a field that is absent, hide nothing and are left alone.

mod json;
mod path;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ring::hmac;

pub use path::Path;

use crate::error::Error;
use crate::pattern::PatternSet;
use crate::types::{DropReason, HeaderRef, RecordRef, RuleNumber};

/// Maximum number of fields of a rule.
pub const MOST_FIELDS: usize = json::MOST_PATHS;

/// A rule of a transform.
#[derive(Debug)]
pub struct Rule {
    /// Source topics that it applies to; `None` for all.
    pub topics: Option<PatternSet>,
    /// Its effect.
    pub action: Action,
}

/// Effect of a rule.
#[derive(Debug)]
pub enum Action {
    /// Drops records that do not meet the condition.
    Keep {
        /// The condition.
        condition: Condition,
        /// Keeps records without a value, whatever the condition says.
        tombstones: bool,
    },
    /// Drops records that meet the condition.
    Drop(Condition),
    /// Hides contents.
    Mask(Mask),
    /// Changes which headers there are.
    Headers(HeaderEdits),
}

/// A condition on a record.
#[derive(Debug)]
pub struct Condition {
    /// The part of the record that is looked at.
    pub subject: Subject,
    /// Comparison with its text. Ignored for timestamps and tombstones.
    pub test: Test,
}

/// Part of a record that a condition looks at.
#[derive(Debug)]
pub enum Subject {
    /// The values of the headers with this name; one that meets the test is enough.
    Header(Vec<u8>),
    /// The key. A null key meets no test.
    Key,
    /// The values of a JSON field; one that meets the test is enough. Without a field, and for a null value or one that
    /// is an object, an array or null, no test is met.
    Field(Path),
    /// The timestamp, which is in this range, in ms.
    Timestamp(Range<i64>),
    /// The value: true for a record without one.
    Tombstone(bool),
}

/// Comparison of a text.
#[derive(Debug)]
pub enum Test {
    /// It exists.
    Exists,
    /// It is one of these.
    In(Vec<Vec<u8>>),
    /// The whole text matches.
    Matches(PatternSet),
}

/// Contents to hide, and how.
#[derive(Debug)]
pub struct Mask {
    /// JSON fields, at most [`MOST_FIELDS`].
    pub fields: Vec<Path>,
    /// Names of headers.
    pub headers: Vec<Vec<u8>>,
    /// The record's key.
    pub key: bool,
    /// The way to hide them.
    pub with: With,
}

/// Way to hide contents.
pub enum With {
    /// Replaced by their keyed hash.
    Hash(hmac::Key),
    /// Replaced by null.
    Null,
    /// Cut after this number of characters.
    Truncate(usize),
}

impl With {
    /// Returns the keyed hash with a secret.
    #[must_use]
    pub fn hash(secret: &[u8]) -> Self {
        Self::Hash(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl fmt::Debug for With {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hash(_) => "hash",
            Self::Null => "null",
            Self::Truncate(_) => "truncate",
        })
    }
}

/// Changes to the list of headers, made in this order.
#[derive(Debug, Default)]
pub struct HeaderEdits {
    /// Headers to remove.
    pub remove: Vec<Vec<u8>>,
    /// Old and new names.
    pub rename: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names and values of headers to append.
    pub add: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Treatment of a record that a rule cannot read: its value is no JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It stops its topic.
    Stop,
    /// It is dropped.
    Drop,
    /// The rule does not change its value.
    Keep,
}

/// The rules of a link.
#[derive(Debug)]
pub struct Transform {
    rules: Vec<(RuleNumber, Arc<Rule>)>,
    unreadable: Unreadable,
}

impl Transform {
    /// Returns the transform with these rules, of which there are at most [`crate::types::MOST_RULES`]; later ones
    /// are refused by `None`.
    #[must_use]
    pub fn new(rules: Vec<Rule>, unreadable: Unreadable) -> Option<Self> {
        let rules = rules.into_iter().enumerate();
        let rules = rules
            .map(|(index, rule)| Some((RuleNumber::new(index)?, Arc::new(rule))))
            .collect::<Option<Vec<_>>>()?;
        Some(Self { rules, unreadable })
    }

    /// Returns the rules for the records of a source topic; `None` if there are none.
    #[must_use]
    pub fn of_topic(&self, topic: &str) -> Option<TopicTransform> {
        let applies = |rule: &Rule| {
            let topics = rule.topics.as_ref();
            topics.is_none_or(|topics| topics.matches(topic))
        };
        let rules = self.rules.iter().filter(|(_, rule)| applies(rule));
        let rules: Vec<_> = rules.cloned().collect();
        (!rules.is_empty()).then_some(TopicTransform {
            rules,
            unreadable: self.unreadable,
        })
    }
}

/// The rules for the records of one source topic.
#[derive(Debug, Clone)]
pub struct TopicTransform {
    rules: Vec<(RuleNumber, Arc<Rule>)>,
    unreadable: Unreadable,
}

/// The parts of a record that rules look at.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Timestamp in ms.
    pub timestamp: i64,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value.
    pub value: Option<&'a [u8]>,
    /// Headers; may be empty where [`TopicTransform::reads_headers`] is false.
    pub headers: &'a [HeaderRef<'a>],
}

impl<'a> Parts<'a> {
    /// Returns the parts of a record.
    #[must_use]
    pub fn of(record: &RecordRef<'a>) -> Self {
        Self {
            timestamp: record.timestamp,
            key: record.key,
            value: record.value,
            headers: record.headers,
        }
    }
}

/// Name and value of a header.
pub type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

/// New key, or value of a header; `None` is null.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Replacement(Option<Vec<u8>>);

/// Changes to a record; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edited {
    key: Option<Replacement>,
    value: Option<Vec<u8>>,
    headers: Option<Vec<OwnedHeader>>,
    /// Bits of the rules that changed something.
    rules: u32,
}

impl Edited {
    /// Returns true if nothing changes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Returns the key that `original` becomes.
    #[must_use]
    pub fn key<'a>(&'a self, original: Option<&'a [u8]>) -> Option<&'a [u8]> {
        match &self.key {
            None => original,
            Some(Replacement(key)) => key.as_deref(),
        }
    }

    /// Returns the value that `original` becomes.
    #[must_use]
    pub fn value<'a>(&'a self, original: Option<&'a [u8]>) -> Option<&'a [u8]> {
        self.value.as_deref().or(original)
    }

    /// Returns the headers, if they change.
    #[must_use]
    pub fn headers(&self) -> Option<&[OwnedHeader]> {
        self.headers.as_deref()
    }

    /// Returns the headers as records have them, if they change.
    #[must_use]
    pub fn header_refs(&self) -> Option<Vec<HeaderRef<'_>>> {
        let headers = self.headers.as_ref()?.iter();
        let borrowed = headers.map(|(key, value)| HeaderRef {
            key,
            value: value.as_deref(),
        });
        Some(borrowed.collect())
    }

    /// Returns the rules that changed something.
    pub fn rules(&self) -> impl Iterator<Item = RuleNumber> {
        let bits = self.rules;
        (0..32)
            .filter(move |bit| bits & (1 << bit) != 0)
            .filter_map(RuleNumber::new)
    }
}

/// Decision about a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is kept, with these changes.
    Keep(Edited),
    /// It is dropped.
    Drop(DropReason),
}

impl TopicTransform {
    /// Returns true if a rule looks at headers.
    #[must_use]
    pub fn reads_headers(&self) -> bool {
        self.rules.iter().any(|(_, rule)| match &rule.action {
            Action::Keep { condition, .. } | Action::Drop(condition) => {
                matches!(condition.subject, Subject::Header(_))
            }
            Action::Mask(mask) => !mask.headers.is_empty(),
            Action::Headers(_) => true,
        })
    }

    /// Returns true if a rule may change a record, not only drop it.
    #[must_use]
    pub fn changes(&self) -> bool {
        let edits = |action: &Action| matches!(action, Action::Mask(_) | Action::Headers(_));
        self.rules.iter().any(|(_, rule)| edits(&rule.action))
    }

    /// Decides about a record; `at` names it in an error.
    ///
    /// No error contains a part of the record.
    pub fn apply(&self, record: Parts<'_>, at: impl Fn() -> String) -> Result<Fate, Error> {
        let mut edited = Edited::default();
        for (number, rule) in &self.rules {
            let applied = match &rule.action {
                Action::Keep {
                    condition,
                    tombstones,
                } => {
                    let passes = *tombstones && record.value.is_none();
                    condition
                        .holds(record, &edited)
                        .map(|holds| passes || holds)
                }
                Action::Drop(condition) => condition.holds(record, &edited).map(|holds| !holds),
                Action::Mask(mask) => {
                    // key and headers are hidden also where the value is no JSON
                    let outside = mask.hide_outside(record, &mut edited);
                    let inside = mask.hide_fields(record, &mut edited);
                    let changed = outside || inside == Ok(true);
                    edited.rules |= u32::from(changed) << number.index();
                    inside.map(|_| true)
                }
                Action::Headers(edits) => {
                    let changed = edits.apply(record, &mut edited);
                    edited.rules |= u32::from(changed) << number.index();
                    Ok(true)
                }
            };
            match (applied, self.unreadable) {
                (Ok(true), _) | (Err(json::Malformed), Unreadable::Keep) => {}
                (Ok(false), _) => return Ok(Fate::Drop(DropReason::Rule(*number))),
                (Err(json::Malformed), Unreadable::Drop) => {
                    return Ok(Fate::Drop(DropReason::Unreadable));
                }
                (Err(json::Malformed), Unreadable::Stop) => {
                    return Err(Error::Unreadable {
                        at: at(),
                        rule: number.name(),
                    });
                }
            }
        }
        Ok(Fate::Keep(edited))
    }
}

impl Condition {
    fn holds(&self, record: Parts<'_>, edited: &Edited) -> Result<bool, json::Malformed> {
        Ok(match &self.subject {
            Subject::Timestamp(range) => range.contains(&record.timestamp),
            Subject::Tombstone(wanted) => record.value.is_none() == *wanted,
            Subject::Key => edited
                .key(record.key)
                .is_some_and(|key| self.test.passes(key)),
            Subject::Header(name) => {
                // a header without a value exists, and meets no other test
                let exists = matches!(self.test, Test::Exists);
                let passes = |value: Option<&[u8]>| {
                    exists || value.is_some_and(|value| self.test.passes(value))
                };
                match edited.headers() {
                    Some(headers) => headers
                        .iter()
                        .any(|(key, value)| key == name && passes(value.as_deref())),
                    None => record
                        .headers
                        .iter()
                        .any(|header| header.key == name && passes(header.value)),
                }
            }
            Subject::Field(path) => {
                let Some(document) = edited.value(record.value) else {
                    return Ok(false);
                };
                let mut met = false;
                let mut text = Vec::new();
                json::search(document, std::slice::from_ref(path), |span| {
                    let value = &document[span];
                    let exists = matches!(self.test, Test::Exists);
                    met |= exists || is_text(value, &mut text) && self.test.passes(&text);
                })?;
                met
            }
        })
    }
}

/// Puts the text of a string, number or boolean into `text`; false for any other value.
fn is_text(value: &[u8], text: &mut Vec<u8>) -> bool {
    text.clear();
    match value.first() {
        Some(b'"') => json::decode(value, text),
        None | Some(b'{' | b'[' | b'n') => return false,
        Some(_) => text.extend_from_slice(value),
    }
    true
}

impl Test {
    fn passes(&self, text: &[u8]) -> bool {
        match self {
            Self::Exists => true,
            Self::In(texts) => texts.iter().any(|known| known == text),
            Self::Matches(pattern) => {
                std::str::from_utf8(text).is_ok_and(|text| pattern.matches(text))
            }
        }
    }
}

impl Mask {
    /// Hides fields of the value; returns true if something changed.
    fn hide_fields(&self, record: Parts<'_>, edited: &mut Edited) -> Result<bool, json::Malformed> {
        let mut changed = false;
        if let Some(document) = edited
            .value(record.value)
            .filter(|_| !self.fields.is_empty())
        {
            let mut masked: Vec<u8> = Vec::new();
            let mut copied = 0;
            json::search(document, &self.fields, |span| {
                masked.extend_from_slice(&document[copied..span.start]);
                self.with.literal(&document[span.clone()], &mut masked);
                copied = span.end;
            })?;
            if copied > 0 {
                masked.extend_from_slice(&document[copied..]);
                changed = masked != document;
                if changed {
                    edited.value = Some(masked);
                }
            }
        }
        Ok(changed)
    }

    /// Hides key and headers; returns true if something changed.
    fn hide_outside(&self, record: Parts<'_>, edited: &mut Edited) -> bool {
        let mut changed = false;
        if self.key {
            if let Some(key) = edited.key(record.key) {
                if let Some(masked) = self.with.bytes(key) {
                    edited.key = Some(masked);
                    changed = true;
                }
            }
        }
        let is_masked = |name: &[u8]| self.headers.iter().any(|masked| masked == name);
        if !self.headers.is_empty() && edited.any_header(record, &is_masked) {
            for (name, value) in edited.headers_mut(record) {
                let masked = value.as_deref().filter(|_| is_masked(name));
                if let Some(masked) = masked.and_then(|text| self.with.bytes(text)) {
                    *value = masked.0;
                    changed = true;
                }
            }
        }
        changed
    }
}

impl With {
    /// Appends what a value in JSON becomes.
    fn literal(&self, value: &[u8], out: &mut Vec<u8>) {
        let is_string = value.first() == Some(&b'"');
        match self {
            _ if value == b"null" => out.extend_from_slice(value),
            Self::Null => out.extend_from_slice(b"null"),
            Self::Truncate(_) if !is_string => out.extend_from_slice(b"null"),
            Self::Truncate(most) => {
                let mut end = 1;
                for _ in 0..*most {
                    let size = match value[end..] {
                        [] | [b'"', ..] => break,
                        [b'\\', ..] => json::escape_size(&value[end..]),
                        [first, ..] => character_size(first),
                    };
                    end += size;
                }
                out.extend_from_slice(&value[..end]);
                out.push(b'"');
            }
            Self::Hash(key) => {
                out.push(b'"');
                if is_string && value.contains(&b'\\') {
                    let mut text = Vec::with_capacity(value.len());
                    json::decode(value, &mut text);
                    hash(key, &text, out);
                } else if is_string {
                    hash(key, &value[1..value.len() - 1], out);
                } else {
                    hash(key, value, out);
                }
                out.push(b'"');
            }
        }
    }

    /// Returns what a text outside of JSON becomes; `None` if it stays as it is.
    fn bytes(&self, text: &[u8]) -> Option<Replacement> {
        match self {
            Self::Null => Some(Replacement(None)),
            Self::Hash(key) => {
                let mut out = Vec::with_capacity(64);
                hash(key, text, &mut out);
                Some(Replacement(Some(out)))
            }
            Self::Truncate(most) => {
                let end = match std::str::from_utf8(text) {
                    Ok(text) => text.char_indices().nth(*most).map(|(at, _)| at),
                    Err(_) => (*most < text.len()).then_some(*most),
                };
                end.map(|end| Replacement(Some(text[..end].to_vec())))
            }
        }
    }
}

/// Appends a keyed hash in hexadecimal.
fn hash(key: &hmac::Key, text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in hmac::sign(key, text).as_ref() {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Returns the size of the UTF-8 character that begins with this byte.
const fn character_size(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

impl HeaderEdits {
    /// Changes the list; returns true if something changed.
    fn apply(&self, record: Parts<'_>, edited: &mut Edited) -> bool {
        let touches = |name: &[u8]| {
            self.remove.iter().any(|gone| gone == name)
                || self
                    .rename
                    .iter()
                    .any(|(old, new)| old == name && old != new)
        };
        if self.add.is_empty() && !edited.any_header(record, &touches) {
            return false;
        }
        let headers = edited.headers_mut(record);
        headers.retain(|(name, _)| !self.remove.contains(name));
        for (name, _) in &mut *headers {
            if let Some((_, new)) = self.rename.iter().find(|(old, _)| old == name) {
                name.clone_from(new);
            }
        }
        let added = self.add.iter().cloned();
        headers.extend(added.map(|(name, value)| (name, Some(value))));
        true
    }
}

impl Edited {
    fn any_header(&self, record: Parts<'_>, wanted: &dyn Fn(&[u8]) -> bool) -> bool {
        match &self.headers {
            Some(headers) => headers.iter().any(|(name, _)| wanted(name)),
            None => record.headers.iter().any(|header| wanted(header.key)),
        }
    }

    fn headers_mut(&mut self, record: Parts<'_>) -> &mut Vec<OwnedHeader> {
        self.headers.get_or_insert_with(|| {
            let owned =
                |header: &HeaderRef<'_>| (header.key.to_vec(), header.value.map(<[u8]>::to_vec));
            record.headers.iter().map(owned).collect()
        })
    }
}

#[cfg(test)]
mod tests;
