#!/usr/bin/env python3
"""A fencing command for stores on CephFS (docs/ceph.md): shuts the owner's mounts out of the file system.

    forebay serve --standby --fence-command /usr/local/bin/fence-cephfs.py ... /mnt/cephfs/store/drive0

Every mount of the machine FOREBAY_OWNER_HOST is put on the cluster's blocklist for ten years and evicted; of those that say where they are (ceph-fuse) only the
ones that hold FOREBAY_OWNER_DRIVE. It needs a key with mon 'allow r, allow command "osd blocklist"' and mds 'allow rw, allow *' (CEPH_CONF,
CEPH_ARGS). Exit code 0: no client of that machine is left. What the owner's process still does changes nothing from then on. A machine that was shut out mounts again
once the owner's process has ended.
"""

import json
import os
import subprocess
import sys

TEN_YEARS_S = 10 * 365 * 86400


def ceph(*words):
    return subprocess.run(["ceph", *words], check=True, stdout=subprocess.PIPE, timeout=300).stdout


def ranks():
    """Every metadata server that may know of clients."""
    for system in json.loads(ceph("fs", "dump", "-f", "json"))["filesystems"]:
        table = system["mdsmap"]
        for rank in table["in"]:
            yield f"mds.{table['fs_name']}:{rank}"


def is_owners(session, host, drive):
    about = session["client_metadata"]
    if about.get("hostname") != host:
        return False
    if "mount_point" in about:
        return drive.startswith(about["mount_point"].rstrip("/") + "/")
    # The kernel's own; without either it is a program that uses the file system without a mount, as Ceph's manager does.
    return "kernel_version" in about


def owners(rank, host, drive):
    sessions = json.loads(ceph("tell", rank, "client", "ls"))
    return [session for session in sessions if "client_metadata" in session and is_owners(session, host, drive)]


def shut_out(rank, session):
    # "client.4124 127.0.0.1:0/19120258", or with v1: before the address.
    address = session["inst"].split()[1].removeprefix("v1:")
    print(f"shutting out client {session['id']}, {address}", file=sys.stderr)
    ceph("osd", "blocklist", "add", address, str(TEN_YEARS_S))
    # It may have gone by itself meanwhile, as it is on the blocklist: what counts is who is left.
    subprocess.run(["ceph", "tell", rank, "client", "evict", f"id={session['id']}"], check=False, timeout=300)


def main():
    host, drive = os.environ["FOREBAY_OWNER_HOST"], os.environ["FOREBAY_OWNER_DRIVE"]
    left = 0
    for rank in ranks():
        for session in owners(rank, host, drive):
            shut_out(rank, session)
        left += len(owners(rank, host, drive))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
