//! The real openshift-install, as a child process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use fs_err as fs;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};
use tracing::info;

use super::child::{self, Running, not_run, program};
use super::context::WaitContext;
use super::install_config::{install_config, without_secrets};
use super::mask::{Mask, MaskedLines};
use super::mirror::other_architecture;
use super::release::{self, BuildInfo};
use super::release_signature;

use crate::PROGRESS;
use crate::artifacts::download::{self, Cache};
use crate::cluster::{ClusterConfig, Downloads, ReleaseArchitecture, Role};
use crate::error::{ErrorKind, OperationError};
use crate::local::subprocess::{CERTIFICATES, PROXY};
use crate::node::services::{Combined, Release};
use crate::state::home;
use crate::state::parameters::Parameters;
use crate::templates::yaml;

/// Variables that openshift-install gets: its own ones by their prefix, because releases add some (openshift/installer:
/// `pkg/asset/releaseimage`, `pkg/asset/rhcos/image.go`, `pkg/asset/ignition/bootstrap/common.go`,
/// `pkg/types/validation/installconfig.go`), and the SSH agent's, for `gather bootstrap` (`pkg/gather/ssh/agent.go`).
const VARIABLES: &[&[&str]] = &[PROXY, CERTIFICATES, &["OPENSHIFT_INSTALL_", "SSH_AUTH_SOCK"]];

/// Creating files takes seconds; after this time the installer hangs.
const MAKE_LIMIT: Duration = Duration::from_secs(600);

/// Number of lines of a failed run that are shown.
const TAIL: usize = 10;

/// An openshift-install on this computer.
#[derive(Clone, Debug)]
pub struct OpenshiftInstall {
    path: PathBuf,
    /// The one beside openshift-install, otherwise the first in PATH.
    oc: PathBuf,
    /// Whether it was downloaded and compared with a signed or pinned list. If so, it names a trusted release image.
    is_verified: bool,
    /// The output of its `version` command, cached: a program of half a gigabyte takes a second to start.
    about: Arc<OnceCell<BuildInfo>>,
}

impl OpenshiftInstall {
    /// Finds the given one, or the first in PATH, and the `oc` beside it or in PATH.
    pub fn find(given: Option<&Path>) -> Result<Self, OperationError> {
        let path = match given {
            Some(path) if is_program(path) => path.to_owned(),
            Some(path) => return Err(not_found(&format!("at {}", path.display()))),
            None => in_path("openshift-install").ok_or_else(|| not_found("in PATH"))?,
        };
        let beside = path.with_file_name("oc");
        let oc = if is_program(&beside) {
            Some(beside)
        } else {
            in_path("oc")
        };
        let no_oc = || {
            let text = "cannot find oc next to openshift-install or in PATH";
            OperationError::new(ErrorKind::Tool, text).hint(
                "download openshift-client from the same place as openshift-install, and put it in PATH or next to \
                 openshift-install",
            )
        };
        Ok(Self {
            path,
            oc: oc.ok_or_else(no_oc)?,
            is_verified: false,
            about: Arc::default(),
        })
    }

    /// Sets whether it was downloaded and compared with a signed or pinned list.
    pub(super) fn verified(self, is_verified: bool) -> Self {
        Self { is_verified, ..self }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn oc(&self) -> &Path {
        &self.oc
    }

    /// The stream that is embedded in the installer (from 4.8), otherwise the older data at the commit from which the
    /// installer was built.
    pub(super) async fn coreos_stream(&self, downloads: &Downloads) -> anyhow::Result<Vec<u8>> {
        let mut command = program(&self.path, VARIABLES);
        command.args(["coreos", "print-stream-json"]);
        let output = child::output(&mut command, Duration::from_secs(30)).await;
        let output = output.map_err(|source| not_run(&self.path, source))?;
        let output = output.with_context(|| format!("{} coreos timed out", self.path.display()))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let commit = self
            .about()
            .await?
            .commit
            .as_deref()
            .context("openshift-install reports no commit")?;
        let url = match &downloads.image_mirror {
            Some(folder) if folder.starts_with("http:") => {
                let text = format!(
                    "cannot verify {folder}/rhcos.json, the list of this release's images: plain http does not protect \
                     against modification"
                );
                return Err(OperationError::new(ErrorKind::Tool, text)
                    .hint("use https for image_mirror, or set image to a URL with #sha256=…")
                    .into());
            }
            Some(folder) => format!("{folder}/rhcos.json"),
            None => format!("https://raw.githubusercontent.com/openshift/installer/{commit}/data/data/rhcos.json"),
        };
        let retries = Cache::new(&downloads.dir).retries();
        Ok(download::text(&url, retries).await?.into_bytes())
    }

    /// The output of its `version` command, which runs once.
    pub async fn about(&self) -> anyhow::Result<&BuildInfo> {
        self.about.get_or_try_init(|| self.ask_version()).await
    }

    async fn ask_version(&self) -> anyhow::Result<BuildInfo> {
        let output = loop {
            let mut command = program(&self.path, VARIABLES);
            match child::output(command.arg("version"), Duration::from_secs(30)).await {
                // It was just unpacked, and a child process that is being started still has it open.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                    sleep(Duration::from_millis(20)).await
                }
                output => break output.map_err(|source| not_run(&self.path, source))?,
            }
        };
        let output = output.with_context(|| format!("{} version timed out", self.path.display()))?;
        let about = release::about(&String::from_utf8_lossy(&output.stdout));
        match about.filter(|_| output.status.success()) {
            Some(about) => Ok(about),
            None => anyhow::bail!("{} version reports no version", self.path.display()),
        }
    }

