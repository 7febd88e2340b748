//! Turns a script into an agent that ran in a sandbox of a real run, and its run's record into values.
//! It refuses to know what the script tries.

use std::path::Path;

use engine::plan::{Overrides, RunPlan};
use policy::egress::Egress;
use serde_json::Value;

use crate::server::World;
use crate::support::{COUNT, Pack, RAISE, Ran};

/// A pack whose agent runs this script in a sandbox with these lines in `[agent.openshell]`, which trusts the world's
/// authority.
pub(crate) fn pack(world: &World, script: &str, lists: &str) -> Pack {
    let more = format!("[agent.openshell]\nca_file = \"ca.pem\"\n{lists}\n");
    let pack = Pack::new(&format!("sh ./agent.sh; {RAISE}"), COUNT, &more);
    let manifest = pack.read("crucible.toml");
    let backend = "backend = \"openshell\"\nharness = \"command\"\ntimeout = \"10m\"";
    pack.write("crucible.toml", &manifest.replace("backend = \"command\"", backend));
    pack.write("ca.pem", &world.ca);
    pack.write("start/agent.sh", script);
    pack
}

/// Runs the pack's agent once, to its end, with nothing of this machine's own proxy.
pub(crate) fn once(pack: &Pack) -> Ran {
    once_behind(pack, None)
}

/// The same behind a parent proxy.
pub(crate) fn once_behind(pack: &Pack, parent: Option<&str>) -> Ran {
    let mut command = pack.command(&["--iterations", "1"]);
    for name in ["https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
        command.env_remove(name);
    }
    if let Some(parent) = parent {
        command.env("https_proxy", parent);
    }
    let output = command.output().unwrap();
    let ran = Ran { output, log: pack.log() };
    ran.ended("finished", 0);
    assert_eq!(ran.decisions(), ["baseline", "keep"], "{:?}", ran.log);
    ran
}

/// The script that tries what `attempts.json` says.
pub(crate) fn probe() -> &'static str {
    "python3 ./probe.py"
}

/// Runs the probe once; answers what came of each attempt.
pub(crate) fn probed(pack: &Pack, attempts: impl Iterator<Item = Value>) -> Value {
    pack.write("start/probe.py", include_str!("probe.py"));
    pack.write("start/attempts.json", &Value::from_iter(attempts).to_string());
    once(pack);
    serde_json::from_str(&pack.read("workspace/results.json")).unwrap()
}

/// The list that a pack's sandboxes are provisioned from.
pub(crate) fn listed(pack: &Pack) -> Egress {
    let loaded =
        engine::pack::Pack::load(&pack.path("crucible.toml")).unwrap_or_else(|error| panic!("{error}"));
    let plan = RunPlan::resolve(loaded, &Overrides::default()).unwrap();
    plan.agent.sandbox.unwrap().egress
}

/// The decisions of the agent's turn.
pub(crate) fn decisions(pack: &Pack) -> Vec<Value> {
    let text = pack.read("state/egress.jsonl");
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["kind"] == "decision" && line["turn"] == "turn-1").collect()
}

/// The one decision about a target, by a way; there may be more than one alike.
#[track_caller]
pub(crate) fn decided(records: &[Value], way: &str, target: &str) -> Value {
    let found = records.iter().find(|record| record["way"] == way && record["target"] == target);
    found.unwrap_or_else(|| panic!("no {way} to {target}: {records:#?}")).clone()
}

/// A name was asked for and refused, and nobody was connected to for it.
#[track_caller]
pub(crate) fn denied(records: &[Value], host: &str) {
    let about = |record: &&Value| record["asked"].as_str().is_some_and(|asked| asked.contains(host));
    let about: Vec<&Value> = records.iter().filter(about).collect();
    assert!(!about.is_empty(), "{host} was not asked for: {records:#?}");
    for record in about {
        assert_eq!(
            (&record["verdict"], &record["reason"]),
            (&"deny".into(), &"host-not-listed".into()),
            "{record}"
        );
    }
}

/// How many descriptors the broker has open now. There is one broker on this machine's own network.
pub(crate) fn broker_descriptors() -> usize {
    let here = std::fs::read_link("/proc/self/ns/net").unwrap();
    let is_broker = |pid: &i32| {
        let of = |name: &str| Path::new("/proc").join(pid.to_string()).join(name);
        let command = std::fs::read_to_string(of("cmdline")).unwrap_or_default();
        command.starts_with("crucible-broker\0")
            && std::fs::read_link(of("ns/net")).is_ok_and(|net| net == here)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pid = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_broker);
    std::fs::read_dir(format!("/proc/{}/fd", pid.expect("a broker"))).unwrap().count()
}
