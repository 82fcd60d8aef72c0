//! openshift-install and oc as child processes that do not outlive this program.
//!
//! A signal ends this program without dropping values, so `end_all` is called first. What `kill -9` leaves is ended by
//! the next run (`end_leftovers`): each child has its parent in its environment.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fs_err as fs;
use rustix::process::{Pid, Signal, getpid, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::error::{ErrorKind, OperationError};
use crate::local::subprocess;
use crate::state::home::remove_folder;

/// The variable that names the parent: its process id and start time.
const PARENT: &str = "OCPDEPLOY_PARENT";

/// Time between two checks whether a killed process has ended, and their number.
const LOOKS: (Duration, usize) = (Duration::from_millis(20), 250);

/// What must not remain when this program ends.
static HERE: Mutex<Here> = Mutex::new(Here {
    ending: false,
    groups: Vec::new(),
    folders: Vec::new(),
});

struct Here {
    /// This program is ending: no child is started any more, and nothing continues when a child ends.
    ending: bool,
    groups: Vec<Pid>,
    folders: Vec<PathBuf>,
}

fn here() -> MutexGuard<'static, Here> {
    HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program with the variables of these lists, and without input.
pub(super) fn program(path: &Path, variables: &[&[&str]]) -> Command {
    let mut command = Command::from(subprocess::command(path, variables));
    if let Some((_, started)) = state_and_start(getpid()) {
        command.env(PARENT, format!("{} {started}", getpid()));
    }
    command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    command
}

/// The error of a program that cannot be started.
pub(super) fn not_run(program: &Path, source: io::Error) -> OperationError {
    OperationError::new(ErrorKind::Tool, format!("cannot run {}", program.display()))
        .hint("check that it is an executable for this computer: run `openshift-install version`")
        .source(source)
}

/// A child that leads a process group. The group is killed if this is dropped before the child has ended.
pub(super) struct Running {
    pub(super) child: Child,
    group: Option<Pid>,
}

impl Running {
    pub(super) async fn start(command: &mut Command) -> io::Result<Self> {
        let started = {
            let mut here = here();
            match here.ending {
                true => None,
                false => Some(command.spawn().map(|child| {
                    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                    here.groups.extend(group);
                    Self { child, group }
                })),
            }
        };
        match started {
            Some(started) => started,
            None => std::future::pending().await,
        }
    }

    /// Waits for the end of the child.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.forget();
        if here().ending {
            std::future::pending::<()>().await;
        }
        status
    }

    /// Kills the process group.
    pub(super) async fn end(&mut self) {
        if let Some(group) = self.forget() {
            kill(group);
        }
        let _ = self.child.wait().await;
    }

    fn forget(&mut self) -> Option<Pid> {
        let group = self.group.take();
        here().groups.retain(|other| Some(*other) != group);
        group
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.forget() {
            kill(group);
        }
    }
}

/// Kills a process group, which may have ended already.
fn kill(group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
}

/// The output of a child; `None` if it was killed after the time limit.
pub(super) async fn output(command: &mut Command, limit: Duration) -> io::Result<Option<Output>> {
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).await?;
    let (stdout, stderr) = (running.child.stdout.take(), running.child.stderr.take());
    let all = async { tokio::join!(read(stdout), read(stderr), running.wait()) };
    let Ok((stdout, stderr, status)) = timeout(limit, all).await else {
        running.end().await;
        return Ok(None);
    };
    Ok(Some(Output {
        status: status?,
        stdout: stdout?,
        stderr: stderr?,
    }))
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// A directory with secrets that is removed when this is dropped, unless it was renamed.
pub(super) struct Unfinished(PathBuf);

