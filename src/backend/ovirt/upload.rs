//! A local file is sent to a disk: in pieces, by the host itself or through the engine, and resumed where it stopped.
//!
//! Facts: oVirt/ovirt-imageio: docs/images.md; oVirt/ovirt-engine-api-model: ImageTransferPhase.

use std::io::SeekFrom;
use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::time::sleep;
use uuid::Uuid;

use super::answers::passes;
use super::engine::Ovirt;
use super::session::{if_there, pauses, unreachable, wait_for};
use super::wire;
use super::wire::id;
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::backoff::asked_pause;
use crate::cluster::ClusterId;
use crate::xml::Element;

/// Sent in one request and flushed at its end; lost at most when the line breaks.
const PIECE: u64 = 32 << 20;
/// How often a piece is sent before the upload is given up.
const ATTEMPTS: usize = 5;
/// A longer one is told to who knows how long the user's patience lasts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const TRANSFER: Duration = Duration::from_secs(300);

/// Begins comment or description of what an image is made of; its digest follows.
pub(super) const IMAGE_MARK: &str = "ocpdeploy image, sha256 ";

pub(super) fn image_name(sha256: &str) -> String {
    format!("ocpdeploy-image-{}", sha256.get(..32).unwrap_or(sha256))
}

pub(super) fn image_disk(name: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
}

/// A local file on its way to be a template.
pub(super) struct Upload<'a> {
    /// The cluster that brings it.
    pub cluster: &'a ClusterId,
    /// Of template, disk and machine.
    pub name: String,
    pub disk: String,
    pub sha256: &'a str,
    pub path: &'a Path,
    pub bytes: u64,
}

impl<'a> Upload<'a> {
    pub fn new(cluster: &'a ClusterId, path: &'a Path, sha256: &'a str, bytes: u64) -> Self {
        Self {
            cluster,
            name: image_name(sha256),
            disk: image_disk(&image_name(sha256)),
            sha256,
            path,
            bytes,
        }
    }

    pub fn mark(&self) -> String {
        format!("{IMAGE_MARK}{}", self.sha256)
    }

    /// The disk's description says who is at work on it.
    pub fn disk_mark(&self) -> String {
        format!("{}, brought for {}", self.mark(), self.cluster)
    }
}

impl Ovirt {
    /// Sends an image whole, going on where an earlier run stopped.
    pub(super) async fn upload(&self, image: &Upload<'_>) -> Result<(), Failure> {
        match self.upload_once(image).await {
            // The last request of a run that was killed ended its transfer while it was looked at.
            Err(failure) if failure.kind == BackendErrorKind::NotFound => self.upload_once(image).await,
            uploaded => uploaded,
        }
    }

    async fn upload_once(&self, image: &Upload<'_>) -> Result<(), Failure> {
        let mut file = LocalImage::open(image).await?;
        let transfer = match self.transfer_of(&image.disk).await? {
            Some(transfer) => transfer,
            None => {
                self.disk_ready(&image.disk).await?;
                let upload = wire::upload(&image.disk);
                self.session.post("/imagetransfers", &[], &upload).await?
            }
        };
        let path = format!("/imagetransfers/{}", id(&transfer)?);
        // An earlier run may have sent all.
        if !transfer
            .text_of("phase")
            .is_some_and(|phase| phase.starts_with("finalizing"))
        {
            self.send(image, &mut file, &path).await?;
        }
        self.finalized(&path).await?;
        self.disk_ready(&image.disk).await.map(drop)
    }

    /// Sends what is not there yet, and says that it is all.
    async fn send(&self, image: &Upload<'_>, file: &mut LocalImage<'_>, path: &str) -> Result<(), Failure> {
        let (transfer, url) = self.open_transfer(path).await?;
        // Pieces are sent in order, so that what is counted is the beginning of the file.
        let sent = transfer
            .text_of("transferred")
            .and_then(|bytes| bytes.parse::<u64>().ok());
        let mut at = sent.unwrap_or(0).min(image.bytes) / PIECE * PIECE;
        let total = image.bytes >> 20;
        while at < image.bytes {
            tracing::info!("image {}: {} of {total} MiB uploaded", image.path.display(), at >> 20);
            let piece = file.read(at, PIECE.min(image.bytes - at)).await?;
            self.send_piece(path, &url, at, piece).await?;
            at += PIECE;
        }
        self.session
            .post(&format!("{path}/finalize"), &[], &Element::new("action"))
            .await
            .map(drop)
    }

    async fn finalized(&self, path: &str) -> Result<(), Failure> {
        wait_for("the upload is not finalized", TRANSFER, async || {
            let phase = if_there(self.session.get(path, &[]).await)?;
            match phase.as_ref().and_then(|transfer| transfer.text_of("phase")) {
                None | Some("finished_success") => Ok(Some(())),
                Some(phase @ ("finished_failure" | "cancelled" | "finished_cleanup" | "finalizing_failure")) => {
                    Err(Failure::new(
                        BackendErrorKind::Rejected,
                        format!("the engine did not take the upload ({phase})"),
                    )
                    .hint("the file may be damaged; compare its checksum"))
                }
                Some(_) => Ok(None),
            }
        })
        .await
    }

