//! Turns what an agent task is told, and what the tasks before it came to, into a prompt, and the file that it leaves into its
//! result (contract §1.3, note N10). It refuses to know what becomes of the candidate.

use std::fmt::Write;

use policy::json::parse_strict;
use serde_json::Value;

use crate::log::TaskStatus;
use crate::sys::fs::{FsError, RelPath, Root};

/// The file at the root of the workspace that a task writes its result to.
pub const RESULT: &str = "PLAN_TASK_RESULT.json";

/// The largest result, in bytes.
const RESULT_MAX: u64 = 64 * 1024;
/// How much of results goes into one prompt, in bytes; those that have no room are named without it.
const UPSTREAM_MAX: usize = 256 * 1024;
/// The longest note that is told of a task, in characters.
const NOTE_MAX: usize = 400;

/// What a task came to that an agent task waited for.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// Its name.
    pub task: String,
    /// How it settled.
    pub status: TaskStatus,
    /// Why, for a person; empty where there is nothing to say.
    pub note: String,
    /// Its output, where it has one.
    pub output: Option<Value>,
}

/// What an agent task is told: its own prompt, what the tasks that it waited for came to, and where its result belongs.
#[must_use]
pub fn prompt(own: &str, upstream: &[Upstream], emits: &[String]) -> String {
    let mut text = own.trim_end().to_owned();
    if !upstream.is_empty() {
        text.push_str("\n\nWhat the tasks before this one came to:\n");
    }
    let mut room = UPSTREAM_MAX;
    for Upstream { task, status, note, output } in upstream {
        let _ = write!(text, "\n- `{task}`: {}", status.token());
        let note: String =
            note.chars().map(|c| if c.is_control() { ' ' } else { c }).take(NOTE_MAX).collect();
        if !note.is_empty() {
            let _ = write!(text, " ({note})");
        }
        let Some(output) = output.as_ref().map(Value::to_string) else { continue };
        match room.checked_sub(output.len()) {
            Some(left) => {
                room = left;
                let _ = write!(text, "\n  {output}");
            }
            None => {
                let _ = write!(text, "\n  ({} bytes of JSON, for which there is no room here)", output.len());
            }
        }
    }
    let _ = write!(
        text,
        "\n\nWhen you are done, write one JSON object, the result of this task, to the file {RESULT} in the directory that you \
         started in. Without it the task counts as failed."
    );
    if !emits.is_empty() {
        let fields: Vec<String> = emits.iter().map(|field| format!("`{field}`")).collect();
        let _ = write!(text, " It must have the fields {}.", fields.join(", "));
    }
    text.push('\n');
    text
}

/// Reads and removes the result of a task, through no link. None where there is none; the text is why one that was there
/// cannot be taken.
///
/// # Errors
/// When it cannot be removed: the next task would seem to have written it.
pub fn take(workspace: &Root) -> Result<Option<Result<Value, String>>, FsError> {
    // INVARIANT: the name is a constant of this file, and a relative path.
    let Ok(path) = RelPath::parse(RESULT) else { return Ok(None) };
    let read = workspace.read(&path, RESULT_MAX);
    if !matches!(read, Ok(None)) {
        workspace.remove_any(&path)?;
    }
    Ok(match read {
        Ok(read) => read.map(|bytes| parse(&bytes)),
        Err(error) => Some(Err(crate::sys::chain(&error))),
    })
}

fn parse(bytes: &[u8]) -> Result<Value, String> {
    match parse_strict(bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("it is no JSON object".to_owned()),
        Err(error) => Err(format!("it is no JSON object: {error}")),
    }
}

/// What a task that ended well left, or why it failed all the same.
///
/// # Errors
/// As what follows the name of the task.
pub fn checked(taken: Option<Result<Value, String>>, emits: &[String]) -> Result<Value, String> {
    let result = match taken {
        Some(Ok(result)) => result,
        Some(Err(why)) => return Err(format!("its result cannot be read: {RESULT}: {why}")),
        None => return Err(format!("it left no result: there is no {RESULT}")),
    };
    let missing: Vec<String> =
        emits.iter().filter(|field| result.get(field).is_none()).map(|field| format!("`{field}`")).collect();
    match missing.is_empty() {
        true => Ok(result),
        false => Err(format!("its result lacks {}, which its `emits` promises", missing.join(", "))),
    }
}

