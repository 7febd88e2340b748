//! Turns the signals of an operator into requests to stop, and a child's inherited ones into defaults.
//! It refuses to know what stopping involves.

use std::io;
use std::ptr;

use nix::libc;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the operator asks for: once is a request, twice is an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// The first signal: finish the step, then stop.
    Stop,
    /// Every further one: end at once.
    Abort,
}

/// SIGINT, SIGTERM and SIGHUP of this process, counted together. While it lives they no longer end the process.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    seen: bool,
}

impl Interrupts {
    /// Starts to listen. Must be called inside the runtime.
    ///
    /// # Errors
    /// When a handler cannot be installed.
    pub fn listen() -> io::Result<Interrupts> {
        Ok(Interrupts {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            seen: false,
        })
    }

    /// Waits for the next signal. Safe to cancel: a signal that came is not lost.
    pub async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
        count(&mut self.seen)
    }
}

fn count(seen: &mut bool) -> Interrupt {
    if std::mem::replace(seen, true) { Interrupt::Abort } else { Interrupt::Stop }
}

/// Puts every signal's action back to the default and unblocks all of them, so that what is executed next
/// meets the state a shell would give it. It is async-signal-safe, for use between fork and exec.
///
/// # Errors
/// When the mask cannot be set.
pub fn restore_defaults_in_child() -> io::Result<()> {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is a valid action for every number; those that cannot be changed (KILL, STOP, and the
        // two that libc keeps for itself) answer EINVAL, which is what we want of them.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set it is given, and sigprocmask only reads it.
    let done = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_signal_stops_and_each_further_one_aborts() {
        let mut interrupts = Interrupts::listen().unwrap();
        for (sent, expect) in [
            (nix::sys::signal::Signal::SIGHUP, Interrupt::Stop),
            (nix::sys::signal::Signal::SIGTERM, Interrupt::Abort),
            (nix::sys::signal::Signal::SIGINT, Interrupt::Abort),
        ] {
            nix::sys::signal::raise(sent).unwrap();
            assert_eq!(interrupts.next().await, expect, "{sent}");
        }
    }
}
