# Nodes of a cluster: namespaces, containerd, kubelet, kube-proxy. Sourced by
# `up`.
#
# A switch namespace joins them by a bridge; node I is 10.77.0.(10+I), its pods
# are 10.88.I.0/24. Nothing answers at the default route.
# shellcheck shell=bash disable=SC2154

node_address() { echo "10.77.0.$((10 + $1))"; } # NODE

make_network() {
  local i j
  ip netns add "$tag-switch"
  ip -n "$tag-switch" link add bridge0 type bridge
  ip -n "$tag-switch" link set bridge0 up
  for ((i = 1; i <= nodes; ++i)); do
    ip netns add "$tag-n$i"
    ip -n "$tag-n$i" link set lo up
    ip -n "$tag-switch" link add "n$i" type veth \
      peer name eth0 netns "$tag-n$i"
    ip -n "$tag-switch" link set "n$i" master bridge0 up
    ip -n "$tag-n$i" address add "$(node_address "$i")/24" dev eth0
    ip -n "$tag-n$i" link set eth0 up
    ip -n "$tag-n$i" route add default via 10.77.0.1
  done
  for ((i = 1; i <= nodes; ++i)); do
    for ((j = 1; j <= nodes; ++j)); do
      ((i == j)) || ip -n "$tag-n$i" route add "10.88.$j.0/24" \
        via "$(node_address "$j")"
    done
  done
}

# The node's root cgroup, in every hierarchy that this machine has.
make_cgroups() { # NODE
  local root=/sys/fs/cgroup name=$tag-n$1 folder controller
  if [[ ! -e $root/cgroup.controllers ]]; then  # version 1
    for folder in "$root"/*/; do
      [[ -e $folder/cgroup.procs && ! -e $folder/cgroup.controllers ]] ||
        continue
      mkdir -p "$folder/$name"
      [[ ! -e $folder/cpuset.cpus ]] || for controller in cpus mems; do
        cat "$folder/cpuset.$controller" >"$folder/$name/cpuset.$controller"
      done
    done
    return
  fi
  # Version 2: controllers go to children only from a group without processes,
  # unless it is the machine's own root.
  if [[ -e $root/cgroup.type ]]; then
    mkdir -p "$root/init"
    while read -r pid; do
      echo "$pid" >"$root/init/cgroup.procs" 2>/dev/null || true
    done <"$root/cgroup.procs"
  fi
  mkdir -p "$root/$name"
  for folder in "$root" "$root/$name"; do
    for controller in $(cat "$root/cgroup.controllers"); do
      echo "+$controller" 2>/dev/null >"$folder/cgroup.subtree_control" || true
    done
  done
}

# Namespaces of a node, held open by a process of their own. Inside, kubelet
# finds the three sysctls that it checks at its own values, so that it leaves
# the machine's alone.
make_node() { # NODE
  local folder=$work/n$1
  mkdir -p "$folder"/{cni,netns,shims,pods,containers}
  make_cgroups "$1"
  cat >"$folder/enter" <<ENTER
set -e
mount --make-rshared /
hostname n$1
sysctl_is() {
  echo \$2 >$folder/sysctl.\${1##*/}
  mount --bind $folder/sysctl.\${1##*/} /proc/sys/\$1
}
sysctl_is vm/overcommit_memory 1
sysctl_is kernel/panic 10
sysctl_is kernel/panic_on_oops 1
echo 1 >/proc/sys/net/ipv4/ip_forward
mkdir -p /run/netns /run/containerd /var/log/pods /var/log/containers
mount --bind $folder/netns /run/netns
mount --bind $folder/shims /run/containerd
mount --bind $folder/pods /var/log/pods
mount --bind $folder/containers /var/log/containers
touch $folder/ready
exec -a "node $1 of $work" sleep infinity
ENTER
  # mount and UTS namespaces begin here; the network's is there already.
  printf '%s\0' nsenter "--net=/run/netns/$tag-n$1" unshare --mount --uts \
    --propagation private bash "$folder/enter" >"$work/run/node$1.cmd"
  start_again "node$1"
  wait_for 10 "namespaces of node $1" "node$1" test -e "$folder/ready"
}

start_node() { # NODE
  local i=$1 folder=$work/n$1
  write_containerd_config "$folder" "$i"
  start "containerd$i" "$i" containerd -c "$folder/containerd.toml"
  wait_for 30 "containerd of node $i" "containerd$i" test -S "$folder/c.sock"
  "$here/load" "$work" "$bin/pause.tar" "$i"
  write_kubelet_config "$folder" "$i"
  start "kubelet$i" "$i" "$bin/kubelet" --config="$folder/kubelet.yaml" \
    --kubeconfig="$work/n$i.conf" --hostname-override="n$i" \
    --node-ip="$(node_address "$i")" --root-dir="$folder/kubelet" \
    --cert-dir="$folder/certificates"
  write_proxy_config "$folder" "$i"
  start "kube-proxy$i" "$i" "$bin/kube-proxy" --config="$folder/proxy.yaml"
}

# containerd 1.6 or later (configuration version 2 is read by all). Without
# CAP_SYS_RESOURCE nobody's OOM score may be lowered.
write_containerd_config() { # FOLDER NODE
  cat >"$1/containerd.toml" <<TOML
version = 2
root = "$1/containerd"
state = "$1/run"
oom_score = 0
[grpc]
  address = "$1/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$1/cni"
TOML
  # ptp, not bridge: every packet between pods passes the node's own network,
  # so Services answer pods of the same node without bridge netfilter.
  cat >"$1/cni/10-pods.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {
    "type": "host-local", "dataDir": "$1/ipam",
    "ranges": [[{"subnet": "10.88.$2.0/24"}]],
    "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
JSON
}

write_kubelet_config() { # FOLDER NODE
  echo "nameserver 127.0.0.1" >"$1/resolv.conf"
  cat >"$1/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $work/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $work/pki/n$2.crt
tlsPrivateKeyFile: $work/pki/n$2.key
containerRuntimeEndpoint: unix://$1/c.sock
cgroupDriver: cgroupfs
cgroupRoot: /$tag-n$2
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
protectKernelDefaults: true
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: $1/resolv.conf
podLogsDir: $1/podlogs
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
evictionHard:
  memory.available: 200Mi
  nodefs.available: 1%
  imagefs.available: 1%
maxPods: 200
nodeStatusUpdateFrequency: 4s
YAML
}

# Conntrack's limits belong to the machine: zero leaves them alone.
write_proxy_config() { # FOLDER NODE
  cat >"$1/proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $work/proxy.conf}
hostnameOverride: n$2
mode: nftables
clusterCIDR: 10.88.0.0/16
oomScoreAdj: 0
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
YAML
}
