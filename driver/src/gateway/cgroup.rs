//! Turns limits into one cgroup per sandbox, in version 2's tree or in version 1's, one directory per controller.
//! It refuses to know processes but by their number; where no cgroup can be had it says so and does nothing.

use std::{
    fs::{self, File},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use crate::limits::Limits;

/// How long a period of CPU time is, in microseconds.
const PERIOD: u64 = 100_000;
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Where this gateway may make cgroups.
#[derive(Debug)]
pub(crate) struct Cgroups {
    parents: Parents,
    /// Stands in every name that this gateway makes, and in no other's.
    mark: String,
}

#[derive(Debug)]
enum Parents {
    /// One directory has all controllers.
    Two(PathBuf),
    /// Each controller has its own.
    One(Vec<(&'static str, PathBuf)>),
    None(String),
}

/// One sandbox's cgroup. Empty when there is none.
#[derive(Debug, Default)]
pub(crate) struct Cgroup {
    dirs: Vec<PathBuf>,
    one: bool,
}

/// One mounted cgroup file system.
struct Mounted {
    root: String,
    at: PathBuf,
    two: bool,
    options: String,
}

impl Cgroups {
    /// Looks where this process may make cgroups, by trying.
    pub(crate) fn probe(mark: &str) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self::find(&own, &mounts, mark)
    }

    fn find(own: &str, mounts: &str, mark: &str) -> Self {
        let mark = mark.to_owned();
        let mounted: Vec<Mounted> = mounts.lines().filter_map(mounted).collect();
        let one: Vec<_> =
            CONTROLLERS.into_iter().filter_map(|c| Some((c, one_parent(c, own, &mounted)?))).collect();
        if one.iter().any(|(controller, _)| *controller == "memory") {
            let usable = one.iter().all(|(_, parent)| try_child(parent, &mark).is_ok());
            let parents = match usable {
                true => Parents::One(one),
                false => Parents::None("the version 1 tree is not writable".to_owned()),
            };
            return Self { parents, mark };
        }
        let parents = match two_parents(own, &mounted).into_iter().find(|parent| has_limits(parent, &mark)) {
            Some(parent) => Parents::Two(parent),
            None => Parents::None("no cgroup with memory and pids is delegated to this user".to_owned()),
        };
        Self { parents, mark }
    }

    /// Whether memory and processes of a whole sandbox can be bounded.
    pub(crate) fn works(&self) -> bool {
        !matches!(self.parents, Parents::None(_))
    }

    /// The line for the table of layers.
    pub(crate) fn describe(&self) -> String {
        match &self.parents {
            Parents::Two(_) => "limits: cgroup version 2".to_owned(),
            Parents::One(parents) => {
                let names: Vec<_> = parents.iter().map(|(name, _)| *name).collect();
                format!("limits: cgroup version 1 ({})", names.join(", "))
            }
            Parents::None(why) => {
                format!("limits: degraded, per process by rlimits and no bound on CPU time ({why})")
            }
        }
    }

    /// Makes a sandbox's cgroup with its limits.
    pub(crate) fn create(&self, id: &str, limits: &Limits) -> io::Result<Cgroup> {
        let mut cgroup = Cgroup::default();
        let name = format!("{}-{id}", self.mark);
        match &self.parents {
            Parents::None(_) => {}
            Parents::Two(parent) => {
                let dir = cgroup.make(parent.join(name))?;
                fs::write(dir.join("memory.max"), limits.memory.to_string())?;
                optional(fs::write(dir.join("memory.swap.max"), "0"))?;
                fs::write(dir.join("pids.max"), limits.processes.to_string())?;
                if let Some(quota) = quota(limits) {
                    optional(fs::write(dir.join("cpu.max"), format!("{quota} {PERIOD}")))?;
                }
            }
            Parents::One(parents) => {
                cgroup.one = true;
                for (controller, parent) in parents {
                    let dir = cgroup.make(parent.join(&name))?;
                    write_one(controller, &dir, limits)?;
                }
            }
        }
        Ok(cgroup)
    }

    /// Removes what a gateway with this mark left behind when it was killed.
    pub(crate) fn sweep(&self) {
        let parents: Vec<&Path> = match &self.parents {
            Parents::None(_) => Vec::new(),
            Parents::Two(parent) => vec![parent],
            Parents::One(parents) => parents.iter().map(|(_, parent)| parent.as_path()).collect(),
        };
        for parent in parents {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(&self.mark) {
                    // One that still has processes is not ours to empty; the kernel refuses.
                    drop(fs::remove_dir(entry.path()));
                }
            }
        }
    }
}

impl Cgroup {
    fn make(&mut self, dir: PathBuf) -> io::Result<PathBuf> {
        fs::create_dir(&dir)?;
        self.dirs.push(dir.clone());
        Ok(dir)
    }

    /// Where a process joins by itself, in version 1.
    pub(crate) fn to_join(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |dir: &PathBuf| Ok(File::options().write(true).open(dir.join("tasks"))?.into());
        self.dirs.iter().filter(|_| self.one).map(open).collect()
    }

    /// Moves a process in that does not join by itself.
    pub(crate) fn add(&self, pid: i32) -> io::Result<()> {
        if self.one {
            return Ok(());
        }
        self.dirs.iter().try_for_each(|dir| fs::write(dir.join("cgroup.procs"), pid.to_string()))
    }

    /// The limits that were hit, by name.
    pub(crate) fn hits(&self) -> Vec<&'static str> {
        let counted = |file: &str, key: &str| {
            self.dirs
                .iter()
                .filter_map(|dir| fs::read_to_string(dir.join(file)).ok())
                .any(|text| counter(&text, key) > 0)
        };
        let mut hits = Vec::new();
        if counted("memory.events", "oom_kill") || counted("memory.oom_control", "oom_kill") {
            hits.push("memory");
        }
        if counted("pids.events", "max") {
            hits.push("processes");
        }
        hits
    }

    /// Removes it; its processes are gone.
    pub(crate) fn remove(&mut self) -> io::Result<()> {
        std::mem::take(&mut self.dirs).iter().map(fs::remove_dir).fold(Ok(()), Result::and)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What cannot be removed now is swept by its mark at the next start.
        drop(self.remove());
    }
}

