//! Turns one origin on loopback and three proxies before it into CPU per request, requests per second and memory, as ratios.
//! It refuses to assert: machines differ, and the table is for reading. What is not installed is left out, by name.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark's report")]
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "it starts programs and reads the clock"
)]
#![expect(clippy::as_conversions, reason = "numbers for a person")]

mod load;
mod proxies;

use std::time::Instant;

use load::Origin;
use proxies::Proxy;

/// How much is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    connects: u32,
    at_once: u32,
    requests: u32,
    round_trips: u32,
    idle: usize,
    /// Bytes of a bulk transfer.
    bulk: usize,
}

const WHOLE: Work =
    Work { connects: 3_000, at_once: 8, requests: 10_000, round_trips: 20_000, idle: 1_000, bulk: 1 << 30 };
/// Enough to see that each part still works.
const SMOKE: Work = Work { connects: 16, at_once: 2, requests: 10, round_trips: 10, idle: 5, bulk: 1 << 20 };

/// What a scenario cost: CPU and wall time of one unit, in microseconds.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    wall: f64,
}

fn main() {
    if let Some(code) = broker::role() {
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
    // `cargo bench` says so; `cargo test` only wants to know that all of this works, if it wants this at all.
    let args: Vec<String> = std::env::args().skip(1).collect();
    let smoke = !args.iter().any(|arg| arg == "--bench");
    if smoke && !args.iter().filter(|arg| !arg.starts_with('-')).all(|word| "egress-smoke".contains(word)) {
        return;
    }
    let work = if smoke { SMOKE } else { WHOLE };
    let origin = Origin::start(work.bulk);
    let mut rows: Vec<(&str, Vec<Option<Cost>>)> = Vec::new();
    let mut memory = Vec::new();
    let mut names = Vec::new();
    for (name, start) in proxies::ALL {
        let Some(proxy) = start(name, &origin) else {
            println!("{name}: left out, for it does not start here");
            continue;
        };
        names.push(proxy.name);
        for (place, (name, units, run)) in scenarios(work).into_iter().enumerate() {
            let cost = measure(&proxy, &origin, units, run, work);
            if rows.len() <= place {
                rows.push((name, Vec::new()));
            }
            // A peer that fails on a busy machine is left out of the comparison, and is no fault of ours.
            assert!(!smoke || cost.is_some() || !proxy.name.starts_with("broker"), "{name} fails");
            rows[place].1.push(cost);
        }
        let before = proxy.rss();
        let open: Vec<_> = (0..work.idle).map(|_| load::tunnel(proxy.at, origin.at)).collect();
        memory.push((before, proxy.rss().saturating_sub(before) as f64 / work.idle as f64));
        drop(open);
    }
    report(&names, &rows, &memory);
}

/// One scenario's load.
type Run = fn(&Proxy, &Origin, Work);

fn scenarios(work: Work) -> [(&'static str, u32, Run); 6] {
    [
        ("deny, one after another", work.connects, |proxy, _, work| {
            (0..work.connects).for_each(|_| load::denied(proxy.at));
        }),
        ("deny, eight at once", work.connects, |proxy, _, work| {
            std::thread::scope(|scope| {
                for _ in 0..work.at_once {
                    scope.spawn(|| (0..work.connects / work.at_once).for_each(|_| load::denied(proxy.at)));
                }
            });
        }),
        ("CONNECT alone", work.connects, |proxy, origin, work| {
            (0..work.connects).for_each(|_| drop(load::tunnel(proxy.at, origin.at)));
        }),
        ("open tunnel, 1 kB back and forth", work.round_trips, |proxy, origin, work| {
            load::ping(&mut load::tunnel(proxy.at, origin.at), work.round_trips);
        }),
        ("open tunnel, MiB", (work.bulk >> 20) as u32, |proxy, origin, work| {
            load::bulk(&mut load::tunnel(proxy.at, origin.at), work.bulk);
        }),
        ("forward, keep-alive", work.requests, |proxy, origin, work| {
            load::forward(proxy.at, origin.at, work.requests);
        }),
    ]
}

fn measure(proxy: &Proxy, origin: &Origin, units: u32, run: Run, work: Work) -> Option<Cost> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (cpu, begun) = (proxy.cpu(), Instant::now());
        run(proxy, origin, work);
        (proxy.cpu() - cpu, begun.elapsed())
    }));
    let (cpu, wall) = outcome.ok()?;
    let per = |seconds: f64| seconds * 1e6 / f64::from(units);
    Some(Cost { cpu: per(cpu), wall: per(wall.as_secs_f64()) })
}

fn report(names: &[&str], rows: &[(&str, Vec<Option<Cost>>)], memory: &[(u64, f64)]) {
    println!("CPU µs each | wall µs each (ratio of CPU to the broker's)\n{:34}{}", "", names.map_join());
    for (name, costs) in rows {
        let own = costs[0].map_or(f64::NAN, |cost| cost.cpu);
        let cells = costs.iter().map(|cost| match cost {
            Some(cost) => format!("{:>8.1} | {:>7.1} ({:>4.2})", cost.cpu, cost.wall, cost.cpu / own),
            None => format!("{:>26}", "failed"),
        });
        println!("{name:34}{}", cells.collect::<Vec<_>>().join("  "));
    }
    let cells =
        memory.iter().map(|(idle, each)| format!("{:>10} kB idle, {:>5.1} kB", idle / 1024, each / 1024.0));
    println!("{:34}{}", "memory, and of one idle tunnel", cells.collect::<Vec<_>>().join("  "));
}

trait Joined {
    fn map_join(&self) -> String;
}

impl Joined for [&str] {
    fn map_join(&self) -> String {
        self.iter().map(|name| format!("{name:>26}")).collect::<Vec<_>>().join("  ")
    }
}