    /// The release it installs, with images by digest.
    pub(super) async fn release(&self, config: &ClusterConfig) -> anyhow::Result<Release> {
        let (image, is_verified) = self.source(config).await?;
        Ok(self.release_at(&image, is_verified, config).await?)
    }

    /// All images of the release that it installs, that of the release first.
    pub(super) async fn payload(&self, config: &ClusterConfig) -> anyhow::Result<Vec<String>> {
        let (image, is_verified) = self.source(config).await?;
        if !is_verified {
            release_signature::check(&image, &config.downloads).await?;
        }
        let images = release::ask(&self.oc, &image, config, release::payload).await?;
        Ok(std::iter::once(image).chain(images).collect())
    }

    /// The image of the release that it installs, and whether it needs no verification.
    async fn source(&self, config: &ClusterConfig) -> anyhow::Result<(String, bool)> {
        // The installer itself uses this variable, so the images must be that release's.
        let overridden = std::env::var("OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE").ok();
        let overridden = overridden.filter(|image| !image.is_empty());
        let is_verified = overridden.is_none() && self.is_verified;
        let about = self.about().await?;
        let Some(image) = overridden.or_else(|| about.release_image.clone()) else {
            anyhow::bail!("{} version reports no release image", self.path.display());
        };
        // OKD publishes no key for its images.
        let is_signed = !about.version.contains("okd") || config.downloads.installer_mirror_key.is_some();
        Ok((image, is_verified || !is_signed))
    }

    /// The release of an image. Verifies the image first, unless it is already verified or cannot be (`is_verified`).
    pub(super) async fn release_at(
        &self,
        image: &str,
        is_verified: bool,
        config: &ClusterConfig,
    ) -> Result<Release, OperationError> {
        if !is_verified {
            release_signature::check(image, &config.downloads).await?;
        }
        let (release, arch) = release::ask(&self.oc, image, config, release::release).await?;
        let wanted = config.downloads.arch;
        match arch.filter(|arch| !arch.covers(wanted)) {
            Some(arch) => Err(other_architecture(
                format!("openshift-install with {image}"),
                arch,
                wanted,
            )),
            None => Ok(release),
        }
    }

    /// Its version. An error if its release does not have the architectures of the machines, as far as it reports them.
    pub(super) async fn version_for(&self, wanted: ReleaseArchitecture) -> anyhow::Result<String> {
        let about = self.about().await?;
        match about.arch.filter(|arch| !arch.covers(wanted)) {
            Some(arch) => {
                let installer = format!("openshift-install {} at {}", about.version, self.path.display());
                Err(other_architecture(installer, arch, wanted).into())
            }
            None => Ok(about.version.clone()),
        }
    }

    /// Fills a new private directory; all files in it get mode 0600.
    pub(super) async fn write_assets(
        &self,
        config: &ClusterConfig,
        parameters: &Parameters,
        manifests: &Combined,
        folder: &Path,
        log: &Path,
    ) -> anyhow::Result<()> {
        let install_config = install_config(config, parameters.machine_network, &self.about().await?.version);
        home::write_private(&folder.join("install-config.yaml"), yaml(&install_config).as_bytes())?;
        let mask = Mask::new(config, folder);
        let made = self.run(&["create", "manifests"], folder, log, MAKE_LIMIT, &mask).await;
        // Also after a failure: the files are kept for analysis.
        make_private(folder).context("restrict access to the installer's manifests")?;
        made?;
        for manifest in &manifests.ours {
            home::write_private(&folder.join(&manifest.path), manifest.content.as_bytes())?;
        }
        for manifest in &manifests.users {
            let target = folder.join("openshift").join(&manifest.name);
            if target.exists() {
                return Err(manifest.conflict().into());
            }
            home::write_private(&target, &manifest.content)?;
        }
        let made = self
            .run(&["create", "ignition-configs"], folder, log, MAKE_LIMIT, &mask)
            .await;
        make_private(folder).context("restrict access to the installer's files")?;
        made?;
        // Under another name: the installer would read the original name as its input.
        let kept = yaml(&without_secrets(install_config));
        Ok(home::write_private(
            &folder.join("install-config.kept.yaml"),
            kept.as_bytes(),
        )?)
    }

