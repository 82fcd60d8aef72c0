//! Registry processes: started to outlive this program, found again, and ended.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fs_err as fs;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::error::RegistryError;
use crate::digest::sha256;
use crate::local::subprocess::{self, CERTIFICATES, PROXY};
use crate::state::home::{append_private, write_private};
use crate::state::registry_cache::AUTHORITIES;

/// Debian's name, and upstream's.
const PROGRAMS: [&str; 2] = ["docker-registry", "registry"];

/// Runs upstream's image if neither is installed.
const PODMAN: &str = "podman";

/// Upstream's image of version 3.1.1, which gets the credentials of the pull secret (docker-library/repo-info:
/// `repos/registry/remote/3.md`). podman would ignore a tag before the digest.
const IMAGE: &str =
    "docker.io/library/registry@sha256:849b7d29920d060df8091770ede2279c07924ecd29e2a4c029ee0b5ea2ea542b";

/// Variables for upstream registries, which podman passes on, and for podman's own cgroup (containers/common:
/// `pkg/config/config.go`, `CheckCgroupsAndAdjustConfig`).
const VARIABLES: &[&[&str]] = &[PROXY, CERTIFICATES, &["DBUS_SESSION_BUS_ADDRESS"]];

/// Version 3 sends traces to a service on this computer, and each failure is an error in its log
/// (distribution/distribution: issue 4270; argoproj/argo-cd: issue 22974).
const NO_TRACES: (&str, &str) = ("OTEL_TRACES_EXPORTER", "none");

/// The variable with the folders in which Go looks for certificates, in addition to one file, and its default
/// (golang/go: `src/crypto/x509/root_unix.go`, `root_linux.go`).
const FOLDERS: &str = "SSL_CERT_DIR";
const USUAL_FOLDERS: [&str; 2] = ["/etc/ssl/certs", "/etc/pki/tls/certs"];

/// How long to wait for the end after each signal.
const END: Duration = Duration::from_secs(5);

/// Number of bytes that are read from the end of a log.
const LOG_END: u64 = 64 << 10;

const VERSION: u32 = 1;

/// A registry program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The registry program's, or podman's.
    pub path: PathBuf,
    in_container: bool,
    /// E.g. `2.8.2+ds1`.
    pub version: String,
}

impl Program {
    /// The first program in PATH that is distribution's registry, or podman, which may download its image.
    pub fn find() -> Result<Self, RegistryError> {
        let path = std::env::var_os("PATH");
        let folders: Vec<PathBuf> = path.iter().flat_map(std::env::split_paths).collect();
        let candidates = |name: &'static str| {
            folders
                .iter()
                .map(move |folder| folder.join(name))
                .filter(|path| path.is_file())
        };
        let installed = PROGRAMS
            .into_iter()
            .flat_map(candidates)
            .find_map(|path| Self::of(path, false).ok());
        match (installed, candidates(PODMAN).next()) {
            (Some(program), _) => Ok(program),
            (None, Some(podman)) => Self::of(podman, true).map_err(RegistryError::Podman),
            (None, None) => Err(RegistryError::NoProgram),
        }
    }

    /// Queries the version; the output is `PROGRAM MODULE VERSION` (distribution/distribution: `version/print.go`).
    fn of(path: PathBuf, in_container: bool) -> Result<Self, String> {
        let mut command = subprocess::command(&path, VARIABLES);
        if in_container {
            command.args(["run", "--rm", IMAGE]);
        }
        let output = command.arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| error.to_string())?;
        let (text, error) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            [_, module, version, ..] if module.contains("/distribution") => Ok(Self {
                version: version.trim_start_matches('v').to_owned(),
                path,
                in_container,
            }),
            _ => Err(error.lines().next_back().unwrap_or("no answer").to_owned()),
        }
    }

    /// Whether a blob is fetched twice: before version 3, once to store it and once to serve it
    /// (distribution/distribution: `registry/proxy/proxyblobstore.go`, `ServeBlob`).
    pub fn fetches_twice(&self) -> bool {
        self.version.starts_with("2.")
    }

    /// Whether it cannot log in to an upstream registry by HTTP Basic authentication, as before version 3.
    pub(super) fn logs_in_by_token_only(&self) -> bool {
        self.version.starts_with("2.")
    }

    /// Starts a registry in the background. It is not ended by signals to this program or its terminal.
    ///
    /// podman runs in the foreground: its output is the registry's, and it forwards SIGTERM (containers/podman:
    /// `docs/source/markdown/podman-run.1.md.in`, `options/sig-proxy.md`). The container has the user's files at their
    /// paths, and its root is the user, unless podman itself runs as root.
    pub(super) fn start(&self, folder: &RegistryDirectory, configuration: &Path, storage: &Path) -> io::Result<Child> {
        write_private(&folder.log(), b"")?;
        let log = append_private(&folder.log())?;
        let mut command = subprocess::command(&self.path, VARIABLES);
        command.env(NO_TRACES.0, NO_TRACES.1);
        let authorities = folder.authorities();
        if let Some(folders) = &authorities {
            command.env(FOLDERS, folders);
        }
        if self.in_container {
            command.args(container(folder, storage, authorities.as_deref()));
        }
        let child = command
            .arg("serve")
            .arg(configuration)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        let process = Process {
            v: VERSION,
            pid: child.id(),
            configuration: configuration.to_owned(),
        };
        write_private(&folder.process(), &serde_json::to_vec(&process)?)?;
        Ok(child)
    }
}

