use super::super::stream::Connection;
use super::*;
use std::thread::JoinHandle;

/// A switch that runs.
fn switch(name: &str) -> (PathBuf, JoinHandle<io::Result<()>>) {
    switch_with(name, Limits::default())
}

fn switch_with(name: &str, limits: Limits) -> (PathBuf, JoinHandle<io::Result<()>>) {
    let name = format!("connectx-vswitch-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let lock = lock_folder(&path).unwrap();
    let mut switch = VirtualSwitch::bind(&path).unwrap();
    switch.limits = limits;
    drop(lock);
    (path, thread::spawn(move || switch.serve()))
}

/// A frame to the model `to` from the model `from`, each by the last byte of its address.
fn frame(to: u8, from: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
    frame
}

const ALL: u8 = 0xff;

fn send(mut stream: &UnixStream, frame: &[u8]) {
    let mut bytes = Vec::new();
    stream::append(&mut bytes, frame);
    stream.write_all(&bytes).unwrap();
}

fn open(path: &Path, wish: Wish) -> io::Result<(u8, UnixStream)> {
    let connection = Connection::open(path, wish)?;
    Ok((connection.first_unit(), connection.into_stream()))
}

/// A process with one model, which has a port.
fn port(path: &Path) -> (u8, UnixStream) {
    let connection = Connection::open(path, ANY).unwrap();
    connection.begin(None).unwrap();
    let first = connection.first_unit();
    let stream = connection.into_stream();
    assert!(Reader::new(&stream).next().unwrap().is_empty());
    (first, stream)
}

const ANY: Wish = Wish::Preferably { first: 0, count: 1 };

#[test]
fn frames_go_to_where_their_address_is() {
    let (path, serving) = switch("frames");
    let ports: Vec<UnixStream> = (1..=3)
        .map(|unit| {
            let (first, stream) = port(&path);
            assert_eq!(first, unit);
            stream
        })
        .collect();
    let mut readers: Vec<_> = ports.iter().map(Reader::new).collect();
    // To all, as no switch knows the address yet.
    send(&ports[0], &frame(2, 1, 60));
    assert_eq!(readers[1].next().unwrap(), frame(2, 1, 60));
    assert_eq!(readers[2].next().unwrap(), frame(2, 1, 60));
    // To the first one only: the third one has the one after it.
    send(&ports[1], &frame(1, 2, 5000));
    send(&ports[1], &frame(ALL, 2, 61));
    assert_eq!(readers[0].next().unwrap(), frame(1, 2, 5000));
    assert_eq!(readers[0].next().unwrap(), frame(ALL, 2, 61));
    assert_eq!(readers[2].next().unwrap(), frame(ALL, 2, 61));
    drop(readers);
    drop(ports);
    serving.join().unwrap().unwrap();
    assert!(!path.exists());
}

#[test]
fn frames_sent_from_the_address_of_another_do_not_take_it_away() {
    let (path, serving) = switch("replayed");
    let [one, two, other] = [(); 3].map(|()| port(&path).1);
    let mut readers = [&one, &two, &other].map(Reader::new);
    send(&one, &frame(2, 1, 60));
    assert_eq!(readers[1].next().unwrap(), frame(2, 1, 60));
    assert_eq!(readers[2].next().unwrap(), frame(2, 1, 60));
    send(&two, &frame(1, 2, 61));
    assert_eq!(readers[0].next().unwrap(), frame(1, 2, 61));
    // What the two said in a former session arrives, both ways.
    send(&other, &frame(2, 1, 62));
    assert_eq!(readers[1].next().unwrap(), frame(2, 1, 62));
    send(&other, &frame(1, 2, 63));
    assert_eq!(readers[0].next().unwrap(), frame(1, 2, 63));
    // They still reach each other, although only one of them speaks.
    send(&one, &frame(2, 1, 64));
    assert_eq!(readers[1].next().unwrap(), frame(2, 1, 64));
    // When one of them has gone, another process may have its address.
    let [_, reader, _] = readers;
    drop(reader);
    drop(two);
    let mut reader = Reader::new(&other);
    send(&other, &frame(1, 2, 65));
    loop {
        send(&one, &frame(2, 1, 66));
        send(&one, &frame(ALL, 1, 67));
        let first = reader.next().unwrap().len();
        if first == 66 {
            break;
        }
        send(&other, &frame(1, 2, 65));
    }
    drop((one, other));
    serving.join().unwrap().unwrap();
}

#[test]
fn units_are_handed_out_once() {
    let (path, serving) = switch("units");
    let hold = open(&path, Wish::Hold).unwrap();
    let (second, _two) = open(&path, Wish::Exactly { first: 2, count: 1 }).unwrap();
    let (first, one) = open(&path, ANY).unwrap();
    let (pair, _pair) = open(&path, Wish::Preferably { first: 2, count: 2 }).unwrap();
    assert_eq!((first, second, pair), (1, 2, 3));
    let taken = open(&path, Wish::Exactly { first: 4, count: 1 }).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(taken.to_string().contains("unit 4"), "{taken}");
    let too_many = Wish::Preferably {
        first: 0,
        count: 254,
    };
    assert!(open(&path, too_many).is_err());
    // The unit of a process that ends, in whatever way, is free again.
    drop(one);
    let mut again = open(&path, Wish::Exactly { first: 1, count: 1 });
    while again.is_err() {
        again = open(&path, Wish::Exactly { first: 1, count: 1 });
    }
    // A stranger is told so, and does no harm.
    let mut stranger = UnixStream::connect(&path).unwrap();
    stranger.write_all(b"GET / HT").unwrap();
    let mut answer = [0; 8];
    stranger.read_exact(&mut answer).unwrap();
    assert_eq!(answer, Answer::NotUnderstood.bytes());
    drop((hold, _two, _pair, again));
    drop(stranger);
    serving.join().unwrap().unwrap();
}

#[test]
fn a_slow_receiver_loses_nothing() {
    let (path, serving) = switch("slow");
    let (_, sender) = port(&path);
    let (_, receiver) = port(&path);
    send(&receiver, &frame(ALL, 2, 60));
    let mut heard = Reader::new(&sender);
    heard.next().unwrap();
    // Far more than all the sockets hold.
    const FRAMES: u32 = 2000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..FRAMES {
                let mut frame = frame(2, 1, 4096);
                frame[14..18].copy_from_slice(&number.to_be_bytes());
                send(&sender, &frame);
            }
        });
        let mut frames = Reader::new(&receiver);
        for number in 0..FRAMES {
            let frame = frames.next().unwrap();
            assert_eq!(frame[14..18], number.to_be_bytes());
        }
    });
    drop((sender, receiver));
    serving.join().unwrap().unwrap();
}

