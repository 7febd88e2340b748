//! Turns what a harness says of a turn into events of bounded size, and of bounded size together (note N9).
//! It refuses to know which harness speaks.

use serde_json::Value;

use super::Line;
use crate::log::AgentEvent;

/// The longest text of one event, in bytes.
pub const TEXT_MAX: usize = 16 * 1024;
/// How much text of one turn goes to the log, in bytes; the rest is counted.
pub const TURN_MAX: usize = 4 << 20;

/// Bounds the events of one turn, and keeps secrets out of them.
pub struct Teller<'a> {
    tell: &'a mut (dyn FnMut(AgentEvent) + Send),
    secrets: &'a [String],
    budget: &'a mut Budget,
}

/// What was told so far.
#[derive(Debug, Default)]
pub struct Budget {
    told: usize,
    dropped: u64,
}

/// What stands in the place of a secret.
const WITHHELD: &str = "[withheld]";

impl<'a> Teller<'a> {
    /// Tells with `tell`; none of `secrets` is told.
    pub fn new(
        tell: &'a mut (dyn FnMut(AgentEvent) + Send),
        secrets: &'a [String],
        budget: &'a mut Budget,
    ) -> Teller<'a> {
        Teller { tell, secrets, budget }
    }

    /// The JSON object of a line. What is none is told as it came, and a line that was too long as an error.
    pub(super) fn object(&mut self, line: Line<'_>) -> Option<Value> {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            Line::TooLong(length) => {
                let text = format!("a line of {length} bytes is longer than any that is read");
                self.tell(AgentEvent::Error { text });
                return None;
            }
        };
        match serde_json::from_slice(bytes) {
            Ok(value @ Value::Object(_)) => return Some(value),
            _ if bytes.trim_ascii().is_empty() => {}
            _ => {
                let text = self.fit(&String::from_utf8_lossy(bytes));
                self.tell(AgentEvent::Raw { stream: "stdout".to_owned(), text });
            }
        }
        None
    }

    /// A text as it may be told: without secrets and not longer than [`TEXT_MAX`].
    #[must_use]
    pub fn fit(&self, text: &str) -> String {
        let mut fit = self.clean(text);
        if fit.len() > TEXT_MAX {
            let more = fit.len().saturating_sub(TEXT_MAX);
            let end = (0..=TEXT_MAX).rev().find(|at| fit.is_char_boundary(*at)).unwrap_or(0);
            fit.truncate(end);
            fit.push_str(&format!("… ({more} more bytes)"));
        }
        fit
    }

    fn clean(&self, text: &str) -> String {
        let secrets = self.secrets.iter().filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, WITHHELD))
    }

    /// Tells an event whose texts were fitted, unless the turn has told enough.
    pub fn tell(&mut self, event: AgentEvent) {
        let size = size(&event);
        if self.budget.told.saturating_add(size) > TURN_MAX && !is_vital(&event) {
            self.budget.dropped = self.budget.dropped.saturating_add(1);
            return;
        }
        self.budget.told = self.budget.told.saturating_add(size);
        (self.tell)(event);
    }

    /// Says how much was not told, at the end of a turn.
    pub fn finish(&mut self) {
        match std::mem::take(&mut self.budget.dropped) {
            0 => {}
            count => (self.tell)(AgentEvent::Log { text: format!("{count} more events are not logged") }),
        }
    }
}

/// What a reader must have, however much was told before.
fn is_vital(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Result { .. } | AgentEvent::Exit { .. })
}

fn size(event: &AgentEvent) -> usize {
    match event {
        AgentEvent::Thinking { text }
        | AgentEvent::Text { text }
        | AgentEvent::Tool { text, .. }
        | AgentEvent::Retry { text, .. }
        | AgentEvent::Error { text }
        | AgentEvent::Result { text, .. }
        | AgentEvent::Log { text }
        | AgentEvent::Raw { text, .. } => text.len().saturating_add(64),
        _ => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(texts: &[&str], secrets: &[String]) -> Vec<AgentEvent> {
        let (mut events, mut budget) = (Vec::new(), Budget::default());
        let mut tell = |event| events.push(event);
        let mut teller = Teller::new(&mut tell, secrets, &mut budget);
        for text in texts {
            let text = teller.fit(text);
            teller.tell(AgentEvent::Text { text });
        }
        teller.finish();
        events
    }

    #[test]
    fn a_text_is_cut_between_characters_and_says_so() {
        let long = "é".repeat(TEXT_MAX);
        let [AgentEvent::Text { text }] = &told(&[&long], &[])[..] else { panic!() };
        assert_eq!(text, &format!("{}… ({TEXT_MAX} more bytes)", "é".repeat(TEXT_MAX / 2)));
    }

    #[test]
    fn a_turn_that_says_too_much_is_cut_and_says_so() {
        let long = "x".repeat(TEXT_MAX);
        let events = told(&vec![long.as_str(); 300], &[]);
        let [.., AgentEvent::Log { text }] = &events[..] else { panic!() };
        assert!(text.ends_with("more events are not logged"), "{text}");
        assert!(events.iter().map(size).sum::<usize>() <= TURN_MAX + 128);
    }

    #[test]
    fn a_secret_is_never_told() {
        let events = told(&["key=sk-canary, sk-canary"], &["sk-canary".to_owned(), String::new()]);
        assert_eq!(events, [AgentEvent::Text { text: "key=[withheld], [withheld]".into() }]);
    }
}
