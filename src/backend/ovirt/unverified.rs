//! The points that no test of this project can confirm: they require a real engine.

/// One line each, for a user who deploys on a real engine. The same list is in `docs/how-to/ovirt.md`.
pub const UNVERIFIED: [&str; 10] = [
    "`ocpdeploy check` names the engine's version and reports no failure",
    "as an ordinary user, `ocpdeploy check` warns that the user is not an administrator",
    "the upload ends, and the template ocpdeploy-image-... has status OK",
    "after Ctrl-C during the upload, the same command continues it",
    "machines of pass one report their addresses in the Administration Portal",
    "the console of a master shows Ignition with the config drive, and the node's host name",
    "the affinity group ocpdeploy-CLUSTER-masters has all masters, on different hosts",
    "with ovirt_worker_label, workers run on the hosts of the label only",
    "`ocpdeploy destroy` during an upload leaves no disk, transfer, tag or affinity group",
    "after each command, the Administration Portal lists no active session of the user",
];
