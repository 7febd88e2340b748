//! What is disclosed, what widens, and the schema held against documents.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::egress::{Ask, BinaryPath, BrokerUrl, Caller, Carry, Process, Way};
use crate::endpoint::Endpoint;
use crate::host::Target;
use crate::outputs::{Declaration, Kind, RunContext, Scope};

fn declared(endpoints: &[&str], binaries: &[&str]) -> Declared {
    Declared {
        endpoints: endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect(),
        binaries: binaries.iter().map(|text| BinaryPath::parse(text).unwrap()).collect(),
        inherit_defaults: false,
    }
}

fn outputs() -> Outputs {
    Outputs::resolve(&outputs::Declared::default(), &RunContext::default())
}

/// An exposure of nothing but a list.
fn listed(declared: &Declared) -> Exposure {
    let egress = Egress::resolve(declared, &[]);
    Exposure::new(&outputs(), &Reach { egress: Some((&egress, declared)), ..Reach::default() })
}

fn endpoints(endpoints: &[&str]) -> Exposure {
    listed(&declared(endpoints, &["/usr/bin/curl"]))
}

/// Everything that can be disclosed.
fn whole() -> Exposure {
    let lists = Declared {
        inherit_defaults: true,
        ..declared(
            &["a.example:80:read-only", "[::1]:81:full:tcp", "github.com:443:full"],
            &["/usr/bin/curl", "/opt/x"],
        )
    };
    let broker = BrokerUrl::parse("http://broker.internal:8080").unwrap().plumbing();
    let egress = Egress::resolve(&lists, &[broker]);
    let credential = |name: &str, context| Credential {
        name: name.to_owned(),
        context,
        system: "jira".to_owned(),
        scope: "comment".to_owned(),
    };
    let reach = Reach {
        egress: Some((&egress, &lists)),
        host_paths: vec!["/opt/b".to_owned(), "/opt/a".to_owned()],
        inference: Some(Binding {
            harness: "claude".to_owned(),
            model: "m-1".to_owned(),
            protocol: "messages".to_owned(),
            endpoint: "models.example:443".to_owned(),
            variables: vec!["ANTHROPIC_API_KEY".to_owned()],
            key_env: Some("MY_KEY".to_owned()),
        }),
        credentials: vec![credential("T", Context::Broker), credential("A", Context::Agent)],
        names: ["B", "A"].map(str::to_owned).to_vec(),
        relays: vec![("/tmp/y".to_owned(), vec!["env:B".to_owned()]), ("/tmp/x".to_owned(), Vec::new())],
        external_commands: true,
    };
    let mut bounds = outputs::Declared::default();
    let scope = Scope::parse("PROJ-*").unwrap();
    let target = Some(outputs::Target::Open { scope, param: Some("key".to_owned()) });
    bounds.declare(Kind::TrackerComment, Declaration { count: 3, target }).unwrap();
    let run = RunContext {
        params: BTreeMap::from([("key".to_owned(), "PROJ-1".to_owned())]),
        ..RunContext::default()
    };
    Exposure::new(&Outputs::resolve(&bounds, &run), &reach)
}

