# Shared by the scripts of this folder: a temporary folder, pinned packages and sources in it, and the comparison at the end.
# Each script sources this file. Needed on the machine: apt and dpkg with Debian's keyring, python3 with pip, util-linux's unshare.
# FINDINGS_CACHE=FOLDER keeps package lists and packages between runs; without it everything is fetched anew.
# shellcheck shell=bash
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root
seen=$tmp/seen

# archive KIND SUITE : the folder $cache, and the apt options for lists of that kind (deb or deb-src) only; the lists are up to date afterwards.
# The archive is the one that the machine's own apt uses.
archive() {
    local kind=$1 suite=$2 base apt
    apt=$tmp/apt-$kind-$suite
    cache=${FINDINGS_CACHE:-$apt}/$suite
    [ "$kind" = deb ] || cache=$cache-src
    base=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/$' | sort -u | sed -n 1p)
    if [ -z "$base" ]; then
        echo "apt knows no Debian archive; run apt-get update" >&2
        exit 1
    fi
    mkdir -p "$apt" "$cache"/{lists,archives}/partial
    echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $base $suite main" >"$apt/sources.list"
    : >"$apt/status"
    options=(-q -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$cache/lists"
        -o Dir::State::status="$apt/status" -o Dir::Cache="$cache"
        -o APT::Sandbox::User= -o Acquire::Languages=none)
    if [ -z "${FINDINGS_CACHE:-}" ] || [ -z "$(find "$cache/lists" \( -name '*Packages*' -o -name '*Sources*' \) -mmin -600)" ]; then
        apt-get "${options[@]}" update >"$tmp/apt.log" 2>&1 || { cat "$tmp/apt.log" >&2; exit 1; }
    fi
}

# debs SUITE PACKAGE=VERSION... : unpacks the packages and all that they depend on into $root, without installing anything.
debs() {
    local suite=$1 cache deb options
    shift
    archive deb "$suite"
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{proc,dev,tmp}
    for deb in bin sbin lib lib64; do ln -sfn "usr/$deb" "$root/$deb"; done
    if ! apt-get "${options[@]}" install -y --no-install-recommends --download-only "$@" >"$tmp/apt.log" 2>&1; then
        cat "$tmp/apt.log" >&2
        echo "not served any more in $suite: $*" >&2
        exit 1
    fi
    apt-get "${options[@]}" install -s --no-install-recommends "$@" | awk '/^Inst/ {print $2, substr($3, 2)}' | while read -r name version; do
        deb=$(find "$cache/archives" -maxdepth 1 -name "${name%%:*}_${version/:/%3a}_*.deb")
        dpkg-deb -x "$deb" "$root"
    done
    printf 'packages:'
    printf ' %s' "$@"
    printf ' (%s)\n' "$suite"
}

# sources SUITE PACKAGE=VERSION FILE... : these files of the source package (paths below its top folder) into $tmp/sources/PACKAGE.
sources() {
    local suite=$1 package=$2 cache options
    shift 2
    archive deb-src "$suite"
    mkdir -p "$tmp/tarballs" "$tmp/sources/${package%%=*}"
    if ! (cd "$tmp/tarballs" && apt-get "${options[@]}" source --download-only --tar-only "$package") >"$tmp/apt.log" 2>&1; then
        cat "$tmp/apt.log" >&2
        echo "not served any more in $suite: $package" >&2
        exit 1
    fi
    tar -xf "$tmp/tarballs/${package%%=*}"_*.orig.tar.* -C "$tmp/sources/${package%%=*}" --strip-components=1 --wildcards "${@/#/*/}"
    echo "sources: $package ($suite)"
}

# linux FILE... : these files of Linux 6.12.117's sources into $tmp/linux.
linux() {
    debs trixie linux-source-6.12=6.12.117-1
    mkdir -p "$tmp/linux"
    tar -xJf "$root/usr/src/linux-source-6.12.tar.xz" -C "$tmp/linux" --strip-components=1 --occurrence=1 "${@/#/linux-source-6.12/}"
}

# run COMMAND... : runs a command with $root as its file system; $tmp/share is its /tmp. It has no network, and what it starts ends with it.
run() {
    local flags=-mnpf
    [ "$(id -u)" = 0 ] || flags=-rmnpf
    mkdir -p "$tmp/share"
    unshare "$flags" --kill-child sh -c 'r=$1; s=$2; shift 2; mount --rbind /dev "$r/dev" && mount --bind "$s" "$r/tmp" && mount -t proc proc "$r/proc" &&
        exec env -i HOME=/tmp LC_ALL=C PATH=/usr/sbin:/usr/bin chroot "$r" "$@"' sh "$root" "$tmp/share" "$@"
}

# wheels PACKAGE==VERSION... : Python packages into $tmp/python, without what they depend on; python3 finds them there.
wheels() {
    python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-deps --target "$tmp/python" "$@" >&2
    export PYTHONPATH=$tmp/python PYTHONDONTWRITEBYTECODE=1
    echo "packages: $*"
}

# packets KIND FILE : a capture of the packets on standard input, by packets.py.
packets() {
    mkdir -p "$tmp/share"
    python3 "$here/packets.py" "$1" "$tmp/share/$2"
}

# dissect FILE ARGUMENT... : tshark on such a capture.
dissect() {
    local file=$1
    shift
    run tshark -r "/tmp/$file" "$@" 2>"$tmp/tshark.log" || { cat "$tmp/tshark.log" >&2; exit 1; }
}

# fabric OPTIONS COMMAND... : OpenSM with these options on host H1 of the simulated fabric that standard input describes, then the commands,
# run on host H2. They find OpenSM's log in osm.log and what it printed in osm.out. Needs opensm, ibsim-utils, infiniband-diags, bash, coreutils.
fabric() {
    mkdir -p "$tmp/share"
    cat >"$tmp/share/net"
    run bash -c 'cd /tmp; options=$1; shift; mkfifo ibsim.in; sleep 1000 >ibsim.in &
        ibsim -s net <ibsim.in >ibsim.log 2>&1 & sleep 1
        export LD_PRELOAD=$(echo /usr/lib/*/umad2sim/libumad2sim.so)
        SIM_HOST=H1 opensm -f osm.log $options >osm.out 2>&1 &
        export SIM_HOST=H2
        until [[ $(timeout 5 smpquery -D portinfo 0 2>&1) =~ LinkState:\.*Active || $((++tries)) -gt 30 ]]; do sleep 1; done
        sleep 2
        for command; do timeout 60 bash -c "$command" 2>&1; done' bash "$@"
}

# Two hosts and a switch, for fabric.
two_hosts='Switch 4 "S1"
[1]	"H1"[1]
[2]	"H2"[1]

Hca 1 "H1"
[1]	"S1"[1]

Hca 1 "H2"
[1]	"S1"[2]
'

# check : prints what was seen (the file $seen) and fails unless standard input says the same.
check() {
    cat "$seen"
    if ! diff -u --label expected --label seen - "$seen"; then
        echo "FAILED: the behaviour has changed" >&2
        exit 1
    fi
}
