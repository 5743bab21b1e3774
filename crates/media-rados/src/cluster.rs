//! A connection to a cluster, and ways to its pools.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::{RadosError, check};
use crate::sys;

/// How long a connect waits for a monitor, unless the configuration says something else. Ceph's own 300 s are more than an operator waits.
const CONNECT_TIMEOUT_S: &str = "30";

/// A connection to a Ceph cluster.
pub struct Cluster {
    raw: sys::Cluster,
}

// SAFETY: librados' handles may be used by any number of threads at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// How full a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fullness {
    /// Bytes of all of its drives.
    pub bytes: u64,
    /// Of these, in use.
    pub used_bytes: u64,
    /// Of these, free.
    pub available_bytes: u64,
}

impl Cluster {
    /// Connects as Ceph's own programs do: `CEPH_CONF`, or the usual places, say where the cluster and its keys are; `CEPH_ARGS` may have `--id` or `--name`.
    ///
    /// # Errors
    /// [`RadosError`]: no configuration, no key, no monitor.
    pub fn connect() -> Result<Arc<Cluster>, RadosError> {
        let arguments = std::env::var("CEPH_ARGS").unwrap_or_default();
        let id = user_of(&arguments).map(|id| c_string(&id));
        let mut raw = null_mut();
        // SAFETY: both pointers are valid for the call.
        let made = unsafe { sys::rados_create(&raw mut raw, id.as_ref().map_or(null(), |id| id.as_ptr())) };
        check(made, || "a client cannot be made".to_owned())?;
        let cluster = Cluster { raw };
        // SAFETY: the handle was made just now, and the strings are valid for the call.
        unsafe {
            check(
                sys::rados_conf_set(raw, c"client_mount_timeout".as_ptr(), c_string(CONNECT_TIMEOUT_S).as_ptr()),
                || "client_mount_timeout cannot be set".to_owned(),
            )?;
            check(sys::rados_conf_read_file(raw, null()), || {
                "its configuration cannot be read (CEPH_CONF names it, else it is /etc/ceph/ceph.conf)".to_owned()
            })?;
            check(sys::rados_conf_parse_env(raw, null()), || "CEPH_ARGS cannot be read".to_owned())?;
            check(sys::rados_connect(raw), || {
                "no monitor answers, or the keyring has no key for this user: does `ceph -s` work here?".to_owned()
            })?;
        }
        Ok(Arc::new(cluster))
    }

    /// A way to a pool, and to a store's namespace in it.
    ///
    /// # Errors
    /// [`RadosError`]: there is no such pool.
    pub fn pool(self: &Arc<Self>, name: &str, namespace: &str) -> Result<Pool, RadosError> {
        let mut raw = null_mut();
        // SAFETY: the cluster is connected, and the pointers are valid for the call.
        let opened = unsafe { sys::rados_ioctx_create(self.raw, c_string(name).as_ptr(), &raw mut raw) };
        check(opened, || format!("pool {name} (`ceph osd pool ls` shows those that there are)"))?;
        // SAFETY: made just now.
        unsafe { sys::rados_ioctx_set_namespace(raw, c_string(namespace).as_ptr()) };
        Ok(Pool { raw, name: name.to_owned(), cluster: Arc::clone(self) })
    }

    /// How full the cluster is.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn fullness(&self) -> Result<Fullness, RadosError> {
        let mut stat = sys::ClusterStat::default();
        // SAFETY: the cluster is connected, and the structure is the one that the library fills.
        check(unsafe { sys::rados_cluster_stat(self.raw, &raw mut stat) }, || "how full it is".to_owned())?;
        let bytes = |kib: u64| kib.saturating_mul(1024);
        Ok(Fullness {
            bytes: bytes(stat.kib),
            used_bytes: bytes(stat.kib_used),
            available_bytes: bytes(stat.kib_available),
        })
    }

    /// Waits until this client has the cluster's newest map: whatever it asks from then on makes a drive know that map, too.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn wait_for_newest_map(&self) -> Result<(), RadosError> {
        // SAFETY: the cluster is connected.
        let waited = unsafe { sys::rados_wait_for_latest_osdmap(self.raw) };
        check(waited, || "the newest map of the drives".to_owned()).map(drop)
    }

    /// Puts a client on the cluster's blocklist: no drive that knows the map takes anything from it.
    ///
    /// # Errors
    /// [`RadosError`]: the key of this user has no right to (`mon 'allow profile rbd'` has).
    pub fn blocklist(&self, address: &str, seconds: u32) -> Result<(), RadosError> {
        let what =
            || format!("blocklisting {address}; this user needs the right to (`ceph auth caps ... mon 'profile rbd'`)");
        let address = c_string(address).into_raw();
        // SAFETY: the library reads the string during the call; it is taken back after it.
        let returned = unsafe {
            let returned = sys::rados_blocklist_add(self.raw, address, seconds);
            drop(CString::from_raw(address));
            returned
        };
        check(returned, what).map(drop)
    }

    /// The address by which drives know this client.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn own_address(&self) -> Result<String, RadosError> {
        let mut addresses: *mut c_char = null_mut();
        // SAFETY: the cluster is connected; the library gives a string of its own, which is given back.
        unsafe {
            check(sys::rados_getaddrs(self.raw, &raw mut addresses), || "the address of this client".to_owned())?;
            let found = CStr::from_ptr(addresses).to_string_lossy().into_owned();
            sys::rados_buffer_free(addresses);
            Ok(found)
        }
    }

    /// What a monitor answers to a command in JSON.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn ask_monitor(&self, command: &str) -> Result<String, RadosError> {
        let text = c_string(command);
        let mut commands = [text.as_ptr()];
        let (mut output, mut output_bytes, mut status, mut status_bytes) = (null_mut(), 0, null_mut(), 0);
        // SAFETY: every pointer is valid for the call; what the library gives is copied and given back.
        unsafe {
            let returned = sys::rados_mon_command(
                self.raw,
                commands.as_mut_ptr(),
                1,
                null(),
                0,
                &raw mut output,
                &raw mut output_bytes,
                &raw mut status,
                &raw mut status_bytes,
            );
            let answer = copied(output, output_bytes);
            sys::rados_buffer_free(output);
            sys::rados_buffer_free(status);
            check(returned, || format!("the monitor's answer to {command}"))?;
            Ok(answer)
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more: pools hold the cluster.
        unsafe { sys::rados_shutdown(self.raw) };
    }
}

