//! Turns the bytes of a `ca_file` into certificates that can be trusted, written in one way, or into what is wrong with them.
//! It refuses to know who trusts them.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use sha2::{Digest, Sha256};

use super::FileError;

/// The largest file of certificates that is read, in bytes.
pub const MAX_CERTIFICATES_BYTES: u64 = 1 << 20;
/// Characters of base64 in a line of PEM.
const LINE: usize = 64;

/// What is trusted beside the system's certificates (note N11). There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    path: PathBuf,
    pem: String,
    fingerprints: Vec<String>,
}

/// One block of a PEM file.
struct Block(SectionKind, Vec<u8>);

impl PemObject for Block {
    fn from_pem(kind: SectionKind, der: Vec<u8>) -> Option<Self> {
        Some(Self(kind, der))
    }
}

impl Certificates {
    /// Reads a PEM file that was found at `path`. What stands between the blocks is not kept.
    ///
    /// # Errors
    /// Not PEM, no certificate, a private key, and a certificate that no client could trust.
    pub(super) fn read(path: PathBuf, bytes: &[u8]) -> Result<Self, FileError> {
        let mut read = Self { path, pem: String::new(), fingerprints: Vec::new() };
        for block in Block::pem_slice_iter(bytes) {
            match block {
                Ok(Block(SectionKind::Certificate, der)) => read.add(&der)?,
                Ok(Block(
                    SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey,
                    _,
                )) => {
                    return Err(FileError::PrivateKey { path: read.path });
                }
                Ok(_) => {}
                Err(error) => return Err(FileError::NotPem { path: read.path, why: why(&error) }),
            }
        }
        if read.fingerprints.is_empty() {
            return Err(FileError::NoCertificate { path: read.path });
        }
        Ok(read)
    }

    fn add(&mut self, der: &[u8]) -> Result<(), FileError> {
        let number = self.fingerprints.len().saturating_add(1);
        // Only whether it could be an anchor is asked; the set itself is the clients'.
        RootCertStore::empty().add(CertificateDer::from(der)).map_err(|error| FileError::BadCertificate {
            path: self.path.clone(),
            number,
            why: error.to_string(),
        })?;
        self.fingerprints
            .push(Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        self.pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = STANDARD.encode(der);
        let mut rest = text.as_str();
        while let Some((line, more)) =
            rest.split_at_checked(LINE.min(rest.len())).filter(|(line, _)| !line.is_empty())
        {
            self.pem.extend([line, "\n"]);
            rest = more;
        }
        self.pem.push_str("-----END CERTIFICATE-----\n");
        Ok(())
    }

    /// The file, absolute.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The certificates alone, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The SHA-256 of each certificate, in hex, in the order of the file.
    pub fn fingerprints(&self) -> &[String] {
        &self.fingerprints
    }
}

fn why(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no end".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a line that begins a block is malformed".to_owned(),
        pem::Error::Base64Decode(_) => "a block is not base64".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["pypi.test".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn read(text: &str) -> Result<Certificates, FileError> {
        Certificates::read("/ca.pem".into(), text.as_bytes())
    }

    #[test]
    fn certificates_are_kept_and_all_else_is_not() {
        let ((one, _), (two, _)) = (made(), made());
        let file = format!("# the lab's\r\n{}\nand\n{two}trailing", one.replace('\n', "\r\n"));
        let certificates = read(&file).unwrap();
        assert_eq!(certificates.pem(), format!("{one}{two}").replace("\r\n", "\n"));
        assert_eq!(certificates.fingerprints().len(), 2);
        assert_ne!(certificates.fingerprints()[0], certificates.fingerprints()[1]);
        assert_eq!(read(certificates.pem()).unwrap(), certificates);
    }

    #[test]
    fn what_cannot_be_trusted_is_refused_and_named() {
        let (certificate, key) = made();
        let cut = certificate.replace("-----END CERTIFICATE-----", "");
        let other = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        for (text, expected) in [
            ("", "/ca.pem holds no certificate"),
            (
                "-----BEGIN PUBLIC KEY-----\naGVsbG8=\n-----END PUBLIC KEY-----\n",
                "/ca.pem holds no certificate",
            ),
            (&cut, "/ca.pem is not PEM: a block has no end"),
            (
                "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
                "/ca.pem is not PEM: a block is not base64",
            ),
            (&format!("{certificate}{key}"), "/ca.pem holds a private key"),
            (&format!("{certificate}{other}"), "certificate 2 of /ca.pem cannot be trusted: "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{text}: {error}");
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