    /// An upload to the disk that was begun, by a run that ended or by one that goes on.
    pub(super) async fn transfer_of(&self, disk: &str) -> Result<Option<Element>, Failure> {
        let all = self.session.get("/imagetransfers", &[]).await?.into_children();
        let is_its = |transfer: &Element| {
            // Answers name the disk `image`.
            [transfer.value("image", "id"), transfer.value("disk", "id")].contains(&Some(disk))
                && !transfer
                    .text_of("phase")
                    .is_some_and(|phase| phase.starts_with("finished") || phase == "cancelled")
        };
        Ok(all.into_iter().find(is_its))
    }

    /// Waits until data may be sent, and finds out whereto: to the host itself, or through the engine.
    ///
    /// The engine names the place (oVirt/ovirt-engine-api-model: `types/ImageTransfer.java`, `transferUrl`, `proxyUrl`). The
    /// ticket at its end is all that goes there, never the engine's token, and it goes nowhere without TLS.
    async fn open_transfer(&self, path: &str) -> Result<(Element, String), Failure> {
        let mut resumed = false;
        let transfer = wait_for("the engine does not begin the upload", TRANSFER, async || {
            let transfer = self.session.get(path, &[]).await?;
            match transfer.text_of("phase") {
                Some("transferring") => Ok(Some(transfer)),
                Some("paused_user" | "paused_system") if !resumed => {
                    resumed = true;
                    self.session
                        .post(&format!("{path}/resume"), &[], &Element::new("action"))
                        .await?;
                    Ok(None)
                }
                Some("paused_system") => Err(Failure::new(
                    BackendErrorKind::Unreachable,
                    "the engine paused the upload; no host's ovirt-imageio answers it",
                )),
                _ => Ok(None),
            }
        })
        .await?;
        let mut last = None;
        for url in [transfer.text_of("transfer_url"), transfer.text_of("proxy_url")]
            .into_iter()
            .flatten()
            .filter(|url| url.starts_with("https://"))
        {
            match self.session.http().request(reqwest::Method::OPTIONS, url).send().await {
                Ok(_) => return Ok((transfer.clone(), url.to_owned())),
                Err(error) => last = Some(unreachable(origin(url), &error)),
            }
        }
        Err(last.unwrap_or_else(|| {
            Failure::new(
                BackendErrorKind::Rejected,
                "the engine names no https address for the upload",
            )
        }))
    }

    async fn send_piece(&self, path: &str, url: &str, at: u64, piece: Vec<u8>) -> Result<(), Failure> {
        let range = format!("bytes {at}-{}/*", at + piece.len() as u64 - 1);
        let mut backoff = pauses();
        let mut attempt = 0;
        loop {
            let request = self
                .session
                .http()
                .put(url)
                .header(CONTENT_RANGE, &range)
                .body(piece.clone());
            let failure = match request.send().await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) => {
                    let status = answer.status();
                    if status == StatusCode::FORBIDDEN {
                        // The ticket has run out, or somebody paused the upload.
                        self.open_transfer(path).await?;
                    }
                    let kind = match passes(status) {
                        true => BackendErrorKind::Unreachable,
                        false => BackendErrorKind::Rejected,
                    };
                    let asked = asked_pause(status, answer.headers());
                    Failure::new(kind, format!("{} answers HTTP {status}", origin(url))).pause(asked)
                }
                Err(error) => unreachable(origin(url), &error),
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

/// A URL without its path: an upload's ends with the ticket, which is a secret while it lasts.
fn origin(url: &str) -> &str {
    let path = url
        .find("://")
        .and_then(|scheme| Some(scheme + 3 + url.get(scheme + 3..)?.find('/')?));
    path.map_or(url, |path| &url[..path])
}

/// The file that is uploaded.
pub(super) struct LocalImage<'a> {
    path: &'a Path,
    file: File,
    /// Of the disk that a guest sees.
    pub virtual_size: u64,
}

impl<'a> LocalImage<'a> {
    pub async fn open(image: &Upload<'a>) -> Result<Self, Failure> {
        let path = image.path;
        let mut file = File::open(path).await.map_err(|error| unreadable(path, &error))?;
        let mut header = [0; 32];
        let read = file.read_exact(&mut header).await;
        match (read, header) {
            // The magic, and the size at offset 24 (qemu: docs/interop/qcow2.txt).
            (Ok(_), [b'Q', b'F', b'I', 0xfb, .., a, b, c, d, e, f, g, h]) => Ok(Self {
                path,
                file,
                virtual_size: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            }),
            _ => Err(Failure::new(
                BackendErrorKind::Rejected,
                format!("{} is no qcow2 image", path.display()),
            )
            .hint("CoreOS's image for OpenStack is one, when it is unpacked")),
        }
    }

    async fn read(&mut self, at: u64, bytes: u64) -> Result<Vec<u8>, Failure> {
        let mut piece = Vec::new();
        let read = async {
            self.file.seek(SeekFrom::Start(at)).await?;
            (&mut self.file).take(bytes).read_to_end(&mut piece).await
        };
        match read.await {
            Ok(count) if count as u64 == bytes => Ok(piece),
            Ok(_) => Err(Failure::new(
                BackendErrorKind::Rejected,
                format!("{} became shorter while it was read", self.path.display()),
            )),
            Err(error) => Err(unreadable(self.path, &error)),
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(BackendErrorKind::Rejected, format!("{}: {error}", path.display()))
}