/// podman's arguments before those of the registry. SELinux labels are disabled: SELinux would hide files that are not
/// labeled for containers.
fn container(folder: &RegistryDirectory, storage: &Path, authorities: Option<&OsStr>) -> Vec<OsString> {
    let volume = |path: &Path, options: &str| {
        let mut volume = OsString::from("--volume=");
        volume.extend([path.as_os_str(), ":".as_ref(), path.as_os_str(), options.as_ref()]);
        volume
    };
    // After `kill -9` of podman, its container still runs. `--replace` replaces it, because it has the same name.
    let name = &sha256(folder.0.as_os_str().as_bytes())[..12];
    let mut arguments = [
        "run",
        "--rm",
        "--replace",
        "--network=host",
        "--security-opt=label=disable",
    ]
    .map(OsString::from)
    .to_vec();
    arguments.push(format!("--name=ocpdeploy-cache-{name}").into());
    arguments.extend(folder.0.parent().map(|shared| volume(shared, ":ro")));
    arguments.push(volume(storage, ""));
    arguments.push(format!("--env={}={}", NO_TRACES.0, NO_TRACES.1).into());
    for name in CERTIFICATES {
        if let Some(path) = std::env::var_os(name) {
            arguments.extend(std::env::split_paths(&path).map(|path| volume(&path, ":ro")));
            arguments.push(format!("--env={name}").into());
        }
    }
    // podman passes on the value from its own environment, where `start` has set it, even if the user's variable was
    // added above.
    if authorities.is_some() {
        arguments.push(format!("--env={FOLDERS}").into());
    }
    arguments.push(IMAGE.into());
    arguments
}

#[derive(Deserialize, Serialize)]
struct Process {
    v: u32,
    pid: u32,
    configuration: PathBuf,
}

/// The directory with the files of one registry.
pub struct RegistryDirectory(pub PathBuf);

impl RegistryDirectory {
    /// The configuration as a cache of its upstream registry.
    pub fn configuration(&self) -> PathBuf {
        self.0.join("config.yml")
    }

    /// The configuration without its upstream registry.
    pub fn offline_configuration(&self) -> PathBuf {
        self.0.join("offline.yml")
    }

    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// `SSL_CERT_DIR` with the authorities of the upstream registries, if there are any.
    fn authorities(&self) -> Option<OsString> {
        let own = self.0.parent()?.join(AUTHORITIES);
        let others: Vec<PathBuf> = match std::env::var_os(FOLDERS) {
            Some(folders) => std::env::split_paths(&folders).collect(),
            None => USUAL_FOLDERS.map(PathBuf::from).to_vec(),
        };
        let exists = own.is_dir();
        std::env::join_paths(std::iter::once(own).chain(others))
            .ok()
            .filter(|_| exists)
    }

    fn process(&self) -> PathBuf {
        self.0.join("process.json")
    }

    /// The configuration that the process runs with; `None` without a process.
    ///
    /// A process with the recorded id but without this argument is another program.
    pub fn runs_with(&self) -> Option<PathBuf> {
        let process = self.recorded()?;
        is_it(&process).then_some(process.configuration)
    }

    fn recorded(&self) -> Option<Process> {
        let text = fs::read(self.process()).ok()?;
        let process: Process = serde_json::from_slice(&text).ok()?;
        (process.v == VERSION).then_some(process)
    }

