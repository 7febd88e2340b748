//! The API as a client of OpenShell's meets it: terminals, watching, logs, pages, and what is refused.

use driver::{
    Client, TransportClass,
    client::SandboxSpec,
    error::Step,
    exec::{ExecEvent, ExecSpec, Exit},
};

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("a_terminal_is_a_terminal_of_its_own", terminal),
    ("a_sandbox_answers_to_its_name_and_its_id", names),
    ("a_repeated_create_answers_the_first_sandbox", repeated),
    ("lists_come_in_pages_and_by_label", pages),
    ("a_watcher_sees_the_sandbox_and_its_log", watch),
    ("commands_run_side_by_side_in_one_sandbox", side_by_side),
    ("a_dropped_exec_kills_its_command", dropped),
    ("a_sandbox_that_died_says_so", died),
    ("the_socket_is_its_owners_alone", socket),
    ("messages_over_a_mebibyte_are_refused", large),
];

fn spec(name: &str) -> SandboxSpec {
    SandboxSpec { name: name.to_owned(), ..SandboxSpec::default() }
}

/// Runs async work with a client, and a sandbox named `s` that is ready.
fn with<T>(lab: &Lab, work: impl AsyncFnOnce(Client) -> T) -> T {
    lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await.unwrap();
        client.create(&spec("s")).await.unwrap();
        client.ready("s").await.unwrap();
        work(client).await
    })
}

async fn output(client: &Client, spec: ExecSpec) -> (String, Exit) {
    let mut running = client.exec("s", spec, Step::Exec).await.unwrap();
    let mut text = Vec::new();
    loop {
        match running.next().await.unwrap() {
            ExecEvent::Output(_, data) => text.extend_from_slice(&data),
            ExecEvent::Exit { exit, .. } => return (String::from_utf8_lossy(&text).into_owned(), exit),
        }
    }
}

fn sh(script: &str) -> ExecSpec {
    ExecSpec { command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(), ..ExecSpec::default() }
}

fn terminal(lab: &Lab) {
    with(lab, async |client| {
        let mut spec =
            sh("tty; stty size; stty -echo; read line; echo got $line; echo err >&2; [ -t 2 ] && echo all");
        spec.terminal = Some((100, 30));
        spec.stdin = b"typed\n".to_vec();
        let (text, exit) = output(&client, spec).await;
        let text = text.replace('\r', "");
        assert_eq!(exit, Exit::Code(0), "{text}");
        assert!(text.starts_with("/dev/pts/0\n") || text.contains("\n/dev/pts/0\n"), "{text}");
        assert!(
            text.contains("30 100\n") && text.contains("got typed\n") && text.ends_with("err\nall\n"),
            "{text}"
        );
    });
}

fn names(lab: &Lab) {
    with(lab, async |client| {
        let by_name = client.get("s").await.unwrap();
        assert_eq!(client.get(&by_name.id).await.unwrap(), by_name);
        let mut running = client.exec(&by_name.id, sh("true"), Step::Exec).await.unwrap();
        assert!(matches!(running.next().await.unwrap(), ExecEvent::Exit { exit: Exit::Code(0), .. }));
        client.delete(&by_name.id).await.unwrap();
        assert!(client.get("s").await.is_err());
        client.delete("s").await.unwrap();
    });
}

fn repeated(lab: &Lab) {
    lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await.unwrap();
        let spec = SandboxSpec { name: "s".to_owned(), request_id: "r".to_owned(), ..SandboxSpec::default() };
        let first = client.create(&spec).await.unwrap();
        assert_eq!(client.create(&spec).await.unwrap().id, first.id);
        let other = SandboxSpec { request_id: "q".to_owned(), ..spec };
        assert!(client.create(&other).await.unwrap_err().to_string().contains("already exists"));
        client.delete("s").await.unwrap();
    });
}

fn pages(lab: &Lab) {
    lab.block_on(async {
        let client = Client::unix(lab.gateway().socket()).await.unwrap();
        for name in ["a", "b", "c"] {
            client.create(&spec(name)).await.unwrap();
        }
        assert_eq!(client.list(2).await.unwrap(), ["a", "b", "c"]);
        assert_eq!(client.list(100).await.unwrap(), ["a", "b", "c"]);
    });
}

fn watch(lab: &Lab) {
    with(lab, async |client| {
        let lines = client.logs("s").await.unwrap();
        assert!(lines.iter().any(|line| line.contains("seccomp: in force")), "{lines:?}");
        // A watch of a sandbox that is ready answers at once.
        client.ready("s").await.unwrap();
        assert!(client.ready("absent").await.is_err());
    });
}

fn side_by_side(lab: &Lab) {
    with(lab, async |client| {
        let wait = output(&client, sh("until [ -e /tmp/go ]; do :; done; echo went"));
        let go = output(&client, sh("touch /tmp/go"));
        let (waited, went) = tokio::join!(wait, go);
        assert_eq!((waited.0.as_str(), went.1), ("went\n", Exit::Code(0)));
    });
}

fn dropped(lab: &Lab) {
    with(lab, async |client| {
        let mut running = client.exec("s", sh("echo up; exec sleep 4321"), Step::Exec).await.unwrap();
        assert!(matches!(running.next().await.unwrap(), ExecEvent::Output(..)));
        drop(running);
        let (text, _) =
            output(&client, sh("while grep -qs sleep /proc/[0-9]*/comm; do :; done; echo gone")).await;
        assert_eq!(text, "gone\n");
    });
}

/// The first process is ended from outside, as the kernel does when memory runs out.
fn died(lab: &Lab) {
    with(lab, async |client| {
        let mut running = client.exec("s", sh("echo up; sleep 600"), Step::Exec).await.unwrap();
        assert!(matches!(running.next().await.unwrap(), ExecEvent::Output(..)));
        kill_first_process();
        let error = running.next().await.unwrap_err();
        assert_eq!(error.class(), TransportClass::Sandbox, "{error}");
        assert_eq!(client.ready("s").await.unwrap_err().class(), TransportClass::Sandbox);
        assert!(client.exec("s", sh("true"), Step::Exec).await.is_err());
        client.delete("s").await.unwrap();
    });
}

/// Ends the one child of this process that is a sandbox.
fn kill_first_process() {
    let own = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((head, tail)) = stat.rsplit_once(") ") else { continue };
        if head.contains("(exe") && tail.split(' ').nth(1) == Some(own.as_str()) {
            let pid = head.split(' ').next().unwrap().parse().unwrap();
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
                .unwrap();
        }
    }
}

fn socket(lab: &Lab) {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(lab.gateway().socket()), 0o600);
    assert_eq!(mode(lab.gateway().socket().parent().unwrap()), 0o700);
}

fn large(lab: &Lab) {
    with(lab, async |client| {
        let mut spec = sh("true");
        spec.command.push("x".repeat(2 << 20));
        assert!(client.exec("s", spec, Step::Exec).await.is_err());
        assert_eq!(output(&client, sh("echo still")).await.0, "still\n");
    });
}
