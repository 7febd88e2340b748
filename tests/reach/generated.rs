//! Turns manifests that nobody wrote into what a probe inside their sandboxes reaches, which is what the resolved list says.

use crate::Test;
use crate::expected::{Attempt, Judge, caller, compare};
use crate::lab::{decisions, listed, pack, probe, probed};
use crate::server::World;

pub(crate) const TESTS: &[Test] =
    &[("what_is_reached_is_what_the_resolved_list_says_no_more_and_no_less", what_the_list_says)];

/// Manifests that are tried.
const MANIFESTS: usize = 20;
const HOSTS: [&str; 16] = [
    "a.test",
    "b.a.test",
    "wild.test",
    "x.wild.test",
    "y.x.wild.test",
    "private.wild.test",
    "metadata.wild.test",
    "x.y.deep.test",
    "named.test",
    "loop.test",
    "github.com",
    "203.0.113.9",
    "93.184.216.10",
    "10.0.0.10",
    "127.0.0.1",
    "localhost",
];
const PATTERNS: [&str; 20] = [
    "a.test",
    "b.a.test",
    "*.a.test",
    "**.a.test",
    "*.wild.test",
    "**.wild.test",
    "x*.wild.test",
    "*x.wild.test",
    "x.wild.test",
    "private.wild.test",
    "metadata.wild.test",
    "**.y.deep.test",
    "*.deep.test",
    "named.test",
    "loop.test",
    "github.com",
    "203.0.113.9",
    "10.0.0.10",
    "127.0.0.1",
    "localhost",
];
const PORTS: [u16; 3] = [80, 443, 8080];
const ACCESS: [&str; 7] =
    ["full", "full", "full:tcp", "read-only", "read-write", "full:rest", "read-only:rest:audit"];
const BINARIES: [&str; 4] = ["/usr/bin/python3", "/usr/bin/python3", "/bin/sh", "/usr/bin/git"];

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn lists(&mut self) -> String {
        let mut entries = std::collections::BTreeSet::new();
        for _ in 0..self.below(16) {
            entries.insert(format!("{}:{}:{}", self.of(&PATTERNS), self.of(&PORTS), self.of(&ACCESS)));
        }
        let (binary, inherits) = (self.of(&BINARIES), self.below(3) == 0);
        format!(
            "inherit_defaults = {inherits}\nendpoints = {:?}\nbinaries = [{binary:?}]\n",
            Vec::from_iter(entries)
        )
    }
}

/// Lists that are printed where a test fails under them.
struct Shown(String);

impl Drop for Shown {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("under these lists:\n{}", self.0);
        }
    }
}

fn what_the_list_says(world: &World) {
    let attempts: Vec<Attempt> = HOSTS.iter().flat_map(|host| Attempt::every(host, &PORTS, "GET")).collect();
    let mut numbers = Numbers(11);
    let mut reached = [0, 0];
    for _ in 0..MANIFESTS {
        let lists = Shown(numbers.lists());
        let pack = pack(world, probe(), &lists.0);
        let egress = listed(&pack);
        let judge = Judge { egress: &egress, caller: caller() };
        world.came();
        let results = probed(&pack, attempts.iter().map(Attempt::json));
        compare(&judge, &attempts, &results, &decisions(&pack), &world.came());
        for result in results.as_array().unwrap() {
            reached[usize::from(result["reached"] == true)] += 1;
        }
    }
    assert!(reached.iter().all(|count| *count > 200), "both answers are seen often: {reached:?}");
}
