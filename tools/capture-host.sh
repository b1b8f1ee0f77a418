#!/usr/bin/env bash
# capture-host.sh [FILE]: writes what `taut check host` reads of this machine to a text file, which
# the example `unpack` of taut-host turns into a folder. Only settings: no addresses, no host name,
# no names of processes but irqbalance.
set -u
out() {
  printf '# %s, Linux %s\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(uname -r | grep -oE "^[0-9.]+")"
  printf 'proc/sys/kernel/hostname: captured\n'
  printf 'proc/cpuinfo:\n'
  sed -n '/^model name/p; /^flags/{p;q}' /proc/cpuinfo | sed -E 's/^flags[^:]*:(.* hypervisor)?.*/flags\t\t:\1/; s/^(flags\t\t:).* hypervisor/\1 hypervisor/; s/^/  | /'
  local pid
  pid=$(pgrep -x irqbalance | head -1)
  if [ -n "$pid" ]; then printf 'proc/%s/comm: irqbalance\n' "$pid"; else printf 'proc/1/comm: %s\n' "init"; fi
  printf 'dev/cpu_dma_latency: hex %s\n' "$(od -An -tx1 -N4 /dev/cpu_dma_latency 2>/dev/null | tr -d ' \n')"
  [ -e /dev/kvm ] && printf 'dev/kvm:\n'
  printf "proc/sys/kernel/osrelease: %s\n" "$(uname -r | grep -oE "^[0-9.]+")"
  printf "proc/cmdline: %s\n" "$(grep -oE "\b((intel_idle|processor)\.max_cstate|idle|nohz|nohz_full|isolcpus|rcu_nocbs|mitigations|intel_iommu|amd_iommu|iommu|intel_pstate|amd_pstate|default_hugepagesz|hugepagesz|hugepages)=[^ ]*" /proc/cmdline | tr "\n" " ")"
  printf "proc/meminfo:\n"
  sed -n "/^Mem\(Total\|Available\):/s/^/  | /p" /proc/meminfo
  printf "etc/os-release: %s\n" "$(grep ^PRETTY_NAME= /etc/os-release)"
  local file text
  cd / || exit 1
  for file in proc/swaps proc/sys/kernel/{numa_balancing,nmi_watchdog,timer_migration} proc/sys/vm/{swappiness,zone_reclaim_mode} \
    proc/sys/net/core/busy_{read,poll} etc/tuned/active_profile sys/firmware/acpi/platform_profile{,_choices} sys/devices/cpu_{core,atom}/cpus \
    sys/devices/system/cpu/{online,nohz_full,isolated,smt/active,cpuidle/current_driver,intel_pstate/no_turbo,cpufreq/boost} sys/devices/system/cpu/vulnerabilities/* \
    sys/devices/system/cpu/cpu[0-9]*/{cpufreq/{scaling_driver,scaling_governor,scaling_available_governors,energy_performance_preference,energy_performance_available_preferences},power/{energy_perf_bias,pm_qos_resume_latency_us},topology/{core_id,physical_package_id},cpuidle/state*/{name,latency,disable},cache/index*/{level,shared_cpu_list}} \
    sys/devices/system/clocksource/clocksource0/{current,available}_clocksource sys/devices/system/node/online sys/devices/system/node/node*/{cpulist,meminfo} \
    sys/kernel/mm/ksm/run sys/kernel/mm/transparent_hugepage/{enabled,defrag} sys/kernel/mm/hugepages/*/{nr,free}_hugepages sys/module/pcie_aspm/parameters/policy \
    sys/module/kvm/parameters/halt_poll_ns sys/module/kvm_intel/parameters/enable_apicv sys/module/kvm_amd/parameters/avic sys/module/*/parameters/InterruptThrottleRate \
    sys/class/net/*/{device/uevent,device/sriov_totalvfs,carrier,gro_flush_timeout,napi_defer_hard_irqs,queues/rx-*/rps_cpus} sys/kernel/iommu_groups/*/type; do
    [ -r "$file" ] || continue
    # Interfaces without a device are bridges and tunnels, not NICs.
    [[ $file != sys/class/net/* || -e sys/class/net/$(cut -d/ -f4 <<<"$file")/device ]] || continue
    text=$(cat "$file" 2>/dev/null) || continue
    [[ $file != */meminfo ]] || text=$(grep MemTotal: <<<"$text")
    if [[ $text == *$'\n'* ]]; then printf '%s:\n  | %s\n' "$file" "${text//$'\n'/$'\n  | '}"; else printf '%s: %s\n' "$file" "$text"; fi
  done
}
if [ $# -gt 0 ]; then out >"$1"; else out; fi
