//! Whole runs through a kubeconfig file on the server that `OCPDEPLOY_TEST_KUBECONFIG` names, see CONTRIBUTING.md. Only
//! `kubectl` is asked which objects exist. Without a server, one run on the fake shows that this works.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::cluster::names_of;
use crate::support::fake_kubevirt::World;
use crate::support::kubevirt_sandbox::Sandbox;

/// The kinds of all objects that this program creates.
const KINDS: &str = "virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io,datavolumes.cdi.kubevirt.io,\
                     persistentvolumeclaims,secrets,configmaps,services,networkpolicies";
const NETWORKS: [&str; 2] = ["secondary", "pods"];

/// The networks of a test: both on a real server, these on the fake. What `kubevirt`, `kubevirt_cuts` and `kubevirt_pods`
/// test there is not repeated.
fn networks(on_fake: &'static [&'static str]) -> &'static [&'static str] {
    match variable("") {
        Some(_) => &NETWORKS,
        None => on_fake,
    }
}

/// A sandbox, and the server of its env files.
struct Named {
    sandbox: Sandbox,
    /// Unique for the test and this run: several runs can use one server at a time.
    cluster: String,
    kubeconfig: PathBuf,
    /// The settings of a real server, if one is named.
    lines: String,
    on_pods: bool,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("OCPDEPLOY_TEST_KUBECONFIG{name}")).ok()
}

impl Named {
    fn on(network: &str, test: &str) -> Self {
        let cluster = format!("{test}{}", std::process::id());
        let sandbox = Sandbox::new(World::with_tenants(&["blue", "red"]));
        let on_pods = network == "pods";
        let mut lines = "masters=1\nworkers=1\n".to_owned();
        let kubeconfig = variable("").map_or(sandbox.kubeconfig("blue"), PathBuf::from);
        let kubeconfig = std::path::absolute(kubeconfig).unwrap();
        lines += &format!("kubevirt_kubeconfig={}\n", kubeconfig.display());
        lines += if on_pods { "network=pod\n" } else { "" };
        match variable("") {
            None if on_pods => lines += "kubevirt_pod_networks=10.128.0.0/14\n",
            None => {}
            Some(_) => {
                let image = variable("_IMAGE").expect("OCPDEPLOY_TEST_KUBECONFIG_IMAGE names an image of the platform");
                lines += &format!("image={image}\nharvest_image={image}\n");
                if !on_pods {
                    lines += &format!("network={}\n", variable("_NETWORK").unwrap_or("lan".to_owned()));
                }
                // E.g. machine_network, storage_class, pod_networks; one in each line.
                lines += &variable("_SETTINGS").unwrap_or_default();
            }
        }
        Self {
            sandbox,
            cluster,
            kubeconfig,
            lines,
            on_pods,
        }
    }

    /// What `kubectl` finds of a cluster, each as `kind/name`.
    fn found(&self, cluster: &str) -> Vec<String> {
        let output = Command::new("kubectl")
            .args(["get", KINDS, "-l", "ocpdeploy.io/cluster", "-o", "json"])
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.sandbox.path())
            .output()
            .expect("this test needs kubectl: apt-get install kubernetes-client");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut names = names_of(&String::from_utf8(output.stdout).unwrap(), cluster);
        names.sort();
        names
    }

    #[track_caller]
    fn is_deployed(&self, cluster: &str) {
        let found = self.found(cluster);
        let machines = found
            .iter()
            .filter_map(|name| name.strip_prefix("virtualmachine.kubevirt.io/"));
        let expected = ["master-0", "worker-0"].map(|node| format!("{cluster}-{node}"));
        assert_eq!(machines.collect::<Vec<_>>(), expected);
        let has = |part: &str| found.iter().filter(|name| name.starts_with(part)).count();
        assert_eq!((has("configmap/"), has("secret/")), (1, 2), "{found:?}");
        let on_pods = if self.on_pods { (4, 3) } else { (0, 0) };
        assert_eq!((has("service/"), has("networkpolicy.")), on_pods, "{found:?}");
    }

    #[track_caller]
    fn destroys(&self, cluster: &str) {
        self.sandbox.destroy(cluster);
        assert_eq!(self.found(cluster), [""; 0]);
    }
}

