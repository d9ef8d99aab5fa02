#!/bin/bash
# README's two commands on a bare Debian: a root folder made by debootstrap, without redis-server,
# git or a user of that name; once as root and once under a user id that nobody has.
#
#   tests/bare/run.sh [ROOT]       as root; needs debootstrap and unshare
#
# ROOT is kept and used again (default .cache/bare). MIRROR names a Debian mirror, BIND lists files
# and folders of this machine that are seen in the root as well, such as pip's configuration,
# PASS lists variables that are handed in, COMMANDS the make targets (default "demo test").
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$(realpath -m "${1:-.cache/bare}")
commands=${COMMANDS:-demo test}
nobody=54321

if [ ! -x "$root/usr/bin/make" ]; then
    mkdir -p "$root"
    debootstrap --variant=minbase --include=ca-certificates,make,python3,python3-venv \
        bookworm "$root" ${MIRROR:+"$MIRROR"}
fi
for folder in "$root"/usr/bin "$root"/usr/local/bin; do
    if compgen -G "$folder/redis-*" >/dev/null; then
        echo "$folder has a Redis: not a bare root" >&2
        exit 1
    fi
done

passed=()
for name in ${PASS:-}; do passed+=("$name=${!name}"); done

inside() { # user id, command: in namespaces of its own, so that nothing outlives it
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1 user=$2 command=$3
        shift 3
        mount --make-rprivate /
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
        cp --dereference /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
        for path in $BIND; do
            if [ -d "$path" ]; then mkdir -p "$root$path"; else
                mkdir -p "$root$(dirname "$path")"; touch "$root$path"
            fi
            mount --rbind -o ro "$path" "$root$path"
        done
        exec chroot --userspec="$user:$user" "$root" /usr/bin/env -i \
            PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "$@" \
            bash -euc "cd /clone-$user; $command"
    ' bash "$root" "$1" "$2" "${passed[@]}"
}

status=0
export BIND=${BIND:-}
for user in 0 $nobody; do
    rm -rf "$root/clone-$user"
    mkdir -p "$root/clone-$user"
    git archive HEAD | tar -x -C "$root/clone-$user"
    chown -R "$user:$user" "$root/clone-$user"
    for target in $commands; do
        echo "== bare Debian, user id $user: make $target"
        inside "$user" "make $target" || { status=1; echo "== FAILED: make $target as $user" >&2; }
    done
done
exit "$status"
