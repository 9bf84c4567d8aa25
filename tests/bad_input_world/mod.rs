//! A shop in a directory of its own, the built program on it, and buyers who speak raw bytes.
#![allow(dead_code)] // each test binary uses what it needs

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir::config::{self, Host, Plan};
use weir_proto::ids::UserId;
use weir_proto::ticket::{Claims, DeviceClaim, NonceClaim, mint_compact, mint_jws};

/// Nothing in these tests takes so long; it only ends a test whose server hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub fn weir() -> &'static str {
    env!("CARGO_BIN_EXE_weir")
}

/// A directory made by `weir init`, listening on ports that the system chooses.
pub struct Shop {
    pub dir: PathBuf,
}

impl Shop {
    /// Its ledger is in Redis from now on, at these servers of any version (more than one: `a", "b`).
    pub fn use_redis(&self, servers: &str) {
        self.edit("# kind = \"embedded\"", "kind = \"redis\"");
        self.edit(
            "# servers = [\"127.0.0.1:6379\"]",
            &format!("servers = [\"{servers}\"]"),
        );
        self.edit("# accept_lua_holes = false", "accept_lua_holes = true");
    }

    pub fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("bad-input-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let made = Command::new(weir()).arg("init").arg(&dir).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let shop = Self { dir };
        shop.edit("# listen = \"127.0.0.1:8080\"", "listen = \"127.0.0.1:0\"");
        shop.edit("# listen = \"127.0.0.1:9090\"", "listen = \"127.0.0.1:0\"");
        shop.edit("# shards = \"auto\"", "shards = 1");
        shop.set(
            "limits",
            "ip_rate = \"100000/s\"\nip_burst = 100000\nrequest_budget = \"1900ms\"",
        );
        shop
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn toml(&self) -> PathBuf {
        self.path("weir.toml")
    }

    /// Replaces `from` by `to` in the file; `from` must be there.
    pub fn edit(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.toml()).unwrap();
        assert!(text.contains(from), "the file has {from:?}");
        fs::write(self.toml(), text.replacen(from, to, 1)).unwrap();
    }

