//! Known symptoms: texts in consoles and operators, their cause, and a solution. Pure.

use std::collections::BTreeSet;

/// A symptom that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Place of the text: `console of lab-master-0`, `operator ingress`.
    pub place: String,
    pub cause: &'static str,
    pub hint: &'static str,
}

struct Symptom {
    /// One of these lists matches: all its strings are in one line, ignoring case.
    words: &'static [&'static [&'static str]],
    cause: &'static str,
    hint: &'static str,
}

/// Causes come before their consequences, because only the first symptom of each place is reported.
const SYMPTOMS: &[Symptom] = &[
    Symptom {
        words: &[&["cpu does not support x86-64-v"], &["cpu lacks", "x86-64-v"]],
        cause: "the virtual CPU is too old for this release of CoreOS",
        hint: "use the host's CPU model (host-passthrough), or a newer CPU model",
    },
    Symptom {
        words: &[&["unsupported config version"]],
        cause: "the CoreOS image is older than the Ignition configs of this installer",
        hint: "use the image of the installer's own release: `openshift-install coreos print-stream-json` names it",
    },
    Symptom {
        words: &[
            &["no config provided by user"],
            &["failed to fetch config", "not a config (empty)"],
        ],
        cause: "the machine found no Ignition config from its platform",
        hint: "use the CoreOS image of this platform; fw_cfg requires the qemu image",
    },
    Symptom {
        words: &[
            &["api-int", "no such host"],
            &["api-int", "server misbehaving"],
            &["api-int", "name or service not known"],
        ],
        cause: "the network's DNS does not resolve api-int of the cluster, so the node cannot fetch its config",
        hint: "set mcs=embed (or mcs=http) and deploy again, or add the names to the DNS server that DHCP announces: `ocpdeploy export dns`",
    },
    Symptom {
        words: &[
            &["22623", "no route to host"],
            &["22623", "i/o timeout"],
            &["22623", "deadline exceeded"],
            &["22624", "no route to host"],
        ],
        cause: "the api VIP does not respond: keepalived on the bootstrap does not hold it",
        hint: "on the bootstrap, check `journalctl -u kubelet -u keepalived` and `ip address`; check that VRRP (IP protocol 112) is not filtered",
    },
    Symptom {
        words: &[
            &["certificate has expired or is not yet valid"],
            &["x509: certificate has expired"],
        ],
        cause: "a certificate is not valid at the machine's time: the installer's files are too old, or a clock is wrong",
        hint: "compare the clocks of host and nodes; if the installer's files are older than a day, `ocpdeploy deploy` shows how to recreate them",
    },
    Symptom {
        words: &[
            &["22623", "signed by unknown authority"],
            &["22623", "x509: certificate is valid for"],
        ],
        cause: "the machine config server of another cluster responds at this api VIP",
        hint: "check with `ocpdeploy list` and on the network whether the VIP or its VRRP id is already in use",
    },
    Symptom {
        words: &[&["22623", "connection refused"], &["22624", "connection refused"]],
        cause: "the VIP is active, but the machine config server is not: bootkube on the bootstrap has not started it yet",
        hint: "on the bootstrap, check `journalctl -b -u release-image -u bootkube`",
    },
    Symptom {
        words: &[
            &["unauthorized: authentication required"],
            &["unauthorized: access to the requested resource"],
            &["invalid username/password"],
        ],
        cause: "a registry rejected the pull secret",
        hint: "get a new pull secret; for a mirror, add its credentials to the pull secret",
    },
    Symptom {
        words: &[&["toomanyrequests"], &["rate limit", "pull"]],
        cause: "a registry's rate limit was exceeded",
        hint: "wait, then run the same command again, or use a mirror",
    },
    Symptom {
        words: &[
            &["pinging container registry"],
            &["initializing source docker://", "timeout"],
            &["manifest unknown"],
        ],
        cause: "a node cannot pull an image from its registry",
        hint: "check that the nodes reach the registry; check the proxy and mirror settings in the env file",
    },
    Symptom {
        words: &[&["no space left on device"]],
        cause: "a disk is full",
        hint: "set a larger disk_size (Red Hat requires 120 GiB), or free space on the platform",
    },
    Symptom {
        words: &[&["out of memory: killed process"], &["oom-kill:"]],
        cause: "a machine has too little memory",
        hint: "set master_memory to at least 16 GiB and worker_memory to at least 8 GiB",
    },
    Symptom {
        words: &[
            &["etcdserver: request timed out"],
            &["apply request took too long"],
            &["slow fdatasync"],
            &["leader failed to send out heartbeat on time"],
        ],
        cause: "etcd's disk is too slow",
        hint: "use faster storage for the masters, or put fewer machines on one disk",
    },
    Symptom {
        words: &[&["soft lockup"], &["rcu_sched self-detected stall"]],
        cause: "the host has too little CPU time for its machines",
        hint: "use fewer or smaller machines on this host; emulation without KVM is too slow for a cluster",
    },
    Symptom {
        words: &[
            &["untolerated taint"],
            &["minimumreplicasunavailable"],
            &["nodes are available", "didn't match"],
        ],
        cause: "pods cannot be scheduled: workers have not joined",
        hint: "check the workers' consoles, and that their certificate requests were approved (`oc get csr`)",
    },
    Symptom {
        words: &[&[".apps.", "no such host"], &["routehealth", "no such host"]],
        cause: "the nodes' DNS does not resolve *.apps",
        hint: "with dns=user, add *.apps with the ingress VIP to your DNS: `ocpdeploy export dns`",
    },
    Symptom {
        words: &[
            &[".apps.", "connection refused"],
            &[".apps.", "eof"],
            &[".apps.", "i/o timeout"],
            &["routehealth", "eof"],
        ],
        cause: "no router responds at the ingress VIP",
        hint: "check that the nodes with routers are Ready (workers, or masters if there are none) and that one of them holds the ingress VIP",
    },
    Symptom {
        words: &[&["storage is not configured"], &["storage backend not configured"]],
        cause: "the image registry has no storage",
        hint: "set registry=emptydir, or configure a volume for the registry",
    },
    Symptom {
        words: &[
            &["kernel panic"],
            &["entering emergency mode"],
            &["you are in emergency mode"],
        ],
        cause: "the machine did not boot; see the preceding lines of its console",
        hint: "see the complete console in the bundle",
    },
];

/// The known symptoms in these texts, each cause once. `texts` are places and their text.
pub fn find<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Found> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    for (place, text) in texts {
        let text = text.to_lowercase();
        let lines: Vec<&str> = text.lines().collect();
        let says = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        let symptom = SYMPTOMS
            .iter()
            .find(|symptom| symptom.words.iter().any(|words| says(words)));
        if let Some(Symptom { cause, hint, .. }) = symptom
            && known.insert(*cause)
        {
            let place = place.to_owned();
            found.push(Found { place, cause, hint });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_symptom_is_found_in_a_real_message() {
        for (text, cause) in [
            ("Fatal glibc error: CPU does not support x86-64-v2", "the virtual CPU"),
            (
                "ignition[712]: failed to fetch config: unsupported config version",
                "the CoreOS image is older",
            ),
            (
                "GET https://api-int.lab.example.com:22623/config/master: attempt #5\nGET error: Get \"https://api-int.lab.example.com:22623/config/master\": dial tcp: lookup api-int.lab.example.com on 192.168.122.1:53: no such host",
                "the network's DNS does not resolve api-int",
            ),
            (
                "GET error: dial tcp 192.168.122.2:22623: connect: no route to host",
                "the api VIP does not respond",
            ),
            (
                "GET error: dial tcp 192.168.122.2:22623: connect: connection refused",
                "the VIP is active, but the machine config",
            ),
            (
                "GET error: Get \"https://api-int.lab.example.com:22623/config/master\": x509: certificate signed by unknown authority",
                "the machine config server of another cluster",
            ),
            (
                "x509: certificate has expired or is not yet valid: current time 2026-11-23",
                "a certificate is not valid",
            ),
            (
                "release-image.sh[99]: unauthorized: authentication required",
                "a registry rejected",
            ),
            (
                "podman: Error: toomanyrequests: You have reached your pull rate limit",
                "a registry's rate limit",
            ),
            ("write /var/lib/containers: no space left on device", "a disk is full"),
            (
                "[ 99.1] Out of memory: Killed process 99 (etcd)",
                "a machine has too little memory",
            ),
            (
                "{\"level\":\"warn\",\"msg\":\"apply request took too long\"}",
                "etcd's disk",
            ),
            (
                "watchdog: BUG: soft lockup - CPU#0 stuck for 23s!",
                "the host has too little CPU",
            ),
            (
                "0/3 nodes are available: 3 node(s) had untolerated taint",
                "pods cannot be scheduled",
            ),
            (
                "OAuthServerRouteEndpointAccessibleControllerDegraded: Get \"https://oauth-openshift.apps.lab.example.com/healthz\": dial tcp: lookup oauth-openshift.apps.lab.example.com on 172.30.0.10:53: no such host",
                "the nodes' DNS does not resolve *.apps",
            ),
            (
                "RouteHealthDegraded: failed to GET route (https://console-openshift-console.apps.lab.example.com): EOF",
                "no router responds",
            ),
            (
                "Degraded: The registry is removed: storage is not configured",
                "the image registry",
            ),
            ("[  OK  ] Entering emergency mode.", "the machine did not boot"),
        ] {
            let found = find([("console of lab-master-0", text)]);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].cause.starts_with(cause), "{text}: {}", found[0].cause);
        }
    }

    #[test]
    fn a_message_without_a_fault_is_no_symptom() {
        for text in [
            "",
            "GET https://api-int.lab.example.com:22623/config/worker: attempt #5\nGET result: Internal Server Error",
            "Available: All is well\nrate limit of the API: none",
            "no such host\napi-int.lab.example.com is known",
        ] {
            assert_eq!(find([("console of lab-worker-0", text)]), [], "{text}");
        }
    }

    #[test]
    fn each_cause_is_reported_once_and_only_the_first_for_each_place() {
        let full = "no space left on device\nyou are in emergency mode";
        let found = find([
            ("console of a", full),
            ("console of b", full),
            ("operator x", "kernel panic"),
        ]);
        let places: Vec<_> = found.iter().map(|found| found.place.as_str()).collect();
        assert_eq!(places, ["console of a", "operator x"]);
    }
}
