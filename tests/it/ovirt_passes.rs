//! Whole deployments on a fake oVirt engine: both passes, interruptions, three clusters at once, and messages.
//!
//! Guests have no network here, so a deployment runs in a process of this test binary whose backend skips the guest
//! probe. Everything else, including harvests and `destroy`, is the program itself.

use crate::ovirt_rules;
use crate::support::cluster::{cluster_id, deployment};
use crate::support::{fake_engine, ovirt_sdk, qcow2};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::fake_engine::{Agent, FakeEngine, Fault, GIB, Guest, What, World};
use crate::support::faulty::no_guest_probe;
use crate::support::sandbox::{Outcome, outcome};
use ocpdeploy::backend::ovirt::Ovirt;
use ocpdeploy::cluster::{BackendConfig, BootImages, ImageSource};
use ocpdeploy::failure::explain;
use ocpdeploy::passes::{self, DeployOptions};
use ocpdeploy::settings::{self, Sources};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::parameters::Parameters;

const DOMAIN: &str = "example.com";
/// Names the env file of the deployment that a process of this binary does.
const ENV_FILE: &str = "OVIRT_PASSES_ENV";
/// A comment in the env file of a deployment from the engine's templates.
const OF_TEMPLATES: &str = "# images are templates";
const SMALL: &str = "masters=1\nworkers=1";

/// A fake engine, a folder with images and env files, and a state folder.
struct Sandbox {
    engine: FakeEngine,
    folder: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Self {
        Self::with(|_| ())
    }