#[test]
fn a_document_has_the_contracts_shape_in_a_stable_order() {
    let document = serde_json::to_value(whole()).unwrap();
    assert_eq!((&document["version"], &document["enforced"]), (&json!(1), &json!(true)));
    let kinds: Vec<&str> =
        document["outputs"].as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, Kind::TOKENS);
    assert_eq!(
        document["outputs"][1],
        json!({"kind": "tracker-comment", "count": 3, "source": "manifest",
               "target": {"open": {"scope": "PROJ-*", "param": "key"}}})
    );
    assert_eq!(
        document["outputs"][0],
        json!({"kind": "draft-pr", "count": 2, "source": "engine-default", "target": null})
    );
    let rows = document["capabilities"].as_array().unwrap();
    let own = rows.iter().filter(|row| row["source"] != "builtin").cloned().collect::<Vec<_>>();
    assert_eq!(
        own,
        [
            json!({"kind": "egress", "host": "a.example", "port": 80, "access": "read-only", "protocol": "rest",
                   "enforcement": "enforce", "source": "manifest"}),
            json!({"kind": "egress", "host": "::1", "port": 81, "access": "full", "protocol": "tcp",
                   "enforcement": "enforce", "source": "manifest"}),
            json!({"kind": "egress", "host": "broker.internal", "port": 8080, "access": "full", "protocol": null,
                   "enforcement": "enforce", "source": "engine"}),
            json!({"kind": "binary", "path": "/opt/x", "source": "manifest"}),
            json!({"kind": "host-path", "path": "/opt/a"}),
            json!({"kind": "host-path", "path": "/opt/b"}),
            json!({"kind": "inference", "harness": "claude", "model": "m-1", "protocol": "messages",
                   "endpoint": "models.example:443", "variables": ["ANTHROPIC_API_KEY"], "key_env": "MY_KEY"}),
            json!({"kind": "credential", "name": "A", "context": "agent", "system": "jira", "scope": "comment"}),
            json!({"kind": "credential", "name": "B", "context": "agent", "system": "undeclared", "scope": "undeclared"}),
            json!({"kind": "credential", "name": "T", "context": "broker", "system": "jira", "scope": "comment"}),
            json!({"kind": "relay", "path": "/tmp/x", "sources": []}),
            json!({"kind": "relay", "path": "/tmp/y", "sources": ["env:B"]}),
            json!({"kind": "external-commands", "present": true}),
        ]
    );
    let github = rows.iter().find(|row| row["host"] == "github.com").unwrap();
    assert_eq!((&github["source"], &github["named"]), (&json!("builtin"), &json!(true)));
    assert_eq!(whole().undeclared().collect::<Vec<_>>(), ["B"]);
}

#[test]
fn a_document_reads_back_and_nothing_else_does() {
    let exposure = whole();
    let text = serde_json::to_string_pretty(&exposure).unwrap();
    assert_eq!(Exposure::read(&text).unwrap(), exposure);
    assert_eq!(
        exposure.egress().unwrap().entries().len(),
        exposure.capabilities.iter().filter(|row| matches!(row, Capability::Egress(_))).count()
    );
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut value = serde_json::to_value(&exposure).unwrap();
        change(&mut value);
        Exposure::read(&value.to_string()).unwrap_err().to_string()
    };
    assert!(wrong(&|value| value["version"] = json!(2)).contains("version is 2"));
    assert!(wrong(&|value| value["capabilities"][0]["host"] = json!("a..b")).contains("a..b:443:full"));
    wrong(&|value| value["capabilities"][0]["source"] = json!("friend"));
    wrong(&|value| value["capabilities"][0]["kind"] = json!("wormhole"));
    wrong(&|value| value["capabilities"][0]["hots"] = json!(1));
    wrong(&|value| drop(value["outputs"].as_array_mut().unwrap().pop()));
    wrong(&|value| value["outputs"].as_array_mut().unwrap().swap(0, 1));
    wrong(&|value| value["more"] = json!(1));
    wrong(&|value| value["outputs"][1]["target"] = json!({"fixed": "*"}));
    assert!(Exposure::read("[]").is_err());
}

/// Everything that differs between two lists, a line each.
fn changes(old: &Exposure, new: &Exposure) -> Vec<String> {
    let diff = new.since(old).unwrap();
    diff.changes.iter().map(|change| format!("{:?} {}", change.effect, change.subject)).collect()
}

