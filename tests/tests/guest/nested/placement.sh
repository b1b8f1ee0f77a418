# shellcheck shell=sh
# Placement, shares and latency sensitivity on a host with two NUMA nodes and cgroup v2. Each line
# `ok …` or `not ok …` is one fact (fact.sh). The VM stays in its firmware, with all memory
# reserved, so that each page has a node.

pid() { ps -C qemu-system-x86_64 -o pid= | tr -d ' '; }
# Prints the pCPUs that vCPU $1 may run on.
vcpu() { for task in /proc/"$(pid)"/task/*; do grep -q "CPU $1/" "$task/comm" && sed -n 's/^Cpus_allowed_list:\t//p' "$task/status"; done; }
anywhere() { [ "$(others)" = 0-3 ]; }
others() { for task in /proc/"$(pid)"/task/*; do grep -q "CPU ./" "$task/comm" || sed -n 's/^Cpus_allowed_list:\t//p' "$task/status"; done | sort -u; }
may_run() { [ "$(vcpu 0) and $(vcpu 1)" = "$1" ]; }
memory() { grep memfd /proc/"$(pid)"/numa_maps; }
on_node() { memory | grep -q "dirty=16384 .*N$1=16384 "; }
group() { echo /sys/fs/cgroup/taut.vm.fw."$(pid)"; }
holds() { [ "$(cat "$(group)/$1")" = "$2" ]; }
explained() { taut vm explain fw | grep -q "$1"; }
state() { (cd /sys/fs/cgroup && ls -d ./*/ ./*/*/ 2>/dev/null; cat cpuset.cpus.effective cpuset.cpus.isolated cgroup.subtree_control; cat /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us); }
isolated() { [ "$(cat /sys/fs/cgroup/cpuset.cpus.isolated)" = "$1" ]; }
diagnose() { taut vm explain fw; state; }
as_before() { [ "$(state)" = "$before" ]; }
alone() { # pCPU $1: of all threads with memory of their own, only one may run there
  count=0
  for task in /proc/[0-9]*/task/*; do
    read -r _ <"$task/maps" || continue
    list=" $(sed -n 's/^Cpus_allowed_list:\t//p' "$task/status" | tr , ' ') "
    case $list in *" $1 "* | *" 0-3 "* | *"-$1 "* | *" $1-"*) count=$((count + 1)) ;; esac
  done
  [ $count = 1 ]
}

tautd >/tautd.log 2>&1 &
daemon=$!
fact "the daemon answers" taut host show
printf x >/disk
cat >/vm.toml <<'VM'
name = "fw"
vcpus = 2
memory = "64MiB"
memory_reservation = "full"
[disk]
path = "/disk"
VM
fact "it sees both nodes" sh -c 'taut host show | grep -q "2 NUMA nodes"'
before=$(state)
taut vm create -f /vm.toml && taut vm start fw
fact "the VM runs, its memory is allocated" sh -c 'grep memfd /proc/$(ps -C qemu-system-x86_64 -o pid= | tr -d " ")/numa_maps | grep -q dirty=16384'

# 64 MiB of the guest, 1 for page tables, 32 for each of two emulated vCPUs, 64 for translated code,
# 256 for the program, and 82 stacks of 8 MiB, which are locked.
fact "its process has a memory limit" holds memory.max 1158676480
fact "and a process limit" holds pids.max 82

taut vm set fw --cpu-affinity 3
fact "vCPUs run where their affinity says" may_run "3 and 3"
fact "other threads run anywhere" anywhere
taut vm set fw --cpu-affinity any
fact "and anywhere without one" may_run "0-3 and 0-3"

taut vm set fw --cpu-shares high --cpu-limit 500MHz
fact "shares are a weight" holds cpu.weight 400
fact "a limit is a bandwidth" sh -c "! grep -q max $(group)/cpu.max"
fact "reserved memory is kept" holds memory.min 67108864
taut vm set fw --cpu-shares normal --cpu-limit none
fact "the weight is the usual one" holds cpu.weight 200
fact "there is no limit" sh -c "grep -q '^max ' $(group)/cpu.max"

taut vm set fw --numa-nodes 0
fact "its memory is on node 0, wherever it began" on_node 0
taut vm set fw --numa-nodes 1 >/said 2>&1
fact "no restart is asked for" sh -c '! grep -q "next start" /said'
fact "vCPUs go to node 1" may_run "2-3 and 2-3"
fact "memory follows to node 1 while it runs" on_node 1
fact "and that is told" explained "of its memory were moved to node 1 while it runs"

taut vm set fw --numa-nodes any --cpu-affinity 1,3 --latency-sensitivity high --cpu-reservation full
# One request sets all of it: the first vCPU gets a pCPU of the node with more free cores.
fact "each vCPU owns a pCPU" may_run "3 and 1"
fact "the partition is isolated" holds vcpus/cpuset.cpus.partition isolated
fact "the kernel isolates both" isolated 1,3
fact "nobody else may run on pCPU 1" alone 1
fact "nobody else may run on pCPU 3" alone 3
kill -9 $daemon
fact "the daemon is dead" sh -c "! kill -0 $daemon"
fact "the VM keeps its pCPUs without a daemon" may_run "3 and 1"
tautd >/tautd2.log 2>&1 &
daemon=$!
fact "the next daemon answers" taut host show
fact "it goes on" explained "^latency sensitivity high (in force"
taut vm set fw --latency-sensitivity normal --cpu-affinity any --cpu-reservation none
fact "nothing is isolated any more" isolated ""
fact "vCPUs run anywhere again" may_run "0-3 and 0-3"
taut vm set fw --numa-nodes 0
fact "memory follows to node 0" on_node 0
taut vm stop fw --force 2>/dev/null
# Node 1 has less than 640 MiB: the kernel has taken some.
taut vm set fw --memory 640MiB --numa-nodes 1 && taut vm start fw
fact "a VM that is larger than its node starts" sh -c 'grep memfd /proc/$(ps -C qemu-system-x86_64 -o pid= | tr -d " ")/numa_maps | grep -q dirty=163840'
fact "most of its memory is on that node" sh -c '[ "$(grep memfd /proc/$(ps -C qemu-system-x86_64 -o pid= | tr -d " ")/numa_maps | sed "s/.* N1=//; s/ .*//")" -gt 100000 ]'
taut vm stop fw --force 2>/dev/null
fact "groups, partitions and C-states are as before" as_before
taut shutdown 2>/dev/null
echo "finished"
