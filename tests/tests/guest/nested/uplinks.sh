# shellcheck shell=sh
# Uplinks, cards and interfaces on port groups on a host with Debian 12's kernel: the tests of hosts
# run in it, then two namespaces reach the same switch by a team of two cables.

diagnose() { taut uplink show c1; taut port list; taut events; cat /tautd.log; ip -n out neigh; bridge -n out fdb; }
tests() { host --test-threads=1 "$1" | tee /tests.log && grep -q "^test result: ok. [1-9]" /tests.log; }
told() { taut uplink show "$1" | grep -q "$2"; }
said() { grep -q "$1" /said; }
lacks() { taut uplink show c1 | sed -n 's/^kernel lacks *//p' | grep -q "$1"; }
pings() { ip netns exec "$1" ping -n -c 5 -i 0.2 -W 1 "$2"; }
answers() { ip netns exec "$1" ping -n -c 1 -W 10 "$2"; }
learned_at() { [ "$(bridge -n out fdb show br br0 | grep -v permanent | grep -c "dev $1 vlan 10")" = 2 ]; }
reaches() { answers left 10.71.0.1 && answers right 10.71.0.1; }
cable() { # NUMBER STATE: the switch's end of a cable
  ip -n out link set "o$1" "$2"
}
state() { for card in c1 c2; do ip -d link show "$card"; tc qdisc show dev "$card"; tc filter show ingress dev "$card"; done | sed 's/promiscuity [0-9]*//; s/state [A-Z]*//'; }
as_before() { [ "$(state)" = "$before" ]; }

mount -t tmpfs tmp /tmp
export TAUT_BIN=/bin
ip link add own type veth peer name own2
ip addr add 192.0.2.1/24 dev own
ip link set own up
ip link set own2 up
once "the kernel is Debian 12's" grep "Linux version 6\.1\." /proc/version
once "tests of uplinks" tests uplink::
once "tests of teams" tests teams::
once "tests of interfaces on port groups" tests netdev::
once "tests of cards" tests pnic::

ip netns add out
ip -n out link add br0 type bridge vlan_filtering 1
ip -n out link set br0 up
for number in 1 2; do
  ip link add "c$number" type veth peer name "o$number" netns out
  ip -n out link set "o$number" master br0 up
  bridge -n out vlan add dev "o$number" vid 10
done
bridge -n out vlan add dev br0 vid 10 self
ip -n out link add link br0 name ten type vlan id 10
ip -n out addr add 10.71.0.1/24 dev ten
ip -n out link set ten up
ip link set c1 up
ip link set c1 down
ip link set c2 up
ip link set c2 down
before=$(state)

tautd >/tautd.log 2>&1 &
fact "the daemon answers" taut host show
taut vswitch create sw
taut portgroup create ten --vswitch sw --vlan 10
taut uplink add sw c1 >/said 2>&1
fact "an uplink works with what the kernel has" said "of vSwitch sw, link up"
fact "it lacks segmentation of UDP" lacks "segmentation of UDP .*(Linux 6.2): taut does it itself"
fact "it lacks headers of 12 bytes" lacks "headers of 12 bytes .*(Linux 6.4): nothing is lost"
taut uplink add sw c2 --backend xdp 2>/said
fact "an XDP socket is refused with the reason" said "lets no process map the rings .*(Linux before 6.4)"
taut uplink remove c2
taut uplink add sw c2
taut vswitch set sw --active c1 --standby c2
taut netns attach left --portgroup ten --ip 10.71.0.2/24
taut netns attach right --portgroup ten --ip 10.71.0.3/24
fact "a namespace reaches the outside in its VLAN" pings left 10.71.0.1
fact "so does the other one" pings right 10.71.0.1
fact "they reach each other" pings left 10.71.0.3
fact "the outside reaches a namespace" pings out 10.71.0.2
fact "the switch has learned them at the active uplink" learned_at o1

cable 1 down
fact "the loss of the carrier is told" told c1 "^link *down"
once "the standby uplink carries the frames at once" reaches
fact "the switch has learned them there" learned_at o2
cable 1 up
fact "the active uplink is back" told c1 "^link *up"
fact "the switch has learned them there, again" learned_at o1
fact "and they reach the outside" reaches

taut shutdown --everything
fact "the cards are as before" as_before
echo "finished"
