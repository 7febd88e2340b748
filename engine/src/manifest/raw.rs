//! Turns text into spanned TOML and that, table by table, into a `Manifest` or all of its mistakes.
//! It refuses to know what any table means: each decodes itself.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use policy::diag::Source;
use toml::de::DeTable;

use super::At;
use super::error::{Found, Mistake, Sink};
use super::keys::{Key, ROOT, Table};
use super::section::Section;
use super::value::shorten;
use super::{Manifest, ManifestErrors};
use super::{agent, capability, judge, outputs, repo, workflow, workspace, world};

/// More mistakes than this of one sort are not told apart.
const MOST: usize = 1000;

/// Reads all of it, however much is wrong.
pub(super) fn decode(source: Source) -> Result<Manifest, ManifestErrors> {
    let (text, lost) = without_lost_lines(&source);
    let (document, mut errors) = DeTable::parse_recoverable(&text);
    errors.extend(lost);
    let syntax = Syntax::new(&source, &errors);
    let mut sink = Sink::default();
    let tables = Tables::decode(document.get_ref(), &mut sink);
    let (meaning, warnings) = sink.into_parts();
    let mut all = Sink::default();
    all.extend(syntax.errors);
    all.extend(
        meaning.into_iter().take(MOST).filter(|found| !is_echo(found, syntax.torn, &syntax.lines, &source)),
    );
    let diagnostics = all.into_errors(&source);
    match tables {
        Some(Tables { repo, workspace, agent, judge, world, workflow, outputs, secrets })
            if diagnostics.is_empty() =>
        {
            Ok(Manifest {
                repo,
                workspace,
                agent,
                judge,
                world,
                workflow,
                outputs,
                secrets,
                source,
                warnings,
            })
        }
        _ => Err(ManifestErrors::new(source, diagnostics)),
    }
}

/// A key without a value makes the parser give up all that follows. Such lines are blanked, in place so that spans stay
/// true, and their errors kept, so that the rest of the file is read too.
fn without_lost_lines(source: &Source) -> (Cow<'_, str>, Vec<toml::de::Error>) {
    const ROUNDS: usize = 32;
    let mut text = Cow::Borrowed(source.text());
    let mut lost = Vec::new();
    for _ in 0..ROUNDS {
        let errors = DeTable::parse_recoverable(&text).1;
        let Some(error) = errors.into_iter().find(|error| error.message().starts_with("key with no value"))
        else {
            break;
        };
        let start = error.span().map_or(source.text().len(), |span| line_start(source, span.start));
        let (before, line) = text.split_at_checked(start).unwrap_or((&text, ""));
        let (line, after) = line.split_at(line.find('\n').unwrap_or(line.len()));
        if line.trim().is_empty() {
            break;
        }
        text = Cow::Owned(format!("{before}{}{after}", " ".repeat(line.len())));
        lost.push(error);
    }
    (text, lost)
}

struct Syntax {
    errors: Vec<Found>,
    /// Where the lines that the parser could not read begin.
    lines: BTreeSet<usize>,
    /// Whether something written may have been lost, so that absence proves nothing.
    torn: bool,
}

impl Syntax {
    /// Keeps the first error of each line: those after it are the parser finding its feet.
    fn new(source: &Source, errors: &[toml::de::Error]) -> Self {
        let mut syntax = Self { errors: Vec::new(), lines: BTreeSet::new(), torn: false };
        for error in errors.iter().take(MOST) {
            let end = source.text().len();
            let span = source.snap(error.span().unwrap_or(end..end));
            if !syntax.lines.insert(line_start(source, span.start)) {
                continue;
            }
            let mistake = match error.message() {
                "duplicate key" => Mistake::Duplicate,
                message => unquoted(source, &span).unwrap_or_else(|| Mistake::Syntax(message.to_owned())),
            };
            // A value without quotes still shows its key.
            syntax.torn |= matches!(mistake, Mistake::Syntax(_));
            syntax.errors.push(Found::new(span, mistake));
        }
        syntax
    }
}

