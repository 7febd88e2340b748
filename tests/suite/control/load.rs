//! A thousand clients nobody wants, and a run that goes on all the same.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{COUNT, Pack, RAISE, Ran};

/// How many iterations the run has to come to under load.
const ITERATIONS: &str = "12";

#[test]
fn a_run_comes_to_the_same_end_under_a_thousand_hostile_clients() {
    let pack = Pack::new(RAISE, COUNT, "");
    let calm = pack.run(&["--iterations", ITERATIONS]);
    calm.ended("finished", 0);
    let over = AtomicBool::new(false);
    let met = AtomicUsize::new(0);
    let socket = pack.path("state/control.sock");
    let stormy = std::thread::scope(|scope| {
        for group in 0..10 {
            let (socket, over, met) = (&socket, &over, &met);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let held: Vec<UnixStream> =
                        (0..100).filter_map(|at| hostile(socket, group + at)).collect();
                    met.fetch_add(held.len(), Ordering::Relaxed);
                    if held.is_empty() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let ran = pack.run(&["--iterations", ITERATIONS]);
        over.store(true, Ordering::Relaxed);
        ran
    });
    stormy.ended("finished", 0);
    assert!(met.load(Ordering::Relaxed) >= 1000, "only {} clients came", met.load(Ordering::Relaxed));
    assert_eq!(stormy.decisions(), calm.decisions());
    let kinds = |ran: &Ran| -> Vec<String> {
        let kinds = ran.log.iter().map(|line| line["kind"].as_str().unwrap().to_owned());
        kinds.filter(|kind| kind != "note").collect()
    };
    assert_eq!(kinds(&stormy), kinds(&calm), "nothing of theirs is in the log");
    assert_eq!(pack.read("state/admissions.jsonl"), "");
}

/// One that says nothing, reads nothing, or says nonsense or far too much.
fn hostile(socket: &std::path::Path, kind: usize) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
    let text = match kind % 5 {
        0 => return Some(stream),
        1 => b"{\"cmd\":\"tail\",\"from\":1}\n".to_vec(),
        2 => vec![b'x'; 256 * 1024],
        3 => b"garbage\n".repeat(100),
        _ => b"{\"cmd\":\"status\"}\n".repeat(50),
    };
    let _ = stream.write_all(&text);
    Some(stream)
}
