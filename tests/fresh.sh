#!/usr/bin/env bash
# `make demo` and `make test` of the last commit on a bare Debian, once as root and once as another user.
#
# The machine is a folder (FRESH, build/fresh unless told) that debootstrap makes: python3, python3-venv, make and git, and
# nothing else; a folder that is there is used again. Each user gets a clone of its own, with nothing installed or compiled.
# Needs root, debootstrap and the network, for Debian's packages and those of Python.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
root="$(realpath -m "${FRESH:-$here/build/fresh}")"
if [ ! -x "$root/usr/bin/make" ]; then
  mkdir -p "$root"
  debootstrap --variant=minbase --include=python3,python3-venv,make,git,ca-certificates "${DEBIAN:-bookworm}" "$root"
  chroot "$root" useradd --create-home somebody
fi
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"  # those that this machine trusts

check() {  # USER HOME
  rm -rf "$root$2/superhosts"
  git clone -q --no-hardlinks "file://$here" "$root$2/superhosts"
  chroot "$root" chown -R "$1" "$2/superhosts"
  # Mounts, processes and what they leave in /tmp end with the namespaces that hold them.
  unshare --mount --pid --fork -- bash -euc '
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    mount -t tmpfs tmpfs "$0/tmp"
    env -i TERM=dumb /usr/sbin/chroot "$0" /bin/su "$1" -s /bin/bash -c "
      export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=$2 PIP_CERT=/etc/ssl/certs/ca-certificates.crt
      cd $2/superhosts && { time make demo; } && { time make test; }"' "$root" "$1" "$2"
}
for user in ${USERS:-root somebody}; do
  echo "fresh machine, as $user"
  case "$user" in root) check root /root ;; *) check "$user" "/home/$user" ;; esac
done
