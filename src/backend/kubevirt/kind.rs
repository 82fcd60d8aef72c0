//! The kinds of objects that are created or read, and their API paths.

/// A namespaced kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Machine,
    Instance,
    DataVolume,
    DataSource,
    Claim,
    Secret,
    ConfigMap,
    Service,
    Policy,
    Route,
    Network,
    Pod,
    Quota,
    LimitRange,
    Snapshot,
    Restore,
}

/// The API of snapshots: KubeVirt 1.3 and later (kubevirt/user-guide#809).
pub(super) const SNAPSHOTS: &str = "snapshot.kubevirt.io/v1beta1";

impl Kind {
    /// Whether only some features require this kind, so that a user without rights to it has no objects of it.
    pub fn is_optional(self) -> bool {
        matches!(
            self,
            Self::Service | Self::Policy | Self::Route | Self::Snapshot | Self::Restore
        )
    }

    /// Group and version; the core group has a version only, and another path.
    fn group(self) -> &'static str {
        match self {
            Self::Machine | Self::Instance => "kubevirt.io/v1",
            Self::DataVolume | Self::DataSource => "cdi.kubevirt.io/v1beta1",
            Self::Policy => "networking.k8s.io/v1",
            Self::Route => "route.openshift.io/v1",
            Self::Network => "k8s.cni.cncf.io/v1",
            Self::Snapshot | Self::Restore => SNAPSHOTS,
            Self::Claim
            | Self::Secret
            | Self::ConfigMap
            | Self::Service
            | Self::Pod
            | Self::Quota
            | Self::LimitRange => "v1",
        }
    }

    pub fn plural(self) -> &'static str {
        match self {
            Self::Machine => "virtualmachines",
            Self::Instance => "virtualmachineinstances",
            Self::DataVolume => "datavolumes",
            Self::DataSource => "datasources",
            Self::Claim => "persistentvolumeclaims",
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
            Self::Service => "services",
            Self::Policy => "networkpolicies",
            Self::Route => "routes",
            Self::Network => "network-attachment-definitions",
            Self::Pod => "pods",
            Self::Quota => "resourcequotas",
            Self::LimitRange => "limitranges",
            Self::Snapshot => "virtualmachinesnapshots",
            Self::Restore => "virtualmachinerestores",
        }
    }

    /// The name in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Machine => "virtual machine",
            Self::Instance => "machine instance",
            Self::DataVolume => "data volume",
            Self::DataSource => "data source",
            Self::Claim => "volume claim",
            Self::Secret => "secret",
            Self::ConfigMap => "config map",
            Self::Service => "service",
            Self::Policy => "network policy",
            Self::Route => "route",
            Self::Network => "network attachment definition",
            Self::Pod => "pod",
            Self::Quota => "resource quota",
            Self::LimitRange => "limit range",
            Self::Snapshot => "snapshot",
            Self::Restore => "restore",
        }
    }

    /// The API path of all objects of this kind in a namespace.
    pub fn folder(self, namespace: &str) -> String {
        let group = self.group();
        let root = if group.contains('/') { "apis" } else { "api" };
        format!("/{root}/{group}/namespaces/{namespace}/{}", self.plural())
    }
}
