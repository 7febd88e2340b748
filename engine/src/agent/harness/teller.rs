//! Turns what a harness says of a turn into events of bounded size, and of bounded size together (note N9).
//! It refuses to know which harness speaks.

use serde_json::Value;

use super::Line;
use super::withhold::Secrets;
use crate::log::AgentEvent;

/// The longest text of one event, in bytes.
pub const TEXT_MAX: usize = 16 * 1024;
/// How much text of one turn goes to the log, in bytes; the rest is counted.
pub const TURN_MAX: usize = 4 << 20;

/// Bounds the events of one turn, and keeps secrets out of them.
pub struct Teller<'a> {
    tell: &'a mut (dyn FnMut(AgentEvent) + Send),
    secrets: &'a Secrets,
    budget: &'a mut Budget,
}

/// What was told so far.
#[derive(Debug, Default)]
pub struct Budget {
    told: usize,
    dropped: u64,
    /// Texts of one kind whose end could be the beginning of a secret, until the next one tells: as many as have a part of
    /// it, so never more than it has bytes.
    waiting: Vec<AgentEvent>,
}

impl<'a> Teller<'a> {
    /// Tells with `tell`; none of `secrets` is told.
    pub fn new(
        tell: &'a mut (dyn FnMut(AgentEvent) + Send),
        secrets: &'a Secrets,
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
        self.secrets.clean(text)
    }

    /// Tells an event whose texts were fitted, unless the turn has told enough. A text whose end could be the beginning of a
    /// secret waits for the next one of its kind.
    pub fn tell(&mut self, event: AgentEvent) {
        match said(&event) {
            Some(text) if !text.is_empty() => self.wait(event),
            // The use of tokens may be told between two pieces of a message.
            _ if matches!(event, AgentEvent::Tokens { .. }) => self.emit(event),
            _ => {
                self.release();
                self.emit(event);
            }
        }
    }

    /// Joins a text with those that wait: where a secret stands across them they are told as one text without it, and what
    /// cannot be a part of one any more is told as it came.
    fn wait(&mut self, event: AgentEvent) {
        let kind = std::mem::discriminant(&event);
        if self.budget.waiting.first().is_some_and(|first| std::mem::discriminant(first) != kind) {
            self.release();
        }
        let mut waiting = std::mem::take(&mut self.budget.waiting);
        waiting.push(event);
        let joined: String = waiting.iter().filter_map(said).collect();
        if self.secrets.stand_in(&joined) {
            let text = self.fit(&joined);
            let one = waiting.pop().map(|last| with(&last, text));
            waiting = one.into_iter().collect();
        }
        let texts: String = waiting.iter().filter_map(said).collect();
        let begun = self.secrets.begun_in(texts.as_bytes());
        let mut ahead = texts.len().saturating_sub(begun);
        for event in waiting {
            let length = said(&event).map_or(0, str::len);
            if length <= ahead {
                ahead = ahead.saturating_sub(length);
                self.emit(event);
            } else {
                ahead = 0;
                self.budget.waiting.push(event);
            }
        }
    }

    /// Tells what waits: nothing follows it that could make a secret of it.
    fn release(&mut self) {
        for event in std::mem::take(&mut self.budget.waiting) {
            self.emit(event);
        }
    }

    fn emit(&mut self, event: AgentEvent) {
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
        self.release();
        match std::mem::take(&mut self.budget.dropped) {
            0 => {}
            count => (self.tell)(AgentEvent::Log { text: format!("{count} more events are not logged") }),
        }
    }
}

/// The text of what may come in several pieces.
fn said(event: &AgentEvent) -> Option<&str> {
    match event {
        AgentEvent::Text { text } | AgentEvent::Thinking { text } => Some(text),
        _ => None,
    }
}

/// The same with another text.
fn with(event: &AgentEvent, text: String) -> AgentEvent {
    match event {
        AgentEvent::Thinking { .. } => AgentEvent::Thinking { text },
        _ => AgentEvent::Text { text },
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
        let secrets = &Secrets::new(secrets.to_vec());
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

    fn texts(events: &[AgentEvent]) -> Vec<&str> {
        events.iter().filter_map(said).collect()
    }

    #[test]
    fn a_secret_is_not_told_in_pieces_either() {
        let secrets = ["sk-canary".to_owned()];
        assert_eq!(texts(&told(&["key=sk-", "can", "ary, good"], &secrets)), ["key=[withheld], good"]);
        assert_eq!(texts(&told(&["tests", "k", "-", "!"], &secrets)), ["tests", "k", "-", "!"]);
        assert_eq!(texts(&told(&["all is sk-can"], &secrets)), ["all is sk-can"], "it is no secret so far");
        let letters: Vec<String> = "xsk-canaryx".chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(texts(&told(&letters, &secrets)), ["x", "[withheld]", "x"]);
    }

    #[test]
    fn what_waits_is_told_before_anything_of_another_kind() {
        let (mut events, mut budget) = (Vec::new(), Budget::default());
        let secrets = Secrets::new(vec!["sk-canary".to_owned()]);
        let mut tell = |event| events.push(event);
        let text = |text: &str| AgentEvent::Text { text: text.to_owned() };
        let tokens = AgentEvent::Tokens { cost_usd: None, input_tokens: Some(1), output_tokens: None };
        for event in [
            text("s"),
            tokens.clone(),
            text("k-canary"),
            text("k sk"),
            AgentEvent::Thinking { text: "-canary".to_owned() },
        ] {
            // Each line of a turn has a teller of its own.
            Teller::new(&mut tell, &secrets, &mut budget).tell(event);
        }
        Teller::new(&mut tell, &secrets, &mut budget).finish();
        let thought = AgentEvent::Thinking { text: "-canary".to_owned() };
        assert_eq!(events, [tokens, text("[withheld]"), text("k sk"), thought]);
    }
}