impl Named {
    /// Clusters whose names start or end with each other.
    fn similar(&self) -> [String; 3] {
        let name = &self.cluster;
        [name.clone(), format!("{name}-2"), format!("a{name}")]
    }
}

/// Removes everything of a test from a real server.
impl Drop for Named {
    fn drop(&mut self) {
        for cluster in self.similar() {
            if std::thread::panicking() && self.sandbox.home().cluster(&cluster).exists() {
                self.sandbox.run(&["destroy", &cluster, "--yes"]);
            }
        }
    }
}

#[test]
fn on_the_named_server_a_cluster_is_deployed_adopted_and_destroyed() {
    for network in networks(&["pods"]) {
        let named = Named::on(network, "whole");
        let cluster = named.cluster.as_str();
        named.sandbox.env(cluster, &named.lines);
        named.sandbox.deploy(cluster).unwrap();
        named.is_deployed(cluster);
        let before = named.found(cluster);
        assert!(named.sandbox.deploy(cluster).unwrap().skipped_pass_one);
        assert_eq!(named.found(cluster), before);
        named.destroys(cluster);
    }
}

#[test]
fn on_the_named_server_a_run_that_is_killed_is_continued_or_destroyed() {
    for network in networks(&[]) {
        let named = Named::on(network, "killed");
        let cluster = named.cluster.as_str();
        named.sandbox.env(cluster, &named.lines);
        for continues in [true, false] {
            let mut child = named.sandbox.start(&["deploy", &format!("{cluster}.sh"), "--rehearse"]);
            let begin = Instant::now();
            while !named
                .found(cluster)
                .iter()
                .any(|name| name.starts_with("virtualmachine."))
            {
                assert!(
                    child.try_wait().unwrap().is_none(),
                    "it ended before it created a machine"
                );
                assert!(begin.elapsed() < Duration::from_secs(600), "it creates no machine");
            }
            child.kill().unwrap();
            child.wait().unwrap();
            if continues {
                named.sandbox.deploy(cluster).unwrap();
                named.is_deployed(cluster);
            }
            named.destroys(cluster);
        }
    }
}

#[test]
fn on_the_named_server_three_clusters_at_once_are_each_destroyed_alone() {
    for network in networks(&[]) {
        let named = Named::on(network, "many");
        let clusters = named.similar();
        std::thread::scope(|scope| {
            for cluster in &clusters {
                named.sandbox.env(cluster, &named.lines);
                let sandbox = &named.sandbox;
                scope.spawn(move || sandbox.deploy(cluster).unwrap());
            }
        });
        for (gone, cluster) in clusters.iter().enumerate() {
            named.is_deployed(cluster);
            named.destroys(cluster);
            for left in &clusters[gone + 1..] {
                named.is_deployed(left);
            }
        }
    }
}

/// Machines are cloned from the named image, and nothing is uploaded.
#[test]
fn a_rehearsal_takes_an_image_of_the_platform() {
    let named = Named::on("secondary", "image");
    let sandbox = &named.sandbox;
    sandbox.server.with(|world| {
        let about = serde_json::json!({"namespace": "blue", "name": "rhcos"});
        let size = serde_json::json!({"resources": {"requests": {"storage": "16Gi"}}});
        world.force(
            "persistentvolumeclaims",
            serde_json::json!({"metadata": about, "spec": size}),
        );
    });
    sandbox.env(
        "image",
        "masters=1\nworkers=0\nimage=pvc:rhcos\nharvest_image=pvc:rhcos\n",
    );
    sandbox.deploy("image").unwrap();
    let machine = sandbox.object("virtualmachines", "blue", "image-master-0");
    let source = &machine["spec"]["dataVolumeTemplates"][0]["spec"]["source"]["pvc"];
    assert_eq!(*source, serde_json::json!({"namespace": "blue", "name": "rhcos"}));
    sandbox
        .server
        .with(|world| assert!(world.uploads.is_empty(), "{:?}", world.uploads));
}
