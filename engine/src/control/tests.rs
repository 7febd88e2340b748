//! A control server with real sockets: what it answers, whom it cuts off, and that the loop's side never waits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::dial::Place;
use super::limits::{CLIENTS_MAX, FAULTS_MAX, LINE_MAX};
use super::*;
use crate::admission::{Input, Ledger, Settlement};
use crate::log::{Durability, Phase, SessionEvent, SessionLog};
use crate::sys::clock::Clock;
use crate::sys::fs::{PrivateFile, private_file};

/// A run's directory with a log and a control server.
struct Run {
    dir: tempfile::TempDir,
    log: SessionLog,
    control: Control,
}

impl Run {
    fn new(tcp: Option<(SocketAddr, String)>) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("session.jsonl");
        let file = private_file(&path, PrivateFile::Append).unwrap();
        let log = SessionLog::new(file, &path, Clock::start()).unwrap();
        let ledger = Ledger::open(&dir.path().join(ADMISSIONS_FILE), Clock::start()).unwrap();
        let config = Config { socket: dir.path().join(SOCKET_FILE), log: path, tcp };
        let control = Control::start(config, ledger).unwrap();
        Run { dir, log, control }
    }

    fn write(&mut self, event: &SessionEvent) {
        let seq = self.log.append(event, Durability::Buffered).unwrap();
        self.control.tell(seq, event);
    }

    fn note(&mut self, msg: &str) {
        self.write(&SessionEvent::Note { msg: msg.to_owned() });
    }

    fn dial(&self) -> Dial {
        Dial::to(&Place::State(self.dir.path().to_owned())).unwrap()
    }

    fn raw(&self) -> UnixStream {
        let stream = crate::sys::socket::connect(&self.dir.path().join(SOCKET_FILE)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn ledger(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(ADMISSIONS_FILE)).unwrap()
    }
}

