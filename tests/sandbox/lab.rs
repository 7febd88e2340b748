//! A gateway, a workspace, and one call that runs a turn in it.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use driver::{
    Client, Gateway, GatewayConfig,
    turn::{self, Exit, Stream, TurnEnd, TurnSpec},
};
use tokio_util::sync::CancellationToken;

/// No turn of a test takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that one test needs; nothing of it outlives the test.
pub(crate) struct Lab {
    dir: tempfile::TempDir,
    gateway: Option<Gateway>,
    serial: AtomicU32,
    /// Layers that every turn leaves out.
    pub(crate) weaken: Vec<String>,
}

/// A turn that ended, with what it wrote.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) end: TurnEnd,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("space")).unwrap();
        let gateway = Gateway::embedded(GatewayConfig { state_dir: dir.path().join("state") });
        let gateway = gateway.unwrap_or_else(|error| panic!("failed to {error}: {error:?}"));
        Self { dir, gateway: Some(gateway), serial: AtomicU32::new(0), weaken: Vec::new() }
    }

    /// Another laboratory, whose sandboxes' ways out are answered by this one.
    pub(crate) fn networked(network: std::sync::Arc<dyn driver::Network>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("space")).unwrap();
        let config = GatewayConfig { state_dir: dir.path().join("state") };
        let gateway = Some(Gateway::networked(config, network).unwrap());
        Self { dir, gateway, serial: AtomicU32::new(0), weaken: Vec::new() }
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().unwrap()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The workspace on the host.
    pub(crate) fn space(&self) -> PathBuf {
        self.dir.path().join("space")
    }

    /// Writes a file of the workspace on the host.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.space().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.space().join(path)).unwrap()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.space().join(path).symlink_metadata().is_ok()
    }

    /// A turn that runs this shell script.
    pub(crate) fn spec(&self, script: &str) -> TurnSpec {
        self.program(["/bin/sh", "-c", script])
    }

    pub(crate) fn program<const N: usize>(&self, command: [&str; N]) -> TurnSpec {
        TurnSpec {
            name: format!("t-{}", self.serial.fetch_add(1, Ordering::Relaxed)),
            workspace: self.space(),
            command: command.map(str::to_owned).to_vec(),
            timeout: Some(PATIENCE),
            weaken: self.weaken.clone(),
            ..TurnSpec::default()
        }
    }

    /// Runs the script and expects the turn to end, in whatever way.
    pub(crate) fn sh(&self, script: &str) -> Seen {
        self.run(self.spec(script)).unwrap_or_else(|error| panic!("failed to {error}: {error:?}"))
    }

    /// Runs the script and expects it to exit with zero; answers what it wrote.
    pub(crate) fn fine(&self, script: &str) -> String {
        let seen = self.sh(script);
        assert_eq!(seen.end.exit, Exit::Code(0), "{}\n{}", seen.out, seen.err);
        seen.out
    }

    pub(crate) fn run(&self, spec: TurnSpec) -> Result<Seen, driver::TurnError> {
        self.run_until(spec, CancellationToken::new())
    }

    pub(crate) fn run_until(
        &self,
        spec: TurnSpec,
        cancel: CancellationToken,
    ) -> Result<Seen, driver::TurnError> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = self.block_on(async {
            let client = Client::unix(self.gateway().socket()).await?;
            let mut sink = |stream, data: &[u8]| match stream {
                Stream::Stdout => out.extend_from_slice(data),
                Stream::Stderr => err.extend_from_slice(data),
            };
            turn::run(&client, spec, cancel, &mut sink).await
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Seen { end, out: text(out), err: text(err) })
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(PATIENCE * 2, work).await.expect("the test hangs") })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let stopped = self.gateway.take().unwrap().stop();
        if !std::thread::panicking() {
            stopped.unwrap();
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounts.contains(self.dir.path().to_str().unwrap()), "a mount stayed: {mounts}");
        }
    }
}

impl Seen {
    /// The paths that changed, as text.
    pub(crate) fn changed(&self) -> Vec<String> {
        self.end.changed.iter().map(|change| format!("{:?} {}", change.kind, change.path.display())).collect()
    }

    /// The paths that did not come back.
    pub(crate) fn dropped(&self) -> Vec<String> {
        self.end.dropped.iter().map(|dropped| dropped.path.display().to_string()).collect()
    }
}
