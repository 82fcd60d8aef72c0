//! A real API server, see `tests/lab/kubernetes/README.md`: of a platform with KubeVirt, whose controllers, virt-api and CDI
//! are played; and of a deployed cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use ocpdeploy::backend::SnapshotName;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::passes::snapshot::{self, SaveOptions};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::inventory::Known;
use serde_json::{Value, json};

use crate::support::cluster::names_of;
use crate::support::fake_kubevirt::World;
use crate::support::fake_kubevirt::rights::User;
use crate::support::kubevirt_sandbox::{Sandbox, documented};

#[cfg(feature = "ovirt")]
#[path = "kubernetes/cluster.rs"]
mod cluster;
#[path = "kubernetes/manifests.rs"]
mod manifests;
#[cfg(feature = "ovirt")]
#[path = "kubernetes/pools.rs"]
mod pools;
#[path = "kubernetes/requests.rs"]
mod requests;

/// The kinds of all objects of a cluster.
const KINDS: &str = "virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io,datavolumes.cdi.kubevirt.io,\
                     persistentvolumeclaims,secrets,configmaps,services,networkpolicies,\
                     virtualmachinesnapshots.snapshot.kubevirt.io,virtualmachinerestores.snapshot.kubevirt.io";
const LONG: Duration = Duration::from_secs(240);

fn folder() -> PathBuf {
    let given = std::env::var_os("OCPDEPLOY_KUBERNETES_LAB").map(PathBuf::from);
    given.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/kubernetes"))
}

