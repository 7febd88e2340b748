//! Who answers for a sandbox's ways out: asked before its first command, told of its end, and its failure the gateway's.

use std::sync::{Arc, Mutex};

use driver::network::{Answer, Network, Outlets};
use driver::trial::{self, Trial};
use driver::turn::Exit;
use driver::{Client, TransportClass, TurnError, trust};
use policy::egress::{Declared, Document, Egress};
use policy::endpoint::Endpoint;
use policy::seam::Role;

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("the_ways_out_stand_before_the_first_command_and_go_with_the_sandbox", stand_and_go),
    ("this_binary_stands_beside_the_programs_of_the_host", own_program),
    ("a_network_that_refuses_fails_the_turn_as_the_gateway", refused),
    ("a_network_that_cannot_say_what_happened_fails_the_turn_as_the_gateway", silent),
    ("the_bundle_is_looked_at_from_inside_and_another_is_seen", bundle),
    ("without_a_network_a_sandbox_with_a_list_is_refused", nobody),
];

/// Holds the sockets and never answers on them; fails where it is told to.
#[derive(Debug, Default)]
struct Holder {
    refuses: bool,
    silent: bool,
    held: Mutex<Vec<Outlets>>,
    said: Mutex<Vec<String>>,
}

impl Network for Holder {
    fn attach(&self, outlets: Outlets) -> Answer<'_, String> {
        self.said.lock().unwrap().push(format!("attach {}", outlets.turn));
        self.held.lock().unwrap().push(outlets);
        let answer = if self.refuses { Err("hold them".to_owned()) } else { Ok("hash".to_owned()) };
        Box::pin(async move { answer })
    }

    fn detach<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        let known = self.held.lock().unwrap().iter().any(|outlets| outlets.id == id);
        self.said.lock().unwrap().push(format!("detach {known}"));
        let answer = if self.silent { Err("remember".to_owned()) } else { Ok(()) };
        Box::pin(async move { answer })
    }
}

fn list() -> Document {
    let endpoints = ["a.example:8443:full", "127.0.0.1:5173:full:tcp", "192.0.2.7:8443:full"];
    let endpoints = endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect();
    Egress::resolve(&Declared { endpoints, ..Declared::default() }, &[]).document()
}

const KNOCK: &str = "bash -c 'for to in 127.0.0.1/3128 127.0.0.1/53 127.0.0.1/5173 192.0.2.7/8443 198.18.4.5/8443; do \
                     (exec 3<>/dev/tcp/$to) || exit 9; done; ! (exec 3<>/dev/tcp/192.0.2.8/8443) 2>/dev/null'";

fn stand_and_go(_: &Lab) {
    let holder = Arc::new(Holder::default());
    let lab = Lab::networked(holder.clone());
    let mut spec = lab.spec(&format!("{KNOCK} && echo $HTTPS_PROXY $A > seen"));
    spec.env = [("HTTPS_PROXY".to_owned(), "mine".to_owned()), ("A".to_owned(), "a".to_owned())].into();
    spec.egress = Some(list());
    let turn = spec.name.clone();
    let seen = lab.run(spec).unwrap();
    assert_eq!(seen.end.exit, Exit::Code(0), "{seen:?}");
    assert_eq!(lab.read("seen"), "http://127.0.0.1:3128 a\n");
    assert_eq!(*holder.said.lock().unwrap(), [format!("attach {turn}"), "detach true".to_owned()]);
    let held = holder.held.lock().unwrap();
    let roles: Vec<&Role> = held[0].sockets.iter().map(|(role, _)| role).collect();
    assert!(roles.contains(&&Role::Proxy) && roles.contains(&&Role::Transparent { port: 8443 }), "{roles:?}");
}

