//! A node that another process looks at while its connection is in use.
#![cfg(feature = "model")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use bareverbs_node::cm::rdma::{AddrInfo, QpInit, SendFlags};
use bareverbs_node::inspect::{Count, ask_counters, ask_resources};
use bareverbs_node::{Cm, Error, Node, Pair, Result};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const LEN: usize = 64;

/// Names the socket in the process that has the devices.
const SOCKET: &str = "BAREVERBS_TEST_SOCKET";

static ENDED: AtomicBool = AtomicBool::new(false);

/// The process with the devices runs this; in the one that starts it, it does nothing.
#[test]
fn echo() -> Result<()> {
    let Some(path) = std::env::var_os(SOCKET) else {
        return Ok(());
    };
    let mut pair = Pair::open("model", SERVER, CLIENT)?;
    pair.server = pair.server.serve(path);
    // The work ends when the other process closes its end.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        ENDED.store(true, Ordering::Release);
    });
    pair.run(server, client).map(drop)
}

fn server(cm: &mut Cm, ready: &mut dyn FnMut()) -> Result<()> {
    let here = AddrInfo::listen((SERVER, 7471));
    let listener = cm.create_ep(&here, None, Some(&mut QpInit::with_queues(2, 2)))?;
    cm.listen(listener, 1)?;
    ready();
    let id = cm.get_request(listener)?;
    let memory = cm.reg_msgs(id, LEN)?;
    cm.post_recv(id, 0, memory.slice(..LEN)?)?;
    cm.accept(id, None)?;
    while cm.get_recv_comp(id)?.byte_len != 0 {
        cm.post_recv(id, 0, memory.slice(..LEN)?)?;
        cm.post_send(id, 1, memory.slice(..LEN)?, SendFlags::SIGNALED)?;
        let _ = cm.get_send_comp(id)?;
    }
    Ok(())
}

fn client(cm: &mut Cm) -> Result<()> {
    let to = AddrInfo::connect((SERVER, 7471));
    let id = cm.create_ep(&to, None, Some(&mut QpInit::with_queues(2, 2)))?;
    let memory = cm.reg_msgs(id, LEN)?;
    cm.connect(id, None)?;
    let mut echoes = 0u64;
    while !ENDED.load(Ordering::Acquire) {
        cm.post_recv(id, 0, memory.slice(..LEN)?)?;
        cm.post_send(id, 1, memory.slice(..LEN)?, SendFlags::SIGNALED)?;
        let _ = cm.get_send_comp(id)?;
        assert_eq!(cm.get_recv_comp(id)?.byte_len as usize, LEN);
        if echoes == 0 {
            println!("\nready");
        }
        echoes += 1;
    }
    cm.post_send(id, 1, memory.slice(..0)?, SendFlags::SIGNALED)?;
    let _ = cm.get_send_comp(id)?;
    println!("\nechoes {echoes}");
    Ok(())
}

/// Starts the process, and waits until messages go to and fro.
fn start(path: &Path) -> (Child, impl BufRead) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "echo", "--nocapture"])
        .env(SOCKET, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert_ne!(printed.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    (child, printed)
}

fn in_folder(test: impl FnOnce(PathBuf)) {
    let id = (std::process::id(), std::thread::current().id());
    let folder = std::env::temp_dir().join(format!("bareverbs-serve-{id:?}"));
    fs::create_dir(&folder).unwrap();
    test(folder.join("storage.sock"));
    fs::remove_dir_all(&folder).unwrap();
}

fn value(count: &Count, name: &str) -> u64 {
    let found = count.values.iter().find(|(it, _)| it == name);
    found.unwrap_or_else(|| panic!("{name} in {count:?}")).1
}

#[test]
fn a_device_in_use_is_looked_at() {
    in_folder(|path| {
        let (mut child, mut printed) = start(&path);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        // The counters move, as the data path has not stopped.
        let name = "vport.received_ib_unicast.packets";
        let first = ask_counters(&path).unwrap();
        loop {
            let later = ask_counters(&path).unwrap();
            assert!(later.at > first.at);
            assert_eq!(later.values.len(), first.values.len());
            if value(&later, name) > value(&first, name) {
                break;
            }
        }
        let text = ask_resources(&path, false).unwrap();
        let connected = text
            .lines()
            .find(|line| line.contains(" type RC state RTS "));
        assert!(
            connected
                .unwrap_or_else(|| panic!("{text}"))
                .starts_with("link storage/1 lqpn ")
        );
        let json = ask_resources(&path, true).unwrap();
        assert_eq!(json.lines().count(), text.lines().count());
        assert!(
            json.lines()
                .all(|line| line.starts_with("{\"link\":\"storage/1\","))
        );

        // Invalid requests, and clients that leave, do not keep the next ones from being answered.
        for request in [
            "",
            "\n",
            "counters",
            "resources  \n",
            "\0\u{ff}\n",
            &"x".repeat(1 << 16),
        ] {
            let mut socket = UnixStream::connect(&path).unwrap();
            // It may be refused before it has been written.
            let _ = socket.write_all(request.as_bytes());
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let mut answer = String::new();
            let _ = socket.read_to_string(&mut answer);
            assert!(matches!(&*answer, "" | "no such request\n"), "{answer}");
        }
        drop(UnixStream::connect(&path).unwrap());
        let _ = ask_counters(&path).unwrap();

        // A client that sends nothing does not keep the node from ending.
        let _silent = UnixStream::connect(&path).unwrap();
        drop(child.stdin.take());
        let mut rest = String::new();
        printed.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success(), "{rest}");
        let echoes = rest.lines().find_map(|line| line.strip_prefix("echoes "));
        assert!(echoes.unwrap().parse::<u64>().unwrap() > 1, "{rest}");
        assert!(!path.exists());
        ask_counters(&path).expect_err("nothing is there");
    });
}

#[test]
fn a_socket_is_one_nodes() {
    in_folder(|path| {
        // This file is like one of a process that has ended.
        drop(UnixListener::bind(&path).unwrap());
        let node = || Node::open("model", SERVER).unwrap().serve(&path);
        // A node does not take the socket of another one.
        let ran = node().run(|_| -> Result<bool> {
            let second = node().run(|_| Ok::<_, Error>(()));
            let refused = matches!(second, Err(Error::Serve { .. }));
            ask_counters(&path)?;
            Ok(refused)
        });
        assert!(ran.unwrap());
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        let refused = node().run(|_| Ok::<_, Error>(()));
        assert!(matches!(refused, Err(Error::Serve { .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    });
}
