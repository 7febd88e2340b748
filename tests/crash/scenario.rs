//! Runs that are killed, and what is compared of what they leave.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::operators::{self, Inputs};
use crate::support::{Pack, git, source_tree};
use crate::writes::{CALLS, TABLES, Writes};

/// A run that ends the same way however often it is killed.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What it is, for the page.
    about: &'static str,
    make: fn() -> Pack,
    pub(crate) args: &'static [&'static str],
    /// The code it exits with.
    pub(crate) exit: i32,
    /// Whether it makes sandboxes.
    sandboxed: bool,
    /// Whether another run ended in the same state directory before.
    pub(crate) again: bool,
}

/// Every scenario.
pub(crate) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "counter",
            about: "an agent on the host that raises, lowers, fails and raises a counter",
            make: counter,
            args: &["--iterations", "4", "--max-cost", "9"],
            exit: 0,
            sandboxed: false,
            again: false,
        },
        Scenario {
            name: "tasks",
            about: "agent tasks behind the proposal: one that looks at it, passes and then fails, and one that goes on from it",
            make: tasks,
            args: &["--iterations", "2"],
            exit: 0,
            sandboxed: false,
            again: false,
        },
        Scenario {
            name: "domain",
            about: "`apply_cmd`, `snapshot_cmd` and `restore_cmd` beside git",
            make: domain,
            args: &["--iterations", "2"],
            exit: 0,
            sandboxed: false,
            again: false,
        },
        Scenario {
            name: "sandboxed",
            about: "an agent in a sandbox, with a broker that refuses everything",
            make: sandboxed,
            args: &["--iterations", "2"],
            exit: 0,
            sandboxed: true,
            again: false,
        },
        Scenario {
            name: "writes",
            about: "an agent in a sandbox that calls the broker's tools: two writes that are staged, and what is above the bound",
            make: writes,
            args: &["--iterations", "2"],
            exit: 0,
            sandboxed: true,
            again: false,
        },
        Scenario {
            name: "again",
            about: "a run whose state directory holds an earlier one that ended",
            make: again,
            args: &["--iterations", "1"],
            exit: 0,
            sandboxed: false,
            again: true,
        },
        Scenario {
            name: "operators",
            about: "a steer, a pause, a resume and two budgets, each said once",
            make: || with_method(operators::operators(JUDGE)),
            args: &["--iterations", "9"],
            exit: 0,
            sandboxed: false,
            again: false,
        },
        Scenario {
            name: "approvals",
            about: "an ask that is granted, the baseline that follows, and an ask that nobody answers",
            make: || with_method(operators::approvals(JUDGE)),
            args: &["--iterations", "4", "--max-park", "1ms"],
            exit: 0,
            sandboxed: false,
            again: false,
        },
    ]
}

/// One turn of each kind, by the iteration that its prompt tells: a turn that is taken again does the same again.
const AGENT: &str = "echo turn >> \"$OUTSIDE\"; printf '{\"cost_usd\": 0.25}' > \"$CRUCIBLE_USAGE\"; \
    n=$(cat counter.txt); i=$(sed -n 's/^Iteration \\([0-9]*\\) of .*/\\1/p'); \
    case $i in 2) echo $((n - 1)) > counter.txt;; 3) echo junk > junk.txt; exit 3;; *) echo $((n + 1)) > counter.txt;; esac";

/// How it says on the host that it began.
const TURN: &str = "echo turn >> \"$OUTSIDE\";";

/// What each of these turns says that it cost.
const COST: f64 = 0.25;

/// Scores the counter, and counts itself outside.
const JUDGE: &str =
    "echo measured >> \"$OUTSIDE\"; printf '{\"valid\": true, \"score\": %s}\\n' \"$(cat counter.txt)\"\n";

fn with_method(pack: Pack) -> Pack {
    pack.write("method.md", "{{STATUS}}\n");
    let manifest = pack.read("crucible.toml");
    pack.write("crucible.toml", &manifest.replace("[judge]", "method_prompt = \"method.md\"\n[judge]"));
    pack
}

fn counter() -> Pack {
    with_method(Pack::new(AGENT, JUDGE, ""))
}

/// A critic that leaves half a change where it fails, and a task that adds to what the proposal made.
fn tasks() -> Pack {
    let result = "echo '{\"seen\": 1}' > PLAN_TASK_RESULT.json";
    let agent = format!(
        "echo turn >> \"$OUTSIDE\"; printf '{{\"cost_usd\": 0.25}}' > \"$CRUCIBLE_USAGE\"; prompt=$(cat); n=$(cat counter.txt); \
         case \"$prompt\" in CRITIC*) echo $n > half.txt; {result}; [ $n -lt 12 ] || exit 3;; \
         REFINE*) echo $((n + 10)) > counter.txt; {result};; *) echo $((n + 1)) > counter.txt;; esac"
    );
    let step = |name: &str, op: &str, more: &str| {
        format!("[[workflow.task]]\nname = \"{name}\"\nkind = \"engine\"\nop = \"{op}\"\n{more}\n")
    };
    let task = |name: &str, prompt: &str, more: &str| {
        format!("[[workflow.task]]\nname = \"{name}\"\nkind = \"agent\"\nprompt = \"{prompt}\"\n{more}\n")
    };
    let graph = [
        "[workflow]\nresult = \"choose\"\n".to_owned(),
        step("invent", "propose", ""),
        task("critic", "CRITIC", "depends_on = [\"invent\"]\nrequired = false"),
        task("refine", "REFINE", "depends_on = [\"invent\", \"critic\"]\njoin = \"passed\""),
        step("deploy", "apply", "depends_on = [\"refine\"]"),
        step("bench", "measure", "depends_on = [\"deploy\"]"),
        step("choose", "decide", "depends_on = [\"bench\"]\nsource = \"bench\""),
    ];
    Pack::new(&agent, JUDGE, &graph.concat())
}

