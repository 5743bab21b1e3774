#!/usr/bin/env bash
# `make deps`: the Debian packages that the tests and the benchmarks use. Forebay itself needs none of them.
set -euo pipefail

packages=(
    build-essential # the linker of Rust
    git             # tools/check-texts.py asks it for the project's files
    g++             # programs in C++ over our library
    cmake           # how such programs find it
    pkg-config      # the other way in which they do
    python3         # the checks of `make lint`, the judge of kills
    python3-venv    # the environment of `make python-test`
    libisal2        # the erasure coder that ours is compared with
    e2fsprogs       # mkfs.ext2, for drives that hold a file system
    util-linux      # fsfreeze, for drives that hang
    mount           # losetup and mount, for block devices over files
    fuse3           # fusermount3, for the mount and for drives that lose what was not flushed (root mounts without it)
    rsync           # a tool that the mount must be good for
    vim-tiny        # another one: an editor
    dbench          # what office programs do to a file server, on the mount
    xrootd-server   # a destination of the mover
    libxrootd-server-dev # the store behind such a server
    xrootd-client   # how the mover reaches it
    iproute2        # what the benchmarks say of the network
    xrootd-server-plugins # its HTTP door
    xrootd-scitokens-plugins # who comes to it by a token
    scitokens-cpp   # what makes tokens
    python3-xrootd  # a client of it
    davix           # another one, by HTTP
    strace          # how it sends what it keeps
    openssl         # certificates for it
    ceph-common     # S3, another destination: a Ceph in memory
    ceph-mon        # its monitor
    ceph-osd        # its drive
    radosgw         # its gateway
    ceph-mgr        # what counts in a Ceph whose pools a store stands on
    librados-dev    # how the store reaches it
    ceph-mds        # the file system on it
    ceph-fuse       # how that is mounted
    python3-rados   # what starts that Ceph
    zstd            # reads what the mover compresses
    curl            # what its buckets hold, by another way than ours
    fio             # the baseline of the drives
    iperf3          # the baseline of the network
)

id=unknown version=unknown
if [[ -r /etc/os-release ]]; then
    # shellcheck source=/dev/null
    id=$(. /etc/os-release && echo "${ID:-unknown}")
    # shellcheck source=/dev/null
    version=$(. /etc/os-release && echo "${VERSION_ID:-unknown}")
fi
if [[ $id != debian || ($version != 12 && $version != 13) ]]; then
    echo "make deps knows Debian 12 and 13; this is $id $version. Nothing was installed." >&2
    echo "Install what corresponds to these yourself: ${packages[*]}" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
    echo "all ${#packages[@]} packages are installed"
    exit 0
fi

as_root=()
if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
        echo "To install ${missing[*]}: run \`make deps\` as root, or install sudo." >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "installing ${missing[*]}"
# Lists of packages that cannot all be fetched are no reason to stop: what is missing shows when it is installed.
"${as_root[@]}" apt-get update -o DPkg::Lock::Timeout=300 -q </dev/null || echo "apt-get update failed; going on with the lists that are there" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -o DPkg::Lock::Timeout=300 -q --yes --no-install-recommends "${missing[@]}" </dev/null
