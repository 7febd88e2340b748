//! Turns the end of a session log into whether its run ended on purpose (contract §7, `shutdown`).
//! It refuses to know why.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::log::{LogReader, SessionEvent};

/// How much of the end is read; a `shutdown` line is far shorter.
const END: u64 = 64 * 1024;

/// How a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// There is no log, or no line in it.
    Absent,
    /// Its last line is a `shutdown`.
    Closed,
    /// Its last line is another, or torn.
    Open,
}

/// Looks at the last line.
///
/// # Errors
/// When there is a log that cannot be read.
pub fn read(path: &Path) -> io::Result<LogEnd> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LogEnd::Absent),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    let whole = end.iter().rposition(|byte| !blank(byte)).map(|at| end.split_at(at.saturating_add(1)));
    let Some((text, rest)) = whole else { return Ok(LogEnd::Absent) };
    let last = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let closed = rest.contains(&b'\n')
        && matches!(LogReader::parse(last), Some(entry) if matches!(entry.event, SessionEvent::Shutdown { .. }));
    Ok(if closed { LogEnd::Closed } else { LogEnd::Open })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_shutdown_at_the_end_closes_a_log() {
        let shutdown = r#"{"v":1,"kind":"shutdown","outcome":"finished","reason":""}"#;
        let note = r#"{"v":1,"kind":"note","msg":"x"}"#;
        for (text, expect) in [
            (String::new(), LogEnd::Absent),
            ("\n\n".to_owned(), LogEnd::Absent),
            (format!("{note}\n{shutdown}\n"), LogEnd::Closed),
            (format!("{note}\n{shutdown}\n\n"), LogEnd::Closed),
            (format!("{shutdown}\n{note}\n"), LogEnd::Open),
            (format!("{note}\n{shutdown}"), LogEnd::Open),
            (format!("{note}\n{{\"v\":1,\"ki"), LogEnd::Open),
            (format!("{shutdown}\n{{\"v\":1,\"ki\n"), LogEnd::Open),
            (format!("{}\n{shutdown}\n", "x".repeat(200_000)), LogEnd::Closed),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            std::fs::write(&path, &text).unwrap();
            assert_eq!(read(&path).unwrap(), expect, "{text:.200}");
        }
        assert_eq!(read(Path::new("/nonexistent/log")).unwrap(), LogEnd::Absent);
    }
}
