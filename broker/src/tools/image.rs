//! Turns changed files and a pinned base into one more layer, pushed into the base's own registry (contract §3.1).
//! It refuses a base without a digest, a base of another registry, and one whose layers cannot be mounted there.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::call::Failed;
use super::fault::{Fault, Trouble};
use super::fetch::Fetcher;
use super::layer;
use super::registry::{MANIFESTS, Session, digest};
use super::table::LayerFile;
use crate::core::json::{list, put, text};
use crate::systems::Registry;
use crate::writes::Permit;

/// An image by its parts: `registry/path[:tag][@digest]`, which was read as an address before.
struct Reference<'a> {
    registry: &'a str,
    path: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> Reference<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (registry, path) = rest.split_once('/')?;
        let (path, tag) = match path.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (path, None),
        };
        Some(Self { registry, path, tag, digest })
    }
}

/// What of a push is wrong before anything is asked of a registry (contract §3.1).
fn plan<'a>(
    target: &'a str,
    base: &'a str,
) -> Result<(Reference<'a>, &'a str, Reference<'a>, &'a str), Fault> {
    let base_is_one = policy::outputs::address(policy::outputs::Kind::ImagePush, base);
    let (Some(to), Some(from)) = (Reference::read(target), Reference::read(base).filter(|_| base_is_one))
    else {
        return Err(Fault::Layer("read `base`: it is written as registry/path@sha256:digest"));
    };
    let Some(pinned) = from.digest else {
        return Err(Fault::Layer("use `base`: it is not pinned, write registry/path@sha256:digest"));
    };
    if to.registry != from.registry {
        return Err(Fault::Layer(
            "use `base`: it is in another registry than the target, so every byte of it would have to be sent",
        ));
    }
    match to.tag {
        Some(tag) if to.digest.is_none() => Ok((to, tag, from, pinned)),
        _ => Err(Fault::Layer("use `image`: it names a tag and no digest, such as registry/path:tag")),
    }
}

impl Registry {
    /// Pushes.
    pub(super) async fn push(
        &self,
        fetch: &Fetcher,
        permit: &Permit,
        base: &str,
        files: &[LayerFile],
    ) -> Result<Value, Failed> {
        let (to, tag, from, pinned) = plan(permit.target(), base).map_err(Trouble::nothing)?;
        if to.registry != self.host {
            return Err(Trouble::nothing(Fault::Layer(
                "use `image`: no credential is configured for its registry",
            ))
            .into());
        }
        // Until the manifest is put, nothing that anybody sees has changed.
        let before = Trouble::before_writing;
        let scopes = [format!("repository:{}:pull,push", to.path), format!("repository:{}:pull", from.path)];
        let session = Session::begin(self, fetch, &scopes).await.map_err(before)?;
        let path = format!("/v2/{}/manifests/{pinned}", from.path);
        let (kind, manifest) = session.pull(&path, MANIFESTS, pinned).await.map_err(before)?;
        let mut manifest = object(&session, &manifest).map_err(before)?;
        let layers = layers(&session, &manifest).map_err(before)?;
        for blob in &layers {
            session.mount(to.path, from.path, blob).await.map_err(before)?;
        }
        let named = text(&manifest, "/config/digest").to_owned();
        let path = format!("/v2/{}/blobs/{named}", from.path);
        let (_, config) = session.pull(&path, "*/*", &named).await.map_err(before)?;
        let mut config = object(&session, &config).map_err(before)?;
        let layer = Bytes::from(layer::tar(files));
        append(&mut manifest, &mut config, &kind, &layer);
        let config = Bytes::from(config.to_string());
        if let Some(named) = manifest.get_mut("config") {
            put(named, "digest", digest(&config));
            put(named, "size", config.len());
        }
        session.upload(to.path, layer).await.map_err(before)?;
        session.upload(to.path, config).await.map_err(before)?;
        let name = session.publish(to.path, tag, &kind, Bytes::from(manifest.to_string())).await?;
        let image = format!("{}/{}@{name}", to.registry, to.path);
        Ok(
            json!({ "written": true, "target": permit.target(), "image": image, "mounted_layers": layers.len() }),
        )
    }
}

fn object(session: &Session<'_>, bytes: &[u8]) -> Result<Value, Trouble> {
    let read = serde_json::from_slice::<Value>(bytes).ok().filter(Value::is_object);
    read.ok_or_else(|| Trouble::nothing(Fault::Malformed(session.host(), "it is no JSON object")))
}

/// The digests of an image's layers. What lists images of several platforms has none.
fn layers(session: &Session<'_>, manifest: &Value) -> Result<Vec<String>, Trouble> {
    let several = || {
        Trouble::nothing(Fault::Layer(
            "use `base`: it is a list of images; pin the one of the platform that is measured",
        ))
    };
    let all = manifest.get("layers").and_then(Value::as_array).ok_or_else(several)?;
    let digests: Option<Vec<String>> = all
        .iter()
        .map(|layer| Some(text(layer, "/digest").to_owned()).filter(|text| is_digest(text)))
        .collect();
    digests.ok_or_else(|| Trouble::nothing(Fault::Malformed(session.host(), "a layer has no digest")))
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// One more layer in manifest and configuration. An uncompressed layer's digest is the one that configurations name.
fn append(manifest: &mut Value, config: &mut Value, kind: &str, layer: &[u8]) {
    let docker = kind.contains("docker");
    let media = if docker {
        "application/vnd.docker.image.rootfs.diff.tar"
    } else {
        "application/vnd.oci.image.layer.v1.tar"
    };
    let name = digest(layer);
    if let Some(layers) = list(manifest, "layers") {
        layers.push(json!({ "mediaType": media, "digest": name, "size": layer.len() }));
    }
    if let Some(ids) = config.get_mut("rootfs").and_then(|rootfs| list(rootfs, "diff_ids")) {
        ids.push(name.into());
    }
    let made = json!({ "created_by": "crucible image_push", "comment": "changed sources" });
    match list(config, "history") {
        Some(history) => history.push(made),
        None => put(config, "history", json!([made])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_a_derived_layer_are_looked_at_before_a_registry_is_asked() {
        let pinned = format!("r.example/base@sha256:{}", "0".repeat(64));
        assert!(plan("r.example/out:1", &pinned).is_ok());
        for (target, base, said) in [
            ("r.example/out:1", "r.example/base:latest", "not pinned"),
            ("other.example/out:1", pinned.as_str(), "another registry"),
            ("r.example/out", pinned.as_str(), "names a tag"),
            ("r.example/out:1", "base@sha256:00", "is written as"),
        ] {
            let fault = plan(target, base).err().unwrap().to_string();
            assert!(fault.contains(said), "{target} {base}: {fault}");
        }
    }
}
