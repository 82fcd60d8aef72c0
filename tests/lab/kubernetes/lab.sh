#!/usr/bin/env bash
# A real Kubernetes API server with upstream's CRDs of KubeVirt, CDI and Multus. The example fake-kubevirt simulates their
# controllers, virt-api and CDI. See README.md.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
dir=${OCPDEPLOY_KUBERNETES_LAB:-$root/target/kubernetes}
crds=${OCPDEPLOY_TEST_CRDS-}
state=$dir/state
pki=$state/pki
api=https://127.0.0.1:6443
# One namespace for each directory, so that several labs can run on one computer.
NS=ocpdeploy-kube-$(printf %s "$dir" | cksum | cut -d ' ' -f 1)

usage() {
    cat <<USAGE
usage: lab.sh up               start everything; builds it first, once
       lab.sh down             stop everything and remove its state
       lab.sh exec CMD...      run CMD where the API server can be reached, with its administrator's kubeconfig
       lab.sh tenant NAME      make namespace NAME with a service account that has exactly the documented rights, and a
                               network; its kubeconfig is in state/NAME.kubeconfig
       lab.sh crash SECONDS    kill the API server without warning, and start it again after SECONDS
       lab.sh status           exit code 0: up, 3: down
USAGE
}

say() { echo "kubernetes lab: $*"; }
die() { echo "kubernetes lab: $*" >&2; exit 1; }
inside() { ip netns exec "$NS" "$@"; }
kubectl_() { inside env HOME="$state" kubectl --kubeconfig "$state/admin.kubeconfig" "$@"; }

until_() {
    local end=$((SECONDS + $1)); shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}

# start NAME CMD...: starts a daemon of the lab and stores its process id in state/NAME.pid.
start() {
    local name=$1; shift
    setsid ip netns exec "$NS" "$@" >>"$state/$name.log" 2>&1 </dev/null 9>&- &
    echo $! >"$state/$name.pid"
}

# Whether the process that was started with this name is running.
runs() {
    local pid
    pid=$(cat "$state/$1.pid" 2>/dev/null) && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q "$1"
}

finish() {
    local name
    for name in "$@"; do
        if runs "$name"; then kill -9 "$(cat "$state/$name.pid")" || true; fi
        rm -f "$state/$name.pid"
    done
}

# cert NAME SUBJECT AUTHORITY [NAMES]: creates a key and a certificate.
cert() {
    openssl req -new -newkey rsa:2048 -nodes -keyout "$pki/$1.key" -subj "$2" -out "$pki/$1.csr" 2>/dev/null
    openssl x509 -req -in "$pki/$1.csr" -CA "$pki/$3.crt" -CAkey "$pki/$3.key" -CAcreateserial -days 30 -out "$pki/$1.crt" \
        -extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\n%s' "${4:+subjectAltName=$4}") 2>/dev/null
}

# kubeconfig FILE NAMESPACE USER: writes a kubeconfig for USER, which is JSON.
kubeconfig() {
    cat >"$1" <<CONFIG
{"apiVersion": "v1", "kind": "Config", "current-context": "lab",
 "clusters": [{"name": "lab", "cluster": {"server": "$api", "certificate-authority-data": "$(base64 -w0 "$pki/ca.crt")"}}],
 "users": [{"name": "me", "user": $3}],
 "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me", "namespace": "$2"}}]}
CONFIG
}

certificates() {
    mkdir -p "$pki"
    local authority
    for authority in ca front-ca; do
        openssl req -x509 -newkey rsa:2048 -nodes -keyout "$pki/$authority.key" -out "$pki/$authority.crt" -days 30 \
            -subj "/CN=$authority" 2>/dev/null
    done
    openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
    # The last name is the API of a deployed cluster, for which tests use this server.
    cert apiserver /CN=kube-apiserver ca \
        IP:127.0.0.1,IP:172.30.0.1,DNS:localhost,DNS:kubernetes.default.svc,DNS:api.lab.example.com
    cert admin /O=system:masters/CN=admin ca
    cert front /CN=front-proxy-client front-ca
    local user
    user="{\"client-certificate-data\": \"$(base64 -w0 "$pki/admin.crt")\", \"client-key-data\": \"$(base64 -w0 "$pki/admin.key")\"}"
    kubeconfig "$state/admin.kubeconfig" default "$user"
}

# Tests read only user, verb and resource from the audit log. https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
audit_policy() {
    cat >"$state/audit-policy.yaml" <<'POLICY'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [admin, "system:apiserver", "system:anonymous"]}
- {level: Metadata}
POLICY
}

apiserver() {
    start kube-apiserver "$dir/bin/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 \
        --bind-address=0.0.0.0 --advertise-address=192.0.2.1 --tls-cert-file="$pki/apiserver.crt" \
        --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" --authorization-mode=Node,RBAC \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/accounts.key" \
        --service-account-signing-key-file="$pki/accounts.key" --service-cluster-ip-range=172.30.0.0/16 \
        --requestheader-client-ca-file="$pki/front-ca.crt" --requestheader-allowed-names=front-proxy-client \
        --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
        --requestheader-username-headers=X-Remote-User --proxy-client-cert-file="$pki/front.crt" \
        --proxy-client-key-file="$pki/front.key" --profiling=false \
        --disable-admission-plugins=ServiceAccount --enable-admission-plugins=NodeRestriction \
        --audit-policy-file="$state/audit-policy.yaml" --audit-log-path="$state/audit.log"
}

