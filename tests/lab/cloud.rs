//! Pass one on real cloud images (images/cloud): cloud-init with each of its renderers, their DHCP clients, and
//! qemu-guest-agent; the disks of the other platforms, read by the same cloud-init.
//!
//! `tests/lab/cloud.sh` runs these in the lab's network namespace.

#![cfg(feature = "libvirt")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ocpdeploy::backend::{Backend, ImageRequest, Nic, Payload};
use ocpdeploy::cluster::{Architecture, Mac, MachineName, Pass};
use ocpdeploy::digest;
use ocpdeploy::node::cloud_init::throwaway_payload;
use ocpdeploy::plan::egress;
use ocpdeploy::plan::harvest::console_address;
use tempfile::TempDir;

use super::hosts::{Finally, change_env, run};
use super::libvirt::{cluster, connect, destroy, spec, virsh};
use super::two_passes::Lab;
use crate::support::sshd::make_key;
use crate::support::until::until;

/// A boot and what follows it, of several emulated guests at once on a busy computer.
const LONG: Duration = Duration::from_secs(1200);

/// The delay of a slow DHCP server: longer than the time for which NetworkManager (45 s) and dhclient (60 s) wait.
const SLOW: Duration = Duration::from_secs(90);

#[tokio::test]
#[ignore = "needs the lab"]
async fn network_manager_gets_the_address_of_pass_two() {
    boots("network-manager", 1, SLOW).await;
}

#[tokio::test]
#[ignore = "needs the lab"]
async fn dhclient_gets_the_address_of_pass_two() {
    // Its first lease, with another client id, is released.
    boots("eni", 2, Duration::ZERO).await;
}

#[tokio::test]
#[ignore = "needs the lab"]
async fn networkd_gets_the_address_of_pass_two() {
    boots("netplan", 3, SLOW).await;
}