/// # Safety
/// `bytes` bytes can be read at `text`, unless it is null.
unsafe fn copied(text: *const c_char, bytes: usize) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// A way to a namespace of a pool.
pub struct Pool {
    raw: sys::IoContext,
    name: String,
    /// Held, since the way ends with it.
    cluster: Arc<Cluster>,
}

// SAFETY: librados' contexts may be used by any number of threads at once, once their namespace is set.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub(crate) fn raw(&self) -> sys::IoContext {
        self.raw
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cluster that it belongs to.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// What an append must be a multiple of, in bytes: more than 1 when it takes nothing but appends.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn append_bytes(&self) -> Result<u64, RadosError> {
        let (mut is_required, mut bytes) = (0, 0);
        // SAFETY: the pool is open, and the pointers are valid for the calls.
        unsafe {
            let what = || format!("what pool {} takes", self.name);
            check(sys::rados_ioctx_pool_requires_alignment2(self.raw, &raw mut is_required), what)?;
            if is_required != 0 {
                check(sys::rados_ioctx_pool_required_alignment2(self.raw, &raw mut bytes), what)?;
            }
        }
        Ok(bytes.max(1))
    }

    /// Waits until all that was begun by this way is done.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn flush(&self) -> Result<(), RadosError> {
        // SAFETY: the pool is open.
        check(unsafe { sys::rados_aio_flush(self.raw) }, || format!("what goes to pool {}", self.name)).map(drop)
    }

    /// The names of all objects in the namespace. Each drive of the pool is asked.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn list(&self, mut take: impl FnMut(&str)) -> Result<(), RadosError> {
        let what = || format!("the objects in pool {}", self.name);
        let mut list = null_mut();
        // SAFETY: the pool is open; the walk is closed below on every way.
        check(unsafe { sys::rados_nobjects_list_open(self.raw, &raw mut list) }, what)?;
        let result = loop {
            let mut name = null();
            // SAFETY: the walk is open, and its names are valid until the next step.
            let returned = unsafe { sys::rados_nobjects_list_next(list, &raw mut name, null_mut(), null_mut()) };
            match check(returned, what) {
                Err(error) if error.is(Errno::NOENT) => break Ok(()),
                Err(error) => break Err(error),
                // SAFETY: as above.
                Ok(_) => take(&unsafe { CStr::from_ptr(name) }.to_string_lossy()),
            }
        };
        // SAFETY: it was opened above.
        unsafe { sys::rados_nobjects_list_close(list) };
        result
    }

    /// An attribute of an object; `None` when there is no such object or attribute.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn attribute(&self, object: &str, attribute: &str) -> Result<Option<Vec<u8>>, RadosError> {
        const BYTES_MAX: usize = 4096;
        let mut buffer = vec![0u8; BYTES_MAX];
        let (name, of) = (c_string(attribute), c_string(object));
        // SAFETY: the pool is open, and the buffer has the bytes that are said.
        let returned =
            unsafe { sys::rados_getxattr(self.raw, of.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), BYTES_MAX) };
        match check(returned, || format!("{attribute} of {object} in pool {}", self.name)) {
            Ok(bytes) => {
                buffer.truncate(bytes as usize);
                Ok(Some(buffer))
            }
            Err(error) if error.is(Errno::NOENT) || error.is(Errno::NODATA) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Up to `buffer.len()` bytes of an object; fewer when it ends before, none when there is no such object.
    ///
    /// # Errors
    /// [`RadosError`].
    pub fn read(&self, object: &str, offset: u64, buffer: &mut [u8]) -> Result<usize, RadosError> {
        let name = c_string(object);
        // SAFETY: the pool is open, and the buffer has the bytes that are said.
        let returned =
            unsafe { sys::rados_read(self.raw, name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len(), offset) };
        match check(returned, || format!("a read of {object} in pool {}", self.name)) {
            Ok(bytes) => Ok(bytes as usize),
            Err(error) if error.is(Errno::NOENT) => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more; what is on its way has a way of its own.
        unsafe { sys::rados_ioctx_destroy(self.raw) };
    }
}

/// A string for the library. What comes after a NUL, which no name has, is left out.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).expect("it has no NUL")
}

/// The user that `CEPH_ARGS` names, without `client.`.
fn user_of(arguments: &str) -> Option<String> {
    let mut words = arguments.split_whitespace();
    let mut found = None;
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        if matches!(option, "--id" | "--user" | "--name" | "-n") {
            let value = value.or_else(|| words.next())?;
            found = Some(value.strip_prefix("client.").unwrap_or(value).to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_the_one_that_ceph_args_names() {
        for (arguments, user) in [
            ("", None),
            ("--conf /etc/x", None),
            ("--id forebay", Some("forebay")),
            ("--name=client.buffer --debug-ms 0", Some("buffer")),
            ("-n client.a", Some("a")),
            ("--id", None),
        ] {
            assert_eq!(user_of(arguments).as_deref(), user, "{arguments}");
        }
    }
}
