//! Clusters of one name in two projects of a real OpenStack, and objects of another project with a cluster's tag.

mod on_openstack {
    use std::path::Path;

    use crate::support::cluster::id_of;
    use crate::support::openstack_lab::{DOMAIN, Lab, Seen, judge, succeeded, text};

    /// Creates everything on the fake compute node, whose guests never answer.
    #[track_caller]
    fn deploy_in_vain(lab: &Lab, cluster: &str) {
        let output = lab.start_deploy(cluster).wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(6),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// The kinds of the existing objects.
    fn kinds(seen: &Seen) -> Vec<&'static str> {
        let all = [
            "servers",
            "server_groups",
            "ports",
            "floating_ips",
            "security_groups",
            "images",
        ];
        all.into_iter().filter(|kind| !seen.kind(kind).is_empty()).collect()
    }

    #[test]
    #[ignore = "needs the OpenStack lab"]
    fn objects_of_other_projects_are_neither_used_nor_deleted_whoever_asks() {
        let [mut lab, mut other] = ["osp"; 2].map(Lab::new);
        lab.cloud = "admin";
        (other.cloud, other.network) = ("other", other.mark.clone());
        let lines = "masters=1\nworkers=0\nos_zone=fake\nos_external_network=public\nbootstrap_timeout=1s\n";
        let [cluster, _] = [&lab, &other].map(|lab| lab.cluster("", lines));
        judge(&["other", "network-put", &other.network, "10.40.0.0/24", "public"]);
        let id = format!("{cluster}.{DOMAIN}");
        let seen = |project: &str| Seen::of(project, &id);
        let shown = |project: &str| seen(project).names();

        deploy_in_vain(&other, &cluster);
        deploy_in_vain(&lab, &cluster);
        let (ours, theirs) = (seen("demo"), seen("other"));
        assert_eq!(
            (kinds(&ours).len(), kinds(&theirs).len()),
            (6, 6),
            "{:?}",
            theirs.names()
        );
        // An administrator's token, to whom Neutron and Glance list everything.
        lab.destroy(&cluster);
        assert_eq!((shown("demo"), shown("other")), (Vec::new(), theirs.names()));
        // A member's.
        deploy_in_vain(&lab, &cluster);
        let ours = shown("demo");
        other.destroy(&cluster);
        assert_eq!((shown("demo"), shown("other")), (ours, Vec::new()));
        lab.destroy(&cluster);
        judge(&["other", "network-drop", &other.network]);

        // A group that is shared with our project, and a public image with the same bytes as ours.
        lab.cloud = "demo";
        let cluster = lab.cluster("-p", lines);
        deploy_in_vain(&lab, &cluster);
        succeeded(lab.start(&["destroy", &cluster, "--keep-addresses", "--yes"]));
        // As someone who knows the tag could create them.
        let id = id_of(&lab.home(), &cluster).tag().to_owned();
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/images/coreos.qcow2");
        let planted = judge(&["other", "plant", "demo", &id, &image.display().to_string()]);
        let planted: Vec<String> = serde_json::from_str(&planted).unwrap();
        let foreign = || Seen::of("other", "").with_ids(&planted);
        let before = foreign();
        assert_eq!(before.len(), 2, "{before:#?}");
        deploy_in_vain(&lab, &cluster);
        let ours = Seen::of("demo", &id);
        let [group] = ours.kind("security_groups") else {
            panic!("{:?}", ours.names())
        };
        for server in ours.kind("servers") {
            assert!(
                !planted.contains(&text(&server["image"], "id").to_owned()),
                "{server:#}"
            );
            let is_its = |port: &&serde_json::Value| port["device_id"] == server["id"];
            let port = ours.kind("ports").iter().find(is_its).unwrap();
            assert_eq!(port["security_group_ids"], serde_json::json!([group["id"]]), "{port:#}");
        }
        lab.destroy(&cluster);
        assert_eq!(Seen::of("demo", &id).names(), [""; 0]);
        assert_eq!(foreign(), before);
        let drop = ["admin", "foreign-drop"]
            .into_iter()
            .chain(planted.iter().map(String::as_str));
        judge(&drop.collect::<Vec<_>>());
    }
}
