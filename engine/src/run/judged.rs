//! Turns the frozen files, as they were and as they are after a measurement, into what the row tells of them.
//! It refuses to know what they judge.

use sha2::{Digest, Sha256};

use crate::log::FrozenHash;
use crate::world::Compared;

/// So many files are told one by one in a row.
const HASHES_MAX: usize = 64;

/// Frozen files for the row: each of them, or where they are many those that changed and all of them together.
pub(super) fn hashes(found: &[Compared]) -> Vec<FrozenHash> {
    let one = |file: &Compared| FrozenHash {
        path: file.path.display().to_string(),
        before: hex(&file.frozen),
        after: file.found.as_ref().map(|found| hex(found)),
    };
    if found.len() <= HASHES_MAX {
        return found.iter().map(one).collect();
    }
    let changed = found.iter().filter(|file| file.found != Some(file.frozen)).take(HASHES_MAX).map(one);
    std::iter::once(all(found)).chain(changed).collect()
}

/// All of them under one hash, of paths and hashes in their order.
fn all(found: &[Compared]) -> FrozenHash {
    let (mut before, mut after) = (Sha256::new(), Sha256::new());
    for Compared { path, frozen, found } in found {
        for (hasher, hash) in [(&mut before, Some(frozen)), (&mut after, found.as_ref())] {
            hasher.update(path.as_os_str().as_encoded_bytes());
            hasher.update([0]);
            hasher.update(hash.map(|hash| hash.as_slice()).unwrap_or_default());
        }
    }
    FrozenHash {
        path: format!("(all {} files)", found.len()),
        before: hex(&before.finalize()),
        after: Some(hex(&after.finalize())),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn found(count: u8, changed: u8) -> Vec<Compared> {
        let one = |number: u8| Compared {
            path: PathBuf::from(format!("f{number}")),
            frozen: [number; 32],
            found: (number != changed).then_some([number; 32]),
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn few_files_are_told_each_and_many_together_with_those_that_changed() {
        let few = hashes(&found(2, 1));
        assert_eq!(
            (few[0].before.as_str(), few[0].after.as_ref()),
            ("00".repeat(32).as_str(), Some(&"00".repeat(32)))
        );
        assert_eq!((few[1].path.as_str(), &few[1].after), ("f1", &None));
        let many = hashes(&found(100, 200));
        assert_eq!((many.len(), many[0].path.as_str()), (1, "(all 100 files)"));
        assert_eq!(many[0].after.as_ref(), Some(&many[0].before));
        let changed = hashes(&found(100, 7));
        assert_eq!((changed.len(), changed[1].path.as_str()), (2, "f7"));
        assert_ne!(changed[0].after.as_ref(), Some(&changed[0].before));
        assert_eq!(changed[0].before, many[0].before);
    }
}
