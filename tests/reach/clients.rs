//! Turns the programs that agents use into requests to servers that only `ca_file` vouches for. Each reaches what is listed,
//! is refused what is not, and would trust nobody without the file.

use std::path::{Path, PathBuf};

use crate::Test;
use crate::lab::{decided, decisions, denied, once, pack};
use crate::server::World;
use crate::support::{Pack, git, program};

pub(crate) const TESTS: &[Test] = &[
    ("curl_and_the_bundle_that_every_variable_leads_to", curl),
    ("git_clones_and_pushes", git_client),
    ("pip_installs", pip),
    ("npm_installs", npm),
    ("cargo_fetches_from_a_sparse_registry", cargo),
    ("node_fetches", node),
    ("python_requests_and_urllib", python),
];

/// Where a program of this machine stands in a sandbox; `None` where it is not there, or not visible.
fn find(name: &str) -> Option<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
}

/// Says that a test cannot run here, which is a failure under CI: what it needs is installed there.
fn missing(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped under CI: {what} is not there");
    println!("skipped: {what} is not there");
}

/// A pack that lists a server, and a program by its path.
fn client(world: &World, script: &str, host: &str, program: &Path) -> Pack {
    let lists = format!(
        "inherit_defaults = false\nendpoints = [\"{host}:443:full\", \"{host}:80:full\"]\nbinaries = [{program:?}]"
    );
    pack(world, script, &lists)
}

fn curl(world: &World) {
    let Some(curl) = find("curl") else { return missing("curl") };
    let script = "
        curl -sS https://web.test/ > tunnel.txt
        curl -sS http://web.test/ > plain.txt
        curl -sS --noproxy '*' https://web.test/ > direct.txt
        curl -sS --cacert /etc/ssl/certs/ca-certificates.crt https://web.test/ > system.txt 2>&1 || echo $? >> system.txt
        curl -sS https://unlisted.test/ > denied.txt 2>&1 || echo $? >> denied.txt
        curl -sS --noproxy '*' https://unlisted.test/ > unnamed.txt 2>&1 || echo $? >> unnamed.txt
        env | grep /etc/crucible/ca.pem | cut -d= -f1 | sort > variables.txt
        grep -c 'BEGIN CERTIFICATE' /etc/crucible/ca.pem > count.txt
        { echo x >> /etc/crucible/ca.pem; rm /etc/crucible/ca.pem; chmod 600 /etc/crucible/ca.pem; } 2> locked.txt
        curl -sS https://web.test/ >> tunnel.txt";
    let pack = client(world, script, "web.test", &curl);
    once(&pack);
    let said = |name: &str| pack.read(&format!("workspace/{name}"));
    assert_eq!(said("tunnel.txt"), "hello GET web.test 0\n".repeat(2));
    assert_eq!(
        (said("plain.txt"), said("direct.txt")),
        (said("direct.txt"), "hello GET web.test 0\n".to_owned())
    );
    assert!(said("system.txt").ends_with("\n60\n"), "only ca_file vouches for it: {}", said("system.txt"));
    assert!(
        said("denied.txt").contains("403") && said("denied.txt").ends_with("\n56\n"),
        "{}",
        said("denied.txt")
    );
    assert!(said("unnamed.txt").ends_with("\n6\n"), "{}", said("unnamed.txt"));
    let mut variables: Vec<String> = policy::seam::BUNDLE.map(str::to_owned).to_vec();
    variables.sort();
    let mut shown: Vec<String> = said("variables.txt").lines().map(str::to_owned).collect();
    shown.sort();
    assert_eq!(shown, variables);
    let system = std::fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap();
    let count = system.matches("BEGIN CERTIFICATE").count() + 1;
    assert_eq!(said("count.txt"), format!("{count}\n"), "row 69: the system's, and one more");
    assert_eq!(said("locked.txt").matches("Read-only file system").count(), 3, "{}", said("locked.txt"));
    let records = decisions(&pack);
    for way in ["connect", "transparent"] {
        assert_eq!(decided(&records, way, "web.test:443")["verdict"], "allow");
    }
    assert_eq!(decided(&records, "forward", "web.test:80")["verdict"], "allow");
    denied(&records, "unlisted.test");
}