/// The number after `key` on a line of its own.
fn counter(text: &str, key: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

fn quota(limits: &Limits) -> Option<u64> {
    (limits.cpu_millis > 0).then(|| limits.cpu_millis.saturating_mul(PERIOD / 1000))
}

/// A file that some kernels lack.
fn optional(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(())
        }
        other => other,
    }
}

fn write_one(controller: &str, dir: &Path, limits: &Limits) -> io::Result<()> {
    match controller {
        "memory" => {
            fs::write(dir.join("memory.limit_in_bytes"), limits.memory.to_string())?;
            optional(fs::write(dir.join("memory.memsw.limit_in_bytes"), limits.memory.to_string()))
        }
        "pids" => fs::write(dir.join("pids.max"), limits.processes.to_string()),
        _ => match quota(limits) {
            Some(quota) => {
                fs::write(dir.join("cpu.cfs_period_us"), PERIOD.to_string())?;
                fs::write(dir.join("cpu.cfs_quota_us"), quota.to_string())
            }
            None => Ok(()),
        },
    }
}

fn mounted(line: &str) -> Option<Mounted> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, at) = (fields.next()?.to_owned(), PathBuf::from(fields.next()?));
    let mut kind = kind.split(' ');
    let two = match kind.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    Some(Mounted { root, at, two, options: kind.nth(1)?.to_owned() })
}

/// The directory of a cgroup path under its mount, which may show only a part of the tree.
fn under(mounted: &Mounted, path: &str) -> PathBuf {
    let relative = path.strip_prefix(mounted.root.trim_end_matches('/')).unwrap_or("");
    mounted.at.join(relative.trim_start_matches('/'))
}

fn one_parent(controller: &str, own: &str, mounts: &[Mounted]) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|name| name == controller);
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        has(fields.next()?).then(|| fields.next()).flatten()
    })?;
    let mounted = mounts.iter().find(|mounted| !mounted.two && has(&mounted.options))?;
    Some(under(mounted, path))
}

