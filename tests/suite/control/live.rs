//! A run that stands still in each turn until the test lets it go on, and an operator beside it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Output};

use serde_json::Value;

use crate::support::{COUNT, Pack, Ran};

/// Keeps its prompt, says that it runs, waits for the word, then raises the counter. What the test put into `ask` it
/// leaves as its own.
const AGENT: &str = "n=$(ls \"$SYNC\"/prompt.* 2>/dev/null | wc -l); cat > \"$SYNC/prompt.$((n + 1))\"; echo > \"$SYNC/ready\"; \
    read -r word < \"$SYNC/go\"; [ -e \"$SYNC/ask\" ] && mv \"$SYNC/ask\" PROVISIONING_PENDING.json; \
    c=$(cat counter.txt) && echo $((c + 1)) > counter.txt";

/// A pack whose agent waits for the test.
pub(super) fn pack() -> Pack {
    pack_with(COUNT)
}

/// The same with another judge, which has `$SYNC` too.
pub(super) fn pack_with(judge: &str) -> Pack {
    let pack = Pack::new(AGENT, judge, "");
    pack.write("sync/note", "where test and agent meet");
    for name in ["ready", "go"] {
        nix::unistd::mkfifo(&pack.path("sync").join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    pack
}

/// A live run.
pub(super) struct Live {
    pub(super) pack: std::rc::Rc<Pack>,
    child: RefCell<Option<Child>>,
}

impl Live {
    pub(super) fn start(args: &[&str]) -> Live {
        Live::of(pack(), args)
    }

    pub(super) fn of(pack: Pack, args: &[&str]) -> Live {
        Live::on(std::rc::Rc::new(pack), args)
    }

    fn on(pack: std::rc::Rc<Pack>, args: &[&str]) -> Live {
        let child = pack.command(args).env("SYNC", pack.path("sync")).spawn().unwrap();
        Live { pack, child: RefCell::new(Some(child)) }
    }

    /// Another run of the same pack, with the prompts of the one before out of the way.
    pub(super) fn again(&self, args: &[&str]) -> Live {
        for entry in std::fs::read_dir(self.pack.path("sync")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("prompt.") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
        Live::on(self.pack.clone(), args)
    }

    fn sync(&self, name: &str) -> PathBuf {
        self.pack.path("sync").join(name)
    }

    /// Waits until a turn has its prompt.
    #[track_caller]
    pub(super) fn turn(&self) {
        // The agent opens it when it runs; a run that ended instead would be waited for in vain.
        let opened = std::thread::spawn({
            let path = self.sync("ready");
            move || std::fs::read_to_string(path)
        });
        while !opened.is_finished() {
            let ended = self.child.borrow_mut().as_mut().and_then(|child| child.try_wait().unwrap());
            if let Some(status) = ended {
                let output = self.child.borrow_mut().take().unwrap().wait_with_output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                panic!("the run ended with {status} before the turn: {said}\n{}", self.pack.log_text());
            }
            std::thread::yield_now();
        }
        opened.join().unwrap().unwrap();
    }

    /// Lets the turn go on.
    pub(super) fn go(&self) {
        std::fs::File::options().write(true).open(self.sync("go")).unwrap().write_all(b"go\n").unwrap();
    }

    /// Leaves what the agent will ask for when it goes on.
    pub(super) fn ask(&self, mode: &str, handle: &str) {
        let text = format!(r#"{{"mode":"{mode}","trace_id":"t-{handle}","handle":"{handle}"}}"#);
        self.pack.write("sync/ask", &text);
    }

    /// The prompt of a turn, counted from 1.
    pub(super) fn prompt(&self, turn: u32) -> String {
        self.pack.read(&format!("sync/prompt.{turn}"))
    }

    /// What an operator's command comes to.
    pub(super) fn say(&self, args: &[&str]) -> Ran {
        Ran { output: self.pack.command(args).output().unwrap(), log: Vec::new() }
    }

    /// The output of an operator's command that must be done.
    #[track_caller]
    pub(super) fn ok(&self, args: &[&str]) -> String {
        let ran = self.say(args);
        assert_eq!(ran.code(), 0, "{args:?}: {}{}", ran.stdout(), ran.stderr());
        ran.stdout()
    }

    /// Reads the log as it grows until the run is in a phase.
    #[track_caller]
    pub(super) fn until_phase(&self, phase: &str) {
        self.until(&|line| line["kind"] == "phase" && line["phase"] == phase);
    }

    /// Reads the log as it grows until there is such a line.
    #[track_caller]
    pub(super) fn until(&self, found: &dyn Fn(&Value) -> bool) {
        loop {
            let over =
                self.child.borrow_mut().as_mut().is_none_or(|child| child.try_wait().unwrap().is_some());
            if self.seen(found) {
                return;
            }
            // An engine that has only begun is not heard of yet.
            assert!(!over, "{}", self.pack.log_text());
        }
    }

    fn seen(&self, found: &dyn Fn(&Value) -> bool) -> bool {
        let mut tail = self.pack.command(&["tail", "--follow", "--json", "--from", "1"]).spawn().unwrap();
        let lines = BufReader::new(tail.stdout.take().unwrap()).lines();
        let seen = lines
            .map_while(Result::ok)
            .any(|line| serde_json::from_str(&line).is_ok_and(|line| found(&line)));
        let _ = tail.kill();
        let _ = tail.wait();
        seen
    }

    /// Ends the engine as a lost machine would.
    pub(super) fn kill(&self) {
        let mut child = self.child.borrow_mut().take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits for the end of the run.
    pub(super) fn end(&self) -> Ran {
        let output: Output = self.child.borrow_mut().take().unwrap().wait_with_output().unwrap();
        Ran { output, log: self.pack.log() }
    }

    /// The lines of the ledger.
    pub(super) fn ledger(&self) -> Vec<Value> {
        let text = self.pack.read("state/admissions.jsonl");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What was settled, in order: the input and its outcome.
    pub(super) fn settlements(&self) -> Vec<(String, String)> {
        let ledger = self.ledger();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let input = |key: &Value| {
            let admitted = ledger.iter().find(|line| line["kind"] == "admitted" && line["key"] == *key);
            text(&admitted.unwrap()["input"])
        };
        let settled = ledger.iter().filter(|line| line["kind"] == "settled");
        settled.map(|line| (input(&line["key"]), text(&line["outcome"]))).collect()
    }

    /// The phases, each with its iteration.
    pub(super) fn phases(&self) -> Vec<String> {
        let log = self.pack.log();
        let phases = log.iter().filter(|line| line["kind"] == "phase");
        phases.map(|line| format!("{} {}", line["phase"].as_str().unwrap(), line["iter"])).collect()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.borrow_mut().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
