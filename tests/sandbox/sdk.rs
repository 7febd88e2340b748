//! OpenShell's own Python client against a gateway on its own, over a Unix socket and over TCP.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use driver::{Gateway, ServeConfig, gateway};
use tokio_util::sync::CancellationToken;

use crate::{Test, lab::Lab};

pub(crate) const TESTS: &[Test] = &[
    ("the_unmodified_python_sdk_works_and_its_descriptors_are_ours", sdk),
    ("a_gateway_listens_on_loopback_only_and_never_without_a_token", loopback),
];

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

fn serve(
    lab: &Lab,
    address: &str,
    token: &str,
    work: impl FnOnce(&Gateway) + Send + 'static,
) -> Result<(), driver::GatewayError> {
    let config = ServeConfig {
        state_dir: lab.dir().join("served"),
        socket: None,
        tcp: Some((address.parse().unwrap(), token.to_owned())),
    };
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    // The work blocks, and nothing else is on this runtime: the gateway has its own.
    lab.block_on(gateway::serve(config, stop, move |gateway| {
        work(gateway);
        stopper.cancel();
    }))
}

fn sdk(lab: &Lab) {
    let Some(python) = python() else {
        println!("skipped: no Python with openshell 0.1.5 can be had here");
        return;
    };
    let descriptors = lab.dir().join("descriptors.bin");
    std::fs::write(&descriptors, driver::wire::DESCRIPTORS).unwrap();
    let result = serve(lab, "127.0.0.1:0", TOKEN, move |gateway| {
        let mut command = Command::new(python);
        command
            .arg(SCRIPT)
            .arg(gateway.socket())
            .arg(gateway.tcp().unwrap().to_string())
            .arg(TOKEN)
            .arg(&descriptors);
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&output.stdout), "fine\n", "{}", text(&output.stderr));
    });
    result.unwrap();
}

fn loopback(lab: &Lab) {
    for (address, token) in [("0.0.0.0:0", TOKEN), ("192.0.2.1:0", TOKEN), ("127.0.0.1:0", "")] {
        let error = serve(lab, address, token, |_| panic!("it listens")).unwrap_err();
        assert!(matches!(error, driver::GatewayError::Refused(_)), "{error}");
    }
}
