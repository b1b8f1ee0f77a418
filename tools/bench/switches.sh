# Sources everything that a measurement of switches needs: rig, generators, one file a switch.
for file in rig generators cost taut ovs vhost bridge; do . "$here/tools/bench/$file.sh"; done
unset file
