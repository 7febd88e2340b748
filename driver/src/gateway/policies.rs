//! Turns the network policies that a sandbox is asked for with into the one list of what it reaches.
//! It refuses to know who enforces the list, and takes nothing that it could not mean in full.

use std::net::Ipv6Addr;

use policy::{
    egress::{Binaries, BinaryPath, Document, Egress, Entry, Source},
    endpoint::{Endpoint, Pattern},
};
use tonic::Status;

use crate::wire::openshell::sandbox::v1::{
    NetworkAccessPreset as Access, NetworkEndpoint, NetworkEnforcementMode as Enforcement, NetworkPolicyRule,
    NetworkTlsMode as Tls, SandboxPolicy,
};

/// The list; nothing where no policy is asked for.
pub(crate) fn document(policy: &SandboxPolicy) -> Result<Option<Document>, Status> {
    if !policy.network_middlewares.is_empty() {
        return Err(unenforced("network_middlewares"));
    }
    if policy.network_policies.is_empty() {
        return Ok(None);
    }
    let mut rules: Vec<_> = policy.network_policies.iter().collect();
    rules.sort_by_key(|(name, _)| *name);
    let mut entries = Vec::new();
    for (name, rule) in rules {
        let told = |status: Status| {
            Status::new(status.code(), format!("network policy {name}: {}", status.message()))
        };
        entries.extend(rule_entries(name, rule).map_err(told)?);
    }
    Ok(Some(Egress::new(entries).document()))
}

fn unenforced(what: &str) -> Status {
    Status::failed_precondition(format!("this gateway does not enforce {what}"))
}

fn rule_entries(name: &str, rule: &NetworkPolicyRule) -> Result<Vec<Entry>, Status> {
    let paths = rule.binaries.iter().map(|binary| {
        let error = |error| Status::invalid_argument(format!("binary {:?}: {error}", binary.path));
        BinaryPath::parse(&binary.path).map_err(error)
    });
    let binaries = Binaries::of(paths.collect::<Result<Vec<_>, _>>()?);
    let mut entries = Vec::new();
    for endpoint in &rule.endpoints {
        for endpoint in endpoints(endpoint)? {
            entries.push(Entry {
                // Whoever asked named this very host, as a manifest does.
                named: matches!(endpoint.pattern, Pattern::Exact(_)),
                endpoint,
                source: Source::Policy(name.to_owned()),
                binaries: binaries.clone(),
            });
        }
    }
    Ok(entries)
}

/// One endpoint for each of its ports.
fn endpoints(asked: &NetworkEndpoint) -> Result<Vec<Endpoint>, Status> {
    let host = &asked.host;
    if let Some(field) = beyond(asked) {
        return Err(unenforced(&format!("{field} of the endpoint {host:?}")));
    }
    let bad = |why: String| Status::invalid_argument(format!("endpoint {host:?}: {why}"));
    if host.contains(':') && host.parse::<Ipv6Addr>().is_err() {
        return Err(bad("its host is neither a name nor an address".to_owned()));
    }
    let host_text = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let rest = words(asked).map_err(bad)?;
    let ports =
        if asked.ports.is_empty() { std::slice::from_ref(&asked.port) } else { asked.ports.as_slice() };
    let read = |port: &u32| Endpoint::parse(&format!("{host_text}:{port}:{rest}"));
    ports.iter().map(|port| read(port).map_err(|error| bad(error.to_string()))).collect()
}

/// `access[:protocol]:enforcement` as an endpoint of a manifest has it. Absent enforcement is enforce (N15). Every `tls` mode
/// comes to the same, for TLS is not ended here.
fn words(asked: &NetworkEndpoint) -> Result<String, String> {
    let unknown = |what: &str| format!("its {what} is none that this gateway knows");
    Tls::try_from(asked.tls).map_err(|_| unknown("tls"))?;
    let enforcement = match Enforcement::try_from(asked.enforcement).map_err(|_| unknown("enforcement"))? {
        Enforcement::Unspecified | Enforcement::Enforce => "enforce",
        Enforcement::Audit => "audit",
    };
    let protocol = match asked.protocol.as_str() {
        known @ ("" | "tcp" | "rest" | "websocket") => known,
        other => return Err(format!("its protocol {other:?} is not enforced here")),
    };
    let access = match Access::try_from(asked.access).map_err(|_| unknown("access"))? {
        Access::ReadOnly => "read-only",
        Access::ReadWrite => "read-write",
        Access::Unspecified if matches!(protocol, "rest" | "websocket") => {
            return Err(format!("its protocol {protocol} needs an access"));
        }
        Access::Unspecified | Access::Full => "full",
    };
    Ok(match (protocol, access, enforcement) {
        ("", "full", "enforce") => access.to_owned(),
        // Nothing is judged request by request there, so there is nothing to let pass.
        ("", "full", _) => return Err("an enforcement needs a protocol".to_owned()),
        ("", ..) => format!("{access}:rest:{enforcement}"),
        _ => format!("{access}:{protocol}:{enforcement}"),
    })
}

