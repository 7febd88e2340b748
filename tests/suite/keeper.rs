//! Pack commands under their keeper: nothing that a command starts outlives it (N12).

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use engine::sys::env::Environment;
use engine::sys::keeper::{EndedBy, Exit, Finished, Keeper, KeeperError, PackCommand, Stdin, Stream};
use engine::sys::process::Tool;
use tokio_util::sync::CancellationToken;

/// Set in a process that plays the engine for a test that kills it.
const PART: &str = "KEEPER_TEST_PART";

/// A keeper, and a cookie that marks everything that runs under it.
struct Case {
    keeper: Keeper,
    cookie: String,
}

impl Case {
    async fn new(name: &str) -> Case {
        let exe = Path::new(env!("CARGO_BIN_EXE_crucible-under-test"));
        let cookie = format!("{name}-{}", std::process::id());
        Case { keeper: Keeper::start_with(exe).await.unwrap(), cookie }
    }

    fn command(&self, shell: &str) -> PackCommand {
        PackCommand {
            shell: shell.to_owned(),
            cwd: PathBuf::from("/"),
            env: [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("COOKIE", &self.cookie)].into_iter().collect(),
            stdin: Stdin::Null,
            timeout: None,
            idle_timeout: None,
        }
    }

    /// Runs a command to its end, and makes sure that nothing is left.
    async fn run(&self, command: PackCommand) -> Result<(Finished, String), KeeperError> {
        let mut output = Vec::new();
        let cancel = CancellationToken::new();
        let finished =
            self.keeper.run(command, &cancel, &mut |_, bytes| output.extend_from_slice(bytes)).await;
        assert_eq!(left(&self.cookie), [""; 0], "something is left");
        Ok((finished?, String::from_utf8(output).unwrap()))
    }

    async fn sh(&self, shell: &str) -> (Finished, String) {
        self.run(self.command(shell)).await.unwrap()
    }
}

