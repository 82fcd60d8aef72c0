//! Where images, openshift-install and oc come from.

use std::path::{Path, PathBuf};

use super::platforms::is_image_name;
use super::values::{Values, read_all};
use super::{parse, platforms};
use crate::artifacts::catalogue;
use crate::backend::Capabilities;
use crate::cluster::{BackendConfig, Downloads, Harvest, ImageSource, InstallerChoice, WorkersOn};

/// The CoreOS and the pass-one image, and those of the workers' platform.
pub(super) fn images(
    values: &mut Values<'_>,
    backend: Option<&BackendConfig>,
    workers: Option<&WorkersOn>,
    harvest: Option<Harvest>,
) -> [Option<ImageSource>; 4] {
    let of_workers = workers.map(|workers| {
        let names = ["worker_image", "worker_harvest_image"];
        of_platform(values, names, Some(&workers.backend), harvest)
    });
    let [coreos, helper] = match platforms::is_known(values) {
        true => of_platform(values, ["image", "harvest_image"], backend, harvest),
        false => [None, None],
    };
    let [worker_coreos, worker_helper] = of_workers.unwrap_or_else(|| [coreos.clone(), helper.clone()]);
    [coreos, helper, worker_coreos, worker_helper]
}

/// The CoreOS and the pass-one image of one platform. The simulated platform has its own, and so has a rehearsal, unless an
/// image on the platform is given.
fn of_platform(
    values: &mut Values<'_>,
    [coreos, helper]: [&'static str; 2],
    backend: Option<&BackendConfig>,
    harvest: Option<Harvest>,
) -> [Option<ImageSource>; 2] {
    let rehearse = values.sources.rehearse;
    let simulated = backend.filter(|backend| Capabilities::of(backend).simulated);
    if let Some(backend) = simulated {
        let reason = format!("backend {}", backend.name());
        for (name, image) in [(coreos, "coreos"), (helper, "helper")] {
            if rehearse {
                values.replace(name, "rehearsal", image.to_owned());
            } else {
                values.replace_default(name, &reason, image);
            }
        }
    }
    if rehearse && simulated.is_none() {
        let Some(folder) = values.path("images_dir") else {
            return [None, None];
        };
        for (name, file) in [(coreos, "coreos.qcow2"), (helper, "helper.qcow2")] {
            // One that is on the platform is chosen with care, and not every platform takes uploads.
            let value = values.value(name);
            if !value.is_some_and(|value| is_image_name(backend, &value.text)) {
                let path = rehearsal_image(values, folder.join(file));
                values.replace(name, "rehearsal", path.display().to_string());
            }
        }
    }
    let coreos = image(values, coreos, "rhcos.qcow2", ImageSource::Release, backend);
    // Only harvest=boot boots it.
    let helper = match harvest {
        Some(Harvest::Boot) | None => {
            let chosen = ImageSource::Catalogue(catalogue::DEFAULT_HELPER.to_owned());
            image(values, helper, "centos.qcow2", chosen, backend)
        }
        _ => {
            values.text(helper);
            Some(ImageSource::Platform(String::new()))
        }
    };
    [coreos, helper]
}

/// Where the tar and the packages of the rehearsal's guests install them.
const INSTALLED: [&str; 2] = ["/usr/local/share/ocpdeploy/rehearsal", "/usr/share/ocpdeploy/rehearsal"];

/// This file of `images_dir`; if it is missing, the installed one of the same name.
fn rehearsal_image(values: &Values<'_>, path: PathBuf) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let installed = INSTALLED.iter().map(|folder| Path::new(folder).join(name));
    let mut all = std::iter::once(path.clone()).chain(installed);
    all.find(|path| (values.sources.is_file)(path)).unwrap_or(path)
}

/// `auto`: the file of this name in `images_dir` if it exists, else `chosen`.
fn image(
    values: &mut Values<'_>,
    name: &'static str,
    file: &str,
    chosen: ImageSource,
    backend: Option<&BackendConfig>,
) -> Option<ImageSource> {
    let value = values.value(name)?;
    if value.text == "auto" {
        let path = values.path("images_dir")?.join(file);
        return Some(match (values.sources.is_file)(&path) {
            true => ImageSource::File(path),
            false => chosen,
        });
    }
    if is_image_name(backend, &value.text) {
        return Some(ImageSource::Platform(value.text));
    }
    if value.text.contains("://") {
        return values.read(name, parse::image_url).map(ImageSource::Url);
    }
    if !value.text.contains('/') {
        return Some(match catalogue::helper(&value.text) {
            Some(_) => ImageSource::Catalogue(value.text),
            None => ImageSource::Platform(value.text),
        });
    }
    let path = values.path(name)?;
    if !(values.sources.is_file)(&path) {
        let hint = if values.sources.rehearse {
            "install the package ocpdeploy-rehearsal; in the source tree, `make rehearse` builds the images"
        } else {
            "remove this setting to download the image, or set the path of a qcow2 file, a URL, or the name of an image on the platform"
        };
        values.problem(
            &[name],
            format!("the image file {} does not exist", path.display()),
            hint,
        );
        return None;
    }
    Some(ImageSource::File(path))
}

pub(super) fn installer(values: &mut Values<'_>) -> InstallerChoice {
    if values.sources.rehearse {
        return InstallerChoice::Rehearsal;
    }
    let path = values.path("installer");
    if let Some(path) = path.as_ref().filter(|path| !(values.sources.is_file)(path)) {
        let message = format!("openshift-install {} does not exist", path.display());
        let hint = "remove this setting to use the one in PATH, or set version to download one";
        values.problem(&["installer"], message, hint);
    }
    InstallerChoice::OpenshiftInstall(path)
}

pub(super) fn downloads(values: &mut Values<'_>) -> Option<Downloads> {
    let rehearse = values.sources.rehearse;
    Some(read_all!(Downloads {
        dir: values.path("downloads_dir"),
        version: values
            .optional("version", str::parse)
            .map(|version| version.filter(|_| !rehearse)),
        installer_mirror: values.optional("installer_mirror", parse::folder_url),
        image_mirror: values.optional("image_mirror", parse::folder_url),
        installer_mirror_sha256: values.optional("installer_mirror_sha256", parse::sha256),
        signature_store: values.optional("signature_store", parse::folder_url),
        installer_mirror_key: Some(values.path("installer_mirror_key")),
        installer_mirror_insecure: values.switch("installer_mirror_insecure"),
        allow_downgrade: Some(values.sources.allow_downgrade),
        installer_mirror_timeout: values.duration("installer_mirror_timeout"),
    }))
}
