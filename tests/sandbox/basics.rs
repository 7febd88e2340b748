//! A turn that does what it should.

use std::time::Duration;

use driver::{
    TransportClass, TurnError,
    turn::{Ended, Exit, Relay},
};
use tokio_util::sync::CancellationToken;

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("output_and_exit_code_come_through", output),
    ("a_signal_is_told_from_an_exit_code", signals),
    ("stdin_environment_and_directory_reach_the_command", input),
    ("two_megabytes_of_input_come_through", long_input),
    ("sixty_megabytes_of_output_come_through", long_output),
    ("a_command_that_is_not_there_fails_as_the_command", missing),
    ("a_workspace_that_is_not_there_fails_as_the_workspace", no_workspace),
    ("the_time_limit_ends_the_turn_and_keeps_the_work", time_limit),
    ("the_idle_limit_ends_the_turn", idle_limit),
    ("a_cancelled_turn_changes_nothing", cancelled),
    ("relayed_files_are_there_with_their_mode", relays),
    ("a_read_only_path_is_joined_to_the_view", read_only_paths),
    ("the_layers_in_force_are_told", layers),
    ("a_second_gateway_on_the_same_state_is_refused", busy),
    ("a_missing_layer_is_a_refusal_that_names_the_remedy", missing_layers),
    ("a_limit_of_zero_and_a_relay_into_the_workspace_are_refused", refused),
];

fn output(lab: &Lab) {
    let seen = lab.sh("echo out; echo err >&2; exit 3");
    assert_eq!((seen.out.as_str(), seen.err.as_str(), seen.end.exit), ("out\n", "err\n", Exit::Code(3)));
    assert_eq!(seen.end.ended, Ended::Itself);
    assert!(seen.end.changed.is_empty() && seen.end.killed.is_empty(), "{seen:?}");
}

fn signals(lab: &Lab) {
    assert_eq!(lab.sh("kill -9 $$").end.exit, Exit::Signal(9));
    assert_eq!(lab.sh("kill -15 $$").end.exit, Exit::Signal(15));
    assert_eq!(lab.sh("exit 137").end.exit, Exit::Code(137));
}

fn input(lab: &Lab) {
    let mut spec = lab.spec("cat; echo; echo $NAME; pwd; id -un; echo $HOME; ls /sandbox");
    spec.stdin = b"given".to_vec();
    spec.env.insert("NAME".to_owned(), "two words".to_owned());
    let seen = lab.run(spec).unwrap();
    assert_eq!(
        seen.out, "given\ntwo words\n/sandbox/space\nsandbox\n/sandbox/home\nhome\nspace\n",
        "{}",
        seen.err
    );
    let mut spec = lab.spec("pwd");
    spec.workdir = Some("/tmp".to_owned());
    assert_eq!(lab.run(spec).unwrap().out, "/tmp\n");
}

fn long_input(lab: &Lab) {
    let mut spec = lab.spec("wc -c");
    spec.stdin = vec![b'x'; 2 << 20];
    assert_eq!(lab.run(spec).unwrap().out.trim(), (2 << 20).to_string());
}

fn long_output(lab: &Lab) {
    assert_eq!(lab.fine("head -c 60000000 /dev/zero").len(), 60_000_000);
}

fn missing(lab: &Lab) {
    for command in ["/no/such/program", "no-such-program", "/etc/hostname"] {
        let error = lab.run(lab.program([command])).unwrap_err();
        assert_eq!(error.class(), TransportClass::Command, "{error}");
        assert!(error.to_string().contains(command), "{error}");
    }
}

fn no_workspace(lab: &Lab) {
    let mut spec = lab.spec("true");
    spec.workspace = lab.dir().join("absent");
    let error = lab.run(spec).unwrap_err();
    assert_eq!(error.class(), TransportClass::Workspace, "{error}");
}

fn time_limit(lab: &Lab) {
    let mut spec = lab.spec("echo kept > kept; trap '' TERM; while :; do :; done");
    spec.timeout = Some(Duration::from_millis(300));
    let seen = lab.run(spec).unwrap();
    assert_eq!((seen.end.ended, seen.end.exit), (Ended::TimedOut, Exit::Signal(9)));
    assert_eq!(lab.read("kept"), "kept\n");
}

fn idle_limit(lab: &Lab) {
    let mut spec = lab.spec("echo first; sleep 600");
    spec.idle_timeout = Some(Duration::from_millis(300));
    let seen = lab.run(spec).unwrap();
    assert_eq!((seen.end.ended, seen.out.as_str()), (Ended::Idle, "first\n"));
}

