//! `Transform`.

use std::sync::Arc;

use eomirror_core::transform::{
    Action, Condition, HeaderEdits, Mask, Path, Rule, Subject, Test, Unreadable, With,
};
use eomirror_core::types::MOST_RULES;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::raise;

/// The rules of a link that leave records out and change others.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct Transform {
    pub(crate) rules: Arc<eomirror_core::transform::Transform>,
}

#[pymethods]
impl Transform {
    #[new]
    // the binding owns its arguments
    #[allow(clippy::needless_pass_by_value)]
    fn new(py: Python<'_>, rules: Vec<Bound<'_, PyDict>>, unreadable: &str) -> PyResult<Self> {
        let unreadable = match unreadable {
            "stop" => Unreadable::Stop,
            "drop" => Unreadable::Drop,
            "keep" => Unreadable::Keep,
            other => return Err(wrong(format!("{other:?} is no way to treat a record"))),
        };
        let rules = rules.iter().map(|given| rule(py, given));
        let rules = rules.collect::<PyResult<Vec<_>>>()?;
        let rules = eomirror_core::transform::Transform::new(rules, unreadable)
            .ok_or_else(|| wrong(format!("there are more than {MOST_RULES} rules")))?;
        Ok(Self {
            rules: Arc::new(rules),
        })
    }
}

fn wrong(message: String) -> PyErr {
    PyValueError::new_err(message)
}

/// Returns an entry of a rule; `None` if it is absent or None.
fn given<'py, T: for<'a> FromPyObject<'a, 'py>>(
    rule: &Bound<'py, PyDict>,
    name: &str,
) -> PyResult<Option<T>> {
    match rule.get_item(name)? {
        Some(value) if !value.is_none() => value
            .extract()
            .map(Some)
            .map_err(|_| wrong(format!("{name} has a wrong type"))),
        _ => Ok(None),
    }
}

fn rule(py: Python<'_>, rule: &Bound<'_, PyDict>) -> PyResult<Rule> {
    let patterns = |patterns: Vec<String>| {
        eomirror_core::PatternSet::new(&patterns, &[]).map_err(|error| raise(py, &error))
    };
    let topics: Option<Vec<String>> = given(rule, "topics")?;
    let kind: String = given(rule, "kind")?.unwrap_or_default();
    let action = match kind.as_str() {
        "keep" => Action::Keep {
            condition: condition(rule, patterns)?,
            tombstones: given(rule, "tombstones")?.unwrap_or(false),
        },
        "drop" => Action::Drop(condition(rule, patterns)?),
        "mask" => Action::Mask(mask(rule)?),
        "headers" => Action::Headers(HeaderEdits {
            remove: texts(rule, "remove")?,
            rename: pairs(rule, "rename")?,
            add: pairs(rule, "add")?,
        }),
        other => return Err(wrong(format!("{other:?} is no kind of rule"))),
    };
    Ok(Rule {
        topics: topics.map(patterns).transpose()?,
        action,
    })
}

fn condition(
    rule: &Bound<'_, PyDict>,
    patterns: impl Fn(Vec<String>) -> PyResult<eomirror_core::PatternSet>,
) -> PyResult<Condition> {
    let header: Option<String> = given(rule, "header")?;
    let field: Option<String> = given(rule, "field")?;
    let times: Option<(Option<i64>, Option<i64>)> = given(rule, "timestamp")?;
    let subject = if let Some(name) = header {
        Subject::Header(name.into_bytes())
    } else if let Some(text) = field {
        Subject::Field(path(&text)?)
    } else if let Some((after, before)) = times {
        Subject::Timestamp(after.unwrap_or(i64::MIN)..before.unwrap_or(i64::MAX))
    } else if let Some(wanted) = given(rule, "tombstone")? {
        Subject::Tombstone(wanted)
    } else {
        Subject::Key
    };
    let test = if let Some(pattern) = given::<String>(rule, "matches")? {
        Test::Matches(patterns(vec![pattern])?)
    } else if let Some(known) = given::<Vec<String>>(rule, "in")? {
        Test::In(known.into_iter().map(String::into_bytes).collect())
    } else {
        Test::Exists
    };
    Ok(Condition { subject, test })
}

fn mask(rule: &Bound<'_, PyDict>) -> PyResult<Mask> {
    let fields: Vec<String> = given(rule, "fields")?.unwrap_or_default();
    let secret: Option<String> = given(rule, "secret")?;
    let with = match (secret, given(rule, "truncate")?) {
        (Some(secret), _) => With::hash(secret.as_bytes()),
        (None, Some(most)) => With::Truncate(most),
        (None, None) => With::Null,
    };
    Ok(Mask {
        fields: fields
            .iter()
            .map(|text| path(text))
            .collect::<PyResult<_>>()?,
        headers: texts(rule, "headers")?,
        key: given(rule, "record_key")?.unwrap_or(false),
        with,
    })
}

fn path(text: &str) -> PyResult<Path> {
    Path::parse(text).map_err(|reason| wrong(format!("{text:?} is no path to a field: {reason}")))
}

fn texts(rule: &Bound<'_, PyDict>, name: &str) -> PyResult<Vec<Vec<u8>>> {
    let texts: Vec<String> = given(rule, name)?.unwrap_or_default();
    Ok(texts.into_iter().map(String::into_bytes).collect())
}

fn pairs(rule: &Bound<'_, PyDict>, name: &str) -> PyResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let pairs: Vec<(String, String)> = given(rule, name)?.unwrap_or_default();
    let bytes = |(old, new): (String, String)| (old.into_bytes(), new.into_bytes());
    Ok(pairs.into_iter().map(bytes).collect())
}
