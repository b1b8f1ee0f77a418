# Row VC-G10: clients on the host that were made for Firecracker and Cloud Hypervisor: socat both
# ways, a program that speaks the handshake itself, and SSH by a proxy command (with dropbear in the
# guest, if this system has it). The guest is Debian's kernel with this system's socat.
row_VC-G10() {
  local socket bytes=4000000 programs=(socat head sha256sum cut) got want ssh=
  command -v socat >/dev/null || { note "socat is not installed: tools/setup.sh test"; return 1; }
  [ -z "$(type -P dropbear)" ] || programs+=(mkdir "$(type -P dropbear)" "$(type -P dropbearkey)")
  [ -e "$BIN/libtaut_vmci.so" ] || (cd "$here" && cargo build -q --release -p taut-preload --lib) || return 1
  mkdir -p "$lab/g10"
  : >"$lab/g10/map"
  cat >"$lab/g10/script" <<'SH'
socat VSOCK-LISTEN:5000,fork,reuseaddr EXEC:cat &
if [ -e /bin/dropbear ]; then
  mkdir -p /etc/dropbear /root
  echo 'root::0:0:root:/root:/bin/sh' >/etc/passwd
  echo /bin/sh >/etc/shells
  dropbearkey -t ed25519 -f /etc/dropbear/key >/dev/null 2>&1
  socat VSOCK-LISTEN:22,fork,reuseaddr EXEC:'dropbear -i -B -r /etc/dropbear/key' &
fi
until echo hello | socat -u - VSOCK-CONNECT:2:6000 2>/dev/null; do sleep 0.5; done
head -c 4000000 /dev/zero | socat -t 10 - VSOCK-CONNECT:2:6001 | sha256sum | cut -c 1-16 >/tmp/sum
echo "guest: echoed $(cat /tmp/sum)."
SH
  "$here/tools/make-redis.sh" "$IMAGES" "$(new_image)" "$BIN/libtaut_vmci.so" "$lab/g10/map" "$lab/g10/script" "$lab/g10/image" "${programs[@]}" >"$OUT/vc-g10.log" 2>&1 || { tail -n 3 "$OUT/vc-g10.log"; return 1; }
  start_daemon || return 1
  printf 'memory = "512MiB"\n[boot]\nkernel = "%s"\ninitrd = "%s"\n[vmci]\n' "$lab/g10/image/vmlinuz" "$lab/g10/image/initrd" >"$lab/g10.toml"
  taut vm create -f "$lab/g10.toml" --name g10 >/dev/null && taut vm start --wait g10 || return 1
  socket=$(taut -o json vm show g10 | jq -r .status.vmci.socket)

  # Guest to host: socat accepts the guest's connections.
  socat "UNIX-LISTEN:${socket}_6000,fork" "OPEN:$lab/g10/hello,creat,append" & local first=$!
  socat "UNIX-LISTEN:${socket}_6001,fork" EXEC:cat & local second=$!
  want=$(head -c $bytes /dev/zero | sha256sum | cut -c 1-16)
  for _ in $(seq 240); do got=$(taut vm log g10 | sed -n 's/.*guest: echoed \([0-9a-f]*\)\..*/\1/p' | tail -n 1); [ -z "$got" ] || break; sleep 0.5; done
  goal VC-G10-guest-to-host "socat in the guest to socat on the host: $([ "$got" = "$want" ] && echo "$bytes bytes there and back, the same" || echo "${got:-nothing} instead of $want")" "the same" "$([ "$got" = "$want" ] && echo 1 || echo 0)"

  # Host to guest: socat, with the handshake by hand.
  head -c $bytes /dev/urandom >"$lab/g10/bytes"
  want=$(sha256sum <"$lab/g10/bytes" | cut -c 1-16)
  got=$({ printf 'CONNECT 5000\n'; cat "$lab/g10/bytes"; } | timeout 120 socat -t 30 - "UNIX-CONNECT:$socket" | { read -r ok; [[ $ok == OK\ * ]] && sha256sum; } | cut -c 1-16)
  goal VC-G10-socat "socat on the host to socat in the guest: $([ "$got" = "$want" ] && echo "$bytes bytes there and back, the same" || echo "${got:-nothing} instead of $want")" "the same" "$([ "$got" = "$want" ] && echo 1 || echo 0)"

  got=$(timeout 120 python3 - "$socket" <<'PY'
import socket, sys
client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
client.connect(sys.argv[1])
client.sendall(b"CONNECT 5000\n")
answer = b""
while not answer.endswith(b"\n"):
    answer += client.recv(1)
assert answer.startswith(b"OK ") and int(answer[3:]) >= 1024, answer
client.sendall(b"ping")
client.shutdown(socket.SHUT_WR)
reply = b""
while part := client.recv(4096):
    reply += part
refused = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
refused.connect(sys.argv[1])
refused.sendall(b"CONNECT 4999\n")
print(answer.decode().split()[0], reply.decode(), "refused" if refused.recv(64) == b"" else "connected")
PY
)
  goal VC-G10-program "a program that speaks Firecracker's handshake: ${got:-nothing}" "OK ping refused" "$([ "$got" = "OK ping refused" ] && echo 1 || echo 0)"

  if [ -n "$(type -P dropbear)" ]; then
    cat >"$lab/g10/proxy" <<SH
#!/bin/sh
{ printf 'CONNECT 22\n'; cat; } | socat - "UNIX-CONNECT:$socket" | { read -r ok; cat; }
SH
    chmod 755 "$lab/g10/proxy"
    ssh=$(timeout 120 ssh -o "ProxyCommand=$lab/g10/proxy" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o PreferredAuthentications=none,password root@g10 'echo by ssh' 2>>"$OUT/vc-g10.log" </dev/null)
    goal VC-G10-ssh "ssh with a proxy command: ${ssh:-nothing}" "by ssh" "$([ "$ssh" = "by ssh" ] && echo 1 || echo 0)"
  else
    note "dropbear is not installed: SSH by a proxy command is left out"
  fi
  kill $first $second 2>/dev/null
  wait $first $second 2>/dev/null
  return 0
}