#[test]
fn an_entry_widens_by_what_it_admits() {
    let cases: [(&[&str], &[&str], bool); 24] = [
        (&[], &["a.example:443:full"], true),
        (&["a.example:443:full"], &[], false),
        (&["a.example:443:full"], &["b.example:443:full"], true),
        (&["a.example:443:full"], &["a.example:80:full"], true),
        (&["a.b.example:443:full"], &["*.b.example:443:full"], true),
        (&["*.b.example:443:full"], &["**.b.example:443:full"], true),
        (&["**.b.example:443:full"], &["*.b.example:443:full"], false),
        (&["**.b.example:443:full"], &["**.c.b.example:443:full"], false),
        (&["*.b.example:443:full"], &["x-*.b.example:443:full"], false),
        (&["x-*.b.example:443:full"], &["*.b.example:443:full"], true),
        // An exact host may lead to private addresses, a wildcard may not.
        (&["*.b.example:443:full"], &["a.b.example:443:full"], true),
        // Access, protocol and enforcement.
        (&["a.example:80:full"], &["a.example:80:read-only"], false),
        (&["a.example:80:read-only"], &["a.example:80:read-write"], true),
        (&["a.example:80:read-write"], &["a.example:80:read-only"], false),
        (&["a.example:80:read-only"], &["a.example:80:read-only:rest:audit"], true),
        (&["a.example:443:full"], &["a.example:443:full:tcp"], true),
        (&["a.example:443:full:tcp"], &["a.example:443:full"], false),
        (&["a.example:443:full:rest"], &["a.example:443:full"], true),
        // Nothing comes through a websocket entry in this build.
        (&[], &["a.example:443:full:websocket"], false),
        // The most specific entry decides alone: without it the wider one does.
        (&["*.b.example:80:full", "a.b.example:80:read-only"], &["*.b.example:80:full"], true),
        (&["*.b.example:80:full"], &["*.b.example:80:full", "x-*.b.example:80:read-only"], false),
        (&["**.b.example:80:full", "*.c.b.example:80:read-only"], &["**.b.example:80:full"], true),
        // Among equals the first that grants decides.
        (&["a.example:443:full", "a.example:443:full:tcp"], &["a.example:443:full:tcp"], true),
        (&["a.example:443:full:tcp", "a.example:443:full"], &["a.example:443:full:tcp"], false),
    ];
    for (old, new, widens) in cases {
        let (old, new) = (endpoints(old), endpoints(new));
        let diff = new.since(&old).unwrap();
        assert_eq!(diff.widens(), widens, "{:?}", changes(&old, &new));
        assert!(!diff.changes.is_empty());
    }
}

#[test]
fn a_program_widens_where_it_is_admitted() {
    let list = |endpoints: &[&str], binaries: &[&str]| listed(&declared(endpoints, binaries));
    let (curl, both) = (&["/usr/bin/curl"], &["/usr/bin/curl", "/usr/bin/git"]);
    let one = &["a.example:443:full"];
    assert_eq!(changes(&list(one, curl), &list(one, both)), ["Widens binary /usr/bin/git"]);
    assert_eq!(changes(&list(one, both), &list(one, curl)), ["Narrows binary /usr/bin/git"]);
    // Without an entry there is nothing that it could reach, and without a program no entry admits anything.
    assert_eq!(changes(&list(&[], &[]), &list(&[], curl)), Vec::<String>::new());
    assert_eq!(changes(&list(&[], &[]), &list(one, &[])), ["Keeps egress a.example:443:full"]);
    assert_eq!(
        changes(&list(one, curl), &list(&["a.example:443:full", "b.example:443:full"], &["/usr/bin/git"])),
        ["Widens egress b.example:443:full", "Widens binary /usr/bin/git", "Narrows binary /usr/bin/curl"]
    );
}

