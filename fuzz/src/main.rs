//! Hostile bytes for all parsers of external data. Nothing may panic.
//!
//! `OCPDEPLOY_FUZZ` names the target; `run.sh` runs all of them.

#![no_main]

mod ignition;
mod mutate;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use ocpdeploy::backend::{kubevirt, openstack, ovirt};
use ocpdeploy::settings::{self, Sources};
use ocpdeploy::state::journal::read_entries;
use ocpdeploy::state::parameters::Parameters;

type Target = fn(&[u8]);

fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(target)(bytes);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::mutate(data, size, max_size, seed)
});

fn target() -> Target {
    match std::env::var("OCPDEPLOY_FUZZ").as_deref() {
        Ok("ignition") => ignition::ignition,
        Ok("env") => env_file,
        Ok("profile") => profile,
        Ok("parameters") => parameters,
        Ok("journal") => journal,
        Ok("ovirt") => |bytes| answer(bytes, |text| drop(ovirt::read_answer(text))),
        Ok("openstack") => |bytes| answer(bytes, |text| drop(openstack::read_answer(text))),
        Ok("kubevirt") => |bytes| answer(bytes, |text| drop(kubevirt::read_answer(text))),
        #[cfg(feature = "libvirt")]
        Ok("libvirt") => |bytes| answer(bytes, |text| drop(ocpdeploy::backend::libvirt::read_answer(text))),
        other => panic!("OCPDEPLOY_FUZZ names no target: {other:?}"),
    }
}

fn answer(bytes: &[u8], read: impl Fn(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read(text);
    }
}

/// An env file on a computer that has no other file than `file`.
fn settings(env: String, file: &dyn Fn() -> io::Result<String>, rehearse: bool) {
    let is_file = |_: &Path| file().is_ok();
    let read_file = |_: &Path| file();
    let sources = || Sources {
        env_file: Some(("env.sh".into(), env.clone())),
        environment: [("HOME".to_owned(), "/home/me".to_owned())].into(),
        flags: Default::default(),
        current_dir: PathBuf::from("/work"),
        home: PathBuf::from("/home/me/state"),
        deployment: ocpdeploy::cluster::Deployment {
            id: "x7k2pqrs".parse().unwrap(),
            creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
        },
        rehearse,
        allow_downgrade: false,
        read_file: &read_file,
        is_file: &is_file,
        is_dir: &|_: &Path| false,
    };
    // Errors can be displayed.
    let told = |outcome: Result<(), settings::SettingsError>| outcome.map_err(|error| error.to_string());
    let _ = told(settings::load(&sources()).map(drop));
    let _ = told(settings::load_whereabouts(&sources()).map(drop));
    let _ = told(settings::load_platform(&sources()).map(drop));
}

fn env_file(bytes: &[u8]) {
    answer(bytes, |text| {
        let nothing = || Err(io::ErrorKind::NotFound.into());
        settings(text.to_owned(), &nothing, bytes.len() % 2 == 0);
    });
}

fn profile(bytes: &[u8]) {
    answer(bytes, |text| {
        let env = "cluster=lab\ndomain=example.com\nbackend=sim\nprofile=/etc/mine.yaml\n";
        settings(env.to_owned(), &|| Ok(text.to_owned()), true);
    });
}

fn parameters(bytes: &[u8]) {
    answer(bytes, |text| {
        let path = Path::new("parameters.yaml");
        let Ok(table) = Parameters::parse(text, path) else {
            return;
        };
        table.leases();
        let written = table.to_yaml().expect("a table can be written");
        let again = Parameters::parse(&written, path).expect("what was written can be read");
        assert_eq!(again, table, "a table changes when it is written and read");
    });
}

fn journal(bytes: &[u8]) {
    let path = Path::new("journal.jsonl");
    let Ok((entries, good)) = read_entries(bytes, path) else {
        return;
    };
    let good = usize::try_from(good).expect("it is in memory");
    let (again, end) =
        read_entries(&bytes[..good], path).expect("whole lines stay readable when a torn one is cut off");
    assert_eq!((again.len(), end), (entries.len(), good as u64));
}
