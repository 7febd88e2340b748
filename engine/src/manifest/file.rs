//! Turns what can be wrong with a file that a manifest names into values, so that it is reported beside all else.
//! It refuses to look at any file: who loads a pack does.

use std::path::PathBuf;

/// What is wrong with a file that the manifest names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Nothing is there.
    #[error("{} does not exist", .path.display())]
    Missing {
        /// The path as resolved.
        path: PathBuf,
    },
    /// Something is there that is no file.
    #[error("{} is {what}, and a regular file is meant", .path.display())]
    NotAFile {
        /// The path as resolved.
        path: PathBuf,
        /// With its article.
        what: &'static str,
    },
    /// Something is there that is no directory.
    #[error("{} is a file, and a directory is meant", .path.display())]
    NotADirectory {
        /// The path as resolved.
        path: PathBuf,
    },
    /// A toolbox that the agent could change.
    #[error("{} lies in the workspace, which is made anew", .path.display())]
    InWorkspace {
        /// The path as resolved.
        path: PathBuf,
    },
    /// A toolbox with too much in it.
    #[error("{} holds more than {files} files or {bytes} bytes", .path.display())]
    TooMuch {
        /// The path as resolved.
        path: PathBuf,
        /// The limit of files.
        files: usize,
        /// The limit of bytes.
        bytes: u64,
    },
    /// A link where none is followed.
    #[error("{} is a symbolic link or lies behind one", .path.display())]
    Link {
        /// The path as resolved.
        path: PathBuf,
    },
    /// More than is read.
    #[error("{} is larger than {max} bytes", .path.display())]
    TooLarge {
        /// The path as resolved.
        path: PathBuf,
        /// The limit in bytes.
        max: u64,
    },
    /// Not text.
    #[error("{} is not UTF-8: the byte at offset {offset} begins no character", .path.display())]
    NotUtf8 {
        /// The path as resolved.
        path: PathBuf,
        /// Offset of the first bad byte.
        offset: usize,
    },
    /// A name that no manifest could write.
    #[error("{} has a name that is not UTF-8 or holds control characters", .path.display())]
    Name {
        /// The path as found.
        path: PathBuf,
    },
    /// The system did not let it be read.
    #[error("{} cannot be read: {why}", .path.display())]
    Unreadable {
        /// The path as resolved.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// A file of certificates whose text is damaged.
    #[error("{} is not PEM: {why}", .path.display())]
    NotPem {
        /// The path as resolved.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file of certificates without any.
    #[error("{} holds no certificate", .path.display())]
    NoCertificate {
        /// The path as resolved.
        path: PathBuf,
    },
    /// What a certificate's block holds is none that could be trusted.
    #[error("certificate {number} of {} cannot be trusted: {why}", .path.display())]
    BadCertificate {
        /// The path as resolved.
        path: PathBuf,
        /// Its place among the certificates of the file, from 1.
        number: usize,
        /// Why.
        why: String,
    },
    /// A file of certificates that would give a key away.
    #[error("{} holds a private key", .path.display())]
    PrivateKey {
        /// The path as resolved.
        path: PathBuf,
    },
    /// A frozen inject from the workspace that the agent may have made.
    #[error("{} lies in the workspace and is not in its base commit", .path.display())]
    NotInBase {
        /// The path as resolved.
        path: PathBuf,
    },
    /// A directory or glob without a single regular file.
    #[error("the inject `{pattern}` matches no regular file")]
    NoMatch {
        /// As written.
        pattern: String,
    },
    /// A directory or glob with too many.
    #[error(
        "the inject `{pattern}` stands for more than {max} files or goes more than {depth} directories deep"
    )]
    TooMany {
        /// As written.
        pattern: String,
        /// The limit of files.
        max: usize,
        /// The limit of depth.
        depth: usize,
    },
}

impl FileError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Missing { .. } => "paths are relative to the manifest's directory",
            Self::NotAFile { what: "a directory", .. } => "name a file in it",
            Self::Link { .. } => {
                "name the file that it leads to, or use the table form: { src = \"…\", dst = \"…\" }"
            }
            Self::NotUtf8 { .. } => "save the file as UTF-8",
            Self::NoMatch { .. } => {
                "links, special files, the workspace, `state` and `.git` are never matched"
            }
            Self::NotADirectory { .. } => "name the directory that holds it",
            Self::InWorkspace { .. } => "keep it beside the manifest",
            Self::NotInBase { .. } => {
                "commit it: what is frozen is read from there, so that no agent can change it"
            }
            Self::TooMuch { .. } => "keep only what the agent is to read in it",
            Self::TooMany { .. } => "name the files or directories that are meant",
            Self::NotPem { .. } | Self::NoCertificate { .. } => {
                "each certificate stands between the lines -----BEGIN CERTIFICATE----- and -----END CERTIFICATE-----"
            }
            Self::BadCertificate { .. } => {
                "name a file of X.509 certificates; `openssl x509 -text` shows one"
            }
            Self::PrivateKey { .. } => {
                "name a file of certificates alone: every agent could read the key in its sandbox"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