#[test]
fn a_bound_widens_by_its_count_and_its_target() {
    let fixed = |text: &str| Some(outputs::Target::Fixed(Scope::parse(text).unwrap()));
    let open = |text: &str, param: Option<&str>| {
        Some(outputs::Target::Open { scope: Scope::parse(text).unwrap(), param: param.map(str::to_owned) })
    };
    let widens = |old: (u32, &Option<outputs::Target>), new: (u32, &Option<outputs::Target>)| {
        let of = |(count, target): (u32, &Option<outputs::Target>)| {
            let mut exposure = endpoints(&[]);
            let bound = exposure.outputs.iter_mut().find(|bound| bound.kind == Kind::TrackerComment).unwrap();
            (bound.count, bound.target) = (count, target.clone());
            exposure
        };
        let diff = of(new).since(&of(old)).unwrap();
        assert_eq!(diff.changes.is_empty(), old == new);
        diff.widens()
    };
    let one = fixed("PROJ-1");
    assert!(widens((2, &one), (3, &one)) && !widens((3, &one), (2, &one)) && !widens((3, &one), (3, &one)));
    assert!(!widens((2, &None), (3, &None)), "without a target every write is refused");
    assert!(
        widens((2, &None), (2, &one)) && !widens((2, &None), (0, &one)) && !widens((2, &one), (2, &None))
    );
    let cases = [
        (fixed("owner"), fixed("owner/repo"), false),
        (fixed("owner/repo"), fixed("owner"), true),
        (fixed("PROJ-1"), fixed("PROJ-12"), true),
        (fixed("PROJ-1"), open("PROJ-*", None), true),
        (open("PROJ-*", None), fixed("PROJ-1"), false),
        (open("PROJ-*", None), open("PROJ-1*", None), false),
        (open("PROJ-1*", None), open("PROJ-*", None), true),
        (open("a*c", None), open("ab*bc", None), false),
        (open("a*c", None), open("ab", None), true),
        // A literal admits what extends it, which the glob does not.
        (open("a*c", None), fixed("abc"), true),
        (open("PROJ-*", Some("key")), open("PROJ-*", None), true),
        (open("PROJ-*", None), open("PROJ-*", Some("key")), false),
        (open("PROJ-*", Some("key")), open("PROJ-1*", Some("key")), false),
        (open("PROJ-*", Some("key")), open("PROJ-*", Some("other")), true),
        (open("PROJ-*", Some("key")), fixed("PROJ-1"), true),
    ];
    for (old, new, expected) in cases {
        assert_eq!(widens((1, &old), (1, &new)), expected, "{old:?} {new:?}");
    }
}

#[test]
fn every_other_row_widens_when_it_is_new() {
    let empty = listed(&declared(&[], &[]));
    let with = |rows: &[Value]| {
        let mut exposure = empty.clone();
        exposure.capabilities.extend(rows.iter().map(|row| serde_json::from_value(row.clone()).unwrap()));
        exposure
    };
    let credential = |context: &str, system: &str, scope: &str| json!({"kind": "credential", "name": "T", "context": context, "system": system, "scope": scope});
    let relay = |sources: &[&str]| json!({"kind": "relay", "path": "/tmp/x", "sources": sources});
    let path = |path: &str| json!({"kind": "host-path", "path": path});
    let cases: [(Vec<Value>, Vec<Value>, bool); 17] = [
        (vec![], vec![credential("broker", "jira", "read")], true),
        (vec![credential("broker", "jira", "read")], vec![], false),
        (vec![credential("broker", "jira", "read")], vec![credential("agent", "jira", "read")], true),
        (vec![credential("agent", "jira", "read")], vec![credential("broker", "jira", "read")], false),
        (vec![credential("broker", "jira", "read")], vec![credential("broker", "jira", "write")], true),
        (
            vec![credential("agent", "undeclared", "undeclared")],
            vec![credential("agent", "jira", "read")],
            false,
        ),
        (
            vec![credential("agent", "jira", "read")],
            vec![credential("agent", "undeclared", "undeclared")],
            true,
        ),
        (vec![], vec![relay(&[])], true),
        (vec![relay(&["env:A"])], vec![relay(&["env:A", "file:b"])], true),
        (vec![relay(&["env:A", "file:b"])], vec![relay(&["env:A"])], false),
        (vec![], vec![path("/opt")], true),
        (vec![path("/opt")], vec![path("/opt"), path("/opt/x")], false),
        (vec![path("/opt/x")], vec![path("/opt")], true),
        (vec![path("/opt")], vec![path("/optical")], true),
        (vec![], vec![json!({"kind": "broker-bin", "bin": "/x"})], true),
        (vec![json!({"kind": "broker-bin", "bin": "/x"})], vec![], false),
        (vec![], vec![json!({"kind": "external-commands", "present": true})], true),
    ];
    for (old, new, widens) in cases {
        let diff = with(&new).since(&with(&old)).unwrap();
        assert_eq!(diff.widens(), widens, "{old:?} {new:?}");
        assert!(!diff.changes.is_empty(), "{old:?} {new:?}");
    }
}

