//! Turns a connection that knows no proxy into a judged one, by the address at which it arrived and its first bytes.
//! It refuses to trust what it says about where it wants to go.

use policy::egress::Carry;
use policy::host::Target;
use policy::reason::Reason;
use tokio::net::TcpStream;

use super::conn::Conn;
use super::dial::dial;
use super::proxy::{self, Judged, Kind, Over, Standing};
use crate::admit::{Asker, Question, Sandbox, Spoken};
use crate::core::answer::TLS_REFUSAL;
use crate::core::hello;
use crate::limits::Limits;

/// Serves one client connection. `target` is that of an entry that names loopback; otherwise the address tells.
pub(crate) async fn serve(sandbox: &Sandbox, asker: &Asker, stream: TcpStream, target: Option<Target>) {
    let Ok(local) = stream.local_addr() else { return };
    let mut client = Conn::new(stream);
    let Some(target) = target.or_else(|| sandbox.arrived_at(local)) else {
        let asked = local.to_string();
        let reason = sandbox.refuse(asker, &asked, None, Reason::NotATarget);
        return refuse(sandbox, client, &asked, reason).await;
    };
    let asked = target.to_string();
    // What only carries bytes must not wait for the client to speak: some servers speak first.
    let spoken =
        if raw(sandbox, asker, &target) { Spoken::Other } else { spoken(sandbox, &mut client).await };
    match spoken {
        Spoken::Http => Box::pin(http(sandbox, asker, client, &target)).await,
        _ => {
            let standing = Box::pin(establish(sandbox, asker, client, &target, &asked, spoken)).await;
            proxy::carry(sandbox, standing).await;
        }
    }
}

/// Whether the policy would let anything flow; nothing is decided or recorded here.
fn raw(sandbox: &Sandbox, asker: &Asker, target: &Target) -> bool {
    let ask = policy::egress::Ask { way: asker.way, target, caller: &asker.caller, method: None };
    sandbox.egress().decide(&ask).is_ok_and(|grant| grant.carry == Carry::Raw)
}

/// What the first byte tells.
async fn spoken(sandbox: &Sandbox, client: &mut Conn) -> Spoken {
    let limit = Limits::time(sandbox.limits().hello_timeout);
    let first = |buf: &[u8]| Ok::<_, Reason>(buf.first().copied());
    match client.until(limit, Reason::HelloLate, first).await {
        Ok(Some(byte)) if hello::is_tls(byte) => Spoken::Tls,
        Ok(Some(byte)) if byte.is_ascii_uppercase() => Spoken::Http,
        _ => Spoken::Other,
    }
}

/// A tunnel, judged by its first bytes before it is asked for. Without one the client has its answer.
async fn establish(
    sandbox: &Sandbox,
    asker: &Asker,
    mut client: Conn,
    target: &Target,
    asked: &str,
    spoken: Spoken,
) -> Option<Standing> {
    let judged = if spoken == Spoken::Tls && allowed(sandbox, asker, target) {
        let fits = proxy::judge_hello(sandbox, &mut client, target).await;
        fits.map_err(|reason| sandbox.refuse(asker, asked, Some(target), reason))
    } else {
        Ok(Judged::Nothing)
    };
    let question = Question { asked, target, method: None, spoken };
    let permit = match judged {
        Ok(_) => sandbox.admit(asker, question, None).await,
        Err(reason) => Err(reason),
    };
    let dialled = match &permit {
        // A policy that came into force between may ask for a hello that nobody judged.
        Ok(permit) if permit.carry() != Carry::Raw && judged != Ok(Judged::Fits) => {
            Err(Reason::HelloMalformed)
        }
        Ok(permit) => dial(permit, &sandbox.shared.outside, sandbox.limits()).await,
        Err(reason) => Err(*reason),
    };
    match (dialled, permit) {
        (Ok(server), Ok(permit)) => return Some(Standing { client, server, permit }),
        (Err(reason), Ok(permit)) => {
            sandbox.close(&permit, 0, 0, Some(reason));
            refuse(sandbox, client, asked, reason).await;
        }
        (_, Err(reason)) => refuse(sandbox, client, asked, reason).await,
    }
    None
}

/// Whether the policy lets TLS to the target pass, so that only then its hello is what decides.
fn allowed(sandbox: &Sandbox, asker: &Asker, target: &Target) -> bool {
    let ask = policy::egress::Ask { way: asker.way, target, caller: &asker.caller, method: None };
    sandbox.egress().decide(&ask).is_ok_and(|grant| grant.carry == Carry::TlsOrHttp)
}

/// Plain requests in origin form, each for the connection's own target.
async fn http(sandbox: &Sandbox, asker: &Asker, mut client: Conn, target: &Target) {
    let mut kept = None;
    loop {
        let request = match proxy::next(sandbox, &mut client, Some(target)).await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(bad) => return proxy::refuse_head(sandbox, asker, client, &bad).await,
        };
        let fits = match &request.kind {
            Kind::Origin(fits) => *fits,
            Kind::Plain(named) if named == target => Ok(()),
            Kind::Plain(_) | Kind::Tunnel(_) | Kind::Other(_) => Err(Reason::HostMismatch),
        };
        if let Err(reason) = fits {
            let reason = sandbox.refuse(asker, &request.asked, Some(target), reason);
            return client
                .farewell(&proxy::refusal(sandbox, reason, &request.asked, false, false).await)
                .await;
        }
        match proxy::plain(sandbox, asker, client, &request, target, kept).await {
            Ok((next, keep)) => (client, kept) = (next, keep),
            Err(Over) => return,
        }
    }
}

/// Answers in the language that the client began in.
async fn refuse(sandbox: &Sandbox, client: Conn, asked: &str, reason: Reason) {
    sandbox.settle().await;
    let first = client.buf.first().copied();
    let answer = match first {
        Some(byte) if hello::is_tls(byte) => TLS_REFUSAL.to_vec(),
        Some(byte) if byte.is_ascii_uppercase() => proxy::refusal_now(sandbox, reason, asked, false, false),
        _ => Vec::new(),
    };
    client.farewell(&answer).await;
}