fn again() -> Pack {
    let pack = counter();
    let first = pack.command(&["--iterations", "1"]).env("OUTSIDE", pack.path("outside")).output().unwrap();
    assert!(first.status.success());
    pack
}

/// The domain is a file outside of the workspace that holds what was applied.
fn domain() -> Pack {
    let world = "[world]\napply_cmd = \"cat counter.txt > \\\"$OUTSIDE.live\\\"\"\n\
        snapshot_cmd = \"echo s$(cat \\\"$OUTSIDE.live\\\")\"\n\
        restore_cmd = \"echo ${CRUCIBLE_TOKEN#s} > \\\"$OUTSIDE.live\\\"\"\n";
    with_method(Pack::new(AGENT, JUDGE, world))
}

fn sandboxed() -> Pack {
    in_sandbox(&AGENT.replace(TURN, ""), "")
}

fn writes() -> Pack {
    let agent = AGENT.replace(TURN, &format!("{CALLS};")).replace("case $i in ", "calls $i; case $i in ");
    in_sandbox(&agent, TABLES)
}

fn in_sandbox(agent: &str, tables: &str) -> Pack {
    let pack = with_method(Pack::new(agent, JUDGE, tables));
    let manifest = pack.read("crucible.toml").replace(
        "backend = \"command\"\n",
        "backend = \"openshell\"\nharness = \"command\"\nopenshell = { inherit_defaults = false }\n",
    );
    pack.write("crucible.toml", &manifest);
    pack
}

impl Scenario {
    pub(crate) fn pack(&self) -> Pack {
        (self.make)()
    }

    /// Why it cannot run here.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let namespaces = Path::new("/proc/self/ns/user").exists();
        (self.sandboxed && !namespaces).then_some("no user namespaces, so no sandbox")
    }
}

/// What a run left that must be the same.
#[derive(Debug)]
pub(crate) struct Left {
    /// The rows without their times.
    rows: Vec<Value>,
    /// The tree of the branch, and what git says of the work tree.
    tree: String,
    status: String,
    outcome: Value,
    spent: f64,
    /// What the domain holds.
    live: String,
    /// How often each iteration's turn came to its end, and its measurement.
    ended: BTreeMap<(String, u64), usize>,
    /// Turns that were begun.
    starts: usize,
    /// Turns and measurements that were begun, as they say themselves.
    outside: String,
    /// What operators said.
    inputs: Inputs,
    /// What the agent asked for, and the answers.
    brackets: Vec<Value>,
    /// What was written to the outside.
    pub(crate) writes: Writes,
}

impl Left {
    pub(crate) fn of(_scenario: &Scenario, pack: &Pack) -> Left {
        let log: Vec<Value> =
            pack.log_text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let kind = |kind: &'static str| log.iter().filter(move |line| line["kind"] == kind);
        let rows = kind("row").map(|line| {
            let mut row = line["row"].clone();
            // A turn that is taken again costs again; what all of them cost is compared.
            ["secs", "cost_usd"].iter().for_each(|name| drop(row.as_object_mut().unwrap().remove(*name)));
            row
        });
        let mut ended = BTreeMap::new();
        let mut rebasing = false;
        for line in &log {
            if line["kind"] == "phase" {
                // A baseline of another regime measures the best again.
                rebasing = line["phase"] == "baseline" && line["iter"] != 0;
            }
            if line["kind"] != "task_result" || rebasing {
                continue;
            }
            let kind = line["task_kind"].as_str().unwrap();
            // There is one task of each of the other kinds.
            let which = if kind == "agent" { line["task"].as_str().unwrap() } else { kind };
            let key = (which.to_owned(), line["iter"].as_u64().unwrap());
            *ended.entry(key).or_insert(0) += 1;
        }
        let workspace = pack.path("workspace");
        let read = |name: &str| std::fs::read_to_string(pack.path(name)).unwrap_or_default();
        Left {
            rows: rows.collect(),
            tree: git(&workspace, &["rev-parse", "HEAD^{tree}"]),
            status: git(&workspace, &["status", "--porcelain"]),
            outcome: log.last().map(|line| line["outcome"].clone()).unwrap_or_default(),
            spent: kind("budget").next_back().and_then(|line| line["spent"].as_f64()).unwrap_or_default(),
            live: read("outside.live"),
            ended,
            starts: kind("agent_start").count(),
            outside: read("outside"),
            inputs: operators::inputs(pack),
            brackets: operators::brackets(&log),
            writes: Writes::of(pack, &log),
        }
    }

