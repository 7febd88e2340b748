//! Turns changed files into the bytes of one image layer: an uncompressed tar, the same for the same files.
//! It refuses to know owners, times and links: every file is root's, of the epoch, and regular.

use super::table::LayerFile;

const BLOCK: usize = 512;

/// A tar archive of these files, in order of their paths.
pub(super) fn tar(files: &[LayerFile]) -> Vec<u8> {
    let mut files: Vec<&LayerFile> = files.iter().collect();
    files.sort_by(|one, two| one.path.cmp(&two.path));
    let mut out = Vec::new();
    for file in files {
        out.extend_from_slice(&header(file));
        out.extend_from_slice(&file.content);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len().saturating_add(2 * BLOCK), 0);
    out
}

/// The `ustar` header: a block of fields at fixed places, with the sum of its bytes.
fn header(file: &LayerFile) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mode = if file.executable { "0000755" } else { "0000644" };
    put(&mut block, 0, &file.path);
    put(&mut block, 100, mode);
    put(&mut block, 108, "0000000");
    put(&mut block, 116, "0000000");
    put(&mut block, 124, &format!("{:011o}", file.content.len()));
    put(&mut block, 136, "00000000000");
    put(&mut block, 148, "        ");
    put(&mut block, 156, "0");
    put(&mut block, 257, "ustar");
    put(&mut block, 263, "00");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut block, 148, &format!("{sum:06o}\0 "));
    block
}

/// Writes a field; what follows it stays.
fn put(block: &mut [u8; BLOCK], at: usize, text: &str) {
    for (place, byte) in block.iter_mut().skip(at).zip(text.bytes()) {
        *place = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &str, executable: bool) -> LayerFile {
        LayerFile { path: path.to_owned(), content: content.into(), executable }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "tar itself says whether it can read the archive")]
    fn tar_reads_it_and_the_order_of_files_does_not_matter() {
        let files = [file("srv/b.py", "print(2)\n", false), file("bin/a", "#!/bin/sh\n", true)];
        let made = tar(&files);
        assert_eq!(made, tar(&[files[1].clone(), files[0].clone()]));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer.tar");
        std::fs::write(&path, &made).unwrap();
        let run = std::process::Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(dir.path()).status();
        assert!(run.unwrap().success());
        assert_eq!(std::fs::read_to_string(dir.path().join("srv/b.py")).unwrap(), "print(2)\n");
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(dir.path().join("bin/a")).unwrap().permissions().mode() & 0o777, 0o755);
    }
}
