#!/usr/bin/env bash
# ceph-up.sh DIR [options] - bring up a real Ceph cluster on one machine, on 127.0.0.1 alone, for tests and benchmarks.
#   --osds N         number of OSDs (10);  --hosts  each in a host of its own, and the EC pools coded over hosts
#   --osd-dir D      where the OSD stores lie (default DIR/osd; e.g. a folder of /dev/shm)
#   --osd-size S     size of each sparse block file (8G)
#   --backend B      bluestore | memstore (bluestore)
#   --k K --m M      erasure profile of pool "ec" (8 2);  --min-size S  its min_size (Ceph's own: k+1)
#   --plugin P       isa | jerasure | auto (auto: isa where the build has it)
#   --pgs N          PGs of the EC pools (32); x3 pools get 16;  --copies N  copies of pool "meta" (3)
#   --cephfs         also 1 MDS and file system "cephfs" (metadata x3, data EC with overwrites)
#   --no-auth        cephx off
#   --port P         mon's v2 port (13300); v1 is P+1; other daemons bind from P+100 upwards
#   --conf LINE      one more line for [global] (repeatable)
# Idempotent: with DIR's daemons running it does nothing but wait; with DIR there and daemons gone it restarts them.
# Pools made: ec (EC k+m), meta (x3, or as --copies says); with --cephfs also cephfs_meta (x3), cephfs_data (EC, overwrites).
set -euo pipefail
usage() { sed -n '2,16p' "$0" >&2; exit 2; }
[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || usage
mkdir -p "$1"; D=$(cd "$1" && pwd); shift
N=10 OSDDIR= SIZE=8G BACKEND=bluestore K=8 M=2 MINSIZE= PLUGIN=auto PGS=32 CEPHFS=0 AUTH=cephx PORT=13300 EXTRA= DOMAIN=osd COPIES=3
while [ $# -gt 0 ]; do case $1 in
  --hosts) DOMAIN=host; shift;;    --copies) COPIES=$2; shift 2;;
  --osds) N=$2; shift 2;;          --osd-dir) OSDDIR=$2; shift 2;;  --osd-size) SIZE=$2; shift 2;;
  --backend) BACKEND=$2; shift 2;; --k) K=$2; shift 2;;             --m) M=$2; shift 2;;
  --min-size) MINSIZE=$2; shift 2;; --plugin) PLUGIN=$2; shift 2;;  --pgs) PGS=$2; shift 2;;
  --cephfs) CEPHFS=1; shift;;      --no-auth) AUTH=none; shift;;    --port) PORT=$2; shift 2;;
  --conf) EXTRA+="$2"$'\n'; shift 2;; *) usage;; esac; done
[ $((K+M)) -le "$N" ] || { echo "k+m=$((K+M)) needs at least that many OSDs, not $N" >&2; exit 2; }
say() { printf '[%6.2fs] %s\n' "$(echo "$(date +%s.%N) - $T0" | bc -l 2>/dev/null || awk -v a="$(date +%s.%N)" -v b="$T0" 'BEGIN{print a-b}')" "$*"; }
T0=$(date +%s.%N)

# ---- programs -------------------------------------------------------------------------------
programs=(ceph-mon ceph-mgr ceph-osd monmaptool)
[ $CEPHFS = 0 ] || programs+=(ceph-mds ceph-fuse)
for p in "${programs[@]}"; do command -v "$p" >/dev/null || { echo "$p is missing: make deps installs it" >&2; exit 1; }; done
/usr/bin/python3 -c 'import rados' 2>/dev/null || { echo "python3-rados is missing: make deps installs it" >&2; exit 1; }

