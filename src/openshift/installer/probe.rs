//! Queries the guests of a rehearsal for their state and compares it with the plan.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::context::{NodeReport, WaitContext};
use super::expected::{self, OnDisk};
use crate::PROGRESS;
use crate::cluster::NodeName;
use crate::error::{ErrorKind, OperationError};
use crate::http_limits::{self, innermost};
use crate::local::reach;
use crate::printable::count;

/// Limit for one attempt to reach a guest.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Largest report of a guest in bytes; it has a line for each file of the guest's configuration.
const LARGEST: usize = 4 << 20;

/// Pause between two attempts to reach one guest.
const PAUSE: Duration = Duration::from_millis(500);

/// A guest's report, `http://<ip>:8080/report.json`.
#[derive(Clone, Debug, Deserialize)]
struct Report {
    hostname: String,
    mac: String,
    ip: String,
    /// All except link-local ones, separated by commas.
    ipv6: String,
    config_sha512: Option<String>,
    config_bytes: usize,
    /// `ok`, or the engine's last message.
    ignition: String,
    #[serde(flatten)]
    disk: OnDisk,
}

/// Queries all nodes, each with its final config, until each has answered; a node that differs from its plan ends the
/// wait.
pub(super) async fn ask_all(
    step: &'static str,
    planned: Vec<(NodeReport, Value)>,
    limit: Duration,
) -> Result<Vec<NodeReport>, OperationError> {
    let client = client()?;
    let end = Instant::now() + limit;
    info!(target: PROGRESS, step, total = planned.len());
    let mut answers: FuturesUnordered<_> = planned
        .iter()
        .map(|(node, config)| ask(step, node, config, &client, end))
        .collect();
    let mut silent = Vec::new();
    while let Some(answer) = answers.next().await {
        if let Some(last_word) = answer? {
            silent.push(last_word);
        }
    }
    drop(answers);
    if silent.is_empty() {
        Ok(planned
            .into_iter()
            .map(|(node, _)| NodeReport { checked: true, ..node })
            .collect())
    } else {
        silent.sort();
        Err(no_report(&silent, limit))
    }
}

/// `None` if the node is as planned; the last error if it never answered.
async fn ask(
    step: &'static str,
    node: &NodeReport,
    config: &Value,
    client: &reqwest::Client,
    end: Instant,
) -> Result<Option<String>, OperationError> {
    info!(target: PROGRESS, step, node = %node.node, state = "igniting", "waiting for its report");
    let url = format!("http://{}/report.json", SocketAddr::new(node.ip, 8080));
    loop {
        let problem = match fetch(client, &url).await {
            Ok(report) => {
                let differences = differences(&report, node, config);
                if !differences.is_empty() {
                    let (name, differences) = (&node.node, indented(&differences));
                    let text = format!("{name} differs from its planned configuration:{differences}");
                    return Err(OperationError::new(ErrorKind::Platform, text));
                }
                info!(target: PROGRESS, step, node = %node.node, state = "ready", done = true,
                    "{} bytes of Ignition, {}", report.config_bytes, count(report.disk.files.len(), "file"));
                return Ok(None);
            }
            Err(problem) => problem,
        };
        if Instant::now() + PAUSE >= end {
            return Ok(Some(format!("{} at {url}: {problem}", node.node)));
        }
        sleep(PAUSE).await;
    }
}

/// Waits until each of these guests has sent a report, whatever its content.
pub async fn guests_answer(guests: &[(NodeName, IpAddr)], limit: Duration) -> Result<(), OperationError> {
    let client = client()?;
    let end = Instant::now() + limit;
    let mut silent = Vec::new();
    let total = guests.len();
    info!(target: PROGRESS, step = "start", total, "waiting for the reports of {}", count(total, "node"));
    for (node, ip) in guests {
        let url = format!("http://{}/report.json", SocketAddr::new(*ip, 8080));
        loop {
            let Err(problem) = fetch(&client, &url).await else {
                info!(target: PROGRESS, step = "start", %node, state = "ready", done = true, "answers at {ip}");
                break;
            };
            if Instant::now() + PAUSE >= end {
                silent.push(format!("{node} at {url}: {problem}"));
                break;
            }
            sleep(PAUSE).await;
        }
    }
    match silent.is_empty() {
        true => Ok(()),
        false => Err(no_report(&silent, limit)),
    }
}

/// Checks that the api VIP, now on a master, serves configs to late workers.
pub(super) async fn ask_vip(wait: &WaitContext<'_>, limit: Duration) -> Result<(), OperationError> {
    let client = client()?;
    let address = reach::api_endpoint(wait.parameters).to(22_624);
    let url = format!("http://{address}/config/worker");
    let end = Instant::now() + limit;
    loop {
        let answer = client
            .get(&url)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status);
        let Err(error) = answer else {
            info!(target: PROGRESS, step = "install-complete", "the api VIP at {} answers", address.ip());
            return Ok(());
        };
        if Instant::now() + PAUSE >= end {
            let silent = format!("the api VIP at {url}: {}", innermost(&error.without_url()));
            return Err(no_report(&[silent], limit));
        }
        sleep(PAUSE).await;
    }
}