    /// Replaces the first `from` behind the head of `section`.
    pub fn edit_in(&self, section: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.toml()).unwrap();
        let (before, after) = text.split_once(&format!("[{section}]\n")).unwrap();
        assert!(after.contains(from), "{section} has {from:?}");
        let after = after.replacen(from, to, 1);
        fs::write(self.toml(), format!("{before}[{section}]\n{after}")).unwrap();
    }

    /// Adds `lines` to a section.
    pub fn set(&self, section: &str, lines: &str) {
        let head = format!("[{section}]\n");
        self.edit(&head, &format!("{head}{lines}\n"));
    }

    pub fn plan(&self) -> Plan {
        config::load(&self.toml(), &Host::read()).unwrap()
    }

    /// `weir serve` on this shop, not started yet.
    pub fn command(&self) -> Command {
        let mut command = Command::new(weir());
        command.args(["serve", "--config"]).arg(self.toml());
        command
    }

    pub fn start(&self) -> Running {
        Running::of(self.command())
    }

    /// The one message of a `serve` that does not start.
    pub fn refusal(&self) -> String {
        refusal(&[weir()], self)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Runs `program` (a wrapper and its arguments, or weir alone) with `serve` and the shop's file, to its end.
pub fn run(program: &[&str], shop: &Shop) -> Output {
    // timeout(1) ends it with 124 when it hangs.
    Command::new("timeout")
        .arg(PATIENCE.as_secs().to_string())
        .args(program)
        .args(["serve", "--config"])
        .arg(shop.toml())
        .output()
        .unwrap()
}

/// The one message of a `serve` that must not start: exit code 2, `weir: ` before it, nothing on standard output.
pub fn refusal(program: &[&str], shop: &Shop) -> String {
    the_refusal(&run(program, shop))
}

pub fn the_refusal(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    // 75: what it needs is away, which may pass.
    assert!(matches!(output.status.code(), Some(2 | 75)), "{text}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let mut lines: Vec<&str> = text.lines().collect();
    // What it will take of the machine is printed before anything is tried.
    if lines
        .first()
        .is_some_and(|line| line.contains(" MiB shared; up to "))
    {
        lines.remove(0);
    }
    assert!(lines[0].starts_with("weir: "), "{text}");
    // A TOML error shows the line it means, and several problems are a list; everything else is one line.
    let is_long = ["not valid TOML", " problems"]
        .iter()
        .any(|part| lines[0].contains(part));
    assert!(lines.len() == 1 || is_long, "one message: {text}");
    lines.join("\n")
}

/// A server that serves.
pub struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    /// Ends when nothing more is said.
    lines: Receiver<String>,
    pub listen: SocketAddr,
    pub ops: SocketAddr,
}

impl Running {
    /// Starts `command` and waits for its `serving` line.
    pub fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let lines = follow(child.stderr.take().unwrap(), Arc::clone(&said));
        let serving = loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains("serving http://") => break line,
                Ok(_) => {}
                Err(_) => {
                    let _ = child.kill();
                    panic!("it does not serve: {}", said.lock().unwrap());
                }
            }
        };
        let mut parts = serving.split("http://").skip(1).map(|part| {
            let end = part.find([' ', ')']).unwrap_or(part.len());
            part[..end].parse().unwrap()
        });
        let (listen, ops) = (parts.next().unwrap(), parts.next().unwrap());
        Self {
            child,
            said,
            lines,
            listen,
            ops,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_up(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end; all that it said on standard error.
    pub fn ended(&mut self) -> (ExitStatus, String) {
        let (send, ended) = channel();
        std::thread::scope(|scope| {
            let pid = self.pid();
            scope.spawn(move || {
                if ended.recv_timeout(PATIENCE).is_err() {
                    let _ = Command::new("kill")
                        .args(["-s", "KILL", &pid.to_string()])
                        .status();
                }
            });
            let status = self.child.wait().unwrap();
            let _ = send.send(());
            while self.lines.recv().is_ok() {} // its last words
            (status, self.said())
        })
    }

    /// Stops it kindly; it must end well.
    pub fn stop(mut self) -> String {
        self.signal("TERM");
        let (status, said) = self.ended();
        assert!(status.success(), "{status}: {said}");
        said
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub fn wire(&self) -> Wire {
        Wire::to(self.listen)
    }

    /// One request to the operator's listener.
    pub fn ops(&self, request: &str) -> Answer {
        let mut wire = Wire::to(self.ops);
        wire.send(request.as_bytes());
        wire.answer()
    }

    pub fn get_ops(&self, path: &str) -> Answer {
        self.ops(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.ops
        ))
    }

    pub fn post_ops(&self, path: &str, body: &str) -> Answer {
        self.ops(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.ops,
            body.len()
        ))
    }

    /// Asks `/readyz` until it has that status; its last answer.
    pub fn until_ready_is(&self, status: u16) -> Answer {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.get_ops("/readyz");
            if answer.status == status || Instant::now() > until {
                return answer;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Collects lines and passes them on.
fn follow(stderr: impl Read + Send + 'static, said: Arc<Mutex<String>>) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            let Ok(line) = line else { return };
            let mut said = said.lock().unwrap();
            said.push_str(&line);
            said.push('\n');
            drop(said);
            let _ = send.send(line);
        }
    });
    lines
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub fn closes(&self) -> bool {
        self.field("Connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// One connection, spoken in bytes.
pub struct Wire {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    pub fn to(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            socket,
            unread: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub fn end_sending(&mut self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads until `done` says how many of the unread bytes to take; `None`: the peer ended before.
    fn take_until(&mut self, done: impl Fn(&[u8]) -> Option<usize>) -> Option<Vec<u8>> {
        loop {
            if let Some(bytes) = done(&self.unread) {
                return Some(self.unread.drain(..bytes).collect());
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) => return None,
                Ok(bytes) => self.unread.extend_from_slice(&buffer[..bytes]),
                Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&self.unread)),
            }
        }
    }

    /// The next answer, or `None` when the server ended the connection instead.
    pub fn maybe_answer(&mut self) -> Option<Answer> {
        let head = self.take_until(|bytes| {
            bytes
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
                .map(|at| at + 4)
        })?;
        let head = String::from_utf8(head).unwrap();
        let mut answer = Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head,
            body: String::new(),
        };
        let bytes = answer
            .field("Content-Length")
            .map_or(0, |value| value.parse().unwrap());
        let body = self.take_until(|unread| (unread.len() >= bytes).then_some(bytes))?;
        answer.body = String::from_utf8(body).unwrap();
        Some(answer)
    }

    pub fn answer(&mut self) -> Answer {
        self.maybe_answer().expect("an answer before the end")
    }

    /// The answer to `request`, sent again while the server says that it is busy: on a crowded machine a lease may end
    /// before it is renewed.
    pub fn ask(&mut self, request: &[u8]) -> Answer {
        let until = Instant::now() + PATIENCE;
        loop {
            self.send(request);
            let answer = self.answer();
            if answer.status != 503
                || answer.code() != "SYSTEM_OVERLOADED"
                || Instant::now() > until
            {
                return answer;
            }
        }
    }

    /// The server sends nothing more.
    pub fn assert_ended(&mut self) {
        let more = self.take_until(|unread| (!unread.is_empty()).then_some(unread.len()));
        assert_eq!(
            more.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            None
        );
    }

    /// True when the connection still answers.
    pub fn still_answers(&mut self) -> bool {
        self.send(GOOD);
        let answer = self.answer();
        answer.status == 404 && answer.code() == "NOT_FOUND"
    }
}

/// A request that is fine and cheap: nothing is at its path.
pub const GOOD: &[u8] = b"GET /nothing HTTP/1.1\r\nHost: shop\r\n\r\n";

/// Makes tickets and requests for a shop.
pub struct Buyer {
    plan: Plan,
}

/// A ticket and what goes with it.
pub struct Submit {
    pub user: u64,
    pub ticket: String,
    /// Further header lines, each with its CRLF.
    pub fields: String,
    pub body: String,
}

impl Buyer {
    pub fn of(shop: &Shop) -> Self {
        Self { plan: shop.plan() }
    }

    pub fn path(&self) -> String {
        let activity = &self.plan.sale.activities[0];
        format!("/v1/seckill/{}", activity.path_id.as_str())
    }

    /// A good ticket of `user`, changed by `change` before it is signed.
    pub fn ticket(&self, user: u64, change: impl FnOnce(&mut Claims)) -> String {
        self.mint(user, false, change)
    }

    pub fn jws(&self, user: u64) -> String {
        self.mint(user, true, |_| {})
    }

    fn mint(&self, user: u64, jws: bool, change: impl FnOnce(&mut Claims)) -> String {
        let activity = &self.plan.sale.activities[0];
        let now = Host::read().wall_ms;
        let mut claims = Claims {
            activity: activity.id,
            sku: activity.skus[0].id,
            user: UserId(user),
            activity_version: activity.version,
            path_id: activity.path_id,
            nonce: NonceClaim::Raw(weir::keys::random().unwrap()),
            device: DeviceClaim::Unbound,
            not_before_ms: now,
            expires_at_ms: now + 600_000,
        };
        change(&mut claims);
        let mut ticket = Vec::new();
        let key = self.plan.keys().signing();
        if jws {
            mint_jws(&claims, key, &mut ticket).unwrap();
        } else {
            mint_compact(&claims, key, &mut ticket).unwrap();
        }
        String::from_utf8(ticket).unwrap()
    }

    pub fn device_claim(&self, device: &str) -> DeviceClaim {
        DeviceClaim::of_device(&self.plan.sale.activities[0].device_salt, device.as_bytes())
            .unwrap()
    }

    /// A submit that wins while there is stock.
    pub fn submit(&self, user: u64) -> Submit {
        Submit {
            user,
            ticket: self.ticket(user, |_| {}),
            fields: String::new(),
            body: body(user, &format!("\"request_id\":\"req-{user:08}\",")),
        }
    }

    pub fn bytes(&self, submit: &Submit) -> Vec<u8> {
        let Submit {
            ticket,
            fields,
            body,
            ..
        } = submit;
        format!(
            "POST {} HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer {ticket}\r\nContent-Type: application/json\r\n\
             {fields}Content-Length: {}\r\n\r\n{body}",
            self.path(),
            body.len()
        )
        .into_bytes()
    }

    /// Asks what became of `submit`.
    pub fn status(&self, submit: &Submit) -> Vec<u8> {
        format!(
            "GET /v1/activities/1/skus/1/requests/req-{:08} HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer {}\r\n{}\r\n",
            submit.user, submit.ticket, submit.fields
        )
        .into_bytes()
    }
}

/// A submit's body; `first` is put in front of the rest.
pub fn body(user: u64, first: &str) -> String {
    format!("{{{first}\"activity_id\":1,\"sku_id\":1,\"user_id\":{user},\"quantity\":1}}")
}