/// A machine of pass one on a network whose DHCP server begins to answer this long after the first request.
async fn boots(renderer: &str, number: u8, delay: Duration) {
    let backend = connect().await.expect("OCPDEPLOY_LAB_URI");
    let mut network = Network::new(number);
    let cluster = cluster(&format!("cloud{number}"));
    let path = image(renderer);
    let bytes = std::fs::read(&path).unwrap();
    let request = ImageRequest::File {
        sha256: digest::sha256(&bytes),
        bytes: bytes.len() as u64,
        arch: Architecture::X86_64,
        path,
    };
    let mut spec = spec(&cluster, 0, &backend.ensure_image(&cluster, &request).await.unwrap());
    spec.name = MachineName::of_harvest(cluster.domain().name(), spec.role, 0);
    spec.pass = Pass::One;
    spec.memory_mib = 768;
    spec.disk_gib = 4;
    let mac = spec.nics[0].mac;
    spec.nics = vec![Nic {
        network: network.name.clone(),
        mac,
    }];
    let (open, closed) = (network.endpoint(80), network.endpoint(81));
    let egress = [open.clone(), closed.clone()];
    spec.payload = throwaway_payload(spec.name.as_str(), mac, &network.keys(), &egress).unwrap();

    let figures = Figures::new(renderer);
    backend.create_machine(&spec).await.unwrap();
    network.serve_dhcp_late(delay);
    until(LONG, "the DHCP server answers", || network.is_serving());
    figures.reached("DHCP server");
    let lease = network.lease(mac);
    figures.reached("lease");
    assert_eq!(lease.host_name, spec.name.as_str());

    let console = async |what: &str, is: &dyn Fn(&str) -> bool| {
        let begun = Instant::now();
        loop {
            let tail = backend
                .console_tail(&cluster, &spec.name)
                .await
                .unwrap()
                .unwrap_or_default();
            if is(&tail) {
                return;
            }
            assert!(begun.elapsed() < LONG, "{what}: {tail}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let has_address = |tail: &str| console_address(tail, mac) == Some(lease.ip);
    console("the address", &has_address).await;
    figures.reached("console");
    let expected = BTreeMap::from([(open, true), (closed, false)]);
    console("both results of the egress check", &|tail| {
        egress::results(tail) == expected
    })
    .await;

    let ssh = |command: &str| network.ssh(lease.ip, command);
    until(LONG, "login", || ssh("true").is_some());
    figures.reached("login");
    let agent = || {
        let found = virsh_try(&["domifaddr", spec.name.as_str(), "--source", "agent"]);
        found.is_some_and(|found| found.contains(&lease.ip.to_string()))
    };
    until(LONG, "the agent, from the package mirror, answers", agent);
    figures.reached("agent");
    judge(renderer, &ssh);
    figures.reached("end of cloud-init");
    assert_eq!(
        ssh("cat /sys/class/net/eth0/mtu").as_deref(),
        Some("1400\n"),
        "from DHCP"
    );
    println!(
        "{}",
        ssh("cloud-init analyze blame | head -12; systemd-analyze").unwrap_or_default()
    );

    let boot = ssh("cat /proc/sys/kernel/random/boot_id").unwrap();
    let _ = ssh("sudo systemctl reboot");
    let has_booted = || ssh("cat /proc/sys/kernel/random/boot_id").is_some_and(|now| now != boot);
    until(LONG, "the guest has rebooted", has_booted);
    assert_eq!(network.lease(mac), lease, "after a reboot");
    // What follows this line is of this boot.
    ssh("echo lab-rebooted | sudo tee /dev/ttyS0").unwrap();
    let follows = |tail: &str| {
        tail.rsplit_once("lab-rebooted")
            .is_some_and(|(_, after)| has_address(after))
    };
    console("the address, after a reboot", &follows).await;
    until(LONG, "the agent, from the image, answers", agent);
    let machines = backend.list_machines(&cluster).await.unwrap();
    assert_eq!(machines[0].nics[0].addresses, [lease.ip]);
    network.assert_no_other_lease(mac);
    destroy(&backend, &cluster).await;
}

/// cloud-init's own verdict on what it was given.
fn judge(of: &str, ssh: &dyn Fn(&str) -> Option<String>) {
    let ended = || ssh("cloud-init status --wait").is_some_and(|status| status.contains("status: done"));
    until(LONG, "cloud-init has ended", ended);
    let schema = ssh("sudo cloud-init schema --system 2>&1")
        .unwrap_or_else(|| panic!("{of}: {:?}", ssh("sudo cloud-init schema --system 2>&1; true")));
    assert!(schema.contains("Valid cloud-config"), "{of}: {schema}");
    // oVirt's engine redirects the output, which cloud-init logs as a warning.
    let grep = "sudo grep -hE 'WARN|ERROR|Traceback' /var/log/cloud-init.log | grep -v 'Stdout, stderr changing'; true";
    let warnings = ssh(grep).unwrap();
    assert_eq!(warnings, "", "{of}");
}

/// The program's own pass one, with the default network, whose DHCP server is libvirt's.
#[test]
#[ignore = "needs the lab"]
fn harvest_resumes_with_machines_that_reach_the_registry() {
    let lab = Lab::new();
    let network = Network::new(4);
    let cluster = lab.cluster("cloud", 1, 0);
    // A rehearsal takes its images from this directory.
    let folder = network.folder.path().join("images");
    std::fs::create_dir(&folder).unwrap();
    symlink(image("network-manager"), folder.join("helper.qcow2")).unwrap();
    symlink(images().join("coreos.qcow2"), folder.join("coreos.qcow2")).unwrap();
    let key = network.folder.path().join("key.pub");
    let mirror = "192.168.122.1:5000";
    change_env(&lab, &cluster, |text| {
        let text = text.replace(images().to_str().unwrap(), folder.to_str().unwrap());
        format!(
            "{text}harvest_memory=768\npub_key={}\nregistry_mirrors={mirror}/ocp=192.168.122.1:5001/ocp\n",
            key.display()
        )
    });
    let env = lab.env(&cluster);
    let harvest = || {
        let output = lab
            .start(&["harvest", env.to_str().unwrap(), "--rehearse"])
            .wait_with_output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let begun = Instant::now();
    let (code, said) = harvest();
    println!("harvest ended after {:.0} s\n{said}", begun.elapsed().as_secs_f64());
    assert_eq!(code, Some(5), "{said}");
    assert!(
        said.contains("cannot reach 192.168.122.1:5001, 192.168.122.1:5000"),
        "{said}"
    );
    let kept = lab.domains(&cluster);
    assert_eq!(kept.len(), 2);
    for domain in kept {
        let found = lab.virsh(&["domifaddr", &domain]);
        let (ip, _) = found.split_whitespace().next_back().unwrap().split_once('/').unwrap();
        let ip = ip.parse().unwrap();
        until(LONG, "login", || {
            network.ssh(ip, "hostname") == Some(format!("{domain}\n"))
        });
    }
    let _registry = Http::serve(&folder, "192.168.122.1", 5000);
    let (code, said) = harvest();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("can reach the image registries"), "{said}");
    assert_eq!(lab.parameters(&cluster).unwrap().nodes.len(), 2);
    assert_eq!(lab.domains(&cluster), [""; 0]);
    lab.destroy(&cluster);
}

/// What the engine writes before a machine's `custom_script` (oVirt/ovirt-engine: `CloudInitHandler`).
const OVIRT_USER_DATA: &str = "#cloud-config
output:
  all: '>> /var/log/cloud-init-output.log'
runcmd:
- 'sed -i ''/^datasource_list: /d'' /etc/cloud/cloud.cfg; echo ''datasource_list: [\"NoCloud\", \"ConfigDrive\"]''
  >> /etc/cloud/cloud.cfg'
disable_root: false
ssh_pwauth: true
chpasswd:
  expire: false
";

const OVIRT_META_DATA: &str = r#"{"launch_index": "0", "availability_zone": "nova", "uuid": "6a0a4a41-52d8-4b6b-a0a1-3a0ed4a9a3c0",
"meta": {"essential": "false", "role": "server", "dsmode": "local"}}"#;

/// One guest reads each disk: oVirt's without a network config, Nova's with its own, KubeVirt's with that of the program.
#[test]
#[ignore = "needs the lab"]
fn the_disks_of_other_platforms_are_read() {
    let mut network = Network::new(5);
    network.serve_dhcp_late(Duration::ZERO);
    let carriers: [(&str, &str, Carrier); 3] = [
        ("ovirt", "eni", Carrier::OVirt),
        ("nova", "network-manager", Carrier::Nova),
        ("kubevirt", "netplan", Carrier::KubeVirt),
    ];
    let guests: Vec<_> = carriers
        .iter()
        .enumerate()
        .map(|(index, (name, renderer, carrier))| {
            let mac = Mac([0x52, 0x54, 0, 0xca, 0, index as u8]);
            let disk = carrier.disk(&network, name, mac);
            (name, renderer, mac, Guest::start(&network, name, renderer, mac, &disk))
        })
        .collect();
    for (name, renderer, mac, guest) in &guests {
        let lease = network.lease(*mac);
        let console = || std::fs::read_to_string(&guest.console).unwrap_or_default();
        until(LONG, "the console shows the address", || {
            console_address(&console(), *mac) == Some(lease.ip)
        });
        let ssh = |command: &str| network.ssh(lease.ip, command);
        until(LONG, "login", || ssh("true").is_some());
        judge(renderer, &ssh);
        assert_eq!(ssh("hostname"), Some(format!("lab-{name}\n")));
        let is_active = || ssh("systemctl is-active qemu-guest-agent").is_some();
        until(LONG, "the agent, from the package mirror, runs", is_active);
        network.assert_no_other_lease(*mac);
    }
}

#[derive(Clone, Copy)]
enum Carrier {
    OVirt,
    Nova,
    KubeVirt,
}

impl Carrier {
    /// The disk as the platform writes it.
    fn disk(self, network: &Network, name: &str, mac: Mac) -> PathBuf {
        let Payload::CloudInit {
            user_data,
            network_config,
            ..
        } = throwaway_payload(&format!("lab-{name}"), mac, &network.keys(), &[network.endpoint(80)]).unwrap()
        else {
            unreachable!("a cloud-init payload")
        };
        let folder = network.folder.path().join(name);
        let write = |path: &str, content: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        let label = match self {
            // oVirt/ovirt-engine: VmInfoBuildUtils.createCloudInitPayloadDevice; oVirt/vdsm: lib/vdsm/mkimage.py
            Self::OVirt => {
                let script = user_data.strip_prefix("#cloud-config\n").unwrap();
                write("openstack/latest/user_data", &format!("{OVIRT_USER_DATA}{script}"));
                write("openstack/latest/meta_data.json", OVIRT_META_DATA);
                "config-2"
            }
            // openstack/nova: nova/virt/configdrive.py, nova/api/metadata/base.py, nova/virt/netutils.py
            Self::Nova => {
                write("openstack/latest/user_data", &user_data);
                let meta = format!(
                    r#"{{"uuid": "83679162-1378-4288-a2d4-70e13ec132aa", "name": "lab-{name}", "hostname": "lab-{name}", "launch_index": 0,
                    "availability_zone": "nova", "random_seed": "c2VlZA==", "project_id": "p", "devices": [], "dedicated_cpus": []}}"#
                );
                write("openstack/latest/meta_data.json", &meta);
                let data = format!(
                    r#"{{"links": [{{"id": "tap3a9b", "vif_id": "3a9b", "type": "bridge", "mtu": 1450, "ethernet_mac_address": "{mac}"}}],
                    "networks": [{{"id": "network0", "type": "ipv4_dhcp", "link": "tap3a9b", "network_id": "9c1c"}}], "services": []}}"#
                );
                write("openstack/latest/network_data.json", &data);
                write("openstack/latest/vendor_data.json", "{}");
                "config-2"
            }
            // kubevirt/kubevirt: pkg/cloud-init/cloud-init.go
            Self::KubeVirt => {
                write("user-data", &user_data);
                write("network-config", &network_config);
                write(
                    "meta-data",
                    &format!(r#"{{"instance-id":"lab-{name}.clusters","local-hostname":"lab-{name}"}}"#),
                );
                "cidata"
            }
        };
        let disk = network.folder.path().join(format!("{name}.iso"));
        let made = Command::new("genisoimage")
            .args(["-quiet", "-R", "-J", "-V", label, "-o"])
            .args([&disk, &folder])
            .status();
        assert!(made.unwrap().success());
        disk
    }
}

