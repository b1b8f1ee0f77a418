# shellcheck shell=sh
# Virtual functions of an emulated igb (82576) behind an emulated IOMMU: made, handed to a VM, and
# given back. The VM stays in its firmware; frames.sh has one that sends frames.

diagnose() { taut pnic show eth0; taut events; cat /tautd.log; state; cat /proc/interrupts; }
card=$(cd /sys/class/net/eth0/device && pwd -P)
number() { [ "$(cat "$card/sriov_numvfs")" = "$1" ]; }
driver() { (cd "$1/driver" 2>/dev/null && basename "$(pwd -P)"); }
# All PCI devices with their drivers, the settings of the card, its interrupts, the interfaces.
state() {
  for device in /sys/bus/pci/devices/*; do echo "$device $(driver "$device") $(cat "$device/driver_override")"; done
  cat "$card"/sriov_*
  grep -c eth0 /proc/interrupts
  set -- "$card"/msi_irqs/*
  echo $#
  ls /sys/class/net /dev/vfio
  for option in "" -g -c -k -l; do ethtool ${option:+"$option"} eth0; done
}
as_before() { [ "$(state)" = "$before" ]; }
address() { (cd "$card/virtfn$1" && basename "$(pwd -P)"); }
has() { [ "$(driver "$card/virtfn$1")" = "$2" ]; }
alone() { [ "$(ls "$card/virtfn$1/iommu_group/devices")" = "$(address "$1")" ]; }
qemu() { ps -C qemu-system-x86_64 -o pid= | tr -d ' '; }
holds_device() { grep -q "vfio" /proc/"$(qemu)"/maps; }
refuses() { ! taut pnic set eth0 "$1" "$2" >/said 2>&1 && grep -q "$3" /said; }
has_no_ledger() { ! ls /var/lib/taut/host-changes.json 2>/dev/null; }
start() { tautd >>/tautd.log 2>&1 & daemon=$!; }

ip link set eth0 up
start
fact "the daemon answers" taut host show
fact "the card has no virtual functions" number 0
before=$(state)
fact "more than it can have are refused" refuses --vfs 9 "vfs of .eth0. cannot be 9: the card has 0 to 7"
taut pnic set eth0 --vfs 2
fact "two are made" number 2
fact "the kernel drives them" has 0 igbvf
fact "the IOMMU isolates each" alone 0
fact "the other one, too" alone 1
taut pnic show eth0 >/said
fact "their addresses are shown" grep -q "$(address 0), $(address 1)" /said

printf x >/disk
cat >/vm.toml <<VM
name = "fw"
memory = "64MiB"
memory_reservation = "full"
[disk]
path = "/disk"
[[passthrough]]
address = "$(address 0)"
VM
taut vm create -f /vm.toml && taut vm start fw
fact "a VM has one" has 0 vfio-pci
fact "its process holds the device" holds_device
fact "the host has the other one" has 1 igbvf
fact "a function of a VM is not removed" refuses --vfs 3 "virtual function $(address 0) is in use: a VM has it"
fact "nothing was changed" number 2
taut pnic set eth0 --vfs 2
kill -9 $daemon
fact "the death of the daemon changes nothing" has 0 vfio-pci
start
fact "nor does the next one" taut host show
fact "the VM still has it" holds_device
taut vm stop fw --force
fact "it is the host's again" has 0 igbvf
taut vm delete fw

kill -9 $daemon
fact "they outlive the daemon" number 2
start
fact "another daemon answers" taut host show
taut pnic reset eth0
fact "everything is as before" as_before
fact "nothing is left to be undone" has_no_ledger

taut pnic set eth0 --vfs 1
fact "one is made" number 1
taut pnic set eth0 --vfs 0
fact "none is left" number 0
taut pnic set eth0 --vfs 2
taut vm create -f /vm.toml
taut vm start fw >/said 2>&1 &
# The daemon dies when it has taken the device, about when QEMU begins.
until has 0 vfio-pci; do sleep 0.02; done
kill -9 $daemon
start
fact "a daemon answers after a kill in the middle of a start" taut host show
fact "a VM has one again" holds_device
taut shutdown --everything
fact "the end of everything gives all of it back" as_before
echo "finished"
