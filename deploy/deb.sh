#!/usr/bin/env bash
# Make a Debian package in dist/: deploy/deb.sh PYTHON, from the root of the source tree. Needs dpkg-deb.
#
# It has an environment of its own below /opt/superhosts: the wheel with machine code that is in dist/, and what pip
# installs with it. The program in it is the system's python3, so the package is for this minor version of Python and this
# architecture. PYTHON is any Python with pip (23 or later); EXTRAS chooses other optional packages.
set -euo pipefail
umask 022
pip="$1 -m pip --disable-pip-version-check"
extras="${EXTRAS-fleet,metrics,web,top,geo}"
minor="$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
tag="cp${minor/./}"
wheel="$(echo dist/superhosts-*-"$tag-$tag"-*_"$(uname -m)".whl)"
[ -f "$wheel" ] || { echo "deb.sh: dist/ has no wheel with code for Python $minor; run make clean, then make deb PYTHON=/usr/bin/python3" >&2; exit 1; }
version="$(basename "$wheel" | cut -d- -f2)"
name="superhosts_${version}_$(dpkg --print-architecture)"
stage="$PWD/build/deb" home="$PWD/build/deb/opt/superhosts" doc="$PWD/build/deb/usr/share/doc/superhosts"
rm -rf "$stage"
install -d "$stage/DEBIAN" "$home/bin" "$doc" "$stage/etc/superhosts" "$stage/usr/bin"

# The environment, which is what `python3 -m venv` makes, without the place where it is made.
ln -s "/usr/bin/python$minor" "$home/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$minor" >"$home/pyvenv.cfg"
$pip --python "$home/bin/python" install -q --no-compile --no-warn-script-location "$wheel${extras:+[$extras]}"
rm "$home"/lib/*/site-packages/*.dist-info/direct_url.json  # names files of this machine
find "$home/bin" -type f -exec grep -lI . {} + | xargs sed -i "s,$home,/opt/superhosts,g"
find "$home/lib" -type d -name tests -prune -exec rm -r {} +  # a third of numba; nothing imports them
# Bytecode is checked against nothing: dpkg replaces it together with the source.
"$home/bin/python" -m compileall -q -j0 --invalidation-mode unchecked-hash -s "$stage" "$home/lib"
ln -s /opt/superhosts/bin/superhosts "$stage/usr/bin/superhosts"

# What the system looks for elsewhere: manual pages, completion and units.
install -d "$stage/usr/share"
mv "$home/share/man" "$stage/usr/share/man"
gzip -9n "$stage"/usr/share/man/man1/*
rmdir "$home/share" 2>/dev/null || true
complete() { # SHELL FILE
  install -d "$(dirname "$stage/usr/share/$2")"
  SHELL="/bin/$1" "$home/bin/python" -m superhosts --show-completion >"$stage/usr/share/$2"
}
complete bash bash-completion/completions/superhosts
complete zsh zsh/vendor-completions/_superhosts
complete fish fish/vendor_completions.d/superhosts.fish
install -Dm644 -t "$stage/usr/lib/systemd/system" deploy/systemd/*.{service,timer}
install -Dm644 -t "$doc/examples" deploy/systemd/*.env
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
"$home/bin/python" deploy/debian/copyright.py >"$doc/copyright"

install -m755 deploy/debian/{postinst,prerm,postrm} "$stage/DEBIAN"
(cd "$stage" && find opt usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
cat >"$stage/DEBIAN/control" <<CONTROL
Package: superhosts
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The superhosts developers <superhosts@localhost>
Installed-Size: $(du -sk --exclude DEBIAN "$stage" | cut -f1)
Depends: python3 (>= $minor~), python3 (<< ${minor%.*}.$((${minor#*.} + 1))~), libc6 (>= 2.28), libstdc++6, zlib1g, passwd
Recommends: libpcap0.8 | libpcap0.8t64
Section: net
Priority: optional
Description: finds hosts that talk to very many distinct peers
 Scanners, worms, victims of DDoS, open resolvers and busy servers look like that. The traffic of captures, network
 interfaces, flow exports and logs is read once, in constant memory. Addresses are recovered, each number has an
 interval, and the sketches of many sites merge exactly.
CONTROL
dpkg-deb --root-owner-group --build "$stage" "dist/$name.deb"