#[test]
fn nothing_is_wider_than_no_enforcement() {
    let free = Exposure::new(&outputs(), &Reach::default());
    let boxed = endpoints(&["a.example:443:full"]);
    assert_eq!(changes(&boxed, &free), ["Widens enforced"]);
    assert_eq!(changes(&free, &boxed), ["Narrows enforced"]);
}

fn entry() -> impl Strategy<Value = String> {
    let host = proptest::sample::select(vec![
        "a.b.example",
        "c.b.example",
        "ax.b.example",
        "*.b.example",
        "**.b.example",
        "a*.b.example",
        "*x.b.example",
        "**.example.org",
        "*.c.b.example",
        "d.c.b.example",
        "10.0.0.1",
    ]);
    let port = proptest::sample::select(vec!["80", "443"]);
    let access = proptest::sample::select(vec![
        "full",
        "full:tcp",
        "full:rest",
        "read-only",
        "read-write",
        "read-only:rest:audit",
        "full:websocket",
    ]);
    (host, port, access).prop_map(|(host, port, access)| format!("{host}:{port}:{access}"))
}

fn lists() -> impl Strategy<Value = Declared> {
    let binaries = proptest::sample::subsequence(vec!["/usr/bin/curl", "/usr/bin/git", "/bin/sh"], 0..=3);
    (proptest::collection::vec(entry(), 0..6), binaries).prop_map(|(entries, binaries)| {
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        declared(&entries, &binaries)
    })
}

/// Every target, program, way and method that a list of these tests could tell apart.
fn admitted(egress: &Egress) -> Vec<(String, Carry, bool)> {
    let hosts = [
        "a.b.example",
        "c.b.example",
        "ax.b.example",
        "x.b.example",
        "zz.b.example",
        "az.b.example",
        "a.z.b.example",
        "d.c.b.example",
        "e.c.b.example",
        "f.d.c.b.example",
        "www.example.org",
        "a.www.example.org",
        "10.0.0.1",
        "b.example",
    ];
    let mut found = Vec::new();
    for host in hosts {
        for port in [80, 443] {
            let target = Target::parse(&format!("{host}:{port}")).unwrap();
            for program in ["/usr/bin/curl", "/usr/bin/git", "/bin/sh"] {
                let caller = Caller::Known(vec![Process::new(program)]);
                for way in [Way::Connect, Way::Forward, Way::Transparent] {
                    for method in [None, Some("GET"), Some("POST"), Some("DELETE")] {
                        let ask = Ask { way, target: &target, caller: &caller, method };
                        let Ok(grant) = egress.decide(&ask) else { continue };
                        let (private, _) = grant.entry.addresses();
                        let key = format!("{target} {program} {way:?} {method:?}");
                        found.push((key, grant.carry, private));
                    }
                }
            }
        }
    }
    found
}

