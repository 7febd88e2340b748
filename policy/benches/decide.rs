//! Turns a list of 10,000 entries into the time that one decision takes, printed and never asserted.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark's report")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use policy::egress::{Ask, BinaryPath, Caller, Declared, Egress, Process, Way};
use policy::endpoint::Endpoint;
use policy::host::Target;

const ROUNDS: u32 = 200_000;

fn main() {
    // `cargo bench` says so; with the tests only the verdicts matter.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { ROUNDS } else { 1 };
    let texts = (0..10_000).map(|number| match number % 4 {
        0 => format!("host{number}.example.com:443:full"),
        1 => format!("*.zone{number}.example.com:443:full"),
        2 => format!("**.deep{number}.example.com:443:full"),
        _ => format!("*-part{number}.example.com:443:full"),
    });
    let declared = Declared {
        endpoints: texts.map(|text| Endpoint::parse(&text).unwrap()).collect(),
        binaries: vec![BinaryPath::parse("/usr/bin/curl").unwrap()],
        inherit_defaults: false,
    };
    let egress = Egress::resolve(&declared, &[]);
    let caller = Caller::Known(vec![Process::new("/usr/bin/curl")]);
    let cases = [
        ("exact", "host4000.example.com:443", true),
        ("one label", "a.zone4001.example.com:443", true),
        ("any labels", "a.b.c.deep4002.example.com:443", true),
        ("part of a label", "x-part4003.example.com:443", true),
        ("denied", "a.b.nowhere.example.com:443", false),
        ("denied elsewhere", "www.elsewhere.org:443", false),
        ("address", "93.184.216.34:443", false),
    ];
    for (name, text, granted) in cases {
        let target = Target::parse(text).unwrap();
        let ask = Ask { way: Way::Connect, target: &target, caller: &caller, method: None };
        let begun = Instant::now();
        for _ in 0..rounds {
            let _ = black_box(egress.decide(black_box(&ask)));
        }
        println!(
            "{name:16} {:>5} ns  {}",
            (begun.elapsed() / rounds).as_nanos(),
            egress.decide(&ask).is_ok()
        );
        assert_eq!(egress.decide(&ask).is_ok(), granted, "{name}");
    }
}