/// The processes that have `cookie` in their environment or their command line.
fn left(cookie: &str) -> Vec<String> {
    let has = |path: PathBuf| {
        std::fs::read(path)
            .is_ok_and(|bytes| bytes.windows(cookie.len()).any(|part| part == cookie.as_bytes()))
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|process| has(process.join("environ")) || has(process.join("cmdline")))
        .filter(|process| !process.ends_with(std::process::id().to_string()))
        .map(|process| {
            let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
            format!("{}: {}", process.display(), command.escape_ascii())
        })
        .collect()
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart_and_output_keeps_its_stream() {
    let case = Case::new("exits").await;
    for (shell, exit, code) in [
        ("exit 0", Exit::Code(0), 0),
        ("exit 143", Exit::Code(143), 143),
        ("kill -TERM $$", Exit::Signal(15), 143),
        ("kill -KILL $$", Exit::Signal(9), 137),
        ("no-such-program 2>/dev/null", Exit::Code(127), 127),
    ] {
        let (finished, _) = case.sh(shell).await;
        assert_eq!((finished.exit, finished.exit.code(), finished.ended_by), (exit, code, None), "{shell}");
        assert_eq!(finished.killed_count, 0, "{shell}: {:?}", finished.killed);
    }
    let mut streams = Vec::new();
    let command = case.command("echo one; echo two >&2");
    let cancel = CancellationToken::new();
    case.keeper
        .run(command, &cancel, &mut |stream, bytes| streams.push((stream, bytes.to_vec())))
        .await
        .unwrap();
    streams.sort_by_key(|(stream, _)| *stream == Stream::Err);
    assert_eq!(streams, [(Stream::Out, b"one\n".to_vec()), (Stream::Err, b"two\n".to_vec())]);
}

#[tokio::test]
async fn whatever_a_command_leaves_behind_is_ended_and_named() {
    let case = Case::new("leftovers").await;
    for (name, shell, names) in [
        ("a background child that holds stdout", "sleep 9000 & echo done", &["sleep"][..]),
        ("a daemon", "setsid sh -c 'sleep 9000 >/dev/null 2>&1 &' & wait; echo done", &["sleep"]),
        (
            "one without our environment",
            "env -i setsid sleep 9000 & while ! [ -d /proc/$! ]; do :; done; echo done",
            &["sleep"],
        ),
        (
            "one that ignores every polite signal",
            "(trap '' TERM INT HUP; echo done; exec sleep 9000) & exit 0",
            &["sleep"],
        ),
        ("a stopped one", "sleep 9000 & kill -STOP $!; echo done", &["sleep"]),
        ("a chain", "sh -c 'sh -c \"sleep 9000 & sleep 9000\" & sleep 9000' & echo done", &[]),
    ] {
        let (finished, output) = case.sh(shell).await;
        assert_eq!(finished.exit, Exit::Code(0), "{name}");
        assert!(output == "done\n" || name.starts_with("one that ignores"), "{name}: {output:?}");
        let killed: Vec<_> = finished.killed.iter().map(|one| one.name.as_str()).collect();
        assert!(finished.killed_count > 0, "{name}: nothing was killed");
        for expect in names {
            // A child that has not yet executed its program still has the shell's name.
            assert!(
                killed.contains(expect) || killed.contains(&"sh") || killed.contains(&"setsid"),
                "{name}: {killed:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_command_that_reads_its_standard_input_meets_its_end_or_the_file() {
    let case = Case::new("stdin").await;
    assert_eq!(case.sh("cat; echo end").await.1, "end\n");
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"from a file\n").unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    let command = PackCommand { stdin: Stdin::File(file), ..case.command("cat") };
    assert_eq!(case.run(command).await.unwrap().1, "from a file\n");
}

#[tokio::test]
async fn a_timeout_ends_even_what_ignores_it() {
    let case = Case::new("timeout").await;
    let shell = "trap '' TERM; sleep 9000 & while :; do sleep 9000; done";
    let limit = Some(Duration::from_millis(200));
    let (finished, _) = case.run(PackCommand { timeout: limit, ..case.command(shell) }).await.unwrap();
    assert_eq!((finished.ended_by, finished.exit), (Some(EndedBy::Timeout), Exit::Signal(9)));
}

#[tokio::test]
async fn a_polite_command_has_its_say_when_its_time_is_up() {
    let case = Case::new("polite").await;
    let shell = "trap 'echo bye; exit 7' TERM; while :; do sleep 0.01; done";
    let limit = Some(Duration::from_millis(200));
    let (finished, output) = case.run(PackCommand { timeout: limit, ..case.command(shell) }).await.unwrap();
    assert_eq!((finished.ended_by, finished.exit), (Some(EndedBy::Timeout), Exit::Code(7)));
    assert!(output.contains("bye\n"), "{output:?}");
}

#[tokio::test]
async fn cancellation_ends_the_command_and_one_before_the_start_too() {
    let case = Case::new("cancel").await;
    let cancel = CancellationToken::new();
    for shell in ["echo up; sleep 9000 & setsid sleep 9000", "sleep 9000"] {
        let finished =
            case.keeper.run(case.command(shell), &cancel, &mut |_, _| cancel.cancel()).await.unwrap();
        assert_eq!(finished.ended_by, Some(EndedBy::Cancelled), "{shell}");
        assert_eq!(left(&case.cookie), [""; 0], "{shell}");
    }
}

#[tokio::test]
async fn output_begins_the_idle_limit_anew_and_silence_ends_the_command() {
    let case = Case::new("idle").await;
    let idle = |shell, limit| PackCommand { idle_timeout: Some(limit), ..case.command(shell) };
    let talking = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i >&2; sleep 0.2; done";
    let (finished, output) = case.run(idle(talking, Duration::from_secs(2))).await.unwrap();
    assert_eq!((finished.ended_by, output.lines().count()), (None, 12));
    let (finished, _) = case.run(idle("sleep 9000", Duration::from_millis(100))).await.unwrap();
    assert_eq!(finished.ended_by, Some(EndedBy::Idle));
}

#[tokio::test]
async fn a_fork_bomb_is_put_out() {
    let case = Case::new("bomb").await;
    // Each level doubles, in a session of its own: some 255 processes, the last of which wait.
    let bomb = r#"
        cat > "$D/bomb" <<'END'
        [ "$1" = 0 ] && exec sleep 9000
        setsid sh "$D/bomb" $(($1 - 1)) & setsid sh "$D/bomb" $(($1 - 1)) &
        [ $(($1 % 2)) = 0 ] && wait
END
        sh "$D/bomb" 6 & sleep 0.02; exit 3"#;
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let mut command = case.command(bomb);
        command.env.set("D", dir.path());
        let (finished, _) = case.run(command).await.unwrap();
        assert_eq!(finished.exit, Exit::Code(3));
        assert!(finished.killed_count > 0 && finished.killed.len() <= 32);
    }
}

#[tokio::test]
async fn a_hundred_megabytes_come_through_whole_and_in_order() {
    let case = Case::new("flood").await;
    let (mut bytes, mut next) = (0_usize, 0_u64);
    let mut tail = Vec::new();
    // Every line is its number, so a lost or swapped part shows.
    let command = case.command("seq -w 0 9999999 | head -c 100000000; exit 5");
    let cancel = CancellationToken::new();
    let mut sink = |_, part: &[u8]| {
        bytes += part.len();
        tail.extend_from_slice(part);
        let whole = tail.len() / 8 * 8;
        for line in tail.drain(..whole).collect::<Vec<_>>().chunks(8) {
            assert_eq!(line, format!("{next:07}\n").as_bytes());
            next += 1;
        }
    };
    let finished = case.keeper.run(command, &cancel, &mut sink).await.unwrap();
    assert_eq!((finished.exit, bytes), (Exit::Code(5), 80_000_000));
}

#[tokio::test]
async fn a_command_has_three_descriptors_default_signals_and_exactly_its_environment() {
    let case = Case::new("clean").await;
    // Left open by whoever started us, and not closed on exec.
    let inherited = nix::unistd::dup(File::open("/dev/null").unwrap()).unwrap();
    let shell = "n=0; while [ $n -lt 64 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n + 1)); done";
    assert_eq!(case.sh(shell).await.1, "0\n1\n2\n");
    drop(inherited);

    let (_, status) = case.sh("exec cat /proc/self/status").await;
    for mask in ["SigBlk:", "SigIgn:"] {
        let line = status.lines().find(|line| line.starts_with(mask)).unwrap();
        let bits = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        // Signals 32 and 33 are libc's own; whoever started us may have ignored them.
        assert_eq!(bits & !0x1_8000_0000, 0, "{line}");
    }

    let mut command = case.command("exec cat /proc/self/environ");
    command.env = [("B", "2"), ("A", "1\n"), ("COOKIE", "c")].into_iter().collect();
    let (_, environ) = case.run(command).await.unwrap();
    let mut variables: Vec<_> = environ.split_terminator('\0').collect();
    // The shell may add these for its children; they are not ours.
    variables.retain(|one| !["PWD=", "_=", "OLDPWD", "SHLVL="].iter().any(|own| one.starts_with(own)));
    variables.sort_unstable();
    assert_eq!(variables, ["A=1\n", "B=2", "COOKIE=c"]);
}

#[tokio::test]
async fn what_cannot_be_started_says_so_and_the_keeper_stays() {
    let case = Case::new("unstartable").await;
    let nowhere = PackCommand { cwd: "/nonexistent".into(), ..case.command("true") };
    let huge = case.command(&format!("true {}", "x".repeat(3 << 20)));
    let nul = case.command("true\0");
    for command in [nowhere, huge, nul] {
        assert!(matches!(case.run(command).await, Err(KeeperError::Start { .. })));
    }
    let mut large = case.command("echo ${#V0} ${#V9}");
    for n in 0..10 {
        large.env.set(format!("V{n}"), "x".repeat(100_000));
    }
    assert_eq!(case.run(large).await.unwrap().1, "100000 100000\n");
}

#[tokio::test]
async fn commands_at_once_do_not_end_each_other() {
    let case = Case::new("together").await;
    let fifo = tempfile::tempdir().unwrap();
    let path = fifo.path().join("gate");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut waits = case.command("sleep 9001 & read line < \"$GATE\"; kill -0 $! && echo \"$line\"");
    waits.env.set("GATE", &path);
    let mut opens = case.command("sleep 9002 & echo opened > \"$GATE\"");
    opens.env.set("GATE", &path);
    let cancel = CancellationToken::new();
    let mut output = Vec::new();
    let mut sink = |_, bytes: &[u8]| output.extend_from_slice(bytes);
    let mut ignored = |_, _: &[u8]| {};
    let (first, second) = tokio::join!(
        case.keeper.run(waits, &cancel, &mut sink),
        case.keeper.run(opens, &cancel, &mut ignored)
    );
    assert_eq!((first.unwrap().exit, second.unwrap().exit), (Exit::Code(0), Exit::Code(0)));
    assert_eq!(output, b"opened\n");
    assert_eq!(left(&case.cookie), [""; 0]);
}

#[tokio::test]
async fn a_keeper_that_its_command_stops_goes_on() {
    let case = Case::new("stopped").await;
    let (finished, _) = case.sh("setsid sleep 9000 & kill -STOP $PPID; exit 4").await;
    assert_eq!(finished.exit, Exit::Code(4));
}

#[tokio::test]
async fn dropping_a_run_ends_its_command() {
    let case = Case::new("dropped").await;
    let cancel = CancellationToken::new();
    let (sent, mut up) = tokio::sync::mpsc::unbounded_channel();
    let mut sink = |_, _: &[u8]| sent.send(()).unwrap();
    tokio::select! {
        _ = case.keeper.run(case.command("echo up; setsid sleep 9000"), &cancel, &mut sink) => panic!("it ended"),
        _ = up.recv() => {}
    }
    assert_eq!(case.sh_elsewhere("echo next").await, "next\n");
    let Case { keeper, cookie } = case;
    drop(keeper);
    assert_eq!(left(&cookie), [""; 0]);
}

impl Case {
    /// Runs a command without a look at what is left.
    async fn sh_elsewhere(&self, shell: &str) -> String {
        let mut output = Vec::new();
        let cancel = CancellationToken::new();
        let mut sink = |_, bytes: &[u8]| output.extend_from_slice(bytes);
        self.keeper.run(self.command(shell), &cancel, &mut sink).await.unwrap();
        String::from_utf8(output).unwrap()
    }
}

/// Runs the test `name` of this binary once more in a process of its own, with [`PART`] set to `part`.
#[expect(clippy::disallowed_methods, reason = "the test plays a process that is to be killed")]
fn play(name: &str, part: &Path) -> Engine {
    let this = std::env::current_exe().unwrap();
    let engine = Command::new(this)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    Engine(engine.unwrap())
}

/// A process that plays the engine. It ends with the test, also when that fails.
struct Engine(std::process::Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the process that is to be killed learns of its part")]
fn part() -> Option<PathBuf> {
    std::env::var_os(PART).map(PathBuf::from)
}

/// Every process of this one holds the pipe at `$GATE` open, so the end of the pipe is the end of all of them.
const HELD: &str = "exec 9> \"$GATE\"; setsid sh -c 'sleep 9000 & sleep 9000' & \
                    (trap '' TERM HUP INT; sleep 9000) & echo up; wait";

#[tokio::test]
async fn when_the_engine_is_killed_everything_goes() {
    if let Some(gate) = part() {
        let case = Case::new("engine").await;
        let mut command = case.command(HELD);
        command.env.set("GATE", gate);
        let cancel = CancellationToken::new();
        let _ = case.keeper.run(command, &cancel, &mut |_, _| println!("cookie {}", case.cookie)).await;
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut engine = play("keeper::when_the_engine_is_killed_everything_goes", &gate);
    let mut pipe = File::open(&gate).unwrap();
    let cookie = BufReader::new(engine.0.stdout.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().split_once("cookie ").map(|(_, cookie)| cookie.to_owned()))
        .unwrap();
    assert!(!left(&cookie).is_empty(), "the command does not run");
    engine.0.kill().unwrap();
    engine.0.wait().unwrap();
    pipe.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(left(&cookie), [""; 0]);
}

#[tokio::test]
async fn when_the_keeper_is_killed_everything_goes_and_nothing_succeeded() {
    const NAME: &str = "keeper::when_the_keeper_is_killed_everything_goes_and_nothing_succeeded";
    if part().is_none() {
        // A process of its own, for what its keeper leaves is ended with all that is not known to be its own.
        let mut engine = play(NAME, Path::new("engine"));
        let mut output = String::new();
        engine.0.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        assert!(engine.0.wait().unwrap().success(), "{output}");
        assert!(output.contains("1 passed"), "{output}");
        return;
    }
    let case = Case::new("keeper").await;
    for shell in [
        "kill -9 $PPID; sleep 9000",
        "setsid sh -c 'sleep 9000 & sleep 9000' & kill -9 $PPID; exit 0",
        "(trap '' TERM; setsid sleep 9000 & sleep 9000) & sleep 0.05; kill -9 $PPID",
    ] {
        let died = case.run(case.command(shell)).await;
        assert!(matches!(died, Err(KeeperError::Died { .. })), "{shell}: {died:?}");
        assert_eq!(case.sh("echo next").await.1, "next\n", "{shell}");
    }
    let (done, killed) = tokio::join!(tool_that_outlives_a_keeper(), async {
        case.run(case.command("sleep 0.05; kill -9 $PPID")).await
    });
    assert_eq!(done, "tool\n");
    assert!(matches!(killed, Err(KeeperError::Died { .. })), "{killed:?}");
}

/// A tool of the engine's own, which the sweep after a keeper's death must not touch.
async fn tool_that_outlives_a_keeper() -> String {
    let env: Environment = [("PATH", "/usr/bin:/bin")].into_iter().collect();
    let tool = Tool::new("sh", env).arg("-c").arg("sleep 1; echo tool");
    String::from_utf8(tool.run().await.unwrap().checked().unwrap().stdout).unwrap()
}
