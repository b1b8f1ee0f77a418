# DP9: a private network behind a firewall VM (Debian's kernel with nftables), with intruders on
# every kind of port in it: sniffing, forged addresses, stacked tags, foreign ARP, random frames.
# The test of the same name does it, with a given number of frames.
row_DP9() {
  local frames=1000000 log=$OUT/dp9.log line name value
  quick && { frames=20000; note "shortened: $frames frames of each intruder instead of 1000000"; }
  (cd "$here" && TAUT_BIN=$BIN TAUT_IMAGES=$IMAGES TAUT_ISOLATION_FRAMES=$frames \
    cargo test -q -p taut-tests --test guest isolation -- --nocapture --include-ignored) >"$log" 2>&1 || note "the test failed: $log"
  line=$(sed -n 's/^ISOLATION //p' "$log")
  [ -n "$line" ] || { tail "$log"; return 1; }
  local ports=0 sent=0 outside=1 neighbours=1 inside=1 sniffed=1
  for value in $line; do
    name=${value%%=*}
    case $name in ports | sent | outside | neighbours | inside | sniffed) local "$name=${value#*=}" ;; esac
  done
  note "$line"
  goal DP9 "$sent frames from each of $ports ports: $outside seen outside, $neighbours in other VLANs; $inside of outside's and $sniffed of others' seen by intruders" \
    "none seen$(quick || echo ", 1000000 frames")" "$sent >= $frames && $outside + $neighbours + $inside + $sniffed == 0"
}
