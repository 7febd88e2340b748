//! Turns the output of a turn, as it comes, into events, and the end of the turn into what it came to.
//! It refuses to know what carries the turn.

use super::super::output::OutputTeller;
use super::withhold::{Secrets, Withhold};
use super::{Budget, Decoder, Failure, Lines, Teller, Verdict};
use crate::log::AgentEvent;
use crate::sys::keeper;

/// How a process of a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code, 128+n for signal n, and how that is told.
    Exit(i32, String),
    /// The engine ended it, because the turn was done or nothing would come of it.
    Enough(i32),
    /// The engine ended it for another reason: as what follows "the agent".
    Ended(i32, String),
    /// It was never seen to end.
    Lost,
}

/// Reads both outputs of one turn.
pub struct Stream {
    decoder: Option<Box<dyn Decoder>>,
    lines: Lines,
    raw: OutputTeller,
    budget: Budget,
    secrets: Secrets,
    /// Of both outputs, what could be the beginning of a secret.
    held: [Withhold; 2],
}

impl Stream {
    /// Reads by `decoder`, or tells everything as it is. `secrets` are never told.
    #[must_use]
    pub fn new(decoder: Option<Box<dyn Decoder>>, secrets: Vec<String>) -> Stream {
        let (lines, raw, budget) = (Lines::default(), OutputTeller::default(), Budget::default());
        Stream { decoder, lines, raw, budget, secrets: Secrets::new(secrets), held: Default::default() }
    }

    /// Takes the next bytes of an output.
    pub fn push(&mut self, stream: keeper::Stream, bytes: &[u8], tell: &mut (dyn FnMut(AgentEvent) + Send)) {
        match (&mut self.decoder, stream) {
            (Some(decoder), keeper::Stream::Out) => {
                let mut teller = Teller::new(tell, &self.secrets, &mut self.budget);
                self.lines.push(bytes, &mut |line| decoder.line(line, &mut teller));
            }
            _ => {
                let [out, err] = &mut self.held;
                let held = if stream == keeper::Stream::Out { out } else { err };
                let clean = held.push(&self.secrets, bytes);
                self.raw.push(stream, &clean, tell);
            }
        }
    }

    /// Whether the turn is over as far as its harness is concerned, though its process may not be.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.decoder.as_ref().is_some_and(|decoder| decoder.is_done() || decoder.is_hopeless())
    }

    /// Tells what is left, and what the turn came to.
    pub fn finish(mut self, end: End, tell: &mut (dyn FnMut(AgentEvent) + Send)) -> Verdict {
        let secrets = std::mem::take(&mut self.secrets);
        for (stream, held) in [keeper::Stream::Out, keeper::Stream::Err].into_iter().zip(&mut self.held) {
            self.raw.push(stream, &held.finish(), tell);
        }
        self.raw.finish(tell);
        let mut teller = Teller::new(tell, &secrets, &mut self.budget);
        if let Some(decoder) = &mut self.decoder {
            self.lines.finish(&mut |line| decoder.line(line, &mut teller));
        }
        teller.finish();
        if let End::Exit(code, _) | End::Enough(code) | End::Ended(code, _) = &end {
            teller.tell(AgentEvent::Exit { code: *code });
        }
        let fit = |failure: Failure| Failure { how: teller.fit(&failure.how), ..failure };
        let verdict = judge(self.decoder.as_deref(), &self.raw, end);
        Verdict { failure: verdict.failure.map(fit), ..verdict }
    }
}

fn judge(decoder: Option<&dyn Decoder>, raw: &OutputTeller, end: End) -> Verdict {
    let plain = |how: String| Some(Failure::agent(how));
    match (decoder, end) {
        (Some(decoder), End::Exit(code, _)) => {
            let verdict = decoder.verdict(Some(code));
            let explained = |failure: Failure| match (code, decoder.is_done()) {
                // Without a result the tool's last line of complaint is all there is.
                (code, false) if code != 0 => Failure { how: raw.explain(&failure.how), ..failure },
                _ => failure,
            };
            Verdict { failure: verdict.failure.map(explained), ..verdict }
        }
        (Some(decoder), End::Enough(_) | End::Lost) => decoder.verdict(None),
        (Some(decoder), End::Ended(_, how)) => Verdict { failure: plain(how), ..decoder.verdict(None) },
        (None, End::Exit(0, _) | End::Enough(_) | End::Lost) => Verdict::default(),
        (None, End::Exit(_, how) | End::Ended(_, how)) => {
            Verdict { failure: plain(raw.explain(&how)), ..Verdict::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_is_cut_between_two_reads_is_not_told() {
        let mut stream = Stream::new(None, vec!["sk-canary".to_owned()]);
        let mut said = String::new();
        let mut tell = |event| {
            if let AgentEvent::Raw { text, .. } = event {
                said.push_str(&text);
            }
        };
        for piece in ["a sk-\n", "key=sk-can", "ary\n", "sk", "-canary and sk"] {
            stream.push(keeper::Stream::Err, piece.as_bytes(), &mut tell);
        }
        // The other output says the other half, which makes no secret of either.
        stream.push(keeper::Stream::Out, b"-canary\n", &mut tell);
        let verdict = stream.finish(End::Exit(1, "ended".to_owned()), &mut tell);
        assert!(!said.contains("sk-canary"), "{said}");
        assert!(said.contains("a sk-\nkey=[withheld]\n") && said.ends_with("[withheld] and sk"), "{said}");
        assert!(verdict.failure.is_some_and(|failure| !failure.how.contains("sk-canary")));
    }
}
