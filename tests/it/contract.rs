//! One list of promises that every backend keeps. Each promise is a test on each platform under test: the simulated
//! platform, a fake oVirt engine, libvirt's test driver, a fake KubeVirt with its two networks, and real platforms that
//! the environment names:
//!
//! * libvirt: `OCPDEPLOY_CONTRACT_LIBVIRT_URI`, with `_POOL`, `_NETWORK` and, to boot guests, `_IMAGE`
//! * OpenStack: `OCPDEPLOY_CONTRACT_OPENSTACK_CLOUD`, a cloud of clouds.yaml, with `_IMAGE`, `_NETWORK`, `_ZONE` and, if it
//!   has block storage, `_VOLUMES`
//! * KubeVirt: `OCPDEPLOY_TEST_KUBECONFIG`, see CONTRIBUTING.md

/// The promises, with the abilities of the platform that each requires.
macro_rules! on_ground {
    ($module:ident, $open:expr) => {
        mod $module {
            use crate::support::contract::{self, Ability::*};

            on_ground! { @each $open,
                a_created_machine_is_listed_as_asked [Machines],
                creating_twice_makes_one [Machines],
                another_spec_under_a_name_is_a_conflict [Machines],
                a_machine_of_another_owner_is_left_alone [Answer],
                a_name_of_another_owner_is_not_taken [Machines],
                another_clusters_machine_is_left_alone [Machines],
                machines_of_another_deployment_of_this_name_are_left_alone [Machines],
                reservations_of_another_deployment_of_this_name_are_left_alone [Holds],
                deleting_what_is_absent_is_success [Answer],
                deleting_removes_all_that_was_made [Machines],
                a_deleted_machine_can_be_made_again [Machines],
                clusters_with_similar_names_stay_apart [Machines],
                reservations_of_clusters_with_similar_names_stay_apart [Holds],
                reserving_an_address_twice_reserves_it_once [Holds],
                a_reserved_address_is_reported_as_taken [Holds],
                an_address_without_a_choice_of_the_user_is_one_that_the_platform_assigns [Holds],
                a_reservation_of_another_cluster_is_a_conflict [Holds],
                releasing_is_exact_and_may_be_repeated [Holds],
                a_released_address_can_be_reserved_by_another_cluster [Holds],
                one_address_is_released_alone [Holds],
                releasing_the_reservation_of_another_owner_changes_nothing [Holds],
                a_machine_is_stopped_and_started_again [Machines],
                only_machines_of_this_cluster_are_stopped_and_started [Machines],
                all_that_is_owned_is_listed [Machines, Holds],
                every_cluster_that_has_something_is_found [Machines],
                a_cluster_with_only_a_reservation_is_found [Holds],
                machines_can_be_created_in_parallel [Machines],
                two_parallel_requests_for_one_machine_create_it_once [Machines],
                preflight_reports_name_conflicts_and_missing_networks [Answer],
                preflight_accepts_machines_of_this_cluster [Machines],
                a_config_over_the_limit_is_too_large [Machines, Configs],
                missing_networks_and_images_are_named [Answer],
                a_machine_on_a_missing_network_leaves_nothing [Machines],
                an_image_is_uploaded_once_and_shared [Images, Machines],
                the_console_of_another_clusters_machine_is_not_read [Machines],
                a_machine_is_described_to_its_own_cluster_only [Machines],
                a_machine_gets_its_reserved_address [Machines, Holds, Leases],
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

/// The fake cloud is complete enough for this promise. It runs in a process of its own, whose environment names clouds.yaml.
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

/// The variables that name a real server work with the fake one.
#[cfg(feature = "kubevirt")]
#[test]
fn the_contract_runs_on_the_server_of_a_named_kubeconfig() {
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
            "contract::kubevirt_named::a_reserved_address",
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
