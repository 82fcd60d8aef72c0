//! Images: volumes that clusters share and that machines are cloned from, imported by CDI.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::compare::quantity;
use super::kind::Kind;
use super::labels;
use super::objects::{self, Import, Root};
use super::session::{Session, if_allowed, not_owned};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind, ImageHandle};
use crate::cluster::{ClusterId, KubevirtConfig};
use crate::http_limits;
use crate::http_upload::{self, UploadError, UploadLimits};
use crate::limited_file;

const GIB: u64 = 1 << 30;
/// The size of a volume for an image of unknown size. An unpacked CoreOS image has 16 GiB.
const IMPORT_GIB: u64 = 20;
/// An import without progress for this long has failed.
const STUCK: Duration = Duration::from_secs(20 * 60);
/// The longest response of the upload proxy that is quoted.
const MOST_WORDS: usize = 1000;
const LOOK: Duration = Duration::from_millis(500);
/// Restarts of CDI's pod after which the import has failed.
const TRIES: u64 = 3;

/// An image file on this computer.
pub(super) struct LocalImage<'a> {
    pub path: &'a Path,
    pub sha256: &'a str,
    pub bytes: u64,
}

/// Finds an image of the platform, or lets CDI download it: `NAME`, `pvc:NAMESPACE/NAME`, `datasource:NAMESPACE/NAME`,
/// `containerdisk:IMAGE`, `docker://IMAGE`, `import:URL`.
pub(super) async fn find(
    session: &Session,
    config: &KubevirtConfig,
    cluster: &ClusterId,
    image: &str,
) -> Result<ImageHandle, BackendError> {
    let root = match image.split_once(':') {
        Some(("import", url)) => {
            return import(session, config, cluster, image, Import::Http(url.to_owned())).await;
        }
        Some(("docker", _)) => {
            return import(session, config, cluster, image, Import::Registry(image.to_owned())).await;
        }
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
    let root = root.ok_or_else(|| missing(image, &session.namespace))?;
    match &root {
        Root::Container(_) => {}
        _ => {
            size(session, &root).await?;
        }
    }
    may_clone(session, &root).await?;
    session.anchor(cluster).await?;
    Ok(root.handle())
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

/// Cloning from another namespace requires a right there (containerized-data-importer: doc/RBAC.md).
async fn may_clone(session: &Session, root: &Root) -> Result<(), BackendError> {
    let (Root::Claim { namespace, name } | Root::Source { namespace, name }) = root else {
        return Ok(());
    };
    if *namespace == session.namespace
        || session
            .may("create", "cdi.kubevirt.io", "datavolumes/source", Some(namespace))
            .await?
    {
        return Ok(());
    }
    let words = format!("this user may not clone {name} from namespace {namespace}");
    Err(BackendError::new(BackendErrorKind::Denied, words).hint(format!(
        "ask an administrator to bind the cluster role cdi.kubevirt.io:clone-sourcer in {namespace} to this user"
    )))
}

/// The smallest size of a clone in bytes; 0 if it is unknown.
pub(super) async fn size(session: &Session, root: &Root) -> Result<u64, BackendError> {
    let (namespace, name) = match root {
        Root::Container(_) => return Ok(0),
        Root::Claim { namespace, name } => (namespace.clone(), name.clone()),
        Root::Source { namespace, name } => {
            let path = format!("{}/{name}", Kind::DataSource.folder(namespace));
            let Some(source) = readable(session, &path, name, namespace).await? else {
                return Ok(0);
            };
            let claim = &source["spec"]["source"]["pvc"];
            let text = |key: &str| claim[key].as_str().map(str::to_owned);
            match (text("namespace").unwrap_or(namespace.clone()), text("name")) {
                (namespace, Some(name)) => (namespace, name),
                // A snapshot: CDI determines its size.
                _ => return Ok(0),
            }
        }
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
    let class = config.storage_class.as_deref();
    let wanted = objects::image(&identity, &from, class, IMPORT_GIB * GIB, cluster);
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
    let name = labels::name(wanted);
    loop {
        let Some(there) = session.get(Kind::DataVolume, name).await? else {
            match session.create(Kind::DataVolume, wanted).await {
                // Another run created it first.
                Err(failure) if failure.code == Some(409) => continue,
                made => return made,
            }
        };
        if labels::label(&there, labels::IMAGE) != labels::label(wanted, labels::IMAGE) {
            return Err(not_owned(Kind::DataVolume, name, cluster));
        }
        if labels::is_going(&there) {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        // Because of the uid, the patch fails if the volume was recreated; then the loop reads it again.
        let patch = json!({"metadata": {
            "uid": there["metadata"]["uid"],
            "labels": {objects::used_by(cluster): ""},
        }});
        match session.merge(Kind::DataVolume, name, &patch).await {
            Err(failure) if matches!(failure.code, Some(404 | 409)) => continue,
            patched => return patched,
        }
    }
}

/// Uploads a file.
pub(super) async fn upload(
    session: &Session,
    config: &KubevirtConfig,
    cluster: &ClusterId,
    image: &LocalImage<'_>,
) -> Result<ImageHandle, BackendError> {
    let class = config.storage_class.as_deref();
    let bytes = virtual_size(image.path).map_err(|error| unreadable(image.path, &error))?;
    let bytes = bytes.unwrap_or(image.bytes).div_ceil(GIB).max(1) * GIB;
    let wanted = objects::image(image.sha256, &Import::Upload, class, bytes, cluster);
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

fn unreadable(path: &Path, error: &std::io::Error) -> BackendError {
    BackendError::new(
        BackendErrorKind::NotFound,
        format!("cannot read {}: {error}", path.display()),
    )
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
            "Failed" => return Err(failed(name, status)),
            _ if status["restartCount"].as_u64().unwrap_or(0) >= TRIES => return Err(failed(name, status)),
            _ => {}
        }
        let now = json!([status["phase"], status["progress"]]);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > STUCK {
            let words = format!("data volume {name} makes no progress: phase {}", status["phase"]);
            return Err(BackendError::new(BackendErrorKind::Timeout, words));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn failed(name: &str, status: &Value) -> BackendError {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let said = conditions
        .filter(|condition| condition["status"] != "True")
        .find_map(|condition| condition["message"].as_str().filter(|text| !text.is_empty()));
    let words = format!(
        "CDI cannot fill data volume {name}: {}",
        said.unwrap_or("CDI gives no reason")
    );
    BackendError::new(BackendErrorKind::Rejected, words)
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
            .hint("set upload_proxy to the URL of CDI's upload proxy, and upload_ca to the CA of its certificate")
    };
    let client = client.build().map_err(unreachable)?;
    let file = tokio::fs::File::open(image.path)
        .await
        .map_err(|error| unreadable(image.path, &error))?;
    let request = client
        .post(format!("{}/v1beta1/upload", proxy.trim_end_matches('/')))
        .bearer_auth(token)
        .header("content-type", "application/octet-stream");
    let sent = http_upload::send(request, file, image.bytes, limits)
        .await
        .map_err(|error| match error {
            UploadError::File(error) => unreadable(image.path, &error),
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

/// The URL of the upload proxy, and the certificates to trust in addition to the system's.
async fn proxy(session: &Session, config: &KubevirtConfig) -> Result<(String, Vec<String>), BackendError> {
    let mut trusted = Vec::new();
    if let Some(path) = &config.upload_ca {
        trusted.push(limited_file::read_text(path).map_err(|error| unreadable(path, &error))?);
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
        .hint("set upload_proxy to the URL of CDI's upload proxy, or let CDI fetch the image: image=import:https://…")),
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
