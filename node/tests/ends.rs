//! Processes that end without having disconnected: the other end hears of it ([`Options::disconnect_on_exit`]).
//!
//! This is a program of its own, as the processes have one thread each. Without arguments it is the test, on a wire between two
//! models. `server COUNT` and `clients ADDRESS` are its ends, on the device that the environment names: the rig for VFIO runs the
//! clients against Linux.

// UNSAFETY: functions of the C library that end a process.
#![expect(unsafe_code)]

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bareverbs_node::cm::rdma::{AddrInfo, ConnParam, EventType, PortSpace, QpInit, SendFlags};
use bareverbs_node::{Cm, Error, LINK_VARIABLE, Node, Options, Result};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const PORT: u16 = 7471;
/// The time within which the other end hears.
const LIMIT: Duration = Duration::from_secs(1);
/// The ways in which a client ends.
const WAYS: [&str; 6] = ["_exit", "abort", "exec", "SIGTERM", "SIGKILL", "panic"];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["server", count] => {
            let count = count.parse()?;
            Node::from_env(SERVER)?.run(|cm| server(cm, count))
        }
        ["clients", address] => clients(address),
        ["client", address, way] => client(address.parse()?, way),
        // What lists tests hears of none.
        _ if words.contains(&"--list") => Ok(()),
        // Arguments of the harness, which this program does not have.
        _ => on_a_wire(),
    }
}

/// The client's own address: another one of the server's network.
fn own(server: IpAddr) -> IpAddr {
    match server {
        IpAddr::V4(ip) if ip.octets() == SERVER => CLIENT.into(),
        _ => SERVER.into(),
    }
}

/// Ends each client by a message, and hears of it.
fn server(cm: &mut Cm, count: usize) -> Result<()> {
    let channel = cm.create_event_channel()?;
    let listener = cm.create_id(Some(channel), 0, PortSpace::Tcp)?;
    cm.bind_addr(listener, (SERVER, PORT))?;
    cm.listen(listener, 1)?;
    println!("ready");
    for _ in 0..count {
        let request = cm.get_cm_event(channel)?;
        assert_eq!(request.event, EventType::ConnectRequest);
        let way = String::from_utf8(request.private_data().to_vec())?;
        let id = request.id;
        cm.create_qp(id, None, &mut QpInit::default())?;
        cm.accept(id, None)?;
        assert_eq!(cm.get_cm_event(channel)?.event, EventType::Established);
        let begun = Instant::now();
        cm.post_send_inline(id, 0, b"", SendFlags::SIGNALED)?;
        let deadline = cm.now() + Duration::from_secs(30);
        let event = cm.get_cm_event_until(channel, deadline)?;
        assert_eq!((event.id, event.event), (id, EventType::Disconnected));
        let took = begun.elapsed();
        let way = way.trim_end_matches('\0');
        println!("note: {way}: heard after {} ms", took.as_millis());
        assert!(took <= LIMIT, "{way}: late");
        cm.disconnect(id)?;
        cm.destroy_id(id)?;
    }
    Ok(())
}

/// A client for each way, one after the other.
fn clients(address: &str) -> Result<()> {
    for way in WAYS {
        let mut command = Command::new(std::env::current_exe()?);
        let status = command.args(["client", address, way]).status()?;
        let (code, signal) = (status.code(), status.signal());
        match way {
            "_exit" | "exec" => assert_eq!(code, Some(0), "{way}"),
            "panic" => assert_eq!(code, Some(101), "{way}"),
            "abort" => assert_eq!(signal, Some(libc::SIGABRT), "{way}"),
            "SIGTERM" => assert_eq!(signal, Some(libc::SIGTERM), "{way}"),
            _ => assert_eq!(signal, Some(libc::SIGKILL), "{way}"),
        }
    }
    println!("all ended");
    Ok(())
}

/// Connects, and ends.
fn client(server: IpAddr, way: &str) -> Result<()> {
    let mut options = Options::from_env()?;
    options.disconnect_on_exit = true;
    let device = bareverbs_node::DeviceName::from_env()?[0];
    let node = Node::open_with(device, own(server), options)?;
    // It has no child.
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    let child = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) };
    assert_eq!(child, -1);
    node.run(|cm| {
        let to = AddrInfo::connect(SocketAddr::from((server, PORT)));
        let id = cm.create_ep(&to, None, Some(&mut QpInit::default()))?;
        let memory = cm.reg_msgs(id, 1)?;
        cm.post_recv(id, 0, memory.slice(..0)?)?;
        let mut about = [0; 32];
        about[..way.len()].copy_from_slice(way.as_bytes());
        let param = ConnParam {
            private_data: &about,
            ..ConnParam::default()
        };
        cm.connect(id, Some(&param))?;
        let _ = cm.get_recv_comp(id)?;
        // SAFETY: it takes a number.
        let raise = |signal| unsafe { libc::raise(signal) };
        match way {
            // SAFETY: it takes a number, and ends the process.
            "_exit" => unsafe { libc::_exit(0) },
            "abort" => std::process::abort(),
            "exec" => return Err(Command::new("sleep").arg("0.3").exec().into()),
            "SIGTERM" => raise(libc::SIGTERM),
            "SIGKILL" => raise(libc::SIGKILL),
            _ => panic!("as it is to be"),
        };
        Ok(())
    })
}

/// The test: both ends on a wire between two models.
fn on_a_wire() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("bareverbs-ends-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let end = |name: &str| folder.join(name).display().to_string();
    let (one, two) = (end("1"), end("2"));
    let start = |arguments: &[&str], link: String| -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).env(LINK_VARIABLE, link);
        Ok(command.stdout(Stdio::piped()).spawn()?)
    };
    let count = WAYS.len().to_string();
    let mut server = start(&["server", &count], format!("unix:{one},{two}"))?;
    let mut printed = BufReader::new(server.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    printed.read_line(&mut line)?;
    assert_eq!(line, "ready\n");
    let clients = start(&["clients", "10.0.0.1"], format!("unix:{two},{one}"))?;
    let clients = clients.wait_with_output()?.status;
    if !clients.success() {
        server.kill()?;
    }
    line.clear();
    printed.read_to_string(&mut line)?;
    let server = server.wait()?;
    std::fs::remove_dir_all(&folder)?;
    print!("{line}");
    assert!(clients.success() && server.success(), "{clients}, {server}");
    assert_eq!(line.lines().count(), WAYS.len());
    needs_one_thread();
    Ok(())
}

/// Nodes are not opened so while there are other threads.
fn needs_one_thread() {
    let mut options = Options::default();
    options.disconnect_on_exit = true;
    let opened = std::thread::spawn(move || {
        Node::open_with(
            "vfio:0000:00:00.0".parse().expect("a name"),
            CLIENT,
            options,
        )
    });
    let error = opened.join().expect("a result").expect_err("two threads");
    assert!(matches!(error, Error::Threads(2)), "{error}");
}
