//! Packs on disk, good and bad, and what an agent cannot change.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

const HEAD: &str = "[agent]\nbackend = \"command\"\nagent_cmd = \"a\"\n";
const TAIL: &str = "[judge]\nmeasure_cmd = \"m\"\ndirection = \"lower\"\n[repo]\npath = \".\"\n";

/// A manifest directory with those files; keys of `[agent]`, then other tables.
fn pack(agent: &str, tables: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    write(&dir, "crucible.toml", &format!("{HEAD}{agent}\n{TAIL}{tables}\n"));
    for (path, text) in files {
        write(&dir, path, text);
    }
    dir
}

fn write(dir: &TempDir, path: &str, text: &str) {
    let path = dir.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn load(dir: &TempDir) -> Result<Pack, PackError> {
    Pack::load(&dir.path().join("crucible.toml"))
}

fn destinations(pack: &Pack) -> Vec<&str> {
    pack.injects.iter().map(|inject| inject.dst.as_str()).collect()
}

/// What is wrong, one line each, with the directory's own path taken out.
fn mistakes(dir: &TempDir) -> String {
    let Err(PackError::Mistakes(errors)) = load(dir) else { panic!("the pack is not refused for its text") };
    let real = fs::canonicalize(dir.path()).unwrap();
    let line = |diagnostic: &policy::diag::Diagnostic| {
        let place = errors.source().position(diagnostic.span.start);
        format!("{}:{} {}", place.line, place.column, diagnostic.message)
    };
    let lines: Vec<_> = errors.diagnostics().iter().map(line).collect();
    lines.join("\n").replace(&format!("{}/", real.display()), "")
}

#[test]
fn files_are_read_beside_the_manifest() {
    let dir = pack(
        "method_prompt = \"p/method.md\"\ngoal_file = \"goal.md\"",
        "[workspace]\ninject = [\"measure.sh\"]",
        &[("p/method.md", "do {{GOAL}}"), ("goal.md", "win"), ("measure.sh", "echo")],
    );
    let script = dir.path().join("measure.sh");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let pack = load(&dir).unwrap();
    assert_eq!((pack.method.as_deref(), pack.goal.as_deref()), (Some("do {{GOAL}}"), Some("win")));
    assert_eq!(pack.manifest_dir, fs::canonicalize(dir.path()).unwrap());
    assert_eq!(pack.workspace_dir(), pack.manifest_dir.join("workspace"));
    let [inject] = pack.injects.as_slice() else { panic!("{:?}", pack.injects) };
    assert!(inject.frozen && inject.executable && inject.size == 4 && inject.origin == Origin::Disk);
    assert_eq!(inject.src, pack.manifest_dir.join("measure.sh"));
    // printf echo | sha256sum
    assert_eq!(inject.sha256[..4], [0x09, 0x2c, 0x79, 0xe8]);
    assert_eq!(pack.thawed, []);
}

#[test]
fn a_manifest_behind_no_directory_is_found() {
    let missing = Pack::load(Path::new("/no/such/crucible.toml")).unwrap_err();
    assert!(matches!(missing, PackError::Manifest { .. }), "{missing}");
    assert!(matches!(Pack::load(Path::new("/")), Err(PackError::Manifest { .. })));
    assert!(matches!(Pack::load(Path::new("/tmp")), Err(PackError::Manifest { .. })));
}

#[test]
fn a_manifest_too_large_or_not_text_is_refused_by_its_text() {
    let dir = pack("", "", &[]);
    fs::write(dir.path().join("crucible.toml"), b"\xff").unwrap();
    assert_eq!(mistakes(&dir), "1:1 the manifest is not UTF-8: the byte at offset 0 begins no character");
    fs::write(dir.path().join("crucible.toml"), "#".repeat(MAX_BYTES + 7)).unwrap();
    assert!(mistakes(&dir).contains("at most 1048576 are read"));
}

#[test]
fn directories_and_globs_stand_for_sorted_regular_files() {
    let files = [
        ("tools/b.py", ""),
        ("tools/a.py", ""),
        ("tools/a.txt", ""),
        ("tools/deep/c.py", ""),
        ("judge/z", ""),
        ("judge/in/y", ""),
        ("workspace/tools/w.py", ""),
        ("state/s.py", ""),
        (".git/g.py", ""),
        ("{x}", ""),
    ];
    let cases: [(&str, &[&str]); 7] = [
        ("\"tools/*.py\"", &["tools/a.py", "tools/b.py"]),
        ("\"**/*.py\"", &["tools/a.py", "tools/b.py", "tools/deep/c.py"]),
        ("\"tools/[ab].p?\"", &["tools/a.py", "tools/b.py"]),
        ("\"judge\"", &["judge/in/y", "judge/z"]),
        ("\"./judge/\"", &["judge/in/y", "judge/z"]),
        ("\"{x}\"", &["{x}"]),
        ("\"judge\", { src = \"tools/a.py\", dst = \"a\" }", &["a", "judge/in/y", "judge/z"]),
    ];
    for (inject, expected) in cases {
        let dir = pack("", &format!("[workspace]\ninject = [{inject}]"), &files);
        let outside = dir.path().join("tools/link.py");
        symlink("/etc/hostname", outside).unwrap();
        symlink("/etc", dir.path().join("judge/linked")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("judge/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(destinations(&load(&dir).unwrap()), expected, "{inject}");
    }
}

#[test]
fn all_bad_files_are_reported_at_their_places() {
    let dir = pack(
        "method_prompt = \"none.md\"\ngoal_file = \"tools\"",
        "[workspace]\ninject = [\n\"gone.sh\",\n\"no/*.py\",\n\"link.sh\",\n\"linked/x\",\n\"fifo\",\n\"empty\",\n\
         { src = \"tools\", dst = \"t\" },\n{ src = \"gone\", dst = \"g\" },\n{ src = \"link.sh\", dst = \"l\" },\n\
         \"tools/x\",\n{ src = \"tools/x\", dst = \"tools/x\" },\n{ src = \"tools/x\", dst = \"tools/x/y\" },\n]",
        &[("tools/x", "")],
    );
    symlink("tools/x", dir.path().join("link.sh")).unwrap();
    symlink("tools", dir.path().join("linked")).unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    // A mistake of the text itself comes first, and alone.
    assert_eq!(
        mistakes(&dir),
        "24:1 the inject's destination `tools/x/y` lies inside `tools/x`, which another inject makes a file"
    );
    let manifest = dir.path().join("crucible.toml");
    let text = fs::read_to_string(&manifest).unwrap().replace("\"tools/x/y\"", "\"u/v\"");
    fs::write(&manifest, text).unwrap();
    insta::assert_snapshot!(mistakes(&dir), @r#"
    4:17 none.md does not exist
    5:13 tools is a directory, and a regular file is meant
    13:1 gone.sh does not exist
    14:1 the inject `no/*.py` matches no regular file
    15:1 link.sh is a symbolic link or lies behind one
    16:1 linked is a symbolic link or lies behind one
    17:1 fifo is a special file, and a regular file is meant
    18:1 the inject `empty` matches no regular file
    19:1 tools is a directory, and a regular file is meant
    20:1 gone does not exist
    23:1 two injects have the destination `tools/x`
    "#);
}

#[test]
fn an_expanded_file_may_not_take_a_reserved_place() {
    let dir = pack("", "[workspace]\ninject = [\"*.md\"]", &[("a.md", ""), ("STEER.md", "")]);
    assert_eq!(
        mistakes(&dir),
        "11:11 the inject's destination `STEER.md` is a file that engine and agent speak through"
    );
}

#[test]
fn prompts_are_bounded_and_text() {
    let dir = pack("method_prompt = \"m\"\ngoal_file = \"g\"", "", &[]);
    fs::write(dir.path().join("m"), vec![b'x'; 4 << 20]).unwrap();
    fs::write(dir.path().join("g"), b"caf\xe9").unwrap();
    assert_eq!(mistakes(&dir), "5:13 g is not UTF-8: the byte at offset 3 begins no character");
    fs::write(dir.path().join("m"), vec![b'x'; (4 << 20) + 1]).unwrap();
    assert!(mistakes(&dir).starts_with("4:17 m is larger than 4194304 bytes"));
}

/// Base commits as a table: workspace, then path to content.
#[derive(Default)]
struct Recorded(BTreeMap<PathBuf, BTreeMap<&'static str, String>>);

struct Commit(BTreeMap<&'static str, String>);

impl Bases for Recorded {
    fn open(&self, workspace: &Path) -> io::Result<Option<Box<dyn Base>>> {
        let Some(files) = self.0.get(workspace) else { return Ok(None) };
        Ok(Some(Box::new(Commit(files.clone()))))
    }
}

impl Base for Commit {
    fn read(&self, path: &RelPath) -> io::Result<Option<BaseFile>> {
        let file = self.0.get(path.as_str());
        Ok(file.map(|text| BaseFile { bytes: text.clone().into_bytes(), executable: true }))
    }

    fn files(&self) -> io::Result<Vec<RelPath>> {
        Ok(self.0.keys().map(|path| RelPath::parse(path).unwrap()).collect())
    }
}

fn recorded(dir: &TempDir, below: &str, files: &[(&'static str, &str)]) -> Recorded {
    let workspace = fs::canonicalize(dir.path()).unwrap().join(below);
    let files = files.iter().map(|(path, text)| (*path, (*text).to_owned()));
    // A joined empty path would end in a slash, which compares equal.
    Recorded(BTreeMap::from([(workspace, files.collect())]))
}

fn load_frozen(dir: &TempDir, bases: &dyn Bases) -> Result<Pack, PackError> {
    Pack::load_frozen(&dir.path().join("crucible.toml"), bases)
}

#[test]
fn a_manifest_outside_its_workspace_is_read_as_it_is() {
    let dir = pack("goal = \"now\"", "", &[]);
    let pack = load_frozen(&dir, &Recorded::default()).unwrap();
    assert_eq!((pack.goal.as_deref(), pack.thawed.as_slice()), (Some("now"), [].as_slice()));
}

#[test]
fn in_place_without_a_base_commit_the_working_tree_is_trusted_aloud() {
    let dir = pack("", "[workspace]\ndir = \".\"\ninject = [\"m.sh\"]", &[("m.sh", "")]);
    let pack = load_frozen(&dir, &Recorded::default()).unwrap();
    let script = fs::canonicalize(dir.path()).unwrap().join("m.sh");
    assert_eq!(pack.thawed, [Thawed::Manifest, Thawed::Inject(script)]);
    assert!(pack.thawed[0].to_string().contains("no base commit yet"));
}

#[test]
fn in_place_manifest_and_frozen_injects_come_from_the_base_commit() {
    let dir = pack("goal = \"base\"", "[workspace]\ndir = \".\"\ninject = [\"j/*\"]", &[("j/a", "old")]);
    let base = fs::read_to_string(dir.path().join("crucible.toml")).unwrap();
    let bases = recorded(&dir, "", &[("crucible.toml", &base), ("j/a", "old"), ("other", "")]);
    write(&dir, "j/a", "changed by an agent");
    write(&dir, "j/b", "added by an agent");
    for changed in
        [base.replace("\"base\"", "\"mine\""), base.replace("dir = \".\"", "dir = \"w\""), "[[[".into()]
    {
        write(&dir, "crucible.toml", &changed);
        let pack = load_frozen(&dir, &bases).unwrap();
        assert_eq!((pack.goal.as_deref(), pack.thawed.as_slice()), (Some("base"), [].as_slice()));
        assert_eq!(pack.manifest.source().text(), base);
        let [inject] = pack.injects.as_slice() else { panic!("{:?}", pack.injects) };
        assert_eq!((inject.dst.as_str(), inject.size), ("j/a", 3));
        assert_eq!(inject.origin, Origin::Base(RelPath::parse("j/a").unwrap()));
    }
}

#[test]
fn a_manifest_that_the_base_commit_lacks_is_trusted_aloud() {
    let dir = pack("", "[workspace]\ndir = \".\"", &[]);
    let pack = load_frozen(&dir, &recorded(&dir, "", &[("x", "")])).unwrap();
    assert_eq!(pack.thawed, [Thawed::ManifestNotInBase]);
}

#[test]
fn a_frozen_inject_from_the_workspace_comes_from_its_base_commit_and_another_does_not() {
    let tables = "[workspace]\ninject = [{ src = \"workspace/t\", dst = \"f\" }, { src = \"workspace/t\", dst = \"u\", \
                  frozen = false }, { src = \"a/../workspace/t\", dst = \"g\" }]";
    let dir = pack("", tables, &[("workspace/t", "changed")]);
    let pack = load_frozen(&dir, &recorded(&dir, "workspace", &[("t", "old")])).unwrap();
    let sizes: Vec<_> = pack.injects.iter().map(|inject| (inject.dst.as_str(), inject.size)).collect();
    assert_eq!(sizes, [("f", 3), ("g", 3), ("u", 7)]);
    let pack = load_frozen(&dir, &Recorded::default()).unwrap();
    assert_eq!(pack.thawed.len(), 2);
    let error = load_frozen(&dir, &recorded(&dir, "workspace", &[("x", "")])).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("is not in its base commit") && error.contains("help: commit it"), "{error}");
}

#[test]
fn a_record_that_cannot_be_read_stops_the_load() {
    struct Broken;
    impl Bases for Broken {
        fn open(&self, _: &Path) -> io::Result<Option<Box<dyn Base>>> {
            Err(io::Error::other("torn"))
        }
    }
    let dir = pack("", "", &[]);
    assert!(matches!(load_frozen(&dir, &Broken), Err(PackError::Base(_))));
}

/// A pack with a sandbox that trusts `ca.pem`.
fn trusting(tables: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = pack("", "", files);
    let head = HEAD.replace("\"command\"", "\"openshell\"\nharness = \"command\"");
    let openshell = "openshell = { inherit_defaults = false, ca_file = \"ca.pem\" }\n";
    write(&dir, "crucible.toml", &format!("{head}{openshell}{TAIL}{tables}\n"));
    dir
}

fn certificate() -> String {
    rcgen::generate_simple_self_signed(["pypi.test".to_owned()]).unwrap().cert.pem()
}

#[test]
fn certificates_are_read_beside_the_manifest_and_shown_where_they_are_wrong() {
    let pem = certificate();
    let loaded = load(&trusting("", &[("ca.pem", &pem)])).unwrap();
    let certificates = loaded.certificates.unwrap();
    assert_eq!(certificates.pem(), pem.replace("\r\n", "\n"));
    assert_eq!(certificates.path(), loaded.manifest_dir.join("ca.pem"));
    assert_eq!(mistakes(&trusting("", &[])), "5:51 ca.pem does not exist");
    assert_eq!(mistakes(&trusting("", &[("ca.pem", "hello")])), "5:51 ca.pem holds no certificate");
    let long = "#".repeat(usize::try_from(MAX_CERTIFICATES_BYTES).unwrap() + 1);
    assert_eq!(mistakes(&trusting("", &[("ca.pem", &long)])), "5:51 ca.pem is larger than 1048576 bytes");
}

#[test]
fn certificates_in_the_workspace_come_from_its_base_commit() {
    let (good, planted) = (certificate(), certificate());
    let dir = trusting("[workspace]\ndir = \".\"\n", &[("ca.pem", &planted)]);
    let manifest = fs::read_to_string(dir.path().join("crucible.toml")).unwrap();
    let bases = recorded(&dir, "", &[("crucible.toml", &manifest), ("ca.pem", &good)]);
    let loaded = load_frozen(&dir, &bases).unwrap();
    assert_eq!(loaded.certificates.unwrap().pem(), good.replace("\r\n", "\n"));
    let bases = recorded(&dir, "elsewhere", &[]);
    let loaded = load_frozen(&dir, &bases).unwrap();
    assert!(
        loaded.thawed.iter().any(|thawed| matches!(thawed, Thawed::Certificates(_))),
        "{:?}",
        loaded.thawed
    );
    let bases = recorded(&dir, "", &[("crucible.toml", &manifest)]);
    assert!(load_frozen(&dir, &bases).is_err(), "the commit lacks it, so an agent may have made it");
}