/// The first field with a value that says something which is not enforced here.
fn beyond(asked: &NetworkEndpoint) -> Option<&'static str> {
    let set = [
        ("rules", !asked.rules.is_empty()),
        ("allowed_ips", !asked.allowed_ips.is_empty()),
        ("deny_rules", !asked.deny_rules.is_empty()),
        ("allow_encoded_slash", asked.allow_encoded_slash),
        ("persisted_queries", !asked.persisted_queries.is_empty()),
        ("graphql_persisted_queries", !asked.graphql_persisted_queries.is_empty()),
        ("graphql_max_body_bytes", asked.graphql_max_body_bytes != 0),
        ("path", !asked.path.is_empty()),
        ("websocket_credential_rewrite", asked.websocket_credential_rewrite),
        ("request_body_credential_rewrite", asked.request_body_credential_rewrite),
        ("advisor_proposed", asked.advisor_proposed),
        ("credential_signing", !asked.credential_signing.is_empty()),
        ("signing_service", !asked.signing_service.is_empty()),
        ("signing_region", !asked.signing_region.is_empty()),
        ("json_rpc_max_body_bytes", asked.json_rpc_max_body_bytes != 0),
        ("mcp", asked.mcp.is_some()),
        ("credential_binding", asked.credential_binding.is_some()),
        ("allow_uninspected_credentials", asked.allow_uninspected_credentials),
        ("provider_credentialed", asked.provider_credentialed),
        ("token_grant_owner", !asked.token_grant_owner.is_empty()),
    ];
    set.into_iter().find(|(_, set)| *set).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::wire::openshell::sandbox::v1::{L7Rule, NetworkBinary};

    /// What is changed of an endpoint.
    type Change = fn(&mut NetworkEndpoint);

    fn policy(change: impl Fn(&mut NetworkEndpoint)) -> SandboxPolicy {
        let mut endpoint =
            NetworkEndpoint { host: "api.example".to_owned(), port: 443, ..NetworkEndpoint::default() };
        change(&mut endpoint);
        let binaries = vec![NetworkBinary { path: "/usr/bin/curl".to_owned() }];
        let rule = NetworkPolicyRule { endpoints: vec![endpoint], binaries, ..NetworkPolicyRule::default() };
        SandboxPolicy { network_policies: [("api".to_owned(), rule)].into(), ..SandboxPolicy::default() }
    }

    fn list(policy: &SandboxPolicy) -> Vec<String> {
        let egress = document(policy).unwrap().unwrap().read().unwrap();
        egress
            .entries()
            .iter()
            .map(|entry| format!("{} {} {}", entry.endpoint, entry.source, entry.named))
            .collect()
    }

    #[test]
    fn an_endpoint_means_what_the_same_words_mean_in_a_manifest() {
        let cases: [(Change, &[&str]); 9] = [
            (|_| {}, &["api.example:443:full policy:api true"]),
            (|e| e.host = "*.Example.COM".to_owned(), &["*.example.com:443:full policy:api false"]),
            (|e| e.host = "2001:db8::1".to_owned(), &["[2001:db8::1]:443:full policy:api true"]),
            (
                |e| e.ports = vec![80, 8080],
                &["api.example:80:full policy:api true", "api.example:8080:full policy:api true"],
            ),
            (|e| e.protocol = "tcp".to_owned(), &["api.example:443:full:tcp:enforce policy:api true"]),
            (
                |e| e.access = Access::ReadOnly.into(),
                &["api.example:443:read-only:rest:enforce policy:api true"],
            ),
            (|e| e.tls = Tls::Skip.into(), &["api.example:443:full policy:api true"]),
            (
                |e| {
                    (e.protocol, e.access) = ("rest".to_owned(), Access::ReadWrite.into());
                    e.enforcement = Enforcement::Audit.into();
                },
                &["api.example:443:read-write:rest:audit policy:api true"],
            ),
            (|e| e.enforcement = Enforcement::Enforce.into(), &["api.example:443:full policy:api true"]),
        ];
        for (change, expected) in cases {
            assert_eq!(list(&policy(change)), expected);
        }
        assert!(document(&SandboxPolicy::default()).unwrap().is_none());
    }

    #[test]
    fn what_is_not_enforced_or_means_nothing_is_refused_by_name() {
        let cases: [(Change, Code, &str); 12] = [
            (|e| e.rules.push(L7Rule {}), Code::FailedPrecondition, "does not enforce rules of"),
            (|e| e.allowed_ips.push("10.0.0.0/8".to_owned()), Code::FailedPrecondition, "allowed_ips"),
            (|e| e.path = "/v1".to_owned(), Code::FailedPrecondition, "path"),
            (|e| e.mcp = Some(Default::default()), Code::FailedPrecondition, "mcp"),
            (|e| e.protocol = "graphql".to_owned(), Code::InvalidArgument, "graphql"),
            (|e| e.protocol = "rest".to_owned(), Code::InvalidArgument, "needs an access"),
            (|e| e.enforcement = 2, Code::InvalidArgument, "needs a protocol"),
            (|e| e.access = 9, Code::InvalidArgument, "access"),
            (|e| e.host = String::new(), Code::InvalidArgument, "endpoint \"\""),
            (|e| e.host = "a.example:80".to_owned(), Code::InvalidArgument, "neither a name nor an address"),
            (|e| e.host = "*".to_owned(), Code::InvalidArgument, "endpoint \"*\""),
            (|e| e.port = 0, Code::InvalidArgument, "endpoint \"api.example\""),
        ];
        for (change, code, part) in cases {
            let status = document(&policy(change)).unwrap_err();
            assert_eq!(status.code(), code, "{status}");
            assert!(
                status.message().starts_with("network policy api: ") && status.message().contains(part),
                "{status}"
            );
        }
        let mut globbed = policy(|_| {});
        for rule in globbed.network_policies.values_mut() {
            rule.binaries.push(NetworkBinary { path: "/usr/bin/*".to_owned() });
        }
        assert_eq!(document(&globbed).unwrap_err().code(), Code::InvalidArgument);
        let mut middle = policy(|_| {});
        middle.network_middlewares.insert("m".to_owned(), Default::default());
        assert_eq!(document(&middle).unwrap_err().code(), Code::FailedPrecondition);
    }
}
