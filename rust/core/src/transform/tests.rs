use proptest::prelude::*;

use super::{
    Action, Condition, Edited, Fate, HeaderEdits, Mask, Parts, Path, Rule, Subject, Test,
    TopicTransform, Transform, Unreadable, With,
};
use crate::pattern::PatternSet;
use crate::types::{DropReason, HeaderRef, MOST_RULES, RuleNumber};

fn transform(actions: Vec<Action>, unreadable: Unreadable) -> TopicTransform {
    let rules = actions
        .into_iter()
        .map(|action| Rule {
            topics: None,
            action,
        })
        .collect();
    let transform = Transform::new(rules, unreadable).unwrap();
    transform.of_topic("orders").unwrap()
}

fn parts<'a>(
    key: Option<&'a str>,
    value: Option<&'a str>,
    headers: &'a [HeaderRef<'a>],
) -> Parts<'a> {
    Parts {
        timestamp: 1_000,
        key: key.map(str::as_bytes),
        value: value.map(str::as_bytes),
        headers,
    }
}

fn header<'a>(key: &'a str, value: Option<&'a str>) -> HeaderRef<'a> {
    HeaderRef {
        key: key.as_bytes(),
        value: value.map(str::as_bytes),
    }
}

fn fate(action: Action, record: Parts<'_>) -> Fate {
    let transform = transform(vec![action], Unreadable::Stop);
    transform.apply(record, || "here".to_owned()).unwrap()
}

fn is_kept(action: Action, record: Parts<'_>) -> bool {
    matches!(fate(action, record), Fate::Keep(_))
}

fn edited(action: Action, record: Parts<'_>) -> Edited {
    match fate(action, record) {
        Fate::Keep(edited) => edited,
        Fate::Drop(reason) => panic!("dropped: {reason}"),
    }
}

fn paths(texts: &[&str]) -> Vec<Path> {
    texts
        .iter()
        .map(|text| Path::parse(text).unwrap())
        .collect()
}

fn fields(texts: &[&str], with: With) -> Action {
    Action::Mask(Mask {
        fields: paths(texts),
        headers: Vec::new(),
        key: false,
        with,
    })
}

fn equals(text: &str) -> Test {
    Test::In(vec![text.into()])
}

fn keep(subject: Subject, test: Test) -> Action {
    Action::Keep {
        condition: Condition { subject, test },
        tombstones: false,
    }
}

/// Returns the value that a mask of fields makes of a document.
fn masked(document: &str, texts: &[&str], with: With) -> String {
    let edited = edited(fields(texts, with), parts(None, Some(document), &[]));
    let value = edited.value(Some(document.as_bytes())).unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}

