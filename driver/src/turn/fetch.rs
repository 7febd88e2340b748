//! Turns files that a command left in its sandbox, beside the workspace, into bytes: all that were asked for, or none.
//! It refuses to know what is in them; what the sandbox says of them is hostile data.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::{Clock, Exit, Fetch, Fetched, Stream, follow, within};
use crate::client::Client;
use crate::error::{Step, TurnError};
use crate::exec::ExecSpec;

/// How long it may take.
const FETCH: Duration = Duration::from_secs(60);
/// Room for the lines that tell paths and lengths.
const HEADS: usize = 64 * 1024;

/// Tells each file by its path, its length and so many bytes of it.
const SCRIPT: &str = "set -eu; cd -- \"$1\" 2>/dev/null || exit 0; find . -maxdepth 7 -type f -name \"$2\" | sort | \
    while IFS= read -r f; do n=$(wc -c < \"$f\"); printf '%s\\n%s\\n' \"${f#./}\" \"$n\"; head -c \"$n\" -- \"$f\"; done";

/// Reads the files by the sandbox's own shell, as who wrote them.
///
/// The text is why there are none: more than was allowed, or something in the sandbox that stood in the way.
pub(super) async fn fetch(client: &Client, sandbox: &str, fetch: &Fetch) -> Result<Vec<Fetched>, String> {
    let command =
        ["/bin/sh", "-c", SCRIPT, "fetch", &fetch.directory, &fetch.name].map(str::to_owned).to_vec();
    let spec = ExecSpec { command, workdir: Some("/".to_owned()), ..ExecSpec::default() };
    let max = fetch.max.saturating_add(HEADS);
    let mut told = Vec::new();
    let read = async {
        let running = client.exec(sandbox, spec, Step::Relay).await?;
        let mut sink = |stream, data: &[u8]| {
            if stream == Stream::Stdout && told.len() <= max {
                told.extend_from_slice(data);
            }
        };
        follow(running, Clock::new(None, None), &mut sink).await
    };
    match within(Step::Relay, FETCH, read).await {
        Err(error) => Err(explained(&error)),
        Ok(_) if told.len() > max => Err(format!("there are more than {} bytes of it", fetch.max)),
        Ok((Exit::Code(0), _)) => files(&told).ok_or_else(|| "it is not told whole".to_owned()),
        Ok((exit, _)) => Err(format!("reading it ended with {exit:?}")),
    }
}

fn explained(error: &TurnError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Reads what the script tells; nothing unless all of it is as it should be.
fn files(mut told: &[u8]) -> Option<Vec<Fetched>> {
    let mut files = Vec::new();
    while !told.is_empty() {
        let path = PathBuf::from(std::str::from_utf8(line(&mut told)?).ok()?);
        let length: usize = std::str::from_utf8(line(&mut told)?).ok()?.trim().parse().ok()?;
        let (content, rest) = told.split_at_checked(length)?;
        told = rest;
        is_below(&path).then(|| files.push(Fetched { path, content: content.to_vec() }))?;
    }
    Some(files)
}

fn line<'a>(told: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = told.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = told.split_at(end);
    *told = rest.get(1..)?;
    Some(line)
}

fn is_below(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_told_whole_or_nothing_is_taken() {
        let one = Fetched { path: "a/b.jsonl".into(), content: b"x\ny".to_vec() };
        let two = Fetched { path: "c".into(), content: Vec::new() };
        assert_eq!(files(b""), Some(vec![]));
        assert_eq!(files(b"a/b.jsonl\n3\nx\nyc\n0\n"), Some(vec![one, two]));
        for bad in [
            "a\n3\nxy",
            "a\n-1\n",
            "a\n",
            "../a\n0\n",
            "/a\n0\n",
            "\n0\n",
            "a\n99999999999999999999\n",
            "a/../b\n0\n",
        ] {
            assert_eq!(files(bad.as_bytes()), None, "{bad}");
        }
    }
}
