//! Turns a method text and the values of its placeholders into a prompt, in one pass (contract §6).
//! It refuses to know what the values say.

/// What a prompt is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values<'a> {
    /// For `{{GOAL}}`.
    pub goal: &'a str,
    /// For `{{STATUS}}`.
    pub status: &'a str,
    /// For `{{STEER}}`.
    pub steer: &'a str,
}

/// A method text, cut at its placeholders once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Goal,
    Status,
    Steer,
}

/// The placeholders by name.
const PLACEHOLDERS: [(&str, Part); 3] =
    [("GOAL", Part::Goal), ("STATUS", Part::Status), ("STEER", Part::Steer)];

impl Template {
    /// Cuts a method text. What stands between double braces and is no placeholder stays as it is written.
    #[must_use]
    pub fn new(method: &str) -> Template {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut rest = method;
        while let Some((before, after)) = rest.split_once("{{") {
            text.push_str(before);
            match PLACEHOLDERS
                .iter()
                .find_map(|(name, part)| Some((part, after.strip_prefix(name)?.strip_prefix("}}")?)))
            {
                Some((part, tail)) => {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(part.clone());
                    rest = tail;
                }
                None => {
                    // One brace only: the next placeholder may begin with the second.
                    text.push('{');
                    rest = rest.get(before.len().saturating_add(1)..).unwrap_or_default();
                }
            }
        }
        text.push_str(rest);
        parts.push(Part::Text(text));
        Template { parts }
    }

    /// Fills the placeholders. Inserted text is never looked at again. Where a method has no place for what operators
    /// say, it comes at the end.
    #[must_use]
    pub fn render(&self, values: Values<'_>) -> String {
        let text = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Goal => values.goal.len(),
            Part::Status => values.status.len(),
            Part::Steer => values.steer.len(),
        };
        let mut prompt = String::with_capacity(self.parts.iter().map(text).sum());
        for part in &self.parts {
            prompt.push_str(match part {
                Part::Text(text) => text,
                Part::Goal => values.goal,
                Part::Status => values.status,
                Part::Steer => values.steer,
            });
        }
        if !values.steer.is_empty() && !self.parts.contains(&Part::Steer) {
            prompt.push_str("\n\nThe operator says:\n\n");
            prompt.push_str(values.steer);
        }
        prompt
    }
}

/// What a turn is told that goes on with a conversation, which has the method and the goal already (contract §1.3).
#[must_use]
pub fn delta(status: &str, steer: &str) -> String {
    let mut text = format!(
        "The next iteration. The files are as the best candidate left them: what was discarded is not in them. Make the next \
         change, by the same method and for the same goal.\n\n{status}\n"
    );
    if !steer.trim().is_empty() {
        text.push_str("\nNew from the operator:\n");
        text.push_str(steer);
        text.push('\n');
    }
    text
}

/// What a task is told that begins the conversation of the proposals: what that is about, and then its own prompt.
#[must_use]
pub fn first(method: &str, own: &str) -> String {
    format!(
        "{}\n\nThat is what this conversation is about. For now do the following task of it, and nothing else:\n\n{own}",
        method.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(method: &str, expect: &str) {
        let values = Values { goal: "g{{STATUS}}", status: "s{{GOAL}}", steer: "" };
        assert_eq!(Template::new(method).render(values), expect);
    }

    #[test]
    fn fills_each_placeholder_once_and_leaves_the_rest() {
        check("", "");
        check("a {{GOAL}} b {{STATUS}} c {{STEER}}.", "a g{{STATUS}} b s{{GOAL}} c .");
        check("{{GOAL}}{{GOAL}}", "g{{STATUS}}g{{STATUS}}");
        check("{{ GOAL }} {{goal}} {{OTHER}} {{GOAL", "{{ GOAL }} {{goal}} {{OTHER}} {{GOAL");
        check("{{{GOAL}}}", "{g{{STATUS}}}");
        check("{{{{STATUS}}", "{{s{{GOAL}}");
        check("héé {{GOAL}}", "héé g{{STATUS}}");
    }

    proptest! {
        #[test]
        fn text_without_placeholders_stays_as_it_is(method in "[{}GOALx é]{0,40}") {
            prop_assume!(!method.contains("{{GOAL}}"));
            let values = Values { goal: "1", status: "2", steer: "3" };
            let expect = format!("{method}\n\nThe operator says:\n\n3");
            prop_assert_eq!(Template::new(&method).render(values), expect);
        }
    }
}