#[test]
fn who_takes_nothing_does_not_stop_the_others() {
    let limits = Limits {
        patience: Duration::from_millis(10),
        ..Limits::default()
    };
    let (path, serving) = switch_with("stopped", limits);
    let (_, sender) = port(&path);
    let (_, receiver) = port(&path);
    let (_, stopped) = port(&path);
    for (stream, unit) in [(&receiver, 2), (&stopped, 3)] {
        send(stream, &frame(ALL, unit, 60));
    }
    let mut heard = Reader::new(&sender);
    for _ in 0..2 {
        heard.next().unwrap();
    }
    for _ in 0..1000 {
        send(&sender, &frame(3, 1, 4096));
    }
    send(&sender, &frame(2, 1, 70));
    let mut frames = Reader::new(&receiver);
    while frames.next().unwrap() != frame(2, 1, 70) {}
    // When it goes on, what it had not begun to take is whole.
    send(&sender, &frame(3, 1, 71));
    let mut frames = Reader::new(&stopped);
    loop {
        let frame = frames.next().unwrap();
        match frame.len() {
            60 | 71 => {}
            len => {
                assert_eq!(len, 4096);
                assert_eq!(frame[..12], self::frame(3, 1, 12));
            }
        }
        if frame.len() == 71 {
            break;
        }
        if !frames.is_ready() {
            send(&sender, &self::frame(3, 1, 71));
        }
    }
    drop((sender, receiver, stopped));
    serving.join().unwrap().unwrap();
}

/// Members that never read cost neither those who send nor those who read anything, and lose frames only of their own.
fn stopped_members(count: usize) {
    let limits = Limits {
        held: 256 << 10,
        // Who waits for one of them waits for ever.
        patience: Duration::MAX,
    };
    let (path, serving) = switch_with(&format!("stopped-{count}"), limits);
    let stopped: Vec<_> = (0..count).map(|_| port(&path).1).collect();
    let ports = [port(&path).1, port(&path).1];
    for port in &ports {
        port.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
    }
    let [sender, receiver] = &ports;
    let mut frames = Reader::new(receiver);
    // Twice what is held of it, as far as sockets hold 208 KiB; the one that reads keeps up.
    let rounds = 2 * (limits.held + (208 << 10)) / 4096;
    for round in 0..rounds as u32 {
        let mut frame = frame(ALL, 0xf1, 4096);
        frame[14..18].copy_from_slice(&round.to_be_bytes());
        send(sender, &frame);
        assert_eq!(frames.next().unwrap(), frame, "{round}");
    }
    // One that comes later is heard, and hears.
    let (_, newcomer) = port(&path);
    newcomer
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    send(&newcomer, &frame(ALL, 0xf2, 60));
    assert_eq!(frames.next().unwrap(), frame(ALL, 0xf2, 60));
    send(receiver, &frame(0xf2, 0xf3, 61));
    assert_eq!(
        Reader::new(&newcomer).next().unwrap(),
        frame(0xf2, 0xf3, 61)
    );
    // What was held for them is there when they go on, whole and in order, and not all there was.
    for stream in &stopped {
        let mut frames = Reader::new(stream);
        let (mut held, mut next) = (0, 0);
        loop {
            let frame = frames.next().unwrap();
            match frame.len() {
                4096 => {
                    // Some are lost in between where the thread that writes takes what is held late.
                    let round = u32::from_be_bytes(frame[14..18].try_into().unwrap());
                    assert!(round >= next, "{round} after {next}");
                    (held, next) = (held + 1, round + 1);
                }
                60 => {}
                len => {
                    assert_eq!(len, 62);
                    break;
                }
            }
            if !frames.is_ready() {
                send(sender, &self::frame(ALL, 0xf1, 62));
            }
        }
        assert!((1..rounds as u32).contains(&held), "{held}");
    }
    drop(frames);
    drop((stopped, ports, newcomer));
    serving.join().unwrap().unwrap();
}

