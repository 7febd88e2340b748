//! Turns "this file is as it was frozen" from a hope into a fact.
//! It refuses to know what the file judges.

use std::io::{self, Read};
use std::os::fd::AsFd as _;

use sha2::{Digest as _, Sha256};

use super::atomic::Draft;
use super::{FsError, Obstacles, RelPath, Root, WriteOptions};

/// What is known of a regular file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashed {
    /// Of its content.
    pub sha256: [u8; 32],
    /// Bytes.
    pub len: u64,
    /// Permission bits.
    pub mode: u32,
}

/// A file that the candidate may not change (contract §2): what it holds, and whether it is executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenFile {
    /// Where it stands in the workspace.
    pub dst: RelPath,
    /// Of its content.
    pub sha256: [u8; 32],
    /// Bytes.
    pub len: u64,
    /// Permission bits.
    pub mode: u32,
}

/// Puts a frozen file back if anything about it has changed: content, kind, mode, or what stands on the way.
/// Whether it had changed. Everything that is in the way is removed, and no link is followed or written through.
///
/// # Errors
/// [`FsError::SourceChanged`] when the source gives other bytes than were frozen; then the workspace has what it
/// had. [`FsError::Io`].
pub fn restore_frozen<R: Read>(
    root: &Root,
    frozen: &FrozenFile,
    source: impl FnOnce() -> io::Result<R>,
) -> Result<bool, FsError> {
    if is_intact(root, frozen) {
        return Ok(false);
    }
    let failed = root.failed("restore", &frozen.dst);
    let mut source = Checking { inner: source().map_err(&failed)?, hasher: Sha256::new(), len: 0 };
    let options = WriteOptions { mode: frozen.mode, durable: false, obstacles: Obstacles::Remove };
    let directory = root.make_parents(&frozen.dst, Obstacles::Remove)?;
    let draft = Draft::create(directory.as_fd()).map_err(&failed)?;
    draft.fill(&mut (&mut source).take(frozen.len.saturating_add(1)), options).map_err(&failed)?;
    if !source.gave(frozen) {
        return Err(FsError::SourceChanged { path: root.path().join(&frozen.dst) });
    }
    root.publish(draft, &frozen.dst, options)?;
    Ok(true)
}

/// Whatever keeps it from being read, the answer is to write it anew.
fn is_intact(root: &Root, frozen: &FrozenFile) -> bool {
    let expect = Hashed { sha256: frozen.sha256, len: frozen.len, mode: frozen.mode };
    matches!(root.hash_regular(&frozen.dst, frozen.len), Ok(Some(found)) if found == expect)
}

/// A reader that hashes what passes.
struct Checking<R> {
    inner: R,
    hasher: Sha256,
    len: u64,
}

impl<R: Read> Read for Checking<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(buffer.get(..length).unwrap_or_default());
        self.len += u64::try_from(length).unwrap_or(0);
        Ok(length)
    }
}

impl<R> Checking<R> {
    fn gave(self, frozen: &FrozenFile) -> bool {
        let sha256: [u8; 32] = self.hasher.finalize().into();
        self.len == frozen.len && sha256 == frozen.sha256
    }
}

#[cfg(test)]
mod tests;