# Only fake-kubevirt changes pods and data volumes. Nodes and their certificates are handled as in a real cluster.
controllers() {
    local run=namespace,garbagecollector,resourcequota,serviceaccount,serviceaccount-token,pvc-protection
    run+=,csrsigning,csrapproving,nodelifecycle
    # A quota that is older than the discovery of its CRD is counted only at the next sync, after five minutes by default
    # (kubernetes/kubernetes: pkg/controller/resourcequota/resource_quota_controller.go, `enqueueAll`).
    start kube-controller-manager "$dir/bin/kube-controller-manager" --kubeconfig="$state/admin.kubeconfig" \
        --leader-elect=false --port=0 --secure-port=0 --root-ca-file="$pki/ca.crt" \
        --service-account-private-key-file="$pki/accounts.key" --concurrent-gc-syncs=4 --profiling=false \
        --resource-quota-sync-period=5s \
        --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
        --controllers="$run"
}

up() {
    [ "$(id -u)" = 0 ] || die "'up' needs root"
    [ -d "$crds" ] || die "OCPDEPLOY_TEST_CRDS must name the folder of upstream's CRDs"
    mkdir -p "$dir"
    exec 9>"$dir/lock"
    flock -w 1800 9 || die "another lab.sh holds $dir/lock"
    "$here/build.sh" "$dir" 9>&-
    stop
    mkdir -p "$state"
    ip netns add "$NS"
    ip -n "$NS" link set lo up
    # Servers write an address of the computer into their objects, which must not be a loopback address.
    ip -n "$NS" address add 192.0.2.1/32 dev lo
    certificates
    audit_policy
    # The data need not survive a power failure.
    start etcd "$dir/bin/etcd" --data-dir="$state/etcd" --unsafe-no-fsync=true --heartbeat-interval=500 \
        --election-timeout=5000 --quota-backend-bytes=$((1 << 30))
    apiserver
    until_ 180 kubectl_ get --raw /readyz || die "the API server did not start; see $state/kube-apiserver.log"
    controllers
    local crd
    for crd in "$crds"/*.yaml "$here/crds.yaml"; do
        # Kubernetes 1.20 drops unknown fields.
        [ ! -e "$crd" ] || kubectl_ create --validate=false -f "$crd" >/dev/null
    done
    kubectl_ wait --for=condition=Established --timeout=120s crd --all >/dev/null
    kubectl_ create -f "$here/cluster.yaml" >/dev/null
    start fake-kubevirt "$root/target/debug/examples/fake-kubevirt" "$state/admin.kubeconfig"
    until_ 120 kubectl_ get --raw /apis/subresources.kubevirt.io/v1/version ||
        die "virt-api is not served; see $state/fake-kubevirt.log"
    touch "$state/ready"
    say "up in namespace $NS after $SECONDS s; kubeconfig $state/admin.kubeconfig"
}

stop() {
    finish fake-kubevirt kube-controller-manager kube-apiserver etcd
    if ip netns list 2>/dev/null | grep -q "^$NS\b"; then ip netns delete "$NS"; fi
    rm -rf "$state"
}

# Creates the rules from the documentation, unchanged, in the tenant's namespace.
tenant() {
    local name=$1 token
    kubectl_ create namespace "$name" >/dev/null
    kubectl_ -n "$name" create serviceaccount ocpdeploy >/dev/null
    sed -n '/^```yaml$/,/^```$/p' "$root/docs/how-to/kubevirt.md" | sed -e 's/^```yaml$/---/' -e '/^```$/d' \
        -e "s/namespace: mine/namespace: $name/" -e "s/name: someone/name: system:serviceaccount:$name:ocpdeploy/" |
        kubectl_ create -f - >/dev/null
    local role
    for role in $(kubectl_ -n "$name" get roles -o name); do
        kubectl_ -n "$name" create rolebinding "${role##*/}" --role "${role##*/}" --serviceaccount "$name:ocpdeploy" >/dev/null
    done
    sed "s/namespace: mine/namespace: $name/" "$here/tenant.yaml" | kubectl_ create -f - >/dev/null
    # The controller creates the token. It is valid only while its Secret exists.
    token=$(inside env NAME="$name" KUBECONFIG="$state/admin.kubeconfig" HOME="$state" bash -c '
        for _ in {1..300}; do
            secret=$(kubectl -n "$NAME" get serviceaccount ocpdeploy -o "jsonpath={.secrets[0].name}")
            [ -z "$secret" ] || token=$(kubectl -n "$NAME" get secret "$secret" -o "jsonpath={.data.token}" | base64 -d)
            [ -z "${token-}" ] || { echo "$token"; exit 0; }
            sleep 0.2
        done
        exit 1') || die "the service account of $name got no token"
    kubeconfig "$state/$name.kubeconfig" "$name" "{\"token\": \"$token\"}"
}

crash() {
    finish kube-apiserver
    sleep "$1"
    apiserver
    until_ 120 kubectl_ get --raw /readyz || die "the API server did not restart"
}

case ${1-} in
up) up ;;
down) stop; say "is down" ;;
exec) shift; KUBECONFIG="$state/admin.kubeconfig" inside "$@" ;;
tenant) tenant "$2" ;;
crash) crash "$2" ;;
status) [ -e "$state/ready" ] && runs kube-apiserver || exit 3 ;;
*) usage >&2; exit 2 ;;
esac
