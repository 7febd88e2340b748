//! Turns sockets into load: an origin that answers, and clients that ask through a proxy.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const BODY: usize = 1024;
/// The longest that a proxy may say nothing; one that does has failed the scenario.
const SILENCE: Duration = Duration::from_secs(10);

/// A server that answers requests with 1 kB, and lines that are none with what came.
pub(crate) struct Origin {
    pub(crate) at: SocketAddr,
}

impl Origin {
    /// `bulk` is how many bytes of a bulk transfer it waits for.
    pub(crate) fn start(bulk: usize) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::Builder::new().stack_size(64 * 1024).spawn(move || answer(stream, bulk)).unwrap();
            }
        });
        Self { at }
    }
}

fn answer(mut stream: TcpStream, whole: usize) {
    stream.set_nodelay(true).unwrap();
    let page = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
    let mut buf = vec![0; 32 * 1024];
    let mut bulk = 0;
    loop {
        let Ok(count @ 1..) = stream.read(&mut buf) else { return };
        if bulk > 0 || buf.starts_with(b"BULK") {
            bulk += count;
            if bulk >= whole && stream.write_all(b".").is_err() {
                return;
            }
            continue;
        }
        let sent = if buf.starts_with(b"GET ") {
            stream.write_all(page.as_bytes())
        } else {
            stream.write_all(&buf[..count])
        };
        if sent.is_err() {
            return;
        }
    }
}

fn open(proxy: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(proxy).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    stream
}

fn head(stream: &mut TcpStream) -> Vec<u8> {
    let mut got = Vec::new();
    let mut buf = [0; 4096];
    while !got.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buf).unwrap() {
            0 => break,
            count => got.extend_from_slice(&buf[..count]),
        }
    }
    got
}

/// A tunnel that was refused.
pub(crate) fn denied(proxy: SocketAddr) {
    let mut stream = open(proxy);
    stream.write_all(b"CONNECT denied.invalid:443 HTTP/1.1\r\nHost: denied.invalid:443\r\n\r\n").unwrap();
    let got = head(&mut stream);
    assert!(
        got.starts_with(b"HTTP/1.1 403") || got.starts_with(b"HTTP/1.0 403"),
        "{}",
        String::from_utf8_lossy(&got)
    );
}

/// A tunnel that stands.
pub(crate) fn tunnel(proxy: SocketAddr, origin: SocketAddr) -> TcpStream {
    let mut stream = open(proxy);
    stream.write_all(format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n").as_bytes()).unwrap();
    let got = head(&mut stream);
    assert!(
        got.starts_with(b"HTTP/1.1 200") || got.starts_with(b"HTTP/1.0 200"),
        "{}",
        String::from_utf8_lossy(&got)
    );
    stream
}

/// One kilobyte there and back.
pub(crate) fn ping(stream: &mut TcpStream, times: u32) {
    let out = [7; BODY];
    let mut back = [0; BODY];
    for _ in 0..times {
        stream.write_all(&out).unwrap();
        stream.read_exact(&mut back).unwrap();
    }
}

/// Many bytes in one direction; the far end tells that all arrived.
pub(crate) fn bulk(stream: &mut TcpStream, bytes: usize) {
    let mut chunk = vec![0; 64 * 1024];
    chunk[..4].copy_from_slice(b"BULK");
    for _ in 0..bytes / chunk.len() {
        stream.write_all(&chunk).unwrap();
    }
    stream.read_exact(&mut [0; 1]).unwrap();
}

/// Plain requests on one connection.
pub(crate) fn forward(proxy: SocketAddr, origin: SocketAddr, times: u32) {
    let mut stream = open(proxy);
    let ask = format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n");
    for _ in 0..times {
        stream.write_all(ask.as_bytes()).unwrap();
        let mut got = head(&mut stream);
        if got.is_empty() {
            // A proxy that closes after each answer without saying so.
            stream = open(proxy);
            stream.write_all(ask.as_bytes()).unwrap();
            got = head(&mut stream);
        }
        let end = got.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let status = got.get(9..12).map(String::from_utf8_lossy);
        assert_eq!(status.as_deref(), Some("200"), "{}", String::from_utf8_lossy(&got));
        let mut rest = vec![0; BODY - (got.len() - end)];
        stream.read_exact(&mut rest).unwrap();
        if String::from_utf8_lossy(&got[..end]).to_lowercase().contains("connection: close") {
            stream = open(proxy);
        }
    }
}