impl Unfinished {
    pub(super) fn new(folder: PathBuf) -> Self {
        here().folders.push(folder.clone());
        Self(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        here().folders.retain(|other| *other != self.0);
        if let Err(error) = remove_folder(&self.0) {
            warn!("{error}");
        }
    }
}

/// Kills all children and removes unfinished directories, because this program ends. No child is started afterwards.
pub async fn end_all() {
    let (groups, folders) = {
        let mut here = here();
        here.ending = true;
        (std::mem::take(&mut here.groups), std::mem::take(&mut here.folders))
    };
    groups.iter().copied().for_each(kill);
    until_ended(&groups).await;
    for folder in folders {
        if let Err(error) = remove_folder(&folder) {
            warn!("{error}");
        }
    }
}

/// Kills the children of runs that were killed themselves: they may still write to a cluster's directory.
pub(super) async fn end_leftovers() {
    let left = leftovers();
    for pid in &left {
        warn!("process {pid} was left by an earlier run that was killed; ending it");
        kill(*pid);
        let _ = rustix::process::kill_process(*pid, Signal::KILL);
    }
    until_ended(&left).await;
}

fn leftovers() -> Vec<Pid> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let namespace = |pid: Pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(getpid());
    // In another namespace the parent has another process id.
    pids.filter(|pid| parent_of(*pid).is_some_and(|parent| !lives(parent)) && namespace(*pid) == own)
        .collect()
}

/// Whether the process with this id and start time still runs.
fn lives((pid, started): (Pid, u64)) -> bool {
    state_and_start(pid).is_some_and(|(_, is)| is == started)
}

/// The process that started a process, from its environment; readable only for its own user and root.
fn parent_of(pid: Pid) -> Option<(Pid, u64)> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(PARENT.as_bytes())?.strip_prefix(b"="))?;
    let (parent, started) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((Pid::from_raw(parent.parse().ok()?)?, started.parse().ok()?))
}

/// The state of a process, such as `Z`, and its start time: fields 3 and 22 of proc_pid_stat(5).
fn state_and_start(pid: Pid) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.first()?.chars().next()?, fields.get(19)?.parse().ok()?))
}

async fn until_ended(pids: &[Pid]) {
    let is_running = |pid: &Pid| state_and_start(*pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'));
    for _ in 0..LOOKS.1 {
        if !pids.iter().any(is_running) {
            break;
        }
        sleep(LOOKS.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_names_its_parent_for_later_runs() {
        let mut command = program(Path::new("sleep"), &[]);
        let running = Running::start(command.arg("600")).await.unwrap();
        let child = running.group.unwrap();
        // Until it runs its program, it has the environment of this one.
        while parent_of(child).is_none() {
            sleep(LOOKS.0).await;
        }
        let (parent, started) = parent_of(child).unwrap();
        assert_eq!(parent, getpid());
        assert!(lives((parent, started)));
        assert!(!leftovers().contains(&child));
        // Another process had the id before.
        assert!(!lives((parent, started - 1)));
    }

    #[tokio::test]
    async fn a_child_ends_with_its_own_children_after_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let mut command = program(Path::new("sh"), &[]);
        command
            .arg("-c")
            .arg(format!("sleep 600 & echo $! >{}; wait", file.display()));
        let ended = output(&mut command, Duration::from_secs(2)).await.unwrap();
        assert!(ended.is_none());
        let pid = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        until_ended(&[pid]).await;
        assert!(
            state_and_start(pid).is_none_or(|(state, _)| state == 'Z'),
            "{pid} still runs"
        );
    }

    #[test]
    fn an_unfinished_folder_is_removed_unless_it_was_renamed() {
        let folder = tempfile::tempdir().unwrap();
        for renamed in [false, true] {
            let unfinished = Unfinished::new(folder.path().join("partial"));
            fs::create_dir(unfinished.path()).unwrap();
            if renamed {
                fs::rename(unfinished.path(), folder.path().join("whole")).unwrap();
            }
            drop(unfinished);
            assert!(!folder.path().join("partial").exists());
            assert_eq!(folder.path().join("whole").exists(), renamed);
        }
    }
}
