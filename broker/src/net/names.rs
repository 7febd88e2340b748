//! Turns questions for names that a sandbox asks into answers, over UDP and TCP.
//! It refuses to ask anybody else.

use std::sync::{Arc, PoisonError};

use policy::egress::{Caller, Way};
use policy::host::Host;
use policy::reason::Reason;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket};

use super::conn::Conn;
use crate::admit::{Asker, Sandbox};
use crate::core::dns::{self, Answer, QUESTION_MAX};
use crate::limits::Limits;

/// Answers questions over UDP until the socket fails. A refusal waits for its record apart, so that the next question does
/// not wait for it.
pub(crate) async fn udp(sandbox: Arc<Sandbox>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut buf = [0; QUESTION_MAX];
    while let Ok((count, from)) = socket.recv_from(&mut buf).await {
        let answered = answer(&sandbox, buf.get(..count).unwrap_or_default());
        match answered {
            // An answer that is lost is asked for again.
            Some((answer, false)) => drop(socket.send_to(&answer, from).await),
            Some((answer, true)) if sandbox.open.enter(sandbox.limits().connections) => {
                let (socket, task) = (Arc::clone(&socket), Arc::clone(&sandbox));
                sandbox.spawn(async move {
                    task.settle().await;
                    drop(socket.send_to(&answer, from).await);
                    task.open.leave();
                });
            }
            _ => {}
        }
    }
}

/// Answers questions over one TCP connection, each behind two bytes of length.
pub(crate) async fn tcp(sandbox: &Sandbox, stream: TcpStream) {
    let mut conn = Conn::new(stream);
    let limit = Limits::time(sandbox.limits().head_timeout);
    let read = |buf: &[u8]| {
        let Some((&[high, low], rest)) = buf.split_first_chunk::<2>() else { return Ok(None) };
        let length = usize::from(high) << 8 | usize::from(low);
        Ok::<_, Reason>(rest.get(..length).map(<[u8]>::to_vec))
    };
    while let Ok(Some(question)) = conn.until(limit, Reason::HeadLate, read).await {
        conn.consume(question.len() + 2);
        let Some((answer, refused)) = answer(sandbox, &question) else { return };
        if refused {
            sandbox.settle().await;
        }
        let mut framed = u16::try_from(answer.len()).unwrap_or(u16::MAX).to_be_bytes().to_vec();
        framed.extend_from_slice(&answer);
        if conn.stream.write_all(&framed).await.is_err() {
            return;
        }
    }
}

/// The answer to one message, and whether it is a refusal that was recorded. A name that is not allowed is recorded, and never looked for anywhere.
fn answer(sandbox: &Sandbox, message: &[u8]) -> Option<(Vec<u8>, bool)> {
    let question = match dns::read(message)? {
        Ok(question) => question,
        Err(refusal) => return Some((refusal, false)),
    };
    let egress = sandbox.egress();
    let name = question.name.clone().filter(|name| egress.knows(&Host::Name(name.clone())));
    let answer = match name {
        Some(name) if name.as_str() == "localhost" => Answer::Known(std::net::Ipv4Addr::LOCALHOST),
        Some(name) => {
            let mut names = sandbox.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.address(&name).map_or(Answer::Failed, Answer::Known)
        }
        None => {
            let asker = Asker { conn: sandbox.number(), way: Way::Name, caller: Arc::new(Caller::Unknown) };
            sandbox.refuse(&asker, &question.asked, None, Reason::HostNotListed);
            Answer::NoName
        }
    };
    Some((question.answer(answer), answer == Answer::NoName))
}
