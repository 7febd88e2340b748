//! Turns a connection to the proxy into tunnels and plain requests, each asked for on its own.
//! It refuses to decide: `admit` does.

use std::sync::Arc;

use policy::egress::{Carry, Way};
use policy::host::Target;
use policy::reason::Reason;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::conn::Conn;
use super::dial::dial;
use super::exchange::{Exchanged, Outgoing, exchange};
use super::splice::{Flowed, splice};
use crate::admit::{Asker, Permit, Question, Sandbox, Spoken};
use crate::core::answer::{ESTABLISHED, Refusal, TLS_REFUSAL};
use crate::core::fields::Framing;
use crate::core::head::{self, BadHead, Form, Scheme};
use crate::core::hello;
use crate::limits::Limits;

/// A request that was read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) asked: String,
    pub(crate) kind: Kind,
    pub(crate) out: Outgoing,
}

/// What a request wants.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A tunnel to a target.
    Tunnel(Target),
    /// A plain request in absolute form.
    Plain(Target),
    /// A request that only a proxy that ends or starts TLS, or speaks WebSocket, could serve.
    Other(Target),
    /// A request in origin form, and whether its Host names the connection's target.
    Origin(Result<(), Reason>),
}

/// A server's connection that is kept for the next request to the same target.
pub(crate) struct Kept {
    conn: Conn,
    permit: Permit,
}

/// Why a client's connection is over.
pub(crate) struct Over;

/// Serves one client connection.
pub(crate) async fn serve(sandbox: &Sandbox, asker: &mut Asker, stream: TcpStream) {
    let mut client = Conn::new(stream);
    let mut kept = None;
    loop {
        let request = match next(sandbox, &mut client, None).await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(bad) => return refuse_head(sandbox, asker, client, &bad).await,
        };
        match request.kind {
            Kind::Tunnel(ref target) => {
                asker.way = Way::Connect;
                // What establishing needs is given back before the tunnel flows: most tunnels are idle most of the time.
                let standing = Box::pin(establish(sandbox, asker, client, &request.asked, target)).await;
                drop(request);
                return carry(sandbox, standing).await;
            }
            Kind::Plain(ref target) => {
                asker.way = Way::Forward;
                let target = target.clone();
                match Box::pin(plain(sandbox, asker, client, &request, &target, kept)).await {
                    Ok((next, keep)) => (client, kept) = (next, keep),
                    Err(Over) => return,
                }
            }
            Kind::Other(ref target) => {
                asker.way = Way::Connect;
                let reason = sandbox.refuse(asker, &request.asked, Some(target), Reason::NeedsTermination);
                return answer(sandbox, client, reason, &request).await;
            }
            Kind::Origin(_) => {
                asker.way = Way::Own;
                let reason = sandbox.refuse(asker, &request.asked, None, Reason::TargetInvalid);
                return answer(sandbox, client, reason, &request).await;
            }
        }
    }
}

/// Reads the next request; `target` is what the connection is for, where it knows no proxy. `None` is the client's end.
pub(crate) async fn next(
    sandbox: &Sandbox,
    client: &mut Conn,
    target: Option<&Target>,
) -> Result<Option<Request>, BadHead> {
    let limits = sandbox.limits();
    if client.buf.is_empty() {
        // Between requests a client may be still for as long as any connection.
        let begun = tokio::time::timeout(Limits::time(limits.idle_timeout), client.fill()).await;
        if !matches!(begun, Ok(Ok(1..))) {
            return Ok(None);
        }
    }
    let max = Limits::size(limits.head_size);
    let read = |buf: &[u8]| {
        let found = head::read(buf, max)?;
        Ok::<_, BadHead>(found.map(|(head, length)| (request(&head, target), length)))
    };
    let found = client.until(Limits::time(limits.head_timeout), Reason::HeadLate, read).await?;
    let Some((request, length)) = found else { return Ok(None) };
    client.consume(length);
    Ok(Some(request))
}

