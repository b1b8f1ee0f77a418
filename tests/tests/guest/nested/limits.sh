# shellcheck shell=sh
# Limits of VMs' processes with cgroup v2. A script in QEMU's place goes over the limit that the
# name of its VM says.

diagnose() { taut events; taut vm list; ls -d /sys/fs/cgroup/taut.vm.*; cat /tautd.log; }
group() { echo /sys/fs/cgroup/taut.vm."$1".*; }
holds() { [ "$(cat "$(group "$1")/$2")" = "$3" ]; }
told() { taut events | grep -q "vm/$1 .*$2"; }
lives() { [ -n "$(cat "$(group "$1")/cgroup.procs")" ]; }
runs() { taut vm list | grep -q "$1 .*running"; }
no_group() { ! ls -d /sys/fs/cgroup/taut.vm."$1".* 2>/dev/null; }

mkdir -p /stand-in/bin
cat >/stand-in/bin/qemu-system-x86_64 <<'QEMU'
#!/bin/sh
if [ "$1" = --version ]; then echo "QEMU emulator version 10.0.2"; exit; fi
case $TAUT_RUN_DIR in
*/memory) exec sed p /dev/zero ;;
*/processes) (i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i + 1)); done); exec sleep 1000 ;;
esac
exit 1
QEMU
chmod 755 /stand-in/bin/qemu-system-x86_64
PATH=/stand-in/bin:$PATH tautd >/tautd.log 2>&1 &
fact "the daemon answers" taut host show
printf x >/disk
printf 'memory = "64MiB"\n[disk]\npath = "/disk"\n' >/vm.toml
printf 'kind = "micro"\nmemory = "64MiB"\n' >/micro.toml
taut vm create -f /micro.toml --name neighbour && taut vm start neighbour
fact "a neighbour runs" runs neighbour
# 64 MiB of the guest, 1 for page tables, 4 for its vCPU, 256 for the program.
fact "it has a memory limit" holds neighbour memory.max 340787200
fact "and a process limit" holds neighbour pids.max 81
fact "its processes are ended together" holds neighbour memory.oom.group 1
fact "its swap is limited" holds neighbour memory.swap.max 340787200
neighbour=$(cat "$(group neighbour)/cgroup.procs")

taut vm create -f /vm.toml --name processes && taut vm start processes
fact "an event names the process limit" told processes "process limit: 81 processes and threads"
fact "the VM goes on" lives processes
taut vm stop --force processes
fact "its group goes with it" no_group processes
taut vm create -f /vm.toml --name memory && taut vm start memory
fact "an event names the memory limit" told memory "memory limit of 417MiB"
fact "its group is gone" no_group memory
fact "the neighbour is the same process" holds neighbour cgroup.procs "$neighbour"
taut shutdown --everything
fact "no group is left" no_group neighbour
echo "finished"