    /// Ends the process; `false` if there was none.
    pub fn stop(&self) -> io::Result<bool> {
        let Some(process) = self.recorded() else {
            return Ok(false);
        };
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        // The handle refers to the process that is compared next, even if its id is reused in the meantime.
        let Some(handle) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return Ok(false);
        };
        if !is_it(&process) {
            return Ok(false);
        }
        for (signal, limit) in [(Signal::TERM, END), (Signal::KILL, END)] {
            match pidfd_send_signal(&handle, signal) {
                Err(rustix::io::Errno::SRCH) => return Ok(true),
                sent => sent?,
            }
            let begun = Instant::now();
            while begun.elapsed() < limit {
                if !is_it(&process) {
                    return Ok(true);
                }
                sleep(Duration::from_millis(20));
            }
        }
        Err(io::Error::other(format!("process {} does not end", process.pid)))
    }

    /// The latest errors in the log, the newest last, each once.
    pub fn errors(&self) -> Vec<String> {
        let Ok(mut log) = File::open(self.log()) else {
            return Vec::new();
        };
        let length = log.metadata().map_or(0, |data| data.len());
        let mut text = Vec::new();
        let start = io::SeekFrom::Start(length.saturating_sub(LOG_END));
        if io::Seek::seek(&mut log, start).is_err() || log.take(LOG_END).read_to_end(&mut text).is_err() {
            return Vec::new();
        }
        errors(&String::from_utf8_lossy(&text))
    }
}

/// Whether the recorded process runs: its arguments have its configuration. A process that has ended has none.
fn is_it(process: &Process) -> bool {
    let arguments = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let mut arguments = arguments.split(|byte| *byte == 0);
    arguments.any(|argument| OsStr::from_bytes(argument) == process.configuration.as_os_str())
}

/// The messages of a log's errors, without those of requests that a client aborted.
fn errors(log: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in log.lines() {
        let message = match line.strip_prefix("panic: ") {
            Some(message) => message.to_owned(),
            None if line.contains(" level=error ") || line.contains(" level=fatal ") => {
                let field = |name| value(line, name);
                match (field("msg"), field("err.detail")) {
                    (Some(message), Some(detail)) if !detail.is_empty() => format!("{message}: {detail}"),
                    (Some(message), _) => message,
                    _ => continue,
                }
            }
            None => continue,
        };
        let is_of_client = [
            "broken pipe",
            "connection reset by peer",
            "blob unknown",
            "manifest unknown",
        ];
        if is_of_client.iter().any(|words| message.contains(words)) {
            continue;
        }
        found.retain(|known| *known != message);
        found.push(message);
    }
    found
}

/// The value of `name=value` or `name="value"` (sirupsen/logrus: `text_formatter.go`).
fn value(line: &str, name: &str) -> Option<String> {
    let rest = &line[line.find(&format!(" {name}="))? + name.len() + 2..];
    let Some(quoted) = rest.strip_prefix('"') else {
        return Some(rest.split(' ').next()?.to_owned());
    };
    let mut value = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Some(value),
            '\\' => value.extend(letters.next().map(|letter| if letter == 'n' { ' ' } else { letter })),
            _ => value.push(letter),
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_a_log_are_found() {
        let log = "\
time=\"2026-11-24T08:59:06Z\" level=warning msg=\"error authorizing context: x\" go.version=go1.19.8
time=\"2026-11-24T08:59:07Z\" level=error msg=\"Error committing to storage: write /s/data: no space left on device\" go.version=go1.19.8
time=\"2026-11-24T08:59:08Z\" level=error msg=\"response completed with error\" err.code=unknown err.detail=\"Get \\\"https://quay.io/v2/\\\": refused\" err.message=\"unknown error\"
time=\"2026-11-24T08:59:08Z\" level=error msg=\"error serving error json: write tcp: write: broken pipe\" x=y
time=\"2026-11-24T08:59:09Z\" level=error msg=\"Error committing to storage: write /s/data: no space left on device\" go.version=go1.19.8
panic: listen tcp 127.0.0.1:1: bind: address already in use
";
        assert_eq!(
            errors(log),
            [
                "response completed with error: Get \"https://quay.io/v2/\": refused",
                "Error committing to storage: write /s/data: no space left on device",
                "listen tcp 127.0.0.1:1: bind: address already in use",
            ]
        );
    }

    #[test]
    fn only_the_process_with_the_configuration_is_stopped() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = RegistryDirectory(temporary.path().to_owned());
        assert!(!folder.stop().unwrap());
        let configuration = folder.configuration();
        let mut other = subprocess::command("sleep", &[]).arg("60").spawn().unwrap();
        let record = |pid| {
            let configuration = configuration.clone();
            let process = Process {
                v: VERSION,
                pid,
                configuration,
            };
            write_private(&folder.process(), &serde_json::to_vec(&process).unwrap()).unwrap();
        };
        record(other.id());
        assert!(folder.runs_with().is_none() && !folder.stop().unwrap());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        let mut own = subprocess::command("sh", &[])
            .args(["-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"])
            .arg(&configuration)
            .spawn()
            .unwrap();
        record(own.id());
        assert_eq!(folder.runs_with(), Some(configuration.clone()));
        assert!(folder.stop().unwrap());
        own.wait().unwrap();
        assert!(!folder.stop().unwrap());
    }
}
