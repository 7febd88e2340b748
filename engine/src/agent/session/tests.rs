use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::agent::harness::{Claude, Harness as _};

fn home() -> Home {
    Claude { root: false }.home().unwrap()
}

fn name(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

fn said(id: &str, words: &str) -> Transcript {
    let content = format!("{{\"sessionId\":\"{id}\",\"text\":\"{words}\"}}\n").into_bytes();
    Transcript { path: format!("-w/{id}.jsonl").into(), content }
}

fn left(transcripts: Vec<Transcript>) -> Left {
    Left { transcripts, fault: None }
}

struct Lab {
    dir: tempfile::TempDir,
    sessions: Sessions,
}

impl Lab {
    fn new() -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let sessions = Sessions::open(dir.path()).unwrap();
        Lab { dir, sessions }
    }

    fn begin(&self, session: &str) -> Begun {
        self.sessions.begin(&name(session), Name::Claude, &home()).unwrap()
    }

    fn end(&self, begun: &Begun, good: bool, left: &Left) -> Result<(), SessionError> {
        self.sessions.end(begun, &home(), (good, None), left)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("agent").join(name)
    }
}

#[test]
fn a_turn_resumes_what_the_one_before_it_left() {
    let lab = Lab::new();
    let first = lab.begin("solver");
    assert_eq!((first.action(), first.turn()), ("start", 1));
    let Conversation::Start(id) = first.conversation() else { panic!() };
    let transcript = said(id, "one");
    lab.end(&first, true, &left(vec![transcript.clone()])).unwrap();
    let second = lab.begin("solver");
    assert_eq!((second.action(), second.turn()), ("resume", 2));
    assert_eq!(second.conversation(), Conversation::Resume(id, &transcript.content));
    assert_eq!(lab.begin("other").action(), "start");
}

#[test]
fn a_good_turn_without_a_transcript_fails_and_the_cursor_stays() {
    let lab = Lab::new();
    let first = lab.begin("solver");
    let transcript = said(&first.id, "one");
    lab.end(&first, true, &left(vec![transcript.clone()])).unwrap();
    let ledger = std::fs::read(lab.path(LEDGER)).unwrap();
    let second = lab.begin("solver");
    let foreign = said("46d6e2d4-5930-4044-a35b-e6ae47edf159", "x");
    let damaged = Transcript { content: b"{\n{}\n".to_vec(), ..transcript.clone() };
    let empty = Transcript { content: Vec::new(), ..transcript.clone() };
    for bad in [vec![], vec![foreign], vec![damaged], vec![empty], vec![transcript.clone(), transcript]] {
        let ended = lab.end(&second, true, &left(bad));
        assert!(matches!(ended, Err(SessionError::Lost { .. })), "{ended:?}");
        assert_eq!(std::fs::read(lab.path(LEDGER)).unwrap(), ledger);
    }
    let fault = Left { fault: Some("too much".to_owned()), ..Left::default() };
    assert!(lab.end(&second, true, &fault).is_err());
    assert_eq!(lab.begin("solver").turn(), 2);
}

#[test]
fn a_turn_that_failed_is_gone_on_with_where_it_left_something() {
    let lab = Lab::new();
    let first = lab.begin("solver");
    lab.end(&first, false, &left(vec![])).unwrap();
    assert_eq!(lab.begin("solver").action(), "start");
    lab.end(&first, false, &left(vec![said(&first.id, "half")])).unwrap();
    let again = lab.begin("solver");
    assert_eq!((again.action(), again.turn()), ("resume", 1));
}

#[test]
fn a_turn_that_died_with_its_engine_is_taken_from_its_live_home() {
    let lab = Lab::new();
    let first = lab.begin("solver");
    let live = lab.sessions.live("solver");
    let at = live.furnish(&home(), None).unwrap().to_owned();
    let Transcript { path, content } = said(&first.id, "half");
    let there = at.join(".claude/projects").join(path);
    std::fs::create_dir_all(there.parent().unwrap()).unwrap();
    std::fs::write(&there, &content).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", there.with_file_name("link.jsonl")).unwrap();
    let again = lab.begin("solver");
    assert_eq!((again.action(), again.turn()), ("resume", 1));
    assert_eq!(again.conversation(), Conversation::Resume(&first.id, &content));
    assert!(!at.exists());
}

#[test]
fn what_a_turn_of_no_conversation_left_when_its_engine_died_is_nobodys() {
    let lab = Lab::new();
    let live = lab.sessions.live_alone();
    live.save(&home(), &[said(&uuid(), "of nobody's interest")]).unwrap();
    assert_eq!(live.left(&home()).transcripts.len(), 1);
    assert_eq!(lab.begin("turn").action(), "start");
}

