# shellcheck shell=bash
# Parts of initial RAM file systems for guests. Sourced; makes $work, which is removed at exit, and
# $root in it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$PATH:/usr/sbin:/sbin
root=$work/root
mkdir -p "$root"/{bin,sbin,dev,etc,modules}

# libraries FILE: copies the libraries of a program or library, to the same paths. A static program
# has none, and `ldd` fails for a file that is no program, such as an archive.
libraries() {
  { ldd "$1" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do install -D "$library" "$root$library"; done
}

# program PATH…: copies programs into /bin, with their libraries.
program() {
  local path
  for path in "$@"; do
    cp -L "$path" "$root/bin/"
    libraries "$path"
  done
}

# unpacked IMAGES PACKAGE KERNEL: prints the folder with the modules of a kernel's package. The
# first call unpacks it, which takes many seconds; it belongs to the owner of the images.
unpacked() {
  local images=$1 package=$2 kernel=$3 folder part
  folder=$images/modules/$package
  if [ ! -e "$folder" ]; then
    mkdir -p "$images/modules"
    part=$(mktemp -d "$images/modules/part.XXXXXX")
    dpkg-deb -x "$images/packages/$package" "$part"
    [ -e "$part/lib" ] || ln -s usr/lib "$part/lib"
    depmod -b "$part" "$kernel"
    rm -rf "${part:?}"/boot "${part:?}"/usr/share
    chown -R --reference="$images" "$images/modules"
    # Another call may have been faster.
    mv -T "$part" "$folder" 2>/dev/null || rm -rf "$part"
  fi
  echo "$folder"
}

# add_modules IMAGES NAME MODULE…: copies these modules of the kernel of the guest image NAME, and
# the modules that they need, to $root/modules. $root/modules/order lists them in load order, behind
# those of the image.
add_modules() {
  local images=$1 name=$2 kernel package module file object
  (cd "$work" && cpio --quiet -idm modules/order <"$images/$name/initrd")
  mv "$work/modules/order" "$root/modules/order"
  [ $# -gt 2 ] || return 0
  kernel=$(jq -r .kernel "$images/$name/info.json")
  package=$(unpacked "$images" "$(jq -r .package "$images/$name/info.json")" "$kernel")
  for module in "${@:3}"; do
    modprobe -d "$package" -S "$kernel" --show-depends "$module"
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r file; do
    object=$(basename "$file") object=${object%.xz}
    case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac >"$root/modules/$object"
    grep -qx "$object" "$root/modules/order" || echo "$object" >>"$root/modules/order"
  done
}

# extend_image IMAGES NAME OUT MODULE…: makes OUT/vmlinuz and OUT/initrd from the guest image NAME,
# $root, and these modules of the kernel's package. $root/init runs before the image's own init,
# which becomes /sbin/guest.
extend_image() {
  local images=$1 name=$2 out=$3
  # Background processes of the shell read from /dev/null.
  mknod "$root/dev/null" c 1 3
  (cd "$work" && cpio --quiet -idm init <"$images/$name/initrd")
  mv "$work/init" "$root/sbin/guest"
  add_modules "$images" "$name" "${@:4}"
  mkdir -p "$out"
  cp "$images/$name/vmlinuz" "$out/vmlinuz"
  (cd "$root" && find . | cpio --quiet -o -H newc) >"$work/more"
  cat "$images/$name/initrd" "$work/more" >"$out/initrd"
}
