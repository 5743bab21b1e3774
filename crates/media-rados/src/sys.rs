//! librados' C interface, as much of it as is used here (`rados/librados.h`, Ceph 16 and later).

use std::ffi::{c_char, c_int, c_void};

/// A cluster handle.
pub(crate) type Cluster = *mut c_void;
/// A way to a pool and a namespace of it.
pub(crate) type IoContext = *mut c_void;
/// What becomes of an operation that goes on by itself.
pub(crate) type Completion = *mut c_void;
/// Steps on one object that are done together or not at all.
pub(crate) type WriteOperation = *mut c_void;
/// A walk through the names of objects.
pub(crate) type ListContext = *mut c_void;

pub(crate) const COMPARE_EQUAL: u8 = 1;
/// What is given is no less than what is there, byte for byte.
pub(crate) const COMPARE_NO_LESS: u8 = 4;
pub(crate) const CREATE_EXCLUSIVE: c_int = 1;
/// Tried also when the pool is full.
pub(crate) const FULL_TRY: c_int = 64;
/// Done also when the pool is full: for what frees.
pub(crate) const FULL_FORCE: c_int = 128;

#[repr(C)]
#[derive(Default)]
pub(crate) struct ClusterStat {
    pub(crate) kib: u64,
    pub(crate) kib_used: u64,
    pub(crate) kib_available: u64,
    pub(crate) objects: u64,
}

unsafe extern "C" {
    pub(crate) fn rados_create(cluster: *mut Cluster, id: *const c_char) -> c_int;
    pub(crate) fn rados_conf_read_file(cluster: Cluster, path: *const c_char) -> c_int;
    pub(crate) fn rados_conf_parse_env(cluster: Cluster, variable: *const c_char) -> c_int;
    pub(crate) fn rados_conf_set(cluster: Cluster, option: *const c_char, value: *const c_char) -> c_int;
    pub(crate) fn rados_connect(cluster: Cluster) -> c_int;
    pub(crate) fn rados_shutdown(cluster: Cluster);
    pub(crate) fn rados_cluster_stat(cluster: Cluster, result: *mut ClusterStat) -> c_int;
    pub(crate) fn rados_wait_for_latest_osdmap(cluster: Cluster) -> c_int;
    pub(crate) fn rados_blocklist_add(cluster: Cluster, address: *mut c_char, expire_seconds: u32) -> c_int;
    pub(crate) fn rados_getaddrs(cluster: Cluster, addresses: *mut *mut c_char) -> c_int;
    pub(crate) fn rados_mon_command(
        cluster: Cluster,
        command: *mut *const c_char,
        commands: usize,
        input: *const c_char,
        input_bytes: usize,
        output: *mut *mut c_char,
        output_bytes: *mut usize,
        status: *mut *mut c_char,
        status_bytes: *mut usize,
    ) -> c_int;
    pub(crate) fn rados_buffer_free(buffer: *mut c_char);
    pub(crate) fn rados_ioctx_create(cluster: Cluster, pool: *const c_char, context: *mut IoContext) -> c_int;
    pub(crate) fn rados_ioctx_destroy(context: IoContext);
    pub(crate) fn rados_ioctx_set_namespace(context: IoContext, namespace: *const c_char);
    pub(crate) fn rados_ioctx_pool_requires_alignment2(context: IoContext, required: *mut c_int) -> c_int;
    pub(crate) fn rados_ioctx_pool_required_alignment2(context: IoContext, bytes: *mut u64) -> c_int;
    pub(crate) fn rados_nobjects_list_open(context: IoContext, list: *mut ListContext) -> c_int;
    pub(crate) fn rados_nobjects_list_next(
        list: ListContext,
        name: *mut *const c_char,
        key: *mut *const c_char,
        namespace: *mut *const c_char,
    ) -> c_int;
    pub(crate) fn rados_nobjects_list_close(list: ListContext);
    pub(crate) fn rados_read(
        context: IoContext,
        name: *const c_char,
        buffer: *mut c_char,
        bytes: usize,
        offset: u64,
    ) -> c_int;
    pub(crate) fn rados_getxattr(
        context: IoContext,
        name: *const c_char,
        attribute: *const c_char,
        buffer: *mut c_char,
        bytes: usize,
    ) -> c_int;
    pub(crate) fn rados_aio_create_completion2(
        argument: *mut c_void,
        complete: Option<unsafe extern "C" fn(Completion, *mut c_void)>,
        completion: *mut Completion,
    ) -> c_int;
    pub(crate) fn rados_aio_get_return_value(completion: Completion) -> c_int;
    pub(crate) fn rados_aio_release(completion: Completion);
    pub(crate) fn rados_aio_read(
        context: IoContext,
        name: *const c_char,
        completion: Completion,
        buffer: *mut c_char,
        bytes: usize,
        offset: u64,
    ) -> c_int;
    pub(crate) fn rados_aio_flush(context: IoContext) -> c_int;
    pub(crate) fn rados_create_write_op() -> WriteOperation;
    pub(crate) fn rados_release_write_op(operation: WriteOperation);
    pub(crate) fn rados_write_op_create(operation: WriteOperation, exclusive: c_int, category: *const c_char);
    pub(crate) fn rados_write_op_cmpxattr(
        operation: WriteOperation,
        attribute: *const c_char,
        comparison: u8,
        value: *const c_char,
        bytes: usize,
    );
    pub(crate) fn rados_write_op_exec(
        operation: WriteOperation,
        class: *const c_char,
        method: *const c_char,
        input: *const c_char,
        input_bytes: usize,
        result: *mut c_int,
    );
    pub(crate) fn rados_write_op_setxattr(
        operation: WriteOperation,
        attribute: *const c_char,
        value: *const c_char,
        bytes: usize,
    );
    pub(crate) fn rados_write_op_write(operation: WriteOperation, buffer: *const c_char, bytes: usize, offset: u64);
    pub(crate) fn rados_write_op_remove(operation: WriteOperation);
    pub(crate) fn rados_write_op_operate(
        operation: WriteOperation,
        context: IoContext,
        name: *const c_char,
        time: *mut c_void,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn rados_aio_write_op_operate(
        operation: WriteOperation,
        context: IoContext,
        completion: Completion,
        name: *const c_char,
        time: *mut c_void,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn rados_lock_exclusive(
        context: IoContext,
        object: *const c_char,
        name: *const c_char,
        cookie: *const c_char,
        description: *const c_char,
        duration: *mut c_void,
        flags: u8,
    ) -> c_int;
    pub(crate) fn rados_unlock(
        context: IoContext,
        object: *const c_char,
        name: *const c_char,
        cookie: *const c_char,
    ) -> c_int;
    pub(crate) fn rados_list_lockers(
        context: IoContext,
        object: *const c_char,
        name: *const c_char,
        exclusive: *mut c_int,
        tag: *mut c_char,
        tag_bytes: *mut usize,
        clients: *mut c_char,
        clients_bytes: *mut usize,
        cookies: *mut c_char,
        cookies_bytes: *mut usize,
        addresses: *mut c_char,
        addresses_bytes: *mut usize,
    ) -> isize;
}
