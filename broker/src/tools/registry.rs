//! Turns steps of a push into calls of an OCI registry's distribution API, with its token where it wants one.
//! It refuses to send a credential to any other host than the registry's.

use hyper::Method;
use hyper::body::Bytes;
use sha2::{Digest as _, Sha256};

use super::fault::{Fault, Trouble};
use super::fetch::{Answer, Ask, Credential, Fetcher};
use super::table::hex;
use crate::systems::url::{Url, is_loopback};
use crate::systems::{Registry, Secret};

/// The most bytes of a manifest or a configuration.
const DOCUMENT_MAX: usize = 4 << 20;
/// The manifests that are one image.
pub(super) const MANIFESTS: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// A registry during one push.
pub(super) struct Session<'a> {
    registry: &'a Registry,
    fetch: &'a Fetcher,
    base: Url,
    token: Option<Secret>,
}

/// `sha256:` and the digest of bytes.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

impl<'a> Session<'a> {
    /// Begins; `scopes` are what a token is asked for, such as `repository:a/b:pull,push`.
    pub(super) async fn begin(
        registry: &'a Registry,
        fetch: &'a Fetcher,
        scopes: &[String],
    ) -> Result<Self, Trouble> {
        let host = registry.host.clone();
        let url = Url::parse(&format!("https://{host}"));
        let mut base =
            url.map_err(|_| Trouble::nothing(Fault::Malformed(host, "its name cannot be used")))?;
        // As every client of registries does it: this machine's own is plain.
        base.secure = !is_loopback(&base.target.host);
        let mut session = Self { registry, fetch, base, token: None };
        let hello = session.call(Method::GET, &session.base.join("/v2/"), "*/*", None).await?;
        if hello.status == 401 {
            let challenge = hello.header("www-authenticate").unwrap_or_default().to_owned();
            session.token = session.token_for(&challenge, scopes).await?;
        }
        Ok(session)
    }

    /// A token, where the registry gives tokens; `None` where it takes the credential itself.
    async fn token_for(&self, challenge: &str, scopes: &[String]) -> Result<Option<Secret>, Trouble> {
        let refused = || Trouble::nothing(Fault::Credential(self.host()));
        let Some(rest) = challenge.strip_prefix("Bearer ") else {
            return if self.registry.password.is_some() { Ok(None) } else { Err(refused()) };
        };
        let part = |name: &str| {
            let (_, after) = rest.split_once(&format!("{name}=\""))?;
            after.split_once('"').map(|(value, _)| value)
        };
        let realm = part("realm").and_then(|realm| Url::parse(realm).ok()).ok_or_else(refused)?;
        if !realm.same_place(&self.base) {
            let (host, to) = (self.host(), realm.authority());
            return Err(Trouble::nothing(Fault::Redirect { host, to }));
        }
        let service = crate::systems::url::segment(part("service").unwrap_or_default());
        let scopes: String =
            scopes.iter().map(|scope| format!("&scope={}", crate::systems::url::segment(scope))).collect();
        let url = realm.join(&format!("?service={service}{scopes}"));
        let answer = self.call(Method::GET, &url, "application/json", None).await?;
        let answer = answer.json(&self.host())?;
        let token = answer.get("token").or_else(|| answer.get("access_token"));
        token.and_then(|token| token.as_str()).map(|token| Some(Secret::new(token))).ok_or_else(refused)
    }

    pub(super) fn host(&self) -> String {
        self.base.authority()
    }

    async fn call(
        &self,
        method: Method,
        url: &Url,
        accept: &str,
        body: Option<(&str, Bytes)>,
    ) -> Result<Answer, Trouble> {
        let credential = match (&self.token, &self.registry.user, &self.registry.password) {
            (Some(token), _, _) => Credential::Bearer(token),
            (None, Some(user), Some(password)) => Credential::Basic(user, password),
            (None, None, Some(password)) => Credential::Bearer(password),
            _ => Credential::None,
        };
        self.fetch.ask(Ask { method, url, credential, accept, body, most: DOCUMENT_MAX }).await
    }

