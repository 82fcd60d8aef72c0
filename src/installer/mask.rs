//! Keeps secrets out of logs, errors and bundles.

use std::path::Path;

use fs_err as fs;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::install_config::proxy_secrets;
use crate::cluster::ClusterConfig;

/// Knows what must not be written down or shown.
pub struct Mask {
    secrets: Vec<String>,
}

impl Mask {
    /// The pull secret, each credential in it, and kubeadmin's password where the folder has it.
    pub fn new(config: &ClusterConfig, folder: &Path) -> Self {
        let pull_secret = config.pull_secret.expose_secret();
        let mut secrets = vec![pull_secret.to_owned()];
        secrets.extend(proxy_secrets(config));
        let parsed: Value = serde_json::from_str(pull_secret).unwrap_or_default();
        for registry in parsed["auths"].as_object().into_iter().flat_map(|auths| auths.values()) {
            let fields = ["auth", "password", "identitytoken", "registrytoken"];
            secrets.extend(
                fields
                    .iter()
                    .filter_map(|field| Some(registry[field].as_str()?.to_owned())),
            );
        }
        // Not there before `create ignition-configs`; a password of that form is masked in any case.
        if let Ok(password) = fs::read_to_string(folder.join("auth/kubeadmin-password")) {
            secrets.push(password.trim().to_owned());
        }
        secrets.retain(|secret| secret.len() >= 4);
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// The line with `****` in place of each secret.
    pub fn apply(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for secret in &self.secrets {
            line = line.replace(secret, "****");
        }
        let mut masked = String::new();
        for piece in line.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
            let end = piece
                .trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .len();
            let (word, rest) = piece.split_at(end);
            masked += if is_kubeadmin_password(word) { "****" } else { word };
            masked += rest;
        }
        masked
    }
}

/// Four groups of five letters and digits: the form of kubeadmin's password.
fn is_kubeadmin_password(word: &str) -> bool {
    let groups: Vec<_> = word.split('-').collect();
    groups.len() == 4 && groups.iter().all(|group| group.len() == 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        let mut config = ClusterConfig::example();
        config.pull_secret = r#"{"auths":{"a":{"auth":"Zm9vOmJhcg=="},"b":{"password":"p%ss\"w"}}}"#.into();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("auth")).unwrap();
        fs::write(folder.path().join("auth/kubeadmin-password"), "odd form\n").unwrap();
        let mask = Mask::new(&config, folder.path());
        for (line, masked) in [
            (
                "Login with \"kubeadmin\", password: \"aB3dE-fGh1j-Klmn0-pqrst\".",
                "Login with \"kubeadmin\", password: \"****\".",
            ),
            ("aB3dE-fGh1j-Klmn0-pqrst", "****"),
            ("auth Zm9vOmJhcg==, odd form", "auth ****, ****"),
            ("p%ss\"w", "****"),
            (
                "lab-2fld9 api-int.lab.example.com aB3dE-fGh1j-Klmn0",
                "lab-2fld9 api-int.lab.example.com aB3dE-fGh1j-Klmn0",
            ),
            ("ünï — ok", "ünï — ok"),
        ] {
            assert_eq!(mask.apply(line), masked);
        }
        let whole = config.pull_secret.expose_secret().to_owned();
        assert_eq!(mask.apply(&whole), "****");
    }
}