/// How a task says that it settled, and why: `"status"` of its result is `fail` or `skipped`, or it passed.
#[must_use]
pub fn standing(result: &Value) -> (TaskStatus, String) {
    let text = |key: &str| result.get(key).and_then(Value::as_str);
    let said = text("reason").or(text("note")).unwrap_or_default();
    let said: String = said.chars().take(NOTE_MAX).collect();
    match text("status") {
        Some("fail") if said.is_empty() => (TaskStatus::Fail, "it says that it failed".to_owned()),
        Some("fail") => (TaskStatus::Fail, format!("it says that it failed: {said}")),
        Some("skipped") => (TaskStatus::Skipped, said),
        _ => (TaskStatus::Pass, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_taken_once_through_no_link_and_only_as_one_object() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(take(&root).unwrap(), None);
        let deep = |by: usize| format!("{{\"a\":{}1{}}}", "[".repeat(by), "]".repeat(by));
        for (text, expect) in [
            ("{\"a\":1}", Ok(json!({ "a": 1 }))),
            ("", Err("no JSON object")),
            ("[1]", Err("no JSON object")),
            ("{\"a\":1,\"a\":2}", Err("a")),
            ("{} {}", Err("no JSON object")),
            (&deep(63), Ok(serde_json::from_str(&deep(63)).unwrap())),
            (&deep(64), Err("nested more than 64 deep")),
            (&"x".repeat(70_000), Err("65536")),
        ] {
            std::fs::write(dir.path().join(RESULT), text).unwrap();
            let taken = take(&root).unwrap().unwrap();
            match expect {
                Ok(value) => assert_eq!(taken, Ok(value)),
                Err(why) => assert!(taken.as_ref().is_err_and(|error| error.contains(why)), "{taken:?}"),
            }
            assert_eq!(take(&root).unwrap(), None, "it is taken once");
        }
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(outside.path(), "{}").unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join(RESULT)).unwrap();
        assert!(take(&root).unwrap().unwrap().is_err());
        assert!(outside.path().exists() && dir.path().join(RESULT).symlink_metadata().is_err());
    }

    #[test]
    fn a_promise_that_is_not_kept_fails_and_names_the_fields() {
        let emits = ["score".to_owned(), "pass".to_owned(), "why".to_owned()];
        let there = || Some(Ok(json!({ "pass": null })));
        assert_eq!(checked(there(), &[]), Ok(json!({ "pass": null })));
        let lacks = "its result lacks `score`, `why`, which its `emits` promises";
        assert_eq!(checked(there(), &emits), Err(lacks.to_owned()));
        assert!(checked(None, &[]).unwrap_err().contains("no PLAN_TASK_RESULT.json"));
        assert!(checked(Some(Err("x".into())), &[]).unwrap_err().ends_with("PLAN_TASK_RESULT.json: x"));
    }

    #[test]
    fn a_task_may_say_how_it_settled() {
        for (result, expect) in [
            (json!({}), (TaskStatus::Pass, "")),
            (json!({ "status": "fine", "reason": "x" }), (TaskStatus::Pass, "")),
            (json!({ "status": "fail" }), (TaskStatus::Fail, "it says that it failed")),
            (
                json!({ "status": "fail", "reason": "slow" }),
                (TaskStatus::Fail, "it says that it failed: slow"),
            ),
            (json!({ "status": "skipped", "note": "no code" }), (TaskStatus::Skipped, "no code")),
        ] {
            assert_eq!(standing(&result), (expect.0, expect.1.to_owned()), "{result}");
        }
    }

    #[test]
    fn a_prompt_says_what_came_before_and_where_the_result_belongs() {
        let upstream = |task: &str, status, output| Upstream {
            task: task.to_owned(),
            status,
            note: if status == TaskStatus::Pass { "" } else { "not\nnow" }.to_owned(),
            output,
        };
        let big = json!({ "text": "x".repeat(UPSTREAM_MAX) });
        let all = [
            upstream("invent", TaskStatus::Pass, Some(json!({ "changed": true }))),
            upstream("critic", TaskStatus::Fail, None),
            upstream("long", TaskStatus::Pass, Some(big)),
        ];
        insta::assert_snapshot!(prompt("Refine it.\n", &all, &["score".into(), "why".into()]), @r#"
        Refine it.

        What the tasks before this one came to:

        - `invent`: pass
          {"changed":true}
        - `critic`: fail (not now)
        - `long`: pass
          (262155 bytes of JSON, for which there is no room here)

        When you are done, write one JSON object, the result of this task, to the file PLAN_TASK_RESULT.json in the directory that you started in. Without it the task counts as failed. It must have the fields `score`, `why`.
        "#);
    }
}
