//! Turns a mistake at a place in a text into a message a person can act on.
//! It refuses to know where the text came from and what the message will be written to.

mod nearest;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

pub use nearest::did_you_mean;

/// More diagnostics than this are counted, not drawn.
const DRAWN: usize = 100;
/// A source line longer than this, in bytes, is not drawn: its place is still named.
const DRAWN_LINE: usize = 4096;
const BOM: char = '\u{feff}';

/// A text with the name a person knows it by, such as its path. Its `Debug` shows no text, which may hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
}

/// A place in a text: both numbers start at 1, and columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1. A byte order mark at the start of the text counts for nothing.
    pub column: usize,
}

/// Whether what is wrong stops the file from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is used, and its author should know.
    Warning,
}

/// One thing to say about a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Bytes of the text that this is about.
    pub span: Range<usize>,
    /// Whether the text is refused for it.
    pub severity: Severity,
    /// What is wrong, in lower case and without a full stop.
    pub message: String,
    /// A few words drawn at the place itself.
    pub label: Option<String>,
    /// What to do about it, where there is something to say.
    pub hint: Option<String>,
    /// Whether the lines are drawn; where they may hold a secret, only their place is named.
    pub picture: bool,
    /// Other places in the same text, each with a few words.
    pub related: Vec<(Range<usize>, String)>,
}

/// Whether rendered text carries terminal colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// No escape sequence at all.
    #[default]
    Plain,
    /// ANSI colours.
    Color,
}

impl Source {
    /// Keeps `text` under `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The name that diagnostics print before line and column.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where byte `offset` stands. An offset past the end or inside a character is moved back to a boundary.
    pub fn position(&self, offset: usize) -> Position {
        let before = self.before(offset);
        let line = before.matches('\n').count() + 1;
        let last = before.rsplit('\n').next().unwrap_or_default();
        let column = last.trim_start_matches(BOM).chars().count() + 1;
        Position { line, column }
    }

    /// The nearest span within the text whose ends are on character boundaries.
    pub fn snap(&self, span: Range<usize>) -> Range<usize> {
        let start = self.before(span.start).len();
        let end = self.before(span.end).len();
        start..end.max(start)
    }

    fn before(&self, offset: usize) -> &str {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        self.text.get(..end).unwrap_or_default()
    }

    /// The span of the whole lines that `span` touches, without the last line's end.
    fn lines(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.before(span.start).rfind('\n').map_or(0, |at| at + 1);
        let rest = self.text.get(span.end..).unwrap_or_default();
        let end = rest.find('\n').map_or(self.text.len(), |at| span.end + at);
        start..end
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({:?}, {} bytes)", self.name, self.text.len())
    }
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            severity: Severity::Error,
            message: message.into(),
            label: None,
            hint: None,
            picture: true,
            related: Vec::new(),
        }
    }

    /// A warning at `span`.
    pub fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// The same with a few words at the place.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// The same without its lines, which may hold a secret.
    #[must_use]
    pub fn without_picture(mut self) -> Self {
        self.picture = false;
        self
    }

    /// The same with another place that has to do with it.
    #[must_use]
    pub fn with_related(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }
}

/// Draws all of a text's diagnostics, in the order given: what is wrong, `name:line:column`, the lines in question
/// and a `help:` line for each. Control characters of the text and of the messages are made visible.
pub fn render(source: &Source, diagnostics: &[Diagnostic], style: Style) -> String {
    let mut drawn = String::new();
    for diagnostic in diagnostics.iter().take(DRAWN) {
        drawn.push_str(&draw(source, diagnostic, style));
        drawn.push_str("\n\n");
    }
    if let Some(more) = diagnostics.len().checked_sub(DRAWN).filter(|more| *more > 0) {
        let _ = writeln!(drawn, "… and {more} more\n");
    }
    drawn.truncate(drawn.trim_end().len());
    drawn
}

/// Makes control characters and text direction marks visible, so that no text can drive a terminal.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hostile(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

fn is_hostile(character: char) -> bool {
    character.is_control() || is_direction_mark(character)
}

fn is_direction_mark(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | BOM)
}

fn draw(source: &Source, diagnostic: &Diagnostic, style: Style) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let span = source.snap(diagnostic.span.clone());
    let window = window(source, &span, &diagnostic.related).filter(|_| diagnostic.picture);
    let mut group = Group::with_title(level.primary_title(escape(&diagnostic.message)));
    group = match window {
        Some(window) => group.element(snippet(source, diagnostic, span, window)),
        None => {
            let place = source.position(span.start);
            let origin = annotate_snippets::Origin::path(escape(source.name()));
            group.element(origin.line(place.line).char_column(place.column))
        }
    };
    if let Some(hint) = &diagnostic.hint {
        group = group.element(Level::HELP.message(escape(hint)));
    }
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Color => Renderer::styled(),
    };
    let drawn = renderer.render(&[group]);
    drawn.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The lines to draw, or none where drawing them would help nobody.
fn window(source: &Source, span: &Range<usize>, related: &[(Range<usize>, String)]) -> Option<Range<usize>> {
    let mut window = source.lines(span);
    for (other, _) in related {
        let lines = source.lines(&source.snap(other.clone()));
        window = window.start.min(lines.start)..window.end.max(lines.end);
    }
    let text = source.text.get(window.clone())?;
    let drawable = text.lines().all(|line| line.len() <= DRAWN_LINE);
    drawable.then_some(window)
}