/// A domain that only this test knows, with a disk of another platform.
struct Guest {
    console: PathBuf,
    _domain: Finally,
}

impl Guest {
    fn start(network: &Network, name: &str, renderer: &str, mac: Mac, seed: &Path) -> Self {
        let domain = format!("carrier-{name}-{}", std::process::id());
        let folder = network.folder.path();
        let (root, console) = (
            folder.join(format!("{name}.qcow2")),
            folder.join(format!("{name}.console")),
        );
        let made = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"])
            .args([&image(renderer), &root])
            .arg("4G")
            .status();
        assert!(made.unwrap().success());
        let xml = format!(
            "<domain type='qemu'><name>{domain}</name><memory unit='MiB'>768</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features><devices>\
             <disk type='file'><driver name='qemu' type='qcow2' cache='unsafe'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>\
             <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/><target dev='vdb' bus='virtio'/><readonly/></disk>\
             <interface type='network'><source network='{}'/><mac address='{mac}'/><model type='virtio'/><rom enabled='no'/></interface>\
             <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>\
             <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>\
             <serial type='file'><source path='{}'/></serial></devices></domain>",
            root.display(),
            seed.display(),
            network.name,
            console.display()
        );
        let file = folder.join(format!("{name}.xml"));
        std::fs::write(&file, xml).unwrap();
        virsh(&["create", file.to_str().unwrap()]);
        let uri = std::env::var("OCPDEPLOY_LAB_URI").unwrap();
        Self {
            console,
            _domain: Finally("virsh", format!("-q -c {uri} destroy {domain}")),
        }
    }
}

