use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn scopes() -> serde_json::Value {
    serde_json::from_str(include_str!("../../../tests/cases/scopes.json")).unwrap()
}

fn open(scope: &str, param: Option<&str>) -> Target {
    Target::Open { scope: Scope::parse(scope).unwrap(), param: param.map(str::to_owned) }
}

fn fixed(scope: &str) -> Target {
    Target::Fixed(Scope::parse(scope).unwrap())
}

fn with(kind: Kind, count: u32, target: Option<Target>, run: &RunContext) -> Outputs {
    let mut declared = Declared::default();
    declared.declare(kind, Declaration { count, target }).unwrap();
    Outputs::resolve(&declared, run)
}

fn reason(outputs: &Outputs, kind: Kind, requested: Option<&str>) -> Option<Refused> {
    outputs.admit(kind, requested, 0).err().map(|refusal| refusal.reason)
}

#[test]
fn the_table_of_scopes() {
    let table = scopes();
    for row in table["admits"].as_array().unwrap() {
        let scope = Scope::parse(row["scope"].as_str().unwrap()).unwrap();
        assert_eq!(scope.admits(row["value"].as_str().unwrap()), row["admits"].as_bool().unwrap(), "{row}");
    }
    for text in table["unbounded"].as_array().unwrap() {
        assert_eq!(Scope::parse(text.as_str().unwrap()), Err(ScopeError::Unbounded), "{text}");
    }
    for text in table["bounded"].as_array().unwrap() {
        assert!(Scope::parse(text.as_str().unwrap()).is_ok(), "{text}");
    }
}

#[test]
fn the_closed_vocabulary_and_its_defaults() {
    let outputs = Outputs::resolve(&Declared::default(), &RunContext::default());
    let shown: Vec<_> = outputs.bounds().iter().map(|bound| (bound.kind.token(), bound.count)).collect();
    let expected = [
        ("draft-pr", 2),
        ("tracker-comment", 2),
        ("chat-message", 8),
        ("image-push", 100),
        ("deploy", 100),
        ("workflow-dispatch", 20),
        ("gpu-capture", 100),
    ];
    assert_eq!(shown, expected);
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.token()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.token());
        let expected = match kind {
            Kind::ChatMessage => Ok(Some(OPERATOR.to_owned())),
            Kind::GpuCapture => Ok(None),
            _ => Err(Refused::TargetUnresolved),
        };
        let found = outputs.admit(kind, None, 0).map(|found| found.target).map_err(|error| error.reason);
        assert_eq!(found, expected, "{kind}");
        let open = matches!(outputs.of(kind).unwrap().target, Some(Target::Open { .. }));
        assert!(!open, "no default is open: {kind}");
    }
    assert_eq!(Kind::parse("Draft-PR"), None);
}

#[test]
fn every_default_resolves_from_the_run_and_never_to_a_wildcard() {
    let run = RunContext {
        item: Some("PROJ-1".to_owned()),
        publish: Some("o/r".to_owned()),
        build: Some("o/b".to_owned()),
        registry: Some("quay.io/aipcc".to_owned()),
        deployment: Some("space/name".to_owned()),
        channel: Some("#ops".to_owned()),
        ..RunContext::default()
    };
    let outputs = Outputs::resolve(&Declared::default(), &run);
    for (kind, target) in Kind::ALL.into_iter().zip([
        Some("o/r"),
        Some("PROJ-1"),
        Some("#ops"),
        Some("quay.io/aipcc"),
        Some("space/name"),
        Some("o/b"),
        None,
    ]) {
        assert_eq!(outputs.admit(kind, None, 0).unwrap().target.as_deref(), target, "{kind}");
    }
    let wild = RunContext { item: Some("PROJ-*".to_owned()), ..RunContext::default() };
    let outputs = Outputs::resolve(&Declared::default(), &wild);
    assert_eq!(reason(&outputs, Kind::TrackerComment, Some("PROJ-1")), Some(Refused::TargetUnresolved));
}