#[test]
fn members_that_never_read_stop_nobody() {
    for count in [1, 16, 64] {
        stopped_members(count);
    }
}

#[test]
fn a_socket_without_a_switch_is_replaced_and_one_with_a_switch_is_not() {
    let (path, serving) = switch("again");
    // The switch ends with its last connection.
    let hold = open(&path, Wish::Hold).unwrap();
    assert_eq!(
        VirtualSwitch::bind(&path).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
    drop(hold);
    serving.join().unwrap().unwrap();
    // As a process leaves it that was killed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (_, serving) = switch("again");
    drop(open(&path, ANY).unwrap());
    serving.join().unwrap().unwrap();
    assert!(!path.exists());
}

/// Switches, each pair of which has an uplink, and a port of each.
fn joined(names: &[&str]) -> Vec<(JoinHandle<io::Result<()>>, UnixStream)> {
    let count = names.len();
    let sockets: Vec<Vec<UdpSocket>> = (0..count)
        .map(|_| {
            let bind = |_| UdpSocket::bind("127.0.0.1:0").unwrap();
            (0..count).map(bind).collect()
        })
        .collect();
    let address = |here: usize, there: usize| sockets[here][there].local_addr().unwrap();
    (0..count)
        .zip(names)
        .map(|(here, name)| {
            let name = format!("connectx-vswitch-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let mut switch = VirtualSwitch::bind(&path).unwrap();
            for there in (0..count).filter(|there| *there != here) {
                let socket = sockets[here][there].try_clone().unwrap();
                socket.connect(address(there, here)).unwrap();
                switch.uplink(socket).unwrap();
            }
            let serving = thread::spawn(move || switch.serve());
            (serving, port(&path).1)
        })
        .collect()
}

#[test]
fn switches_with_uplinks_are_one_network_without_a_loop() {
    let (serving, ports): (Vec<_>, Vec<_>) = joined(&["up1", "up2", "up3"]).into_iter().unzip();
    let mut readers: Vec<_> = ports.iter().map(Reader::new).collect();
    // To all, as no switch knows the address yet; once, although there are two ways.
    send(&ports[0], &frame(2, 1, 60));
    assert_eq!(readers[1].next().unwrap(), frame(2, 1, 60));
    assert_eq!(readers[2].next().unwrap(), frame(2, 1, 60));
    // To the first one only: the third one has the one after it.
    send(&ports[1], &frame(1, 2, 4200));
    assert_eq!(readers[0].next().unwrap(), frame(1, 2, 4200));
    send(&ports[1], &frame(ALL, 2, 61));
    assert_eq!(readers[0].next().unwrap(), frame(ALL, 2, 61));
    assert_eq!(readers[2].next().unwrap(), frame(ALL, 2, 61));
    drop(readers);
    drop(ports);
    for serving in serving {
        serving.join().unwrap().unwrap();
    }
}

#[test]
fn an_uplink_takes_nothing_from_strangers() {
    let (near, far) = (
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        UdpSocket::bind("127.0.0.1:0").unwrap(),
    );
    let here = near.local_addr().unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    let path = std::env::temp_dir().join(format!("connectx-vswitch-{}-up", std::process::id()));
    let mut switch = VirtualSwitch::bind(&path).unwrap();
    switch.uplink(near).unwrap();
    let serving = thread::spawn(move || switch.serve());
    let (_, port) = port(&path);
    let mut frames = Reader::new(&port);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&frame(ALL, 3, 60), here).unwrap();
    // Nor what is no frame from the other switch.
    for len in [0, 13, LONGEST + 1] {
        far.send_to(&vec![0xff; len], here).unwrap();
    }
    far.send_to(&frame(ALL, 2, 61), here).unwrap();
    assert_eq!(frames.next().unwrap(), frame(ALL, 2, 61));
    // What is for an address that the switch does not know goes over the uplink.
    send(&port, &frame(7, 1, 62));
    let mut buffer = [0; 100];
    let (len, from) = far.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&frame(7, 1, 62)[..], here));
    drop(frames);
    drop(port);
    // When its path has gone, its sockets have gone as well: the next switch has the same.
    while path.exists() {
        thread::yield_now();
    }
    UdpSocket::bind(here).unwrap();
    serving.join().unwrap().unwrap();
}

#[test]
fn a_switch_whose_path_was_removed_ends() {
    let (path, serving) = switch("removed");
    let hold = open(&path, Wish::Hold).unwrap();
    std::fs::remove_file(&path).unwrap();
    drop(hold);
    serving.join().unwrap().unwrap();
}