#[test]
fn each_subject_is_compared() {
    let field = |text| Subject::Field(Path::parse(text).unwrap());
    let headers = [
        header("region", Some("us")),
        header("region", Some("eu")),
        header("empty", None),
    ];
    let record = parts(
        Some("k1"),
        Some(r#"{"type":"te\u0073t","n":5,"b":true,"o":{},"z":null,"l":["x","y"]}"#),
        &headers,
    );
    let matches = |pattern| Test::Matches(PatternSet::new(&[pattern], &[]).unwrap());
    for (subject, test, expected) in [
        (Subject::Header(b"region".into()), equals("eu"), true),
        (Subject::Header(b"region".into()), equals("e"), false),
        (Subject::Header(b"region".into()), matches("e."), true),
        (Subject::Header(b"empty".into()), Test::Exists, true),
        (Subject::Header(b"empty".into()), equals(""), false),
        (Subject::Header(b"Region".into()), Test::Exists, false),
        (Subject::Key, equals("k1"), true),
        (Subject::Key, matches("k"), false),
        (field("$.type"), equals("test"), true),
        (field("$.n"), equals("5"), true),
        (field("$.b"), equals("true"), true),
        (field("$.o"), Test::Exists, true),
        (field("$.o"), matches(".*"), false),
        (field("$.z"), matches(".*"), false),
        (field("$.none"), Test::Exists, false),
        (field("$.l[*]"), equals("y"), true),
        (Subject::Timestamp(1_000..1_001), Test::Exists, true),
        (Subject::Timestamp(0..1_000), Test::Exists, false),
        (Subject::Tombstone(false), Test::Exists, true),
    ] {
        let shown = format!("{subject:?} {test:?}");
        assert_eq!(is_kept(keep(subject, test), record), expected, "{shown}");
    }
}

#[test]
fn a_dropped_record_names_its_rule() {
    let drop = Action::Drop(Condition {
        subject: Subject::Key,
        test: equals("k"),
    });
    let first = keep(Subject::Key, Test::Exists);
    let transform = transform(vec![first, drop], Unreadable::Stop);
    let of = |key| transform.apply(parts(key, None, &[]), String::new).unwrap();
    let rule = |index| Fate::Drop(DropReason::Rule(RuleNumber::new(index).unwrap()));
    assert_eq!(of(None), rule(0));
    assert_eq!(of(Some("k")), rule(1));
    assert_eq!(of(Some("other")), Fate::Keep(Edited::default()));
    assert_eq!(
        DropReason::Rule(RuleNumber::new(1).unwrap()).name(),
        "transform[1]"
    );
}

#[test]
fn a_tombstone_passes_a_mask_and_a_condition_only_if_told() {
    let record = parts(Some("k"), None, &[]);
    let action = fields(&["$.a"], With::Null);
    assert!(edited(action, record).is_empty());
    let condition = || Condition {
        subject: Subject::Field(Path::parse("$.a").unwrap()),
        test: equals("x"),
    };
    for tombstones in [true, false] {
        let action = Action::Keep {
            condition: condition(),
            tombstones,
        };
        assert_eq!(is_kept(action, record), tombstones);
    }
    assert!(is_kept(Action::Drop(condition()), record));
}

#[test]
fn an_edit_leaves_all_other_bytes_alone() {
    let document =
        " {\"a\" :\t1.50 , \"b\":{\"c\":\"x\"},\"b\":{\"c\":\"y\"}, \"u\":\"\\u00e9\" }\n";
    assert_eq!(
        masked(document, &["$.b.c", "$.a"], With::Null),
        " {\"a\" :\tnull , \"b\":{\"c\":null},\"b\":{\"c\":null}, \"u\":\"\\u00e9\" }\n"
    );
    assert_eq!(
        masked(
            r#"{"items":[{"card":"1234"},{"x":1},{"card":"99"}]}"#,
            &["$.items[*].card"],
            With::Truncate(2)
        ),
        r#"{"items":[{"card":"12"},{"x":1},{"card":"99"}]}"#
    );
}

#[test]
fn texts_are_cut_by_characters() {
    for (value, cut) in [
        (r#""h\u00e9llo""#, r#""h\u00e9""#),
        (r#""\ud83d\ude00\"x""#, r#""\ud83d\ude00\"""#),
        ("\"\u{1f600}\u{e9}\u{e9}\"", "\"\u{1f600}\u{e9}\""),
        (r#""a""#, r#""a""#),
        (r#""""#, r#""""#),
        ("12345", "null"),
        (r#"{"deep":"secret"}"#, "null"),
        ("null", "null"),
    ] {
        let document = format!("{{\"f\":{value}}}");
        let expected = format!("{{\"f\":{cut}}}");
        assert_eq!(masked(&document, &["$.f"], With::Truncate(2)), expected);
    }
}

/// Test case 2 of RFC 4231.
const HASH: &str = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
const TEXT: &str = "what do ya want for nothing?";

#[test]
fn equal_texts_have_equal_hashes_wherever_they_stand() {
    let document = format!(r#"{{"a":"{TEXT}","b":"{}"}}"#, TEXT.replace('w', r"\u0077"));
    assert_eq!(
        masked(&document, &["$.a", "$.b"], With::hash(b"Jefe")),
        format!(r#"{{"a":"{HASH}","b":"{HASH}"}}"#)
    );
    let headers = [
        header("token", Some(TEXT)),
        header("other", Some(TEXT)),
        header("token", None),
    ];
    let action = Action::Mask(Mask {
        fields: Vec::new(),
        headers: vec![b"token".into()],
        key: true,
        with: With::hash(b"Jefe"),
    });
    let edited = edited(action, parts(Some(TEXT), Some("no JSON"), &headers));
    assert_eq!(edited.key(None), Some(HASH.as_bytes()));
    let found = edited.header_refs().unwrap();
    let expected = [
        header("token", Some(HASH)),
        header("other", Some(TEXT)),
        header("token", None),
    ];
    assert_eq!(found, expected);
    assert_eq!(edited.value(Some(b"no JSON")), Some(&b"no JSON"[..]));
}

#[test]
fn headers_are_removed_renamed_and_added_in_this_order() {
    let headers = [
        header("old", Some("1")),
        header("gone", Some("2")),
        header("old", None),
    ];
    let pair = |old: &str, new: &str| (old.into(), new.into());
    let action = Action::Headers(HeaderEdits {
        remove: vec![b"gone".into()],
        rename: vec![pair("old", "new")],
        add: vec![pair("gone", "3")],
    });
    let edited = edited(action, parts(None, None, &headers));
    let expected = [
        header("new", Some("1")),
        header("new", None),
        header("gone", Some("3")),
    ];
    assert_eq!(edited.header_refs().unwrap(), expected);
    assert_eq!(
        edited.rules().collect::<Vec<_>>(),
        [RuleNumber::new(0).unwrap()]
    );
}

#[test]
fn a_later_rule_sees_what_an_earlier_one_left() {
    let remove = Action::Headers(HeaderEdits {
        remove: vec![b"h".into()],
        ..HeaderEdits::default()
    });
    let rules = vec![remove, keep(Subject::Header(b"h".into()), Test::Exists)];
    let headers = [header("h", None)];
    let fate = transform(rules, Unreadable::Stop).apply(parts(None, None, &headers), String::new);
    assert!(matches!(fate, Ok(Fate::Drop(DropReason::Rule(_)))));
}

#[test]
fn an_unreadable_record_goes_by_the_policy_and_shows_nothing() {
    let record = parts(Some("k"), Some(r#"{"email":"canary"#), &[]);
    let of = |unreadable| {
        let null = fields(&["$.email"], With::Null);
        transform(vec![null], unreadable).apply(record, || "orders-0@7".to_owned())
    };
    let error = of(Unreadable::Stop).unwrap_err();
    assert!(
        error.to_string().starts_with("orders-0@7: transform[0]"),
        "{error}"
    );
    assert!(!format!("{error} {error:?} {}", error.fix()).contains("canary"));
    assert_eq!(error.topic(), Some("orders"));
    assert_eq!(of(Unreadable::Drop), Ok(Fate::Drop(DropReason::Unreadable)));
    assert_eq!(of(Unreadable::Keep), Ok(Fate::Keep(Edited::default())));
}

#[test]
fn rules_are_of_topics_and_limited() {
    let rules = |count| {
        (0..count)
            .map(|_| Rule {
                topics: Some(PatternSet::new(&["pay.*"], &[]).unwrap()),
                action: keep(Subject::Key, Test::Exists),
            })
            .collect()
    };
    let transform = Transform::new(rules(MOST_RULES), Unreadable::Stop).unwrap();
    assert!(transform.of_topic("payments").is_some());
    assert!(transform.of_topic("orders").is_none());
    assert!(Transform::new(rules(MOST_RULES + 1), Unreadable::Stop).is_none());
}

#[test]
fn a_secret_is_never_shown() {
    assert_eq!(format!("{:?}", With::hash(b"canary")), "hash");
}

proptest! {
    /// No text that a mask hides is left, and the document is JSON with the same shape.
    #[test]
    fn a_masked_text_is_gone(text in "canary-\\PC{8,20}", others in proptest::collection::vec("\\PC{0,9}", 3), truncate: bool) {
        let before = serde_json::json!({"a": &others[0], "s": [{"x": &text, "y": &others[1]}], "z": &others[2]});
        let with = if truncate { With::Truncate(3) } else { With::hash(b"s") };
        let after = masked(&before.to_string(), &["$.s[*].x"], with);
        prop_assert!(!after.contains("canary"));
        let after: serde_json::Value = serde_json::from_str(&after).unwrap();
        let mut expected = before.clone();
        expected["s"][0]["x"] = after["s"][0]["x"].clone();
        prop_assert_eq!(after, expected);
    }

    #[test]
    fn no_record_panics(
        key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9)),
        value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        most in 0..4_usize,
    ) {
        let mask = || Action::Mask(Mask {
            fields: paths(&["$.a", "$[*]"]),
            headers: vec![b"h".into()],
            key: true,
            with: With::Truncate(most),
        });
        let record = Parts { timestamp: -1, key: key.as_deref(), value: value.as_deref(), headers: &[] };
        let transform = transform(vec![mask(), mask()], Unreadable::Drop);
        let once = transform.apply(record, String::new).unwrap();
        prop_assert_eq!(&once, &transform.apply(record, String::new).unwrap());
    }
}