#[test]
fn a_target_belongs_to_a_kind_that_is_addressed_and_to_no_other() {
    let mut declared = Declared::default();
    let none = Declaration { count: 1, target: None };
    let some = Declaration { count: 1, target: Some(fixed("a/b")) };
    for kind in Kind::ALL {
        let (good, bad) = if kind.is_addressed() { (&some, &none) } else { (&none, &some) };
        assert!(declared.declare(kind, bad.clone()).is_err(), "{kind}");
        assert!(declared.declare(kind, good.clone()).is_ok(), "{kind}");
    }
}

#[test]
fn row_100_what_does_not_parse_is_outside_of_every_scope() {
    let cases = [
        (Kind::TrackerComment, "PROJ-*", "PROJ-", Refused::NotAnAddress),
        (Kind::TrackerComment, "PROJ-*", "PROJ-1 ", Refused::NotAnAddress),
        (Kind::TrackerComment, "PROJ-*", "PROJ-1/../../x", Refused::NotAnAddress),
        (Kind::TrackerComment, "PROJ-*", "PROJ-01", Refused::NotAnAddress),
        (Kind::TrackerComment, "PROJ-*", "OTHER-1", Refused::OutsideScope),
        (Kind::TrackerComment, "owner/repo", "owner/other#1", Refused::OutsideScope),
        (Kind::TrackerComment, "owner/repo", "owner/repo#0", Refused::NotAnAddress),
        (Kind::TrackerComment, "PROJ-1", "*", Refused::NotAnAddress),
        (Kind::ImagePush, "quay.io/*", "quay.io/../x", Refused::NotAnAddress),
        (Kind::ImagePush, "quay.io/a", "quay.io/ab", Refused::OutsideScope),
        (Kind::ImagePush, "quay.io/a", "quay.io/a@sha256:00", Refused::NotAnAddress),
        (Kind::ImagePush, "quay.io/a", "user@quay.io/a", Refused::NotAnAddress),
        (Kind::DraftPr, "owner/*", "owner/..", Refused::NotAnAddress),
        (Kind::DraftPr, "owner/*", "owner/a/b", Refused::NotAnAddress),
        (Kind::Deploy, "a/*", "a/B", Refused::NotAnAddress),
        (Kind::ChatMessage, "ops*", "ops now", Refused::NotAnAddress),
    ];
    for (kind, scope, value, expected) in cases {
        let outputs = with(kind, 1, Some(open(scope, None)), &RunContext::default());
        assert_eq!(reason(&outputs, kind, Some(value)), Some(expected), "{scope} {value}");
    }
    let admitted = [
        (Kind::TrackerComment, "PROJ-*", "PROJ-12"),
        (Kind::TrackerComment, "owner/repo", "owner/repo#12"),
        (Kind::ImagePush, "quay.io/a", "quay.io/a/b-c_d:1.2"),
        (Kind::ImagePush, "127.0.0.1:5000/*", "127.0.0.1:5000/a:t"),
        (Kind::DraftPr, "owner/*", "owner/.github"),
        (Kind::ChatMessage, "#ops", "#ops"),
        (Kind::Deploy, "space/*", "space/my-app"),
    ];
    for (kind, scope, value) in admitted {
        let outputs = with(kind, 1, Some(open(scope, None)), &RunContext::default());
        assert_eq!(reason(&outputs, kind, Some(value)), None, "{scope} {value}");
    }
}

#[test]
fn a_bound_parameter_is_the_only_target() {
    let kind = Kind::TrackerComment;
    let run = |value: Option<&str>| RunContext {
        params: value.map(|value| ("issue_key".to_owned(), value.to_owned())).into_iter().collect(),
        ..RunContext::default()
    };
    let target = || Some(open("PROJ-*", Some("issue_key")));
    let outputs = with(kind, 3, target(), &run(Some("PROJ-7")));
    assert_eq!(outputs.admit(kind, None, 0).unwrap().target.as_deref(), Some("PROJ-7"));
    assert_eq!(outputs.admit(kind, Some("PROJ-7"), 0).unwrap().target.as_deref(), Some("PROJ-7"));
    assert_eq!(reason(&outputs, kind, Some("PROJ-8")), Some(Refused::ParamMismatch));
    assert_eq!(reason(&with(kind, 3, target(), &run(None)), kind, None), Some(Refused::ParamMissing));
    let elsewhere = with(kind, 3, target(), &run(Some("OTHER-7")));
    assert_eq!(reason(&elsewhere, kind, None), Some(Refused::OutsideScope));
    let unbound = with(kind, 3, Some(open("PROJ-*", None)), &run(None));
    assert_eq!(reason(&unbound, kind, None), Some(Refused::NoTarget));
}

