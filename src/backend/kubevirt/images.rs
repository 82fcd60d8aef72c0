//! Images: volumes that clusters share and that machines are cloned from, imported by CDI.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::compare::quantity;
use super::errors::{EXCEEDED_QUOTA, let_clone};
use super::kind::Kind;
use super::labels;
use super::look;
use super::objects::{self, Import, Root};
use super::session::{GOING, Session, if_allowed, not_owned};
use crate::backend::error::if_exists;
use crate::backend::findings::Findings;
use crate::backend::{BackendError, BackendErrorKind, ImageHandle, Verdict, ca_file};
use crate::cluster::{ClusterId, KubevirtConfig};
use crate::http_limits;
use crate::http_upload::{self, UploadError, UploadLimits};

const GIB: u64 = 1 << 30;
/// The size of a volume for an image of unknown size. An unpacked CoreOS image has 16 GiB.
const IMPORT_GIB: u64 = 20;
/// An import without progress for this long has failed.
const STUCK: Duration = Duration::from_secs(20 * 60);
/// The longest response of the upload proxy that is quoted.
const MOST_WORDS: usize = 1000;
const LOOK: Duration = Duration::from_millis(500);

/// An image file on this computer.
pub(super) struct LocalImage<'a> {
    pub path: &'a Path,
    pub sha256: &'a str,
    pub bytes: u64,
}

/// Finds an image of the platform, or lets CDI download it: `import:URL`, `docker://IMAGE`.
pub(super) async fn find(
    session: &Session,
    config: &KubevirtConfig,
    cluster: &ClusterId,
    image: &str,
) -> Result<ImageHandle, BackendError> {
    if let Some(from) = download(image) {
        return import(session, config, cluster, image, from).await;
    }
    let root = existing(session, image).await?;
    size(session, &root).await?;
    session.anchor(cluster).await?;
    Ok(root.handle())
}

/// Where CDI downloads an image from; `None` if the platform already has it.
fn download(image: &str) -> Option<Import> {
    match image.split_once(':')? {
        ("import", url) => Some(Import::Http(url.to_owned())),
        ("docker", _) => Some(Import::Registry(image.to_owned())),
        _ => None,
    }
}

/// An image of the platform: `NAME`, `pvc:NAMESPACE/NAME`, `datasource:NAMESPACE/NAME`, `containerdisk:IMAGE`.
async fn existing(session: &Session, image: &str) -> Result<Root, BackendError> {
    let root = match image.split_once(':') {
        Some(("containerdisk", _)) => Root::read(&ImageHandle(image.to_owned())),
        Some(("pvc" | "datasource", place)) => {
            let handle = match place.contains('/') {
                true => image.to_owned(),
                false => image.replacen(':', &format!(":{}/", session.namespace), 1),
            };
            Root::read(&ImageHandle(handle))
        }
        _ => own(session, image).await?,
    };
    root.ok_or_else(|| missing(image, &session.namespace))
}

fn missing(image: &str, namespace: &str) -> BackendError {
    let words = format!("no data source or volume claim {image} in namespace {namespace}");
    BackendError::new(BackendErrorKind::NotFound, words)
}

/// A data source or a claim of the session's namespace.
async fn own(session: &Session, name: &str) -> Result<Option<Root>, BackendError> {
    let namespace = session.namespace.clone();
    let name = name.to_owned();
    if session.get(Kind::DataSource, &name).await?.is_some() {
        return Ok(Some(Root::Source { namespace, name }));
    }
    let claim = session.get(Kind::Claim, &name).await?;
    Ok(claim.map(|_| Root::Claim { namespace, name }))
}

