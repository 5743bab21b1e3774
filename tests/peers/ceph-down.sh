#!/usr/bin/env bash
# ceph-down.sh DIR [--purge] [--kill] - stop exactly the daemons ceph-up.sh started for DIR (by its pid files).
#   --purge  also remove the cluster's files (DIR's own and the OSD stores)    --kill  SIGKILL at once
set -uo pipefail
[ $# -ge 1 ] && [ -d "$1" ] || { echo "usage: $0 DIR [--purge] [--kill]" >&2; exit 2; }
D=$(cd "$1" && pwd); shift; PURGE=0 SIG=TERM
for a in "$@"; do case $a in --purge) PURGE=1;; --kill) SIG=KILL;; *) exit 2;; esac; done
[ -e "$D/settings" ] || { echo "$D: no cluster of ceph-up.sh" >&2; exit 1; }
OSDDIR=; . "$D/settings"
while read -r mp; do fusermount -u "$mp" 2>/dev/null || umount -l "$mp"; done \
  < <(for p in /proc/[0-9]*; do c=$({ tr '\0' '\n' <"$p/cmdline"; } 2>/dev/null) || continue
        case $c in *ceph-fuse*"$D/ceph.conf"*) printf '%s\n' "$c" | grep '^/' | grep -vF "$D/ceph.conf" | tail -1;; esac; done | sort -u)
mine() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qF -- "-c $D/ceph.conf"; }
pids=(); for kind in mds osd mgr mon; do for f in "$D"/run/$kind.*.pid; do
  [ -e "$f" ] || continue; p=$(cat "$f"); mine "$p" && kill -$SIG "$p" && pids+=("$p"); [ $kind = mon ] || continue; done; done
for ((t=0;t<150;t++)); do left=0; for p in "${pids[@]}"; do mine "$p" && left=$p; done; [ $left = 0 ] && break; sleep .1; done
for p in "${pids[@]}"; do mine "$p" && kill -KILL "$p"; done
rm -f "$D"/run/*.pid "$D"/run/*.asok
if [ $PURGE = 1 ]; then
  N=${N:-0}; for ((i=0;i<N;i++)); do rm -rf "${OSDDIR:?}/$i"; done; rmdir "$OSDDIR" 2>/dev/null
  rm -rf "$D"/{ceph.conf,settings,uuids,.made,keyring.admin,install.log,mon,mgr,mds,run,log,crash}; rmdir "$D" 2>/dev/null
fi
echo "stopped ${#pids[@]} daemons$([ $PURGE = 1 ] && echo ', files removed')"
