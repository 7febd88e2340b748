//! Turns listening sockets inside a sandbox into connections that are served, as many as may be open.
//! It refuses to know what is asked on them.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use policy::egress::Way;
use policy::host::Target;
use policy::reason::Reason;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{direct, names, proxy};
use crate::admit::Sandbox;

/// How long accepting rests when the machine, not the limit, is exhausted.
const REST: Duration = Duration::from_millis(50);

/// Connections to the broker's own URL that are served at one time. Others wait in the socket's queue: a call that is refused
/// is refused by its bound, with its row, and not because many came at once.
const OWN_CONNECTIONS: usize = 256;

/// What a listener is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Proxy,
    Names,
    Transparent,
    Loopback(Target),
    Own,
}

/// Accepts until the task is ended. Running out of descriptors refuses new connections and keeps the old: a descriptor in
/// reserve takes the new one and closes it.
pub(crate) async fn accept(sandbox: Arc<Sandbox>, listener: TcpListener, purpose: Purpose) {
    let mut reserve = File::open("/dev/null").ok();
    let room = (purpose == Purpose::Own).then(|| Arc::new(Semaphore::new(OWN_CONNECTIONS)));
    loop {
        let place = match &room {
            Some(room) => Arc::clone(room).acquire_owned().await.ok(),
            None => None,
        };
        match listener.accept().await {
            Ok((stream, _)) => match place {
                Some(place) => call_one(&sandbox, stream, place),
                None => admit_one(&sandbox, stream, &purpose).await,
            },
            Err(error) if exhausted(&error) => {
                drop(reserve.take());
                let stream = listener.accept().await;
                let asker = crate::admit::Asker {
                    conn: sandbox.number(),
                    way: purpose.way(),
                    caller: Arc::new(policy::egress::Caller::Unknown),
                };
                sandbox.refuse(&asker, "", None, Reason::NoDescriptors);
                sandbox.settle().await;
                drop(stream);
                reserve = File::open("/dev/null").ok();
                tokio::time::sleep(REST).await;
            }
            // The client gave up between its arrival and now.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

fn exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(
        code,
        Some(
            rustix::io::Errno::MFILE
                | rustix::io::Errno::NFILE
                | rustix::io::Errno::NOBUFS
                | rustix::io::Errno::NOMEM
        )
    )
}

/// Serves a connection to the broker's own URL.
fn call_one(sandbox: &Arc<Sandbox>, stream: TcpStream, place: OwnedSemaphorePermit) {
    let task = Arc::clone(sandbox);
    sandbox.spawn(async move {
        serve(&task, stream, Purpose::Own).await;
        drop(place);
    });
}

/// Serves a connection in a task of its own, or refuses it when too many are open.
async fn admit_one(sandbox: &Arc<Sandbox>, stream: TcpStream, purpose: &Purpose) {
    let (sandbox, purpose) = (Arc::clone(sandbox), purpose.clone());
    if !sandbox.open.enter(sandbox.limits().connections) {
        return refuse(sandbox, stream, &purpose).await;
    }
    // A tunnel ends itself with the turn, to record what flowed; the rest is ended from outside.
    let task = Arc::clone(&sandbox);
    sandbox.spawn(async move {
        let guard = Entered(&task);
        serve(&task, stream, purpose).await;
        drop(guard);
    });
}

/// Refuses a connection as one too many. Its record is on the way to the disk while others are accepted, and those of many
/// refusals go there together; as many as wait for that at most, the next one waits here.
async fn refuse(sandbox: Arc<Sandbox>, stream: TcpStream, purpose: &Purpose) {
    // The semaphore is never closed; without a place the connection would end unanswered.
    let Ok(place) = Arc::clone(&sandbox.doorstep).acquire_owned().await else { return };
    let asker = proxy::asker(&sandbox, &stream, purpose.way());
    let reason = sandbox.refuse(&asker, "", None, Reason::TooManyConnections);
    let answer = (*purpose == Purpose::Proxy).then(|| proxy::refusal_now(&sandbox, reason, "", false, false));
    let task = Arc::clone(&sandbox);
    sandbox.spawn(async move {
        task.settle().await;
        if let Some(answer) = answer {
            // One try: a socket that was just accepted takes so little at once, and a client in the way of others gets no more.
            let _ = stream.try_write(&answer);
        }
        drop((stream, place));
    });
}

/// Counts a connection out again, however it ends.
struct Entered<'a>(&'a Sandbox);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.open.leave();
    }
}

async fn serve(sandbox: &Arc<Sandbox>, stream: TcpStream, purpose: Purpose) {
    // Small answers must not wait for more.
    let _ = stream.set_nodelay(true);
    let mut asker = proxy::asker(sandbox, &stream, purpose.way());
    match purpose {
        Purpose::Proxy => proxy::serve(sandbox, &mut asker, stream).await,
        Purpose::Names => names::tcp(sandbox, stream).await,
        Purpose::Transparent => direct::serve(sandbox, &asker, stream, None).await,
        Purpose::Loopback(target) => direct::serve(sandbox, &asker, stream, Some(target)).await,
        Purpose::Own => {
            if let Some(face) = &sandbox.shared.face {
                return face.serve(Arc::clone(sandbox), asker, stream).await;
            }
            let reason = sandbox.refuse(&asker, "", None, Reason::ToolsNotServed);
            let answer = proxy::refusal(sandbox, reason, "", false, false).await;
            super::conn::Conn::new(stream).farewell(&answer).await;
        }
    }
}

impl Purpose {
    fn way(&self) -> Way {
        match self {
            Self::Proxy => Way::Connect,
            Self::Names => Way::Name,
            Self::Transparent => Way::Transparent,
            Self::Loopback(_) => Way::Loopback,
            Self::Own => Way::Own,
        }
    }
}
