//! One list of promises, kept by every backend: the pretend platform, libvirt's test driver, and a real
//! libvirt named by `OCPDEPLOY_CONTRACT_LIBVIRT_URI` (with `_POOL`, `_NETWORK` and, to see guests boot, `_IMAGE`).

#[path = "support/contract.rs"]
mod contract;

/// The promises, and what each asks of the platform; every one is a test on every ground.
macro_rules! on_ground {
    ($module:ident, $open:expr) => {
        mod $module {
            use crate::contract::{self, Ability::*};

            on_ground! { @each $open,
                a_created_machine_is_listed_as_asked [Machines],
                creating_twice_makes_one [Machines],
                another_spec_under_a_name_is_a_conflict [Machines],
                a_strangers_machine_is_left_alone [Answer],
                a_strangers_name_is_not_taken [Machines],
                another_clusters_machine_is_left_alone [Machines],
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
                all_that_is_owned_is_listed [Machines, Holds],
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

on_ground!(sim, Some(crate::ground_sim::SimGround::fresh()));

/// The pretend platform, a fresh one for each promise.
mod ground_sim {
    use std::path::PathBuf;

    use ocpdeploy::backend::ImageRequest;
    use ocpdeploy::backend::sim::Sim;
    use ocpdeploy::cluster::{MachineName, SimConfig};
    use ocpdeploy::digest;
    use serde_json::{Value, json};

    use crate::contract::{Ability, Ground};

    pub struct SimGround {
        folder: tempfile::TempDir,
        sim: Sim,
    }

    impl SimGround {
        pub fn fresh() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("image.qcow2"), b"an image").unwrap();
            let state = folder.path().join("sim.json");
            let sim = Sim::open(&SimConfig { state }).unwrap();
            Self { folder, sim }
        }

        fn state(&self) -> PathBuf {
            self.folder.path().join("sim.json")
        }

        /// The file past the backend; promises of one ground run one after the other.
        fn edit(&self, change: impl FnOnce(&mut Value)) {
            let text = std::fs::read_to_string(self.state()).unwrap_or(r#"{"v": 1, "strangers": {}}"#.to_owned());
            let mut world: Value = serde_json::from_str(&text).unwrap();
            change(&mut world);
            std::fs::write(self.state(), world.to_string()).unwrap();
        }
    }

    impl Ground for SimGround {
        type Backend = Sim;

        fn name(&self) -> &'static str {
            "sim"
        }

        fn backend(&self) -> &Sim {
            &self.sim
        }

        fn network(&self) -> String {
            "default".to_owned()
        }

        fn image(&self) -> ImageRequest {
            ImageRequest::File {
                path: self.folder.path().join("image.qcow2"),
                sha256: digest::sha256(b"an image"),
                bytes: 8,
            }
        }

        fn lacks(&self, _: Ability) -> Option<&'static str> {
            None
        }

        fn put_stranger(&self, name: &MachineName) {
            self.edit(|world| world["strangers"][name.as_str()] = json!({"macs": []}));
        }

        fn has_stranger(&self, name: &MachineName) -> bool {
            let mut there = false;
            self.edit(|world| there = world["strangers"].get(name.as_str()).is_some());
            there
        }

        fn remove_stranger(&self, name: &MachineName) {
            self.edit(|world| {
                world["strangers"].as_object_mut().map(|all| all.remove(name.as_str()));
            });
        }
    }
}