/// Checks the platform's own images: that they exist, and that KubeVirt may clone those of other namespaces. Returns the
/// size of the largest in bytes, 0 if it is unknown.
///
/// KubeVirt clones with the rights of the machine's service account, which is `default` of its namespace, whoever
/// created the machine (kubevirt/kubevirt: `pkg/virt-controller/watch/vm/vm.go`, `authorizeDataVolume`;
/// containerized-data-importer: `staging/src/kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1/`
/// `authorize.go`, `AuthorizeSA`).
pub(super) async fn check(session: &Session, images: &[String], findings: &mut Findings) -> Result<u64, BackendError> {
    let mut largest = 0;
    let images: BTreeSet<&String> = images.iter().filter(|image| download(image).is_none()).collect();
    for image in images {
        let looked = async {
            let root = existing(session, image).await?;
            largest = largest.max(size(session, &root).await?);
            origin(session, &root).await
        };
        let from = match looked.await {
            Err(failure) if failure.kind == BackendErrorKind::NotFound => {
                findings.fail(
                    failure.message,
                    "set image to an existing image, or ask an administrator for it",
                );
                continue;
            }
            looked => looked?.map(|origin| origin.namespace),
        };
        let Some(from) = from.filter(|from| *from != session.namespace) else {
            continue;
        };
        let (to, allow) = (&session.namespace, let_clone(&from, &session.namespace));
        let mut may = Some(false);
        for (group, resource) in [("cdi.kubevirt.io", "datavolumes/source"), ("", "pods")] {
            if may == Some(false) {
                may = session.may_default_account("create", group, resource, &from).await?;
            }
        }
        match may {
            Some(true) => findings.ok(format!("service account default of namespace {to} may clone {image}")),
            Some(false) => findings.fail(
                format!(
                    "service account default of namespace {to}, with whose rights KubeVirt clones {image}, may not"
                ),
                &allow,
            ),
            None => {
                let text = format!(
                    "KubeVirt clones {image} with the rights of service account default of namespace {to}, which this \
                     user cannot check"
                );
                findings.add(Verdict::Warn, text, Some(&allow));
            }
        }
    }
    Ok(largest)
}

/// What a root disk is cloned from.
struct Origin {
    namespace: String,
    /// `None` for a snapshot, and if this user may not read the data source.
    claim: Option<String>,
}

/// `None` for a container image.
async fn origin(session: &Session, root: &Root) -> Result<Option<Origin>, BackendError> {
    let (namespace, name) = match root {
        Root::Container(_) => return Ok(None),
        Root::Claim { namespace, name } => {
            let (namespace, claim) = (namespace.clone(), Some(name.clone()));
            return Ok(Some(Origin { namespace, claim }));
        }
        Root::Source { namespace, name } => (namespace, name),
    };
    let path = format!("{}/{name}", Kind::DataSource.folder(namespace));
    let found = readable(session, &path, name, namespace).await?.unwrap_or_default();
    // The status has the source of a data source that points to another one.
    let sources = [&found["spec"]["source"], &found["status"]["source"]];
    let one = |kind: &str| sources.iter().map(|source| &source[kind]).find(|one| one.is_object());
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    let claim = one("pvc").and_then(|claim| text(claim, "name"));
    let place = one("pvc").or_else(|| one("snapshot"));
    let namespace = place
        .and_then(|place| text(place, "namespace"))
        .unwrap_or(namespace.clone());
    Ok(Some(Origin { namespace, claim }))
}

/// The smallest size of a clone in bytes; 0 if it is unknown.
pub(super) async fn size(session: &Session, root: &Root) -> Result<u64, BackendError> {
    // CDI determines the size of a snapshot.
    let Some(Origin {
        namespace,
        claim: Some(name),
    }) = origin(session, root).await?
    else {
        return Ok(0);
    };
    // A data volume has the requested size; its claim adds the file system's overhead.
    let volume = session
        .read(&format!("{}/{name}", Kind::DataVolume.folder(&namespace)))
        .await;
    if let Some(Some(volume)) = if_allowed(if_exists(volume))?
        && let Some(bytes) = requested(&volume["spec"]["storage"]).or_else(|| requested(&volume["spec"]["pvc"]))
    {
        return Ok(bytes);
    }
    let path = format!("{}/{name}", Kind::Claim.folder(&namespace));
    let claim = readable(session, &path, &name, &namespace).await?;
    Ok(claim.and_then(|claim| requested(&claim["spec"])).unwrap_or(0))
}

/// `None` if this user may not read it; an error if it does not exist.
async fn readable(session: &Session, path: &str, name: &str, namespace: &str) -> Result<Option<Value>, BackendError> {
    match if_allowed(if_exists(session.read(path).await))? {
        None => Ok(None),
        Some(Some(found)) => Ok(Some(found)),
        Some(None) => Err(missing(name, namespace)),
    }
}

fn requested(storage: &Value) -> Option<u64> {
    let thousandths = quantity(&storage["resources"]["requests"]["storage"])?;
    u64::try_from(thousandths / 1000).ok()
}

