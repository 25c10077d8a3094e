//! The server as a separate process, in its own directory.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// An operation that takes longer than this has failed. Machines that run tests are busy at times.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory that goes when it is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "connectx-model-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lines that another thread collects.
#[derive(Default)]
struct Lines {
    lines: Mutex<(Vec<String>, bool)>,
    grown: Condvar,
}

impl Lines {
    fn collect(&self, from: impl BufRead) {
        for line in from.lines().map_while(Result::ok) {
            self.lines.lock().unwrap().0.push(line);
            self.grown.notify_all();
        }
        self.lines.lock().unwrap().1 = true;
        self.grown.notify_all();
    }
}

/// A server and what it says.
pub(crate) struct Server {
    child: Child,
    pub(crate) directory: Arc<Directory>,
    log: Arc<Lines>,
    /// Lines that it printed before it was ready.
    pub(crate) greeting: Vec<String>,
    functions: usize,
}

impl Server {
    /// Starts a server with so many functions. `{dir}` in the arguments is its directory.
    pub(crate) fn start(functions: usize, arguments: &[&str]) -> Self {
        Self::start_with(&vec![&[][..]; functions], arguments)
    }

    /// Starts a server; each function has its own arguments behind its `--socket`.
    pub(crate) fn start_with(functions: &[&[&str]], arguments: &[&str]) -> Self {
        Self::start_in(Arc::new(Directory::new()), functions, arguments)
    }

    /// The same in a directory that is there already; sockets are named by `names`.
    pub(crate) fn start_in(
        directory: Arc<Directory>,
        functions: &[&[&str]],
        arguments: &[&str],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_connectx-model"));
        command.arg("serve");
        let in_directory =
            |text: &&str| text.replace("{dir}", directory.0.to_str().expect("a path in UTF-8"));
        for (index, own) in functions.iter().enumerate() {
            command
                .arg("--socket")
                .arg(directory.path(&index.to_string()));
            command.args(own.iter().map(in_directory));
        }
        command
            .args(arguments.iter().map(in_directory))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let log = Arc::new(Lines::default());
        let errors = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn({
            let log = log.clone();
            move || log.collect(errors)
        });
        // The line with the seed is the last.
        let mut greeting = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            greeting.push(line.expect("a line"));
            if greeting.last().is_some_and(|line| line.contains("seed ")) {
                break;
            }
        }
        Self {
            child,
            directory,
            log,
            greeting,
            functions: functions.len(),
        }
    }

    pub(crate) fn socket(&self, function: usize) -> PathBuf {
        self.directory.path(&function.to_string())
    }

    /// Writes a line to its standard input.
    pub(crate) fn send_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("still open");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Closes its standard input.
    pub(crate) fn hush(&mut self) {
        self.child.stdin = None;
    }

    /// Waits for a line of the log that has all of these words, and returns it.
    #[track_caller]
    pub(crate) fn expect_log(&self, words: &[&str]) -> String {
        let deadline = Instant::now() + LONG;
        let mut lines = self.log.lines.lock().unwrap();
        loop {
            let found = lines
                .0
                .iter()
                .find(|line| words.iter().all(|word| line.contains(word)));
            if let Some(line) = found {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if lines.1 || left.is_zero() {
                panic!("no line with {words:?} in the log:\n{}", lines.0.join("\n"));
            }
            lines = self.log.grown.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// Its log, as far as it is known now.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lines.lock().unwrap().0.clone()
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        // The shell has `kill` built in, wherever there is a shell.
        let status = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.child.id())])
            .status()
            .expect("a shell");
        assert!(status.success(), "kill -{name}");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("its status")
    }

    /// The number of its mappings of files whose names contain `name`.
    pub(crate) fn mappings(&self, name: &str) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id()));
        let maps = maps.expect("its mappings");
        maps.lines().filter(|line| line.contains(name)).count()
    }

    /// The number of descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .expect("its descriptors")
            .count()
    }

    /// The cost of its threads so far: nanoseconds on a processor, and the number of times that one of them went to sleep.
    #[allow(dead_code, reason = "for the benchmark")]
    pub(crate) fn cost(&self) -> (u64, u64) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let first = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
        tasks
            .expect("its threads")
            .filter_map(|task| {
                let task = task.ok()?.path();
                let time = std::fs::read_to_string(task.join("schedstat")).ok()?;
                let status = std::fs::read_to_string(task.join("status")).ok()?;
                let sleeps = status
                    .lines()
                    .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
                Some((first(&time)?, first(sleeps)?))
            })
            .fold((0, 0), |sum, task| (sum.0 + task.0, sum.1 + task.1))
    }

    /// It still serves every function.
    #[track_caller]
    pub(crate) fn assert_serves(&self) {
        for function in 0..self.functions {
            let card = crate::card::Card::open(&self.socket(function));
            assert_eq!(card.identity(), (0x15b3, 0x1017));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log().join("\n"));
        }
    }
}

/// Runs something that must not hang.
#[track_caller]
pub(crate) fn in_time<R: Send>(what: &str, f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let (done, wait) = std::sync::mpsc::channel();
        let worker = scope.spawn(move || {
            let result = f();
            // The receiver exists until it has this message.
            let _ = done.send(());
            result
        });
        match wait.recv_timeout(LONG) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                // A panic would wait for the thread that hangs.
                eprintln!("{what}: hangs");
                std::process::abort();
            }
            _ => match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    })
}

/// Returns `true` if a path is there.
pub(crate) fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}