fn cancelled(lab: &Lab) {
    let cancel = CancellationToken::new();
    let from_output = cancel.clone();
    let spec = lab.spec("echo gone > gone; echo now; sleep 600");
    let result = lab.block_on(async {
        let client = driver::Client::unix(lab.gateway().socket()).await?;
        driver::turn::run(&client, spec, cancel, &mut |_, _| from_output.cancel()).await
    });
    assert!(matches!(result, Err(TurnError::Cancelled)), "{result:?}");
    assert!(!lab.exists("gone"));
}

fn relays(lab: &Lab) {
    let mut spec = lab.spec("cat ~/.conf/key; stat -c %a ~/.conf/key");
    spec.relays.push(Relay {
        dest: "/sandbox/home/.conf/key".to_owned(),
        content: b"secret\n".to_vec(),
        mode: 0o640,
    });
    assert_eq!(lab.run(spec).unwrap().out, "secret\n640\n");
    let mut spec = lab.spec("true");
    spec.relays.push(Relay { dest: "/usr/lib/key".to_owned(), content: Vec::new(), mode: 0o600 });
    assert_eq!(lab.run(spec).unwrap_err().class(), TransportClass::Agent);
}

fn read_only_paths(lab: &Lab) {
    let tools = lab.dir().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let tool = tools.join("tool");
    std::fs::write(&tool, "#!/bin/sh\necho works\n").unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut spec = lab.spec(&format!(
        "{0}; echo x >> {0}; rm {0}; echo y > {1}/new; true",
        tool.display(),
        tools.display()
    ));
    spec.read_only_paths.push(tools.clone());
    let seen = lab.run(spec).unwrap();
    assert_eq!(seen.out, "works\n", "{}", seen.err);
    assert_eq!(std::fs::read_dir(&tools).unwrap().count(), 1);
    for refused in ["/", "/proc", "/etc/ssh", "relative", lab.dir().to_str().unwrap()] {
        let mut spec = lab.spec("true");
        spec.read_only_paths.push(refused.into());
        assert!(lab.run(spec).is_err(), "{refused}");
    }
}

fn layers(lab: &Lab) {
    let layers = lab.gateway().layers().join("\n");
    for layer in
        ["namespaces", "view", "no_new_privs", "landlock: in force", "seccomp", "capabilities", "limits"]
    {
        assert!(layers.contains(layer), "{layer} in {layers}");
    }
}

fn busy(lab: &Lab) {
    let config = driver::GatewayConfig { state_dir: lab.dir().join("state") };
    let error = driver::Gateway::embedded(config).unwrap_err();
    assert!(matches!(error, driver::GatewayError::Busy(_)), "{error}");
}

/// Prints why a gateway does not start here, or that it does.
pub(crate) fn probe(dir: &str) {
    match driver::Gateway::embedded(driver::GatewayConfig { state_dir: dir.into() }) {
        Ok(_) => println!("it starts"),
        Err(error) => println!("failed to {error}"),
    }
}

fn missing_layers(lab: &Lab) {
    let binary = std::fs::read_link("/proc/self/exe").unwrap();
    let inside = |before: &str| {
        let script =
            format!("{before} exec {} --probe {}", binary.display(), lab.dir().join("probe").display());
        let mut command = std::process::Command::new("unshare");
        let output =
            command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    // Root of a container that has but one number is enough.
    assert_eq!(inside(""), "it starts\n");
    let without_namespaces = inside("echo 0 > /proc/sys/user/max_user_namespaces &&");
    assert!(without_namespaces.contains("raise sysctl user.max_user_namespaces"), "{without_namespaces}");
    let in_a_container = inside("mount --bind /dev/null /proc/meminfo &&");
    assert!(in_a_container.contains("run it --privileged"), "{in_a_container}");
}

fn refused(lab: &Lab) {
    let mut spec = lab.spec("true");
    spec.limits.disk = 0;
    assert!(lab.run(spec).unwrap_err().to_string().contains("disk is zero"));
    for dest in ["/sandbox/space/key", "key", "/tmp/../sandbox/space/key"] {
        let mut spec = lab.spec("true");
        spec.relays.push(Relay { dest: dest.to_owned(), content: Vec::new(), mode: 0o600 });
        assert!(lab.run(spec).unwrap_err().to_string().contains("outside the workspace"), "{dest}");
    }
}
