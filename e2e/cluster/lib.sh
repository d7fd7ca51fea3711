# Sourced by the scripts beside it. A cluster is a folder WORK:
#   WORK/run/NAME.cmd, .pid   its programs: command line (NUL-separated), id
#   WORK/log/NAME.log         what they print; survives `down`
#   WORK/admin.conf           the administrator's kubeconfig
#   WORK/pki, WORK/n1, …      certificates; one folder per node
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
script=e2e/cluster/$(basename "$0")

readonly no_nodes_here=77  # exit status
say() { echo "$script: $*" >&2; }
die() { say "$@"; exit 1; }

# The cluster's folder: an argument, or TIDEPOOL_E2E_WORK, or one per user.
# Unix sockets live in it, whose paths end at 107 bytes.
work_folder() { # [WORK]
  work=$(realpath -m "${1:-${TIDEPOOL_E2E_WORK:-${TMPDIR:-/tmp}/tidepool-e2e-$UID}}")
  ((${#work} <= 60)) || die "WORK must be a shorter path than $work"
  # Names of what lives outside WORK, distinct between clusters.
  tag=tp$(sha256sum <<<"$work" | cut -c 1-5)
}

need_cluster() {
  [[ -e $work/nodes ]] || die "no cluster in $work; run e2e/cluster/up"
  nodes=$(cat "$work/nodes")
}

# Whether this machine lets us make nodes; prints what stands in the way.
can_make_nodes() {
  local missing=() program
  ((EUID == 0)) || { echo "needs root (namespaces, mounts, cgroups)"; return 1; }
  for program in containerd ctr runc nft conntrack ip openssl nsenter unshare \
    gcc curl python3; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  [[ -x /usr/lib/cni/ptp ]] || missing+=(containernetworking-plugins)
  ((${#missing[@]} == 0)) || {
    echo "needs ${missing[*]} (scripts/setup --e2e)"; return 1; }
  unshare --mount --net --uts --propagation private \
    sh -c 'mount --make-rshared / && echo 1 >/proc/sys/net/ipv4/ip_forward' \
    2>/dev/null || { echo "may not make namespaces here"; return 1; }
  local probe
  for probe in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [[ ! -d $probe ]] || break
  done
  mkdir "$probe/$tag-probe" 2>/dev/null && rmdir "$probe/$tag-probe" ||
    { echo "may not make cgroups here"; return 1; }
}

# Whether program NAME of the cluster runs. Its command line names WORK, so a
# reused process id is not taken for it.
alive() { # NAME
  local pid
  pid=$(cat "$work/run/$1.pid" 2>/dev/null) || return 1
  grep -qzF -- "$work" "/proc/$pid/cmdline" 2>/dev/null
}

# Starts program NAME again with the command line it had.
start_again() { # NAME
  local command
  mapfile -d '' command <"$work/run/$1.cmd"
  "${command[@]}" >>"$work/log/$1.log" 2>&1 </dev/null &
  echo $! >"$work/run/$1.pid"
  disown
}

start() { # NAME NODE|- COMMAND...
  local name=$1 node=$2
  shift 2
  if [[ $node != - ]]; then
    set -- nsenter -t "$(cat "$work/run/node$node.pid")" -m -n -u \
      --wd="$work" "$@"
  fi
  printf '%s\0' "$@" >"$work/run/$name.cmd"
  start_again "$name"
}

# Ends a program: SIGTERM, and SIGKILL after 5 s.
stop() { # NAME
  local pid
  alive "$1" || return 0
  pid=$(cat "$work/run/$1.pid")
  kill -CONT "$pid" 2>/dev/null || true
  kill "$pid" 2>/dev/null || true
  for _ in {1..50}; do
    alive "$1" || return 0
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
}

# Polls a command until it succeeds; when it does not in time, or the program
# behind it has ended, says so with the end of the program's log.
wait_for() { # SECONDS WHAT PROGRAM COMMAND...
  local seconds=$1 what=$2 program=$3 end=$((SECONDS + $1)) why=
  shift 3
  until timeout 10 "$@" >"$work/log/wait" 2>&1; do
    # A command line is empty for a moment while a process turns into the next.
    if ! alive "$program" && sleep 0.5 && ! alive "$program"; then
      why="$program has ended"
    elif ((SECONDS >= end)); then
      why="not in $seconds s"
    else
      sleep 0.1
      continue
    fi
    say "$what: $why"
    { echo "--- the last try: $*"; tail -n 5 "$work/log/wait"
      echo "--- $work/log/$program.log:"; tail -n 15 "$work/log/$program.log"
    } >&2
    exit 1
  done
}
