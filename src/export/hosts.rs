//! The cluster's names as lines of a hosts file.

use std::ops::RangeInclusive;

use crate::cluster::{ClusterDomain, Vip};
use crate::state::parameters::Parameters;

/// The common names below `apps`, because a hosts file does not support wildcards.
const APPS: [&str; 8] = [
    "console-openshift-console",
    "oauth-openshift",
    "downloads-openshift-console",
    "canary-openshift-ingress-canary",
    "default-route-openshift-image-registry",
    "alertmanager-main-openshift-monitoring",
    "prometheus-k8s-openshift-monitoring",
    "thanos-querier-openshift-monitoring",
];

/// First and last line of a cluster's block, unique for each cluster.
pub fn markers(cluster: &ClusterDomain) -> [String; 2] {
    ["BEGIN", "END"].map(|word| format!("# {word} ocpdeploy {cluster}"))
}

/// The whole block, markers included.
pub fn block(parameters: &Parameters) -> String {
    let id = parameters.cluster_domain();
    let [begin, end] = markers(&id);
    let mut lines = vec![begin];
    let (outside, inside) = (
        parameters.client_addresses(Vip::Api),
        parameters.vip_addresses(Vip::Api),
    );
    match outside == inside {
        true => lines.extend(
            inside
                .iter()
                .map(|ip| format!("{ip} {} {}", id.fqdn("api"), id.fqdn("api-int"))),
        ),
        false => {
            lines.extend(outside.iter().map(|ip| format!("{ip} {}", id.fqdn("api"))));
            lines.extend(inside.iter().map(|ip| format!("{ip} {}", id.fqdn("api-int"))));
        }
    }
    // One name per line: some parsers accept only a few names on a line.
    for ip in parameters.client_addresses(Vip::Ingress) {
        lines.extend(APPS.map(|name| format!("{ip} {}", id.fqdn(&format!("{name}.apps")))));
    }
    for node in parameters.all_nodes() {
        let name = id.fqdn(node.name.as_str());
        lines.extend(parameters.both(node.ip).into_iter().map(|ip| format!("{ip} {name}")));
    }
    lines.push(end);
    lines.join("\n") + "\n"
}

/// A marker without its counterpart: the end of the block is unknown.
#[derive(Debug, PartialEq, Eq)]
pub struct BrokenMarkers {
    /// Counted from 1.
    pub line: usize,
    pub problem: String,
}

/// The position of a cluster's block: indices of its lines, markers included.
pub fn find_block(text: &str, cluster: &ClusterDomain) -> Result<Option<RangeInclusive<usize>>, BrokenMarkers> {
    let [begin, end] = markers(cluster);
    let broken = |index: usize, problem: String| BrokenMarkers {
        line: index + 1,
        problem,
    };
    let mut open = None;
    let mut block = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line == begin {
            if open.is_some() || block.is_some() {
                return Err(broken(index, format!("`{begin}` appears twice")));
            }
            open = Some(index);
        } else if line == end {
            let Some(start) = open.take() else {
                return Err(broken(index, format!("`{end}` has no BEGIN line")));
            };
            block = Some(start..=index);
        } else if let Some(start) = open
            && (line.starts_with("# BEGIN ocpdeploy ") || line.starts_with("# END ocpdeploy "))
        {
            let problem = format!("`{begin}` has no END line before another cluster's block");
            return Err(broken(start, problem));
        }
    }
    match open {
        Some(index) => Err(broken(index, format!("`{begin}` has no END line"))),
        None => Ok(block),
    }
}

/// The text with the cluster's previous block replaced, or with the block added at the end.
pub fn with_block(text: &str, parameters: &Parameters) -> Result<String, BrokenMarkers> {
    let block = block(parameters);
    let Some(old) = find_block(text, &parameters.cluster_domain())? else {
        let gap = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        return Ok(format!("{text}{gap}{block}"));
    };
    Ok(replaced(text, &old, &block))
}

/// The text without the cluster's block; every other line is unchanged.
pub fn without_block(text: &str, cluster: &ClusterDomain) -> Result<String, BrokenMarkers> {
    let found = find_block(text, cluster)?;
    Ok(found.map_or_else(|| text.to_owned(), |old| replaced(text, &old, "")))
}

fn replaced(text: &str, old: &RangeInclusive<usize>, new: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines[..*old.start()].concat() + new + &lines[old.end() + 1..].concat()
}

