//! Ids, their events and connections: cm.c in Rust.

use super::line::{Left, Line, NO_VALUE, error_name, number};
use super::objects::{Destroyed, Ident, Missing, Object, done, named};
use super::verbs::{cap, tell_path};
use super::world::{COMES, Runner};
use bareverbs_cm::rdma::{
    ChannelId, CmEvent, CmId, ConnParam, EventType, IdOption, PortSpace, QpInit, RdmaError,
};
use bareverbs_core::qp::MwBind;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

type Told = Result<String, Missing>;

/// Addresses by their names, as language.c has them.
const ADDRESSES: [(&str, &str); 14] = [
    ("own", "10.0.0.1"),
    ("silent", "10.0.0.77"),
    ("foreign", "192.0.2.1"),
    ("any", "0.0.0.0"),
    ("loop", "127.0.0.1"),
    ("group", "239.1.2.3"),
    ("group2", "239.1.2.4"),
    ("own6", "fd00::1"),
    ("silent6", "fd00::77"),
    ("foreign6", "2001:db8::1"),
    ("any6", "::"),
    ("loop6", "::1"),
    ("group6", "ff0e::4"),
    ("broadcast", "255.255.255.255"),
];

fn port_space(number: i64) -> Result<PortSpace, Left> {
    let all = [
        PortSpace::Ipoib,
        PortSpace::Tcp,
        PortSpace::Udp,
        PortSpace::Ib,
    ];
    let mut all = all.into_iter();
    all.find(|it| *it as i64 == number).ok_or(NO_VALUE)
}

/// The result of a call that makes nothing, as librdmacm has it.
fn status(result: Result<(), RdmaError>) -> String {
    match done(result).as_str() {
        "0" => "0".into(),
        name => format!("-1 errno {name}"),
    }
}

/// The private data of a line.
fn private_data(line: &Line<'_>) -> Result<Vec<u8>, Left> {
    line.without(&["no_data"])?;
    let given = line.key("data");
    let length = line.number("bytes", given.map_or(0, str::len))?;
    let mut data = given.unwrap_or_default().as_bytes().to_vec();
    if given.is_none() {
        data.extend((0..=255).map(|index: u8| index.wrapping_add(1)));
    }
    data.resize(length, 0);
    Ok(data)
}

fn tell_data(data: &[u8]) -> String {
    let sum = data.iter().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add((*byte).into())
    });
    let letters = data
        .iter()
        .take(12)
        .take_while(|byte| byte.is_ascii_alphanumeric());
    let letters: String = letters.map(|byte| char::from(*byte)).collect();
    match data.len() {
        0 => " data=0".into(),
        length => format!(" data={length}:{letters}:{sum}"),
    }
}