    /// Whether another process left the same.
    pub(crate) fn agrees(&self, other: &Left) -> Result<(), String> {
        fn same<T: PartialEq + std::fmt::Debug>(what: &str, one: &T, other: &T) -> Result<(), String> {
            if one == other { Ok(()) } else { Err(format!("{what}: {other:?} instead of {one:?}")) }
        }
        same("iterations", &self.rows.len(), &other.rows.len())?;
        for (one, other) in self.rows.iter().zip(&other.rows) {
            same("row", one, other)?;
        }
        same("tree", &self.tree, &other.tree)?;
        same("status", &self.status, &other.status)?;
        same("outcome", &self.outcome, &other.outcome)?;
        same("domain", &self.live, &other.live)?;
        same("asks", &self.brackets, &other.brackets)?;
        operators::agree(&self.inputs, &other.inputs)?;
        let begun = |left: &Left, what: &str| left.outside.lines().filter(|line| *line == what).count();
        for what in ["turn", "measured", "steered"] {
            let (least, most) = (begun(self, what), begun(self, what) + 1);
            let got = begun(other, what);
            if got < least || got > most {
                return Err(format!("{got} times `{what}`, and {least} without a crash"));
            }
        }
        // A turn that was taken again because nobody saw its end is charged if it had said what it cost.
        let again = other.starts.saturating_sub(self.starts);
        let extra = other.spent - self.spent;
        if extra < 0.0 || extra > again as f64 * COST {
            return Err(format!("{} spent instead of {}, with {again} more turns", other.spent, self.spent));
        }
        Ok(())
    }

    /// What every turn said that it cost must be what the run spent.
    pub(crate) fn charged_in_full(&self) {
        let is_turn = |which: &str| ["propose", "critic", "refine"].contains(&which);
        let turns: usize =
            self.ended.iter().filter(|((kind, _), _)| is_turn(kind)).map(|(_, count)| count).sum();
        assert!((self.spent - turns as f64 * COST).abs() < 1e-9, "{} spent by {turns} turns", self.spent);
    }

    /// Whether no turn and no measurement came to its end twice.
    pub(crate) fn charged_once(&self) -> Result<(), String> {
        let twice = self.ended.iter().find(|((kind, _), count)| **count > 1 && kind != "apply");
        twice.map_or(Ok(()), |((kind, iter), count)| Err(format!("{count} times {kind} of iteration {iter}")))
    }
}

/// The names of all points in the engine's source.
pub(crate) fn points_in_source() -> Vec<String> {
    let mut names = Vec::new();
    let mut todo = vec![source_tree().join("engine/src")];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let found = text.split("point(\"").skip(1).chain(text.split("point_after(\"").skip(1));
                names.extend(found.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
            }
        }
    }
    names
}

/// The page of the points.
pub(crate) fn page(table: &BTreeMap<String, BTreeMap<&str, usize>>, scenarios: &[Scenario]) -> String {
    let mut text = String::from(
        "# Crash matrix\n\nGenerated by `UPDATE_GOLDEN=1 cargo test -p tests --test crash -- --count`; do not edit.\n\n\
         The engine is killed with SIGKILL at each of these points in turn, and the run is then gone on with by `crucible --resume`. \
         It must end as it does when nobody kills it: the same rows, the same tree, the same spend, and no turn or measurement \
         ended twice. Its log must pass `crucible replay`, and where there was a broker `crucible audit --verify`. Where the agent could write \
         to the outside, its writes stay within their bound, none is made twice, each refusal has its row, and each file of the outbox is whole.\n\n\
         ```sh\ncargo test -p tests --test crash            # one point in thirteen\n\
         cargo test -p tests --test crash -- --all   # every one\n```\n\n",
    );
    for scenario in scenarios {
        let _ = writeln!(text, "- **{}**: {}", scenario.name, scenario.about);
    }
    text.push_str("\nHow often each point is met:\n\n| point |");
    for scenario in scenarios {
        let _ = write!(text, " {} |", scenario.name);
    }
    text.push_str("\n| --- |");
    text.push_str(&" ---: |".repeat(scenarios.len()));
    let count = |row: Option<&BTreeMap<&str, usize>>, name: &str| {
        row.and_then(|row| row.get(name)).copied().unwrap_or(0)
    };
    for (name, row) in table {
        let _ = write!(text, "\n| {name} |");
        for scenario in scenarios {
            let _ = write!(text, " {} |", count(Some(row), scenario.name));
        }
    }
    text.push_str("\n| all |");
    for scenario in scenarios {
        let sum: usize = table.values().map(|row| count(Some(row), scenario.name)).sum();
        let _ = write!(text, " {sum} |");
    }
    text.push('\n');
    text
}
