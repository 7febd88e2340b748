//! Turns the events of a run into lines while it runs, or into one line that is rewritten on a terminal.
//! It refuses to know what happens next.

use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use super::chart::short;
use super::ending::line;
use super::escape::{plain, plain_cut};
use super::tally::Tally;
use crate::log::{AgentEvent, Phase, SessionEvent};

/// `--ui`: how a run tells what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ui {
    /// A progress line on a terminal, lines elsewhere.
    Auto,
    /// Lines, with the agent's output.
    Stream,
    /// Nothing but errors.
    Headless,
}

impl FromStr for Ui {
    type Err = String;

    fn from_str(text: &str) -> Result<Ui, String> {
        match text {
            "auto" => Ok(Ui::Auto),
            "stream" => Ok(Ui::Stream),
            "headless" => Ok(Ui::Headless),
            other => Err(format!("`{other}` is none of auto, stream, headless")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Line,
    Lines,
    Silent,
}

/// The running account of a run, written to one stream.
pub struct Progress {
    out: Box<dyn Write>,
    form: Form,
    agent_output: bool,
    /// Whether an unfinished progress line stands on the terminal.
    drawn: bool,
    /// The terminal's width in columns.
    columns: usize,
    tally: Tally,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress")
            .field("form", &self.form)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

impl Progress {
    /// An account on `out`; `columns` is its width where it is a terminal.
    #[must_use]
    pub fn new(ui: Ui, out: Box<dyn Write>, columns: Option<usize>) -> Progress {
        let form = match (ui, columns) {
            (Ui::Headless, _) => Form::Silent,
            (Ui::Auto, Some(_)) => Form::Line,
            _ => Form::Lines,
        };
        let columns = columns.unwrap_or(100).max(20);
        Progress { out, form, agent_output: ui == Ui::Stream, drawn: false, columns, tally: Tally::default() }
    }

    /// What has been seen so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether the line tells the elapsed time and wants to be drawn again each second.
    #[must_use]
    pub fn ticks(&self) -> bool {
        self.form == Form::Line
    }

    /// Whether each row is told when it settles.
    #[must_use]
    pub fn tells_rows(&self) -> bool {
        self.form == Form::Lines
    }

    /// Takes in one line of the log that another process wrote; nothing is said of it.
    pub fn recall(&mut self, event: &SessionEvent) {
        self.tally.see(event);
    }

    /// Takes in one line of the log.
    pub fn see(&mut self, event: &SessionEvent, elapsed: Duration) {
        self.tally.see(event);
        if let Some(say) = self.line_of(event, elapsed).filter(|say| !say.is_empty()) {
            self.say(&say);
        }
        self.draw(elapsed);
    }

    /// What is said of an event; most are not spoken of.
    fn line_of(&self, event: &SessionEvent, elapsed: Duration) -> Option<String> {
        match event {
            SessionEvent::Note { msg } => Some(lines(msg)),
            // On a terminal the progress line tells where it stands, and the rows come at the end.
            SessionEvent::Row { .. } if self.tells_rows() => self.tally.rows.last().map(line),
            SessionEvent::Escalation { category, reason, .. } => {
                Some(format!("the agent escalated ({}): {}", plain(category), plain(reason)))
            }
            SessionEvent::ApprovalWait { handle, mode, .. } => Some(format!(
                "the agent asks for {} ({}): `crucible approve` or `crucible deny` answers",
                plain(handle),
                mode.token()
            )),
            SessionEvent::ApprovalResolved { outcome, reason } => {
                Some(format!("the ask is {}: {}", outcome.token(), plain(reason)))
            }
            SessionEvent::Segment { regime, .. } => {
                Some(format!("scores are compared in the regime {} from here on", plain(regime)))
            }
            _ if !self.agent_output => None,
            SessionEvent::Phase { phase: Phase::Preflight | Phase::Baseline | Phase::Iteration, .. } => {
                Some(format!("-- {}", self.standing(elapsed)))
            }
            SessionEvent::Agent { event, .. } => match event {
                AgentEvent::Raw { text, .. } | AgentEvent::Text { text } | AgentEvent::Error { text } => {
                    Some(indented(text))
                }
                AgentEvent::Retry { text, .. } => Some(indented(&format!("(asking again: {text})"))),
                AgentEvent::Tool { name, text, .. } => Some(indented(&format!("{name} {text}"))),
                _ => None,
            },
            SessionEvent::TaskResult { output: Some(output), .. } => {
                output.get("output_tail").and_then(serde_json::Value::as_str).map(indented)
            }
            _ => None,
        }
    }

    /// Draws the progress line again, on a terminal.
    pub fn draw(&mut self, elapsed: Duration) {
        if self.form != Form::Line || self.tally.phase == Phase::Finished {
            return;
        }
        let text = plain_cut(&self.standing(elapsed), self.columns.saturating_sub(1));
        // A terminal that went away must not end the run.
        let _ = write!(self.out, "\r\x1b[2K{text}").and_then(|()| self.out.flush());
        self.drawn = true;
    }

    /// One line for a person, above the progress line.
    pub fn say(&mut self, text: &str) {
        if self.form == Form::Silent {
            return;
        }
        self.clear();
        let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
    }

    /// Takes the progress line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(self.out, "\r\x1b[2K");
        }
    }

    fn standing(&self, elapsed: Duration) -> String {
        let tally = &self.tally;
        let best = tally.best.map_or("none".to_owned(), short);
        let secs = elapsed.as_secs();
        let phase = match tally.phase {
            Phase::Starting | Phase::Preflight => "setting up".to_owned(),
            Phase::Baseline => "measuring the baseline".to_owned(),
            Phase::Paused => "paused".to_owned(),
            Phase::Parked => "waiting for an approval".to_owned(),
            _ => format!("iteration {} of {}", tally.iter, tally.iters_total),
        };
        format!(
            "{phase} | best {best} | {} kept | {:02}:{:02}:{:02}",
            tally.kept(),
            secs / 3600,
            secs / 60 % 60,
            secs % 60
        )
    }
}

/// Text of several lines, each of which is safe.
fn lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// Output of a command, set off from what the engine says.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  | {}", plain(line))).collect::<Vec<_>>().join("\n")
}
