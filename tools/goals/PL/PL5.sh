# Row PL5: settings that cannot be honoured are refused in one sentence with amounts, and a hint;
# all refusals are printed. No VM is started for them. What this host cannot show itself (a taken
# SMT sibling) is asked of the plan for a described host; `cargo test -p taut-plan passthrough`
# covers devices and IOMMU groups.
row_PL5() {
  local said=0 wanted=0 cpus memory
  start_daemon || return 1
  taut vswitch create sw && taut portgroup create lan --vswitch sw || return 1
  cpus=$(taut -o json host show | jq '.cpus | length') memory=$(($(taut -o json host show | jq -r .memory_total | numfmt --from=auto --suffix=B 2>/dev/null | tr -d B || echo 0) >> 20))
  [ "$memory" -gt 0 ] || memory=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
  : >"$OUT/pl5.txt"
  pl5_refuses "memory that is not reserved" "128MiB" 1 'memory_reservation = "64MiB"' 'latency_sensitivity = "high"'
  pl5_refuses "not enough unreserved memory" "$((memory / 2 * 2 + 1024))MiB" 1 'memory_reservation = "full"'
  pl5_refuses "the host's last pCPU" 128MiB "$cpus" 'memory_reservation = "full"' 'latency_sensitivity = "high"' '[cpu]' 'reservation = "full"'
  printf 'kind = "micro"\nmemory = "64MiB"\n[cpu]\nreservation = "full"\n' >"$lab/promised.toml"
  taut vm create -f "$lab/promised.toml" --name promised >/dev/null && taut vm start promised >/dev/null || return 1
  pl5_refuses "an over-committed host" 128MiB "$((cpus - 1))" 'memory_reservation = "full"' 'latency_sensitivity = "high"' '[cpu]' 'reservation = "full"'
  pl5_refuses "pass-through with shaping" 128MiB 1 'memory_reservation = "full"' '[[passthrough]]' 'address = "0000:3b:00.1"' 'shaping = { to_guest = { average = "100 Mbps" } }'
  pl5_refuses "pass-through without reserved memory" 128MiB 1 '[[passthrough]]' 'address = "0000:3b:00.1"'
  pl5_refuses "pass-through of a device that is not there" 128MiB 1 'memory_reservation = "full"' '[[passthrough]]' 'address = "0000:3b:00.1"' 
  (cd "$here" && cargo run -q -p taut-plan --example smt_refusal) >"$lab/refused" 2>"$OUT/pl5-smt.log"
  pl5_counts "an SMT sibling that is taken"
  goal PL5 "$said of $wanted refusals are a sentence with numbers and a hint" "all" "$said == $wanted"
}

# pl5_refuses WHAT MEMORY VCPUS LINES…: expects that a QEMU VM of that kind is refused when it is
# created or started.
pl5_refuses() {
  local what=$1 file=$lab/refused.toml
  printf 'memory = "%s"\nvcpus = %s\n' "$2" "$3" >"$file"
  shift 3
  printf '%s\n' "$@" | sed -n '/^\[/q;p' >>"$file"
  printf '[boot]\nkernel = "/proc/version"\n' >>"$file"
  printf '%s\n' "$@" | sed -n '/^\[/,$p' >>"$file"
  if taut vm create -f "$file" --name refused >/dev/null 2>"$lab/refused" && taut vm start refused >/dev/null 2>"$lab/refused"; then
    echo "it was not refused" >"$lab/refused"
    taut vm stop --force refused >/dev/null
  fi
  taut vm delete refused >/dev/null 2>&1 || true
  pl5_counts "$what"
}

pl5_counts() {
  wanted=$((wanted + 1))
  if grep -q '^hint: ' "$lab/refused" && grep -v '^hint: ' "$lab/refused" | grep -q '[0-9]'; then said=$((said + 1)); fi
  { echo "$1:"; sed 's/^/  /' "$lab/refused"; } | tee -a "$OUT/pl5.txt" | while IFS= read -r line; do note "$line"; done
}