    /// Collects the logs of a failed bootstrap over SSH as `log-bundle-….tar.gz` in the directory.
    ///
    /// The installer uses the user's own SSH keys and agent.
    pub(super) async fn gather(&self, wait: &WaitContext<'_>, limit: Duration) -> Result<(), OperationError> {
        let mut args = vec!["gather".to_owned(), "bootstrap".to_owned()];
        for node in &wait.parameters.nodes {
            match node.role {
                Role::Bootstrap => args.extend(["--bootstrap".to_owned(), node.ip.to_string()]),
                // The same logs are collected from both.
                Role::Master | Role::Arbiter => args.extend(["--master".to_owned(), node.ip.to_string()]),
                Role::Worker | Role::Helper => {}
            }
        }
        let folder = wait.dir.installer();
        let mask = Mask::new(wait.config, &folder);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.run(&args, &folder, &wait.dir.log(), limit, &mask).await
    }

    /// Runs to the end or to the limit; all lines go to a log named after the operation and to the progress, secrets
    /// masked.
    async fn run(
        &self,
        args: &[&str],
        folder: &Path,
        log: &Path,
        limit: Duration,
        mask: &Mask,
    ) -> Result<(), OperationError> {
        let name = &args[..args.len().min(2)];
        let lines = Lines::open(log, name, mask).map_err(|source| not_run(&self.path, source))?;
        let mut command = program(&self.path, VARIABLES);
        command.args(args).arg("--dir").arg(folder).arg("--log-level=info");
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Running::start(command).await;
        let mut running = started.map_err(|source| not_run(&self.path, source))?;
        let (stdout, stderr) = (running.child.stdout.take(), running.child.stderr.take());
        let run = async { tokio::join!(lines.follow(stdout), lines.follow(stderr), running.wait()).2 };
        let ended: Result<io::Result<ExitStatus>, _> = timeout(limit, run).await;
        let what = name.join(" ");
        let (kind, mut text) = match ended {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => (
                ErrorKind::Tool,
                format!("openshift-install {what} failed with {status}"),
            ),
            Ok(Err(source)) => return Err(not_run(&self.path, source)),
            Err(_) => {
                running.end().await;
                let after = limit.as_secs();
                let text = format!("openshift-install {what} timed out after {after} s and was stopped");
                (ErrorKind::Waited, text)
            }
        };
        text.extend(lines.tail.take().iter().map(|line| format!("\n  {line}")));
        let log = lines.path.display();
        let hint = match kind {
            ErrorKind::Tool if name.starts_with(&["create"]) => format!(
                "correct the settings or manifests that it rejects, then run the same command again; its output is in {log}"
            ),
            _ => format!("its output is in {log}; to resume, run the same command again"),
        };
        Err(OperationError::new(kind, text).hint(hint))
    }
}

/// The error of a missing openshift-install.
fn not_found(place: &str) -> OperationError {
    OperationError::new(ErrorKind::Tool, format!("cannot find openshift-install {place}")).hint(
        "set version=stable (or 4.19, okd, …) in the env file to download it; or get it from \
         https://mirror.openshift.com/pub/openshift-v4/clients/ocp/ (OKD: the releases of \
         github.com/okd-project/okd) and put it in PATH, or set installer=PATH",
    )
}

fn in_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Removes the permissions of group and others that the installer's umask allowed.
fn make_private(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        let mode = if is_folder { 0o700 } else { 0o600 };
        fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(mode))?;
        if is_folder {
            make_private(&entry.path())?;
        }
    }
    Ok(())
}

/// The output lines of a child: all written to a file, the last ones kept, each message shown.
struct Lines<'a> {
    path: PathBuf,
    file: RefCell<std::fs::File>,
    tail: RefCell<VecDeque<String>>,
    mask: &'a Mask,
}

impl<'a> Lines<'a> {
    fn open(log: &Path, args: &[&str], mask: &'a Mask) -> io::Result<Self> {
        let path = log.join(format!("openshift-install-{}.log", args.join("-")));
        let file = home::append_private(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display())))?;
        Ok(Self {
            path,
            file: RefCell::new(file),
            tail: RefCell::default(),
            mask,
        })
    }

    async fn follow(&self, output: Option<impl AsyncRead + Unpin>) {
        let Some(output) = output else { return };
        let mut lines = BufReader::new(output).split(b'\n');
        let mut masked = MaskedLines::new(self.mask);
        // A broken pipe is treated as a closed one.
        while let Ok(Some(line)) = lines.next_segment().await {
            if let Some(line) = masked.apply(String::from_utf8_lossy(&line).trim_end()) {
                self.take(&line);
            }
        }
    }

    fn take(&self, line: &str) {
        // A full disk must not stop the installer; the lines are still shown.
        let _ = writeln!(self.file.borrow_mut(), "{line}");
        let message = message(line);
        info!(target: PROGRESS, step = "openshift-install", "{message}");
        let mut tail = self.tail.borrow_mut();
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(message.to_owned());
    }
}

