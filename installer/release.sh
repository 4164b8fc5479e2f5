#!/bin/sh
# Makes a folder that a plain web server can serve as the home of the installer:
#   DIR/setup.sh                 the hosted installer, with its address, version and public key filled in
#   DIR/VERSION/                 archives, packages, SHA256SUMS and its minisign signature
# usage: installer/release.sh --url URL --key SECRET_KEY --public-key FILE [--out DIR] [ARCH…]
# The secret key's password is asked for by minisign; a key made with `minisign -G -W` has none.
set -eu
umask 022

die() {
	echo "release: $*" >&2
	exit 1
}

url='' key='' public='' out=release
while [ $# -gt 0 ]; do
	case $1 in
	--url) url=${2:?}; shift 2 ;;
	--key) key=${2:?}; shift 2 ;;
	--public-key) public=${2:?}; shift 2 ;;
	--out) out=${2:?}; shift 2 ;;
	-h | --help) sed -n 's/^# \{0,1\}//; 2,6p' "$0"; exit 0 ;;
	-*) die "unknown option '$1'; see --help" ;;
	*) break ;;
	esac
done
command -v minisign >/dev/null 2>&1 || die "signing needs minisign (package minisign)"
if [ -z "$url" ] || [ -z "$key" ] || [ -z "$public" ]; then die "--url, --key and --public-key are needed; see --help"; fi
case $url in
https://*[\|\&\\\"\'\$\`\ ]* | http://*[\|\&\\\"\'\$\`\ ]*) die "the address holds characters that do not belong into one: $url" ;;
https://?*) ;;
http://127.0.0.1* | http://localhost* | 'http://[::1]'*) ;;
*) die "the address must begin with https:// (http:// only for loopback)" ;;
esac
public_key=$(sed -n 2p "$public")
printf '%s' "$public_key" | grep -Eq '^[A-Za-z0-9+/]{56}$' || die "$public holds no minisign public key"
[ $# -gt 0 ] || set -- amd64 arm64

top=$(cd "$(dirname "$0")/.." && pwd)
version=$(cat "$top/VERSION")
mkdir -p "$out/$version"
out=$(cd "$out" && pwd)
key=$(cd "$(dirname "$key")" && pwd)/$(basename "$key")
# The build's own folders are no part of what is served.
export SANDBOX_DIST_BUILD="${SANDBOX_DIST_BUILD:-$top/dist/.build}" SANDBOX_SYSROOT="${SANDBOX_SYSROOT:-$top/dist/.sysroot}"
"$top/installer/dist" --out "$out/$version" "$@"

cd "$out/$version"
minisign -S -s "$key" -m SHA256SUMS -x SHA256SUMS.minisig -t "sandbox $version" >/dev/null || die "minisign did not sign"
minisign -V -q -P "$public_key" -m SHA256SUMS -x SHA256SUMS.minisig || die "the signature does not fit $public"
sed -e "s|^default_url=.*|default_url='$url'|" -e "s|^default_version=.*|default_version='$version'|" -e "s|^release_key=.*|release_key='$public_key'|" \
	"$top/installer/hosted.sh" >"$out/setup.sh.new"
chmod 644 "$out/setup.sh.new"
mv "$out/setup.sh.new" "$out/setup.sh"
echo "release: $out is ready to be served at $url; users then run: curl -fsSL $url/setup.sh | sh"
