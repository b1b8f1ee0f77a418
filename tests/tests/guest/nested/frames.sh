# shellcheck shell=sh
# Frames through a virtual function of an emulated igb (82576): a VM with Linux has the function,
# and the other end of the card's cable, an e1000e in a namespace, reaches it. Two emulations are
# between the VM and the machine, so its kernel needs a minute or more.

diagnose() { taut pnic show eth1; taut events; taut vm log vf; cat /tautd.log; ip -n out neigh; cat /proc/interrupts; }
card=$(cd /sys/class/net/eth1/device && pwd -P)
number() { [ "$(cat "$card/sriov_numvfs")" = "$1" ]; }
has() { (cd "$card/virtfn0/driver" 2>/dev/null && [ "$(basename "$(pwd -P)")" = "$1" ]); }
interface() { ls "$card/virtfn0/net"; }
is_given_back() { has igbvf && interface; }
runs() { taut vm list | grep -q "vf .*running"; }
stopped() { ! runs; }
# Ten answers, however late.
passes() { ip netns exec "$1" ping -n -c 10 -i 0.2 -W 30 "$2" | grep -q " 10 received"; }
# The first answer of the VM within twenty minutes.
boots() { for _ in $(seq 400); do ip netns exec out ping -n -c 1 -W 2 10.77.0.2 >/dev/null && return; done; false; }
is_known() { ip -n out neigh show 10.77.0.2 | grep -q 02:11:00:00:00:07; }
start() { tautd >>/tautd.log 2>&1 & daemon=$!; }

ip netns add out
ip link set eth0 netns out
ip -n out addr add 10.77.0.1/24 dev eth0
ip -n out link set eth0 up
ip link set eth1 up
# The image's initrd, with the function's driver in place of its modules.
mkdir -p /more/modules
cp /modules/igbvf.ko /more/modules
echo igbvf.ko >/more/modules/order
(cd /more && printf 'modules/igbvf.ko\nmodules/order\n' | cpio --quiet -o -H newc) >/more.cpio
cat /files/initrd /more.cpio >/initrd

start
fact "the daemon answers" taut host show
taut pnic set eth1 --vfs 1
fact "a virtual function is made" number 1
fact "the kernel drives it" has igbvf
ip link set eth1 vf 0 mac 02:11:00:00:00:07
cat >/vm.toml <<VM
name = "vf"
memory = "128MiB"
memory_reservation = "full"
[boot]
kernel = "/files/vmlinuz"
initrd = "/initrd"
cmdline = "nokaslr nowatchdog taut.ip=02:11:00:00:00:07,10.77.0.2/24"
[[passthrough]]
address = "$(cd "$card/virtfn0" && basename "$(pwd -P)")"
VM
taut vm create -f /vm.toml && taut vm start vf
fact "a VM runs" runs
fact "it has the function" has vfio-pci
once "the other end of the cable reaches the VM" boots
fact "by the function's address" is_known
fact "frames pass in both directions" passes out 10.77.0.2
kill -9 $daemon
fact "they pass without a daemon" passes out 10.77.0.2
start
fact "the next daemon answers" taut host show
fact "the VM runs on" runs
fact "frames pass as before" passes out 10.77.0.2
taut vm stop vf --force
fact "the VM is stopped" stopped
fact "the function is the host's again" is_given_back

ip netns add back
ip link set "$(interface)" netns back name given
ip -n back addr add 10.77.0.3/24 dev given
ip -n back link set given up
fact "its frames pass as the host's" passes back 10.77.0.1
ip netns del back
fact "the function is free" interface
taut vm delete vf
taut shutdown --everything
fact "no function is left" number 0
echo "finished"
