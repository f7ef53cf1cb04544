//! Filters names by patterns: full match, include minus exclude, in linear time.
//!
//! The `regex` crate has neither back-references nor look-around, so no pattern takes exponential time on a topic name
//! that another party chose.

use regex::{Regex, RegexBuilder};

use crate::error::Error;

/// Maximum length of a pattern in bytes.
pub const MAX_PATTERN: usize = 4096;
/// Maximum size of a compiled pattern in bytes; `(a{1000}){1000}` is rejected, every realistic list of names fits.
pub const MAX_COMPILED: usize = 1 << 20;

/// Full-match patterns, include minus exclude.
#[derive(Debug, Clone)]
pub struct PatternSet {
    include: Vec<Regex>,
    exclude: Vec<Regex>,
}

impl PatternSet {
    /// Compiles the patterns; the error names the first one that is rejected.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, Error> {
        let compile_all = |patterns: &[S]| {
            patterns
                .iter()
                .map(|pattern| compile(pattern.as_ref()))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            include: compile_all(include)?,
            exclude: compile_all(exclude)?,
        })
    }

    /// Returns true if the whole `name` matches an included pattern and no excluded one.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.include.iter().any(|pattern| pattern.is_match(name))
            && !self.exclude.iter().any(|pattern| pattern.is_match(name))
    }
}

fn compile(pattern: &str) -> Result<Regex, Error> {
    let refused = |reason: String| Error::BadPattern {
        pattern: pattern.chars().take(200).collect(),
        reason,
    };
    if pattern.len() > MAX_PATTERN {
        return Err(refused(format!("it is longer than {MAX_PATTERN} bytes")));
    }
    // compiled alone first: `a)(b` must not become valid inside of the added parentheses
    build(pattern).map_err(&refused)?;
    build(&format!(r"\A(?:{pattern})\z")).map_err(&refused)
}

fn build(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => {
                format!("compiled it is larger than {limit} bytes")
            }
            // the last line of a syntax error is the reason; the lines before it are a drawing
            other => other
                .to_string()
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::PatternSet;

    fn set(include: &[&str], exclude: &[&str]) -> PatternSet {
        PatternSet::new(include, exclude).unwrap()
    }

    #[test]
    fn a_pattern_matches_the_whole_name() {
        let orders = set(&["orders", "pay.*"], &[]);
        assert!(orders.matches("orders"));
        assert!(orders.matches("payments"));
        assert!(!orders.matches("orders2"));
        assert!(!orders.matches("my-orders"));
        assert!(
            !orders.matches("orders\n"),
            "`$` would take a line feed, we do not"
        );
    }

    #[test]
    fn alternatives_are_anchored_as_a_whole() {
        let either = set(&["a|b"], &[]);
        assert!(either.matches("a") && either.matches("b"));
        assert!(!either.matches("ax") && !either.matches("xb"));
    }

    #[test]
    fn exclude_wins() {
        let most = set(&[".*"], &["__.*", "secret"]);
        assert!(most.matches("orders"));
        assert!(!most.matches("__consumer_offsets"));
        assert!(!most.matches("secret"));
    }

    #[test]
    fn nothing_included_matches_nothing() {
        assert!(!set(&[], &[]).matches("orders"));
    }

    #[test]
    fn a_refused_pattern_is_named_with_the_reason() {
        for (pattern, reason) in [
            ("a)(b", "unopened"),
            ("(?x) a # b", "unclosed"),
            ("(a+)+\\1", "backreferences"),
            ("(?=a)", "look-around"),
            ("(a{1000}){1000}", "larger"),
            ("*", "repetition"),
        ] {
            let message = PatternSet::new(&[pattern], &[]).unwrap_err().to_string();
            assert!(message.contains(&format!("{pattern:?}")), "{message}");
            assert!(message.contains(reason), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_megabyte_of_pattern_is_refused() {
        let long = "a".repeat(1 << 20);
        assert!(
            PatternSet::new(&[long.as_str()], &[])
                .unwrap_err()
                .to_string()
                .len()
                < 400
        );
    }
}
