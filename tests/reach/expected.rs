//! Turns a resolved list and an attempt into what must come of it, by what the policy decides and by how a sandbox is built.
//! It refuses to look at what came of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use policy::egress::{Ask, Caller, Carry, Denial, Egress, Process, Way, address};
use policy::host::{Host, HostError, Port, Target};
use policy::ip::canonical;
use policy::reason::Reason;
use serde_json::{Value, json};

use crate::place::addresses;
use crate::server::PORTS;

/// How the probe tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A tunnel through the proxy, and TLS in it.
    Connect,
    /// A plain request to the proxy.
    Forward,
    /// Name, address, and a plain request there.
    Direct,
    /// Name, address, and TLS there.
    DirectTls,
}

const WAYS: [By; 4] = [By::Connect, By::Forward, By::Direct, By::DirectTls];

/// One attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) by: By,
    /// As it is written by the client.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) method: &'static str,
}

/// What must come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether a server answered.
    pub(crate) reached: bool,
    /// What the client is told in HTTP, where it is told something.
    pub(crate) told: Option<Reason>,
    /// The decisions on record: way, and the reason of a refusal.
    pub(crate) records: Vec<(Way, Option<Reason>)>,
    /// Where the broker connected to.
    pub(crate) dialled: Option<SocketAddr>,
}

/// Who asks, and under which list.
pub(crate) struct Judge<'a> {
    pub(crate) egress: &'a Egress,
    /// The probe's program, and what started it.
    pub(crate) caller: Caller,
}

/// The probe as the agent's shell starts it.
pub(crate) fn caller() -> Caller {
    let real = |path: &str| std::fs::canonicalize(path).unwrap().display().to_string();
    let process = |path: &str| Process { path: real(path), also: Some(path.to_owned()) };
    Caller::Known(vec![process("/usr/bin/python3"), process("/bin/sh")])
}

impl Attempt {
    /// Each way to each port of a host. What is no name cannot be asked for without a proxy.
    pub(crate) fn every(host: &str, ports: &[u16], method: &'static str) -> Vec<Self> {
        let named = named(host).is_ok();
        let ways = move |by: &By| named || matches!(by, By::Connect | By::Forward);
        let each = ports.iter().flat_map(|port| WAYS.into_iter().map(move |by| (by, *port)));
        let each = each.filter(|(by, _)| ways(by));
        each.map(|(by, port)| Self { by, host: host.to_owned(), port, method }).collect()
    }

    /// For the probe.
    pub(crate) fn json(&self) -> Value {
        let way = match self.by {
            By::Connect => "connect",
            By::Forward => "forward",
            By::Direct => "direct",
            By::DirectTls => "direct-tls",
        };
        let host = named(&self.host).ok();
        let ip = match &host {
            Some(Host::Ip(ip)) => Some(ip.to_string()),
            _ => None,
        };
        let server = host.as_ref().map_or(self.host.clone(), |host| match host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.as_str().to_owned(),
        });
        // What goes by name and address sends what the resolver took, which is ASCII.
        let aside = matches!(self.by, By::Direct | By::DirectTls) && !self.host.is_ascii();
        let host = if aside { &server } else { &self.host };
        json!({"way": way, "host": host, "port": self.port, "method": self.method, "address": ip, "server": server})
    }
}

