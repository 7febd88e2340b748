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

const CONNECTS: u32 = 3_000;
const REQUESTS: u32 = 10_000;
const ROUND_TRIPS: u32 = 20_000;
const IDLE: usize = 1_000;

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
    let origin = Origin::start();
    let mut rows: Vec<(&str, Vec<Option<Cost>>)> = Vec::new();
    let mut memory = Vec::new();
    let mut names = Vec::new();
    for start in [proxies::broker, proxies::squid, proxies::tinyproxy] {
        let Some(proxy) = start(&origin) else { continue };
        names.push(proxy.name);
        let scenarios: [(&str, u32, Run); 5] = [
            ("deny", CONNECTS, |proxy, _| (0..CONNECTS).for_each(|_| load::denied(proxy.at))),
            ("CONNECT alone", CONNECTS, |proxy, origin| {
                (0..CONNECTS).for_each(|_| drop(load::tunnel(proxy.at, origin.at)));
            }),
            ("open tunnel, 1 kB back and forth", ROUND_TRIPS, |proxy, origin| {
                load::ping(&mut load::tunnel(proxy.at, origin.at), ROUND_TRIPS);
            }),
            ("open tunnel, MiB", (load::BULK >> 20) as u32, |proxy, origin| {
                load::bulk(&mut load::tunnel(proxy.at, origin.at));
            }),
            ("forward, keep-alive", REQUESTS, |proxy, origin| load::forward(proxy.at, origin.at, REQUESTS)),
        ];
        for (place, (name, units, run)) in scenarios.into_iter().enumerate() {
            let cost = measure(&proxy, &origin, units, run);
            if rows.len() <= place {
                rows.push((name, Vec::new()));
            }
            rows[place].1.push(cost);
        }
        let before = proxy.rss();
        let open: Vec<_> = (0..IDLE).map(|_| load::tunnel(proxy.at, origin.at)).collect();
        memory.push((before, (proxy.rss() - before) as f64 / IDLE as f64));
        drop(open);
    }
    report(&names, &rows, &memory);
}

/// One scenario's load.
type Run = fn(&Proxy, &Origin);

fn measure(proxy: &Proxy, origin: &Origin, units: u32, run: Run) -> Option<Cost> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (cpu, begun) = (proxy.cpu(), Instant::now());
        run(proxy, origin);
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
