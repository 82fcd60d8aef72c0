//! One list of promises, kept by every backend: the pretend platform, a pretend oVirt engine, libvirt's test driver, and a real
//! libvirt named by `OCPDEPLOY_CONTRACT_LIBVIRT_URI` (with `_POOL`, `_NETWORK` and, to see guests boot, `_IMAGE`), and a
//! real OpenStack named by `OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD`, a cloud of clouds.yaml (with `_IMAGE`, `_NETWORK`, `_ZONE`
//! and, where it has block storage, `_VOLUMES`).

/// The promises, and what each asks of the platform; every one is a test on every ground.
macro_rules! on_ground {
    ($module:ident, $open:expr) => {
        mod $module {
            use crate::support::contract::{self, Ability::*};

            on_ground! { @each $open,
                a_created_machine_is_listed_as_asked [Machines],
                creating_twice_makes_one [Machines],
                another_spec_under_a_name_is_a_conflict [Machines],
                a_strangers_machine_is_left_alone [Answer],
                a_strangers_name_is_not_taken [Machines],
                another_clusters_machine_is_left_alone [Machines],
                machines_of_another_deployment_of_this_name_are_left_alone [Machines],
                holds_of_another_deployment_of_this_name_are_left_alone [Holds],
                deleting_what_is_absent_is_success [Answer],
                deleting_removes_all_that_was_made [Machines],
                a_deleted_machine_can_be_made_again [Machines],
                clusters_with_similar_names_never_meet [Machines],
                holds_of_similar_clusters_never_meet [Holds],
                holding_twice_is_holding_once [Holds],
                a_held_address_is_seen_as_taken [Holds],
                what_another_cluster_holds_is_a_conflict [Holds],
                releasing_is_exact_and_may_be_repeated [Holds],
                a_released_address_can_be_held_by_another [Holds],
                one_address_is_released_alone [Holds],
                releasing_what_another_holds_changes_nothing [Holds],
                a_machine_is_stopped_and_started_again [Machines],
                stopping_and_starting_is_for_machines_of_this_cluster [Machines],
                all_that_is_owned_is_listed [Machines, Holds],
                every_cluster_that_has_something_is_found [Machines],
                a_cluster_that_only_holds_an_address_is_found [Holds],
                machines_can_be_made_side_by_side [Machines],
                one_machine_asked_for_twice_at_once_is_made_once [Machines],
                preflight_finds_what_is_in_the_way [Answer],
                preflight_accepts_what_this_cluster_made [Machines],
                a_config_over_the_limit_is_too_large [Machines, Configs],
                what_does_not_exist_is_named [Answer],
                a_machine_on_no_network_leaves_nothing [Machines],
                an_image_is_brought_once_and_shared [Images, Machines],
                the_console_of_anothers_machine_is_not_read [Machines],
                a_machine_gets_the_address_held_for_it [Machines, Holds, Leases],
                foreign_objects_in_a_listing_are_never_changed [Machines, Foreign],
                snapshots_are_saved_listed_and_deleted [Machines],
                a_machine_is_reverted_to_what_it_was [Machines],
                snapshots_are_of_machines_of_this_cluster_that_are_off [Machines],
            }
        }
    };
    (@each $open:expr, $($promise:ident $needs:expr,)+) => {
        $(
            #[test]
            fn $promise() {
                contract::keep(stringify!($promise), &$needs, $open, contract::$promise);
            }
        )+
    };
}

on_ground!(sim, Some(crate::support::ground_sim::SimGround::fresh()));
#[cfg(feature = "ovirt")]
on_ground!(ovirt, Some(crate::support::ground_ovirt::OvirtGround::fresh()));
#[cfg(feature = "libvirt")]
on_ground!(
    libvirt_test_driver,
    Some(crate::support::ground_libvirt::LibvirtGround::test_driver())
);
#[cfg(feature = "libvirt")]
on_ground!(libvirt_named, crate::support::ground_libvirt::LibvirtGround::named());
#[cfg(feature = "kubevirt")]
on_ground!(kubevirt, Some(crate::support::ground_kubevirt::KubevirtGround::fresh()));
#[cfg(feature = "kubevirt")]
on_ground!(
    kubevirt_on_pods,
    Some(crate::support::ground_kubevirt::KubevirtGround::on_pods())
);
#[cfg(feature = "kubevirt")]
on_ground!(kubevirt_named, crate::support::ground_kubevirt::NamedGround::named());
#[cfg(feature = "openstack")]
on_ground!(
    openstack_named,
    crate::support::ground_openstack::OpenStackGround::named()
);

/// The thin cloud knows enough for this promise. A process of its own keeps it: the environment leads to clouds.yaml.
#[cfg(feature = "openstack")]
mod openstack_pretend {
    use crate::support::contract::{self, Ability::*};
    use crate::support::ground_openstack::PretendGround;

    #[test]
    fn foreign_objects_in_a_listing_are_never_changed() {
        let promise = "foreign_objects_in_a_listing_are_never_changed";
        match PretendGround::here() {
            Some(ground) => contract::keep(
                promise,
                &[Machines, Foreign],
                Some(ground),
                contract::foreign_objects_in_a_listing_are_never_changed,
            ),
            None => PretendGround::elsewhere(&format!("contract::openstack_pretend::{promise}")),
        }
    }
}

/// The way to a real server, walked to the pretend one.
#[cfg(feature = "kubevirt")]
#[test]
fn a_kubeconfig_that_is_named_aims_the_contract_at_its_server() {
    use crate::support::fake_kubevirt::{FakeKubevirt, World};
    if std::env::var_os("OCPDEPLOY_TEST_KUBECONFIG").is_some() {
        return;
    }
    let server = FakeKubevirt::start(World::with_tenants(&["tenant"]));
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    server.kubeconfig(&kubeconfig, "tenant-token", "tenant");
    server.with(|world| {
        let size = serde_json::json!({"resources": {"requests": {"storage": "16Gi"}}});
        let about = serde_json::json!({"namespace": "tenant", "name": "rhcos"});
        let claim = serde_json::json!({"metadata": about, "spec": size});
        world.force("persistentvolumeclaims", claim);
    });
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "contract::kubevirt_named::a_created_machine",
            "contract::kubevirt_named::a_held_address",
        ])
        .env("OCPDEPLOY_TEST_KUBECONFIG", &kubeconfig)
        .env("OCPDEPLOY_TEST_KUBECONFIG_NETWORK", "lan")
        .env("OCPDEPLOY_TEST_KUBECONFIG_IMAGE", "rhcos")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("test result: ok. 2 passed"), "{said}");
    server.was_asked_well();
}