/// A network without a DHCP server of libvirt, with a package mirror.
struct Network {
    name: String,
    subnet: String,
    folder: TempDir,
    dhcp: Option<Child>,
    _packages: Http,
    _network: Finally,
}

#[derive(Clone, Debug, PartialEq)]
struct Lease {
    ip: IpAddr,
    host_name: String,
    client_id: String,
}

impl Network {
    fn new(number: u8) -> Self {
        let (name, subnet) = (format!("ocpd-cloud{number}"), format!("192.168.15{number}"));
        let folder = tempfile::Builder::new().prefix("cloud").tempdir().unwrap();
        // QEMU's user must reach it.
        run("chmod", &format!("755 {}", folder.path().display()));
        let xml = folder.path().join("network.xml");
        let text = format!(
            "<network><name>{name}</name><bridge name='{name}'/><dns enable='no'/><ip address='{subnet}.1' netmask='255.255.255.0'/></network>"
        );
        std::fs::write(&xml, text).unwrap();
        virsh(&["net-create", xml.to_str().unwrap()]);
        let uri = std::env::var("OCPDEPLOY_LAB_URI").unwrap();
        let remove = Finally("virsh", format!("-q -c {uri} net-destroy {name}"));
        make_key(&folder.path().join("key"));
        let packages = Http::serve(&images().join("cloud-packages"), &format!("{subnet}.1"), 80);
        Self {
            name,
            subnet,
            folder,
            dhcp: None,
            _packages: packages,
            _network: remove,
        }
    }

