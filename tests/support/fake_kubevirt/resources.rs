//! The resources of the server: groups, kinds and paths.

/// One kind of object.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// Empty is the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
}

const fn namespaced(group: &'static str, version: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        group,
        version,
        plural,
        kind,
        namespaced: true,
    }
}

const fn of_all(group: &'static str, version: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        namespaced: false,
        ..namespaced(group, version, plural, kind)
    }
}

pub static RESOURCES: [Resource; 36] = [
    of_all("", "v1", "namespaces", "Namespace"),
    of_all("", "v1", "nodes", "Node"),
    namespaced("", "v1", "configmaps", "ConfigMap"),
    namespaced("", "v1", "secrets", "Secret"),
    namespaced("", "v1", "services", "Service"),
    namespaced("", "v1", "pods", "Pod"),
    namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    namespaced("", "v1", "resourcequotas", "ResourceQuota"),
    namespaced("", "v1", "limitranges", "LimitRange"),
    namespaced("", "v1", "serviceaccounts", "ServiceAccount"),
    namespaced("", "v1", "podtemplates", "PodTemplate"),
    namespaced("", "v1", "endpoints", "Endpoints"),
    namespaced("", "v1", "events", "Event"),
    namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    namespaced("coordination.k8s.io", "v1", "leases", "Lease"),
    namespaced("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    namespaced("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    namespaced("snapshot.storage.k8s.io", "v1", "volumesnapshots", "VolumeSnapshot"),
    of_all("storage.k8s.io", "v1", "storageclasses", "StorageClass"),
    namespaced("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    namespaced("kubevirt.io", "v1", "virtualmachines", "VirtualMachine"),
    namespaced("kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance"),
    namespaced(
        "snapshot.kubevirt.io",
        "v1beta1",
        "virtualmachinesnapshots",
        "VirtualMachineSnapshot",
    ),
    namespaced(
        "snapshot.kubevirt.io",
        "v1beta1",
        "virtualmachinerestores",
        "VirtualMachineRestore",
    ),
    namespaced("cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume"),
    namespaced("cdi.kubevirt.io", "v1beta1", "datasources", "DataSource"),
    of_all("cdi.kubevirt.io", "v1beta1", "cdiconfigs", "CDIConfig"),
    namespaced(
        "k8s.cni.cncf.io",
        "v1",
        "network-attachment-definitions",
        "NetworkAttachmentDefinition",
    ),
    namespaced("route.openshift.io", "v1", "routes", "Route"),
    of_all("config.openshift.io", "v1", "ingresses", "Ingress"),
    of_all("config.openshift.io", "v1", "networks", "Network"),
    of_all("project.openshift.io", "v1", "projectrequests", "ProjectRequest"),
    of_all("project.openshift.io", "v1", "projects", "Project"),
    namespaced("kubevirt.io", "v1", "kubevirts", "KubeVirt"),
    of_all("cdi.kubevirt.io", "v1beta1", "cdis", "CDI"),
    namespaced(
        "upload.cdi.kubevirt.io",
        "v1beta1",
        "uploadtokenrequests",
        "UploadTokenRequest",
    ),
];

impl Resource {
    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Self> {
        RESOURCES
            .iter()
            .find(|resource| (resource.group, resource.version, resource.plural) == (group, version, plural))
    }

    pub fn of(plural: &str) -> &'static Self {
        RESOURCES.iter().find(|resource| resource.plural == plural).unwrap()
    }

    /// The verbs in discovery.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.plural {
            // kubevirt/containerized-data-importer: pkg/apiserver/apiserver.go; openshift/openshift-apiserver:
            // pkg/project/apiserver/registry/projectrequest/delegated/delegated.go.
            "uploadtokenrequests" | "projectrequests" => &["create"],
            _ => &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ],
        }
    }

    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// E.g. `VirtualMachine.kubevirt.io`, as messages of validation name it.
    pub fn qualified_kind(&self) -> String {
        match self.group {
            "" => self.kind.to_owned(),
            group => format!("{}.{group}", self.kind),
        }
    }

    /// E.g. `virtualmachines.kubevirt.io`, as messages name it.
    pub fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }
}