#[test]
fn a_refusal_names_its_bound() {
    let kind = Kind::TrackerComment;
    let outputs = with(kind, 2, Some(fixed("PROJ-1")), &RunContext::default());
    assert_eq!(outputs.admit(kind, None, 1).unwrap().number, 2);
    let over = outputs.admit(kind, None, 2).unwrap_err();
    assert_eq!((over.bound.as_str(), over.reason), ("[outputs.tracker-comment].count", Refused::OverCount));
    assert_eq!(over.requested, "PROJ-1");
    let outside = outputs.admit(kind, Some("PROJ-12"), 2).unwrap_err();
    assert_eq!(outside.bound, "[outputs.tracker-comment].target");
}

#[test]
fn the_projection_is_what_n4_writes() {
    let kind = Kind::TrackerComment;
    let outputs = with(kind, 3, Some(open("PROJ-*", Some("issue_key"))), &RunContext::default());
    let json = serde_json::to_value(outputs.document()).unwrap();
    assert_eq!(json["version"], 1);
    let expected = serde_json::json!({
        "kind": "tracker-comment", "count": 3, "source": "manifest",
        "target": {"open": {"scope": "PROJ-*", "param": "issue_key"}},
    });
    assert_eq!(json["outputs"][1], expected);
    assert_eq!(json["outputs"][2]["target"], serde_json::json!({"fixed": "operator"}));
    assert_eq!(json["outputs"][6]["target"], serde_json::Value::Null);
    for (from, to) in [
        ("\"version\":1", "\"version\":2"),
        ("draft-pr", "deploy"),
        ("\"source\"", "\"sauce\""),
        ("\"PROJ-*\"", "\"*\""),
    ] {
        let text = json.to_string().replacen(from, to, 1);
        let read = serde_json::from_str::<Document>(&text).ok();
        assert!(read.and_then(|read| Outputs::read(read, BTreeMap::new()).ok()).is_none(), "{to}");
    }
}

fn call<'a>(key: Option<&'a str>, args: &'a str) -> Call<'a> {
    Call { output: Kind::TrackerComment, tool: "tracker_comment", requested: None, key, args, turn: "turn-1" }
}

fn ended(id: u64, outcome: Outcome) -> Ended {
    Ended { id, outcome, answer: format!("answer {id}") }
}

fn ledger(count: u32) -> Ledger {
    Ledger::new(with(Kind::TrackerComment, count, Some(fixed("PROJ-1")), &RunContext::default()))
}

#[test]
fn row_103_a_key_is_answered_once_and_refused_with_other_arguments() {
    let mut ledger = ledger(3);
    let Ok(Known::New(first)) = ledger.want(call(Some("k"), "a")) else { panic!("new") };
    assert_eq!(ledger.want(call(Some("k"), "a")), Ok(Known::InFlight(first.id)));
    ledger.end(&ended(first.id, Outcome::Done)).unwrap();
    assert_eq!(ledger.want(call(Some("k"), "a")), Ok(Known::Stored("answer 1".to_owned())));
    assert_eq!(ledger.want(call(Some("k"), "b")).unwrap_err().reason, Refused::KeyReused);
    assert_eq!(ledger.used(Kind::TrackerComment), 1);
    let Ok(Known::New(second)) = ledger.want(call(Some("l"), "a")) else { panic!("new") };
    ledger.end(&ended(second.id, Outcome::Unknown)).unwrap();
    assert_eq!(ledger.want(call(Some("l"), "a")).unwrap_err().reason, Refused::OutcomeUnknown);
    let Ok(Known::New(third)) = ledger.want(call(Some("m"), "a")) else { panic!("new") };
    ledger.end(&ended(third.id, Outcome::Failed)).unwrap();
    assert!(
        matches!(ledger.want(call(Some("m"), "a")), Ok(Known::New(_))),
        "nothing was written, so it may be"
    );
    assert_eq!(ledger.want(call(None, "a")).unwrap_err().reason, Refused::OverCount);
}