    /// An engine whose site is changed first; its images have an agent.
    fn with(change: impl FnOnce(&mut World)) -> Self {
        let engine = FakeEngine::with(|world| {
            // A query takes some seconds of the engine's time, to keep waits short.
            world.tick = 3_000;
            world.uploaded_agent = Agent::Installed;
            change(world);
        });
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        file("helper.qcow2", &qcow2::empty());
        // With other bytes, so that it is another image.
        file("coreos.qcow2", &[qcow2::empty(), vec![0; 512]].concat());
        file("ca.pem", engine.ca_pem.as_bytes());
        file("password", engine.password.as_bytes());
        Self { engine, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn home(&self) -> Home {
        Home::new(self.path().join("home"))
    }

    /// Writes `<cluster>.sh` with these lines, and the usual ones that they do not set.
    fn env(&self, cluster: &str, lines: &str) {
        let (url, user) = (&self.engine.url, &self.engine.user);
        let usual = format!(
            "cluster={cluster}\ndomain={DOMAIN}\nbackend=ovirt\novirt_url={url}\novirt_user={user}\n\
             ovirt_password_file=password\novirt_ca=ca.pem\novirt_storage_domain=data\n\
             machine_network=192.168.99.0/24\nimages_dir=.\n"
        );
        let name = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
        let given: BTreeSet<_> = lines.lines().map(name).collect();
        let usual = usual.lines().filter(|line| !given.contains(&name(line)));
        let text: String = usual.chain(lines.lines()).map(|line| format!("{line}\n")).collect();
        std::fs::write(self.path().join(format!("{cluster}.sh")), text).unwrap();
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.path())
            .env("OCPDEPLOY_HOME", self.home().root())
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The program itself.
    fn run(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_ocpdeploy")));
        outcome(command.args(arguments).spawn().unwrap())
    }

    fn start(&self, cluster: &str) -> Child {
        let mut command = self.command(&std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "ovirt_passes::a_deployment_in_a_process_of_its_own",
                "--ignored",
                "--nocapture",
            ])
            .env(ENV_FILE, self.path().join(format!("{cluster}.sh")))
            .spawn()
            .unwrap()
    }

    fn deploy(&self, cluster: &str) -> Outcome {
        outcome(self.start(cluster))
    }

    /// Kills a deployment (SIGKILL) once the engine has got this many changes.
    fn kill_deployment(&self, cluster: &str, changes: usize) {
        let mut child = self.start(cluster);
        let begin = Instant::now();
        while self.changes() < changes {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("it ended ({status}) before its change {changes}: {:?}", outcome(child));
            }
            assert!(
                begin.elapsed() < Duration::from_secs(240),
                "change {changes} did not come"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        assert_eq!(outcome(child).code, None, "it was not killed");
    }

    #[track_caller]
    fn wait_for_changes(&self, changes: usize) {
        let begin = Instant::now();
        while self.changes() < changes {
            assert!(
                begin.elapsed() < Duration::from_secs(240),
                "change {changes} did not come"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The number of requests so far that change something.
    fn changes(&self) -> usize {
        self.engine.look(|world| {
            let changes = world.requests.iter().filter(|request| request.method != "GET");
            changes.filter(|request| !request.path.contains("/sso/")).count()
        })
    }

    fn parameters(&self, cluster: &str) -> Parameters {
        Parameters::read(&self.home().cluster(cluster).parameters())
            .unwrap()
            .expect("a parameter file")
    }

    /// Names of machines, all or those of a cluster.
    fn machines(&self, cluster: Option<&str>) -> Vec<String> {
        let prefix = cluster.map(|cluster| format!("{cluster}-")).unwrap_or_default();
        let mut names = self
            .engine
            .look(|world| world.vms.iter().map(|vm| vm.name.clone()).collect::<Vec<_>>());
        names.retain(|name| name.starts_with(&prefix));
        names.sort();
        names
    }
}

/// Not a test: other tests start it as a process and kill it.
#[test]
#[ignore = "other tests start it as a process"]
fn a_deployment_in_a_process_of_its_own() {
    let Some(env_file) = std::env::var_os(ENV_FILE).map(PathBuf::from) else {
        return;
    };
    let home = Home::new(PathBuf::from(std::env::var_os("OCPDEPLOY_HOME").unwrap()));
    let text = std::fs::read_to_string(&env_file).unwrap();
    let sources = Sources {
        env_file: Some((env_file.clone(), text)),
        environment: std::env::vars().collect(),
        flags: BTreeMap::new(),
        current_dir: env_file.parent().unwrap().to_owned(),
        home: home.root().to_owned(),
        rehearse: true,
        allow_downgrade: false,
        deployment: deployment(),
        read_file: &|path| std::fs::read_to_string(path),
        is_file: &Path::is_file,
        is_dir: &Path::is_dir,
    };
    let mut config = settings::load(&sources).unwrap().config;
    if sources
        .env_file
        .as_ref()
        .is_some_and(|(_, text)| text.contains(OF_TEMPLATES))
    {
        // A rehearsal uploads its images, which an ordinary user cannot.
        config.images = BootImages {
            coreos: ImageSource::Platform("coreos".to_owned()),
            harvest: ImageSource::Platform("helper".to_owned()),
        };
        config.worker_images = config.images.clone();
    }
    let BackendConfig::Ovirt(ovirt) = &config.backend else {
        panic!("{:?}", config.backend)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let done = runtime.block_on(async {
        let backend = Ovirt::connect(ovirt).await?;
        // The fake engine's clock advances with its requests, so pauses between them test nothing.
        let backend = no_guest_probe(backend, Duration::from_millis(20)).for_at_most(Duration::ZERO);
        passes::deploy(&backend, &config, &home, DeployOptions::default()).await
    });
    if let Err(error) = done {
        let failure = explain(&error);
        eprint!("{}", failure.render(false));
        std::process::exit(failure.kind.exit_code().into());
    }
}

/// Every node booted with its MAC and exactly the config that was written for it.
#[track_caller]
fn found_its_config(sandbox: &Sandbox, cluster: &str, os_type: &str) {
    for node in &sandbox.parameters(cluster).nodes {
        let name = format!("{cluster}-{}", node.name);
        let boot = sandbox.engine.last_boot(&name).expect("it was started");
        let written = sandbox.home().cluster(cluster).ignition(node.name.as_str());
        let written = std::fs::read_to_string(written).unwrap();
        assert_eq!(
            boot.given.ignition(),
            Some(written.as_str()),
            "{name} got another config"
        );
        assert_eq!(
            (boot.macs, boot.os_type.as_str()),
            (vec![node.mac.to_string()], os_type)
        );
    }
}

/// A deployed cluster as it must be, whatever happened on the way.
#[track_caller]
fn is_deployed(sandbox: &Sandbox, cluster: &str) {
    let (version, is_administrator) = sandbox.engine.look(|world| (world.version, world.is_administrator));
    found_its_config(
        sandbox,
        cluster,
        if version < [4, 4, 0] { "rhel_7x64" } else { "rhcos_x64" },
    );
    let parameters = sandbox.parameters(cluster);
    let nodes: Vec<_> = parameters
        .nodes
        .iter()
        .filter(|node| node.name.as_str() != "bootstrap")
        .collect();
    let names: BTreeSet<String> = nodes.iter().map(|node| format!("{cluster}-{}", node.name)).collect();
    assert_eq!(
        sandbox.machines(Some(cluster)).into_iter().collect::<BTreeSet<_>>(),
        names
    );
    for node in nodes {
        let name = format!("{cluster}-{}", node.name);
        sandbox.engine.look(|world| {
            let vm = world.vm_named(&name).unwrap();
            assert_eq!(
                vm.tags.len(),
                usize::from(is_administrator),
                "{name} has another number of tags"
            );
            let disk = world.disk(&vm.disks[0].disk).unwrap();
            assert_eq!(disk.status, "ok");
            assert!(disk.description.contains(&name), "{name}: its disk has no mark");
        });
    }
    let leases: BTreeSet<_> = parameters.leases().iter().map(|lease| lease.ip).collect();
    assert_eq!(leases.len(), parameters.nodes.len() + 2, "addresses are used twice");
    sandbox.engine.look(|world| {
        assert_eq!(
            world
                .transfers
                .iter()
                .filter(|transfer| !transfer.phase.starts_with("finished"))
                .count(),
            0
        );
        let wanted = ["master", "worker"].map(|role| {
            let of_role = parameters
                .nodes
                .iter()
                .filter(|node| node.name.as_str().starts_with(role));
            (format!("{role}s"), of_role.count(), false, false)
        });
        let of = |group: &&fake_engine::AffinityGroup| group.name.contains(&format!("-{cluster}."));
        let groups = world.affinity_groups.iter().filter(of).map(|group| {
            let kind = group.name.rsplit('-').next().unwrap();
            (kind.to_owned(), group.vms.len(), group.positive, group.enforcing)
        });
        // An ordinary user may not create groups.
        let wanted: BTreeSet<_> = wanted.into_iter().filter(|_| is_administrator).collect();
        assert_eq!(groups.collect::<BTreeSet<_>>(), wanted);
    });
}

/// All objects of an engine, without ids and times.
fn essence(sandbox: &Sandbox) -> BTreeSet<String> {
    sandbox.engine.look(|world| {
        let mut all = BTreeSet::new();
        for vm in &world.vms {
            let nics: Vec<_> = vm.nics.iter().map(|nic| (&nic.name, &nic.mac)).collect();
            let disks: Vec<_> = vm.disks.iter().filter_map(|disk| world.disk(&disk.disk)).collect();
            let disks: Vec<_> = disks.iter().map(|disk| (&disk.name, disk.provisioned_size)).collect();
            let sandbox = (vm.shape.memory, vm.shape.cores, &vm.shape.os_type, &vm.status);
            all.insert(format!("vm {} {nics:?} {disks:?} {sandbox:?}", vm.name));
        }
        all.extend(
            world
                .disks
                .iter()
                .map(|disk| format!("disk {} {} {}", disk.name, disk.description, disk.status)),
        );
        all.extend(
            world
                .templates
                .iter()
                .map(|template| format!("template {} {}", template.name, template.status)),
        );
        all.extend(
            world
                .tags
                .iter()
                .map(|tag| format!("tag {} {}", tag.name, tag.description)),
        );
        all.extend(
            world
                .affinity_groups
                .iter()
                .map(|group| format!("group {} {}", group.name, group.vms.len())),
        );
        all
    })
}

/// Advances the clock until all background tasks are done.
fn settle(sandbox: &Sandbox) {
    sandbox.engine.advance(Duration::from_secs(600));
}

#[test]
fn a_deployment_succeeds_and_is_destroyed_completely() {
    let sandbox = Sandbox::new();
    let before = essence(&sandbox);
    sandbox.env("lab", "masters=3\nworkers=2\nextra_disks=5");
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    let extra = sandbox
        .engine
        .look(|world| world.vm_named("lab-worker-0").unwrap().disks.len());
    assert_eq!(extra, 2, "no extra disk");
    let boots = sandbox.engine.boots();
    assert!(
        boots
            .iter()
            .all(|boot| !matches!(boot.given, fake_engine::Given::Nothing(_))),
        "{boots:?}"
    );

    sandbox.deploy("lab").succeeded();
    assert_eq!(
        sandbox.engine.boots().len(),
        boots.len(),
        "a second run started something"
    );

    let shown = sandbox.run(&["destroy", "lab", "--dry-run"]).succeeded();
    for name in sandbox.machines(Some("lab")) {
        assert!(shown.stdout.contains(&name), "{name} is not shown:\n{}", shown.stdout);
    }
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    settle(&sandbox);
    assert_eq!(essence(&sandbox), before);
    ovirt_sdk::judge(&sandbox.engine, 100);
}

/// While images are uploaded, pass one creates machines, they are deleted, and pass two creates machines.
#[test]
fn a_deployment_that_is_killed_many_times_has_the_same_result() {
    let untouched = Sandbox::new();
    let before = essence(&untouched);
    untouched.env("lab", SMALL);
    untouched.deploy("lab").succeeded();
    settle(&untouched);
    let sandbox = Sandbox::new();
    sandbox.env("lab", SMALL);
    for changes in [2, 5, 9, 14, 25, 36, 45, 55, 65, 72] {
        sandbox.kill_deployment("lab", changes);
    }
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    settle(&sandbox);
    assert_eq!(essence(&sandbox), essence(&untouched));
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    settle(&sandbox);
    assert_eq!(essence(&sandbox), before);
}

#[test]
fn what_a_killed_deployment_left_is_destroyed() {
    for changes in [3, 8, 20, 40] {
        let sandbox = Sandbox::new();
        let before = essence(&sandbox);
        sandbox.env("lab", SMALL);
        sandbox.kill_deployment("lab", changes);
        sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
        settle(&sandbox);
        assert_eq!(essence(&sandbox), before, "after change {changes}");
    }
}

/// An engine of this version and its user: settings of a deployment that both can do.
fn as_user(version: [u32; 3], is_administrator: bool) -> (Sandbox, String) {
    let sandbox = Sandbox::with(|world| {
        world.of_version(version);
        if !is_administrator {
            ovirt_rules::ordinary_user(world);
            for (template, os_type) in [("helper", "rhel_8x64"), ("coreos", "rhcos_x64")] {
                world.put_template(template, 10 * GIB, os_type, Agent::Installed);
                ovirt_rules::permit_template(world, template);
            }
        }
    });
    let images = if is_administrator { "" } else { OF_TEMPLATES };
    (sandbox, format!("masters=3\nworkers=2\n{images}"))
}

/// Each sixth change is interrupted once, in turn on each engine and user; `OCPDEPLOY_FAULTS=all` takes all.
#[test]
fn each_engine_and_user_survives_a_kill_at_each_change() {
    let is_all = std::env::var("OCPDEPLOY_FAULTS").as_deref() == Ok("all");
    let both = [true, false].into_iter();
    let each = ovirt_rules::VERSIONS
        .into_iter()
        .flat_map(|version| both.clone().map(move |is_administrator| (version, is_administrator)));
    let runs = each.clone().count();
    let kills: usize = std::thread::scope(|scope| {
        let survive = |(index, (version, is_administrator))| {
            let (first, step) = if is_all { (1, 1) } else { (3 + 6 * index, 6 * runs) };
            scope.spawn(move || survive_kills(version, is_administrator, first, step))
        };
        let threads: Vec<_> = each.enumerate().map(survive).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("reliability: {kills} kills in {runs} deployments of 3+2 on engines and users");
}

/// Runs one deployment without a kill, and one for each kill; returns the number of kills.
fn survive_kills(version: [u32; 3], is_administrator: bool, first: usize, step: usize) -> usize {
    let who = format!("{version:?} administrator={is_administrator}");
    let (untouched, lines) = as_user(version, is_administrator);
    let before = essence(&untouched);
    untouched.env("lab", &lines);
    untouched.deploy("lab").succeeded();
    is_deployed(&untouched, "lab");
    settle(&untouched);
    let (changes, after) = (untouched.changes(), essence(&untouched));
    untouched.run(&["destroy", "lab", "--yes"]).succeeded();
    settle(&untouched);
    assert_eq!(essence(&untouched), before, "{who}");
    let tokens = untouched.engine.look(|world| world.tokens.clone());
    assert!(tokens.is_empty(), "{who}: {tokens:?}");
    ovirt_sdk::judge(&untouched.engine, 60);
    let cuts = (first..changes).step_by(step);
    for at in cuts.clone() {
        let (sandbox, lines) = as_user(version, is_administrator);
        sandbox.env("lab", &lines);
        sandbox.kill_deployment("lab", at);
        sandbox.deploy("lab").succeeded();
        is_deployed(&sandbox, "lab");
        settle(&sandbox);
        assert_eq!(essence(&sandbox), after, "{who} killed at {at} of {changes}");
    }
    cuts.count()
}

#[test]
fn lost_responses_and_expired_sessions_do_not_end_a_deployment() {
    let sandbox = Sandbox::new();
    sandbox.env("lab", SMALL);
    sandbox.engine.fault(Fault::on("POST", "/vms").skip(3).times(2));
    sandbox
        .engine
        .fault(Fault::on("POST", "/vms/*/start").skip(1).what(What::Expired));
    sandbox
        .engine
        .fault(Fault::on("GET", "/vms").skip(9).what(What::LostAnswer));
    sandbox
        .engine
        .fault(Fault::on("PUT", "/vms/*/diskattachments/*").because(
            "ACTION_TYPE_FAILED_DISKS_LOCKED",
            "edit Virtual Disk",
            &[("diskAliases", "x")],
        ));
    sandbox.engine.fault(Fault::on("DELETE", "/vms/*").what(What::Expired));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    ovirt_sdk::judge(&sandbox.engine, 60);
}

#[test]
fn cloned_disks_are_in_the_chosen_storage_domain_and_affinity_can_be_off() {
    let sandbox = Sandbox::new();
    let lines = "ovirt_clone=true\novirt_storage_domain=slow\novirt_affinity=off\nextra_disks=3";
    sandbox.env("lab", &format!("{SMALL}\n{lines}"));
    sandbox.deploy("lab").succeeded();
    found_its_config(&sandbox, "lab", "rhcos_x64");
    sandbox.engine.look(|world| {
        assert_eq!(world.affinity_groups.len(), 0);
        let slow = world
            .storage_domains
            .iter()
            .find(|domain| domain.name == "slow")
            .unwrap();
        for vm in &world.vms {
            assert!(vm.is_clone, "{} is a thin clone of its template", vm.name);
            for disk in vm.disks.iter().filter_map(|disk| world.disk(&disk.disk)) {
                assert_eq!(disk.storage_domain, slow.id, "{} of {}", disk.name, vm.name);
            }
        }
    });
    ovirt_sdk::judge(&sandbox.engine, 60);
}

#[test]
fn hard_affinity_is_an_enforcing_group() {
    let sandbox = Sandbox::new();
    sandbox.env("lab", &format!("{SMALL}\novirt_affinity=hard"));
    sandbox.deploy("lab").succeeded();
    let groups = sandbox.engine.look(|world| world.affinity_groups.clone());
    let enforcing = groups.iter().filter(|group| group.enforcing && !group.positive);
    let names: Vec<_> = enforcing.map(|group| group.name.as_str()).collect();
    // There can be more workers than hosts.
    assert!(
        matches!(names.as_slice(), [name] if name.ends_with("-masters")),
        "{groups:?}"
    );
}

const CLUSTERS: [&str; 3] = ["lab", "lab-2", "blab"];

#[test]
fn three_clusters_at_once_share_only_images_and_are_destroyed_alone() {
    let sandbox = Sandbox::with(|world| {
        // Here each new member of a group rewrites all members.
        world.of_version([4, 4, 4]);
        // Decoys: objects that resemble a cluster's.
        let id = cluster_id("lab", DOMAIN).tag().to_owned();
        for (name, comment) in [
            ("lab-master-9", String::new()),
            ("lab-worker-9", format!("ocpdeploy-{id}")),
            ("decoy", format!("ocpdeploy-{id}.org {{}}")),
        ] {
            world.put_vm(name);
            world.vms.last_mut().unwrap().comment = comment;
        }
    });
    let before = essence(&sandbox);
    let children: Vec<_> = CLUSTERS
        .iter()
        .map(|cluster| {
            sandbox.env(cluster, "masters=3\nworkers=1");
            sandbox.start(cluster)
        })
        .collect();
    for child in children {
        outcome(child).succeeded();
    }
    let mut taken = BTreeSet::new();
    for cluster in CLUSTERS {
        let of = |group: &&fake_engine::AffinityGroup| group.name.contains(&format!("-{cluster}."));
        let members = |world: &World| {
            world
                .affinity_groups
                .iter()
                .filter(of)
                .map(|group| group.vms.len())
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(sandbox.engine.look(members), [1, 3].into(), "{cluster}");
        let parameters = sandbox.parameters(cluster);
        let mine = parameters
            .leases()
            .into_iter()
            .flat_map(|lease| [lease.mac.to_string(), lease.ip.to_string()]);
        let ids = [parameters.virtual_router_id, parameters.ingress_virtual_router_id].map(|id| format!("VRID {id}"));
        for thing in mine.chain(ids) {
            assert!(
                taken.insert(thing.clone()),
                "{thing} is used twice, the second time by {cluster}"
            );
        }
    }
    let images = sandbox.engine.look(|world| world.templates.len());
    assert_eq!(images, 3 + 2, "images are not shared");
    settle(&sandbox);
    for (index, cluster) in CLUSTERS.iter().enumerate() {
        let others: Vec<_> = CLUSTERS[index + 1..].iter().collect();
        let of_others = |essence: BTreeSet<String>| {
            let is = |line: &String| others.iter().any(|other| line.contains(&format!(" {other}-")));
            essence.into_iter().filter(is).collect::<Vec<_>>()
        };
        let theirs = of_others(essence(&sandbox));
        sandbox.run(&["destroy", cluster, "--yes"]).succeeded();
        settle(&sandbox);
        assert_eq!(
            of_others(essence(&sandbox)),
            theirs,
            "destroying {cluster} changed something of another"
        );
    }
    assert_eq!(essence(&sandbox), before);
}

/// The message of a run that must fail, exit code first; the parts that differ from run to run are replaced.
fn words(sandbox: &Sandbox, outcome: &Outcome) -> String {
    let text = format!("exit code {}\n{}", outcome.code.unwrap_or(-1), outcome.message());
    let port = sandbox
        .engine
        .url
        .split(':')
        .nth(2)
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    text.replace(&sandbox.path().display().to_string(), "<place>")
        .replace(&port, "<port>")
}

const FILTERS: [(&str, &str); 3] = [
    (r"correlation id ocpdeploy-[0-9a-f]+-\d+", "correlation id <id>"),
    // Other operations are running when one fails.
    (r"existing objects: .*", "existing objects: <objects>"),
    (r"after \d+ s", "after <n> s"),
];

macro_rules! harvest_fails_with_words {
    ($sandbox:expr, $lines:expr) => {{
        $sandbox.env("lab", &format!("{SMALL}\n{}", $lines));
        let outcome = $sandbox.run(&["harvest", "lab.sh", "--rehearse"]);
        insta::with_settings!({filters => FILTERS}, { insta::assert_snapshot!(words(&$sandbox, &outcome)) });
        assert_eq!($sandbox.machines(Some("lab")).len(), 0, "something was created");
    }};
}

#[test]
fn a_check_lists_what_is_to_be_confirmed_on_a_real_engine() {
    let sandbox = Sandbox::new();
    sandbox.env("lab", SMALL);
    let outcome = sandbox.run(&["check", "lab.sh", "--rehearse"]).succeeded();
    let points = outcome.stdout.lines().filter_map(|line| line.strip_prefix("  [ ] "));
    assert_eq!(
        points.collect::<Vec<_>>(),
        ocpdeploy::backend::ovirt::UNVERIFIED,
        "{}",
        outcome.stdout
    );
}

#[test]
fn a_wrong_url() {
    let sandbox = Sandbox::new();
    let url = sandbox.engine.url.replace("/ovirt-engine", "/shop");
    sandbox.engine.edit(|world| world.surprises.clear());
    harvest_fails_with_words!(sandbox, format!("ovirt_url={url}"));
    sandbox.engine.edit(|world| world.surprises.clear());
}

#[test]
fn an_engine_that_is_not_there() {
    let sandbox = Sandbox::new();
    harvest_fails_with_words!(sandbox, "ovirt_url=https://127.0.0.1:1/ovirt-engine");
}

#[test]
fn a_wrong_ca() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("ca.pem"), &FakeEngine::start().ca_pem).unwrap();
    harvest_fails_with_words!(sandbox, "");
}

#[test]
fn a_wrong_password() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("password"), "wrong").unwrap();
    harvest_fails_with_words!(sandbox, "");
}

#[test]
fn an_engine_that_is_too_old() {
    let sandbox = Sandbox::with(|world| world.version = [4, 2, 8]);
    harvest_fails_with_words!(sandbox, "");
}

#[test]
fn a_name_over_64() {
    let sandbox = Sandbox::new();
    let cluster = "a".repeat(54);
    sandbox.env("lab", &format!("{SMALL}\ncluster={cluster}"));
    let outcome = sandbox.run(&["harvest", "lab.sh", "--rehearse"]);
    insta::assert_snapshot!(words(&sandbox, &outcome));
}

#[test]
fn a_template_without_disks() {
    let sandbox = Sandbox::new();
    std::fs::write(
        sandbox.path().join("key.pub"),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n",
    )
    .unwrap();
    std::fs::write(
        sandbox.path().join("pull.json"),
        r#"{"auths":{"registry.example.com":{"auth":"Zm9vOmJhcg=="}}}"#,
    )
    .unwrap();
    sandbox.env(
        "lab",
        &format!("{SMALL}\nharvest_image=Blank\npub_key=key.pub\npull_secret=pull.json"),
    );
    let outcome = sandbox.run(&["harvest", "lab.sh"]);
    insta::assert_snapshot!(words(&sandbox, &outcome));
}

#[test]
fn a_storage_domain_that_is_full() {
    let sandbox = Sandbox::with(|world| {
        for domain in &mut world.storage_domains {
            domain.available = GIB / 2;
        }
    });
    harvest_fails_with_words!(sandbox, "");
}

#[test]
fn a_mac_that_another_machine_has() {
    let sandbox = Sandbox::with(|world| {
        world.put_vm("stranger");
    });
    sandbox.engine.fault(Fault::on("POST", "/vms/*/nics").times(99).because(
        "NETWORK_MAC_ADDRESS_IN_USE",
        "add Interface",
        &[("MacAddress", "52:54:00:12:34:56"), ("VmName", "stranger")],
    ));
    sandbox.env("lab", SMALL);
    let outcome = sandbox.run(&["harvest", "lab.sh", "--rehearse"]);
    sandbox.engine.edit(|world| world.faults.clear());
    let first = words(&sandbox, &outcome);
    insta::with_settings!({filters => [FILTERS[0], FILTERS[1], (r"lab-harvest-\S+", "<machine>")]}, { insta::assert_snapshot!(first) });
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    settle(&sandbox);
    assert_eq!(sandbox.machines(None), ["stranger"]);
}

#[test]
fn an_image_without_an_agent() {
    let sandbox = Sandbox::with(|world| world.uploaded_agent = Agent::Never);
    sandbox.env("lab", &format!("{SMALL}\nharvest_timeout=20s"));
    let outcome = sandbox.run(&["harvest", "lab.sh", "--rehearse"]);
    insta::with_settings!({filters => FILTERS}, { insta::assert_snapshot!(words(&sandbox, &outcome)) });
}

#[test]
fn a_virtual_ip_is_not_taken_for_the_address_of_its_node() {
    let sandbox = Sandbox::new();
    let master = "52:54:00:aa:bb:01";
    let virtual_ip = Some([192, 168, 99, 2].into());
    sandbox.engine.guest(
        master,
        Guest {
            virtual_ip,
            ..Guest::default()
        },
    );
    sandbox.env("lab", &format!("{SMALL}\nmaster_macs={master}\napi_ip=192.168.99.2"));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
}

#[test]
fn a_machine_that_goes_down_is_started_again_with_its_config() {
    let sandbox = Sandbox::new();
    let (master, worker) = ("52:54:00:aa:bb:01", "52:54:00:aa:bb:02");
    sandbox.engine.guest(
        worker,
        Guest {
            dies: Some((2, 9_000)),
            ..Guest::default()
        },
    );
    sandbox.env("lab", &format!("{SMALL}\nmaster_macs={master}\nworker_macs={worker}"));
    let outcome = sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    let boots = sandbox.engine.boots();
    let harvested: Vec<_> = boots
        .iter()
        .filter(|boot| boot.name == "lab-harvest-worker-0")
        .collect();
    assert_eq!(harvested.len(), 3, "{}", outcome.stderr);
    assert!(
        harvested.iter().all(|boot| boot.given == harvested[0].given),
        "{harvested:?}"
    );
}

#[test]
fn a_guest_without_a_lease() {
    let sandbox = Sandbox::new();
    let mac = "52:54:00:aa:bb:cc";
    sandbox.engine.guest(
        mac,
        Guest {
            gets_none: true,
            ..Guest::default()
        },
    );
    sandbox.env("lab", &format!("{SMALL}\nworker_macs={mac}\nharvest_timeout=20s"));
    let outcome = sandbox.run(&["harvest", "lab.sh", "--rehearse"]);
    insta::with_settings!({filters => FILTERS}, { insta::assert_snapshot!(words(&sandbox, &outcome)) });
}

#[test]
fn a_session_that_ends_and_a_password_that_was_changed() {
    let sandbox = Sandbox::new();
    sandbox.env("lab", SMALL);
    let mut command = sandbox.command(Path::new(env!("CARGO_BIN_EXE_ocpdeploy")));
    let child = command.args(["harvest", "lab.sh", "--rehearse"]).spawn().unwrap();
    // During pass one, the engine drops its sessions and accepts only another password from then on.
    sandbox.wait_for_changes(20);
    let password = sandbox.engine.edit(|world| {
        world.tokens.clear();
        std::mem::replace(&mut world.password, "another".to_owned())
    });
    let outcome = outcome(child);
    sandbox.engine.edit(|world| world.password = password);
    insta::with_settings!({filters => [(r" \(correlation id \S+\)", ""), (r"(create|list|delete) machine\S* [^:]+:", "<operation>:"), (r"list the machines of cluster [^:]+:", "<operation>:")]}, { insta::assert_snapshot!(words(&sandbox, &outcome)) });
    // With a new session, the same command continues.
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
}

#[test]
fn a_storage_domain_that_fills_up_half_way() {
    let sandbox = Sandbox::new();
    sandbox.env("lab", SMALL);
    sandbox
        .engine
        .fault(Fault::on("POST", "/vms").skip(3).times(99).because(
            "ACTION_TYPE_FAILED_DISK_SPACE_LOW_ON_STORAGE_DOMAIN",
            "add VM",
            &[("storageName", "data")],
        ));
    let outcome = sandbox.run(&["harvest", "lab.sh", "--rehearse"]);
    sandbox.engine.edit(|world| world.faults.clear());
    insta::with_settings!({filters => [FILTERS[0], FILTERS[1], (r"lab-harvest-\S+", "<machine>")]}, { insta::assert_snapshot!(words(&sandbox, &outcome)) });
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
}

#[test]
fn a_cluster_is_saved_and_an_earlier_snapshot_is_not_restored_over_a_later_one() {
    let sandbox = Sandbox::new();
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").succeeded();
    for name in ["first", "second"] {
        sandbox
            .run(&["snapshot", "save", "lab", name, "--stay-off"])
            .succeeded();
    }
    let listed = sandbox.run(&["snapshot", "list", "lab"]).succeeded().stdout;
    assert_eq!(listed.matches("complete").count(), 2, "{listed}");
    let owned = sandbox.run(&["destroy", "lab", "--dry-run"]).succeeded().stdout;
    assert!(owned.contains("lab-worker-0 second"), "{owned}");
    // Except the end of the session.
    let changes = sandbox.changes() + 1;
    let refused = sandbox.run(&["snapshot", "restore", "lab", "first", "--yes"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let said = "lab-master-0: oVirt would delete its later snapshots: second";
    assert!(refused.message().contains(said), "{}", refused.stderr);
    assert_eq!(sandbox.changes(), changes);
    sandbox
        .run(&["snapshot", "delete", "lab", "second", "--yes"])
        .succeeded();
    let listed = sandbox.run(&["snapshot", "list", "lab"]).succeeded().stdout;
    assert!(listed.contains("first") && !listed.contains("second"), "{listed}");
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(sandbox.machines(Some("lab")), [""; 0]);
}
