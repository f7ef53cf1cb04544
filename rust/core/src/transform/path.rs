//! Paths to fields of a JSON document: `$.customer.email`, `$.items[*].card`, `$['odd.name']`.

/// Maximum number of steps of a path.
const MOST_STEPS: usize = 32;

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The field of this name.
    Field(Vec<u8>),
    /// The item with this index.
    Item(usize),
    /// Every item.
    Every,
}

/// A path to fields of a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    pub(super) steps: Vec<Step>,
}

impl Path {
    /// Parses a path; the error is the reason why it is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut rest = text.strip_prefix('$').ok_or("a path begins with `$`")?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, left) = if let Some(name) = rest.strip_prefix('.') {
                let end = name.find(['.', '[']).unwrap_or(name.len());
                if end == 0 {
                    return Err("a name is missing after a dot");
                }
                (
                    Step::Field(name.as_bytes()[..end].to_vec()),
                    name.get(end..),
                )
            } else if let Some(quoted) = rest.strip_prefix("['") {
                let end = quoted.find("']").ok_or("a `['` has no `']`")?;
                let name = quoted.as_bytes()[..end].to_vec();
                (Step::Field(name), quoted.get(end + 2..))
            } else {
                let inner = rest.strip_prefix('[').ok_or("expected a dot or `[`")?;
                let end = inner.find(']').ok_or("a `[` has no `]`")?;
                let step = match &inner[..end] {
                    "*" => Step::Every,
                    index => index
                        .parse()
                        .map(Step::Item)
                        .map_err(|_| "`[...]` holds `*`, an index, or a name in single quotes")?,
                };
                (step, inner.get(end + 1..))
            };
            steps.push(step);
            rest = left.unwrap_or_default();
        }
        match steps.len() {
            0 => Err("it names the whole document, not a field"),
            1..=MOST_STEPS => Ok(Self { steps }),
            _ => Err("it has more than 32 steps"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Path, Step};

    #[test]
    fn every_kind_of_step_is_known() {
        let path = Path::parse("$.a['b.c'][*][3].d-e").unwrap();
        let field = |name: &str| Step::Field(name.as_bytes().to_vec());
        assert_eq!(
            path.steps,
            [
                field("a"),
                field("b.c"),
                Step::Every,
                Step::Item(3),
                field("d-e")
            ]
        );
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in [
            "", "a", "$", "$.", "$..a", "$[", "$[x]", "$['a", "$a", "$[-1]",
        ] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
        assert!(Path::parse(&format!("${}", ".a".repeat(33))).is_err());
    }
}
