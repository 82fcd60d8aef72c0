//! A real sshd that plays the nodes, and a configured ssh of the user.

use std::fs::File;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::left_out::left_out;

const SSHD: &str = "/usr/sbin/sshd";

/// A key without a passphrase, and its public part.
pub fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .status();
    assert!(made.unwrap().success());
}

pub struct Sshd {
    child: Child,
    /// The first folder in `PATH`: its `ssh` is the user's own, with port, user and key.
    pub tools: PathBuf,
}

impl Sshd {
    /// Listens on these addresses of the loopback and finds commands in `programs` first. `None` where there is no sshd.
    pub fn start(folder: &Path, ips: &[IpAddr], programs: &Path) -> Option<Self> {
        if !Path::new(SSHD).exists() {
            left_out(format!("{SSHD} is not installed"));
            return None;
        }
        for key in ["host", "user"] {
            make_key(&folder.join(key));
        }
        let port = TcpListener::bind((ips[0], 0)).unwrap().local_addr().unwrap().port();
        let listen: String = ips.iter().map(|ip| format!("ListenAddress {ip}:{port}\n")).collect();
        let shown = folder.display();
        let config = format!(
            "{listen}HostKey {shown}/host\nAuthorizedKeysFile {shown}/user.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nSetEnv PATH={}:/usr/bin:/bin\n",
            programs.display()
        );
        std::fs::write(folder.join("sshd_config"), config).unwrap();
        // As root, it requires this folder, which its unit creates (openssh: `session.c`, `PRIVSEP_PATH`).
        let _ = std::fs::create_dir("/run/sshd");
        let child = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(folder.join("sshd_config"))
            .stdin(Stdio::null())
            .stderr(File::create(folder.join("sshd.log")).unwrap())
            .spawn()
            .unwrap();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = String::from_utf8(user).unwrap();
        let tools = folder.join("ssh-tools");
        std::fs::create_dir(&tools).unwrap();
        let script = format!(
            "#!/bin/sh\nexec /usr/bin/ssh -F /dev/null -l {} -p {port} -i {shown}/user -o IdentitiesOnly=yes \"$@\"\n",
            user.trim()
        );
        std::fs::write(tools.join("ssh"), script).unwrap();
        std::fs::set_permissions(tools.join("ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let begin = Instant::now();
        while TcpStream::connect((ips[0], port)).is_err() {
            let log = || std::fs::read_to_string(folder.join("sshd.log")).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(20), "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(Self { child, tools })
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
