//! A `nats-server` with a temporary store.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub(super) struct Server {
    child: Child,
    port: u16,
    store: PathBuf,
}

/// Returns the server's program. `HOMEOSTAT_NATS_SERVER` can name another one.
fn program() -> PathBuf {
    env::var_os("HOMEOSTAT_NATS_SERVER").map_or_else(|| "nats-server".into(), PathBuf::from)
}

impl Server {
    /// Starts a server, and waits until it accepts clients.
    pub(super) fn start() -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let store = env::temp_dir().join(format!("homeostat-compare-nats-{}", std::process::id()));
        let mut command = Command::new(program());
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(&store);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server =
            Self { child: child.context("cannot start nats-server: apt-get install nats-server")?, port, store };
        for _ in 0..500 {
            if let Ok(socket) = TcpStream::connect(("127.0.0.1", port)) {
                let mut line = String::new();
                if BufReader::new(socket).read_line(&mut line).is_ok() && line.starts_with("INFO") {
                    return Ok(server);
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("nats-server accepts no clients")
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(super) fn version(&self) -> Result<String> {
        let output = Command::new(program()).arg("--version").output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.store);
    }
}