fn refusal(answer: Result<Value, DialError>) -> String {
    match answer {
        Err(DialError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// Everything until the other end closes.
fn rest(mut stream: impl Read) -> String {
    let mut text = Vec::new();
    // A connection that is cut with bytes unread is reset, which is an end too.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn an_input_is_recorded_and_arrives_once_however_often_it_is_delivered() {
    let mut run = Run::new(None);
    let mut dial = run.dial();
    let steer = json!({ "cmd": "steer", "text": "faster", "id": "pr-comment:owner/repo#7:12345" });
    let first = dial.ask(&steer).unwrap();
    assert_eq!(first, json!({ "ok": true, "cmd": "steer", "key": "pr-comment:owner/repo#7:12345" }));
    let arrival = run.control.arrived().unwrap();
    assert_eq!(arrival.input, Input::Steer { text: "faster".into() });
    let again = run.dial().ask(&steer).unwrap();
    assert_eq!((&again["dup"], again.get("outcome")), (&json!(true), None));
    assert!(run.control.arrived().is_none());
    let office = run.control.office().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(office.settle(arrival.key, Settlement::Applied, "iteration 1".into())).unwrap();
    assert_eq!(dial.ask(&steer).unwrap()["outcome"], "applied");
    let before = run.ledger();
    let other = json!({ "cmd": "steer", "text": "slower", "id": "pr-comment:owner/repo#7:12345" });
    let why = refusal(dial.ask(&other));
    assert!(why.starts_with("idempotency conflict: "), "{why}");
    assert_eq!(run.ledger(), before, "a conflict writes nothing");
    let keys: Vec<Value> = (0..2).map(|_| dial.ask(&json!("pause")).unwrap()["key"].clone()).collect();
    assert_ne!(keys[0], keys[1], "without an id every delivery is a fresh input");
    assert_eq!(run.ledger().lines().count(), 4);
}

#[test]
fn status_tells_the_phase_of_the_log_and_what_is_owed() {
    let mut run = Run::new(None);
    run.write(&SessionEvent::Phase { phase: Phase::Iteration, iter: 3 });
    let mut dial = run.dial();
    dial.ask(&json!({ "cmd": "pause", "id": "p" })).unwrap();
    let status = dial.ask(&json!({ "cmd": "status" })).unwrap();
    assert_eq!(
        (&status["phase"], &status["iter"], &status["seq"]),
        (&json!("iteration"), &json!(3), &json!(1))
    );
    assert_eq!(status["owed"], json!([{ "key": "p", "input": "pause" }]));
}

#[test]
fn a_tail_has_every_line_from_its_number_to_the_last_one() {
    let mut run = Run::new(None);
    for at in 1..=5 {
        run.note(&at.to_string());
    }
    let mut dial = run.dial();
    let answer = dial.ask(&json!({ "cmd": "tail", "from": 4 })).unwrap();
    assert_eq!(answer["from"], 4);
    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        dial.drain(&mut |piece| {
            text.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
        String::from_utf8(text).unwrap()
    });
    for at in 6..=300 {
        run.note(&at.to_string());
    }
    let expect = std::fs::read_to_string(run.dir.path().join("session.jsonl")).unwrap();
    drop(run);
    let got = reading.join().unwrap();
    let expect: String = expect.lines().skip(3).map(|line| format!("{line}\n")).collect();
    assert_eq!(got, expect);
}

#[test]
fn over_tcp_nothing_is_done_without_the_token() {
    let loopback = "127.0.0.1:0".parse().unwrap();
    let run = Run::new(Some((loopback, "secret".to_owned())));
    let address = run.control.tcp().unwrap();
    let token = |token: &str| Dial::to(&Place::Tcp(address, token.to_owned()));
    for wrong in ["", "secre", "secret "] {
        assert!(matches!(token(wrong), Err(DialError::Refused { .. })), "{wrong}");
    }
    assert!(token("secret").unwrap().ask(&json!("status")).is_ok());
    for first in ["{\"cmd\":\"status\"}\n", "{\"cmd\":\"stop\"}\n", "POST / HTTP/1.1\r\n", "\u{1}\n"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(first.as_bytes()).unwrap();
        let answer = rest(stream);
        assert!(answer.contains("auth") && !answer.contains("\"ok\":true"), "{first}: {answer}");
    }
    assert_eq!(run.ledger(), "");
}

#[test]
fn a_control_server_is_never_open() {
    let dir = tempfile::tempdir().unwrap();
    let start = |address: &str, token: &str| {
        let ledger = Ledger::open(&dir.path().join(ADMISSIONS_FILE), Clock::start()).unwrap();
        let tcp = Some((address.parse().unwrap(), token.to_owned()));
        Control::start(
            Config { socket: dir.path().join(SOCKET_FILE), log: dir.path().join("log"), tcp },
            ledger,
        )
    };
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        assert!(matches!(start(open, "secret"), Err(ControlError::NotLoopback(_))), "{open}");
    }
    assert!(matches!(start("127.0.0.1:0", ""), Err(ControlError::NoToken)));
}

#[test]
fn a_hostile_client_is_cut_off() {
    let run = Run::new(None);
    let mut garbage = run.raw();
    garbage.write_all("nonsense\n\n".repeat(20).as_bytes()).unwrap();
    let answers = rest(garbage);
    let refused = answers.lines().filter(|line| line.contains("not a request")).count();
    assert_eq!(refused, usize::try_from(FAULTS_MAX).unwrap());
    let mut huge = run.raw();
    // It is cut off while it still writes.
    let _ = huge.write_all(&vec![b'x'; 4 * LINE_MAX]);
    let answer = rest(huge);
    assert!(answer.is_empty() || answer.contains("more than"), "{answer}");
    assert!(run.dial().ask(&json!("status")).is_ok(), "others are served all the same");
}

#[test]
fn who_only_holds_connections_keeps_nobody_out() {
    let run = Run::new(None);
    let holders: Vec<UnixStream> = (0..4 * CLIENTS_MAX).map(|_| run.raw()).collect();
    assert!(run.dial().ask(&json!({ "cmd": "stop" })).is_ok());
    drop(holders);
}

#[test]
fn a_thousand_clients_change_nothing_for_the_loop() {
    let mut run = Run::new(None);
    let enough = AtomicBool::new(false);
    let socket = run.dir.path().join(SOCKET_FILE);
    let done = std::thread::scope(|scope| {
        for group in 0..10 {
            let (socket, enough) = (&socket, &enough);
            scope.spawn(move || {
                while !enough.load(Ordering::Relaxed) {
                    let clients: Vec<UnixStream> =
                        (0..100).filter_map(|at| client(socket, group + at)).collect();
                    drop(clients);
                }
            });
        }
        // The loop's side: lines are told and inputs taken, whatever the clients do.
        let mut told = 0u32;
        while told < 20_000 {
            run.note("x");
            while run.control.arrived().is_some() {}
            told += 1;
        }
        let answer = run.dial().ask(&json!("stop"));
        enough.store(true, Ordering::Relaxed);
        (told, answer.is_ok())
    });
    assert_eq!(done, (20_000, true), "the loop went on, and an operator got through");
}

/// One of the kinds of clients that nobody wants.
fn client(socket: &Path, kind: usize) -> Option<UnixStream> {
    let mut stream = crate::sys::socket::connect(socket).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(20))).ok()?;
    let text = match kind % 5 {
        0 => return Some(stream),
        1 => b"{\"cmd\":\"tail\",\"from\":1}\n".to_vec(),
        2 => vec![b'x'; 2 * LINE_MAX],
        3 => b"garbage\n".repeat(100),
        _ => b"{\"cmd\":\"status\"}\n".repeat(100),
    };
    let _ = stream.write_all(&text);
    Some(stream)
}

#[test]
fn a_client_that_reads_nothing_is_not_waited_for_at_the_end() {
    let mut run = Run::new(None);
    for _ in 0..200 {
        run.note(&"x".repeat(10_000));
    }
    let mut slow = run.raw();
    slow.write_all(b"{\"cmd\":\"tail\",\"from\":1}\n").unwrap();
    let mut first = String::new();
    BufReader::new(slow.try_clone().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("\"ok\":true"), "{first}");
    let whole = std::fs::read(run.dir.path().join("session.jsonl")).unwrap().len();
    drop(run);
    assert!(rest(slow).len() < whole, "it was cut off with the rest unread");
}