fn lab(arguments: &[&str]) -> String {
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/kubernetes/lab.sh"))
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lab.sh {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs kubectl as the API server's administrator.
fn admin(arguments: &[&str]) -> std::process::Output {
    Command::new("kubectl")
        .args(arguments)
        .env("KUBECONFIG", folder().join("state/admin.kubeconfig"))
        .env("HOME", folder().join("state"))
        .output()
        .unwrap()
}

fn kubectl(arguments: &[&str]) -> String {
    let output = admin(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A namespace with its own user, who has exactly the documented rights.
struct Tenant {
    name: String,
    kubeconfig: PathBuf,
    sandbox: Sandbox,
}

impl Tenant {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        lab(&["tenant", &name]);
        Self {
            kubeconfig: folder().join(format!("state/{name}.kubeconfig")),
            // Its server gets no requests.
            sandbox: Sandbox::new(World::with_tenants(&["blue", "red"])),
            name,
        }
    }

    fn env(&self, cluster: &str, more: &str) {
        let workers = if more.contains("workers=") { "" } else { "workers=1\n" };
        let lines = format!(
            "kubevirt_kubeconfig={}\nnetwork=lan\nmachine_network=10.7.0.0/16\nimage=pvc:rhcos\nharvest_image=pvc:rhcos\n\
             masters=1\n{workers}platform_timeout=120s\n{more}",
            self.kubeconfig.display()
        );
        self.sandbox.env(cluster, &lines);
    }

    /// All objects of a cluster, as `kind/name`.
    fn found(&self, cluster: &str) -> Vec<String> {
        let said = kubectl(&[
            "-n",
            &self.name,
            "get",
            KINDS,
            "-l",
            "ocpdeploy.io/cluster",
            "-o",
            "json",
        ]);
        names_of(&said, cluster)
    }

    fn destroys(&self, cluster: &str) {
        let output = self.sandbox.run(&["destroy", cluster, "--yes"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(self.found(cluster), [""; 0]);
    }

    fn when_there_is(&self, cluster: &str, part: &str) {
        let begun = Instant::now();
        while !self.found(cluster).iter().any(|name| name.contains(part)) {
            assert!(begun.elapsed() < LONG, "there is no {part} of {cluster}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Deploys, and changes something as soon as this part of the cluster exists.
    fn deploys_while(&self, cluster: &str, part: &str, change: impl FnOnce()) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| self.sandbox.deploy_patiently(cluster));
            self.when_there_is(cluster, part);
            change();
            run.join().unwrap().map(drop)
        })
    }

    /// The message of a run that fails, without the parts that differ from run to run.
    fn fails(&self, deployed: anyhow::Result<impl Sized>) -> String {
        let error = deployed.err().expect("it must not succeed");
        let text = format!("{error:#}").replace(&self.name, "<tenant>");
        println!("{text}\n");
        text
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // The test may have failed because there is no server.
        admin(&["delete", "namespace", &self.name, "--wait=false"]);
    }
}

#[test]
#[ignore = "needs the lab"]
fn an_api_server_that_is_killed_during_a_run_loses_nothing() {
    let tenant = Tenant::new("killed");
    tenant.env("killed", "");
    let deployed = tenant.deploys_while("killed", "virtualmachine.", || {
        lab(&["crash", "3"]);
    });
    deployed.unwrap();
    let found = tenant.found("killed");
    for machine in ["master-0", "worker-0"] {
        let name = format!("virtualmachine.kubevirt.io/killed-{machine}");
        assert!(found.contains(&name), "{found:?}");
    }
    assert!(!found.iter().any(|name| name.contains("harvest")), "{found:?}");
    tenant.destroys("killed");
}

#[test]
#[ignore = "needs the lab"]
fn a_token_that_is_revoked_during_a_run_is_named_and_nothing_is_left() {
    let tenant = Tenant::new("revoked");
    // A run that outlasts the cache of valid tokens: 10 s (kubernetes/kubernetes:
    // pkg/kubeapiserver/options/authentication.go, TokenSuccessCacheTTL).
    tenant.env("revoked", "workers=24\n");
    let account = [
        "-n",
        &tenant.name,
        "get",
        "serviceaccount",
        "ocpdeploy",
        "-o",
        "jsonpath={.secrets[0].name}",
    ];
    let secret = kubectl(&account);
    let deployed = tenant.deploys_while("revoked", "virtualmachine.", || {
        kubectl(&["-n", &tenant.name, "delete", "secret", &secret]);
    });
    let said = tenant.fails(deployed);
    assert!(said.contains("Unauthorized"), "{said}");
    // A new token, as after a login.
    let renewed = Tenant::new("renewed");
    let new = std::fs::read_to_string(&renewed.kubeconfig).unwrap();
    let new: Value = serde_json::from_str(&new).unwrap();
    let old = std::fs::read_to_string(&tenant.kubeconfig).unwrap();
    let mut old: Value = serde_json::from_str(&old).unwrap();
    old["users"] = new["users"].clone();
    let account = format!("{}:ocpdeploy", renewed.name);
    for role in ["ocpdeploy", "ocpdeploy-pods"] {
        let binding = format!("renewed-{role}");
        let arguments = [
            "-n",
            &tenant.name,
            "create",
            "rolebinding",
            &binding,
            "--role",
            role,
            "--serviceaccount",
            &account,
        ];
        kubectl(&arguments);
    }
    std::fs::write(&tenant.kubeconfig, old.to_string()).unwrap();
    tenant.destroys("revoked");
}

#[test]
#[ignore = "needs the lab"]
fn a_quota_that_is_reached_is_refused_or_named_by_the_run() {
    let tenant = Tenant::new("quota");
    let quota = |name: &str, hard: &str| {
        let hard = format!("--hard={hard}");
        kubectl(&["-n", &tenant.name, "create", "quota", name, &hard]);
        let begun = Instant::now();
        let known = [
            "-n",
            &tenant.name,
            "get",
            "quota",
            name,
            "-o",
            "jsonpath={.status.used}",
        ];
        while kubectl(&known).is_empty() {
            assert!(begun.elapsed() < LONG, "the quota is not counted");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // Read before anything is created.
    tenant.env("quota", "");
    quota("small", "requests.memory=600Mi");
    let said = tenant.fails(tenant.sandbox.deploy_patiently("quota"));
    assert!(said.contains("requests.memory"), "{said}");
    assert_eq!(tenant.found("quota"), [""; 0]);
    kubectl(&["-n", &tenant.name, "delete", "quota", "small"]);
    // Used up during the run: by the instances, then by the pods.
    for (kind, hard) in [
        ("virtualmachineinstances", "count/virtualmachineinstances.kubevirt.io=0"),
        ("pods", "count/pods=0"),
    ] {
        let deployed = tenant.deploys_while("quota", "configmap/", || {
            quota("late", hard);
        });
        let said = tenant.fails(deployed);
        assert!(said.contains("exceeded quota: late") && said.contains(kind), "{said}");
        kubectl(&["-n", &tenant.name, "delete", "quota", "late"]);
        tenant.destroys("quota");
    }
}

#[test]
#[ignore = "needs the lab"]
fn a_network_that_is_removed_during_a_run_is_named_and_nothing_is_left() {
    let tenant = Tenant::new("removed");
    tenant.env("removed", "");
    let deployed = tenant.deploys_while("removed", "virtualmachine.", || {
        kubectl(&["-n", &tenant.name, "delete", "network-attachment-definition", "lan"]);
    });
    let said = tenant.fails(deployed);
    assert!(said.contains("network attachment definition lan"), "{said}");
    tenant.destroys("removed");
}

#[test]
#[ignore = "needs the lab"]
fn a_network_that_is_mistyped_or_cannot_be_read_is_refused() {
    let tenant = Tenant::new("network");
    tenant.env("network", "");
    let path = tenant.sandbox.path().join("network.sh");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("network=lan\n", "network=lna\n")).unwrap();
    let said = tenant.fails(tenant.sandbox.deploy_patiently("network"));
    assert!(said.contains("no network attachment definition lna"), "{said}");
    std::fs::write(&path, text).unwrap();
    // As the cluster role `edit` of plain Kubernetes, which has no rights on networks.
    let rules = kubectl(&[
        "-n",
        &tenant.name,
        "get",
        "role",
        "ocpdeploy",
        "-o",
        "jsonpath={.rules}",
    ]);
    let mut rules: Vec<Value> = serde_json::from_str(&rules).unwrap();
    rules.retain(|rule| rule["apiGroups"][0] != "k8s.cni.cncf.io");
    let patch = json!({"rules": rules}).to_string();
    kubectl(&[
        "-n",
        &tenant.name,
        "patch",
        "role",
        "ocpdeploy",
        "--type=merge",
        "-p",
        &patch,
    ]);
    let said = tenant.fails(tenant.sandbox.deploy_patiently("network"));
    let right = "get network-attachment-definitions.k8s.cni.cncf.io";
    assert!(said.contains(right) && said.contains("<tenant>"), "{said}");
    assert_eq!(tenant.found("network"), [""; 0]);
}

/// The fake controllers ask the real server for the rights of the machines' service account, as KubeVirt does.
#[test]
#[ignore = "needs the lab"]
fn an_image_of_another_namespace_is_cloned_with_the_right_of_the_service_account() {
    let (tenant, golden) = (Tenant::new("cloner"), Tenant::new("golden"));
    let (mine, theirs) = (&tenant.name, &golden.name);
    let image = format!("pvc:{theirs}/rhcos");
    tenant.env("cloned", "");
    let path = tenant.sandbox.path().join("cloned.sh");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("pvc:rhcos", &image)).unwrap();
    let resource = "--resource=datavolumes.cdi.kubevirt.io/source";
    kubectl(&[
        "-n",
        theirs,
        "create",
        "role",
        "clone-images",
        "--verb=create",
        resource,
    ]);
    let allow = |name: &str, account: &str| {
        let account = format!("--serviceaccount={mine}:{account}");
        kubectl(&[
            "-n",
            theirs,
            "create",
            "rolebinding",
            name,
            "--role=clone-images",
            &account,
        ]);
    };
    // The user's own right.
    allow("user", "ocpdeploy");
    let said = tenant.fails(tenant.sandbox.deploy_patiently("cloned"));
    let why = format!(
        "User system:serviceaccount:<tenant>:default has insufficient permissions in clone source namespace {theirs}"
    );
    assert!(said.contains(&why), "{said}");
    let account = "--role=clone-images --serviceaccount=<tenant>:default";
    assert!(said.contains(account), "{said}");
    tenant.destroys("cloned");
    allow("machines", "default");
    tenant.sandbox.deploy_patiently("cloned").unwrap();
    tenant.destroys("cloned");
}

/// The image has 16 GiB, and the settings ask for less.
#[test]
#[ignore = "needs the lab"]
fn the_manifests_of_a_plan_change_nothing_also_when_the_image_is_larger_than_the_disk() {
    let tenant = Tenant::new("planned");
    tenant.env("planned", "");
    tenant.sandbox.deploy_patiently("planned").unwrap();
    let disk = tenant.sandbox.config("planned").master_size.disk_gib;
    assert!(disk < 16, "the disk has {disk} GiB");
    let planned = tenant
        .sandbox
        .run(&["plan", "planned.sh", "--rehearse", "--manifests", "manifests"]);
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let folder = tenant.sandbox.path().join("manifests");
    let output = Command::new("kubectl")
        .args([
            "diff",
            "--server-side",
            "--force-conflicts",
            "--field-manager=ocpdeploy",
            "-f",
        ])
        .arg(&folder)
        .env("KUBECONFIG", &tenant.kubeconfig)
        .env("HOME", tenant.sandbox.path())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    // The storage driver's account has its rights, and its objects are valid.
    let export = |part: &str| {
        let exported = tenant.sandbox.run(&["export", "csi", "planned", "--part", part]);
        assert!(
            exported.status.success(),
            "{}",
            String::from_utf8_lossy(&exported.stderr)
        );
        let file = tenant.sandbox.path().join(format!("{part}.yaml"));
        std::fs::write(&file, exported.stdout).unwrap();
        file.display().to_string()
    };
    kubectl(&["apply", "-f", &export("platform")]);
    let account = format!("--as=system:serviceaccount:{}:planned-csi", tenant.name);
    for (verb, resource, answer) in [
        ("create", "datavolumes.cdi.kubevirt.io", "yes"),
        ("get", "virtualmachines.kubevirt.io", "yes"),
        ("get", "secrets", "no"),
    ] {
        let said = admin(&["-n", &tenant.name, "auth", "can-i", verb, resource, &account]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said.trim(), answer, "{verb} {resource}");
    }
    kubectl(&[
        "create",
        "--dry-run=client",
        "--validate=true",
        "-f",
        &export("cluster"),
    ]);
    tenant.destroys("planned");
}

#[test]
#[ignore = "needs the lab"]
fn two_tenants_with_the_same_name_on_one_network_share_nothing() {
    let tenants = ["one", "two"].map(Tenant::new);
    std::thread::scope(|scope| {
        for tenant in &tenants {
            tenant.env("same", "");
            scope.spawn(|| tenant.sandbox.deploy_patiently("same").unwrap());
        }
    });
    let of = |tenant: &Tenant| {
        let table = tenant.sandbox.parameters("same");
        let leases = table.leases();
        let mut all: BTreeSet<String> = leases.iter().map(|lease| lease.mac.to_string()).collect();
        all.extend(leases.iter().map(|lease| lease.ip.to_string()));
        all.extend([table.virtual_router_id, table.ingress_virtual_router_id].map(|id| format!("VRID {id}")));
        println!("{}: {all:?}", tenant.name);
        all
    };
    let [one, two] = tenants.each_ref().map(of);
    assert_eq!(one.len(), 12, "5 MACs, 5 addresses, 2 VRIDs");
    assert_eq!(one.intersection(&two).collect::<Vec<_>>(), [""; 0]);
    for tenant in &tenants {
        tenant.destroys("same");
    }
}

#[test]
#[ignore = "needs the lab"]
fn a_cluster_is_saved_and_restored_twice() {
    let tenant = Tenant::new("saved");
    tenant.env("saved", "");
    tenant.sandbox.deploy_patiently("saved").unwrap();
    let name: SnapshotName = "before".parse().unwrap();
    let known = |home: &Home| Known::read(&home.cluster("saved")).unwrap().unwrap();
    let count = |kind: &str| {
        tenant
            .found("saved")
            .iter()
            .filter(|name| name.starts_with(kind))
            .count()
    };
    let options = SaveOptions {
        stop_limit: LONG,
        power_off: false,
        backup: true,
        stay_off: false,
        start_limit: LONG,
    };
    let save =
        async |backend: &Platforms, home: &Home| snapshot::save(backend, &known(home), home, &name, options).await;
    tenant.sandbox.far("saved", save).unwrap();
    assert_eq!(count("virtualmachinesnapshot."), 2);
    for _ in 0..2 {
        let restore = async |backend: &Platforms, home: &Home| {
            snapshot::restore(backend, &known(home), home, &name, LONG, |_, _| Ok(())).await
        };
        tenant.sandbox.far("saved", restore).unwrap();
        let found = tenant.found("saved");
        let is_new = |name: &&String| name.starts_with("datavolume.cdi.kubevirt.io/restore-");
        assert_eq!(found.iter().filter(is_new).count(), count("datavolume."), "{found:?}");
        assert_eq!(
            (count("virtualmachineinstance."), count("virtualmachinerestore.")),
            (2, 0),
            "{found:?}"
        );
    }
    let delete =
        async |backend: &Platforms, home: &Home| snapshot::delete(backend, &known(home), home, &name, |_| Ok(())).await;
    tenant.sandbox.far("saved", delete).unwrap();
    assert_eq!(count("virtualmachinesnapshot."), 0);
    tenant.destroys("saved");
}

/// Runs last: the audit log has the requests of the other tests.
#[test]
#[ignore = "needs the lab, after the other tests"]
fn only_documented_rights_were_used() {
    let text = std::fs::read_to_string(folder().join("state/audit.log")).unwrap();
    let documented: BTreeSet<String> = documented(&[0, 1, 2], "x").into_iter().collect();
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut beyond = BTreeSet::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let user = event["user"]["username"].as_str().unwrap_or_default();
        let asked = &event["objectRef"];
        let text = |field: &str| asked[field].as_str().unwrap_or_default();
        let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
        // Rejected requests are not rights in use; the tests of requests send some, too.
        let is_program = event["userAgent"]
            .as_str()
            .is_none_or(|agent| !agent.starts_with("kubectl"));
        if !user.ends_with(":ocpdeploy") || !is_program || asked.is_null() || code == 403 || code == 401 {
            continue;
        }
        let mut resource = text("resource").to_owned();
        if !text("subresource").is_empty() {
            resource += &format!("/{}", text("subresource"));
        }
        let verb = event["verb"].as_str().unwrap();
        // Every user may query its own rights, and read CDI's settings and virt-api's version.
        let is_everybodys = matches!(resource.as_str(), "selfsubjectaccessreviews" | "cdiconfigs" | "version");
        let right = format!("{verb} {resource}");
        if !is_everybodys && !documented.contains(&format!("{right} x")) {
            beyond.insert(right.clone());
        }
        *used.entry(right).or_default() += 1;
    }
    println!("{} rights used of {} documented:", used.len(), documented.len());
    for (right, times) in &used {
        println!("  {times:6} {right}");
    }
    let unused = documented.iter().filter_map(|right| right.strip_suffix(" x"));
    println!(
        "documented and not used: {:?}",
        unused.filter(|right| !used.contains_key(*right)).collect::<Vec<_>>()
    );
    assert!(used.len() > 20, "the log has too little to judge: {used:?}");
    assert_eq!(beyond, BTreeSet::new(), "rights that are not documented");
}