/// The error of a wait in which some never answered, each with the last problem.
fn no_report(silent: &[String], after: Duration) -> OperationError {
    let text = format!("no report within {} s from:{}", after.as_secs(), indented(silent));
    OperationError::new(ErrorKind::Waited, text)
        .hint("the machines are kept; check their consoles, then run the same command again")
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

fn client() -> Result<reqwest::Client, OperationError> {
    let builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(ATTEMPT);
    builder
        .build()
        .map_err(|error| no_report(&[error.to_string()], Duration::ZERO))
}

/// A guest's report, or the reason why there is none.
async fn fetch(client: &reqwest::Client, url: &str) -> Result<Report, String> {
    let reason = |error: reqwest::Error| innermost(&error.without_url());
    let answer = client.get(url).send().await.map_err(reason)?;
    let status = answer.status();
    if status != reqwest::StatusCode::OK {
        return Err(format!("it returned {status}"));
    }
    let text = http_limits::read(answer, LARGEST)
        .await
        .map_err(|error| error.to_string())?;
    http_limits::json(&text).map_err(|error| error.to_string())
}

/// Each difference from the plan, as text.
fn differences(report: &Report, planned: &NodeReport, effective: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, is: &str, should: &str| {
        if is != should {
            found.push(format!("{what} is {is}, expected {should}"));
        }
    };
    compare("ignition", &report.ignition, "ok");
    compare("its MAC", &report.mac, &planned.mac.to_string());
    compare("its address", &report.ip, &planned.ip.to_string());
    if let Some(ipv6) = planned.ipv6 {
        compare("its IPv6 address", &report.ipv6, &ipv6.to_string());
    }
    compare("its host name", &report.hostname, &planned.hostname);
    compare(
        "sha512 of the config it received",
        report.config_sha512.as_deref().unwrap_or("absent"),
        &planned.config_sha512,
    );
    found.extend(expected::differences(effective, &report.disk));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{Mac, NodeName, Role};
    use crate::digest::sha512;

    fn planned() -> NodeReport {
        NodeReport {
            node: NodeName::node(Role::Master, 0),
            role: Role::Master,
            mac: Mac([0x52, 0x54, 0, 1, 2, 3]),
            ip: [192, 168, 122, 11].into(),
            ipv6: Some([0xfd00, 1, 0, 0, 0, 0, 0, 0x11].into()),
            hostname: "master-0.lab.example.com".to_owned(),
            config_sha512: "c0".to_owned(),
            ignition_bytes: 2,
            checked: false,
        }
    }

    fn config() -> Value {
        json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/hostname", "mode": 420, "contents": {"source": "data:,x%0A"}},
        ]}})
    }

    fn report() -> Report {
        let hash = sha512("x\n");
        let json = json!({
            "hostname": "master-0.lab.example.com", "mac": "52:54:00:01:02:03", "ip": "192.168.122.11", "ipv6": "fd00:1::11",
            "config_sha512": "c0", "config_bytes": 2, "ignition": "ok", "units": [], "users": [],
            "files": [{"path": "/etc/motd", "mode": null, "sha512": null}, {"path": "/etc/hostname", "mode": "0644", "sha512": hash}],
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_node_as_planned_has_no_differences() {
        assert_eq!(differences(&report(), &planned(), &config()), Vec::<String>::new());
    }

    #[test]
    fn each_difference_is_reported() {
        type Change = fn(&mut Report);
        let cases: [(Change, &[&str]); 7] = [
            (
                |r| r.ignition = "no such user".to_owned(),
                &["ignition is no such user, expected ok"],
            ),
            (
                |r| r.mac = "52:54:00:01:02:04".to_owned(),
                &["its MAC is 52:54:00:01:02:04, expected 52:54:00:01:02:03"],
            ),
            (
                |r| r.ip = "192.168.122.12".to_owned(),
                &["its address is 192.168.122.12, expected 192.168.122.11"],
            ),
            (
                |r| r.ipv6 += ",fd00:1::5",
                &["its IPv6 address is fd00:1::11,fd00:1::5, expected fd00:1::11"],
            ),
            (
                |r| r.hostname = "localhost".to_owned(),
                &["its host name is localhost, expected master-0.lab.example.com"],
            ),
            (
                |r| r.config_sha512 = None,
                &["sha512 of the config it received is absent, expected c0"],
            ),
            (
                |r| r.disk.files.clear(),
                &[
                    "mode of /etc/hostname is absent, expected 0644",
                    "sha512 of /etc/hostname is absent, expected ",
                ],
            ),
        ];
        for (change, texts) in cases {
            let mut report = report();
            change(&mut report);
            let found = differences(&report, &planned(), &config());
            assert_eq!(found.len(), texts.len(), "{found:?}");
            for (found, text) in found.iter().zip(texts) {
                assert!(found.starts_with(text), "{found:?} {text:?}");
            }
        }
    }
}
