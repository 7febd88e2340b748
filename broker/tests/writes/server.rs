//! Turns a list of answers into a server on loopback that gives one to each request, and keeps what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A status, fields, and a body.
    Now(u16, Vec<(&'static str, String)>, String),
    /// Takes the request and closes without a word.
    Close,
    /// Takes the request and says nothing.
    Hang,
    /// A body that goes on for so many bytes.
    Endless(usize),
}

/// Answers by request.
pub(crate) type Script = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
}

pub(crate) fn ok(body: &serde_json::Value) -> Answer {
    Answer::Now(200, Vec::new(), body.to_string())
}

pub(crate) fn status(status: u16) -> Answer {
    Answer::Now(status, Vec::new(), "{}".to_owned())
}

impl Server {
    pub(crate) async fn new(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (script, seen): (Script, _) = (Arc::new(script), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&seen)));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.asked().iter().filter(|asked| asked.method == method).count()
    }
}

/// Serves one request of a connection.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: Script,
    seen: Arc<Mutex<Vec<Asked>>>,
) {
    let Some(asked) = read(&mut stream).await else { return };
    seen.lock().unwrap().push(asked.clone());
    let answer = script(&asked);
    // A broker that reads no further is what some tests want to see.
    let _ = write(&mut stream, answer).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    let mut words = head.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(Asked { method, path, body: String::from_utf8_lossy(&body).into_owned(), head })
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), answer: Answer) -> std::io::Result<()> {
    match answer {
        Answer::Now(status, fields, body) => {
            let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n", body.len());
            for (name, value) in fields {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).await
        }
        Answer::Close => Ok(()),
        Answer::Hang => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(())
        }
        Answer::Endless(bytes) => {
            stream.write_all(format!("HTTP/1.1 200 X\r\nContent-Length: {bytes}\r\n\r\n").as_bytes()).await?;
            let chunk = vec![b' '; 64 * 1024];
            for _ in 0..bytes / chunk.len() {
                stream.write_all(&chunk).await?;
            }
            Ok(())
        }
    }
}
