//! Starting and stopping a server.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_store::{ControlHandle, LaneSeed, OpenedStore, StoreInfo};
use forebay_telemetry::http::MetricsServer;
use forebay_telemetry::reach::{ListenError, listen};
use mio::Poll;

use crate::config::ServerConfig;
use crate::driver::acceptor::Acceptor;
use crate::driver::control::ControlThread;
use crate::driver::inbox::{CloseAtEnd, Inbox, Message};
use crate::driver::lane::LaneThread;
use crate::driver::local;
use crate::driver::look::{LastLook, Looker, LookerParts};
use crate::driver::smart::{SmartReports, SmartThread};
use crate::limits::PLACED_BYTES_MIN;
use crate::metrics;
use crate::open_files::raise_open_files;
use crate::service::ServiceConfig;

/// How long the mark of a clean stop may take when the lanes have stopped.
const MARK_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a server was not started. What was acknowledged earlier is on the drives as it was.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The system gave no thread or no poll.
    #[error(
        "the server could not be started, nothing was served: {what}: {source}. The next start finds the drives as after a stop that was not in \
         order, and loses nothing. See `ulimit -n` (open files) and `pids.max` of the control group (threads)"
    )]
    System {
        /// What was refused.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// A part of the server ended in a way that it should not.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A thread ended by itself.
    #[error("{thread} of the server ended: {reason}. What was acknowledged is on the drives; start the server again")]
    Thread {
        /// Its name.
        thread: String,
        /// Why.
        reason: String,
    },
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The drives carry the mark of a clean stop: the next start need not look for torn flushes.
    pub clean: bool,
}

/// An address that is taken for a server.
pub struct Listener {
    socket: TcpListener,
    metrics: Option<TcpListener>,
    config: ServerConfig,
}

/// A running server. Dropping it leaves it running: see [`Server::stop`].
pub struct Server {
    address: SocketAddr,
    control: ControlHandle,
    stop: StopHandle,
    threads: Vec<(String, JoinHandle<io::Result<()>>)>,
    control_thread: (Arc<Inbox>, JoinHandle<io::Result<()>>),
    watchers: Watchers,
}

/// Threads that only look: whatever becomes of them, data are served.
struct Watchers {
    smart: SmartReports,
    metrics: Option<MetricsServer>,
    threads: Vec<JoinHandle<()>>,
}

/// Stops a server, from any thread.
#[derive(Clone)]
pub struct StopHandle {
    stopping: Arc<AtomicBool>,
    inboxes: Arc<[Arc<Inbox>]>,
}

impl StopHandle {
    /// Asks for the stop and returns at once; [`Server::wait`] tells when it is over.
    pub fn stop(&self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.inboxes.iter().for_each(|inbox| inbox.send(Message::Stop));
        }
    }
}

impl Server {
    /// Takes the address, so that a store is opened, which writes to its drives, only when it can be served. Clients that connect
    /// before [`Server::start`] wait.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub fn bind(config: &ServerConfig) -> Result<Listener, StartError> {
        raise_open_files(config.connections_max);
        let socket = take(config.listen, config, "--listen", "read, write and delete everything")?;
        let metrics = config.metrics.map(|address| take(address, config, "--metrics", "read how the store is"));
        let metrics = metrics.transpose()?;
        Ok(Listener { socket, metrics, config: config.clone() })
    }

    /// Serves `opened`.
    ///
    /// # Errors
    /// [`StartError::System`].
    pub fn start(opened: OpenedStore, listener: Listener) -> Result<Server, StartError> {
        let control = opened.control.clone();
        let started = Server::start_threads(opened, listener);
        if started.is_err() {
            // The drives are free when the error is told.
            control.wait_until(MARK_TIMEOUT, |status| status.ended);
        }
        started
    }

    fn start_threads(opened: OpenedStore, listener: Listener) -> Result<Server, StartError> {
        let OpenedStore { runners, control, info, meters, licence, .. } = opened;
        let Listener { socket, metrics, config } = listener;
        let address = socket.local_addr().map_err(system("the address of the listening socket"))?;
        let mut threads = Vec::new();
        let mut lanes = Vec::new();
        for _ in &runners {
            lanes.push(inbox()?);
        }
        let inboxes: Vec<Arc<Inbox>> = lanes.iter().map(|(inbox, _)| inbox.clone()).collect();
        let ((control_inbox, control_poll), (accept_inbox, accept_poll)) = (inbox()?, inbox()?);
        // Nobody is let in any more before the lanes are told.
        let all: Arc<[Arc<Inbox>]> = std::iter::once(accept_inbox.clone()).chain(inboxes.iter().cloned()).collect();
        let stop = StopHandle { stopping: Arc::default(), inboxes: all };
        let (local_socket, local) = local::listen(address.port());
        let acceptor = Acceptor::new(
            (socket, local_socket),
            config.clone(),
            inboxes.clone(),
            control_inbox.clone(),
            accept_poll,
            accept_inbox,
        )
        .map_err(system("a poll"))?;
        for (seed, (inbox, poll)) in runners.into_iter().zip(lanes) {
            let config = service_config(&config, &info, &seed, local);
            let name = format!("forebay-lane-{}", config.lane);
            let all_lanes: Arc<[Arc<Inbox>]> = inboxes.clone().into();
            let licence = licence.clone();
            let handle = spawn(&name, &stop, move || {
                let _closed = CloseAtEnd(inbox.clone());
                LaneThread::new(seed, config, poll, all_lanes, licence)?.run()
            })
            .map_err(system("a thread"))?;
            threads.push((name, handle));
        }
        let (smart, last) = (SmartReports::default(), LastLook::default());
        let looker = Looker::new(LookerParts {
            lanes: inboxes,
            store: control.clone(),
            meters,
            smart: smart.clone(),
            config: Arc::new(config.clone()),
            stopping: stop.stopping.clone(),
            last: last.clone(),
        });
        let thread = ControlThread {
            poll: control_poll,
            inbox: control_inbox.clone(),
            looker,
            info,
            stall_timeout: config.stall_timeout(),
            local,
        };
        let handle = spawn("forebay-status", &stop, move || thread.run()).map_err(system("a thread"))?;
        let control_thread = (control_inbox, handle);
        let handle = spawn("forebay-accept", &stop, move || acceptor.run()).map_err(system("a thread"))?;
        threads.push(("forebay-accept".to_owned(), handle));
        let watchers = watch(&config, &control, metrics, smart, last).map_err(system("a thread"))?;
        tracing::info!(%address, store = %info.store, lanes = info.lanes, epoch = info.epoch, "listening");
        Ok(Server { address, control, stop, threads, control_thread, watchers })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics are served, if they are.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.watchers.metrics.as_ref().map(MetricsServer::address)
    }

    /// The control part of its store.
    pub fn control(&self) -> &ControlHandle {
        &self.control
    }

    /// Something that stops it from elsewhere, as from a thread that waits for signals.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Refuses what is new, makes durable and answers what was taken, marks the store clean, ends.
    ///
    /// # Errors
    /// When a thread had ended before.
    pub fn stop(self) -> Result<Stopped, ServerError> {
        self.stop.stop();
        self.wait()
    }

    /// Waits until it was stopped by a [`StopHandle`].
    ///
    /// # Errors
    /// When a thread ends by itself; the others are stopped then.
    pub fn wait(self) -> Result<Stopped, ServerError> {
        let Server { control, threads, control_thread, watchers, .. } = self;
        let mut failed = None;
        for (name, handle) in threads {
            failed = failed.or(end_of(name, handle));
        }
        let (inbox, handle) = control_thread;
        inbox.send(Message::Stop);
        failed = failed.or(end_of("forebay-status".to_owned(), handle));
        watchers.stop();
        if let Some(error) = failed {
            return Err(error);
        }
        control.wait_until(MARK_TIMEOUT, |status| status.ended);
        Ok(Stopped { clean: control.status().clean })
    }
}

