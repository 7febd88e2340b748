//! Runs whose agent writes to the outside by the broker's tools, and what must hold of these writes wherever the engine ended.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::Pack;

/// How many comments the run may make.
const BOUND: usize = 2;

/// Manifest lines of the tool, its bound and no system to go to, so that what is written is staged.
pub(crate) const TABLES: &str = "[agent.broker]\nenabled = true\n\
    [outputs.tracker-comment]\ncount = 2\ntarget = { fixed = \"PROJ-1\" }\n";

/// Wants three comments in the first turn, and in the next one of them again and a fourth. The words that are its bodies
/// are its keys, so that a turn that is taken again wants the same. What the bound refused becomes part of the tree.
///
/// The engine logs each answer as it comes, so that it can end between two calls. Each is an event of its own, and their
/// number is the same in every run, since they take turns with the streams and come apart.
pub(crate) const CALLS: &str = "say() { if a=$(/run/crucible tool call tracker_comment --json \
    \"{\\\"body\\\": \\\"$1\\\", \\\"idempotency_key\\\": \\\"$1\\\"}\" 2>&1); then echo \"$1 written\"; else echo \"$1 refused\"; \
    case $a in *'[outputs.tracker-comment].count'*) echo \"$1\" >> bounded.txt;; esac; fi; sleep 0.05; }; \
    calls() { case $1 in 1) say one; say two >&2; say three;; 2) say one; say four >&2;; esac; }";

/// What an agent was told in the last turn of each iteration, where no write's outcome is unknown, sorted.
const TOLD: [(u64, &[&str]); 2] =
    [(1, &["one written", "three refused", "two written"]), (2, &["four refused", "one written"])];

/// One file of the outbox: its key and its body.
type Staged = (String, String);

/// The writes of a run and everything that was said of them.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Whether the agent has a tool to write by.
    wanted: bool,
    /// The keys of those that were admitted, in order, with how they ended.
    ended: Vec<(String, Vec<String>)>,
    outbox: Vec<Staged>,
    /// Refusals by their bound, of which each has a row.
    rows: BTreeMap<String, usize>,
    /// How many refusals an agent was told.
    refused: usize,
    /// What the last turn of each iteration was told.
    told: BTreeMap<u64, Vec<String>>,
    /// What the summary says.
    summary: Value,
}

impl Writes {
    /// Those of a run that ended; none where it could make none.
    pub(crate) fn of(pack: &Pack, log: &[Value]) -> Writes {
        let mut writes = Writes::default();
        if !pack.read("crucible.toml").contains(TABLES) {
            return writes;
        }
        writes.wanted = true;
        let mut numbers = Vec::new();
        for line in pack.read("state/outputs.jsonl").lines() {
            // Torn by the end of its writer.
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            if line["kind"] == "intent" {
                numbers.push(line["id"].clone());
                writes.ended.push((line["key"].as_str().unwrap().to_owned(), Vec::new()));
            } else {
                let of = numbers.iter().position(|id| *id == line["id"]).unwrap();
                writes.ended[of].1.push(line["outcome"].as_str().unwrap().to_owned());
            }
        }
        for entry in std::fs::read_dir(pack.path("state/outbox")).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with(".json") {
                let file: Value = serde_json::from_str(&pack.read(&format!("state/outbox/{name}"))).unwrap();
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                writes.outbox.push((text(&file["key"]), text(&file["arguments"]["body"])));
            }
        }
        writes.outbox.sort();
        writes.read_log(log);
        writes
    }

    fn read_log(&mut self, log: &[Value]) {
        let mut iter = 0;
        for line in log {
            match line["kind"].as_str() {
                Some("agent_start") => {
                    iter = line["iter"].as_u64().unwrap();
                    self.told.insert(iter, Vec::new());
                }
                Some("agent") => {
                    let text = line["event"]["text"].as_str().unwrap_or_default();
                    for line in text.lines().filter(|line| !line.is_empty()) {
                        self.refused += usize::from(line.ends_with(" refused"));
                        self.told.entry(iter).or_default().push(line.to_owned());
                    }
                }
                Some("output_refused") => {
                    *self.rows.entry(line["bound"].as_str().unwrap().to_owned()).or_insert(0) += 1;
                }
                Some("summary") => self.summary = line["outputs"].clone(),
                _ => {}
            }
        }
    }

    /// Whether the bound held, nothing was written twice, no refusal was lost, and the outbox is whole.
    pub(crate) fn hold(&self) -> Result<(), String> {
        if !self.wanted {
            return Ok(());
        }
        let is = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what}: {self:?}")) };
        let mut keys: Vec<&str> = self.ended.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        is(keys == ["one", "two"], "not the two writes that fit, each counted once")?;
        is(self.ended.iter().all(|(_, ends)| ends.len() == 1), "a write has not one end")?;
        let with = |outcome: &str| self.ended.iter().filter(|(_, ends)| ends[0] == outcome).count();
        let (staged, unknown) = (with("staged"), with("unknown"));
        is(staged + unknown == BOUND, "a write is neither staged nor unknown")?;
        let mut filed: Vec<Staged> = self
            .ended
            .iter()
            .filter(|(_, ends)| ends[0] == "staged")
            .map(|(key, _)| (key.clone(), key.clone()))
            .collect();
        filed.sort();
        is(filed == self.outbox, "the outbox is not what was staged")?;
        is(self.rows.values().sum::<usize>() >= self.refused, "a refusal has no row")?;
        let counted =
            serde_json::json!({"written": 0, "staged": staged, "unknown": unknown, "refused": self.rows});
        is(self.summary == counted, "the summary does not say it")?;
        for (iter, expect) in TOLD {
            let mut told = self.told.get(&iter).cloned().unwrap_or_default();
            told.sort();
            // A key whose write nobody knows the end of is refused.
            let lost = |word: &str| self.ended.iter().any(|(key, ends)| key == word && ends[0] == "unknown");
            let expect: Vec<String> = expect
                .iter()
                .map(|line| match line.strip_suffix(" written") {
                    Some(word) if lost(word) => format!("{word} refused"),
                    _ => (*line).to_owned(),
                })
                .collect();
            is(told == expect, "a turn was told something else")?;
        }
        Ok(())
    }

    /// Where nothing is killed every write has its end, and there is a row for each refusal and no other.
    pub(crate) fn undisturbed(&self) {
        self.hold().unwrap();
        assert!(self.ended.iter().all(|(_, ends)| ends[0] == "staged"), "{self:?}");
        assert_eq!(self.rows.values().sum::<usize>(), self.refused, "{self:?}");
    }
}
