//! Maps source topics to target topics.

use std::collections::HashMap;

use crate::error::Error;
use crate::header::MAX_TOPIC;

/// A source topic and its target topic, as indexes into a [`Routes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    /// Index of the source topic.
    pub source: usize,
    /// Index of the target topic; two source topics may share one.
    pub target: usize,
}

/// A compiled map from source topics to target topics.
///
/// The partition number does not change, except in target topics whose records are placed by key ([`Routes::keyed`]).
#[derive(Debug, Clone)]
pub struct Routes {
    sources: Vec<String>,
    targets: Vec<String>,
    by_source: HashMap<String, Route>,
    by_target: HashMap<String, usize>,
    /// By index of the target: its number of partitions, if its records are placed by key.
    counts: Vec<Option<i32>>,
}

impl Routes {
    /// Compiles pairs of source and target topic.
    pub fn new<I>(pairs: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item = (String, String)>,
    {
        let mut routes = Self {
            sources: Vec::new(),
            targets: Vec::new(),
            by_source: HashMap::new(),
            by_target: HashMap::new(),
            counts: Vec::new(),
        };
        for (source, target) in pairs {
            check_topic("source topic", &source)?;
            check_topic("target topic", &target)?;
            let target_index = if let Some(index) = routes.by_target.get(&target) {
                *index
            } else {
                routes.targets.push(target.clone());
                routes.by_target.insert(target, routes.targets.len() - 1);
                routes.targets.len() - 1
            };
            let route = Route {
                source: routes.sources.len(),
                target: target_index,
            };
            routes.sources.push(source.clone());
            routes.by_source.insert(source, route);
        }
        routes.counts = vec![None; routes.targets.len()];
        Ok(routes)
    }

    /// Places the records of a target topic with this many partitions by key.
    ///
    /// Topics without a route are ignored.
    pub fn keyed(mut self, target: &str, count: i32) -> Result<Self, Error> {
        if count < 1 {
            return Err(Error::BadName {
                what: "target topic",
                value: target.to_owned(),
                reason: "it has no partitions",
            });
        }
        if let Some(index) = self.by_target.get(target) {
            self.counts[*index] = Some(count);
        }
        Ok(self)
    }

    /// Returns the number of partitions of a target topic whose records are placed by key; `None` if they keep theirs.
    #[must_use]
    pub fn count(&self, route: Route) -> Option<i32> {
        self.counts[route.target]
    }

    /// Returns the route of a source topic.
    #[must_use]
    pub fn find(&self, source: &str) -> Option<Route> {
        self.by_source.get(source).copied()
    }

    /// Returns true if the records of the target topic with this index are placed by key.
    #[must_use]
    pub fn is_keyed(&self, target: usize) -> bool {
        self.counts[target].is_some()
    }

    /// Returns the name of a source topic.
    #[must_use]
    pub fn source(&self, route: Route) -> &str {
        &self.sources[route.source]
    }

    /// Returns the name of a target topic.
    #[must_use]
    pub fn target(&self, route: Route) -> &str {
        &self.targets[route.target]
    }

    /// Returns the index of a target topic with at least one source topic.
    #[must_use]
    pub fn find_target(&self, topic: &str) -> Option<usize> {
        self.by_target.get(topic).copied()
    }

    /// Returns all source topics, in index order.
    #[must_use]
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// Returns all target topics, in index order.
    #[must_use]
    pub fn targets(&self) -> &[String] {
        &self.targets
    }
}

fn check_topic(what: &'static str, name: &str) -> Result<(), Error> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_TOPIC {
        "it is longer than 249 characters"
    } else {
        return Ok(());
    };
    Err(Error::BadName {
        what,
        value: name.chars().take(60).collect(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::Routes;

    fn routes(pairs: &[(&str, &str)]) -> Result<Routes, crate::Error> {
        Routes::new(
            pairs
                .iter()
                .map(|(source, target)| ((*source).to_owned(), (*target).to_owned())),
        )
    }

    #[test]
    fn two_sources_may_share_a_target() {
        let routes = routes(&[("a", "x"), ("b", "x"), ("c", "y")]).unwrap();
        let (a, b, c) = (
            routes.find("a").unwrap(),
            routes.find("b").unwrap(),
            routes.find("c").unwrap(),
        );
        assert_eq!(a.target, b.target);
        assert_ne!(a.source, b.source);
        assert_eq!((routes.source(c), routes.target(c)), ("c", "y"));
        assert_eq!(routes.find("x"), None);
        assert_eq!(routes.find_target("y"), Some(c.target));
    }

    #[test]
    fn names_that_kafka_cannot_hold_are_refused() {
        assert!(routes(&[("", "x")]).is_err());
        let long = "x".repeat(250);
        assert!(
            routes(&[("a", &long)])
                .unwrap_err()
                .to_string()
                .contains("249")
        );
    }
}
