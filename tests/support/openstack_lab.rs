//! Clusters on the OpenStack lab: their env files, the program's runs, and their objects in OpenStack's own library.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use ocpdeploy::cluster::Mac;
use ocpdeploy::state::home::Home;
use ocpdeploy::state::parameters::Parameters;
use serde_json::Value;

use crate::support::cut_line::Line;

pub const DOMAIN: &str = "example.com";

/// A state folder and env files for clusters with unique names.
pub struct Lab {
    folder: tempfile::TempDir,
    /// The prefix of the names of all clusters of this test.
    pub mark: String,
    clouds: PathBuf,
    /// The entry of clouds.yaml.
    pub cloud: &'static str,
    pub network: String,
}

impl Lab {
    pub fn new(test: &str) -> Self {
        let clouds = std::env::var("OS_CLIENT_CONFIG_FILE").expect("`lab.sh exec` says where clouds.yaml is");
        let folder = tempfile::tempdir().unwrap();
        Self {
            folder,
            mark: format!("{test}{}", std::process::id()),
            clouds: clouds.into(),
            cloud: "demo",
            network: "private".to_owned(),
        }
    }

    /// Uses an application credential instead of the cloud's user.
    pub fn sign_in_with(&mut self, id: &str, secret: &str) {
        let text = format!(
            "clouds:\n  {}:\n    auth_type: v3applicationcredential\n    region_name: RegionOne\n    auth:\n      auth_url: \
             http://127.0.0.1:5000/v3\n      application_credential_id: '{id}'\n      application_credential_secret: \
             '{secret}'\n",
            self.cloud
        );
        self.clouds = self.folder.path().join("restricted.yaml");
        std::fs::write(&self.clouds, text).unwrap();
    }

    pub fn home(&self) -> Home {
        Home::new(self.folder.path().join("home"))
    }

    /// Writes the env file of a cluster with these lines after the usual ones; returns its name.
    pub fn cluster(&self, name: &str, lines: &str) -> String {
        let cluster = format!("{}{name}", self.mark);
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/images");
        let text = format!(
            "cluster={cluster}\ndomain={DOMAIN}\nbackend=openstack\nos_cloud={}\nnetwork={}\n\
             images_dir={}\n{lines}\n",
            self.cloud,
            self.network,
            images.display(),
        );
        std::fs::write(self.env(&cluster), text).unwrap();
        cluster
    }

    pub fn env(&self, cluster: &str) -> PathBuf {
        self.folder.path().join(format!("{cluster}.sh"))
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.start_on(&self.clouds, arguments)
    }

    fn start_on(&self, clouds: &Path, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(arguments)
            .env("OCPDEPLOY_HOME", self.home().root())
            .env("OS_CLIENT_CONFIG_FILE", clouds)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Starts the program with its calls through the proxy.
    pub fn start_through(&self, line: &Line, arguments: &[&str]) -> Child {
        let text = std::fs::read_to_string(&self.clouds).unwrap();
        let path = self.folder.path().join("clouds.yaml");
        let text = text.replace("127.0.0.1:5000", &format!("127.0.0.1:{}", line.port_of(5000)));
        std::fs::write(&path, text).unwrap();
        self.start_on(&path, arguments)
    }

    pub fn deploy(&self, cluster: &str) -> [String; 3] {
        let env = self.env(cluster).display().to_string();
        ["deploy".to_owned(), env, "--rehearse".to_owned()]
    }

    pub fn start_deploy(&self, cluster: &str) -> Child {
        self.start(&self.deploy(cluster).each_ref().map(String::as_str))
    }

    pub fn destroy(&self, cluster: &str) {
        succeeded(self.start(&["destroy", cluster, "--yes"]));
    }

    pub fn parameters(&self, cluster: &str) -> Parameters {
        let read = Parameters::read(&self.home().cluster(cluster).parameters()).unwrap();
        read.expect("a parameter file")
    }
}

impl Drop for Lab {
    /// A failed test leaves nothing that could make another one fail.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for env in std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
                let env = env.path();
                if let Some(cluster) = env
                    .file_stem()
                    .filter(|_| env.extension().is_some_and(|end| end == "sh"))
                {
                    let (cluster, env) = (cluster.to_string_lossy(), env.display().to_string());
                    let _ = self
                        .start(&["destroy", &cluster, "--env", &env, "--yes"])
                        .wait_with_output();
                }
            }
        }
    }
}

/// Waits for the end, which must be a success, and returns the output.
#[track_caller]
pub fn succeeded(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs OpenStack's own library on a cloud of the lab; returns its output.
#[track_caller]
pub fn judge(arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/openstack_judge.py");
    let Output { status, stdout, stderr } = Command::new("/usr/bin/python3")
        .args(["-W", "ignore"])
        .arg(script)
        .args(arguments)
        .output()
        .unwrap();
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// All objects of a cloud's project that contain `text`, by kind.
pub struct Seen(BTreeMap<String, Vec<Value>>);

impl Seen {
    #[track_caller]
    pub fn of(cloud: &str, text: &str) -> Self {
        Self(serde_json::from_str(&judge(&[cloud, "see", text])).unwrap())
    }

    pub fn kind(&self, kind: &str) -> &[Value] {
        &self.0[kind]
    }

    /// Kind and name of each object, in order.
    pub fn names(&self) -> Vec<String> {
        let all = self
            .0
            .iter()
            .flat_map(|(kind, things)| things.iter().map(move |thing| (kind, thing)));
        let mut names: Vec<_> = all
            .map(|(kind, thing)| format!("{kind} {} {}", text(thing, "name"), text(thing, "id")))
            .collect();
        names.sort();
        names
    }

    /// The objects with these ids, without the fields that services change by themselves.
    pub fn with_ids(&self, ids: &[String]) -> Vec<Value> {
        let all = self.0.values().flatten();
        let chosen = all.filter(|thing| ids.iter().any(|id| thing["id"] == id.as_str()));
        let mut chosen: Vec<_> = chosen.cloned().collect();
        for thing in &mut chosen {
            if let Some(thing) = thing.as_object_mut() {
                thing.remove("updated_at");
            }
        }
        chosen.sort_by_key(|thing| text(thing, "id").to_owned());
        chosen
    }

    pub fn servers(&self) -> BTreeMap<String, &Value> {
        self.kind("servers")
            .iter()
            .map(|server| (text(server, "name").to_owned(), server))
            .collect()
    }

    /// The MAC and addresses of each port that a server has.
    pub fn nics_of(&self, server: &Value) -> Vec<(Mac, Vec<IpAddr>)> {
        let ports = self
            .kind("ports")
            .iter()
            .filter(|port| port["device_id"] == server["id"]);
        ports
            .map(|port| (text(port, "mac_address").parse().unwrap(), addresses(port)))
            .collect()
    }
}

pub fn addresses(port: &Value) -> Vec<IpAddr> {
    let all = port["fixed_ips"].as_array().into_iter().flatten();
    all.map(|ip| text(ip, "ip_address").parse().unwrap()).collect()
}

pub fn text<'a>(thing: &'a Value, key: &str) -> &'a str {
    thing[key].as_str().unwrap_or_default()
}
