# etcd, kube-apiserver, kube-controller-manager, kube-scheduler. Sourced by
# `up`. They run on node 1, or on loopback when there is no node ($place).
# shellcheck shell=bash disable=SC2154

# Ports that nobody listens on now, all different.
free_ports() { # COUNT
  python3 - "$1" <<'PY'
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0))
           for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in sockets))
PY
}

kubectl=("$here/in" "$work" kubectl)

# Who wrote what, for scenarios that promise silence. Reads are not recorded.
write_audit_policy() {
  cat >"$work/audit.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  userGroups: ["system:nodes", "system:masters"]
- level: None
  users: ["system:kube-controller-manager", "system:kube-scheduler"]
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Metadata
YAML
}

# Thousands of simulated pods are not to wait for clients' own limits.
fast_clients=() lost_node_seconds=16
((simulated == 0)) || {
  fast_clients=(--kube-api-qps=1000 --kube-api-burst=2000)
  lost_node_seconds=600  # a busy machine is no reason to evict thousands
}

start_control_plane() {
  local etcd=http://127.0.0.1:$etcd_port
  start etcd "$place" "$bin/etcd" --data-dir "$work/etcd" \
    --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
    --listen-peer-urls "http://127.0.0.1:$peer_port" --unsafe-no-fsync \
    --log-level warn
  write_audit_policy
  local loopback_only=()
  # A loopback address may not be an endpoint of the kubernetes Service.
  ((nodes > 0)) || loopback_only=(--endpoint-reconciler-type=none)
  start kube-apiserver "$place" "$bin/kube-apiserver" \
    --etcd-servers="$etcd" \
    --advertise-address="$host" --bind-address="$host" \
    --secure-port="$api_port" \
    --service-cluster-ip-range=10.96.0.0/16 \
    --authorization-mode=Node,RBAC \
    --enable-admission-plugins=NodeRestriction \
    --default-not-ready-toleration-seconds=20 \
    --default-unreachable-toleration-seconds=20 \
    --audit-policy-file="$work/audit.yaml" \
    --audit-log-path="$work/log/audit.log" \
    --client-ca-file="$work/pki/ca.crt" \
    --tls-cert-file="$work/pki/apiserver.crt" \
    --tls-private-key-file="$work/pki/apiserver.key" \
    --kubelet-client-certificate="$work/pki/apiserver-kubelet.crt" \
    --kubelet-client-key="$work/pki/apiserver-kubelet.key" \
    --kubelet-certificate-authority="$work/pki/ca.crt" \
    --kubelet-preferred-address-types=InternalIP \
    --service-account-key-file="$work/pki/sa.pub" \
    --service-account-signing-key-file="$work/pki/sa.key" \
    --service-account-issuer=https://kubernetes.default.svc \
    --requestheader-client-ca-file="$work/pki/front-proxy-ca.crt" \
    --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User \
    --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$work/pki/front-proxy.crt" \
    --proxy-client-key-file="$work/pki/front-proxy.key" \
    --enable-aggregator-routing=true \
    "${loopback_only[@]}"
  wait_for 60 "the API server's readiness" kube-apiserver \
    "${kubectl[@]}" get --raw /readyz
  # Scenarios wait for it: a node is lost after 16 s, not 50, and autoscalers
  # look every 5 s, not 15.
  start kube-controller-manager "$place" "$bin/kube-controller-manager" \
    --kubeconfig="$work/controller-manager.conf" \
    --root-ca-file="$work/pki/ca.crt" \
    --service-account-private-key-file="$work/pki/sa.key" \
    --use-service-account-credentials=true \
    --cluster-signing-cert-file="$work/pki/ca.crt" \
    --cluster-signing-key-file="$work/pki/ca.key" \
    --allocate-node-cidrs=false --leader-elect=false \
    --bind-address=127.0.0.1 --secure-port="$manager_port" \
    --node-monitor-period=2s --node-monitor-grace-period="${lost_node_seconds}s" \
    --horizontal-pod-autoscaler-sync-period=5s "${fast_clients[@]}"
  # Pods are refused until their namespace has its account.
  wait_for 60 "the default service account" kube-controller-manager \
    "${kubectl[@]}" -n default get serviceaccount default
}

start_scheduler() {
  start kube-scheduler "$place" "$bin/kube-scheduler" \
    --kubeconfig="$work/scheduler.conf" --leader-elect=false \
    --bind-address=127.0.0.1 --secure-port="$scheduler_port" \
    "${fast_clients[@]}"
}

# Nodes without kubelets: kwok plays them. All they have is this machine's
# address, where nothing answers, so that no call to a pod leaves it.
start_simulated_nodes() {
  local address
  address=$(hostname -I | awk '{print $1}')
  start kwok - "$bin/kwok" --kubeconfig="$work/admin.conf" \
    --config="$here/simulated_kubelet.yaml" --manage-all-nodes=true \
    --node-ip="${address:-127.0.0.1}" --node-lease-duration-seconds=40 \
    --server-address="127.0.0.1:$kwok_port"
  local i
  for ((i = 1; i <= simulated; ++i)); do
    sed "s/NAME/n$i/" "$here/simulated_node.yaml"
  done | "${kubectl[@]}" apply -f - >/dev/null
  wait_for 120 "readiness of every simulated node" kwok \
    "${kubectl[@]}" wait --for=condition=Ready nodes --all --timeout=5s
}

# Cluster DNS beside the control plane: Service and EndpointSlice lead there.
start_dns() {
  cat >"$work/Corefile" <<COREFILE
.:53 {
  bind $host
  errors
  ready $host:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $work/dns.conf
    pods insecure
  }
  cache 30
}
COREFILE
  "${kubectl[@]}" apply -f "$here/dns.yaml" >/dev/null
  start coredns "$place" "$bin/coredns" -conf "$work/Corefile"
  wait_for 60 "cluster DNS" coredns \
    "$here/in" "$work" curl -fsS "http://$host:8181/ready"
}

wait_for_nodes() {
  wait_for 60 "readiness of every node" kubelet1 \
    "${kubectl[@]}" wait --for=condition=Ready nodes --all --timeout=5s
}