/// The mistake behind most syntax errors, which the parser takes for a number or a date gone wrong.
fn unquoted(source: &Source, span: &Range<usize>) -> Option<Mistake> {
    let line = source.text().get(line_start(source, span.start)..)?.lines().next()?;
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.split(" #").next().unwrap_or_default().trim());
    let bare = value.chars().next().is_none_or(|c| c.is_alphabetic() || matches!(c, '.' | '/' | '~' | '$'));
    let plain = !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let value = if value.is_empty() { "…".to_owned() } else { value.replace(['"', '\\'], "") };
    (bare && plain).then(|| Mistake::Unquoted { key: shorten(key), value: shorten(&value) })
}

/// Whether a mistake only repeats what a syntax error has said.
fn is_echo(found: &Found, torn: bool, lines: &BTreeSet<usize>, source: &Source) -> bool {
    (torn && found.is_about_absence()) || lines.contains(&line_start(source, found.span.start))
}

fn line_start(source: &Source, offset: usize) -> usize {
    source.text().get(..offset).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1)
}

struct Tables {
    repo: repo::Repo,
    workspace: workspace::Workspace,
    agent: agent::Agent,
    judge: judge::Judge,
    world: world::World,
    workflow: Option<workflow::Workflow>,
    outputs: policy::outputs::Declared,
    secrets: Vec<At<capability::Secret>>,
}

impl Tables {
    fn decode(document: &DeTable<'_>, sink: &mut Sink) -> Option<Self> {
        let top: Range<usize> = 0..0;
        let root = Section::open(&ROOT, Some(document), &top, sink);
        let mut open = |name, spec: &'static Table| {
            let (entries, at) = root.table(name).unzip();
            // A required table that is not there has been reported as such: its keys are not reported again.
            let known = entries.is_some() || root.place(name).is_none() && !is_required(name);
            known.then(|| Section::open(spec, entries, &at.unwrap_or_else(|| top.clone()), sink))
        };
        let repo_section = open("repo", &repo::TABLE);
        let workspace_section = open("workspace", &workspace::TABLE);
        let agent_section = open("agent", &agent::TABLE);
        let judge_section = open("judge", &judge::TABLE);
        let world_section = open("world", &world::TABLE);
        let workflow_section = root.place("workflow").and_then(|_| open("workflow", &workflow::TABLE));
        let outputs_section = open("outputs", &outputs::TABLE);
        let capabilities_section = open("capabilities", &capability::TABLE);
        let place = |name| root.place(name).unwrap_or(top.clone());
        let repo = repo_section.and_then(|section| repo::decode(&section, &place("repo"), sink));
        let workspace =
            workspace_section.and_then(|section| workspace::decode(&section, repo.as_ref(), sink));
        let secrets =
            capabilities_section.map(|section| capability::decode(&section, sink)).unwrap_or_default();
        let outputs = outputs_section.map(|section| outputs::decode(&section, sink)).unwrap_or_default();
        let env = agent_section.as_ref().and_then(|section| section.table("env")).map(|(entries, _)| entries);
        let agent = agent_section.and_then(|section| agent::decode(&section, &place("agent"), sink));
        capability::check(
            &secrets,
            env,
            agent.as_ref().map(|agent| &*agent.relays).unwrap_or_default(),
            sink,
        );
        let judge = judge_section.and_then(|section| judge::decode(&section, sink));
        let world = world_section.and_then(|section| world::decode(&section, sink));
        let workflow =
            workflow_section.and_then(|section| workflow::decode(&section, &place("workflow"), sink));
        Some(Self {
            repo: repo?,
            workspace: workspace?,
            agent: agent?,
            judge: judge?,
            world: world?,
            workflow,
            outputs,
            secrets,
        })
    }
}

fn is_required(name: &str) -> bool {
    ROOT.key(name).is_some_and(Key::is_required)
}
