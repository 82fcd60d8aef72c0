//! The upload of a local file to a disk: in parts, directly to a host or through the engine, resumed where it stopped.
//!
//! Facts: oVirt/ovirt-imageio: docs/images.md; oVirt/ovirt-engine-api-model: ImageTransferPhase; oVirt/ovirt-engine:
//! TransferDiskImageCommand.

use std::io::SeekFrom;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use reqwest::header::CONTENT_RANGE;
use reqwest::{Client, Response, StatusCode};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::time::sleep;
use uuid::Uuid;

use super::answers::passes;
use super::engine::Ovirt;
use super::session::{if_free, pauses, unreachable, wait_for};
use super::wire;
use super::wire::id;
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind};
use crate::backoff::asked_pause;
use crate::cluster::ClusterId;
use crate::http_upload::{self, UploadError, UploadLimits};
use crate::xml::Element;

/// The size of a part. A part is sent in one request and flushed at its end.
const PIECE: u64 = 32 << 20;
/// How often a part is sent before the upload fails.
const ATTEMPTS: usize = 5;
/// The longest pause here. A longer one is left to the caller, who knows the user's timeout.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long to wait for a response of a host before any data is sent.
const GREETING: Duration = Duration::from_secs(30);
const TRANSFER: Duration = Duration::from_secs(300);

/// The prefix of comment and description of an image's objects; the digest follows.
pub(super) const IMAGE_MARK: &str = "ocpdeploy image, sha256 ";

/// The prefix of their names; half of the digest follows.
const IMAGE_NAME: &str = "ocpdeploy-image-";
const DIGITS: usize = 32;

pub(super) fn image_name(sha256: &str) -> String {
    format!("{IMAGE_NAME}{}", sha256.get(..DIGITS).unwrap_or(sha256))
}

/// Whether only uploads have a name like this.
pub(super) fn is_image_name(name: &str) -> bool {
    let digits = name.strip_prefix(IMAGE_NAME).map(str::as_bytes);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// The id of the disk that is uploaded for an image. Ids are unique in the engine, and each data center has its own disk.
pub(super) fn image_disk(data_center: &str, name: &str) -> String {
    let name = format!("{data_center}/{name}");
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
}

/// A local file that becomes a template.
pub(super) struct ImageUpload<'a> {
    /// The cluster that uploads it.
    pub cluster: &'a ClusterId,
    /// The name of template, disk and machine.
    pub name: String,
    pub disk: String,
    pub sha256: &'a str,
    pub path: &'a Path,
    pub bytes: u64,
}

impl<'a> ImageUpload<'a> {
    pub fn new(cluster: &'a ClusterId, data_center: &str, path: &'a Path, sha256: &'a str, bytes: u64) -> Self {
        Self {
            cluster,
            name: image_name(sha256),
            disk: image_disk(data_center, &image_name(sha256)),
            sha256,
            path,
            bytes,
        }
    }

    pub fn mark(&self) -> String {
        format!("{IMAGE_MARK}{}", self.sha256)
    }

    /// The disk's description contains the cluster that uploads it.
    pub fn disk_mark(&self) -> String {
        format!("{}, brought for {}", self.mark(), self.cluster)
    }
}

impl Ovirt {
    /// Uploads an image, continuing where an earlier run stopped. `false`: the upload was cancelled, and the engine
    /// removes its disk.
    pub(super) async fn upload(&self, image: &ImageUpload<'_>) -> Result<bool, BackendError> {
        let transfer = match self.transfer_of(&image.disk).await? {
            Some(transfer) => transfer,
            None => {
                // After a cancelled upload the disk is illegal for some time before it is removed.
                if self.disk_status(&image.disk).await?.as_deref() != Some("ok") {
                    return Ok(false);
                }
                let upload = wire::upload(&image.disk, self.site().await?.version);
                match if_exists(self.session.post("/imagetransfers", &[], &upload).await)? {
                    Some(transfer) => transfer,
                    None => return Ok(false),
                }
            }
        };
        let path = format!("/imagetransfers/{}", id(&transfer)?);
        // An earlier run can have sent everything.
        let is_sent = transfer.text_of("phase") == Some("finalizing_success");
        if !is_sent && !self.send(image, &path).await? {
            return Ok(false);
        }
        if !self.finalized(&path).await? {
            return Ok(false);
        }
        self.disk_ready(&image.disk).await.map(|()| true)
    }