fn request(head: &head::Head<'_>, own: Option<&Target>) -> Request {
    let keep = head.keeps();
    let mut bytes = Vec::with_capacity(512);
    let kind = match (&head.form, own) {
        (Form::Connect(target), _) => Kind::Tunnel(target.clone()),
        (Form::Absolute { scheme: Scheme::Plain, target, path }, _) => {
            head.write(target, *path, true, &mut bytes);
            Kind::Plain(target.clone())
        }
        (Form::Absolute { target, .. }, _) => Kind::Other(target.clone()),
        (Form::Origin(path), Some(own)) => {
            head.write(own, *path, true, &mut bytes);
            Kind::Origin(head.host_is(own, false))
        }
        (Form::Origin(_), None) => Kind::Origin(Err(Reason::TargetInvalid)),
    };
    let out = Outgoing { method: head.method.to_owned(), head: bytes, framing: head.framing, keep };
    Request { asked: head.asked.to_owned(), kind, out }
}

/// A tunnel that may flow.
pub(crate) struct Standing {
    pub(crate) client: Conn,
    pub(crate) server: TcpStream,
    pub(crate) permit: Permit,
}

/// A tunnel: asked for, dialled, and judged by its first bytes before any of them passes. Without one the client has its
/// answer.
async fn establish(
    sandbox: &Sandbox,
    asker: &Asker,
    mut client: Conn,
    asked: &str,
    target: &Target,
) -> Option<Standing> {
    let question = Question { asked, target, method: None, spoken: Spoken::Unknown };
    let permit = match sandbox.admit(asker, question, None).await {
        Ok(permit) => permit,
        Err(reason) => {
            client.farewell(&refusal(sandbox, reason, asked, false, false).await).await;
            return None;
        }
    };
    let server = match dial(&permit, &sandbox.shared.outside, sandbox.limits()).await {
        Ok(server) => server,
        Err(reason) => {
            sandbox.close(&permit, 0, 0, Some(reason));
            client.farewell(&refusal(sandbox, reason, asked, false, false).await).await;
            return None;
        }
    };
    if client.stream.write_all(ESTABLISHED).await.is_err() {
        sandbox.close(&permit, 0, 0, None);
        return None;
    }
    if permit.carry() != Carry::Raw {
        match judge_hello(sandbox, &mut client, target).await {
            Ok(Judged::Fits) => {}
            Ok(Judged::Nothing) => {
                sandbox.close(&permit, 0, 0, None);
                return None;
            }
            Err(reason) => {
                let reason = sandbox.refuse(asker, asked, Some(target), reason);
                sandbox.close(&permit, 0, 0, Some(reason));
                sandbox.settle().await;
                client.farewell(&TLS_REFUSAL).await;
                return None;
            }
        }
    }
    Some(Standing { client, server, permit })
}

/// What a tunnel's first bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// A hello for the target.
    Fits,
    /// The client ended without a byte.
    Nothing,
}

/// Waits for a TLS hello and compares the server that it names with the target.
pub(crate) async fn judge_hello(
    sandbox: &Sandbox,
    client: &mut Conn,
    target: &Target,
) -> Result<Judged, Reason> {
    let limit = Limits::time(sandbox.limits().hello_timeout);
    match client.until(limit, Reason::HelloLate, hello::read).await? {
        Some(hello) => hello.check(&target.host, sandbox.shared.tolerance).map(|()| Judged::Fits),
        None if client.buf.is_empty() => Ok(Judged::Nothing),
        None => Err(Reason::HelloMalformed),
    }
}

/// Lets a judged tunnel flow and records its end.
pub(crate) async fn carry(sandbox: &Sandbox, standing: Option<Standing>) {
    let Some(Standing { client: Conn { stream, buf }, server, permit }) = standing else { return };
    let Flowed { up, down, reason } = splice(&stream, &server, buf, sandbox).await;
    sandbox.close(&permit, up, down, reason);
}

