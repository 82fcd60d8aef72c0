//! Where images, openshift-install and oc come from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::platforms::is_image_name;
use super::values::{Values, read_all};
use super::{parse, platforms};
use crate::artifacts::catalogue;
use crate::backend::Capabilities;
use crate::cluster::{
    Architecture, BackendConfig, BootImages, Downloads, Harvest, ImageSource, InstallerChoice, Pool,
    ReleaseArchitecture, WorkersOn,
};

/// The images of the cluster, and those of the workers' platform.
pub(super) fn images(
    values: &mut Values<'_>,
    backend: Option<&BackendConfig>,
    workers: Option<&WorkersOn>,
    harvest: Option<Harvest>,
    arch: Option<Architecture>,
) -> [Option<BootImages>; 2] {
    let arch = arch.unwrap_or_default();
    let of_workers = workers.map(|workers| {
        let names = ["worker_image", "worker_harvest_image"];
        of_platform(values, names, Some(&workers.backend), harvest, arch)
    });
    let images = match platforms::is_known(values) {
        true => of_platform(values, ["image", "harvest_image"], backend, harvest, arch),
        false => None,
    };
    let of_workers = of_workers.unwrap_or_else(|| images.clone());
    [images, of_workers]
}

/// The images of one platform. The simulated platform has its own, and so has a rehearsal, unless an
/// image on the platform is given.
fn of_platform(
    values: &mut Values<'_>,
    [coreos, throwaway]: [&'static str; 2],
    backend: Option<&BackendConfig>,
    harvest: Option<Harvest>,
    arch: Architecture,
) -> Option<BootImages> {
    let rehearse = values.sources.rehearse;
    let simulated = backend.filter(|backend| Capabilities::of(backend).simulated);
    if let Some(backend) = simulated {
        let reason = format!("backend {}", backend.name());
        for (name, image) in [(coreos, "coreos"), (throwaway, "helper")] {
            if rehearse {
                values.replace(name, "rehearsal", image.to_owned());
            } else {
                values.replace_default(name, &reason, image);
            }
        }
    }
    if rehearse && simulated.is_none() {
        let folder = values.path("images_dir")?;
        for (name, file) in [(coreos, "coreos"), (throwaway, "helper")] {
            // An image on the platform is kept: the user has chosen it, and not every platform accepts uploads.
            let value = values.value(name);
            if !value.is_some_and(|value| is_image_name(backend, &value.text)) {
                let path = rehearsal_image(values, folder.join(arch.image_file(file)));
                values.replace(name, "rehearsal", path.display().to_string());
            }
        }
    }
    let coreos = image(values, coreos, ("rhcos", arch), ImageSource::Release, backend);
    // Only harvest=boot boots it.
    let harvest = match harvest {
        Some(Harvest::Boot) | None => image(values, throwaway, ("centos", arch), default_for_harvest(), backend),
        _ => {
            values.text(throwaway);
            Some(ImageSource::Platform(String::new()))
        }
    };
    Some(BootImages {
        coreos: coreos?,
        harvest: harvest?,
    })
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

/// The images of each architecture that only pools have: always those that `auto` chooses.
pub(super) fn foreign(
    values: &mut Values<'_>,
    backend: Option<&BackendConfig>,
    harvest: Option<Harvest>,
    arch: Option<Architecture>,
    pools: &[Pool],
) -> Option<BTreeMap<Architecture, BootImages>> {
    let is_simulated = backend.is_some_and(|backend| Capabilities::of(backend).simulated);
    let mut image = |rehearsed: &str, name: (&str, Architecture), chosen| match (is_simulated, values.sources.rehearse)
    {
        (true, _) => Some(ImageSource::Platform(rehearsed.to_owned())),
        (false, true) => {
            let path = values.path("images_dir")?.join(name.1.image_file(rehearsed));
            let path = rehearsal_image(values, path);
            existing(values, "pool_arch", path)
        }
        (false, false) => auto(values, name, chosen),
    };
    let archs: BTreeSet<_> = pools.iter().map(|pool| pool.arch).collect();
    let others = archs.into_iter().filter(|other| Some(*other) != arch);
    let images = others.map(|other| {
        let harvest = match harvest {
            Some(Harvest::Boot) => image("helper", ("centos", other), default_for_harvest())?,
            _ => ImageSource::Platform(String::new()),
        };
        let coreos = image("coreos", ("rhcos", other), ImageSource::Release)?;
        Some((other, BootImages { coreos, harvest }))
    });
    images.collect()
}

fn default_for_harvest() -> ImageSource {
    ImageSource::Catalogue(catalogue::DEFAULT_HARVEST_IMAGE.to_owned())
}

/// The file of this name and architecture in `images_dir` if it exists, else `chosen`.
fn auto(values: &mut Values<'_>, (file, arch): (&str, Architecture), chosen: ImageSource) -> Option<ImageSource> {
    let path = values.path("images_dir")?.join(arch.image_file(file));
    Some(match (values.sources.is_file)(&path) {
        true => ImageSource::File(path),
        false => chosen,
    })
}

fn image(
    values: &mut Values<'_>,
    name: &'static str,
    file: (&str, Architecture),
    chosen: ImageSource,
    backend: Option<&BackendConfig>,
) -> Option<ImageSource> {
    let value = values.value(name)?;
    if value.text == "auto" {
        return auto(values, file, chosen);
    }
    if is_image_name(backend, &value.text) {
        return Some(ImageSource::Platform(value.text));
    }
    if value.text.contains("://") {
        return values.read(name, parse::image_url).map(ImageSource::Url);
    }
    if !value.text.contains('/') {
        let Some(listed) = catalogue::harvest_image(&value.text) else {
            return Some(ImageSource::Platform(value.text));
        };
        let (_, arch) = file;
        if !listed.architectures.contains(&arch) {
            let message = format!("`{name}`: the catalog has no image {} for {arch}", listed.name);
            values.problem(&[name, "arch"], message, "list all images with `ocpdeploy image list`");
            return None;
        }
        return Some(ImageSource::Catalogue(value.text));
    }
    let path = values.path(name)?;
    existing(values, name, path)
}

/// An image file, which must exist.
fn existing(values: &mut Values<'_>, name: &'static str, path: PathBuf) -> Option<ImageSource> {
    if !(values.sources.is_file)(&path) {
        let hint = if values.sources.rehearse {
            "install the package ocpdeploy-rehearsal; in the source tree, `make rehearse` builds the images, \
             and `images/build.sh target/images ARCH` those of another architecture"
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

pub(super) fn downloads(values: &mut Values<'_>, arch: Option<Architecture>, pools: &[Pool]) -> Option<Downloads> {
    let rehearse = values.sources.rehearse;
    let has_foreign = pools.iter().any(|pool| Some(pool.arch) != arch);
    Some(read_all!(Downloads {
        dir: values.path("downloads_dir"),
        arch: arch.map(|arch| if has_foreign {
            ReleaseArchitecture::Multi
        } else {
            ReleaseArchitecture::Single(arch)
        }),
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
