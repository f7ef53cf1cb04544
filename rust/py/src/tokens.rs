//! OAUTHBEARER tokens from a Python callable with the signature of confluent-kafka's `oauth_cb`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eomirror_kafka::{Clock as _, Error, Properties, Secret, SystemClock, Token, TokenSource};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::error::own_message;

/// The property that the callable receives, as with librdkafka.
const CONFIG: &str = "sasl.oauthbearer.config";

/// Exceptions raised in a callable that are no errors: of a signal handler, or an exit. They are raised in the calling
/// code.
#[derive(Clone, Default)]
pub(crate) struct Interruptions(Arc<Mutex<Option<PyErr>>>);

impl Interruptions {
    /// Raises the exception, once. The caller must hold no lock.
    pub(crate) fn check(&self) -> PyResult<()> {
        match self.lock().take() {
            Some(raised) => Err(raised),
            None => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses properties; `callback` returns the tokens, if they come from Python.
pub(crate) fn parse(
    properties: BTreeMap<String, String>,
    callback: Option<Py<PyAny>>,
    interruptions: &Interruptions,
) -> Result<Properties, Error> {
    let tokens = callback.map(|callback| -> Arc<dyn TokenSource> {
        Arc::new(PythonTokens {
            callback,
            config: properties.get(CONFIG).cloned().unwrap_or_default(),
            interruptions: interruptions.clone(),
        })
    });
    Properties::parse_with(properties, tokens)
}

struct PythonTokens {
    callback: Py<PyAny>,
    config: String,
    interruptions: Interruptions,
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
    /// Returns token, expiry in seconds since 1970, and extensions.
    fn ask(&self, py: Python<'_>) -> Result<(String, f64, BTreeMap<String, String>), String> {
        let answer = self
            .callback
            .call1(py, (self.config.as_str(),))
            // another package's message may contain the credentials that it used
            .map_err(|error| {
                let reason = match (own_message(py, &error), error.get_type(py).name()) {
                    (Some(message), _) => message,
                    (None, Ok(name)) => format!("the callable raised {name}"),
                    (None, Err(_)) => "the callable failed".to_owned(),
                };
                if !error.is_instance_of::<PyException>(py) {
                    *self.interruptions.lock() = Some(error);
                }
                reason
            })?;
        let answer = answer.bind(py);
        if let Ok((value, ends)) = answer.extract::<(String, f64)>() {
            return Ok((value, ends, BTreeMap::new()));
        }
        // the third is a principal, which brokers read from the token
        let full = answer.extract::<(String, f64, String, BTreeMap<String, String>)>();
        full.map(|(value, ends, _, extensions)| (value, ends, extensions))
            .map_err(|_| {
                "the callable gives (token, expiry), or those with a principal and extensions"
                    .to_owned()
            })
    }
}
