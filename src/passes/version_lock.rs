//! The lock file: what a deployment used, and what the next one must use.

use super::effective_settings::EffectiveSettings;
use crate::backend::ImageRequest;
use crate::cluster::{LOCK_FILE, VersionLock};
use crate::error::{ErrorKind, OperationError};
use crate::state::journal::{self, Entry};

/// The settings of the nodes' images, and the steps that provide them.
const IMAGES: [(&str, &str); 2] = [("image", "pass-two/image"), ("worker_image", "pass-two/worker-image")];

/// What the deployment of a journal used; `None` until the nodes' image is on the platform.
pub fn version_lock(journal: &[Entry]) -> Option<VersionLock> {
    let chosen: EffectiveSettings = journal::output(journal, EffectiveSettings::STEP)?;
    let image = |(setting, step): (&str, &str)| {
        let content = journal::output(journal, &content_note(step))?;
        Some((setting.to_owned(), content))
    };
    let lock = VersionLock {
        v: VersionLock::VERSION,
        ocpdeploy: chosen.program,
        installer: chosen.installer,
        release_image: chosen.release_image,
        images: IMAGES.into_iter().filter_map(image).collect(),
    };
    Some(lock).filter(|lock| !lock.images.is_empty())
}

/// The note on the content of an image that a step provided.
pub(super) fn content_note(step: &str) -> String {
    format!("{step}/content")
}

/// The digest of a disk, or the name of an image that the platform has or fetches.
pub(super) fn content(image: &ImageRequest) -> String {
    match image {
        ImageRequest::File { sha256, .. } => format!("sha256:{sha256}"),
        ImageRequest::Platform(name) => name.clone(),
    }
}

/// Rejects another image than the locked one; images of pass one are not locked.
pub(super) fn keep_image(lock: &VersionLock, step: &str, image: &ImageRequest) -> Result<(), OperationError> {
    let Some((setting, _)) = IMAGES.iter().find(|(_, of)| *of == step) else {
        return Ok(());
    };
    keep(setting, &content(image), lock.images.get(*setting))
}

/// Rejects another release than the locked one.
pub(super) fn keep_release(lock: &VersionLock, image: &str) -> Result<(), OperationError> {
    keep("the release image", image, lock.release_image.as_ref())
}

fn keep(what: &str, is: &str, locked: Option<&String>) -> Result<(), OperationError> {
    match locked.filter(|locked| *locked != is) {
        None => Ok(()),
        Some(locked) => {
            let text = format!("{what} is {is}, and {LOCK_FILE} requires {locked}");
            Err(OperationError::new(ErrorKind::Usage, text).hint(format!(
                "remove {LOCK_FILE} from the env file's directory to deploy with what is available now; \
                 `ocpdeploy config --lock > {LOCK_FILE}` writes it again"
            )))
        }
    }
}
