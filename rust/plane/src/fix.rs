//! Remedies of errors in the terms of a mirror's configuration.

use eomirror_kafka::Error;

/// Returns the remedy of an error of the Kafka client, as an imperative.
///
/// The client knows neither planes nor links; every other error has its own remedy.
#[must_use]
pub const fn fix_of(error: &Error) -> &'static str {
    match error {
        Error::Unhonoured { .. } => "use plane: client, or remove these properties",
        Error::BadProperty { .. } => "correct the property in the cluster's section",
        Error::BadFile { .. } => "restore the file of that property; a running mirror retries",
        Error::Unsupported { .. } => "use plane: client; the native plane needs Kafka 2.8 or newer",
        Error::Fenced { .. } => {
            "keep the other mirror of this link, or stop it and restart this one"
        }
        Error::NotCommitted { .. } => {
            "resume from the last committed position; raise transaction_timeout if it happens again"
        }
        Error::InvalidState { .. } => "this is a bug of eomirror; report it",
        _ => error.fix(),
    }
}
