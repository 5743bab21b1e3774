//! The thread that serves `/metrics`. It tells what the last look saw, and asks nobody.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Sleep;

use super::look::LastLook;
use crate::config::ServerConfig;
use crate::metrics;

/// How long a stop waits for scrapes that are being answered.
const FAREWELL: Duration = Duration::from_secs(1);

/// Connections at once; others wait.
const CONNECTIONS_MAX: usize = 32;

/// A connection is closed after so long, whatever it does: whoever scrapes connects again.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(120);

/// Serves metrics until it is stopped.
pub(crate) struct MetricsThread {
    pub(crate) listener: std::net::TcpListener,
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) last: LastLook,
    pub(crate) stop: oneshot::Receiver<()>,
}

impl MetricsThread {
    /// Serves.
    ///
    /// # Errors
    /// When the system refuses to poll.
    pub(crate) fn run(self) -> io::Result<()> {
        let MetricsThread { listener, config, last, stop } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        listener.set_nonblocking(true)?;
        let app = Router::new().route("/metrics", get(answer)).with_state(last);
        runtime.block_on(async {
            let socket = TcpListener::from_std(listener)?;
            let door = Door { socket, config, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) };
            let serving = tokio::spawn(async move { axum::serve(door, app).await });
            // Whoever could stop it is gone: that is a stop too.
            let _ = stop.await;
            serving.abort();
            io::Result::Ok(())
        })?;
        runtime.shutdown_timeout(FAREWELL);
        Ok(())
    }
}

/// The answer to a scrape.
async fn answer(State(last): State<LastLook>) -> Response {
    match last.get() {
        Some((at, snapshot)) => {
            ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(snapshot, at.elapsed())).into_response()
        }
        None => {
            (StatusCode::SERVICE_UNAVAILABLE, "the server has not looked at itself yet; ask again\n").into_response()
        }
    }
}

/// Lets in those who may connect to the server, a few at a time.
struct Door {
    socket: TcpListener,
    config: Arc<ServerConfig>,
    places: Arc<Semaphore>,
}

impl Listener for Door {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let place = self.places.clone().acquire_owned().await.expect("it is never closed");
        loop {
            let (stream, peer) = Listener::accept(&mut self.socket).await;
            if self.config.admits(peer.ip()) {
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
