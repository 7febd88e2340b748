use std::io::Read as _;

use super::*;

fn sh(text: &str) -> Tool {
    let env: Environment = [("PATH", "/usr/bin:/bin")].into_iter().collect();
    Tool::new("sh", env).arg("-c").arg(text)
}

/// Whether any process still has `marker` in its command line.
fn is_running(marker: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.split(|&byte| byte == 0).any(|arg| arg == marker.as_bytes()))
    })
}

#[tokio::test]
async fn exit_output_and_the_end_of_stderr_come_back() {
    let done = sh("cat; echo oops >&2; exit 3").input(Input::Bytes(b"in".to_vec())).run().await.unwrap();
    assert_eq!(done.exit, Exit::Code(3));
    assert_eq!(done.stdout, b"in");
    assert_eq!(done.stderr_tail, b"oops\n");
    let failed = done.checked().unwrap_err();
    assert_eq!(failed.to_string(), "run sh cat; echo oops >&2; exit 3: exit code 3: oops");
}

#[tokio::test]
async fn a_signal_is_reported_as_128_and_its_number() {
    let done = sh("kill -TERM $$").run().await.unwrap();
    assert_eq!((done.exit, done.exit.code()), (Exit::Signal(15), 143));
}

#[tokio::test]
async fn the_environment_is_exactly_what_was_given() {
    let done = sh("env").env("ONE", "1").run().await.unwrap();
    let mut names: Vec<_> = std::str::from_utf8(&done.stdout).unwrap().lines().collect();
    names.retain(|line| !line.starts_with("PWD=") && !line.starts_with("_=") && !line.starts_with("SHLVL="));
    names.sort_unstable();
    assert_eq!(names, ["ONE=1", "PATH=/usr/bin:/bin"]);
}

#[tokio::test]
async fn more_output_than_allowed_is_an_error_and_exactly_as_much_is_not() {
    let tool = |limit| sh("printf 12345").output(Output::Capture { limit });
    assert_eq!(tool(5).run().await.unwrap().stdout, b"12345");
    assert!(matches!(tool(4).run().await, Err(ProcessError::TooMuchOutput { limit: 4, .. })));
    let endless = sh("yes").output(Output::Capture { limit: 100_000 }).run().await;
    assert!(matches!(endless, Err(ProcessError::TooMuchOutput { .. })));
}

#[tokio::test]
async fn output_streams_to_a_sink_or_a_file() {
    let mut seen = 0;
    let tool = sh("head -c 3000000 /dev/zero").output(Output::Stream);
    tool.run_with(&mut |bytes| seen += bytes.len()).await.unwrap();
    assert_eq!(seen, 3_000_000);

    let mut file = tempfile::tempfile().unwrap();
    sh("printf kept").output(Output::File(file.try_clone().unwrap())).run().await.unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "kept");
}

#[tokio::test]
async fn a_background_child_that_holds_stdout_delays_nothing_and_is_ended() {
    let done = sh("sleep 98761 & echo done").run().await.unwrap();
    assert_eq!(done.stdout, b"done\n");
    while is_running("98761") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn time_and_cancellation_end_the_whole_group() {
    let late = sh("trap '' TERM; sleep 98762 & sleep 98762").timeout(Duration::from_millis(50)).run().await;
    assert!(matches!(late, Err(ProcessError::Timeout { .. })), "{late:?}");
    let cancel = CancellationToken::new();
    let tool = sh("echo up; sleep 98763 & sleep 98763").output(Output::Stream).cancelled_by(cancel.clone());
    let cancelled = tool.run_with(&mut |_| cancel.cancel()).await;
    assert!(matches!(cancelled, Err(ProcessError::Cancelled { .. })), "{cancelled:?}");
    while is_running("98762") || is_running("98763") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_missing_program_and_a_missing_directory_have_their_own_errors() {
    let missing = Tool::new("no-such-program", [("PATH", "/usr/bin")].into_iter().collect()).run().await;
    assert!(matches!(missing, Err(ProcessError::NotFound { .. })), "{missing:?}");
    let nowhere = sh("true").cwd("/nonexistent").run().await;
    assert!(matches!(nowhere, Err(ProcessError::Start { .. })), "{nowhere:?}");
}
