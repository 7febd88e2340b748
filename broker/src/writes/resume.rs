//! Turns the bytes of `state/outputs.jsonl` into the state of the run's writes.
//! It refuses to go on from lines that no broker wrote in their order.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};

use policy::outputs::{Entry, Ledger, LedgerError, Outputs};

/// More of a ledger than this is not gone on with.
const LEDGER_MAX: u64 = 256 << 20;

/// Why a ledger cannot be gone on with. Reads as what follows "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The file system.
    #[error("keep the record of writes")]
    Io(#[from] io::Error),
    /// It is too large.
    #[error("go on with a record of writes of more than {LEDGER_MAX} bytes")]
    TooLarge,
    /// A line that cannot stand there.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The ledger that the file's lines make.
pub(super) fn replayed(outputs: Outputs, mut file: &File) -> Result<Ledger, ResumeError> {
    if file.metadata()?.len() > LEDGER_MAX {
        return Err(ResumeError::TooLarge);
    }
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    read(outputs, &bytes)
}

/// The ledger that these lines make. A line that is no whole entry was torn by a crash: of a write that did not leave, or
/// of an outcome, without which its write counts as unknown. So it is passed over, and no count is lost by that.
///
/// # Errors
/// [`ResumeError::Ledger`].
pub fn read(outputs: Outputs, bytes: &[u8]) -> Result<Ledger, ResumeError> {
    let mut ledger = Ledger::new(outputs);
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Ok(entry) = serde_json::from_slice::<Entry>(line) {
            ledger.replay(entry)?;
        }
    }
    Ok(ledger)
}