impl Judge<'_> {
    pub(crate) fn of(&self, attempt: &Attempt) -> Outcome {
        let port = Port::new(attempt.port).unwrap();
        let method = attempt.method;
        match (named(&attempt.host), attempt.by) {
            // A head that cannot be read is on record as the proxy's first way.
            (Err(_), _) => {
                let reason = unread(&attempt.host);
                Outcome { told: Some(reason), ..Outcome::refused(Way::Connect, reason) }
            }
            (Ok(host), By::Connect) => self.judged(Way::Connect, &Target { host, port }, None, None),
            (Ok(host), By::Forward) => {
                self.judged(Way::Forward, &Target { host, port }, Some(method), Some(Carry::Http))
            }
            (Ok(host), By::Direct) => self.direct(host, port, Some(method), Carry::Http),
            (Ok(host), By::DirectTls) => self.direct(host, port, None, Carry::Tls),
        }
    }

    /// A connection past the proxy: it arrives where the sandbox has a listener for it, or nowhere.
    fn direct(&self, host: Host, port: Port, method: Option<&str>, spoken: Carry) -> Outcome {
        if matches!(host, Host::Name(_)) && !self.egress.knows(&host) {
            return Outcome::refused(Way::Name, Reason::HostNotListed);
        }
        let meant = Target { host: host.clone(), port };
        let host = match host {
            Host::Name(name) if name.as_str() == "localhost" => Host::Ip(Ipv4Addr::LOCALHOST.into()),
            // So the kernel reads it.
            Host::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => Host::Ip(Ipv4Addr::LOCALHOST.into()),
            Host::Ip(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => Host::Ip(Ipv6Addr::LOCALHOST.into()),
            other => other,
        };
        let listeners = self.egress.loopback_listeners();
        let listens = |at: &SocketAddr| at.ip().is_ipv4() || crate::server::six();
        if let Host::Ip(ip) = host
            && let Some((_, target)) =
                listeners.iter().find(|(at, _)| *at == SocketAddr::new(ip, port.get()) && listens(at))
        {
            return self.arrived(Way::Loopback, target, &meant, method, spoken);
        }
        let here = match &host {
            Host::Name(_) => true,
            Host::Ip(ip) => {
                self.egress.addresses().contains(ip) || matches!(ip, IpAddr::V4(ip) if ip.is_loopback())
            }
        };
        if !here || !self.egress.transparent_ports().contains(&port) {
            return Outcome::nothing();
        }
        self.arrived(Way::Transparent, &Target { host, port }, &meant, method, spoken)
    }

    /// A connection that arrived: for whom it was meant is compared with where it came, unless anything may be carried.
    fn arrived(
        &self,
        way: Way,
        target: &Target,
        meant: &Target,
        method: Option<&str>,
        spoken: Carry,
    ) -> Outcome {
        let ask = Ask { way, target, caller: &self.caller, method: None };
        match self.egress.decide(&ask).map(|grant| grant.carry) {
            Ok(Carry::Raw) => {}
            _ if target.host == meant.host => {}
            _ if spoken == Carry::Http => {
                let told = Some(Reason::HostMismatch);
                return Outcome { told, ..Outcome::refused(way, Reason::HostMismatch) };
            }
            // An address is never named in a hello.
            Ok(Carry::TlsOrHttp) => match (&meant.host, &target.host) {
                (Host::Name(_), _) => return Outcome::refused(way, Reason::SniUnexpected),
                (Host::Ip(_), Host::Name(_)) => return Outcome::refused(way, Reason::SniAbsent),
                (Host::Ip(_), Host::Ip(_)) => {}
            },
            _ => {}
        }
        self.judged(way, target, method, Some(spoken))
    }

    fn judged(&self, way: Way, target: &Target, method: Option<&str>, spoken: Option<Carry>) -> Outcome {
        // What may carry anything is not looked into, so no method is judged there.
        let ask = |method| self.egress.decide(&Ask { way, target, caller: &self.caller, method });
        let raw = way != Way::Forward && ask(None).is_ok_and(|grant| grant.carry == Carry::Raw);
        let told = |reason| match spoken {
            Some(Carry::Tls) => None,
            // Past the proxy nothing was read, so there is no language to answer in.
            Some(_) if raw => None,
            _ => Some(reason),
        };
        let refused = |reason| Outcome { told: told(reason), ..Outcome::refused(way, reason) };
        let grant = match ask(method.filter(|_| !raw)) {
            Ok(grant) => grant,
            Err(Denial { reason, .. }) => return refused(reason),
        };
        if spoken == Some(Carry::Tls) && grant.carry == Carry::Http {
            return refused(Reason::NeedsTermination);
        }
        let found = match &target.host {
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) => addresses(name.as_str()),
        };
        let judged: Vec<_> = found.iter().map(|ip| (canonical(*ip), address(grant.entry, *ip))).collect();
        // No address of the sixth version leads anywhere here, so of several the other is met.
        let allowed = judged.iter().filter(|(_, fits)| fits.is_ok()).map(|(ip, _)| *ip);
        let Some(ip) = allowed.max_by_key(IpAddr::is_ipv4) else {
            return refused(judged.first().and_then(|(_, fits)| fits.err()).unwrap_or(Reason::Unresolved));
        };
        let dialled = SocketAddr::new(ip, target.port.get());
        let reached = PORTS.contains(&dialled.port());
        Outcome { reached, told: None, records: vec![(way, None)], dialled: Some(dialled) }
    }
}

/// The host of an authority.
fn named(host: &str) -> Result<Host, HostError> {
    Target::parse(&format!("{host}:1")).map(|target| target.host)
}

/// Why a host that is none is refused: a control character or a path makes the whole head malformed.
fn unread(host: &str) -> Reason {
    if host.contains(char::is_control) { Reason::HeadMalformed } else { Reason::HostInvalid }
}

impl Outcome {
    /// Nothing was there, and nobody was asked.
    fn nothing() -> Self {
        Self { reached: false, told: None, records: Vec::new(), dialled: None }
    }

    fn refused(way: Way, reason: Reason) -> Self {
        Self { records: vec![(way, Some(reason))], ..Self::nothing() }
    }
}

/// Compares what came with what must: the answers, the record decision by decision, and who was connected to.
#[track_caller]
pub(crate) fn compare(
    judge: &Judge<'_>,
    attempts: &[Attempt],
    results: &Value,
    decisions: &[Value],
    came: &BTreeSet<SocketAddr>,
) {
    let outcomes: Vec<Outcome> = attempts.iter().map(|attempt| judge.of(attempt)).collect();
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), attempts.len());
    let mut records = decisions.iter();
    for ((attempt, outcome), result) in attempts.iter().zip(&outcomes).zip(results) {
        assert_eq!(result["reached"], outcome.reached, "{attempt:?} must be {outcome:?}: {result}");
        if let Some(reason) = outcome.told {
            let told = (&result["status"], &result["reason"]);
            assert_eq!(told, (&reason.status().into(), &reason.token().into()), "{attempt:?}: {result}");
            assert_eq!(result["policy"], judge.egress.hash(), "row 27: {result}");
        }
        for (way, reason) in &outcome.records {
            let record = records.next().unwrap_or_else(|| panic!("{attempt:?} has no record"));
            let verdict = if reason.is_some() { "deny" } else { "allow" };
            let expected = json!([way, verdict, reason.map(Reason::token)]);
            let found = json!([record["way"], record["verdict"], record["reason"]]);
            assert_eq!(found, expected, "{attempt:?}: {record}");
        }
    }
    assert_eq!(records.next(), None, "exactly one record for each decision");
    let dialled: BTreeSet<SocketAddr> = outcomes.iter().filter_map(|outcome| outcome.dialled).collect();
    assert_eq!(*came, dialled, "who was connected to");
}
