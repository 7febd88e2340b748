//! A real registry: a layer is appended onto a pinned base, mounted inside the registry, pulled back and compared.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use broker::systems::{Registry, Systems};
use policy::outputs::Kind;
use serde_json::{Value, json};

use crate::Test;
use crate::lab::{Lab, State, bounds, fixed, run};

pub(crate) const TESTS: &[Test] = &[("a_pushed_layer_is_mounted_inside_the_registry_and_pulled_back", push)];

/// A registry that ends with this value.
struct Running {
    child: Child,
    at: String,
    log: std::path::PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn there(tool: &str) -> bool {
    let missing =
        Command::new("sh").args(["-c", &format!("command -v {tool}")]).stdout(Stdio::null()).status();
    let there = missing.unwrap().success();
    if !there {
        assert!(std::env::var_os("CI").is_none(), "{tool} is missing: .ci/run installs it");
        println!("skipped: {tool} is not installed");
    }
    there
}

fn registry(dir: &Path) -> Running {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = dir.join("config.yml");
    let store = dir.join("store");
    let text = format!(
        "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {free}\n",
        store.display()
    );
    std::fs::write(&config, text).unwrap();
    let log = dir.join("log");
    let out = std::fs::File::create(&log).unwrap();
    let child = Command::new("docker-registry")
        .arg("serve")
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn();
    let running = Running { child: child.unwrap(), at: free.to_string(), log };
    // It says when it listens by taking a connection; how long that takes does not matter.
    while std::net::TcpStream::connect(free).is_err() {
        std::thread::yield_now();
    }
    running
}

fn skopeo(args: &[&str]) -> Vec<u8> {
    let output = Command::new("skopeo").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), bytes).unwrap();
    let out = child.wait_with_output().unwrap().stdout;
    String::from_utf8(out).unwrap()[..64].to_owned()
}

/// An image of one layer in OCI's layout on the disk, which skopeo takes to the registry.
fn base(dir: &Path) {
    let blobs = dir.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let root = dir.join("root");
    std::fs::create_dir_all(root.join("srv")).unwrap();
    std::fs::write(root.join("srv/a.py"), "print(1)\n").unwrap();
    let tar =
        Command::new("tar").args(["-C", root.to_str().unwrap(), "-cf", "-", "srv"]).output().unwrap().stdout;
    let put = |bytes: &[u8]| {
        let name = sha256(bytes);
        std::fs::write(blobs.join(&name), bytes).unwrap();
        (format!("sha256:{name}"), bytes.len())
    };
    let (layer, layer_size) = put(&tar);
    let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer]}, "config": {}});
    let (config, config_size) = put(config.to_string().as_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": layer_size}],
    });
    let (manifest, size) = put(manifest.to_string().as_bytes());
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": size}],
    });
    std::fs::write(dir.join("index.json"), index.to_string()).unwrap();
    std::fs::write(dir.join("oci-layout"), "{\"imageLayoutVersion\": \"1.0.0\"}").unwrap();
}

fn push() {
    if !there("docker-registry") || !there("skopeo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let at = registry.at.clone();
    let layout = dir.path().join("layout");
    base(&layout);
    let plain = ["--insecure-policy", "copy", "--dest-tls-verify=false"];
    let from = format!("oci:{}", layout.display());
    skopeo(&[&plain[..], &[&from, &format!("docker://{at}/base:1")]].concat());
    // On the way its layer was compressed, so it has another digest there.
    let digest = skopeo(&[
        "inspect",
        "--tls-verify=false",
        "--format",
        "{{.Digest}}",
        &format!("docker://{at}/base:1"),
    ]);
    let digest = String::from_utf8(digest).unwrap().trim().to_owned();
    run(async {
        let state = State::new();
        let system = Registry { host: at.clone(), user: None, password: None };
        let systems = Systems { registry: Some(system), ..Systems::default() };
        let lab = Lab::new(&state, bounds(Kind::ImagePush, 2, fixed(&format!("{at}/out"))), systems).await;
        let files = json!([
            {"path": "srv/a.py", "content": "print(2)\n"},
            {"path": "bin/run", "content": "#!/bin/sh\n", "executable": true},
        ]);
        let image = format!("{at}/out/app:candidate");
        let arguments = json!({"image": image, "base": format!("{at}/base@{digest}"), "files": files});
        let (failed, said) = lab.call("image_push", arguments.clone()).await;
        assert!(!failed, "{said}");
        assert_eq!(said["mounted_layers"], 1);
        let mut elsewhere = arguments.clone();
        elsewhere["base"] = format!("other.example/base@{digest}").into();
        let (failed, said) = lab.call("image_push", elsewhere).await;
        assert!(failed && said["reason"] == "layer", "{said}: a base of another registry");
        let mut outside = arguments;
        outside["image"] = format!("{at}/base:1").into();
        let (failed, said) = lab.call("image_push", outside).await;
        assert!(failed && said["bound"] == "[outputs.image-push].target", "{said}");
    });
    // What was mounted was not uploaded: the registry saw no more uploads in `out/app` than the layer and the configuration.
    let log = std::fs::read_to_string(&registry.log).unwrap();
    assert!(log.contains("mount=sha256"), "mounted server-side");
    let uploads = log
        .lines()
        .filter(|line| {
            line.contains("PUT")
                && line.contains("/v2/out/app/blobs/uploads/")
                && line.contains("response completed")
        })
        .count();
    assert!(uploads <= 2, "{uploads} uploads");
    let shown =
        skopeo(&["inspect", "--raw", "--tls-verify=false", &format!("docker://{at}/out/app:candidate")]);
    let manifest: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 2);
    let back = dir.path().join("back");
    let to = format!("dir:{}", back.display());
    skopeo(&[
        "--insecure-policy",
        "copy",
        "--src-tls-verify=false",
        &format!("docker://{at}/out/app:candidate"),
        &to,
    ]);
    let layer = manifest["layers"][1]["digest"].as_str().unwrap();
    let pulled = std::fs::read(back.join(layer.strip_prefix("sha256:").unwrap())).unwrap();
    assert_eq!(format!("sha256:{}", sha256(&pulled)), layer);
    let tar = dir.path().join("layer.tar");
    std::fs::write(&tar, pulled).unwrap();
    let listed = Command::new("tar").args(["-xOf", tar.to_str().unwrap(), "srv/a.py"]).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "print(2)\n");
    let config = manifest["config"]["digest"].as_str().unwrap();
    let config: Value = serde_json::from_slice(&std::fs::read(back.join(&config[7..])).unwrap()).unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][1], layer, "an uncompressed layer's digest is its own");
}