#[test]
fn what_a_turn_was_seen_to_say_is_gone_on_with_only_where_the_turn_left_nothing_better() {
    let lab = Lab::new();
    let first = lab.begin("solver");
    let live = lab.sessions.live("solver");
    let (early, later, whole) = (said(&first.id, "a"), said(&first.id, "a, b"), said(&first.id, "a, b, c"));
    let foreign =
        Transcript { path: later.path.clone(), ..said("46d6e2d4-5930-4044-a35b-e6ae47edf159", "much more") };
    live.save(&home(), std::slice::from_ref(&early)).unwrap();
    live.save(&home(), &[foreign, later.clone()]).unwrap();
    // Its engine died.
    let again = lab.begin("solver");
    assert_eq!((again.action(), again.turn()), ("resume", 1));
    assert_eq!(again.conversation(), Conversation::Resume(&first.id, &later.content));
    // Its sandbox died.
    live.save(&home(), std::slice::from_ref(&whole)).unwrap();
    lab.end(&again, false, &left(vec![])).unwrap();
    assert_eq!(lab.begin("solver").conversation(), Conversation::Resume(&first.id, &whole.content));
    // It ended, well or not: then what it left is all there is.
    let ended = said(&first.id, "a, b, c, d");
    live.save(&home(), std::slice::from_ref(&whole)).unwrap();
    lab.end(&again, true, &left(vec![ended.clone()])).unwrap();
    // The engine died between the two.
    live.save(&home(), std::slice::from_ref(&whole)).unwrap();
    let next = lab.begin("solver");
    assert_eq!(next.conversation(), Conversation::Resume(&first.id, &ended.content));
    live.save(&home(), std::slice::from_ref(&whole)).unwrap();
    lab.end(&next, true, &left(vec![])).unwrap_err();
    assert_eq!(lab.begin("solver").conversation(), Conversation::Resume(&first.id, &ended.content));
    assert_eq!(lab.begin("solver").turn(), 2);
}

#[test]
fn what_is_seen_of_a_turn_is_saved_privately_and_once() {
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o7777;
    let lab = Lab::new();
    let (one, two) = (said(&uuid(), "one"), said(&uuid(), "two"));
    let live = lab.sessions.live("solver");
    for seen in [&one, &two, &two] {
        live.save(&home(), std::slice::from_ref(seen)).unwrap();
        let at = lab.path("live/solver/.claude/projects").join(&seen.path);
        assert_eq!((mode(&at), mode(at.parent().unwrap())), (0o600, 0o700));
        assert_eq!(live.left(&home()).transcripts, std::slice::from_ref(seen));
    }
}

#[test]
fn a_deleted_or_emptied_transcript_starts_anew_and_the_count_goes_on() {
    for spoil in [|path: &Path| std::fs::remove_file(path), |path: &Path| std::fs::write(path, "")] {
        let lab = Lab::new();
        let first = lab.begin("solver");
        lab.end(&first, true, &left(vec![said(&first.id, "one")])).unwrap();
        spoil(&lab.path("solver.jsonl")).unwrap();
        let second = lab.begin("solver");
        assert_eq!((second.action(), second.turn()), ("start", 2));
        assert_ne!(second.id, first.id);
    }
}

#[test]
fn the_ledger_holds_a_name_a_cursor_and_a_count_and_a_damaged_one_is_refused() {
    let lab = Lab::new();
    let first = lab.begin("solver");
    lab.end(&first, true, &left(vec![said(&first.id, "PRIVATE")])).unwrap();
    let text = std::fs::read_to_string(lab.path(LEDGER)).unwrap();
    let ledger: serde_json::Value = serde_json::from_str(&text).unwrap();
    let keys: Vec<&String> = ledger["sessions"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["cursor", "name", "turns"]);
    assert!(!text.contains("PRIVATE"));
    std::fs::write(lab.path(LEDGER), &text[..text.len() / 2]).unwrap();
    let refused = lab.sessions.begin(&name("solver"), Name::Claude, &home());
    assert!(matches!(refused, Err(SessionError::Ledger)));
}

#[test]
fn what_is_kept_is_private_and_what_is_restored_too() {
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o7777;
    let lab = Lab::new();
    let first = lab.begin("solver");
    lab.end(&first, true, &left(vec![said(&first.id, "one")])).unwrap();
    let second = lab.begin("solver");
    let at = lab.sessions.live("solver").furnish(&home(), second.transcript()).unwrap().to_owned();
    let restored = at.join(".claude/projects/-w").join(format!("{}.jsonl", first.id));
    for dir in [
        "agent",
        "agent/live",
        "agent/live/solver",
        "agent/live/solver/.claude/projects",
        "agent/live/solver/.claude/projects/-w",
    ] {
        assert_eq!(mode(&lab.dir.path().join(dir)), 0o700, "{dir}");
    }
    for file in [lab.path(LEDGER), lab.path("solver.jsonl"), restored] {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn conversations_of_other_harnesses_are_not_gone_on_with() {
    let lab = Lab::new();
    let first = lab.begin("solver");
    lab.end(&first, true, &left(vec![said(&first.id, "one")])).unwrap();
    let codex = crate::agent::harness::Codex.home().unwrap();
    let other = lab.sessions.begin(&name("solver"), Name::Codex, &codex).unwrap();
    assert_eq!(other.action(), "start");
}

#[test]
fn names_of_conversations_are_uuids_and_differ() {
    let (one, two) = (uuid(), uuid());
    assert_ne!(one, two);
    for id in [one, two] {
        assert!((home().conversation_of)(Path::new(&format!("-w/{id}.jsonl"))).is_some(), "{id}");
    }
}