async fn import(
    session: &Session,
    config: &KubevirtConfig,
    cluster: &ClusterId,
    url: &str,
    from: Import,
) -> Result<ImageHandle, BackendError> {
    let identity = objects::identity(url);
    let wanted = objects::image(&identity, &from, config, IMPORT_GIB * GIB, cluster);
    let volume = claimed(session, cluster, &wanted).await?;
    wait_ready(session, &volume, false).await?;
    session.anchor(cluster).await?;
    Ok(handle(session, &volume))
}

fn handle(session: &Session, volume: &Value) -> ImageHandle {
    let (namespace, name) = (session.namespace.clone(), labels::name(volume).to_owned());
    Root::Claim { namespace, name }.handle()
}

/// Adds the cluster to the users of the image's volume, which is created if it does not exist.
async fn claimed(session: &Session, cluster: &ClusterId, wanted: &Value) -> Result<Value, BackendError> {
    let begun = Instant::now();
    loop {
        if let Some(volume) = claim(session, cluster, wanted).await? {
            return Ok(volume);
        }
        if begun.elapsed() > GOING {
            let words = format!("data volume {} keeps changing", labels::name(wanted));
            return Err(BackendError::new(BackendErrorKind::Timeout, words));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// `None` if the volume has to be read again.
async fn claim(session: &Session, cluster: &ClusterId, wanted: &Value) -> Result<Option<Value>, BackendError> {
    let name = labels::name(wanted);
    let Some(there) = session.get(Kind::DataVolume, name).await? else {
        return match session.create(Kind::DataVolume, wanted).await {
            // Another run created it first.
            Err(failure) if failure.code == Some(409) => Ok(None),
            made => made.map(Some),
        };
    };
    if labels::label(&there, labels::IMAGE) != labels::label(wanted, labels::IMAGE) {
        return Err(not_owned(Kind::DataVolume, name, cluster));
    }
    if labels::is_going(&there) {
        return Ok(None);
    }
    // CDI could not create a claim from the volume's specification, which cannot change. The volume is created again,
    // because the settings may have changed.
    let has_no_claim = there["status"]["phase"].as_str().is_none_or(str::is_empty);
    if has_no_claim && look::unfilled(&there).is_some_and(|unfilled| unfilled.is_final) {
        session.delete(Kind::DataVolume, &there).await?;
        return Ok(None);
    }
    // Because of the uid, the patch fails if the volume was recreated.
    let patch = json!({"metadata": {
        "uid": there["metadata"]["uid"],
        "labels": {objects::used_by(cluster): ""},
    }});
    match session.merge(Kind::DataVolume, name, &patch).await {
        Err(failure) if matches!(failure.code, Some(404 | 409)) => Ok(None),
        patched => patched.map(Some),
    }
}

/// Uploads a file.
pub(super) async fn upload(
    session: &Session,
    config: &KubevirtConfig,
    cluster: &ClusterId,
    image: &LocalImage<'_>,
) -> Result<ImageHandle, BackendError> {
    let bytes = virtual_size(image.path).map_err(|error| BackendError::unreadable(image.path, &error))?;
    let bytes = bytes.unwrap_or(image.bytes).div_ceil(GIB).max(1) * GIB;
    let wanted = objects::image(image.sha256, &Import::Upload, config, bytes, cluster);
    let volume = claimed(session, cluster, &wanted).await?;
    if wait_ready(session, &volume, true).await? == VolumeState::Ready {
        let sent = send(session, config, image, labels::name(&volume)).await;
        // Another run may have uploaded it at the same time; then the volume is complete.
        match wait_ready(session, &volume, sent.is_err()).await? {
            VolumeState::Whole => {}
            VolumeState::Ready => sent?,
        }
    }
    session.anchor(cluster).await?;
    Ok(handle(session, &volume))
}

/// The size of the disk in a qcow2 file (qemu/qemu: docs/interop/qcow2.rst); `None` for anything else.
fn virtual_size(path: &Path) -> std::io::Result<Option<u64>> {
    let mut header = Vec::new();
    fs_err::File::open(path)?.take(32).read_to_end(&mut header)?;
    let size = header
        .get(24..32)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u64::from_be_bytes);
    Ok(size.filter(|_| header.starts_with(b"QFI\xfb")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VolumeState {
    Whole,
    /// CDI is ready for the upload.
    Ready,
}

/// Waits until CDI has filled a volume, or is ready for its upload.
async fn wait_ready(session: &Session, volume: &Value, wants_upload: bool) -> Result<VolumeState, BackendError> {
    let name = labels::name(volume);
    let (mut last, mut since) = (Value::Null, Instant::now());
    loop {
        let Some(there) = session.again(Kind::DataVolume, volume).await? else {
            let words = format!("data volume {name} was deleted by another client");
            return Err(BackendError::new(BackendErrorKind::NotFound, words));
        };
        let status = &there["status"];
        match status["phase"].as_str().unwrap_or_default() {
            "Succeeded" => return Ok(VolumeState::Whole),
            "UploadReady" if wants_upload => return Ok(VolumeState::Ready),
            _ => {}
        }
        let unfilled = look::unfilled(&there);
        if let Some(unfilled) = unfilled.as_ref().filter(|unfilled| unfilled.is_final) {
            let kind = match unfilled.why.contains(EXCEEDED_QUOTA) {
                true => BackendErrorKind::Quota,
                false => BackendErrorKind::Rejected,
            };
            return Err(BackendError::new(kind, format!("CDI cannot fill {}", unfilled.why)));
        }
        let now = json!([status["phase"], status["progress"]]);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > STUCK {
            let why = unfilled.map_or(format!("data volume {name}"), |unfilled| unfilled.why);
            let words = format!(
                "{why}: no progress since {} min, phase {}",
                STUCK.as_secs() / 60,
                status["phase"]
            );
            return Err(BackendError::new(BackendErrorKind::Timeout, words));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Sends the file to CDI's upload proxy with a token for this one volume (containerized-data-importer: doc/upload.md).
async fn send(
    session: &Session,
    config: &KubevirtConfig,
    image: &LocalImage<'_>,
    name: &str,
) -> Result<(), BackendError> {
    let (proxy, ca) = proxy(session, config).await?;
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
        "kind": "UploadTokenRequest",
        "metadata": {"name": name, "namespace": session.namespace},
        "spec": {"pvcName": name},
    });
    let path = format!(
        "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{}/uploadtokenrequests",
        session.namespace
    );
    let granted = session.ask(&path, &request).await?;
    let token = granted["status"]["token"].as_str().unwrap_or_default();
    send_to(&proxy, ca, token, image, UploadLimits::default()).await
}

/// Sends the file to the upload proxy. The certificates of `ca` are trusted besides the system's.
///
/// CDI responds after it has unpacked the file.
async fn send_to(
    proxy: &str,
    ca: Vec<String>,
    token: &str,
    image: &LocalImage<'_>,
    limits: UploadLimits,
) -> Result<(), BackendError> {
    let client = reqwest::Client::builder().connect_timeout(Duration::from_secs(10));
    // The token must not reach another host.
    let mut client = client.redirect(reqwest::redirect::Policy::none());
    for pem in ca {
        let certificates = reqwest::Certificate::from_pem_bundle(pem.as_bytes()).map_err(|error| {
            BackendError::new(
                BackendErrorKind::Rejected,
                format!("the upload proxy's CA is not PEM: {error}"),
            )
        })?;
        client = certificates
            .into_iter()
            .fold(client, reqwest::ClientBuilder::add_root_certificate);
    }
    let unreachable = |error: reqwest::Error| {
        let words = http_limits::innermost(&error);
        BackendError::new(BackendErrorKind::Unreachable, format!("upload to {proxy}: {words}"))
            .hint("set kubevirt_upload_proxy to the URL of CDI's upload proxy, and kubevirt_upload_ca to the CA of its certificate")
    };
    let client = client.build().map_err(unreachable)?;
    let file = tokio::fs::File::open(image.path)
        .await
        .map_err(|error| BackendError::unreadable(image.path, &error))?;
    let request = client
        .post(format!("{}/v1beta1/upload", proxy.trim_end_matches('/')))
        .bearer_auth(token)
        .header("content-type", "application/octet-stream");
    let sent = http_upload::send(request, file, image.bytes, limits)
        .await
        .map_err(|error| match error {
            UploadError::File(error) => BackendError::unreadable(image.path, &error),
            UploadError::Http(error) => unreachable(error),
            error => BackendError::new(BackendErrorKind::Timeout, format!("upload to {proxy}: {error}")),
        })?;
    let status = sent.status();
    if status.is_success() {
        return Ok(());
    }
    let kind = match status.as_u16() {
        401 | 403 => BackendErrorKind::Denied,
        502..=504 => BackendErrorKind::Unreachable,
        _ => BackendErrorKind::Rejected,
    };
    let said = http_limits::read(sent, http_limits::SMALL).await.unwrap_or_default();
    let said = http_limits::words(&String::from_utf8_lossy(&said), MOST_WORDS);
    Err(BackendError::new(
        kind,
        format!("the upload proxy {proxy} responded with {status}: {said}"),
    ))
}

/// The certificates of the upload proxy's CA in PEM.
pub(super) fn upload_ca(path: &Path) -> Result<String, BackendError> {
    let signed = "the certificate of CDI's upload proxy";
    Ok(ca_file::read("kubevirt_upload_ca", path, signed)?.0)
}

/// The URL of the upload proxy, and the certificates to trust in addition to the system's.
async fn proxy(session: &Session, config: &KubevirtConfig) -> Result<(String, Vec<String>), BackendError> {
    let mut trusted = Vec::new();
    if let Some(path) = &config.upload_ca {
        trusted.push(upload_ca(path)?);
    }
    if let Some(url) = &config.upload_proxy {
        let url = if url.contains("://") {
            url.clone()
        } else {
            format!("https://{url}")
        };
        return Ok((url, trusted));
    }
    let path = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config";
    let found = if_allowed(if_exists(session.read(path).await))?
        .flatten()
        .unwrap_or_default();
    let status = &found["status"];
    trusted.extend(
        status["uploadProxyCA"]
            .as_str()
            .filter(|pem| !pem.is_empty())
            .map(str::to_owned),
    );
    match status["uploadProxyURL"].as_str().filter(|url| !url.is_empty()) {
        Some(url) => Ok((format!("https://{url}"), trusted)),
        None => Err(BackendError::new(
            BackendErrorKind::NotFound,
            "this user cannot read the address of CDI's upload proxy",
        )
        .hint("set kubevirt_upload_proxy to the URL of CDI's upload proxy, or let CDI fetch the image: image=import:https://…")),
    }
}

/// The images that a cluster uses.
pub(super) async fn used_by(session: &Session, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
    let mut images = session.list(Kind::DataVolume, &objects::used_by(cluster)).await?;
    images.retain(objects::is_image);
    Ok(images)
}

/// Removes a cluster from the users of all images, and deletes images without users.
pub(super) async fn leave(session: &Session, cluster: &ClusterId) -> Result<(), BackendError> {
    for image in used_by(session, cluster).await? {
        let name = labels::name(&image);
        let patch = json!({"metadata": {
            "uid": image["metadata"]["uid"],
            "labels": {objects::used_by(cluster): null},
        }});
        let left = match session.merge(Kind::DataVolume, name, &patch).await {
            Err(failure) if matches!(failure.code, Some(404 | 409)) => continue,
            patched => patched?,
        };
        // If another cluster has become a user since then, the volume has another version and is kept.
        let path = session.path(Kind::DataVolume, name);
        if objects::users(&left).is_empty()
            && session.delete_unchanged(&path, &left).await?
            && let Some(claim) = session.get(Kind::Claim, name).await?
            // Copies of the claim have its labels, but another owner.
            && labels::owners(&claim).any(|owner| owner["uid"] == left["metadata"]["uid"])
        {
            session.remove(Kind::Claim, &claim).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_upload::slow_server::{BYTES, Behavior, LIMITS, run, start};

    #[test]
    fn an_upload_proxy_may_be_slow_but_not_stop_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![7; BYTES]).unwrap();
        let image = LocalImage {
            path: &path,
            sha256: "",
            bytes: BYTES as u64,
        };
        let upload = |behavior| run(send_to(&start(behavior), Vec::new(), "token", &image, LIMITS));
        upload(Behavior::Slow).unwrap();
        let failure = upload(Behavior::Stops).unwrap_err();
        assert_eq!(failure.kind, BackendErrorKind::Timeout);
        assert!(failure.message.contains("stopped reading"), "{}", failure.message);
    }

    #[test]
    fn the_disk_size_in_a_qcow2_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut header = b"QFI\xfb".to_vec();
        header.resize(24, 0);
        header.extend((16 * GIB).to_be_bytes());
        std::fs::write(&path, &header).unwrap();
        assert_eq!(virtual_size(&path).unwrap(), Some(16 * GIB));
        std::fs::write(&path, b"raw").unwrap();
        assert_eq!(virtual_size(&path).unwrap(), None);
    }
}