fn snippet<'a>(
    source: &'a Source,
    diagnostic: &'a Diagnostic,
    span: Range<usize>,
    window: Range<usize>,
) -> Snippet<'a, annotate_snippets::Annotation<'a>> {
    let text = source.text.get(window.clone()).unwrap_or_default();
    let bare = text.trim_start_matches(BOM);
    let base = window.start + (text.len() - bare.len());
    let within = |place: Range<usize>| place.start.saturating_sub(base)..place.end.saturating_sub(base);
    let label = diagnostic.label.as_deref().map(escape);
    let primary = AnnotationKind::Primary.span(within(span)).label(label);
    let related = diagnostic.related.iter().map(|(place, words)| {
        AnnotationKind::Context.span(within(source.snap(place.clone()))).label(escape(words))
    });
    Snippet::source(visible(bare))
        .path(escape(source.name()))
        .line_start(source.position(window.start).line)
        .annotation(primary)
        .annotations(related)
}

/// Replaces what the renderer would print raw by characters of the same length in bytes, so that spans stay true. The
/// carriage return that ends a line is not drawn.
fn visible(text: &str) -> Cow<'_, str> {
    let raw = |character: char| is_direction_mark(character) || ('\u{80}'..='\u{9f}').contains(&character);
    if !text.chars().any(raw) && !text.contains('\r') {
        return Cow::Borrowed(text);
    }
    let text = text.replace("\r\n", " \n");
    let text = text.strip_suffix('\r').map(|text| format!("{text} ")).unwrap_or(text);
    let stand_in = |character: char| match character.len_utf8() {
        _ if !raw(character) => character,
        2 => '\u{b7}',
        _ => '\u{fffd}',
    };
    Cow::Owned(text.chars().map(stand_in).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("crucible.toml", text)
    }

    #[test]
    fn positions_count_characters_from_one() {
        let cases = [
            ("ab\ncd", 0, (1, 1)),
            ("ab\ncd", 2, (1, 3)),
            ("ab\ncd", 3, (2, 1)),
            ("ab\r\ncd", 5, (2, 2)),
            ("é = ü", 6, (1, 5)),
            ("é = ü", 7, (1, 5 + 1)),
            ("é", 1, (1, 1)),
            ("\u{feff}a", 3, (1, 1)),
            ("", 9, (1, 1)),
        ];
        for (text, offset, (line, column)) in cases {
            assert_eq!(source(text).position(offset), Position { line, column }, "{text:?} at {offset}");
        }
    }

    #[test]
    fn spans_are_moved_onto_boundaries() {
        let text = source("aéz");
        assert_eq!(text.snap(2..3), 1..3);
        assert_eq!(text.snap(3..99), 3..4);
        assert_eq!(text.snap(Range { start: 4, end: 1 }), 4..4);
    }

    #[test]
    fn a_diagnostic_shows_place_line_and_help() {
        let text = source("# é\n[repo]\nurll = \"ü\" # x\n");
        let diagnostics = [
            Diagnostic::error(12..16, "unknown key `urll`").with_hint(Some("did you mean `url`?".into())),
            Diagnostic::warning(20..23, "odd").with_label("here").with_related(5..11, "in this table"),
        ];
        insta::assert_snapshot!(render(&text, &diagnostics, Style::Plain), @r#"
        error: unknown key `urll`
         --> crucible.toml:3:1
          |
        3 | urll = "ü" # x
          | ^^^^
          |
          = help: did you mean `url`?

        warning: odd
         --> crucible.toml:3:9
          |
        2 | [repo]
          | ------ in this table
        3 | urll = "ü" # x
          |         ^^ here
        "#);
    }

    #[test]
    fn nothing_raw_reaches_the_terminal() {
        let text = Source::new("a\u{1b}[2Jb", "k = \"\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{feff}\" \r\n");
        let diagnostic = Diagnostic::error(0..1, "bad \u{1b}[31m\nvalue").with_hint(Some("no \u{9b}".into()));
        let drawn = render(&text, &[diagnostic], Style::Plain);
        let raw: Vec<char> = drawn.chars().filter(|c| is_hostile(*c) && *c != '\n').collect();
        assert_eq!(raw, Vec::<char>::new(), "{drawn}");
        assert!(drawn.contains("bad \\u{1b}[31m\\nvalue"), "{drawn}");
    }

    #[test]
    fn a_huge_line_is_named_but_not_drawn() {
        let text = source(&format!("ok\nx = \"{}\"", "y".repeat(10_000)));
        let drawn = render(&text, &[Diagnostic::error(7..9, "too long")], Style::Plain);
        insta::assert_snapshot!(drawn, @r#"
        error: too long
        --> crucible.toml:2:5
        "#);
    }

    #[test]
    fn a_secret_is_named_but_not_drawn() {
        let text = source("url = \"https://me:hunter2@h/x\"\r\n");
        let diagnostic = Diagnostic::error(6..29, "holds a credential").without_picture();
        let drawn = render(&text, &[diagnostic], Style::Plain);
        assert!(drawn.contains("crucible.toml:1:7") && !drawn.contains("hunter2"), "{drawn}");
    }

    #[test]
    fn a_flood_is_counted() {
        let flood: Vec<_> = (0..DRAWN + 3).map(|_| Diagnostic::error(0..1, "bad")).collect();
        let drawn = render(&source("x"), &flood, Style::Plain);
        assert!(drawn.ends_with("… and 3 more"), "{drawn}");
        assert_eq!(drawn.matches("error: bad").count(), DRAWN);
    }

    #[test]
    fn colour_is_a_switch() {
        let diagnostics = [Diagnostic::error(0..1, "bad")];
        assert!(!render(&source("x"), &diagnostics, Style::Plain).contains('\u{1b}'));
        assert!(render(&source("x"), &diagnostics, Style::Color).contains('\u{1b}'));
    }
}