/// The message of a line such as `level=info msg=Consuming Install Config`.
fn message(line: &str) -> &str {
    let message = line
        .split_once("msg=")
        .filter(|_| line.starts_with("level=") || line.starts_with("time="));
    message.map_or(line, |(_, message)| message.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::home::{ClusterDir, Home};

    /// An openshift-install that is a shell script, and the directory of a cluster it works on.
    struct Fake {
        folder: tempfile::TempDir,
        config: ClusterConfig,
        parameters: Parameters,
        dir: ClusterDir,
    }

    impl Fake {
        fn new(script: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let dir = Home::new(folder.path()).cluster("lab");
            home::write_private(
                &dir.installer().join("auth/kubeadmin-password"),
                b"aB3dE-fGh1j-Klmn0-pqrst",
            )
            .unwrap();
            let fake = Self {
                dir,
                folder,
                config: ClusterConfig::example(),
                parameters: crate::state::parameters::tests::example(),
            };
            fs::write(fake.path("script"), script).unwrap();
            let sourced = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sourced");
            for program in ["fake", "oc"] {
                std::os::unix::fs::symlink(sourced, fake.path(program)).unwrap();
            }
            fake
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        async fn gather(&self, limit: Duration) -> Result<(), OperationError> {
            let installer = OpenshiftInstall::find(Some(&self.path("fake")))?;
            let wait = WaitContext {
                config: &self.config,
                parameters: &self.parameters,
                dir: &self.dir,
                guests_answer: true,
            };
            installer.gather(&wait, limit).await
        }

        fn log(&self) -> String {
            fs::read_to_string(self.dir.log().join("openshift-install-gather-bootstrap.log")).unwrap()
        }
    }

    #[tokio::test]
    async fn a_run_logs_all_lines_without_the_password() {
        let fake = Fake::new(
            r#"[ "$*" = "gather bootstrap --bootstrap 192.168.122.11 --master 192.168.122.12 --master 192.168.122.13 --master 192.168.122.14 --dir $(dirname $0)/clusters/lab/installer --log-level=info" ] || exit 9
            echo 'level=info msg="Login to the console with user: \"kubeadmin\", and password: \"aB3dE-fGh1j-Klmn0-pqrst\""' >&2
            echo 'level=info msg="Install complete!"' >&2"#,
        );
        fake.gather(Duration::from_secs(60)).await.unwrap();
        let log = fake.log();
        assert!(log.contains("Install complete!") && log.contains("password"), "{log}");
        assert!(!log.contains("pqrst"), "{log}");
        let mode = fs::metadata(fake.dir.log().join("openshift-install-gather-bootstrap.log")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_failed_run_shows_its_last_lines() {
        let fake = Fake::new(
            "exec >&2\nfor n in 1 2 3 4 5 6 7 8 9 10 11; do echo level=error msg=line $n; done\necho password is aB3dE-fGh1j-Klmn0-pqrst\nexit 6",
        );
        let error = fake.gather(Duration::from_secs(60)).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("openshift-install gather bootstrap failed with exit status: 6\n  "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1 + TAIL, "{text}");
        assert!(
            text.contains("\n  password is ****") && text.contains("\n  line 11"),
            "{text}"
        );
        assert!(!text.contains("line 1\n"), "{text}");
        assert_eq!(fake.log().lines().count(), 12);
        assert!(error.hints[0].contains("gather-bootstrap.log"), "{:?}", error.hints);
    }

    #[tokio::test]
    async fn a_run_that_does_not_end_is_stopped() {
        let fake = Fake::new("echo $$ >$(dirname $0)/pid\necho still waiting\nexec sleep 600");
        let begun = std::time::Instant::now();
        let error = fake.gather(Duration::from_secs(2)).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert_eq!(error.kind, ErrorKind::Waited);
        assert_eq!(
            error.to_string(),
            "openshift-install gather bootstrap timed out after 2 s and was stopped\n  still waiting"
        );
        let pid = fs::read_to_string(fake.path("pid")).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid} still runs");
    }

    #[test]
    fn messages_are_extracted_from_log_lines() {
        for (line, text) in [
            ("level=info msg=Consuming Install Config", "Consuming Install Config"),
            ("level=error msg=\"it \\\"failed\\\"\"", "it \\\"failed\\"),
            ("time=\"2026\" level=info msg=\"done\"", "done"),
            ("panic: msg=x", "panic: msg=x"),
        ] {
            assert_eq!(message(line), text);
        }
    }
}