    /// Sends the missing parts, and finalizes the transfer. `false`: it was cancelled.
    async fn send(&self, image: &ImageUpload<'_>, path: &str) -> Result<bool, BackendError> {
        let Some((transfer, url)) = self.open_transfer(path).await? else {
            return Ok(false);
        };
        // Parts are sent in order, so the bytes counted are the beginning of the file.
        let sent = transfer
            .text_of("transferred")
            .and_then(|bytes| bytes.parse::<u64>().ok());
        let mut at = sent.unwrap_or(0).min(image.bytes) / PIECE * PIECE;
        let total = image.bytes >> 20;
        while at < image.bytes {
            tracing::info!("image {}: {} of {total} MiB uploaded", image.path.display(), at >> 20);
            let end = image.bytes.min(at + PIECE);
            if !self.send_piece(path, &url, image.path, at..end).await? {
                return Ok(false);
            }
            at = end;
        }
        let finalize = format!("{path}/finalize");
        // After a conflict, or if the transfer no longer exists, `finalized` reads its phase.
        if_exists(if_free(
            self.session.post(&finalize, &[], &Element::new("action")).await,
        ))?;
        Ok(true)
    }

    /// `false`: the upload was cancelled before it was finalized.
    async fn finalized(&self, path: &str) -> Result<bool, BackendError> {
        wait_for("the upload is not finalized", TRANSFER, async || {
            let phase = if_exists(self.session.get(path, &[]).await)?;
            match phase.as_ref().and_then(|transfer| transfer.text_of("phase")) {
                None | Some("finished_success") => Ok(Some(true)),
                // The engine failed to verify the image.
                Some(phase @ ("finalizing_failure" | "finished_failure")) => Err(BackendError::new(
                    BackendErrorKind::Rejected,
                    format!("the engine rejected the uploaded image ({phase})"),
                )
                .hint("the file can be damaged: compare its checksum")),
                Some(phase) if is_ending(phase) => Ok(Some(false)),
                Some(_) => Ok(None),
            }
        })
        .await
    }

    /// The upload to a disk that can be continued, of this run or of another.
    pub(super) async fn transfer_of(&self, disk: &str) -> Result<Option<Element>, BackendError> {
        let all = self.session.get("/imagetransfers", &[]).await?.into_children();
        let is_its = |transfer: &Element| {
            // Responses contain the disk as `image`.
            [transfer.value("image", "id"), transfer.value("disk", "id")].contains(&Some(disk))
                && !transfer.text_of("phase").is_some_and(is_ending)
        };
        Ok(all.into_iter().find(is_its))
    }

    /// Waits until data can be sent, and selects the URL: of the host, or of the engine. `None`: it was cancelled.
    ///
    /// The engine returns the URLs (oVirt/ovirt-engine-api-model: `types/ImageTransfer.java`, `transferUrl`, `proxyUrl`). They
    /// end in a ticket, the only credential that is sent there, and only with TLS.
    async fn open_transfer(&self, path: &str) -> Result<Option<(Element, String)>, BackendError> {
        let mut resumed = false;
        let transfer = wait_for("the engine does not begin the upload", TRANSFER, async || {
            let Some(transfer) = if_exists(self.session.get(path, &[]).await)? else {
                return Ok(Some(None));
            };
            match transfer.text_of("phase") {
                Some("transferring") => Ok(Some(Some(transfer))),
                Some(phase) if is_ending(phase) => Ok(Some(None)),
                Some("paused_user" | "paused_system") if !resumed => {
                    resumed = true;
                    let (resume, action) = (format!("{path}/resume"), Element::new("action"));
                    // After a conflict, the next phase decides.
                    if_free(self.session.post(&resume, &[], &action).await)?;
                    Ok(None)
                }
                Some("paused_system") => Err(BackendError::new(
                    BackendErrorKind::Unreachable,
                    "the engine paused the upload: ovirt-imageio does not respond on any host",
                )),
                _ => Ok(None),
            }
        })
        .await?;
        let Some(transfer) = transfer else {
            return Ok(None);
        };
        let mut last = None;
        for url in [transfer.text_of("transfer_url"), transfer.text_of("proxy_url")]
            .into_iter()
            .flatten()
            .filter(|url| url.starts_with("https://"))
        {
            let request = self.session.http().request(reqwest::Method::OPTIONS, url);
            match request.timeout(GREETING).send().await {
                Ok(_) => return Ok(Some((transfer.clone(), url.to_owned()))),
                Err(error) => last = Some(unreachable(origin(url), &error)),
            }
        }
        Err(last.unwrap_or_else(|| {
            BackendError::new(
                BackendErrorKind::Rejected,
                "the engine returned no https URL for the upload",
            )
        }))
    }

