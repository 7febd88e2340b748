//! OpenShell's own Python client against a gateway on its own, over a Unix socket and over TCP.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use driver::{
    Client, Gateway, ServeConfig,
    client::SandboxSpec,
    error::Step,
    exec::{ExecEvent, ExecSpec},
    turn::Exit,
    wire::config::DriverConfig,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use policy::egress::Egress;

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("the_unmodified_python_sdk_works_and_its_descriptors_are_ours", sdk),
    ("a_gateways_broker_that_dies_shuts_its_sandboxes_and_the_next_one_has_a_new_one", broker_dies),
    ("a_gateway_listens_on_loopback_only_and_never_without_a_token", loopback),
];

/// The engine's own command line.
const BINARY: &str = env!("CARGO_BIN_EXE_crucible-under-test");
const TOKEN: &str = "a-token-of-the-test";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sandbox/sdk.py");

/// A Python with the SDK, kept between runs; nothing when there is no Python, or no registry.
fn python() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openshell-0.1.5");
    let python = dir.join("bin/python");
    let fine = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if fine(Command::new(&python).args(["-c", "import openshell"])) {
        return Some(python);
    }
    let made = fine(Command::new("python3").args(["-m", "venv"]).arg(&dir))
        && fine(Command::new(&python).args(["-m", "pip", "install", "-q", "openshell==0.1.5"]));
    made.then_some(python)
}

/// `crucible gateway serve`, ended when the value goes.
struct Served {
    child: Child,
    socket: String,
    tcp: String,
}

impl Served {
    /// Starts it and waits until it says where it listens.
    fn start(lab: &Lab) -> Served {
        let token = lab.dir().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let mut command = Command::new(BINARY);
        for name in ["https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
            command.env_remove(name);
        }
        command
            .args(["gateway", "serve", "--tcp", "127.0.0.1:0", "--state-dir"])
            .arg(lab.dir().join("served"));
        let mut child = command.arg("--token-file").arg(&token).stdout(Stdio::piped()).spawn().unwrap();
        let mut served = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            served.extend(line.unwrap().strip_prefix("listening on ").map(str::to_owned));
            if let [socket, tcp] = served.as_slice() {
                let socket = socket.strip_prefix("unix:").unwrap().to_owned();
                return Served { child, socket, tcp: tcp.clone() };
            }
        }
        panic!("it ended before it listened: {:?}", child.wait());
    }

    fn end(mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        assert!(!Path::new(&self.socket).exists(), "the socket goes with it");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Ended already, or a test that failed: then nothing may stay.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A server of this host that says hello to every connection; answers its port.
fn server() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A client that went away is the sandbox's affair.
            let _ = stream.read(&mut [0; 1024]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        }
    });
    port
}

fn sdk(lab: &Lab) {
    let Some(python) = python() else {
        // The ordinary user's run cannot write the build's directory; what the client sees is the same there.
        let must = std::env::var_os("CI").is_some() && nix::unistd::geteuid().is_root();
        assert!(!must, "no Python with openshell 0.1.5 can be had");
        println!("skipped: no Python with openshell 0.1.5 can be had here");
        return;
    };
    let descriptors = lab.dir().join("descriptors.bin");
    std::fs::write(&descriptors, driver::wire::DESCRIPTORS).unwrap();
    let served = Served::start(lab);
    let mut command = Command::new(python);
    command.arg(SCRIPT).args([&served.socket, &served.tcp, TOKEN]).arg(&descriptors);
    let output = command.args([server(), server()].map(|port| port.to_string())).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "fine\n", "{}", text(&output.stderr));
    served.end();
    let audit = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        command.arg("audit").args(args).arg("--state-dir").arg(lab.dir().join("served"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(audit(&["--verify"]).contains("none missing, altered or out of order"));
    let denied = audit(&["--denied", "--turn", "reaches"]);
    assert_eq!(denied.lines().filter(|line| line.contains("  deny  ")).count(), 2, "{denied}");
    let canary = audit(&["--turn", "self-test"]);
    assert!(canary.contains("canary.crucible.invalid"), "the gateway tried itself first: {canary}");
}

/// The broker of a process.
fn broker_of(parent: u32) -> Option<Pid> {
    let is_it = |pid: &i32| {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let above = read("stat").rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        above == Some(parent) && read("cmdline").starts_with("crucible-broker\0")
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it).map(Pid::from_raw)
}

/// How a program inside ends that asks the proxy for something: 0 where it was answered.
async fn asks(client: &Client, name: &str) -> Exit {
    let script = "exec 3<>/dev/tcp/127.0.0.1/3128 && printf 'CONNECT a.example:443 HTTP/1.1\r\n\r\n' >&3 && \
                  read -r line <&3 && [[ $line == 'HTTP/1.1 403'* ]]";
    let command = ["/usr/bin/bash", "-c", script].map(str::to_owned).to_vec();
    let mut running =
        client.exec(name, ExecSpec { command, ..ExecSpec::default() }, Step::Exec).await.unwrap();
    loop {
        if let ExecEvent::Exit { exit, .. } = running.next().await.unwrap() {
            return exit;
        }
    }
}

fn broker_dies(lab: &Lab) {
    let served = Served::start(lab);
    assert!(broker_of(served.child.id()).is_some(), "the self-test needed one");
    lab.block_on(async {
        let client = Client::unix(Path::new(&served.socket)).await.unwrap();
        let create = async |name: &str| {
            let config =
                DriverConfig { egress: Some(Egress::new(Vec::new()).document()), ..DriverConfig::default() };
            let spec = SandboxSpec { name: name.to_owned(), config, ..SandboxSpec::default() };
            client.create(&spec).await.unwrap();
            client.ready(name).await.unwrap();
        };
        create("first").await;
        assert_eq!(asks(&client, "first").await, Exit::Code(0));
        kill(broker_of(served.child.id()).unwrap(), Signal::SIGKILL).unwrap();
        while broker_of(served.child.id()).is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(asks(&client, "first").await, Exit::Code(1), "its sockets went with it");
        client.delete("first").await.unwrap();
        create("second").await;
        assert_eq!(asks(&client, "second").await, Exit::Code(0));
        client.delete("second").await.unwrap();
    });
    served.end();
}

fn loopback(lab: &Lab) {
    for (address, token) in [("0.0.0.0:0", TOKEN), ("192.0.2.1:0", TOKEN), ("127.0.0.1:0", "")] {
        let config = ServeConfig {
            state_dir: lab.dir().join("served"),
            socket: None,
            tcp: Some((address.parse().unwrap(), token.to_owned())),
        };
        let error = Gateway::start(config, None).unwrap_err();
        assert!(matches!(error, driver::GatewayError::Refused(_)), "{error}");
    }
}