/// The inbox of a thread and the poll that it waits in.
fn inbox() -> Result<(Arc<Inbox>, Poll), StartError> {
    let poll = Poll::new().map_err(system("a poll"))?;
    let inbox = Inbox::new(&poll).map_err(system("a poll"))?;
    Ok((inbox, poll))
}

/// Starts what only looks.
fn watch(
    config: &ServerConfig,
    control: &ControlHandle,
    listener: Option<TcpListener>,
    smart: SmartReports,
    last: LastLook,
) -> io::Result<Watchers> {
    let mut threads = Vec::new();
    let asking = SmartThread { reports: smart.clone(), store: control.clone(), of_files: config.smart_of_files };
    threads.push(std::thread::Builder::new().name("forebay-smart".to_owned()).spawn(move || asking.run())?);
    let mut watchers = Watchers { smart, metrics: None, threads };
    if let Some(listener) = listener {
        let text = move || last.get().map(|(at, snapshot)| metrics::text(snapshot, at.elapsed()));
        watchers.metrics = Some(MetricsServer::start(listener, config.insecure_network.clone(), text)?);
    }
    Ok(watchers)
}

impl Watchers {
    fn stop(self) {
        self.smart.stop();
        drop(self.metrics);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::warn!("a thread that only looks had panicked; no data are concerned");
            }
        }
    }
}

/// Takes an address, which the option `option` says.
fn take(
    address: SocketAddr,
    config: &ServerConfig,
    option: &'static str,
    may: &'static str,
) -> Result<TcpListener, StartError> {
    Ok(listen(address, &config.insecure_network, option, may)?)
}

fn service_config(config: &ServerConfig, info: &StoreInfo, seed: &LaneSeed, local: u64) -> ServiceConfig {
    ServiceConfig {
        store: info.store,
        epoch: info.epoch,
        lanes: info.lanes,
        lane: seed.lane(),
        fragment_bytes_max: info.fragment_bytes_max,
        read_only: info.read_only,
        has_files: info.has_files,
        staging_bytes: config.staging_bytes,
        out_buffer_bytes: config.out_buffer_bytes,
        credit_bytes: config.credit_bytes,
        stall_timeout: config.stall_timeout(),
        placed_bytes_min: PLACED_BYTES_MIN,
        local,
    }
}

/// A thread whose end, however it comes, is the end of the server.
fn spawn(
    name: &str,
    stop: &StopHandle,
    run: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    struct StopAtEnd(StopHandle);
    impl Drop for StopAtEnd {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let stop = StopAtEnd(stop.clone());
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _stop = stop;
        run()
    })
}

/// What was wrong with the end of a thread.
fn end_of(thread: String, handle: JoinHandle<io::Result<()>>) -> Option<ServerError> {
    let reason = match handle.join() {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked, which the log shows".to_owned(),
    };
    tracing::error!(thread, reason, "a thread of the server ended");
    Some(ServerError::Thread { thread, reason })
}
