# Certificates and kubeconfigs of a cluster. Sourced by `up`.
# shellcheck shell=bash disable=SC2154

make_ca() { # NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
    -days 30 -keyout "$1.key" -out "$1.crt" -subj "/CN=$1" 2>/dev/null
}

make_certificate() { # NAME SUBJECT [CA [ALTERNATIVE-NAMES]]
  local ca=${3:-ca}
  {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
      -keyout "$1.key" -out "$1.csr" -subj "$2"
    openssl x509 -req -in "$1.csr" -CA "$ca.crt" -CAkey "$ca.key" \
      -CAcreateserial -days 30 -out "$1.crt" -extfile <(
        echo "extendedKeyUsage=serverAuth,clientAuth"
        [[ -z ${4:-} ]] || echo "subjectAltName=$4")
  } 2>/dev/null
}

make_kubeconfig() { # NAME
  cat >"$work/$1.conf" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: e2e
  cluster:
    server: "https://$host:$api_port"
    certificate-authority: $work/pki/ca.crt
users:
- name: $1
  user: {client-certificate: $work/pki/$1.crt, client-key: $work/pki/$1.key}
contexts:
- name: e2e
  context: {cluster: e2e, user: $1}
current-context: e2e
YAML
}

make_user() { # NAME SUBJECT
  make_certificate "$1" "$2"
  make_kubeconfig "$1"
}

make_certificates() {
  cd "$work/pki"
  make_ca ca
  make_ca front-proxy-ca
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  local service=DNS:kubernetes.default
  make_certificate apiserver /CN=kube-apiserver ca "IP:127.0.0.1,IP:$host,\
IP:10.96.0.1,DNS:localhost,DNS:kubernetes,$service,$service.svc,\
$service.svc.cluster.local"
  make_certificate apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
  make_certificate front-proxy /CN=front-proxy-client front-proxy-ca
  make_user admin /O=system:masters/CN=admin
  make_user controller-manager /CN=system:kube-controller-manager
  ((nodes + simulated == 0)) ||
    make_user scheduler /CN=system:kube-scheduler
  if ((nodes > 0)); then
    make_user proxy /CN=system:kube-proxy
    make_user dns /CN=cluster-dns
  fi
  local i
  for ((i = 1; i <= nodes; ++i)); do
    make_certificate "n$i" "/O=system:nodes/CN=system:node:n$i" ca \
      "DNS:n$i,IP:$(node_address "$i")"
    make_kubeconfig "n$i"
  done
  cd - >/dev/null
}
