//! Turns every way out of a sandbox into an attempt with a name that no policy lists, and tells which of them passed.
//! It refuses to know the policy; it runs inside, and trusts nothing but what it sees (row 26).

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use policy::seam::{CANARY, NAMES, PROXY};

/// How long one attempt may take; a way that answers nothing for so long is not closed but broken.
const LIMIT: Duration = Duration::from_secs(5);
/// Addresses that nothing in a sandbox may reach: a public one, a metadata service, and a synthetic one that no name has.
const AWAY: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(198, 19, 255, 254)),
];

/// Where the broker is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doors {
    /// The proxy.
    pub proxy: SocketAddr,
    /// The resolver, over UDP.
    pub names: SocketAddr,
}

impl Default for Doors {
    fn default() -> Self {
        Self { proxy: PROXY, names: NAMES }
    }
}

/// What an attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which way was tried.
    pub way: &'static str,
    /// What was seen.
    pub seen: Seen,
}

/// How a way behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It refused, as it must.
    Refused,
    /// It let the canary through.
    Passed,
    /// It did neither: the broker is not there, or not whole.
    Broken(String),
}

/// Tries every way.
pub fn attempts(doors: &Doors) -> Vec<Attempt> {
    let tunnel = format!("CONNECT {CANARY}:443 HTTP/1.1\r\nHost: {CANARY}:443\r\n\r\n");
    let plain = format!("GET http://{CANARY}/ HTTP/1.1\r\nHost: {CANARY}\r\nConnection: close\r\n\r\n");
    let mut all = vec![
        Attempt { way: "tunnel", seen: proxied(doors, &tunnel).unwrap_or_else(|error| broken(&error)) },
        Attempt { way: "plain request", seen: proxied(doors, &plain).unwrap_or_else(|error| broken(&error)) },
        Attempt { way: "name", seen: named(doors).unwrap_or_else(|error| broken(&error)) },
    ];
    let direct = AWAY.iter().flat_map(|ip| [80, 443].map(|port| SocketAddr::new(*ip, port)));
    all.extend(direct.map(|address| Attempt { way: "direct connection", seen: direct_to(address) }));
    all
}

fn broken(error: &io::Error) -> Seen {
    Seen::Broken(error.to_string())
}

/// A request to the proxy must be refused by policy.
fn proxied(doors: &Doors, request: &str) -> io::Result<Seen> {
    let mut stream = TcpStream::connect_timeout(&doors.proxy, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request.as_bytes())?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    Ok(match &status {
        b"HTTP/1.1 403" => Seen::Refused,
        b"HTTP/1.1 200" => Seen::Passed,
        other => Seen::Broken(String::from_utf8_lossy(other).into_owned()),
    })
}

/// The broker's own URL must be served, by its name and past the proxy, and serve nobody without a token (N14).
fn tools(own: &str) -> io::Result<Seen> {
    let mut addresses = std::net::ToSocketAddrs::to_socket_addrs(own)?;
    let address = addresses.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: {own}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        crate::mcp::PATH
    );
    stream.write_all(request.as_bytes())?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    Ok(match &status {
        // Where nothing is to be written, as in `check`, nobody serves tools at all.
        b"HTTP/1.1 401" | b"HTTP/1.1 501" => Seen::Refused,
        b"HTTP/1.1 200" => Seen::Passed,
        other => Seen::Broken(String::from_utf8_lossy(other).into_owned()),
    })
}

/// The resolver must know no such name.
fn named(doors: &Doors) -> io::Result<Seen> {
    let socket = UdpSocket::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    socket.set_read_timeout(Some(LIMIT))?;
    let mut question = vec![0x63, 0x72, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in CANARY.split('.') {
        question.push(u8::try_from(label.len()).map_err(io::Error::other)?);
        question.extend_from_slice(label.as_bytes());
    }
    question.extend_from_slice(&[0, 0, 1, 0, 1]);
    socket.send_to(&question, doors.names)?;
    let mut answer = [0; 512];
    let (count, _) = socket.recv_from(&mut answer)?;
    Ok(match answer.get(..count) {
        Some([_, _, _, flags, _, _, _, 0, ..]) if flags & 15 == 3 => Seen::Refused,
        _ => Seen::Passed,
    })
}

/// A direct connection must find no way, or one that ends without a byte.
fn direct_to(address: SocketAddr) -> Seen {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, LIMIT) else { return Seen::Refused };
    let request = format!("GET / HTTP/1.1\r\nHost: {CANARY}\r\nConnection: close\r\n\r\n");
    let mut status = [0; 12];
    let asked = stream.set_read_timeout(Some(LIMIT)).and_then(|()| stream.write_all(request.as_bytes()));
    match asked.and_then(|()| stream.read_exact(&mut status)) {
        Ok(()) if &status != b"HTTP/1.1 403" => Seen::Passed,
        _ => Seen::Refused,
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.seen {
            Seen::Refused => write!(f, "{}: refused", self.way),
            Seen::Passed => write!(f, "{}: the canary passed", self.way),
            Seen::Broken(why) => write!(f, "{}: broken ({why})", self.way),
        }
    }
}

/// The life of the probe: says what it saw, and succeeds when every way refused.
/// `own` is the host and port of the broker's own URL, where tools are served.
pub(crate) fn main(own: Option<&str>) -> ExitCode {
    let mut all = attempts(&Doors::default());
    all.extend(own.map(|own| Attempt {
        way: "tools without a token",
        seen: tools(own).unwrap_or_else(|error| broken(&error)),
    }));
    for attempt in &all {
        // Without a reader the code says enough.
        let _ = writeln!(io::stdout(), "{attempt}");
    }
    if all.iter().all(|attempt| attempt.seen == Seen::Refused) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
