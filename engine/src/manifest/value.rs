//! Turns single texts of a manifest into values that cannot be wrong: commands, durations, paths.
//! It refuses to know which key a text came from.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::fmt::friendly::SpanParser;

/// How long setup, measure, apply, snapshot and restore may each take where the manifest does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What Linux passes to a program as one argument (MAX_ARG_STRLEN), without the closing NUL.
const COMMAND_BYTES: usize = 128 * 1024 - 1;
const PATH_BYTES: usize = 4095;
const NAME_BYTES: usize = 255;

/// What can be wrong with one value, whatever its key. Each text goes on after the key's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Another type than the key takes.
    #[error("is {found}: it must be {expected}")]
    WrongType {
        /// With its article.
        expected: &'static str,
        /// With its article.
        found: &'static str,
    },
    /// Nothing, or blanks only.
    #[error("is empty")]
    Empty,
    /// A NUL, which no program and no file can be given.
    #[error("holds a NUL character")]
    Nul,
    /// A character that would not be seen.
    #[error("holds the control character U+{code:04X}")]
    Control {
        /// The character's number.
        code: u32,
    },
    /// More than the system passes to a program as one argument.
    #[error("is {bytes} bytes long: a command has at most {max}")]
    CommandTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A number where a length of time with units belongs, NaN and the infinities included.
    #[error("is a number: a length of time has units")]
    DurationNumber {
        /// The number, where seconds may have been meant.
        digits: Option<String>,
    },
    /// A text that is no length of time.
    #[error("is not a length of time")]
    DurationUnreadable,
    /// No time at all.
    #[error("is no time at all")]
    DurationZero,
    /// Less than none.
    #[error("is negative")]
    DurationNegative,
    /// Longer than any run.
    #[error("is longer than 30 days")]
    DurationTooLong,
    /// NaN, an infinity, or a number that becomes one.
    #[error("is not a finite number")]
    NotFinite,
    /// Nothing of what is counted.
    #[error("is zero")]
    Zero,
    /// Less than nothing of what is counted.
    #[error("is negative")]
    Negative,
    /// Less than is of use.
    #[error("is less than {least}")]
    TooSmall {
        /// The smallest that is taken, as it would be written.
        least: String,
    },
    /// More than there is.
    #[error("is more than {most}")]
    TooLarge {
        /// The largest that is taken, as it would be written.
        most: String,
    },
    /// A fourth decimal.
    #[error("has more than three decimals")]
    TooFine,
    /// A number where a size with a unit belongs.
    #[error("is a number: a size has a unit")]
    SizeNumber,
    /// A text that is no size.
    #[error("is not a size")]
    SizeUnreadable,
    /// A path that may not be used there.
    #[error("{0}")]
    Path(PathError),
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Starts at the root.
    #[error("is an absolute path")]
    Absolute,
    /// Goes up.
    #[error("leads out with `..`")]
    Escapes,
    /// Names the directory itself, not something in it.
    #[error("names no file")]
    NoName,
    /// Ends in `/` where a file is meant.
    #[error("ends in `/`, and a file is meant")]
    Directory,
    /// Longer than the system allows.
    #[error("is longer than the system allows")]
    TooLong,
}

/// A line for `sh -c`: not blank, no NUL, short enough to be passed to a program (contract §3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Command(String);

/// A path in the manifest as it was written, relative to the manifest's directory or absolute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManifestPath(String);

/// A path with nothing but names in it, joined by `/`: it never leaves the directory it is joined to by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(String);

impl Command {
    /// Takes the text as it is.
    ///
    /// # Errors
    /// Empty or blank, a NUL, too long for one argument.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        check_text(text)?;
        if text.len() > COMMAND_BYTES {
            return Err(ValueError::CommandTooLong { bytes: text.len(), max: COMMAND_BYTES });
        }
        Ok(Self(text.to_owned()))
    }

    /// What `sh -c` is given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ManifestPath {
    /// Takes the text as it is.
    ///
    /// # Errors
    /// Empty, a control character, longer than a path may be.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        check_line(text)?;
        if text.len() > PATH_BYTES || text.split('/').any(|name| name.len() > NAME_BYTES) {
            return Err(ValueError::Path(PathError::TooLong));
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path when relative ones start at `directory`.
    pub fn under(&self, directory: &Path) -> PathBuf {
        directory.join(&self.0)
    }

    /// Whether this is the manifest's own directory, however written.
    pub fn is_here(&self) -> bool {
        Path::new(&self.0).components().all(|part| part == Component::CurDir)
    }
}