/// Note N14: by its name, read-only, and what the host has there stays.
fn own_program(_: &Lab) {
    let lab = Lab::networked(Arc::new(Holder::default()));
    let script = "set -e; cmp /run/crucible /usr/local/bin/crucible; command -v crucible; ls -A /usr/local/bin; \
                  for f in /usr/local/bin/*; do head -c 1 \"$f\" > /dev/null || [ ! -e \"$f\" ]; done; \
                  ! touch /usr/local/bin/x 2>/dev/null; ! rm -f /usr/local/bin/crucible 2>/dev/null; \
                  ! sh -c 'echo > /usr/local/bin/crucible' 2>/dev/null";
    let mut spec = lab.spec(script);
    spec.egress = Some(list());
    let seen = lab.run(spec).unwrap();
    assert_eq!(seen.end.exit, Exit::Code(0), "{seen:?}");
    let mut lines: Vec<&str> = seen.out.lines().collect();
    assert_eq!(lines.remove(0), "/usr/local/bin/crucible");
    let there = std::fs::read_dir("/usr/local/bin").unwrap();
    let mut expected: Vec<String> =
        there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    expected.push("crucible".to_owned());
    expected.sort();
    expected.dedup();
    lines.sort_unstable();
    assert_eq!(lines, expected);
    assert!(!seen.end.layers.iter().any(|layer| layer.starts_with("program:")), "{:?}", seen.end.layers);
}

fn fails(holder: Holder) -> (TurnError, Vec<String>) {
    let holder = Arc::new(holder);
    let lab = Lab::networked(holder.clone());
    let mut spec = lab.spec("echo ran > ran");
    spec.egress = Some(list());
    let error = lab.run(spec).unwrap_err();
    assert!(!lab.exists("ran"), "nothing came back");
    let said = holder.said.lock().unwrap().clone();
    (error, said)
}

fn refused(_: &Lab) {
    let (error, said) = fails(Holder { refuses: true, ..Holder::default() });
    assert_eq!((error.class(), said.len()), (TransportClass::Gateway, 1), "{error}");
}

fn silent(_: &Lab) {
    let (error, said) = fails(Holder { silent: true, ..Holder::default() });
    assert_eq!((error.class(), said.len()), (TransportClass::Gateway, 2), "{error}");
}

fn bundle(_: &Lab) {
    let lab = Lab::networked(Arc::new(Holder::default()));
    let added = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    let look = |of: Option<&str>| trust::look(of).unwrap().expect("this system trusts somebody");
    let seen = |given: Option<&str>, commands: Vec<Vec<String>>| {
        let trial = Trial {
            name: "look".to_owned(),
            egress: list(),
            certificates: given.map(str::to_owned),
            commands,
            ..Trial::default()
        };
        lab.block_on(async {
            let client = Client::unix(lab.gateway().socket()).await.unwrap();
            trial::run(&client, trial).await.unwrap()
        })
    };
    let right = Exit::Code(0);
    assert_eq!(seen(None, vec![look(None)]), (right, String::new()));
    assert_eq!(seen(Some(added), vec![look(Some(added))]), (right, String::new()));
    for (given, expected) in [(None, Some(added)), (Some(added), None)] {
        let (exit, said) =
            seen(given, vec![look(expected), vec!["/bin/echo".to_owned(), "went on".to_owned()]]);
        assert_ne!(exit, right);
        assert!(
            said.starts_with("trust: /etc/crucible/ca.pem is not the system's") && said.lines().count() == 1,
            "{said}"
        );
    }
    let misled = ["/usr/bin/env", "-u", "PIP_CERT", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"];
    let misled = misled.map(str::to_owned).into_iter().chain(look(Some(added))).collect();
    let (exit, said) = seen(Some(added), vec![misled]);
    assert_ne!(exit, right);
    let names: Vec<&str> = said.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(names, ["SSL_CERT_FILE", "PIP_CERT"], "{said}");
}

fn nobody(lab: &Lab) {
    let mut spec = lab.spec("echo ran > ran");
    spec.egress = Some(list());
    let error = lab.run(spec).unwrap_err();
    assert!(error.to_string().contains("no broker runs here"), "{error}");
    assert!(!lab.exists("ran"));
}
