//! Common start of the examples: properties on standard input, because passwords do not belong on a command line.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use eomirror_kafka::{Client, Limits, Properties, SystemClock};

/// Connects with the properties on standard input, lines `name=value`; empty lines are skipped.
pub(crate) fn connect(deadline: Instant) -> Result<(Client, Limits), Box<dyn Error>> {
    let text = std::io::read_to_string(std::io::stdin())?;
    let mut pairs = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        pairs.push(line.split_once('=').ok_or("a property is name=value")?);
    }
    let connected = Properties::parse(pairs).and_then(|properties| {
        let limits = Limits::from_properties(&properties);
        Ok((
            Client::connect(properties, Arc::new(SystemClock), deadline)?,
            limits,
        ))
    });
    connected.map_err(|error| format!("{error}\n  fix: {}", error.fix()).into())
}
