//! Tokens of OAUTHBEARER from a Python callable, of the form that confluent-kafka's `oauth_cb` has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eomirror_plane::{Clock as _, Error, Properties, Secret, SystemClock, Token, TokenSource};
use pyo3::prelude::*;

/// The property that such a callable is given, as librdkafka gives it.
const CONFIG: &str = "sasl.oauthbearer.config";

/// Reads properties; `callback` gives the tokens, if they come from Python.
pub(crate) fn parse(
    properties: BTreeMap<String, String>,
    callback: Option<Py<PyAny>>,
) -> Result<Properties, Error> {
    let tokens = callback.map(|callback| -> Arc<dyn TokenSource> {
        Arc::new(PythonTokens {
            callback,
            config: properties.get(CONFIG).cloned().unwrap_or_default(),
        })
    });
    Properties::parse_with(properties, tokens)
}

struct PythonTokens {
    callback: Py<PyAny>,
    config: String,
}

impl TokenSource for PythonTokens {
    fn token(&self) -> Result<Token, String> {
        let (value, ends, extensions) = Python::attach(|py| self.ask(py))?;
        let left = ends - SystemClock.unix_time().as_secs_f64();
        let lifetime = Duration::try_from_secs_f64(left)
            .map_err(|_| "the callable gave one that has expired".to_owned())?;
        Ok(Token {
            value: Secret::new(value),
            lifetime: Some(lifetime),
            extensions: extensions.into_iter().collect(),
        })
    }
}

impl PythonTokens {
    /// Token, seconds since 1970 at which it expires, and extensions.
    fn ask(&self, py: Python<'_>) -> Result<(String, f64, BTreeMap<String, String>), String> {
        let answer = self
            .callback
            .call1(py, (self.config.as_str(),))
            // its text may hold what it asked with
            .map_err(|error| match error.get_type(py).name() {
                Ok(name) => format!("the callable raised {name}"),
                Err(_) => "the callable failed".to_owned(),
            })?;
        let answer = answer.bind(py);
        if let Ok((value, ends)) = answer.extract::<(String, f64)>() {
            return Ok((value, ends, BTreeMap::new()));
        }
        // the third is a principal, which brokers take from the token
        let full = answer.extract::<(String, f64, String, BTreeMap<String, String>)>();
        full.map(|(value, ends, _, extensions)| (value, ends, extensions))
            .map_err(|_| {
                "the callable gives (token, expiry), or those with a principal and extensions"
                    .to_owned()
            })
    }
}
