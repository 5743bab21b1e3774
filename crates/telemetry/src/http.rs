//! The thread that serves `/metrics`. It tells what was seen last, and asks nobody.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Sleep;

use crate::metrics::CONTENT_TYPE;
use crate::reach::admits;

/// How long a stop waits for scrapes that are being answered.
const FAREWELL: Duration = Duration::from_secs(1);

/// Connections at once; others wait.
const CONNECTIONS_MAX: usize = 32;

/// A connection is closed after so long, whatever it does: whoever scrapes connects again.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(120);

/// When something was seen, and what.
type Look<T> = (Instant, Arc<T>);

/// What was seen last, for whoever does not want to disturb anybody.
#[derive(Debug)]
pub struct Last<T>(Arc<Mutex<Option<Look<T>>>>);

impl<T> Default for Last<T> {
    fn default() -> Self {
        Last(Arc::default())
    }
}

impl<T> Clone for Last<T> {
    fn clone(&self) -> Self {
        Last(self.0.clone())
    }
}

impl<T> Last<T> {
    /// `None` before the first.
    pub fn get(&self) -> Option<Look<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// This is seen now.
    pub fn set(&self, seen: &Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), seen.clone()));
    }
}

/// The metrics, as text; nothing before there are any.
type Text = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Serves metrics until it is stopped or dropped.
pub struct MetricsServer {
    address: SocketAddr,
    /// To drop it is to say it.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Serves what `text` gives, to this machine and those of `networks`, from a thread whose end ends nothing else.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        listener: std::net::TcpListener,
        networks: Vec<IpNet>,
        text: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<MetricsServer> {
        let address = listener.local_addr()?;
        let (sender, stop) = oneshot::channel();
        let text: Text = Arc::new(text);
        let run = move || {
            if let Err(error) = serve(listener, networks, text, stop) {
                tracing::error!(%error, "no metrics are served any more; all else goes on as before");
            }
        };
        let thread = std::thread::Builder::new().name("forebay-metrics".to_owned()).spawn(run)?;
        tracing::info!(%address, "metrics are served at /metrics");
        Ok(MetricsServer { address, stop: Some(sender), thread: Some(thread) })
    }

    /// Where.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread that serves metrics had panicked; no data are concerned");
        }
    }
}

fn serve(
    listener: std::net::TcpListener,
    networks: Vec<IpNet>,
    text: Text,
    stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    listener.set_nonblocking(true)?;
    let app = Router::new().route("/metrics", get(answer)).with_state(text);
    runtime.block_on(async {
        let socket = TcpListener::from_std(listener)?;
        let door = Door { socket, networks, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) };
        let serving = tokio::spawn(async move { axum::serve(door, app).await });
        // Whoever could stop it is gone: that is a stop too.
        let _ = stop.await;
        serving.abort();
        io::Result::Ok(())
    })?;
    runtime.shutdown_timeout(FAREWELL);
    Ok(())
}

/// The answer to a scrape.
async fn answer(State(text): State<Text>) -> Response {
    match text() {
        Some(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "nothing was looked at yet; ask again\n").into_response(),
    }
}

/// Lets in those who may connect to the server, a few at a time.
struct Door {
    socket: TcpListener,
    networks: Vec<IpNet>,
    places: Arc<Semaphore>,
}

impl Listener for Door {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.expect("it is never closed");
        loop {
            let (stream, peer) = Listener::accept(&mut self.socket).await;
            if admits(&self.networks, peer.ip()) {
                let until = Box::pin(tokio::time::sleep(CONNECTION_AGE_MAX));
                return (Guest { stream, until, _place: place }, peer);
            }
            tracing::debug!(%peer, "metrics were asked for from outside of the networks named with --insecure-network: refused");
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A connection that has a place for a while.
struct Guest {
    stream: TcpStream,
    until: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Guest {
    fn look_at_clock(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.until.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.look_at_clock(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.look_at_clock(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
