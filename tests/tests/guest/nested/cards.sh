# shellcheck shell=sh
# Settings of an emulated e1000e, whose driver is that of physical cards. ethtool(8) is the witness.

diagnose() { taut pnic show eth0; taut events; cat /tautd.log; state; }
state() { for option in "" -g -c -k; do ethtool ${option:+"$option"} eth0; done; }
as_before() { [ "$(state)" = "$before" ]; }
as_set() { [ "$(state)" = "$set" ]; }
# Is this the value of a name in what ethtool says, the last one if there are several?
has() { [ "$(ethtool ${1:+"$1"} eth0 | sed -n "s/^[[:space:]]*$2:[[:space:]]*//p" | sed -n '$p')" = "$3" ]; }
# Is this in what ethtool says of the modes that the card offers to the other end?
offers() { ethtool eth0 | sed -n '/Advertised link modes/,/Advertised pause/p' | grep -q "$1"; }
offers_no() { ! offers "$1"; }
is_up() { taut pnic list | grep -q "eth0 .*e1000e .*up .*$1"; }
is_missed() { taut pnic list | grep -q "eth0 .*absent"; }
refuses() { ! taut pnic set eth0 "$1" "$2" 2>/said && grep -q "$3" /said; }
said() { grep -q "$1" /said; }
has_no_ledger() { ! ls /var/lib/taut/host-changes.json 2>/dev/null; }
start() { tautd >>/tautd.log 2>&1 & daemon=$!; }

ip link set eth0 up
start
fact "the daemon answers" taut host show
fact "the card has a link" is_up none
fact "its speed is known" has "" Speed 1000Mb/s
before=$(state)

taut pnic set eth0 --rx-ring 512 --tx-ring 1024 --rx-usecs 50 --speed 100 --duplex full --offload tso=off
fact "the receive ring is set" has -g RX 512
fact "the transmit ring is set" has -g TX 1024
fact "moderation is set" has -c rx-usecs 50
fact "segmentation is off" has -k tcp-segmentation-offload off
fact "one speed is offered" offers 100baseT/Full
fact "and no other" offers_no 1000baseT
fact "the link is up again" is_up "speed 100, duplex full"
set=$(state)
kill -9 $daemon
fact "the death of the daemon changes nothing" as_set
start
fact "nor does the next one" as_set

path=$(cd /sys/class/net/eth0/device && pwd -P)
echo 1 >"$path/remove"
fact "a card that was removed is missed" is_missed
echo 1 >/sys/bus/pci/rescan
fact "it comes back" ip link set eth0 up
fact "it is set again" as_set
fact "a ring beyond the maximum is refused" refuses --rx-ring 5000 "cannot be 5000: the card has 1 to 4096"
fact "a speed that it lacks is refused" refuses --speed 2500 "10 half, 10 full, 100 half, 100 full, 1000 full"
fact "a size that the driver rounds is told" refuses --rx-ring 500 "the card makes 504 of 500"
taut pnic reset eth0
fact "everything is as before" as_before
fact "nothing is left to be undone" has_no_ledger

taut check host --apply >/dev/null 2>/said
fact "the check turns moderation off" said "changed: eth0 rx-usecs: 3 → 0"
fact "it is off" has -c rx-usecs 0
taut pnic set eth0 --rx-usecs 20
fact "a setting of the daemon prevails" has -c rx-usecs 20
taut check host --apply >/dev/null 2>/said
fact "the check says so" said "not changed while settings of taut pnic hold it: eth0 rx-usecs"
taut pnic reset eth0
fact "then the check's own is in force again" has -c rx-usecs 0
taut check host --undo >/said
fact "the check gives it back" said "given back: eth0 rx-usecs: 0 → 3"
fact "everything is as before, again" as_before
taut pnic set eth0 --rx-ring 512
taut shutdown --everything
fact "the end of everything gives it back" as_before
echo "finished"