proptest! {
    #[test]
    fn nothing_differs_from_itself(lists in lists()) {
        let exposure = listed(&lists);
        prop_assert_eq!(exposure.since(&exposure).unwrap(), Diff::default());
    }

    /// The decision that a run would make is the judge: what only the new list admits is always said to widen.
    #[test]
    fn what_is_newly_admitted_widens(old in lists(), new in lists()) {
        let (before, after) = (listed(&old), listed(&new));
        let (had, has) = (admitted(&Egress::resolve(&old, &[])), admitted(&Egress::resolve(&new, &[])));
        let flows = |by: Carry, what: Carry| {
            by == what || by == Carry::Raw || (by == Carry::TlsOrHttp && matches!(what, Carry::Tls | Carry::Http))
        };
        let gained = has.iter().find(|(key, carry, private)| {
            !had.iter().any(|(other, by, also)| other == key && flows(*by, *carry) && also >= private)
        });
        if let Some(gained) = gained {
            prop_assert!(after.since(&before).unwrap().widens(), "{gained:?}");
        }
    }

    /// Without wider entries that would decide in the place of a dropped one, fewer rows never widen.
    #[test]
    fn a_subset_never_widens(
        hosts in proptest::sample::subsequence(vec!["a.example", "b.example", "*.c.example", "**.d.example", "10.0.0.1"], 0..=5),
        kept in proptest::collection::vec(any::<bool>(), 5),
        paths in proptest::sample::subsequence(vec!["/opt", "/srv/x", "/usr/share"], 0..=3),
        names in proptest::sample::subsequence(vec!["A", "B", "C"], 0..=3),
        relays in proptest::sample::subsequence(vec!["/tmp/a", "/tmp/b"], 0..=2),
        programs in proptest::sample::subsequence(vec!["/usr/bin/curl", "/usr/bin/git"], 0..=2),
    ) {
        let some = |all: &[&'static str]| -> Vec<&'static str> {
            all.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(one, _)| *one).collect()
        };
        let of = |hosts: &[&str], programs: &[&str], paths: &[&str], names: &[&str], relays: &[&str]| {
            let entries: Vec<String> = hosts.iter().map(|host| format!("{host}:443:full")).collect();
            let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
            let lists = declared(&entries, programs);
            let egress = Egress::resolve(&lists, &[]);
            let strings = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
            Exposure::new(&outputs(), &Reach {
                egress: Some((&egress, &lists)),
                host_paths: strings(paths),
                names: strings(names),
                relays: strings(relays).into_iter().map(|path| (path, vec!["env:A".to_owned()])).collect(),
                ..Reach::default()
            })
        };
        let whole = of(&hosts, &programs, &paths, &names, &relays);
        let less = of(&some(&hosts), &some(&programs), &some(&paths), &some(&names), &some(&relays));
        let diff = less.since(&whole).unwrap();
        prop_assert!(!diff.widens(), "{:?}", diff);
        prop_assert_eq!(diff.changes.is_empty(), less == whole);
    }
}

/// As much of JSON Schema as the schema uses.
fn accepts(schema: &Value, value: &Value) -> bool {
    let is = |word: &str| match word {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    schema.as_object().unwrap().iter().all(|(rule, bound)| match rule.as_str() {
        "type" => match bound {
            Value::Array(words) => words.iter().any(|word| is(word.as_str().unwrap())),
            word => is(word.as_str().unwrap()),
        },
        "const" => value == bound,
        "enum" => bound.as_array().unwrap().contains(value),
        "minimum" => value.as_u64().is_none_or(|number| number >= bound.as_u64().unwrap()),
        "maximum" => value.as_u64().is_none_or(|number| number <= bound.as_u64().unwrap()),
        "minItems" => value
            .as_array()
            .is_none_or(|items| u64::try_from(items.len()).unwrap() >= bound.as_u64().unwrap()),
        "maxItems" => value
            .as_array()
            .is_none_or(|items| u64::try_from(items.len()).unwrap() <= bound.as_u64().unwrap()),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(bound, item))),
        "oneOf" => bound.as_array().unwrap().iter().filter(|one| accepts(one, value)).count() == 1,
        "required" => value.as_object().is_none_or(|fields| {
            bound.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|fields| {
            fields.iter().all(|(name, field)| bound.get(name).is_none_or(|one| accepts(one, field)))
        }),
        "additionalProperties" => value
            .as_object()
            .is_none_or(|fields| fields.keys().all(|name| schema["properties"].get(name).is_some())),
        "$schema" | "title" | "description" => true,
        other => panic!("the schema uses {other}"),
    })
}

