//! Turns the bytes of a turn's output into bounded events for the log (note N9).
//! It refuses to know what the agent says.

use crate::log::AgentEvent;
use crate::sys::keeper::Stream;

/// How much output of one turn goes to the log, in bytes; the rest is counted.
pub const LOGGED_MAX: usize = 256 * 1024;

/// Cuts output into events at line ends, or at 8 kB of one line.
#[derive(Debug, Default)]
pub struct OutputTeller {
    out: Vec<u8>,
    err: Vec<u8>,
    logged: usize,
    dropped: u64,
    /// The end of both streams, however much was logged.
    end: Vec<u8>,
}

/// How much of the end of an output is looked at for its last line, in bytes.
const END_MAX: usize = 1024;
/// The longest last line that is told, in characters.
const LINE_MAX: usize = 200;

/// A failure and the last line that a command printed, which most often says why. A line that starts with a brace is a
/// reading or a record, not a reason.
#[must_use]
pub fn with_last_line(failure: &str, shown: &[u8]) -> String {
    let text = String::from_utf8_lossy(shown);
    match text.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) if !line.starts_with('{') => {
            let cut = if line.chars().count() > LINE_MAX { "…" } else { "" };
            format!("{failure} ({}{cut})", line.chars().take(LINE_MAX).collect::<String>())
        }
        _ => failure.to_owned(),
    }
}

const EVENT_MAX: usize = 8 * 1024;

impl OutputTeller {
    /// Takes the next bytes of a stream and tells the whole lines among them.
    pub fn push(&mut self, stream: Stream, bytes: &[u8], tell: &mut dyn FnMut(AgentEvent)) {
        let last = bytes.get(bytes.len().saturating_sub(END_MAX)..).unwrap_or_default();
        self.end.extend_from_slice(last);
        self.end.drain(..self.end.len().saturating_sub(END_MAX));
        let room = LOGGED_MAX.saturating_sub(self.logged);
        let (kept, cut) = bytes.split_at(bytes.len().min(room));
        self.logged = self.logged.saturating_add(kept.len());
        self.dropped = self.dropped.saturating_add(u64::try_from(cut.len()).unwrap_or(u64::MAX));
        let pending = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        pending.extend_from_slice(kept);
        let end = pending.iter().rposition(|byte| *byte == b'\n').map(|at| at.saturating_add(1));
        let end = end.or_else(|| (pending.len() > EVENT_MAX).then(|| whole_characters(pending)));
        if let Some(end) = end {
            let rest = pending.split_off(end);
            let told = std::mem::replace(pending, rest);
            tell(raw(stream, &told));
        }
    }

    /// A failure of the turn, with the last line of its output.
    #[must_use]
    pub fn explain(&self, failure: &str) -> String {
        with_last_line(failure, &self.end)
    }

    /// Tells what is left of both streams, and how much was not told.
    pub fn finish(&mut self, tell: &mut dyn FnMut(AgentEvent)) {
        for (stream, pending) in [(Stream::Out, &mut self.out), (Stream::Err, &mut self.err)] {
            if !pending.is_empty() {
                tell(raw(stream, pending));
                pending.clear();
            }
        }
        if self.dropped > 0 {
            tell(AgentEvent::Log { text: format!("{} more bytes of output are not logged", self.dropped) });
        }
    }
}

/// The length without a character that is cut off at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

fn raw(stream: Stream, bytes: &[u8]) -> AgentEvent {
    let stream = match stream {
        Stream::Out => "stdout",
        Stream::Err => "stderr",
    };
    AgentEvent::Raw { stream: stream.to_owned(), text: String::from_utf8_lossy(bytes).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pieces: &[&[u8]]) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        let mut teller = OutputTeller::default();
        for piece in pieces {
            teller.push(Stream::Out, piece, &mut |event| events.push(event));
        }
        teller.finish(&mut |event| events.push(event));
        events
    }

    fn out(text: &str) -> AgentEvent {
        AgentEvent::Raw { stream: "stdout".into(), text: text.into() }
    }

    #[test]
    fn lines_are_told_whole_and_characters_are_not_cut() {
        assert_eq!(told(&[b"a\nb", b"c\n", b"d"]), [out("a\n"), out("bc\n"), out("d")]);
        assert_eq!(
            told(&["é".as_bytes().get(..1).unwrap(), "é\n".as_bytes().get(1..).unwrap()]),
            [out("é\n")]
        );
        assert_eq!(told(&[b"\xff\n"]), [out("\u{fffd}\n")]);
    }

    #[test]
    fn a_turn_that_floods_is_cut_and_says_so() {
        let chunk = vec![b'x'; 100_000];
        let events = told(&[&chunk, &chunk, &chunk, &chunk]);
        let told: usize = events
            .iter()
            .map(|event| if let AgentEvent::Raw { text, .. } = event { text.len() } else { 0 })
            .sum();
        assert_eq!(told, LOGGED_MAX);
        assert_eq!(
            events.last(),
            Some(&AgentEvent::Log { text: "137856 more bytes of output are not logged".into() })
        );
    }
}