/// Our own cgroup's parent, where ours may stand beside us, and our own, if it has no processes of its own.
fn two_parents(own: &str, mounts: &[Mounted]) -> Vec<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let Some(mounted) = mounts.iter().find(|mounted| mounted.two) else { return Vec::new() };
    let ours = under(mounted, path);
    let above = ours.parent().filter(|above| above.starts_with(&mounted.at)).map(Path::to_owned);
    above.into_iter().chain([ours]).collect()
}

fn try_child(parent: &Path, mark: &str) -> io::Result<()> {
    let child = parent.join(format!("{mark}-probe"));
    fs::create_dir(&child)?;
    fs::remove_dir(&child)
}

/// Whether a child of this directory gets the files of both controllers.
fn has_limits(parent: &Path, mark: &str) -> bool {
    // Refused where the directory has processes; then its controllers may be on already.
    drop(fs::write(parent.join("cgroup.subtree_control"), "+memory +pids +cpu"));
    let child = parent.join(format!("{mark}-probe"));
    if fs::create_dir(&child).is_err() {
        return false;
    }
    let has = ["memory.max", "pids.max"].iter().all(|file| child.join(file).exists());
    fs::remove_dir(&child).is_ok() && has
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { memory: 1 << 20, processes: 7, cpu_millis: 1500, ..Limits::default() }
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn version_two_limits_are_written_into_one_directory() {
        let tree = tempfile::tempdir().unwrap();
        let cgroups = Cgroups { parents: Parents::Two(tree.path().to_owned()), mark: "m".to_owned() };
        let mut cgroup = cgroups.create("a", &limits()).unwrap();
        cgroup.add(42).unwrap();
        let dir = tree.path().join("m-a");
        let written = ["memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs"]
            .map(|f| read(&dir.join(f)));
        assert_eq!(written, ["1048576", "0", "7", "150000 100000", "42"]);
        fs::write(dir.join("memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
        fs::write(dir.join("pids.events"), "max 0\n").unwrap();
        assert_eq!(cgroup.hits(), ["memory"]);
        cgroup.dirs.clear();
    }

    #[test]
    fn version_one_limits_are_written_one_directory_per_controller() {
        let tree = tempfile::tempdir().unwrap();
        let parents = CONTROLLERS.map(|c| (c, tree.path().join(c)));
        parents.iter().for_each(|(_, dir)| fs::create_dir(dir).unwrap());
        let cgroups = Cgroups { parents: Parents::One(parents.to_vec()), mark: "m".to_owned() };
        let mut cgroup = cgroups.create("a", &limits()).unwrap();
        assert_eq!(read(&tree.path().join("memory/m-a/memory.limit_in_bytes")), "1048576");
        assert_eq!(read(&tree.path().join("pids/m-a/pids.max")), "7");
        assert_eq!(read(&tree.path().join("cpu/m-a/cpu.cfs_quota_us")), "150000");
        cgroup.dirs.clear();
    }

    #[test]
    fn the_place_for_cgroups_is_found_under_a_mount_that_shows_a_part() {
        let tree = tempfile::tempdir().unwrap();
        let at = tree.path().to_str().unwrap();
        fs::create_dir_all(tree.path().join("memory/deep")).unwrap();
        let mounts = format!("1 2 0:3 /docker/x {at}/memory rw,relatime - cgroup cgroup rw,memory\n");
        let found = Cgroups::find("4:memory:/docker/x/deep\n", &mounts, "m");
        let Parents::One(parents) = found.parents else { panic!("{:?}", found.parents) };
        assert_eq!(parents, [("memory", tree.path().join("memory/deep"))]);
    }

    #[test]
    fn a_version_two_tree_without_controllers_is_degraded() {
        let tree = tempfile::tempdir().unwrap();
        let mounts = format!("1 2 0:3 / {} rw - cgroup2 cgroup2 rw\n", tree.path().display());
        let found = Cgroups::find("0::/\n", &mounts, "m");
        assert!(!found.works());
        assert!(found.describe().contains("degraded"));
    }
}
