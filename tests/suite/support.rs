//! A pack in a temporary directory, the binary run on it, and what it left.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The binary that carries what was built.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_crucible-under-test");

/// The root of the source tree.
pub(crate) fn source_tree() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

/// A pack that can be run.
pub(crate) struct Pack {
    dir: TempDir,
}

/// What a run left.
pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) log: Vec<Value>,
}

impl Pack {
    /// A pack whose repository is a directory `start` with one file, `counter.txt`, at 0.
    ///
    /// `agent` is the agent command; `judge` is the text of `measure.sh`, frozen. `more` are further manifest lines,
    /// with their tables.
    pub(crate) fn new(agent: &str, judge: &str, more: &str) -> Pack {
        let pack = Pack { dir: tempfile::tempdir().unwrap() };
        pack.write("start/counter.txt", "0\n");
        pack.write("measure.sh", judge);
        let agent = toml_string(agent);
        pack.write(
            "crucible.toml",
            &format!(
                "[repo]\npath = \"start\"\n[workspace]\ninject = [\"measure.sh\"]\n[agent]\nbackend = \"command\"\nagent_cmd = {agent}\n\
                 [judge]\nmeasure_cmd = \"sh ./measure.sh\"\ndirection = \"higher\"\n{more}"
            ),
        );
        pack
    }

    /// A counter that an agent raises, with a judge that reads it.
    pub(crate) fn counter() -> Pack {
        Pack::new(RAISE, COUNT, "")
    }

    /// An empty directory.
    pub(crate) fn empty() -> Pack {
        Pack { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// The binary, to be run in the pack's directory without a terminal.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = binary();
        command.args(args).current_dir(self.dir.path());
        command
    }

    /// Runs the pack to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran { output, log: self.log() }
    }

    /// The lines of the session log, each of which must be JSON.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("state/session.jsonl")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// The session log as it is now, torn lines and all.
    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(self.path("state/session.jsonl")).unwrap_or_default()
    }

    /// Runs git on the repository in the workspace, as a person would.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(&self.path("workspace"), args)
    }
}

impl Ran {
    pub(crate) fn code(&self) -> i32 {
        self.output.status.code().unwrap_or(-1)
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub(crate) fn events<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.log.iter().filter(move |line| line["kind"] == kind)
    }

    pub(crate) fn rows(&self) -> Vec<&Value> {
        self.events("row").map(|line| &line["row"]).collect()
    }

    /// The decisions of the iterations, the baseline's first.
    pub(crate) fn decisions(&self) -> Vec<&str> {
        self.rows().iter().map(|row| row["decision"].as_str().unwrap()).collect()
    }

    pub(crate) fn outcome(&self) -> &str {
        let last = self.log.last().unwrap_or_else(|| panic!("no log: {}", self.stderr()));
        assert_eq!(last["kind"], "shutdown", "the last line is {last}");
        last["outcome"].as_str().unwrap()
    }

    /// The run must have ended this way.
    #[track_caller]
    pub(crate) fn ended(&self, outcome: &str, code: i32) {
        assert_eq!((self.outcome(), self.code()), (outcome, code), "{}\n{}", self.stdout(), self.stderr());
    }
}

/// Adds one to `counter.txt`.
pub(crate) const RAISE: &str = "n=$(cat counter.txt) && echo $((n + 1)) > counter.txt";

/// Reads `counter.txt` as the score.
pub(crate) const COUNT: &str = "printf '{\"valid\": true, \"score\": %s}\\n' \"$(cat counter.txt)\"\n";

/// The binary without a terminal and with a plain environment.
#[expect(clippy::disallowed_methods, reason = "tests start the binary as a person would")]
pub(crate) fn binary() -> Command {
    let mut command = Command::new(BINARY);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Any program of the machine.
#[expect(clippy::disallowed_methods, reason = "tests start programs as a person would")]
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs git to a success and returns what it printed.
#[track_caller]
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let identity =
        ["-c", "user.name=person", "-c", "user.email=person@example.com", "-c", "init.defaultBranch=main"];
    let output = program("git").arg("-C").arg(dir).args(identity).args(args).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A TOML literal of any text.
pub(crate) fn toml_string(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// A test that cannot run here: under CI that is a failure, unless the reason is one of the known ones.
pub(crate) fn skip(why: Skip) {
    let reason = why.reason();
    let known = matches!(why, Skip::NotRoot);
    #[expect(clippy::disallowed_methods, reason = "the test asks what it runs under")]
    let ci = std::env::var_os("CI").is_some();
    assert!(!ci || known, "skipped under CI: {reason}");
    eprintln!("skipped: {reason}");
}

/// Why a test may skip.
#[derive(Clone, Copy)]
pub(crate) enum Skip {
    /// Becoming another user takes root, which a person's machine need not give.
    NotRoot,
    /// What a benchmark compares with is driven by a Python script.
    NoPython,
    /// A file system of its own needs a namespace, which a container may refuse.
    NoNamespaces,
    /// System calls are counted by a tracer, which `.ci/run` installs.
    NoStrace,
    /// The tools of agents are installed by `.ci/run`, from npm.
    NoAgents,
}

impl Skip {
    fn reason(self) -> &'static str {
        match self {
            Skip::NoAgents => {
                "Claude Code and Codex are not installed: `.ci/run` does, into target/tools/agents"
            }
            Skip::NoStrace => "no /usr/bin/strace, so flushes cannot be counted: `.ci/run` installs it",
            Skip::NotRoot => "not root, so it cannot become another user",
            Skip::NoPython => "no python3 can be had",
            Skip::NoNamespaces => "no mount namespaces here, so no file system that can fill up",
        }
    }
}

/// A server of this host that says hello to every request; answers its port.
pub(crate) fn hello_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                request.extend(byte);
            }
            // A client that went away is the sandbox's affair.
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        }
    });
    port
}