impl RelPath {
    /// Reads a relative path; `./` and doubled slashes go away, a closing slash is allowed.
    ///
    /// # Errors
    /// Absolute, with `..`, without any name, or not a path.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let written = ManifestPath::parse(text)?;
        let mut names = Vec::new();
        for part in Path::new(&written.0).components() {
            match part {
                Component::Normal(name) => names.extend(name.to_str()),
                Component::CurDir => {}
                Component::ParentDir => return Err(ValueError::Path(PathError::Escapes)),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(ValueError::Path(PathError::Absolute));
                }
            }
        }
        if names.is_empty() {
            return Err(ValueError::Path(PathError::NoName));
        }
        Ok(Self(names.join("/")))
    }

    /// The names joined by `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The first name.
    pub fn first(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }

    /// Whether some name is `.git`, in any case: file systems that fold case would take it for git's own.
    pub fn touches_git(&self) -> bool {
        self.0.split('/').any(|name| name.eq_ignore_ascii_case(".git"))
    }

    /// Whether this lies inside `other`, by whole names.
    pub fn is_inside(&self, other: &Self) -> bool {
        self.0.strip_prefix(&other.0).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ManifestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads a length of time such as `"90s"`, `"10m"` or `"1h30m"`: more than none, at most 30 days.
///
/// # Errors
/// Unreadable, zero, negative, or longer than 30 days, each by its own name.
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    static PARSER: SpanParser = SpanParser::new();
    let signed = PARSER.parse_duration(text.trim()).map_err(|_| ValueError::DurationUnreadable)?;
    if signed == SignedDuration::ZERO {
        return Err(ValueError::DurationZero);
    }
    let duration = Duration::try_from(signed).map_err(|_| ValueError::DurationNegative)?;
    if duration > LONGEST {
        return Err(ValueError::DurationTooLong);
    }
    Ok(duration)
}

/// Refuses a text that no key takes.
pub(super) fn check_text(text: &str) -> Result<(), ValueError> {
    if text.trim().is_empty() {
        return Err(ValueError::Empty);
    }
    if text.contains('\0') {
        return Err(ValueError::Nul);
    }
    Ok(())
}

/// Refuses a text that is not one visible line.
pub(super) fn check_line(text: &str) -> Result<(), ValueError> {
    check_text(text)?;
    match text.chars().find(|character| character.is_control()) {
        Some(character) => Err(ValueError::Control { code: u32::from(character) }),
        None => Ok(()),
    }
}

/// A name from the file as a message may repeat it.
pub(super) fn shorten(name: &str) -> String {
    const MOST: usize = 60;
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", name.get(..at).unwrap_or_default()),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_positive_and_bounded() {
        let secs = |n| Ok(Duration::from_secs(n));
        let cases = [
            ("90s", secs(90)),
            ("10m", secs(600)),
            ("1h30m", secs(5400)),
            ("1h 30m", secs(5400)),
            ("0.5s", Ok(Duration::from_millis(500))),
            ("720h", secs(720 * 3600)),
            ("0s", Err(ValueError::DurationZero)),
            ("-5m", Err(ValueError::DurationNegative)),
            ("721h", Err(ValueError::DurationTooLong)),
            ("90", Err(ValueError::DurationUnreadable)),
            ("soon", Err(ValueError::DurationUnreadable)),
            ("", Err(ValueError::DurationUnreadable)),
            ("inf", Err(ValueError::DurationUnreadable)),
            ("9999999999999999999999h", Err(ValueError::DurationUnreadable)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }

    #[test]
    fn relative_paths_hold_names_only() {
        let cases = [
            ("a/b", Ok("a/b")),
            ("./a//b/./c", Ok("a/b/c")),
            ("tools/", Ok("tools")),
            ("...", Ok("...")),
            (".", Err(ValueError::Path(PathError::NoName))),
            ("..", Err(ValueError::Path(PathError::Escapes))),
            ("a/../b", Err(ValueError::Path(PathError::Escapes))),
            ("/a", Err(ValueError::Path(PathError::Absolute))),
            ("a\nb", Err(ValueError::Control { code: 10 })),
            ("a\0b", Err(ValueError::Nul)),
            (" ", Err(ValueError::Empty)),
        ];
        for (text, expected) in cases {
            let got = RelPath::parse(text);
            assert_eq!(got.as_ref().map(RelPath::as_str).map_err(Clone::clone), expected, "{text:?}");
        }
        assert_eq!(RelPath::parse(&"a/".repeat(3000)), Err(ValueError::Path(PathError::TooLong)));
        assert_eq!(RelPath::parse(&"a".repeat(256)), Err(ValueError::Path(PathError::TooLong)));
    }

    #[test]
    fn inside_goes_by_whole_names() {
        let path = |text| RelPath::parse(text).unwrap();
        assert!(path("a/b").is_inside(&path("a")));
        assert!(!path("ab").is_inside(&path("a")));
        assert!(!path("a").is_inside(&path("a")));
        assert!(path("x/.GIT/hooks").touches_git());
        assert!(!path(".github/x").touches_git());
    }

    #[test]
    fn a_command_fits_one_argument() {
        assert!(Command::parse(&"x".repeat(COMMAND_BYTES)).is_ok());
        let long = "x".repeat(COMMAND_BYTES + 1);
        let error = ValueError::CommandTooLong { bytes: COMMAND_BYTES + 1, max: COMMAND_BYTES };
        assert_eq!(Command::parse(&long), Err(error));
    }
}