fn git_client(world: &World) {
    let Some(program) = find("git") else { return missing("git") };
    let served = world.files.join("git.test/repo.git");
    let start = tempfile::tempdir().unwrap();
    std::fs::write(start.path().join("fix.txt"), "upstream\n").unwrap();
    git(start.path(), &["init", "-q"]);
    git(start.path(), &["add", "."]);
    git(start.path(), &["commit", "-qm", "start"]);
    std::fs::create_dir_all(&served).unwrap();
    git(start.path(), &["clone", "-q", "--bare", ".", served.to_str().unwrap()]);
    git(&served, &["config", "http.receivepack", "true"]);
    // More than curl's post buffer, so that the body is chunked (row 78's way of sending, without ended TLS).
    let script = "
        git clone -q https://git.test/repo.git /tmp/repo && cd /tmp/repo || exit
        head -c 3000000 /dev/urandom > big && echo pushed > fix.txt && git add . || exit
        git -c user.name=agent -c user.email=agent@test commit -qm change || exit
        git push -q origin HEAD:refs/heads/agent > \"$OLDPWD\"/push.txt 2>&1; echo $? >> \"$OLDPWD\"/push.txt
        git clone -q https://unlisted.test/repo.git /tmp/other > \"$OLDPWD\"/denied.txt 2>&1; echo $? >> \"$OLDPWD\"/denied.txt";
    let pack = client(world, script, "git.test", &program);
    once(&pack);
    assert!(pack.read("workspace/push.txt").ends_with("0\n"), "{}", pack.read("workspace/push.txt"));
    assert_eq!(git(&served, &["show", "agent:fix.txt"]), "pushed\n");
    let refused = pack.read("workspace/denied.txt");
    assert!(refused.contains("403") && refused.ends_with("\n128\n"), "{refused}");
    let records = decisions(&pack);
    let record = decided(&records, "connect", "git.test:443");
    assert!(record["binary"].as_str().unwrap().contains("git-remote-http"), "by what git started: {record}");
    denied(&records, "unlisted.test");
}