#[test]
fn lines_that_no_broker_wrote_are_refused() {
    let mut ledger = ledger(3);
    let Ok(Known::New(intent)) = ledger.want(call(None, "a")) else { panic!("new") };
    assert_eq!(ledger.replay(Entry::Intent(intent)), Err(LedgerError::Order(1)));
    assert_eq!(ledger.replay(Entry::Ended(ended(2, Outcome::Done))), Err(LedgerError::NotBegun(2)));
    ledger.replay(Entry::Ended(ended(1, Outcome::Done))).unwrap();
    assert_eq!(ledger.replay(Entry::Ended(ended(1, Outcome::Done))), Err(LedgerError::NotBegun(1)));
}

proptest! {
    #[test]
    fn every_projection_reads_back(
        count in any::<u32>(),
        scope in "[a-z]{1,8}(/[a-z*]{0,8})?",
        param in proptest::option::of("[a-z]{1,8}"),
        item in proptest::option::of("[A-Z]{1,4}-[1-9]{1,4}"),
    ) {
        let run = RunContext { item, params: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..RunContext::default() };
        let outputs = with(Kind::DraftPr, count, Some(open(&scope, param.as_deref())), &run);
        let text = serde_json::to_string(&outputs.document()).unwrap();
        let read = Outputs::read(serde_json::from_str(&text).unwrap(), run.params).unwrap();
        prop_assert_eq!(read, outputs);
    }

    #[test]
    fn a_glob_is_what_a_slow_one_says(pattern in "[ab*]{0,6}", value in "[ab]{0,8}") {
        fn slow(pattern: &[u8], value: &[u8]) -> bool {
            match (pattern.split_first(), value.split_first()) {
                (None, _) => value.is_empty(),
                (Some((b'*', rest)), None) => slow(rest, value),
                (Some((b'*', rest)), Some((_, shorter))) => slow(rest, value) || slow(pattern, shorter),
                (Some((a, rest)), Some((b, shorter))) => a == b && slow(rest, shorter),
                (Some(_), None) => false,
            }
        }
        prop_assume!(pattern.contains('*'));
        let pattern = format!("a{pattern}");
        let value = format!("a{value}");
        prop_assert_eq!(Scope::parse(&pattern).unwrap().admits(&value), slow(pattern.as_bytes(), value.as_bytes()));
    }

    #[test]
    fn no_history_goes_above_the_bound_and_every_prefix_replays(
        count in 0_u32..4,
        steps in proptest::collection::vec((0_u8..6, 0_u8..3), 0..40),
    ) {
        let mut live = ledger(count);
        let mut lines = Vec::new();
        for (step, key) in steps {
            let key = format!("k{key}");
            if step < 3 {
                let key = (step > 0).then_some(key.as_str());
                if let Ok(Known::New(intent)) = live.want(call(key, "a")) {
                    lines.push(Entry::Intent(intent));
                }
            } else {
                let id = live.open().next().map(|open| open.id);
                let outcome = [Outcome::Done, Outcome::Failed, Outcome::Unknown][usize::from(step) - 3];
                if let Some(ended) = id.map(|id| ended(id, outcome)) {
                    live.end(&ended).unwrap();
                    lines.push(Entry::Ended(ended));
                }
            }
            prop_assert!(live.used(Kind::TrackerComment) <= count);
        }
        for cut in 0..=lines.len() {
            let mut again = ledger(count);
            for line in &lines[..cut] {
                let text = serde_json::to_string(line).unwrap();
                again.replay(serde_json::from_str(&text).unwrap()).unwrap();
            }
            if cut == lines.len() {
                prop_assert_eq!(again.used(Kind::TrackerComment), live.used(Kind::TrackerComment));
            }
        }
    }
}