/// Lines outside of the cluster's block that contain its names: the first line with a name in the file is effective.
pub fn rivals<'a>(text: &'a str, cluster: &ClusterDomain) -> Result<Vec<(usize, &'a str)>, BrokenMarkers> {
    let block = find_block(text, cluster)?;
    let suffix = format!(".{cluster}");
    let is_rival = |(index, line): &(usize, &str)| {
        let names = line.split('#').next().unwrap_or_default().split_whitespace().skip(1);
        let mut names = names.map(str::to_ascii_lowercase);
        !block.as_ref().is_some_and(|block| block.contains(index)) && names.any(|name| name.ends_with(&suffix))
    };
    let lines = text.lines().enumerate().filter(is_rival);
    Ok(lines.map(|(index, line)| (index + 1, line.trim())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::parameters::tests::example;

    const HOSTS: &str = "127.0.0.1 localhost\n\n# mine\n192.168.122.25 api.lab2.example.com";

    fn id(name: &str) -> ClusterDomain {
        ClusterDomain::new(name, "example.com")
    }

    #[test]
    fn a_block_is_added_once_and_removed_completely() {
        let block = block(&example());
        let once = with_block(HOSTS, &example()).unwrap();
        assert_eq!(once, format!("{HOSTS}\n{block}"));
        assert_eq!(with_block(&once, &example()).unwrap(), once);
        assert_eq!(without_block(&once, &id("lab")).unwrap(), format!("{HOSTS}\n"));
        assert_eq!(without_block(HOSTS, &id("lab")).unwrap(), HOSTS);
        assert_eq!(with_block("", &example()).unwrap(), block);
    }

    #[test]
    fn a_changed_address_replaces_the_block_in_place() {
        let mut parameters = example();
        let first = with_block(HOSTS, &parameters).unwrap() + "10.0.0.1 after\n";
        parameters.api_ip = "192.168.122.253".parse().unwrap();
        let second = with_block(&first, &parameters).unwrap();
        assert_eq!(second, first.replace("192.168.122.10 api", "192.168.122.253 api"));
    }

    /// kcli's `sed` on the address had this bug: 192.168.122.25 matches .253, lab matches lab2.
    #[test]
    fn clusters_with_similar_names_and_addresses_keep_their_lines() {
        let cluster = |name: &str, api: &str| {
            let mut parameters = example();
            parameters.cluster = name.to_owned();
            parameters.api_ip = api.parse().unwrap();
            parameters
        };
        let clusters = [
            cluster("lab", "192.168.122.25"),
            cluster("lab2", "192.168.122.253"),
            cluster("a.lab", "192.168.122.2"),
            cluster("xlab", "192.168.122.252"),
        ];
        let all = clusters.iter().fold(HOSTS.to_owned() + "\n", |text, parameters| {
            with_block(&text, parameters).unwrap()
        });
        for parameters in &clusters {
            let rest = without_block(&all, &parameters.cluster_domain()).unwrap();
            assert_eq!(
                rest,
                all.replacen(&block(parameters), "", 1),
                "{}",
                parameters.cluster_domain()
            );
        }
    }

    #[test]
    fn broken_markers_are_reported_with_their_line() {
        let [begin, end] = markers(&id("lab"));
        let [begin2, end2] = markers(&id("lab2"));
        for (text, line, words) in [
            (format!("a\n{begin}\nb\n"), 2, "has no END line"),
            (format!("a\nb\n{end}\n"), 3, "has no BEGIN line"),
            (format!("{begin}\n{begin}\n{end}\n"), 2, "appears twice"),
            (format!("{begin}\n{end}\n{begin}\n{end}\n"), 3, "appears twice"),
            (
                format!("{begin}\n{begin2}\n{end2}\n{end}\n"),
                1,
                "before another cluster's block",
            ),
        ] {
            let error = with_block(&text, &example()).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.problem.contains(words), "{error:?}");
            assert_eq!(without_block(&text, &id("lab")), Err(error));
        }
        // Another cluster's broken block is ignored.
        assert!(with_block(&format!("{begin2}\n"), &example()).is_ok());
    }

    #[test]
    fn only_lines_with_names_of_this_cluster_are_conflicts() {
        let text = "10.0.0.1 api.LAB.Example.com\n10.0.0.2 api.mylab.example.com # api.lab.example.com\n";
        let text = with_block(text, &example()).unwrap() + "10.0.0.3 x x.apps.lab.example.com\n";
        let last = text.lines().count();
        assert_eq!(
            rivals(&text, &id("lab")).unwrap(),
            [
                (1, "10.0.0.1 api.LAB.Example.com"),
                (last, "10.0.0.3 x x.apps.lab.example.com")
            ]
        );
    }
}
