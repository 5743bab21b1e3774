//! A web server that does what a test says, also what no good one does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request, as it came.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

/// What is done with a body: the status that is answered, or nothing, and the connection is cut.
pub type Takes = Arc<dyn Fn(&[u8]) -> Option<u16> + Send + Sync>;

/// What is done about it.
#[derive(Clone)]
pub enum Does {
    /// Takes the whole body, does something with it, and answers, or not.
    Takes(Takes),
    /// Takes the whole body, then answers.
    Answers(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Answers before any of the body is taken.
    AnswersAtOnce(u16, Vec<(&'static str, String)>),
    /// Takes so much of the body, answers, and reads no more of it.
    AnswersAfter(usize, u16),
    /// Takes so much of the body, and ends the connection.
    CutsAfter(usize),
    /// Says that so much comes, gives less, and ends the connection.
    GivesLess(Vec<u8>, usize),
    /// Says nothing, for as long as it is listened to.
    Hangs,
    /// Answers this, byte for byte.
    Says(Vec<u8>),
}

/// An answer with headers and without a body.
pub fn answers(status: u16, headers: &[(&'static str, &str)]) -> Does {
    Does::Answers(status, headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), Vec::new())
}

/// It listens until the test ends.
pub struct StandIn {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl StandIn {
    /// `does` is called for each request, with what is known before its body.
    pub fn start(does: impl Fn(&Asked) -> Does + Send + Sync + 'static) -> StandIn {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("it listens").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (all, does) = (Arc::clone(&asked), Arc::new(does));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (all, does) = (Arc::clone(&all), Arc::clone(&does));
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    while let Some(true) = serve(&mut stream, does.as_ref(), &all) {}
                });
            }
        });
        StandIn { port, asked }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/base", self.port)
    }

    /// What was asked until now.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }

    /// What was asked with a method.
    pub fn asked_with(&self, method: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.method == method).collect()
    }
}

/// One request; whether the connection goes on.
fn serve(stream: &mut BufReader<TcpStream>, does: &dyn Fn(&Asked) -> Does, all: &Mutex<Vec<Asked>>) -> Option<bool> {
    let mut asked = head(stream)?;
    let bytes: usize = asked.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    let expects = asked.header("expect").is_some();
    let does = does(&asked);
    let wanted = match &does {
        Does::AnswersAtOnce(..) => 0,
        Does::AnswersAfter(wanted, _) | Does::CutsAfter(wanted) => bytes.min(*wanted),
        _ => bytes,
    };
    if wanted > 0 && expects {
        stream.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    asked.body = vec![0; wanted];
    let taken = stream.read_exact(&mut asked.body);
    let is_head = asked.method == "HEAD";
    let is_whole = taken.is_ok();
    let done = match &does {
        Does::Takes(takes) if is_whole => takes(&asked.body),
        _ => None,
    };
    all.lock().expect("no panic").push(asked);
    taken.ok()?;
    let stream = stream.get_mut();
    let mut answer = |status: u16, headers: &[(&'static str, String)], body: &[u8], bytes: usize| {
        let mut text = format!("HTTP/1.1 {status} Stand-in\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "content-length") {
            text += &format!("content-length: {bytes}\r\n");
        }
        let body = if is_head { &[] } else { body };
        stream.write_all(&[text.as_bytes(), b"\r\n", body].concat()).ok()
    };
    match does {
        Does::Takes(_) => answer(done?, &[], b"", 0).map(|()| true),
        Does::Answers(status, headers, body) => answer(status, &headers, &body, body.len()).map(|()| true),
        Does::AnswersAtOnce(status, headers) => answer(status, &headers, b"", 0).map(|()| false),
        Does::AnswersAfter(_, status) => {
            answer(status, &[], b"no room", 7)?;
            // It takes in what still comes, so that the answer is not lost with the connection.
            let _ = std::io::copy(stream, &mut std::io::sink());
            Some(false)
        }
        Does::CutsAfter(_) => Some(false),
        Does::Hangs => {
            let _ = std::io::copy(stream, &mut std::io::sink());
            Some(false)
        }
        Does::GivesLess(body, bytes) => answer(200, &[], &body, bytes).map(|()| false),
        Does::Says(bytes) => stream.write_all(&bytes).ok().map(|()| false),
    }
}

fn head(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some(Asked { method, path, headers, body: Vec::new() })
}
