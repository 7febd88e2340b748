//! Turns the tables of limits and reasons into the page that documents them.
//! It refuses to say anything that the code does not do.

use std::fmt::Write as _;

use policy::reason::Reason;

use crate::limits::{Limit, Limits};

/// The page of the book about egress, as Markdown.
pub fn page() -> String {
    let mut out = String::from(HEAD);
    for Limit { name, text, doc, .. } in Limits::KEYS {
        // Writing to a string does not fail.
        let _ = writeln!(out, "| `{name}` | `{text}` | {doc} |");
    }
    out.push_str(REASONS);
    for reason in Reason::ALL {
        let _ = writeln!(out, "| `{reason}` | {} | {} |", reason.status(), reason.public());
    }
    out.push_str(AUDIT);
    out
}

const HEAD: &str = "# Egress

Made from the code; `UPDATE_GOLDEN=1` with the tests writes it anew.

A sandbox has no route out. Inside it stand listening sockets that the broker, a child of the engine, holds: the proxy at
`127.0.0.1:3128`, names at `127.0.0.1:53`, every listed port for programs that know no proxy, and one socket for each entry
that names loopback. The broker accepts there, decides, writes the decision down, and dials in the host's network. If it
dies, the sockets die with it, and nothing gets out.

## What decides

- The most specific entry for host and port decides alone: the exact host, then the longest suffix, and over one suffix the
  longest text in the label, `*`, `**`. Among equals the first that grants. There is no way to say no but to leave out.
- `binaries` admit the connecting program or an ancestor of it inside the sandbox, by path; links are resolved in the
  sandbox's own view when the turn begins. A deleted executable, a connection that several programs hold, and one that
  nobody seems to hold are denied, each with its own reason. It is evidence and not a boundary: an interpreter, a preloaded
  library or a passed descriptor defeats it.
- A name is resolved once, after the policy said yes. Every address is classified and only those that may be dialled are.
  Private addresses are dialled only for an exact host that the manifest names; this host only for an entry that names it
  literally; link-local, metadata and reserved addresses never.
- An entry with `full` and no protocol carries TLS whose hello names the target, or plain HTTP for it. Without a name in the
  hello, with another one, or with an encrypted one, nothing passes. `tcp` carries anything. `rest` is judged request by
  request over plain HTTP; inside TLS it is unreachable, because the broker does not end TLS. `websocket` is unreachable.
- With a parent proxy on the host the broker asks it by name, and the record says `via: parent`: the parent resolves, and its
  addresses are not classified here. `NO_PROXY` of the host is honoured.

## Limits

What bounds the traffic of one turn: keys of `[agent.openshell.limits.egress]`. Each cut has its reason in the record.

| key | default | what it bounds |
| --- | --- | --- |
";

const REASONS: &str = "
## Reasons

A refusal over HTTP has a JSON body, `{error, reason, target, policy}`. The reason is one of these and never changes its
meaning; the policy is the hash of the list in force. Over TLS it is the alert `access_denied`; over anything else the
connection ends.

| reason | status | meaning |
| --- | --- | --- |
";

const AUDIT: &str = "
## The record

`state/egress.jsonl` holds one JSON object a line: `v`, `seq`, `ts`, `prev` (SHA-256 of the line before, in hex), `kind`.
A `decision` is written before its answer, exactly one for each question: turn, connection, way in, target as asked and in its
one spelling, addresses, program, verdict, entry and its source, reason, hash of the policy. A `close` has bytes, duration and
what ended the connection. `cut` says where a turn's records were full; from there nothing passes. `end` sums a turn up. `torn`
tells of the bytes before it, by number and SHA-256: a line that a broker died in. They stay, nothing was answered that they
were about, and `crucible audit --verify` lists them and exits with a code of its own. User names, passwords, values of queries and known secrets are taken out before anything is written. A refusal is
on the disk before it is answered, and refusals at one time go there together; other lines are in the kernel's hands before
what follows from them, so that the death of the broker loses none, and on the disk with the next refusal or the turn's end. `durable = false` in the launch document leaves refusals in the kernel's hands too, until the
turn's end.
";