#[test]
fn the_schema_takes_documents_and_nothing_else() {
    let schema = schema();
    let mut whole = whole();
    whole.capabilities.push(Capability::BrokerBin { bin: "/x".to_owned() });
    let good = serde_json::to_value(&whole).unwrap();
    assert!(accepts(&schema, &good));
    assert!(accepts(&schema, &serde_json::to_value(endpoints(&["a.example:443:full:websocket"])).unwrap()));
    let known = schema["properties"]["capabilities"]["items"]["oneOf"].as_array().unwrap();
    for kind in known.iter().map(|one| &one["properties"]["kind"]["const"]) {
        assert!(good["capabilities"].as_array().unwrap().iter().any(|row| row["kind"] == *kind), "{kind}");
    }
    let changes: [&dyn Fn(&mut Value); 7] = [
        &|value| value["version"] = json!(2),
        &|value| value["more"] = json!(1),
        &|value| value["enforced"] = json!("yes"),
        &|value| value["outputs"][0]["count"] = json!(-1),
        &|value| value["outputs"][0]["target"] = json!({"fixed": "a", "open": {"scope": "b"}}),
        &|value| value["capabilities"][0]["kind"] = json!("wormhole"),
        &|value| value["capabilities"][0]["port"] = json!(0),
    ];
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!accepts(&schema, &bad), "{bad}");
        assert!(Exposure::read(&bad.to_string()).is_err(), "{bad}");
    }
}

#[test]
fn a_binding_that_leads_elsewhere_or_is_told_otherwise_widens_and_another_model_does_not() {
    let changed = |change: &dyn Fn(&mut Binding)| {
        let mut new = whole();
        for row in &mut new.capabilities {
            if let Capability::Inference(binding) = row {
                change(binding);
            }
        }
        let diff = new.since(&whole()).unwrap();
        diff.changes.iter().map(|change| (change.subject.clone(), change.effect)).collect::<Vec<_>>()
    };
    let one = |effect| vec![("inference".to_owned(), effect)];
    assert_eq!(changed(&|_| ()), []);
    assert_eq!(changed(&|binding| binding.model = "m-2".to_owned()), one(Effect::Keeps));
    let widening: [&dyn Fn(&mut Binding); 5] = [
        &|binding| binding.endpoint = "models.example:8443".to_owned(),
        &|binding| binding.protocol = "responses".to_owned(),
        &|binding| binding.harness = "codex".to_owned(),
        &|binding| binding.variables.push("ANTHROPIC_BASE_URL".to_owned()),
        &|binding| binding.key_env = Some("OTHER".to_owned()),
    ];
    for change in widening {
        assert_eq!(changed(change), one(Effect::Widens));
    }
    let mut without = whole();
    without.capabilities.retain(|row| !matches!(row, Capability::Inference(_)));
    assert_eq!(without.since(&whole()).unwrap().changes[0].effect, Effect::Narrows);
    assert!(whole().since(&without).unwrap().widens());
}

#[test]
fn a_person_reads_the_same_rows() {
    let shown: Vec<String> =
        rendered(&whole()).iter().map(|(label, text)| format!("{label} {text}")).collect();
    for part in [
        "output tracker-comment    at most 3, to any of PROJ-* that is the value of key  manifest",
        "output draft-pr           at most 2, to nowhere: every one is refused  engine-default",
        "output gpu-capture        at most 100, addressed to nothing  engine-default",
        "enforced yes: ",
        "credential T  held by the broker  jira: comment",
        "credential B  held by the agent  undeclared: undeclared",
        "relay /tmp/y  from env:B",
        "relay /tmp/x  from the manifest's own text",
        "host-path /opt/a",
        "inference claude  m-1 over messages at models.example:443, with the key in MY_KEY, told by ANTHROPIC_API_KEY",
        "binary /opt/x  manifest",
        "commands the pack runs commands on this machine",
    ] {
        assert!(shown.iter().any(|line| line.starts_with(part)), "{part}: {shown:#?}");
    }
    assert!(
        shown
            .iter()
            .any(|line| line.starts_with("egress a.example:80:read-only ") && line.ends_with("  manifest"))
    );
    let nothing = rendered(&listed(&declared(&[], &[])));
    assert!(nothing.contains(&("egress", "nothing at all: no entry is listed".to_owned())));
    assert!(
        rendered(&Exposure::new(&outputs(), &Reach::default()))
            .iter()
            .any(|(_, text)| text.starts_with("no: "))
    );
}
