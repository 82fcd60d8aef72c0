//! The fake's controllers, virt-api and CDI as a program, for a real API server: `fake-kubevirt KUBECONFIG`.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "it serves tests"
)]

#[path = "mod.rs"]
mod fake_kubevirt;

use kube::config::{KubeConfigOptions, Kubeconfig};

fn main() {
    let path = std::env::args().nth(1).expect("usage: fake-kubevirt KUBECONFIG");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let kubeconfig = Kubeconfig::read_from(path).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        // A watch may be quiet for long.
        config.read_timeout = None;
        fake_kubevirt::beside::serve(kube::Client::try_from(config).unwrap()).await;
    });
}
