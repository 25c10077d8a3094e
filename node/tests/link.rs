//! Each end of a connection in a process of its own, on a wire that the environment names.
#![cfg(feature = "model")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bareverbs_node::cm::rdma::{AddrInfo, QpInit, SendFlags};
use bareverbs_node::verbs::{Access, Remote, WcOpcode};
use bareverbs_node::{Cm, LINK_VARIABLE, Node, Result, UNIT_VARIABLE};
use connectx_model::link::vswitch::VirtualSwitch;

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Set in a process that is an end.
const END: &str = "BAREVERBS_TEST_END";

/// The processes run this; in the one that starts them it does nothing.
#[test]
fn end() -> Result<()> {
    match std::env::var(END).as_deref() {
        Ok("server") => Node::from_env(SERVER)?.run(server),
        Ok("client") => Node::open("model", CLIENT)?.run(client),
        _ => Ok(()),
    }
}

/// Says where its memory is, and is told by immediate data that something was written there.
fn server(cm: &mut Cm) -> Result<()> {
    let here = AddrInfo::listen((SERVER, 7471));
    let mut queues = QpInit::with_queues(1, 1);
    queues.cap.max_inline_data = Remote::LEN as u32;
    let listener = cm.create_ep(&here, None, Some(&mut queues))?;
    cm.listen(listener, 1)?;
    println!("\nready");
    let id = cm.get_request(listener)?;
    let store = cm.reg(id, 64, Access::REMOTE_READ | Access::REMOTE_WRITE)?;
    cm.post_recv(id, 1, store.slice(..0)?)?;
    cm.accept(id, None)?;
    cm.post_send_inline(id, 2, &store.remote(8).to_bytes(), SIGNALED)?;
    let _ = cm.get_send_comp(id)?;
    let written = cm.get_recv_comp(id)?;
    assert_eq!(written.opcode, WcOpcode::RecvRdmaWithImm);
    assert_eq!((written.imm_data, written.byte_len), (0xfeed_0008, 5));
    let mut text = [0; 7];
    store.copy_out(7, &mut text)?;
    assert_eq!(&text, b"\0hello\0");
    store.copy_in(8, b"there")?;
    // The client reads it, and leaves.
    cm.post_recv(id, 3, store.slice(..0)?)?;
    cm.post_send_inline(id, 4, b"", SIGNALED)?;
    let _ = cm.get_recv_comp(id)?;
    println!("done");
    Ok(())
}

fn client(cm: &mut Cm) -> Result<()> {
    let to = AddrInfo::connect((SERVER, 7471));
    let id = cm.create_ep(&to, None, Some(&mut QpInit::with_queues(2, 2)))?;
    let memory = cm.reg_msgs(id, 32)?;
    cm.post_recv(id, 1, memory.slice(..Remote::LEN)?)?;
    cm.post_recv(id, 2, memory.slice(..0)?)?;
    cm.connect(id, None)?;
    assert_eq!(cm.get_recv_comp(id)?.byte_len as usize, Remote::LEN);
    let mut bytes = [0; Remote::LEN];
    memory.copy_out(0, &mut bytes)?;
    let store = Remote::from_bytes(bytes);
    memory.copy_in(16, b"hello")?;
    let local = memory.slice(16..21)?;
    cm.post_write_imm(id, 3, local, SIGNALED, store, 0xfeed_0008)?;
    assert_eq!(cm.get_send_comp(id)?.wr_id, 3);
    assert_eq!(cm.get_recv_comp(id)?.wr_id, 2);
    cm.post_read(id, 4, local, SIGNALED, store.at(1))?;
    assert_eq!(cm.get_send_comp(id)?.opcode, WcOpcode::RdmaRead);
    let mut text = [0; 4];
    memory.copy_out(16, &mut text)?;
    assert_eq!(&text, b"here");
    cm.post_send(id, 5, memory.slice(..0)?, SIGNALED)?;
    let _ = cm.get_send_comp(id)?;
    Ok(())
}

fn start(end: &str, link: &str, unit: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "end", "--nocapture"])
        .env(END, end)
        .env(LINK_VARIABLE, link)
        .env_remove(UNIT_VARIABLE)
        .stdout(Stdio::piped());
    if let Some(unit) = unit {
        command.env(UNIT_VARIABLE, unit);
    }
    command.spawn().unwrap()
}

/// A message between two processes, with these wires and numbers.
fn message_goes_over(links: [&str; 2], units: [Option<&str>; 2]) {
    let mut server = start("server", links[0], units[0]);
    let mut printed = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert_ne!(printed.read_line(&mut line).unwrap(), 0, "no server");
    }
    let client = start("client", links[1], units[1]);
    assert!(client.wait_with_output().unwrap().status.success());
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert!(server.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("done"), "{rest}");
}

fn in_folder(test: impl FnOnce(&Path)) {
    let name = format!(
        "bareverbs-link-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).unwrap();
    test(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn two_processes_on_a_wire() {
    in_folder(|folder| {
        let [one, two] = ["1", "2"].map(|name| folder.join(name).display().to_string());
        let links = [format!("unix:{one},{two}"), format!("unix:{two},{one}")];
        let links = links.each_ref().map(String::as_str);
        message_goes_over(links, [None, None]);
        message_goes_over(links, [Some("77"), Some("78")]);
    });
}

#[test]
fn two_processes_on_a_switch() {
    in_folder(|folder| {
        let path = folder.join("switch");
        let switch = VirtualSwitch::bind(&path).unwrap();
        let switch = std::thread::spawn(|| switch.serve());
        let link = format!("switch:{}", path.display());
        message_goes_over([&link, &link], [None, None]);
        // With the last process.
        switch.join().unwrap().unwrap();
    });
}