    /// `false`: the upload was cancelled.
    async fn send_piece(&self, path: &str, url: &str, file: &Path, piece: Range<u64>) -> Result<bool, BackendError> {
        let mut backoff = pauses();
        let mut attempt = 0;
        loop {
            let sent = put_piece(self.session.http(), url, file, &piece, UploadLimits::default());
            let failure = match sent.await {
                Ok(answer) if answer.status().is_success() => return Ok(true),
                Ok(answer) => {
                    let status = answer.status();
                    if status == StatusCode::FORBIDDEN {
                        // The ticket has expired, or the upload was paused or cancelled.
                        if self.open_transfer(path).await?.is_none() {
                            return Ok(false);
                        }
                    }
                    let kind = match passes(status) {
                        true => BackendErrorKind::Unreachable,
                        false => BackendErrorKind::Rejected,
                    };
                    let asked = asked_pause(status, answer.headers());
                    BackendError::new(kind, format!("{} returned HTTP {status}", origin(url))).pause(asked)
                }
                Err(failure) if failure.kind == BackendErrorKind::LocalFile => return Err(failure),
                Err(failure) => failure,
            };
            attempt += 1;
            let asked = failure.pause.unwrap_or_default();
            if attempt == ATTEMPTS || asked > LONGEST_PAUSE {
                return Err(failure);
            }
            sleep(backoff.pause(Some(asked))).await;
        }
    }
}

/// Sends a part of a file.
async fn put_piece(
    http: &Client,
    url: &str,
    file: &Path,
    piece: &Range<u64>,
    limits: UploadLimits,
) -> Result<Response, BackendError> {
    let opened = async {
        let mut file = File::open(file).await?;
        file.seek(SeekFrom::Start(piece.start)).await?;
        Ok(file)
    };
    let body = opened.await.map_err(|error| BackendError::unreadable(file, &error))?;
    let range = format!("bytes {}-{}/*", piece.start, piece.end - 1);
    let request = http.put(url).header(CONTENT_RANGE, range);
    http_upload::send(request, body, piece.end - piece.start, limits)
        .await
        .map_err(|error| match error {
            UploadError::File(error) => BackendError::unreadable(file, &error),
            UploadError::Http(error) => unreachable(origin(url), &error),
            error => BackendError::new(BackendErrorKind::Timeout, format!("{}: {error}", origin(url))),
        })
}

/// Whether a transfer in this phase cannot be continued. `finalizing_success` is not such a phase: everything was sent.
fn is_ending(phase: &str) -> bool {
    let ends = ["cancelled", "finished", "finalizing_failure", "finalizing_cleanup"];
    ends.iter().any(|prefix| phase.starts_with(prefix))
}

/// A URL without its path: that of an upload ends in the ticket, which is a secret while it is valid.
fn origin(url: &str) -> &str {
    let path = url
        .find("://")
        .and_then(|scheme| Some(scheme + 3 + url.get(scheme + 3..)?.find('/')?));
    path.map_or(url, |path| &url[..path])
}

/// The size of the disk that a guest sees, in bytes, from the header of a qcow2 file.
pub(super) async fn virtual_size(path: &Path) -> Result<u64, BackendError> {
    let mut file = File::open(path)
        .await
        .map_err(|error| BackendError::unreadable(path, &error))?;
    let mut header = [0; 32];
    let read = file.read_exact(&mut header).await;
    match (read, header) {
        // The magic, and the size at offset 24 (qemu: docs/interop/qcow2.txt).
        (Ok(_), [b'Q', b'F', b'I', 0xfb, .., a, b, c, d, e, f, g, h]) => {
            Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
        }
        _ => Err(BackendError::new(
            BackendErrorKind::LocalFile,
            format!("{} is not a qcow2 image", path.display()),
        )
        .hint("use the CoreOS image for OpenStack, decompressed")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::session::client;
    use super::*;
    use crate::http_upload::slow_server::{BYTES, Behavior, LIMITS, run, start};

    #[test]
    fn a_host_may_read_a_part_slowly_but_not_stop() {
        let http = client(None).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; BYTES]).unwrap();
        let piece = 0..BYTES as u64;
        let upload = |behavior| run(put_piece(&http, &start(behavior), file.path(), &piece, LIMITS));
        assert_eq!(upload(Behavior::Slow).unwrap().status(), 200);
        let failure = upload(Behavior::Stops).unwrap_err();
        assert_eq!(failure.kind, BackendErrorKind::Timeout);
        assert!(failure.message.contains("stopped reading"), "{}", failure.message);
    }

    /// The upload is not repeated: that would not help.
    #[test]
    fn a_file_that_became_shorter_ends_the_upload() {
        let (http, url) = (client(None).unwrap(), start(Behavior::Silent));
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(99).unwrap();
        let failure = run(put_piece(&http, &url, file.path(), &(10..100), LIMITS)).unwrap_err();
        assert_eq!(failure.kind, BackendErrorKind::LocalFile);
        assert!(failure.message.contains("became shorter"), "{}", failure.message);
    }
}