    /// `HOST:PORT` of the computer on the network.
    fn endpoint(&self, port: u16) -> String {
        format!("{}.1:{port}", self.subnet)
    }

    fn keys(&self) -> Vec<String> {
        vec![
            std::fs::read_to_string(self.folder.path().join("key.pub"))
                .unwrap()
                .trim()
                .to_owned(),
        ]
    }

    /// Starts a DHCP and DNS server this long after the first request.
    fn serve_dhcp_late(&mut self, delay: Duration) {
        // A frame's UDP destination port 67, first option "message type 1".
        const WAIT: &str = "import os, socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
while sys.argv[2] != '0':
    p = s.recv(2048)
    if p[23:24] == bytes([17]) and p[36:38] == bytes([0, 67]) and p[282:285] == bytes([53, 1, 1]):
        time.sleep(int(sys.argv[2]))
        break
os.execvp(sys.argv[3], sys.argv[3:])
";
        let (name, subnet) = (&self.name, &self.subnet);
        let options = format!(
            "dnsmasq --user=root --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --no-ping --bind-interfaces --interface={name} \
             --except-interface=lo --dhcp-range={subnet}.50,{subnet}.99,1h --dhcp-option=option:mtu,1400 --dhcp-leasefile={} --pid-file \
             --address=/packages.lab.test/{subnet}.1",
            self.leases().display()
        );
        let server = server("python3")
            .args(["-c", WAIT, name, &delay.as_secs().to_string()])
            .args(options.split_whitespace())
            .spawn();
        self.dhcp = Some(server.unwrap());
    }

    fn leases(&self) -> PathBuf {
        self.folder.path().join("leases")
    }

    fn is_serving(&self) -> bool {
        self.leases().exists()
    }

    /// The lease whose client id is the MAC, as CoreOS sends it in pass two.
    fn lease(&self, mac: Mac) -> Lease {
        let mut found = None;
        until(LONG, "a lease with the MAC as client id", || {
            let mut leases = self.all_leases(mac).into_iter();
            found = leases.find(|lease| lease.client_id == format!("01:{mac}"));
            found.is_some()
        });
        found.unwrap()
    }

    /// dnsmasq's lease file: expiry, MAC, address, host name, client id.
    fn all_leases(&self, mac: Mac) -> Vec<Lease> {
        let text = std::fs::read_to_string(self.leases()).unwrap_or_default();
        let of_line = |line: &str| {
            let fields: [&str; 5] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let [_, of, ip, host_name, client_id] = fields;
            (of == mac.to_string()).then(|| Lease {
                ip: ip.parse().unwrap(),
                host_name: String::from(host_name),
                client_id: String::from(client_id),
            })
        };
        text.lines().filter_map(of_line).collect()
    }

    fn assert_no_other_lease(&self, mac: Mac) {
        assert_eq!(self.all_leases(mac).len(), 1, "{:?}", self.all_leases(mac));
    }

    /// The output of a command in a guest; `None` if it fails.
    fn ssh(&self, ip: IpAddr, command: &str) -> Option<String> {
        let options = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=10 -i";
        let output = Command::new("ssh")
            .args(options.split_whitespace())
            .arg(self.folder.path().join("key"))
            .arg(format!("debian@{ip}"))
            .arg(command)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(dhcp) = &mut self.dhcp {
            let _ = dhcp.kill();
            let _ = dhcp.wait();
        }
    }
}

/// A program that ends with this test, even if that is killed.
fn server(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// A web server for a directory.
struct Http(Child);

impl Http {
    fn serve(folder: &Path, ip: &str, port: u16) -> Self {
        let server = server("python3")
            .args(["-m", "http.server", "--bind", ip, &port.to_string(), "--directory"])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(server.unwrap())
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints when each point is reached, for docs/explanation/passes.md.
struct Figures(String, Instant);

impl Figures {
    fn new(of: &str) -> Self {
        Self(of.to_owned(), Instant::now())
    }

    fn reached(&self, point: &str) {
        println!("{}: {point} after {:.0} s", self.0, self.1.elapsed().as_secs_f64());
    }
}

fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/images")
}

fn image(renderer: &str) -> PathBuf {
    images().join(format!("cloud-{renderer}.qcow2"))
}

fn virsh_try(arguments: &[&str]) -> Option<String> {
    let output = super::libvirt::try_virsh(arguments);
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
