# Row DP14: the machine's other state, in which a cache line takes five times as long between the
# cores. It comes and goes by itself.
row_DP14() {
  dp_rig
  local generator size rate floor
  generator=$(dp_light) state=far
  for size in 64 256 1518; do
    # Uses samples that other rows have taken, or tries once more.
    [ "$(count "taut $generator one-way $size")" -gt 0 ] && [ "$(count "vhost $generator one-way $size")" -gt 0 ] \
      || { sample "taut $generator one-way $size" && sample "vhost $generator one-way $size" || return 1; }
    rate=$(figure "taut $generator one-way $size" .mpps) floor=$(figure "vhost $generator one-way $size" .mpps)
    if [ -n "$rate" ] && [ -n "$floor" ]; then
      goal "DP14-$size" "$rate Mpps, vhost floor $floor, ratio $(ratio "$rate" "$floor") (far)" ">= 1.00" "$rate >= $floor"
    else
      goal "DP14-$size" "not seen: the machine was near whenever it was measured" ">= 1.00" 0
    fi
  done
}