# ---- first time: configuration, keys, stores ------------------------------------------------
CONF=$D/ceph.conf; RUN=$D/run; LOG=$D/log
if [ ! -e "$D/.made" ]; then
  [ ! -e "$D/settings" ] || "$(dirname "$(readlink -f "$0")")/ceph-down.sh" "$D" --purge   # a half-made one: begin again
  mkdir -p "$D"
  OSDDIR=${OSDDIR:-$D/osd}; mkdir -p "$OSDDIR" "$RUN" "$LOG" "$D/mon" "$D/mgr" "$D/mds"; OSDDIR=$(cd "$OSDDIR" && pwd)
  if [ "$PLUGIN" = auto ]; then PLUGIN=jerasure
    ls /usr/lib/*/ceph/erasure-code/libec_isa.so >/dev/null 2>&1 && PLUGIN=isa; fi
  cat >"$CONF" <<C
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon_host = [v2:127.0.0.1:$PORT,v1:127.0.0.1:$((PORT+1))]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = $((PORT+100))
ms_bind_port_max = $((PORT+500))
auth_cluster_required = $AUTH
auth_service_required = $AUTH
auth_client_required = $AUTH
auth_allow_insecure_global_id_reclaim = false
run_dir = $RUN
admin_socket = $RUN/\$name.\$pid.asok
log_file = $LOG/\$name.log
mon_cluster_log_file = $LOG/cluster.log
crash_dir = $D/crash
keyring = $D/keyring.admin
debug_ms = 0
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 3
osd_pool_default_pg_autoscale_mode = off
mon_max_pg_per_osd = 2000
mon_allow_pool_delete = true
$EXTRA
[mon]
mon_data = $D/mon/a
keyring = $D/mon/keyring
paxos_propose_interval = 0.1
mon_osd_reporter_subtree_level = osd
mon_osd_min_down_reporters = 2
mon_data_avail_warn = 3
mon_data_avail_crit = 1
mon_warn_on_pool_no_redundancy = false
mgr_initial_modules =
[mgr]
mgr_data = $D/mgr/x
keyring = $D/mgr/x/keyring
mgr_tick_period = 1
mgr_stats_period = 1
mgr_disabled_modules = alerts,cephadm,dashboard,diskprediction_local,influx,insights,iostat,k8sevents,localpool,mirroring,nfs,osd_perf_query,osd_support,prometheus,restful,rook,selftest,snap_schedule,stats,telegraf,test_orchestrator,zabbix
[osd]
$([ $DOMAIN = osd ] || echo "crush_location = root=default host=host\$id")
osd_data = $OSDDIR/\$id
keyring = $OSDDIR/\$id/keyring
osd_objectstore = $BACKEND
bluestore_block_size = $(numfmt --from=iec "$SIZE")
bluestore_block_create = true
bluestore_fsck_on_mount = false
bluestore_cache_autotune = false
bluestore_cache_size = 33554432
memstore_device_bytes = $(numfmt --from=iec "$SIZE")
osd_memory_target = 939524096
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 2
osd_scrub_begin_hour = 0
osd_scrub_min_interval = 604800
osd_max_pg_log_entries = 500
osd_min_pg_log_entries = 250
osd_numa_auto_affinity = false
osd_mclock_skip_benchmark = true
osd_class_update_on_start = false
[mds]
mds_data = $D/mds/a
keyring = $D/mds/a/keyring
mds_cache_memory_limit = 268435456
[client]
log_file =
admin_socket =
C
  cat >"$D/settings" <<C
N=$N OSDDIR='$OSDDIR' K=$K M=$M MINSIZE='$MINSIZE' PLUGIN=$PLUGIN PGS=$PGS CEPHFS=$CEPHFS PORT=$PORT DOMAIN=$DOMAIN COPIES=$COPIES
C
  /usr/bin/python3 - "$D" "$N" "$OSDDIR" <<'P'
import base64, os, struct, sys, time, uuid
D, n, osddir = sys.argv[1], int(sys.argv[2]), sys.argv[3]
key = lambda: base64.b64encode(struct.pack('<HIIH', 1, int(time.time()), 0, 16) + os.urandom(16)).decode()
E = {'mon.': dict(mon='allow *'),
     'client.admin': dict(mon='allow *', osd='allow *', mds='allow *', mgr='allow *'),
     'mgr.x': dict(mon='allow profile mgr', osd='allow *', mds='allow *'),
     'mds.a': dict(mon='allow profile mds', osd='allow *', mds='allow *', mgr='allow profile mds')}
for i in range(n):
    E['osd.%d' % i] = dict(mon='allow profile osd', mgr='allow profile osd', osd='allow *')
files = {'mon.': D + '/mon/keyring', 'client.admin': D + '/keyring.admin',
         'mgr.x': D + '/mgr/x/keyring', 'mds.a': D + '/mds/a/keyring'}
text = {e: '[%s]\n\tkey = %s\n' % (e, key()) + ''.join('\tcaps %s = "%s"\n' % c for c in caps.items()) for e, caps in E.items()}
for e in E:
    f = files.get(e) or '%s/%s/keyring' % (osddir, e[4:])
    os.makedirs(os.path.dirname(f), exist_ok=True)
    with os.fdopen(os.open(f, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'w') as h: h.write(text[e])
with os.fdopen(os.open(D + '/mon/all', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 'w') as h: h.write(''.join(text.values()))
open(D + '/uuids', 'w').write(''.join('%s\n' % uuid.uuid4() for _ in range(n)))
P
fi
# shellcheck disable=SC1091
. "$D/settings"
export CEPH_CONF=$CONF CEPH_ARGS=

# ---- daemons --------------------------------------------------------------------------------
alive() { local p; p=$(cat "$RUN/$1.pid" 2>/dev/null) && [ -n "$p" ] && { tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null | grep -qF -- "$CONF"; }
start() { # NAME program args...
  local name=$1; shift; alive "$name" && return 0
  TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=16777216 setsid "$@" -f -c "$CONF" </dev/null >"$LOG/$name.out" 2>&1 &
  echo $! >"$RUN/$name.pid"; }
made() { [ -e "$D/.made" ]; }
UUIDS=(); mapfile -t UUIDS <"$D/uuids"

if ! made; then
  { monmaptool --create --clobber --fsid "$(awk '/^fsid/{print $3}' "$CONF")" \
      --addv a "[v2:127.0.0.1:$PORT,v1:127.0.0.1:$((PORT+1))]" "$D/mon/map" &&
    ceph-mon -c "$CONF" -i a --mkfs --monmap "$D/mon/map" --keyring "$D/mon/all"; } >"$LOG/mon.mkfs" 2>&1 \
    || { tail -3 "$LOG/mon.mkfs" >&2; exit 1; }
  rm -f "$D/mon/all" "$D/mon/map"
fi
start mon.a ceph-mon -i a
sleep .2; alive mon.a || { tail -3 "$LOG/mon.a.out" >&2; exit 1; }
say "mon started"
if ! made; then            # the stores are made side by side while the mon forms its quorum
  pids=(); for ((i=0;i<N;i++)); do
    ceph-osd -c "$CONF" -i $i --mkfs --osd-uuid "${UUIDS[$i]}" --no-mon-config >"$LOG/osd.$i.mkfs" 2>&1 & pids+=($!)
    while [ "$(jobs -rp | wc -l)" -gt 4 ]; do wait -n 2>/dev/null || true; done
  done
fi

mon() { timeout 300 /usr/bin/python3 - "$CONF" "$D" "$@" <<'P'
import json, rados, sys, time
conf, D, what, a = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
c = rados.Rados(conffile=conf); c.conf_set('client_mount_timeout', '30'); c.connect()
def cmd(prefix, inp=b'', ok=(), **k):
    r, out, err = c.mon_command(json.dumps(dict(prefix=prefix, format='json', **k)), inp)
    if r and -r not in ok: sys.exit('%s %s: %d %s' % (prefix, k, r, err))
    try: return json.loads(out) if out.strip() else None
    except ValueError: return None
if what == 'ids':
    cmd('config set', who='mgr', name='mgr/devicehealth/enable_monitoring', value='false', force=True)
    for u in open(D + '/uuids').read().split(): cmd('osd new', uuid=u)
elif what == 'up':
    n = int(a[0]); t = time.time() + 120
    while True:
        s = cmd('osd stat'); s = s.get('osdmap', s)
        if s['num_up_osds'] >= n: break
        if time.time() > t: sys.exit('only %d of %d OSDs up after 120 s' % (s['num_up_osds'], n))
        time.sleep(.1)
elif what == 'pools':
    k, m, minsize, plugin, pgs, fs, domain, copies = a; pgs = int(pgs)
    prof = ['k=' + k, 'm=' + m, 'plugin=' + plugin, 'technique=reed_sol_van', 'crush-failure-domain=' + domain]
    cmd('osd erasure-code-profile set', name='ec', profile=prof)
    def ec(name):
        cmd('osd pool create', pool=name, pg_num=pgs, pgp_num=pgs, pool_type='erasure', erasure_code_profile='ec')
        if minsize: cmd('osd pool set', pool=name, var='min_size', val=minsize)
    def x3(name): cmd('osd pool create', pool=name, pg_num=16, pgp_num=16, pool_type='replicated', size=3)
    ec('ec'); x3('meta')
    if copies != '3': cmd('osd pool set', pool='meta', var='size', val=copies)
    for p in ('ec', 'meta'): cmd('osd pool application enable', pool=p, app='rados')
    if fs == '1':
        ec('cephfs_data'); x3('cephfs_meta')
        cmd('osd pool set', pool='cephfs_data', var='allow_ec_overwrites', val='true')
        cmd('fs new', fs_name='cephfs', metadata='cephfs_meta', data='cephfs_data', force=True)
elif what == 'clean':
    fs = a[0] == '1'; t = time.time() + 180; clean = None
    while True:
        h = cmd('status'); pg = h['pgmap']; by = {x['state_name']: x['count'] for x in pg['pgs_by_state']}
        pools = pg.get('num_pools', 0)
        ok = pools >= (4 if fs else 2) and pg['num_pgs'] and by.get('active+clean') == pg['num_pgs'] \
             and (not fs or any(r.get('status') == 'up:active' for r in h['fsmap'].get('by_rank', [])))
        if ok and h['health']['status'] == 'HEALTH_OK': print('HEALTH_OK', by); break
        if ok and clean is None: clean = time.time()
        if clean and time.time() > clean + 10: print(h['health']['status'], sorted(h['health']['checks']), by); break
        if time.time() > t: sys.exit('not clean after 180 s: %s %s' % (by, sorted(h['health']['checks'])))
        time.sleep(.2)
P
}
made || { mon ids || { tail -n 5 "$LOG/mon.a.out" "$LOG/mon.a.log" >&2; exit 1; }; say "mon has quorum, OSD ids given"; }
start mgr.x ceph-mgr -i x
if ! made; then
  for p in "${pids[@]}"; do wait "$p" || { echo "an OSD's mkfs failed: see $LOG/osd.*.mkfs" >&2; exit 1; }; done
  say "stores made"
fi
for ((i=0;i<N;i++)); do start osd.$i ceph-osd -i $i; done
mon up "$N"; say "$N OSDs up"
if ! made; then mon pools "$K" "$M" "$MINSIZE" "$PLUGIN" "$PGS" "$CEPHFS" "$DOMAIN" "$COPIES"; touch "$D/.made"; say "pools made"; fi
[ "$CEPHFS" = 1 ] && start mds.a ceph-mds -i a
health=$(mon clean "$CEPHFS"); say "$health"

rss=0; for f in "$RUN"/*.pid; do r=$(awk '/^VmRSS/{print $2}' "/proc/$(cat "$f")/status" 2>/dev/null || echo 0); rss=$((rss+r)); done
echo "conf:    $CONF   (all daemons: $((rss/1024)) MiB RSS, pid files in $RUN)"
echo "connect: export CEPH_CONF=$CONF; ceph -s; rados -p ec ls     librados: rados_create(&c,\"admin\"); rados_conf_read_file(c,\"$CONF\")"
echo "pools:   ec (EC $K+$M, $PLUGIN), meta (x$COPIES)$([ "$CEPHFS" = 1 ] && echo "; ceph-fuse -c $CONF MOUNTPOINT   (CephFS: cephfs_meta x3, cephfs_data EC)")"
