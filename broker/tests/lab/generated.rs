//! Turns lists that nobody wrote into what can be reached from inside, which is what the list says, no more and no less.

use policy::egress::{Ask, Caller, Process, Way};
use policy::host::{Host, Target};

use crate::Test;
use crate::lab::{Lab, Plan, http, run};

pub(crate) const TESTS: &[Test] = &[("what_can_be_reached_is_what_the_list_says", what_the_list_says)];

/// Lists that are tried.
const LISTS: u32 = 60;
const LABELS: [&str; 4] = ["a", "b", "ab", "api-x"];
const FIRST: [&str; 7] = ["", "*.", "**.", "a*.", "*-x.", "a.", "ab."];
const ACCESS: [&str; 5] = ["full", "full:tcp", "read-only", "read-write", "full:rest"];

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn entry(&mut self) -> String {
        let (first, label, access) = (self.of(&FIRST), self.of(&LABELS), self.of(&ACCESS));
        format!("{first}{label}.example:80:{access}")
    }

    fn host(&mut self) -> String {
        let depth = 1 + self.below(2);
        let labels: Vec<&str> = (0..depth).map(|_| self.of(&LABELS)).collect();
        format!("{}.example", labels.join("."))
    }
}

fn what_the_list_says() {
    run(async {
        let first = Plan::new(&["nothing.example:80:full"]);
        let lab = Lab::with(first).await;
        let (_, _origin) = http("93.184.216.5:80", "HTTP/1.1 204 No\r\n\r\n").await;
        let mut numbers = Numbers(7);
        let mut reached = [0, 0];
        for _ in 0..LISTS {
            let entries: Vec<String> = (0..1 + numbers.below(5)).map(|_| numbers.entry()).collect();
            let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
            let plan = Plan::new(&entries);
            let egress = plan.egress();
            lab.client.reload("box", egress.document()).await.unwrap();
            let caller = Caller::Known(vec![Process::new(plan.binaries[0].as_str())]);
            for _ in 0..4 {
                let host = numbers.host();
                lab.names.put(&host, &["93.184.216.5"]);
                let target = Target::parse(&format!("{host}:80")).unwrap();
                let says = |way, method| {
                    egress.decide(&Ask { way, target: &target, caller: &caller, method }).is_ok()
                };
                let got = lab.get(&host, "/").await.status == 204;
                assert_eq!(got, says(Way::Forward, Some("GET")), "GET {host} under {entries:?}");
                let tunnelled = lab.connect(&format!("{host}:80")).await.1.status == 200;
                assert_eq!(tunnelled, says(Way::Connect, None), "CONNECT {host} under {entries:?}");
                let named = lab.lookup(&host).await.is_some();
                assert_eq!(named, egress.knows(&Host::parse(&host).unwrap()), "{host} under {entries:?}");
                reached[usize::from(got)] += 1;
            }
        }
        assert!(reached.iter().all(|count| *count > 20), "both answers are seen often: {reached:?}");
    });
}