    /// A manifest or blob by its digest, which is checked; with its type.
    pub(super) async fn pull(
        &self,
        path: &str,
        accept: &str,
        wanted: &str,
    ) -> Result<(String, Bytes), Trouble> {
        let answer = self.call(Method::GET, &self.base.join(path), accept, None).await?.ok(&self.host())?;
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        let body = answer.body.map_err(Trouble::nothing)?;
        if digest(&body) == wanted {
            Ok((kind, body))
        } else {
            Err(Trouble::nothing(Fault::Malformed(self.host(), "it has another digest than was asked for")))
        }
    }

    /// Makes a blob of one repository one of another, inside the registry; without a byte of it moving.
    pub(super) async fn mount(&self, to: &str, from: &str, blob: &str) -> Result<(), Trouble> {
        let there = self.base.join(&format!("/v2/{to}/blobs/{blob}"));
        if self.call(Method::HEAD, &there, "*/*", None).await?.status == 200 {
            return Ok(());
        }
        let url = self.base.join(&format!(
            "/v2/{to}/blobs/uploads/?mount={blob}&from={}",
            crate::systems::url::segment(from)
        ));
        let answer =
            self.call(Method::POST, &url, "*/*", Some(("application/octet-stream", Bytes::new()))).await?;
        let answer = answer.ok(&self.host())?;
        if answer.status == 201 {
            return Ok(());
        }
        self.cancel(&answer).await;
        Err(Trouble::nothing(Fault::Layer(
            "mount the base's layers in the target's repository: the registry would have every byte of them sent again",
        )))
    }

    /// Ends an upload that was not wanted; one that stays is the registry's to clear.
    async fn cancel(&self, begun: &Answer) {
        let place = begun.header("location").and_then(|location| self.base.follow(location).ok());
        if let Some(place) = place.filter(|place| place.same_place(&self.base)) {
            let _ = self.call(Method::DELETE, &place, "*/*", None).await;
        }
    }

    /// Uploads a blob whole.
    pub(super) async fn upload(&self, to: &str, bytes: Bytes) -> Result<String, Trouble> {
        let name = digest(&bytes);
        let there = self.base.join(&format!("/v2/{to}/blobs/{name}"));
        if self.call(Method::HEAD, &there, "*/*", None).await?.status == 200 {
            return Ok(name);
        }
        let begin = self.base.join(&format!("/v2/{to}/blobs/uploads/"));
        let empty = Some(("application/octet-stream", Bytes::new()));
        let begun = self.call(Method::POST, &begin, "*/*", empty).await?.ok(&self.host())?;
        let location = begun.header("location").unwrap_or_default();
        let place = self.base.follow(location).ok();
        let malformed = || Trouble::nothing(Fault::Malformed(self.host(), "it says no place to upload to"));
        let place = place.ok_or_else(malformed)?;
        if !place.same_place(&self.base) {
            let (host, to) = (self.host(), place.authority());
            return Err(Trouble::nothing(Fault::Redirect { host, to }));
        }
        let mark = if place.path.contains('?') { '&' } else { '?' };
        let place = Url { path: format!("{}{mark}digest={name}", place.path), ..place };
        let body = Some(("application/octet-stream", bytes));
        self.call(Method::PUT, &place, "*/*", body).await?.ok(&self.host())?;
        Ok(name)
    }

    /// Puts the manifest under its tag: the one step that anybody sees.
    pub(super) async fn publish(
        &self,
        to: &str,
        tag: &str,
        kind: &str,
        manifest: Bytes,
    ) -> Result<String, Trouble> {
        let name = digest(&manifest);
        let url = self.base.join(&format!("/v2/{to}/manifests/{tag}"));
        self.call(Method::PUT, &url, "*/*", Some((kind, manifest))).await?.ok(&self.host())?;
        Ok(name)
    }
}