/// One plain request. On success the client goes on, with the server's connection where that goes on too.
pub(crate) async fn plain(
    sandbox: &Sandbox,
    asker: &Asker,
    mut client: Conn,
    request: &Request,
    target: &Target,
    kept: Option<Kept>,
) -> Result<(Conn, Option<Kept>), Over> {
    let kept = kept.filter(|kept| kept.permit.target() == target);
    let question =
        Question { asked: &request.asked, target, method: Some(&request.out.method), spoken: Spoken::Http };
    let known = kept.as_ref().map(|kept| kept.permit.route().clone());
    let permit = match sandbox.admit(asker, question, known.as_ref()).await {
        Ok(permit) => permit,
        Err(reason) => {
            let keep = request.out.keep && request.out.framing == Framing::None && kept.is_none();
            let bytes = refusal(sandbox, reason, &request.asked, keep, request.out.method == "HEAD").await;
            if keep && client.stream.write_all(&bytes).await.is_ok() {
                return Ok((client, None));
            }
            client.farewell(&bytes).await;
            return Err(Over);
        }
    };
    let (server, done) =
        match attempt(sandbox, &mut client, request, &permit, kept.map(|kept| kept.conn)).await {
            Ok(done) => done,
            Err(reason) => {
                sandbox.close(&permit, 0, 0, Some(reason));
                answer(sandbox, client, reason, request).await;
                return Err(Over);
            }
        };
    sandbox.bytes.add(done.up.saturating_add(done.down));
    let spent = sandbox.bytes.get() > sandbox.limits().bytes;
    let reason = done.reason.or(spent.then_some(Reason::TooManyBytes));
    sandbox.close(&permit, done.up, done.down, reason);
    match reason {
        Some(reason) if !done.answered => answer(sandbox, client, reason, request).await,
        // What the client still sends is read away, or a reset would take the answer from it.
        None if done.early => client.farewell(b"").await,
        None if done.client_keeps => {
            return Ok((client, done.server_keeps.then_some(Kept { conn: server, permit })));
        }
        _ => {}
    }
    Err(Over)
}

/// The exchange itself, over the kept connection or a new one. A kept one that turns out to be dead before anything was
/// lost is replaced once.
async fn attempt(
    sandbox: &Sandbox,
    client: &mut Conn,
    request: &Request,
    permit: &Permit,
    kept: Option<Conn>,
) -> Result<(Conn, Exchanged), Reason> {
    let limits = sandbox.limits();
    if let Some(mut server) = kept {
        let done = exchange(client, &mut server, &request.out, limits).await;
        let stale = done.reason == Some(Reason::UpstreamClosed) && !done.answered && done.down == 0;
        if !stale || request.out.framing != Framing::None {
            return Ok((server, done));
        }
    }
    let mut server = Conn::new(dial(permit, &sandbox.shared.outside, limits).await?);
    let done = exchange(client, &mut server, &request.out, limits).await;
    Ok((server, done))
}

/// Answers a head that could not be read, with its record.
pub(crate) async fn refuse_head(sandbox: &Sandbox, asker: &Asker, client: Conn, bad: &BadHead) {
    let asked = bad.asked.as_deref().unwrap_or_default();
    let reason = sandbox.refuse(asker, asked, None, bad.reason);
    client.farewell(&refusal(sandbox, reason, asked, false, false).await).await;
}

async fn answer(sandbox: &Sandbox, client: Conn, reason: Reason, request: &Request) {
    client
        .farewell(&refusal(sandbox, reason, &request.asked, false, request.out.method == "HEAD").await)
        .await;
}

/// The bytes of a refusal, once its record is on the disk.
pub(crate) async fn refusal(
    sandbox: &Sandbox,
    reason: Reason,
    asked: &str,
    keep: bool,
    bodiless: bool,
) -> Vec<u8> {
    sandbox.settle().await;
    refusal_now(sandbox, reason, asked, keep, bodiless)
}

/// The bytes of a refusal.
pub(crate) fn refusal_now(
    sandbox: &Sandbox,
    reason: Reason,
    asked: &str,
    keep: bool,
    bodiless: bool,
) -> Vec<u8> {
    let target = sandbox.shared.redactor.target(asked);
    let policy = sandbox.egress();
    Refusal { reason, target: &target, policy: policy.hash(), keep, bodiless }.bytes()
}

/// What an asker is before its first question.
pub(crate) fn asker(sandbox: &Sandbox, stream: &TcpStream, way: Way) -> Asker {
    let ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
    let caller = ends.map(|(client, local)| sandbox.peer.caller(client, local));
    let caller = Arc::new(caller.unwrap_or(policy::egress::Caller::Unknown));
    Asker { conn: sandbox.number(), way, caller }
}