fn pip(world: &World) {
    let python = Path::new("/usr/bin/python3");
    let has_pip = program("/usr/bin/python3").args(["-c", "import pip"]).output();
    if !has_pip.is_ok_and(|output| output.status.success()) {
        return missing("pip of /usr/bin/python3");
    }
    let built = tempfile::tempdir().unwrap();
    let wheel = "import zipfile, sys\n\
        wheel = zipfile.ZipFile(sys.argv[1], 'w')\n\
        wheel.writestr('tiny.py', 'ANSWER = 42\\n')\n\
        meta = 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n'\n\
        wheel.writestr('tiny-1.0.dist-info/METADATA', meta)\n\
        wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        wheel.writestr('tiny-1.0.dist-info/RECORD', '')\n\
        wheel.close()\n";
    let file = built.path().join("wheel");
    let output = program("/usr/bin/python3").args(["-c", wheel]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let name = "tiny-1.0-py3-none-any.whl";
    world.put(&format!("pypi.test/files/{name}"), std::fs::read(file).unwrap());
    world.put("pypi.test/simple/tiny/index.html", format!("<a href=\"/files/{name}\">{name}</a>\n"));
    let script = "
        install() { python3 -m pip install -q --disable-pip-version-check --no-cache-dir --retries 0 --timeout 20 --target \"$2\" --index-url \"$1\" tiny; }
        unset PIP_CONFIG_FILE
        install https://pypi.test/simple /tmp/installed > install.txt 2>&1; echo $? >> install.txt
        PYTHONPATH=/tmp/installed python3 -c 'import tiny; print(tiny.ANSWER)' > answer.txt
        install https://unlisted.test/simple /tmp/other > denied.txt 2>&1; echo $? >> denied.txt";
    let pack = client(world, script, "pypi.test", python);
    once(&pack);
    assert!(pack.read("workspace/install.txt").ends_with("0\n"), "{}", pack.read("workspace/install.txt"));
    assert_eq!(pack.read("workspace/answer.txt"), "42\n");
    assert!(pack.read("workspace/denied.txt").ends_with("1\n"), "{}", pack.read("workspace/denied.txt"));
    let records = decisions(&pack);
    assert_eq!(decided(&records, "connect", "pypi.test:443")["verdict"], "allow");
    denied(&records, "unlisted.test");
}

/// A directory `package` as a `.tgz`.
fn packed(dir: &Path, name: &str) -> Vec<u8> {
    let output = program("tar").args(["-cz", "-C"]).arg(dir).arg(name).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn npm(world: &World) {
    let (Some(node), Some(_)) = (find("node"), find("npm")) else { return missing("npm") };
    let built = tempfile::tempdir().unwrap();
    std::fs::create_dir(built.path().join("package")).unwrap();
    std::fs::write(built.path().join("package/package.json"), r#"{"name":"tiny","version":"1.0.0"}"#)
        .unwrap();
    std::fs::write(built.path().join("package/index.js"), "module.exports = 42\n").unwrap();
    world.put("npm.test/files/tiny-1.0.0.tgz", packed(built.path(), "package"));
    let version =
        r#"{"name":"tiny","version":"1.0.0","dist":{"tarball":"https://npm.test/files/tiny-1.0.0.tgz"}}"#;
    let index =
        format!(r#"{{"name":"tiny","dist-tags":{{"latest":"1.0.0"}},"versions":{{"1.0.0":{version}}}}}"#);
    world.put("npm.test/tiny", index);
    let script = "
        install() { npm install --silent --no-audit --no-fund --no-update-notifier --fetch-retries=0 --registry \"$1\" tiny; }
        here=$PWD; mkdir /tmp/one /tmp/two
        cd /tmp/one; echo '{}' > package.json; install https://npm.test/ > \"$here\"/install.txt 2>&1; echo $? >> \"$here\"/install.txt
        node -p 'require(\"tiny\")' > \"$here\"/answer.txt
        cd /tmp/two; echo '{}' > package.json; install https://unlisted.test/ > \"$here\"/denied.txt 2>&1; echo $? >> \"$here\"/denied.txt";
    let pack = client(world, script, "npm.test", &node);
    once(&pack);
    assert!(pack.read("workspace/install.txt").ends_with("0\n"), "{}", pack.read("workspace/install.txt"));
    assert_eq!(pack.read("workspace/answer.txt"), "42\n");
    assert!(!pack.read("workspace/denied.txt").ends_with("0\n"), "{}", pack.read("workspace/denied.txt"));
    let records = decisions(&pack);
    assert_eq!(decided(&records, "connect", "npm.test:443")["verdict"], "allow");
    denied(&records, "unlisted.test");
}

fn cargo(world: &World) {
    // The toolchain's own binary: what stands in the path may be rustup's, which would look for the toolchain at home.
    let sysroot = program("rustc").args(["--print", "sysroot"]).output();
    let Ok(sysroot) = sysroot else { return missing("rustc") };
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).unwrap().trim());
    let (cargo, rustc) = (sysroot.join("bin/cargo"), sysroot.join("bin/rustc"));
    if !cargo.exists() {
        return missing("cargo in the toolchain");
    }
    let built = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(built.path().join("tiny-1.0.0/src")).unwrap();
    let manifest = "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    std::fs::write(built.path().join("tiny-1.0.0/Cargo.toml"), manifest).unwrap();
    std::fs::write(built.path().join("tiny-1.0.0/src/lib.rs"), "pub const ANSWER: u8 = 42;\n").unwrap();
    let file = packed(built.path(), "tiny-1.0.0");
    let sum: String = {
        use sha2::Digest as _;
        sha2::Sha256::digest(&file).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    world.put("crates.test/dl/tiny/1.0.0/download", file);
    world.put("crates.test/index/config.json", r#"{"dl":"https://crates.test/dl"}"#);
    let line = format!(
        r#"{{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"{sum}","features":{{}},"yanked":false}}"#
    );
    world.put("crates.test/index/ti/ny/tiny", line);
    let script = format!(
        "
        here=$PWD; cargo={cargo:?}
        fetch() {{
            mkdir -p /tmp/$1/src /tmp/$1/.cargo; cd /tmp/$1; echo > src/lib.rs
            printf '[package]\\nname = \"user\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\ntiny = \"1\"\\n' > Cargo.toml
            printf '[source.crates-io]\\nreplace-with = \"here\"\\n[source.here]\\nregistry = \"sparse+https://%s/index/\"\\n[net]\\nretry = 0\\n' $2 > .cargo/config.toml
            RUSTC={rustc:?} CARGO_HOME=/tmp/home-$1 $cargo fetch -q
        }}
        (fetch one crates.test) > fetch.txt 2>&1; echo $? >> fetch.txt
        cat /tmp/home-one/registry/src/*/tiny-1.0.0/src/lib.rs > answer.txt
        (fetch two unlisted.test) > denied.txt 2>&1; echo $? >> denied.txt"
    );
    let lists = format!(
        "inherit_defaults = false\nendpoints = [\"crates.test:443:full\"]\nbinaries = [{cargo:?}]\nread_only_paths = [{sysroot:?}]"
    );
    let pack = pack(world, &script, &lists);
    once(&pack);
    assert!(pack.read("workspace/fetch.txt").ends_with("0\n"), "{}", pack.read("workspace/fetch.txt"));
    assert_eq!(pack.read("workspace/answer.txt"), "pub const ANSWER: u8 = 42;\n");
    assert!(pack.read("workspace/denied.txt").ends_with("101\n"), "{}", pack.read("workspace/denied.txt"));
    let records = decisions(&pack);
    assert_eq!(decided(&records, "connect", "crates.test:443")["verdict"], "allow");
    denied(&records, "unlisted.test");
}

fn node(world: &World) {
    let Some(node) = find("node") else { return missing("node") };
    let script = "
        get() { node -e 'fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t), e => { console.log(String(e.cause)); process.exit(1) })' \"$1\"; }
        get https://web.test/ > fetch.txt
        get https://unlisted.test/ > denied.txt 2>&1; echo $? >> denied.txt";
    let pack = client(world, script, "web.test", &node);
    once(&pack);
    assert_eq!(pack.read("workspace/fetch.txt"), "hello GET web.test 0\n");
    assert!(pack.read("workspace/denied.txt").ends_with("\n1\n"), "{}", pack.read("workspace/denied.txt"));
    let records = decisions(&pack);
    // From version 24 on it knows the variable for the proxy (row 70); before, it goes by name and address.
    let version = String::from_utf8(program("node").arg("--version").output().unwrap().stdout).unwrap();
    let major: u32 = version.trim_start_matches('v').split('.').next().unwrap().parse().unwrap();
    let way = if major >= 24 { "connect" } else { "transparent" };
    assert_eq!(decided(&records, way, "web.test:443")["verdict"], "allow");
    denied(&records, "unlisted.test");
}

fn python(world: &World) {
    let python = Path::new("/usr/bin/python3");
    let has = program("/usr/bin/python3").args(["-c", "import requests"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        return missing("requests of /usr/bin/python3");
    }
    let script = "
        python3 - > said.txt 2>&1 <<'END'
import requests, urllib.request, urllib.error
print(requests.get('https://web.test/').text, end='')
print(requests.get('http://web.test/').text, end='')
print(urllib.request.urlopen('https://web.test/').read().decode(), end='')
print(urllib.request.urlopen(urllib.request.Request('http://web.test/', data=b'four')).read().decode(), end='')
try:
    requests.get('https://unlisted.test/')
except requests.exceptions.ProxyError as error:
    print('requests', '403' in str(error))
try:
    urllib.request.urlopen('http://unlisted.test/')
except urllib.error.HTTPError as error:
    print('urllib', error.code, error.read().decode())
END";
    let pack = client(world, script, "web.test", python);
    once(&pack);
    let said = pack.read("workspace/said.txt");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}");
    assert_eq!(lines[..3], ["hello GET web.test 0"; 3], "{said}");
    assert_eq!(lines[3..5], ["hello POST web.test 4", "requests True"], "{said}");
    assert!(lines[5].starts_with("urllib 403 ") && lines[5].contains("\"host-not-listed\""), "{said}");
    let records = decisions(&pack);
    assert_eq!(decided(&records, "connect", "web.test:443")["verdict"], "allow");
    assert_eq!(decided(&records, "forward", "web.test:80")["verdict"], "allow");
    denied(&records, "unlisted.test");
}
