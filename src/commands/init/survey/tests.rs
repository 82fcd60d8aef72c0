use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::file::quoted;
use super::*;
use crate::settings::envfile;

fn sources() -> Sources<'static> {
    Sources {
        env_file: None,
        environment: BTreeMap::from([("HOME".to_owned(), "/home/me".to_owned())]),
        flags: BTreeMap::new(),
        current_dir: "/work".into(),
        home: "/state".into(),
        rehearse: false,
        allow_downgrade: false,
        deployment: crate::cluster::ClusterConfig::example().deployment,
        read_file: &|path| match path {
            path if path == Path::new("/home/me/pull.json") => {
                Ok(r#"{"auths":{"registry.example.com":{"auth":"eDp5"}}}"#.to_owned())
            }
            _ => Err(std::io::ErrorKind::NotFound.into()),
        },
        is_file: &|_| false,
        is_dir: &|_| false,
    }
}

fn survey(answers: &[(&'static str, &str)]) -> Survey<'static> {
    let mut survey = Survey::new("env.sh".into(), sources());
    for (setting, value) in answers {
        assert_eq!(survey.problem(setting, value), None, "{setting}={value}");
        survey.answer(setting, value);
    }
    survey
}

#[test]
fn the_settings_check_an_answer() {
    let lab = survey(&[("backend", "libvirt"), ("cluster", "lab"), ("api_ip", "192.168.122.9")]);
    for (setting, bad, why) in [
        ("cluster", "Lab", "`Lab` is not a DNS label"),
        ("cluster", "", "`` is not"),
        ("domain", "a..b", "a label of the name is empty"),
        ("libvirt_uri", "lxc:///system", "the driver `lxc` is not supported"),
        ("workers", "many", "`many` is not a whole number"),
        ("masters", "2", "two masters are less fault-tolerant than one"),
        ("ingress_ip", "nowhere", "`nowhere` is not an IPv4 address"),
        ("machine_network", "10.0.0.0/24", "192.168.122.9 is outside 10.0.0.0/24"),
        ("pull_secret", "absent.json", "no such file"),
        ("profile", "huge", "the profile `huge` does not exist"),
    ] {
        match (bad, lab.problem(setting, bad)) {
            // An empty answer is no value, so no line of the file is invalid.
            ("", problem) => assert_eq!(problem, None),
            (_, problem) => {
                let problem = problem.unwrap_or_else(|| panic!("{setting}={bad} was taken"));
                assert!(problem.contains(why), "{setting}={bad}: {problem}");
            }
        }
    }
    assert_eq!(lab.problem("pull_secret", "/home/me/pull.json"), None);
    let long = "a".repeat(60);
    assert!(
        lab.problem("cluster", &long).is_some(),
        "checked before the domain is known"
    );
}

#[test]
fn values_of_the_profile_are_defaults_and_not_written() {
    let mut lab = survey(&[("backend", "sim"), ("profile", "compact")]);
    assert_eq!(lab.question("masters").default.as_deref(), Some("3"));
    assert_eq!(lab.question("master_memory").default.as_deref(), Some("24576"));
    lab.answer("master_memory", "24576");
    lab.answer("workers", "2");
    let text = lab.text();
    assert!(text.contains("\n# master_memory=24576\n"), "{text}");
    assert!(text.contains("\nworkers=2\n"), "{text}");
}

#[test]
fn settings_in_the_environment_are_defaults_unless_they_are_invalid_or_secret() {
    let mut sources = sources();
    for (name, value) in [
        ("OCPDEPLOY_BACKEND", "sim"),
        ("OCPDEPLOY_CLUSTER", "prod"),
        ("OCPDEPLOY_PULL_SECRET", r#"{"auths":{}}"#),
        ("OCPDEPLOY_WORKERS", "many"),
    ] {
        sources.environment.insert(name.to_owned(), value.to_owned());
    }
    let mut lab = Survey::new("env.sh".into(), sources);
    for (setting, default) in [
        ("backend", Some("sim")),
        ("cluster", Some("prod")),
        ("pull_secret", None),
        ("workers", Some("2")),
    ] {
        assert_eq!(lab.question(setting).default.as_deref(), default, "{setting}");
    }
    lab.answer("backend", "sim");
    lab.answer("cluster", "lab");
    let others = ["OCPDEPLOY_CLUSTER", "OCPDEPLOY_PULL_SECRET", "OCPDEPLOY_WORKERS"];
    assert_eq!(lab.overriding(), others);
}

#[test]
fn the_home_folder_in_a_file_name_is_expanded() {
    let lab = survey(&[("pull_secret", "~/pull.json"), ("cluster", "lab")]);
    assert_eq!(lab.value("pull_secret"), Some("/home/me/pull.json"));
}

#[test]
fn a_password_is_stored_in_its_own_file() {
    let mut lab = survey(&[("cluster", "lab")]);
    lab.answer("ovirt_password", "canary");
    lab.answer_by_file("ovirt_password", "lab.password");
    assert!(lab.text().contains("\novirt_password_file=lab.password\n"));
    assert!(!lab.text().contains("canary"));
}

#[test]
fn an_existing_network_is_the_default() {
    let lab = survey(&[("backend", "libvirt")]);
    let default = |choices: &[&str]| {
        let choices = choices.iter().map(|name| Choice::new(*name, "")).collect();
        lab.offered(SettingChoices::new("network", choices)).default
    };
    assert_eq!(default(&["lan", "default"]).as_deref(), Some("default"));
    assert_eq!(default(&["lan", "other"]).as_deref(), Some("lan"));
    assert_eq!(default(&[]).as_deref(), Some("default"));
    let bad = SettingChoices::new("network", vec![Choice::new("lan", "").warn("no DHCP")]);
    assert_eq!(
        lab.offered(bad).default,
        None,
        "a choice with a warning is never the default"
    );
}

/// Any value that an env file can contain.
fn value() -> impl Strategy<Value = String> {
    proptest::string::string_regex(r"[ -~\n\täöü€]{0,40}").unwrap()
}

proptest! {
    #[test]
    fn the_file_contains_the_answers(values in proptest::collection::vec((0usize..200, value(), any::<bool>()), 0..12)) {
        let mut answers = BTreeMap::new();
        for (index, value, is_default) in values {
            let variable = &variables::VARIABLES[index % variables::VARIABLES.len()];
            let written = variable.name.to_owned();
            answers.insert(variable.name, Answer { written, value, is_default });
        }
        let rendered = file::render(&answers);
        let read = envfile::parse(&rendered.text, &|_| None).unwrap();
        let read: BTreeMap<_, _> = read.into_iter().map(|a| (a.name, a.value)).collect();
        let active: BTreeMap<_, _> = answers
            .values()
            .filter(|answer| !answer.is_default || answer.value.contains('\n'))
            .map(|answer| (answer.written.clone(), answer.value.clone()))
            .collect();
        prop_assert_eq!(&read, &active);
        for (setting, line) in &rendered.lines {
            let found = rendered.text.lines().nth(line - 1).unwrap();
            prop_assert!(found.starts_with(&format!("{setting}=")), "{} is not {}", found, setting);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn bash_reads_the_same(value in value()) {
        let script = format!("x={}\nprintf %s \"$x\"", quoted(&value));
        let output = Command::new("bash").args(["--norc", "-c", &script]).env_clear().output().unwrap();
        prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
    }
}

#[test]
fn the_profile_that_the_host_has_memory_for_is_preselected() {
    let mut survey = Survey::new("/home/u/env.sh".into(), sources());
    for (setting, value) in [("backend", "sim"), ("cluster", "lab"), ("domain", "example.com")] {
        survey.answer(setting, value);
    }
    let asked = |memory_gib: u64| {
        let host = HostCapacity {
            memory_mib: memory_gib * 1024,
            cpus: Some(4),
        };
        let (question, warning) = survey.profile(Some(&host));
        let of = |name: &str| {
            let choice = question.choices.iter().find(|choice| choice.value == name);
            choice.unwrap().about.clone()
        };
        (question.default.clone(), [of("standard"), of("laptop")], warning)
    };
    let (preselected, [standard, laptop], warning) = asked(128);
    assert_eq!((preselected.as_deref(), warning), (Some("standard"), None));
    assert_eq!(standard, "80 GiB of memory: three masters and two workers");
    assert!(
        laptop.starts_with("24 GiB of memory (warning: 8 CPUs for each machine, the host has 4): one master"),
        "{laptop}"
    );
    let (preselected, [standard, _], warning) = asked(31);
    assert_eq!(preselected.as_deref(), Some("laptop"));
    assert_eq!(
        standard,
        "80 GiB of memory (warning: the host has 31 GiB): three masters and two workers"
    );
    assert_eq!(
        warning.unwrap(),
        "the host has 31 GiB of memory: standard, with 3 masters and 2 workers, requires 80 GiB; laptop, with 1 master \
         and 0 workers, requires 24 GiB; such a cluster does not survive the failure of its master"
    );
    let (preselected, _, warning) = asked(21);
    assert_eq!(preselected, None);
    assert!(
        warning
            .unwrap()
            .ends_with("an installation does not fit, a rehearsal does")
    );
    let unknown = survey.profile(None);
    assert_eq!((unknown.0.default.as_deref(), unknown.1), (Some("standard"), None));
}

#[test]
fn the_smallest_profile_requires_the_least_memory() {
    let survey = Survey::new("/home/u/env.sh".into(), sources());
    let memory = |name: &str| survey.needs(name).unwrap().memory_mib;
    for (name, _) in profile::SHIPPED {
        assert!(memory(SMALLEST) <= memory(name), "{name}");
    }
}