impl<'d> Runner<'_, 'd> {
    /// Makes a call of librdmacm; `None` if it is none of those that are here.
    pub(super) fn cm_call(&mut self, line: &Line<'_>) -> Option<Told> {
        Some(match line.call {
            "rdma_create_event_channel" => {
                let made = self.cm.create_event_channel();
                self.keep(line, made.map(Object::EventChannel).map_err(named))
            }
            "rdma_create_id" => self.create_id(line),
            "rdma_destroy_event_channel" | "rdma_destroy_id" => self.destroy_named(line),
            "id" => self.tell_id(line),
            "comes" => self.comes(line),
            "left" => self.events_left(line),
            "event" => self.cm_event(line),
            "rdma_bind_addr"
            | "rdma_resolve_addr"
            | "rdma_resolve_route"
            | "rdma_listen"
            | "rdma_connect"
            | "rdma_accept"
            | "rdma_reject"
            | "rdma_disconnect"
            | "rdma_establish"
            | "rdma_notify"
            | "rdma_migrate_id"
            | "rdma_set_option"
            | "rdma_join_multicast"
            | "rdma_leave_multicast" => {
                self.ident(line).and_then(|id| self.call_on_id(line, id.id))
            }
            "rdma_create_qp" => self.create_qp_of_id(line),
            "rdma_destroy_qp" => self.destroy_qp_of_id(line),
            _ => return None,
        })
    }

    /// The id that a line names.
    fn ident(&mut self, line: &Line<'_>) -> Result<Ident, Missing> {
        match self.objects.find(line.at(0)?)? {
            Object::Id(ident) => Ok(ident.clone()),
            _ => Err("an object of another kind".into()),
        }
    }

    /// The address that a word names; `None` for null.
    fn address(&mut self, word: &str) -> Result<Option<SocketAddr>, Left> {
        let (name, port) = word.split_once(':').unwrap_or((word, "0"));
        if name == "null" {
            return Ok(None);
        }
        let known = ADDRESSES.iter().find(|(it, _)| *it == name);
        let ip: IpAddr = known
            .and_then(|(_, ip)| ip.parse().ok())
            .ok_or("an address of another family")?;
        let port = port.parse().map_err(|_| NO_VALUE)?;
        self.ports.insert(port);
        Ok(Some(SocketAddr::new(ip, port)))
    }

    fn create_id(&mut self, line: &Line<'_>) -> Told {
        let port_space = port_space(line.number("ps", PortSpace::Tcp as i64)?)?;
        let channel = match line.at(0)? {
            "null" => None,
            name => match self.objects.find(name)? {
                Object::EventChannel(channel) => Some(*channel),
                _ => return Err("an object of another kind".into()),
            },
        };
        let made = self
            .cm
            .create_id(channel, line.number("context", 0)?, port_space);
        let ident = |id| Object::Id(Ident::new(id, port_space));
        self.keep(line, made.map(ident).map_err(named))
    }

    /// Makes a call on an id that returns 0 or an errno.
    fn call_on_id(&mut self, line: &Line<'_>, id: CmId) -> Told {
        let limit = |place| Ok::<_, Left>(Duration::from_millis(line.number_at(place)?));
        let waits = self.cm.is_synchronous(id).unwrap_or_default();
        let connects = ["rdma_connect", "rdma_accept", "rdma_disconnect"].contains(&line.call);
        if waits && connects {
            return Err("a call that waits for the other end, in this thread".into());
        }
        let ip = |it: Option<SocketAddr>| it.ok_or("null for an address");
        let result = match line.call {
            "rdma_bind_addr" => {
                let address = ip(self.address(line.at(1)?)?)?;
                self.cm.bind_addr(id, address)
            }
            "rdma_resolve_addr" => {
                let source = self.address(line.at(1)?)?;
                let destination = ip(self.address(line.at(2)?)?)?;
                self.cm.resolve_addr(id, source, destination, limit(3)?)
            }
            "rdma_resolve_route" => self.cm.resolve_route(id, limit(1)?),
            "rdma_listen" => self.cm.listen(id, line.number_at(1)?),
            "rdma_reject" => self.cm.reject(id, &private_data(line)?),
            "rdma_disconnect" => self.cm.disconnect(id),
            "rdma_establish" => self.cm.establish(id),
            "rdma_notify" => match line.at(1)? {
                "EVENT_COMM_EST" => self.cm.notify(id),
                _ => return Err("an event that Rust's call does not have".into()),
            },
            "rdma_migrate_id" => {
                let channel = match line.at(1)? {
                    "null" => None,
                    name => match self.objects.find(name)? {
                        Object::EventChannel(channel) => Some(*channel),
                        _ => return Err("an object of another kind".into()),
                    },
                };
                self.cm.migrate_id(id, channel)
            }
            "rdma_set_option" => {
                let option = id_option(line)?;
                self.cm.set_option(id, option)
            }
            "rdma_join_multicast" | "rdma_leave_multicast" => {
                let group = ip(self.address(line.at(1)?)?)?.ip();
                match line.call {
                    "rdma_join_multicast" => self.cm.join_multicast(id, group, 0),
                    _ => self.cm.leave_multicast(id, group),
                }
            }
            _ => return self.connect(line, id),
        };
        Ok(status(result))
    }

    fn connect(&mut self, line: &Line<'_>, id: CmId) -> Told {
        let data = private_data(line)?;
        let param = ConnParam {
            private_data: &data,
            responder_resources: line.number("responder", 1)?,
            initiator_depth: line.number("initiator", 1)?,
            flow_control: line.number("flow", 0)? != 0,
            retry_count: line.number("retry", 7)?,
            rnr_retry_count: line.number("rnr", 7)?,
            srq: line.number("srq", 0)? != 0,
            qp_num: match line.key("qp") {
                Some(_) => self.number_of(line, "qp")?.number(),
                None => 0,
            },
        };
        let param = line.key("none").is_none().then_some(&param);
        Ok(status(match line.call {
            "rdma_connect" => self.cm.connect(id, param),
            _ => self.cm.accept(id, param),
        }))
    }

    fn create_qp_of_id(&mut self, line: &Line<'_>) -> Told {
        line.without(&["pd", "send_cq", "recv_cq", "srq"])?;
        let Ident { id, port_space, .. } = self.ident(line)?;
        let fits = match line.number("type", 2)? {
            2 => !port_space.is_datagram(),
            4 => port_space.is_datagram(),
            _ => false,
        };
        if !fits {
            return Err("a QP of another type than the id's".into());
        }
        let mut init = QpInit {
            cap: cap(line)?,
            sq_sig_all: line.number("sig_all", 1)? != 0,
            ..QpInit::default()
        };
        if !port_space.is_datagram() {
            init.cap.max_inline_data = init.cap.max_inline_data.max(MwBind::SPACE);
        }
        let made = self.cm.create_qp(id, None, &mut init);
        if made.is_ok() {
            let qpn = match port_space.is_datagram() {
                true => self.cm.ud_endpoint(id).map(|it| it.qp.qpn()),
                false => self.cm.endpoint(id).map(|it| it.qp.qpn()),
            };
            if let Object::Id(ident) = self.objects.find(line.at(0)?)? {
                ident.qpn = qpn.map_or(0, |qpn| qpn.number());
            }
        }
        let object = |()| Object::QpOfId(id, port_space.is_datagram());
        self.keep(line, made.map(object).map_err(named))
    }

    fn destroy_qp_of_id(&mut self, line: &Line<'_>) -> Told {
        let Ident { id, qpn, .. } = self.ident(line)?;
        if qpn == 0 {
            return Ok("no qp".into());
        }
        self.forget_qp(id);
        let done = self.cm.destroy_qp(id).map(|()| "done qp=none");
        Ok(done.unwrap_or_else(named).into())
    }

    /// The QP of an id is gone.
    fn forget_qp(&mut self, id: CmId) {
        for entry in &mut self.objects.entries {
            match &mut entry.object {
                Some(Object::Id(ident)) if ident.id == id => ident.qpn = 0,
                Some(Object::QpOfId(of, _)) if *of == id => entry.object = None,
                _ => {}
            }
        }
    }

    /// Destroys an object of librdmacm.
    pub(super) fn destroy_of_cm(&mut self, object: Object<'d>) -> Destroyed<'d> {
        let done = match &object {
            Object::EventChannel(channel) => self.cm.destroy_event_channel(*channel),
            Object::Id(ident) => self.cm.destroy_id(ident.id),
            Object::QpOfId(id, _) => {
                self.forget_qp(*id);
                match self.cm.destroy_qp(*id) {
                    // The id has taken it along.
                    Err(RdmaError::NoSuchId) => Ok(()),
                    done => done,
                }
            }
            _ => Ok(()),
        };
        if let (Ok(()), Object::Id(ident)) = (&done, &object) {
            self.forget_qp(ident.id);
        }
        done.map_err(|error| (object, named(error)))
    }

    /// The name of an id.
    fn id_named(&self, id: Option<CmId>) -> &str {
        let Some(id) = id else {
            return "none";
        };
        let mut objects = self.objects.iter();
        let is = |object: &Object<'_>| matches!(object, Object::Id(ident) if ident.id == id);
        objects
            .find(|(_, object)| is(object))
            .map_or("another", |(name, _)| name)
    }

    /// The event channel that a line names.
    fn event_channel(&mut self, line: &Line<'_>) -> Result<ChannelId, Missing> {
        match self.objects.find(line.at(0)?)? {
            Object::EventChannel(channel) => Ok(*channel),
            _ => Err("an object of another kind".into()),
        }
    }

    /// Waits for an event, and leaves it there.
    fn comes(&mut self, line: &Line<'_>) -> Told {
        let channel = self.event_channel(line)?;
        let found = self.wait(COMES, |it| {
            let has = it.cm.has_cm_event(channel).unwrap_or_default();
            has.then_some("some")
        });
        Ok(found.unwrap_or("none").into())
    }

    /// Takes the events that are there after a while, and tells them as cm.c does.
    fn events_left(&mut self, line: &Line<'_>) -> Told {
        let channel = self.event_channel(line)?;
        self.wait(line.number("wait", 0)?, |_| None::<()>);
        let mut kinds = Vec::new();
        while let Ok(Some(event)) = self.cm.try_get_cm_event(channel) {
            if event.event == EventType::ConnectRequest {
                // It may be gone.
                let _ = self.cm.destroy_id(event.id);
            }
            if event.event != EventType::TimewaitExit {
                kinds.push(event.event.as_str().trim_start_matches("RDMA_CM_EVENT_"));
            }
        }
        kinds.sort_unstable();
        Ok(match kinds.is_empty() {
            true => "none".into(),
            false => kinds.join(" "),
        })
    }

    fn cm_event(&mut self, line: &Line<'_>) -> Told {
        let channel = self.event_channel(line)?;
        let patience = match line.key("of_call").is_some() && self.failed {
            true => 0,
            false => line.number("wait", COMES)?,
        };
        let found = self.wait(patience, |it| it.cm.try_get_cm_event(channel).transpose());
        let event = match found {
            None => return Ok("none".into()),
            Some(Err(error)) => return Ok(named(error).into()),
            Some(Ok(event)) => event,
        };
        let told = self.told_event(&event);
        if event.event == EventType::ConnectRequest {
            let listener = self.port_space_of(event.listen_id.unwrap_or(event.id));
            let ident = Object::Id(Ident::new(event.id, listener));
            self.keep(line, Ok(ident))?;
        }
        Ok(told)
    }

    fn port_space_of(&self, id: CmId) -> PortSpace {
        let mut objects = self.objects.iter();
        let of = objects.find_map(|(_, object)| match object {
            Object::Id(ident) if ident.id == id => Some(ident.port_space),
            _ => None,
        });
        of.unwrap_or(PortSpace::Tcp)
    }

    fn told_event(&self, event: &CmEvent) -> String {
        let kind = event.event.as_str().trim_start_matches("RDMA_CM_EVENT_");
        let status = match event.status {
            status @ ..0 => format!("-{}", error_name(-status)),
            status => status.to_string(),
        };
        let request = event.event == EventType::ConnectRequest;
        let id = if request {
            "new"
        } else {
            self.id_named(Some(event.id))
        };
        let mut told = format!(
            "{kind} status={status} id={id} listen={}",
            self.id_named(event.listen_id)
        );
        if !matches!(
            event.event,
            EventType::ConnectRequest
                | EventType::ConnectResponse
                | EventType::Established
                | EventType::Rejected
                | EventType::Unreachable
                | EventType::Disconnected
                | EventType::MulticastJoin
                | EventType::MulticastError
        ) {
            return told;
        }
        let data = event.private_data();
        told += &tell_data(data);
        let subject = event.listen_id.filter(|_| request).unwrap_or(event.id);
        // Writing to a string cannot fail.
        if self.port_space_of(subject).is_datagram() {
            let qp = match event.ud.qp_num {
                0xff_ffff => "all",
                number => self.pair_named(number),
            };
            let zero = if event.ud.qkey == 0 { "" } else { "0x" };
            let _ = write!(told, " qp={qp} qkey={zero}{:x}", event.ud.qkey);
            tell_path(self.device, &mut told, &event.ud.ah_attr);
        } else if event.event != EventType::Established || !data.is_empty() {
            let conn = &event.conn;
            let _ = write!(
                told,
                " responder={} initiator={} flow={} rnr={} srq={} qp={}",
                conn.responder_resources,
                conn.initiator_depth,
                u8::from(conn.flow_control),
                conn.rnr_retry_count,
                u8::from(conn.srq),
                self.pair_named(conn.qp_num)
            );
            if request {
                let _ = write!(told, " retry={}", conn.retry_count);
            }
        }
        told
    }

    fn port(&self, port: u16) -> String {
        match port == 0 || self.ports.contains(&port) {
            true => format!(":{port}"),
            false => ":chosen".into(),
        }
    }

    fn told_address(&self, address: Option<SocketAddr>) -> String {
        let Some(address) = address.filter(|it| !it.ip().is_unspecified() || it.port() != 0) else {
            return "none".into();
        };
        let is = |text: &str| text.parse() == Ok(address.ip());
        let known = ADDRESSES.iter().find(|(_, text)| is(text));
        let name = known.map_or("another", |(name, _)| name);
        name.to_string() + &self.port(address.port())
    }

    /// Tells about an id what Rust's API says. The other words, `?`, are fields of C's structure alone.
    fn tell_id(&mut self, line: &Line<'_>) -> Told {
        let Ident { id, port_space, .. } = self.ident(line)?;
        let (route, context) = match (self.cm.route(id), self.cm.context(id)) {
            (Ok(route), Ok(context)) => (route, context),
            (Err(error), _) | (_, Err(error)) => return Ok(named(error).into()),
        };
        let [src, dst] = [route.local, route.peer].map(|it| self.told_address(it));
        let [src_port, dst_port] =
            [route.local, route.peer].map(|it| self.port(it.map_or(0, |it| it.port())));
        let mut told = format!(
            "ps={:#x} port=? qp=? type=? context={context} channel=? verbs=? pd=? cqs=? srq=? src={src} dst={dst} ports={src_port}{dst_port} sgid=? dgid=? event=? paths={}",
            port_space as u16,
            u8::from(route.path_mtu != 0)
        );
        if route.path_mtu != 0 {
            // Writing to a string cannot fail.
            let _ = write!(
                told,
                " sgid=? dgid=? raw=? label={} hops=? class={} both=? numb=? pkey=? sl=? mtu=?,{} rate=? life=?,{}",
                if route.flow_label == 0 { "0" } else { "some" },
                route.traffic_class,
                route.path_mtu,
                route.packet_life_time
            );
        }
        Ok(told)
    }
}

fn id_option(line: &Line<'_>) -> Result<IdOption, Left> {
    let value: i64 = line.number("value", 0)?;
    let size: u32 = line.number("size", 4)?;
    line.without(&["null"])?;
    if number(line.at(1)?)? != 0 {
        return Err("an option that Rust's types do not have");
    }
    Ok(match (number(line.at(2)?)?, size) {
        (0, 1) => IdOption::Tos(value as u8),
        (1, 4) => IdOption::ReuseAddr(value != 0),
        (2, 4) => IdOption::AfOnly(value != 0),
        (3, 1) => IdOption::AckTimeout(value as u8),
        _ => return Err("an option, or a size of one, that Rust's types do not have"),
    })
}
