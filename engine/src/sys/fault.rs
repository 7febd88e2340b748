//! Turns places in the code into points at which a test can end this process as a crash of it would.
//! It refuses to be there in what is shipped: only a debug build with the feature `crashpoints` looks at any of it.

/// A point: a durable write or the start of a process is about to happen here, or has happened.
#[inline]
pub fn point(name: &'static str) {
    point_after(name, || {});
}

/// A point at which something is done only if the process ends here, such as half of a write.
#[cfg(not(all(feature = "crashpoints", debug_assertions)))]
#[inline]
pub fn point_after(_name: &'static str, _last: impl FnOnce()) {}

#[cfg(all(feature = "crashpoints", debug_assertions))]
pub use armed::point_after;

#[cfg(all(feature = "crashpoints", debug_assertions))]
mod armed {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::{Mutex, OnceLock, PoisonError};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use crate::sys::env::Environment;

    /// The file that each point is written to as it is met, a line each.
    const LOG: &str = "CRUCIBLE_CRASH_LOG";
    /// Which of them is the last, counted from 1.
    const AT: &str = "CRUCIBLE_CRASH_AT";

    struct Armed {
        log: File,
        at: Option<u64>,
        met: u64,
    }

    static ARMED: OnceLock<Option<Mutex<Armed>>> = OnceLock::new();

    fn arm() -> Option<Mutex<Armed>> {
        let env = Environment::of_this_process();
        let log = File::options().create(true).append(true).open(env.value(LOG)?).ok()?;
        let at = env.value(AT).and_then(|at| at.to_str()?.parse().ok());
        Some(Mutex::new(Armed { log, at, met: 0 }))
    }

    /// See [`super::point`].
    pub fn point_after(name: &'static str, last: impl FnOnce()) {
        let Some(armed) = ARMED.get_or_init(arm) else { return };
        let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
        armed.met += 1;
        let _ = writeln!(armed.log, "{name}");
        if armed.at == Some(armed.met) {
            last();
            let _ = kill(Pid::this(), Signal::SIGKILL);
        }
    }
}
