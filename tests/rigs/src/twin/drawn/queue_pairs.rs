//! Draws of queue pairs: creation, transitions, queries.

use super::draw::{Draw, Kind, Pair, State, Type};
use super::objects::WHOLE;
use std::collections::VecDeque;

/// Keys of a transition, each with its value.
type Keys = Vec<(&'static str, String)>;

impl Draw {
    pub(super) fn pair(&mut self, thing: usize) -> &mut Pair {
        self.things[thing]
            .pair
            .as_mut()
            .expect("it is a queue pair")
    }

    /// Something of a queue pair.
    pub(super) fn of_pair<T>(&self, thing: usize, what: impl Fn(&Pair) -> T) -> T {
        what(
            self.things[thing]
                .pair
                .as_ref()
                .expect("it is a queue pair"),
        )
    }

    fn is_pair(&self, thing: usize, wanted: impl Fn(&Pair) -> bool) -> bool {
        self.things[thing].pair.as_ref().is_some_and(wanted)
    }

    /// The queue pairs of which something is so.
    pub(super) fn pairs(&self, wanted: impl Fn(&Pair) -> bool) -> Vec<usize> {
        let all = self.all(Kind::QueuePair).into_iter();
        all.filter(|it| self.is_pair(*it, &wanted)).collect()
    }

    /// A queue pair without another end, of any type, or one that has to be refused.
    pub(super) fn any_queue_pair(&mut self) {
        let (Some(pd), Some(send_cq), Some(recv_cq)) = (
            self.any(Kind::Domain),
            self.any(Kind::Completions),
            self.any(Kind::Completions),
        ) else {
            return;
        };
        let cqs = format!(
            "send_cq={} recv_cq={}",
            self.name(send_cq),
            self.name(recv_cq)
        );
        let pd_name = self.name(pd).to_string();
        if self.rng.chance(200) {
            let wrong = self.one(&[
                "type=0",
                "type=1",
                "type=50",
                "send_sge=100000",
                "recv_sge=max.max_sge+1",
                "recv_wr=max.max_qp_wr+1",
                "recv_wr=4294967295",
                "inline=100000",
                "type=QPT_UD inline=100000",
                "type=QPT_XRC_RECV",
            ]);
            return self.vain("qp", &format!("create_qp {pd_name} {cqs} {wrong}"));
        }
        let kind = self.one(&[
            Type::Rc,
            Type::Rc,
            Type::Uc,
            Type::Ud,
            Type::XrcSend,
            Type::XrcReceive,
        ]);
        let Some(qp) = self.create(kind, pd, send_cq, recv_cq, None) else {
            return;
        };
        if kind != Type::XrcReceive && self.rng.chance(300) {
            self.say(format!("query_cap {}", self.name(qp)));
        }
    }

    /// Two queue pairs that are each other's end, with queues of completions of their own.
    pub(super) fn connected(&mut self) {
        let kind = self.one(&[Type::Rc, Type::Rc, Type::Rc, Type::Uc, Type::Ud]);
        self.connect_as(kind);
    }

    /// Two queue pairs of a type.
    pub(super) fn connect_as(&mut self, kind: Type) {
        if self.pairs(|pair| pair.partner.is_some()).len() > 6 {
            return;
        }
        let pd = self.among(&self.some(|it| it.kind == Kind::Region && it.access == WHOLE));
        let Some(pd) = pd.map(|region| self.things[region].of[0]) else {
            return;
        };
        let other = self
            .any(Kind::Domain)
            .filter(|_| self.rng.chance(150))
            .unwrap_or(pd);
        let mtu = self.one(&[1, 2, 3, 4, 5]);
        let mut ends = [0; 2];
        for (end, pd) in ends.iter_mut().zip([pd, other]) {
            let [send_cq, recv_cq] = [(); 2].map(|()| {
                let channel = self.any(Kind::Channel).filter(|_| self.rng.chance(600));
                let of: Vec<usize> = channel.into_iter().collect();
                let cq = self.add(Kind::Completions, "cq", &of);
                self.things[cq].entries = 64;
                let channel = channel.map_or("null", |it| self.name(it)).to_string();
                let how = match self.rng.below(3) {
                    0 => format!("create_cq_ex cqe=64 channel={channel} wc=WC_STANDARD_FLAGS"),
                    _ => format!("create_cq 64 {channel} 0"),
                };
                self.say(format!("{} = {how}", self.name(cq)));
                cq
            });
            let shared = self.some(|it| it.kind == Kind::Shared && !it.second && it.of[0] == pd);
            let shared = self
                .among(&shared)
                .filter(|_| kind == Type::Rc && self.rng.chance(600));
            let Some(pair) = self.create(kind, pd, send_cq, recv_cq, shared) else {
                return;
            };
            self.pair(pair).mtu = mtu;
            *end = pair;
        }
        let [one, two] = ends;
        self.pair(one).partner = Some(two);
        self.pair(two).partner = Some(one);
        if kind == Type::Ud {
            for pd in [pd, other] {
                let ah = self.add(Kind::Address, "ah", &[pd]);
                self.say(format!("{} = create_ah {}", self.name(ah), self.name(pd)));
            }
        }
        // Most are connected at once.
        if self.rng.chance(700) {
            for _ in 0..3 {
                ends.into_iter().for_each(|end| self.rise(end));
            }
        }
    }

    fn create(
        &mut self,
        kind: Type,
        pd: usize,
        send_cq: usize,
        recv_cq: usize,
        shared: Option<usize>,
    ) -> Option<usize> {
        let xrcd = match kind {
            Type::XrcReceive => Some(self.any(Kind::XrcDomain)?),
            _ => None,
        };
        let extended = kind == Type::XrcReceive || self.rng.chance(300);
        let sig_all = matches!(kind, Type::Uc | Type::Ud) || self.rng.chance(600);
        let (wr, sges) = (self.one(&[4, 4, 8, 16]), self.one(&[1, 2, 3]));
        let inline = match kind {
            Type::XrcReceive => 0,
            _ => self.one(&[0, 0, 16, 64]),
        };
        let name = |it: usize| self.things[it].name.as_str();
        let room = match kind {
            Type::XrcSend => format!("send_wr={wr} send_sge={sges} recv_wr=0 inline={inline}"),
            _ => {
                format!("send_wr={wr} recv_wr={wr} send_sge={sges} recv_sge={sges} inline={inline}")
            }
        };
        let more = shared.map_or(String::new(), |srq| format!(" srq={}", name(srq)));
        let cqs = format!("send_cq={} recv_cq={}", name(send_cq), name(recv_cq));
        let (kind_name, sig) = (kind.name(), u32::from(sig_all));
        let call = match kind {
            Type::XrcReceive => format!("create_qp_ex xrcd={} type={kind_name}", name(xrcd?)),
            Type::XrcSend => format!(
                "create_qp_ex pd={} send_cq={} type={kind_name} {room} sig_all={sig}",
                name(pd),
                name(send_cq)
            ),
            _ if extended => {
                let ops = match kind {
                    Type::Rc => "1|2|4|8|16|32|64|128|256|512",
                    Type::Uc => "1|2|4|8",
                    _ => "4|8",
                };
                format!(
                    "create_qp_ex pd={} {cqs}{more} type={kind_name} {room} sig_all={sig} ops={ops}",
                    name(pd)
                )
            }
            _ => format!(
                "create_qp {} {cqs}{more} type={kind_name} {room} sig_all={sig}",
                name(pd)
            ),
        };
        let of: Vec<usize> = match xrcd {
            Some(xrcd) => vec![xrcd],
            None => [pd, send_cq, recv_cq].into_iter().chain(shared).collect(),
        };
        let prefix = match kind {
            Type::XrcReceive => "xqp",
            _ => "qp",
        };
        let qp = self.add(Kind::QueuePair, prefix, &of);
        self.things[qp].pair = Some(Pair {
            kind,
            state: State::Reset,
            partner: None,
            broken: false,
            was_ready: false,
            again: false,
            send_cq,
            recv_cq,
            shared,
            extended: extended && kind != Type::XrcReceive && kind != Type::XrcSend,
            sig_all,
            wr,
            sges,
            inline,
            access: 0,
            mtu: 3,
            rnr_retry: 0,
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            arrived: VecDeque::new(),
            groups: Vec::new(),
        });
        self.say(format!("{} = {call}", self.name(qp)));
        Some(qp)
    }

    /// The keys of the next transition up, those that have to be there first, and the number of these.
    fn next_keys(&mut self, qp: usize) -> (&'static str, Keys, usize) {
        let (kind, state, mtu) = self.of_pair(qp, |pair| (pair.kind, pair.state, pair.mtu));
        let partner = self.of_pair(qp, |pair| pair.partner);
        let dest = partner.filter(|it| !self.things[*it].gone).unwrap_or(qp);
        let dest = self.name(dest).to_string();
        let reliable = !matches!(kind, Type::Uc | Type::Ud);
        let word = |value: u32| value.to_string();
        let mut keys: Keys = Vec::new();
        let to = match state {
            State::Reset => {
                keys.extend([("pkey", word(0)), ("port", word(1))]);
                if kind == Type::Ud {
                    keys.push(("qkey", word(0x1111_1111)));
                } else {
                    let access = match kind {
                        Type::Uc => self.one(&[2, 2, 0]),
                        _ => self.one(&[14, 14, 14, 14, 6, 2, 0]),
                    };
                    keys.push(("access", word(access)));
                }
                "QPS_INIT"
            }
            State::Init => {
                if kind != Type::Ud {
                    keys.extend([
                        ("av", word(1)),
                        ("mtu", word(mtu)),
                        ("dest", dest),
                        ("rq_psn", word(7)),
                    ]);
                }
                if reliable && kind != Type::XrcSend {
                    let (rd, timer) = (self.one(&[1, 4, 16]), self.one(&[1, 1, 2]));
                    keys.extend([("dest_rd", word(rd)), ("rnr_timer", word(timer))]);
                }
                "QPS_RTR"
            }
            _ => {
                if reliable && kind != Type::XrcReceive {
                    let retry = self.one(&[0, 1, 2, 7]);
                    keys.extend([("retry", word(7)), ("rnr_retry", word(retry))]);
                    keys.push(("rd", word(1)));
                }
                if reliable {
                    keys.push(("timeout", word(14)));
                }
                keys.push(("sq_psn", word(7)));
                "QPS_RTS"
            }
        };
        let needed = keys.len();
        if state != State::Reset && self.rng.chance(200) {
            let more: &[(&str, &str)] = match (state, kind) {
                (State::Init, Type::Ud) => &[("pkey", "0"), ("qkey", "286331153")],
                (State::Init, _) => &[("pkey", "0"), ("class", "8"), ("hops", "2")],
                (_, Type::Rc) => &[("cur", "QPS_RTR"), ("rnr_timer", "1")],
                _ => &[("cur", "QPS_RTR")],
            };
            let (key, value) = self.one(more);
            keys.push((key, value.to_string()));
        }
        (to, keys, needed)
    }

    fn say_modify(&mut self, qp: usize, to: &str, keys: &Keys) {
        let keys: Vec<String> = keys
            .iter()
            .map(|(key, value)| format!(" {key}={value}"))
            .collect();
        self.say(format!(
            "modify_qp {} state={to}{}",
            self.name(qp),
            keys.concat()
        ));
    }

    /// Takes a queue pair to its next state, if it is not yet able to send.
    fn rise(&mut self, qp: usize) {
        let next = match self.of_pair(qp, |pair| pair.state) {
            State::Reset => State::Init,
            State::Init => State::Receives,
            State::Receives => State::Sends,
            State::Sends | State::Error => return,
        };
        let (to, keys, _) = self.next_keys(qp);
        self.say_modify(qp, to, &keys);
        let value = |name: &str| {
            keys.iter()
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.parse().ok())
        };
        let pair = self.pair(qp);
        pair.state = next;
        pair.was_ready |= next == State::Sends;
        pair.access = value("access").unwrap_or(pair.access);
        pair.rnr_retry = value("rnr_retry").unwrap_or(pair.rnr_retry);
    }

    /// Takes a queue pair to another state.
    pub(super) fn advance(&mut self) {
        let Some(qp) = self.any(Kind::QueuePair) else {
            return;
        };
        let (state, kind, broken) = self.of_pair(qp, |pair| (pair.state, pair.kind, pair.broken));
        match state {
            State::Reset | State::Init | State::Receives if !broken && !self.rng.chance(50) => {
                self.rise(qp)
            }
            State::Sends if !broken && self.rng.chance(500) => {
                if kind == Type::Rc && self.settle(qp) {
                    let change =
                        self.one(&["rnr_timer=1", "cur=QPS_RTS", "rnr_timer=2 cur=QPS_RTS"]);
                    self.say(format!(
                        "modify_qp {} state=QPS_RTS {change}",
                        self.name(qp)
                    ));
                }
            }
            State::Sends if !broken && self.rng.chance(600) => {}
            _ => {
                if self.settle(qp) {
                    let reset = state == State::Error || self.rng.chance(500);
                    self.fall(qp, reset);
                }
            }
        }
    }

    /// Takes a queue pair that has another end a step further to where it can send.
    pub(super) fn connect_some(&mut self) {
        let all = self
            .pairs(|pair| pair.partner.is_some() && (pair.broken || pair.state != State::Sends));
        let Some(qp) = self.among(&all) else {
            return;
        };
        if !self.of_pair(qp, |pair| pair.broken || pair.state == State::Error) {
            self.rise(qp);
        } else if self.settle(qp) {
            self.fall(qp, true);
        }
    }

    /// Resets a queue pair that nothing is on its way from or to, or takes it to Error.
    fn fall(&mut self, qp: usize, reset: bool) {
        let state = self.of_pair(qp, |pair| pair.state);
        let to = if reset { "QPS_RESET" } else { "QPS_ERR" };
        self.say(format!("modify_qp {} state={to}", self.name(qp)));
        if !reset && state == State::Reset {
            // It is refused.
            return;
        }
        self.part(qp);
        if reset {
            self.was_reset(qp);
        } else {
            self.failed(qp);
            self.take_events();
        }
    }

    fn was_reset(&mut self, qp: usize) {
        for receive in std::mem::take(&mut self.pair(qp).waiting) {
            self.give_back(&receive);
        }
        self.forget(qp);
        let pair = self.pair(qp);
        pair.state = State::Reset;
        (pair.broken, pair.was_ready, pair.again) = (false, false, true);
        pair.sent.clear();
    }

    /// A queue pair is in Error now: its receives come back.
    pub(super) fn failed(&mut self, qp: usize) {
        let waiting = std::mem::take(&mut self.pair(qp).waiting);
        waiting.iter().for_each(|receive| self.give_back(receive));
        let pair = self.pair(qp);
        pair.state = State::Error;
        let (cq, shared) = (pair.recv_cq, pair.shared);
        // The last receive of a shared queue is told by an event.
        self.events += u32::from(shared.is_some());
        if !waiting.is_empty() {
            self.completed(cq, true);
            self.take(cq, waiting.len());
        }
    }

    /// The other end of a queue pair has to be connected anew.
    pub(super) fn part(&mut self, qp: usize) {
        let Some(partner) = self.of_pair(qp, |pair| pair.partner) else {
            return;
        };
        let pair = self.pair(partner);
        pair.broken |= !matches!(pair.state, State::Reset | State::Init);
    }

    /// Windows that a queue pair bound are not used any more.
    pub(super) fn forget(&mut self, qp: usize) {
        for thing in &mut self.things {
            if let Some((_, by)) = thing.bound.as_mut().filter(|(_, by)| *by == qp) {
                *by = usize::MAX;
            }
        }
    }

    /// A transition that has to be refused.
    pub(super) fn modify_wrongly(&mut self) {
        let Some(qp) = self.any(Kind::QueuePair) else {
            return;
        };
        let (state, kind) = self.of_pair(qp, |pair| (pair.state, pair.kind));
        if matches!(kind, Type::XrcSend | Type::XrcReceive) {
            return;
        }
        let name = self.name(qp).to_string();
        if self.rng.chance(350) {
            let to: &[&str] = match state {
                State::Reset => &["QPS_RTR", "QPS_RTS", "QPS_SQD", "QPS_SQE"],
                State::Init => &["QPS_RTS", "QPS_SQD", "QPS_SQE"],
                State::Receives => &["QPS_INIT", "QPS_SQD", "QPS_SQE"],
                State::Sends => &["QPS_INIT", "QPS_RTR", "QPS_SQD", "QPS_SQE"],
                State::Error => &["QPS_INIT", "QPS_RTR", "QPS_RTS", "QPS_SQD", "QPS_SQE"],
            };
            let to = self.one(to);
            return self.say(format!("modify_qp {name} state={to}"));
        }
        if !matches!(state, State::Reset | State::Init | State::Receives) {
            let wrong = self.one(&[
                "state=100",
                "mask=1073741824 state=QPS_RESET",
                "state=QPS_RTS rd=255",
                "port=1",
            ]);
            return self.say(format!("modify_qp {name} {wrong}"));
        }
        let (to, mut keys, needed) = self.next_keys(qp);
        if self.rng.chance(600) && needed > 0 {
            keys.remove(self.rng.below(needed as u32) as usize);
            return self.say_modify(qp, to, &keys);
        }
        let wrong: &[(&str, &str)] = match (state, kind) {
            (State::Reset, _) => &[
                ("port", "0"),
                ("port", "2"),
                ("port", "255"),
                ("pkey", "1"),
                ("pkey", "65535"),
                ("sq_psn", "1"),
                ("timeout", "1"),
                ("cur", "QPS_RTS"),
                ("cur", "QPS_RESET"),
            ],
            (State::Init, Type::Ud) => &[
                ("mtu", "3"),
                ("av", "1"),
                ("rq_psn", "1"),
                ("cur", "QPS_INIT"),
            ],
            (State::Init, _) => &[
                ("mtu", "0"),
                ("mtu", "6"),
                ("sgid", "255"),
                ("sgid", "1000"),
                ("global", "0"),
                ("no_gid", "1"),
                ("ah_port", "2"),
                ("sq_psn", "1"),
                ("cur", "QPS_RTS"),
            ],
            (_, Type::Rc) => &[
                ("rd", "17"),
                ("rd", "255"),
                ("mtu", "3"),
                ("rq_psn", "1"),
                ("port", "1"),
                ("cur", "QPS_INIT"),
            ],
            _ => &[
                ("mtu", "3"),
                ("rq_psn", "1"),
                ("port", "1"),
                ("cur", "QPS_INIT"),
            ],
        };
        let (key, value) = self.one(wrong);
        keys.retain(|(known, _)| *known != key);
        keys.push((key, value.to_string()));
        self.say_modify(qp, to, &keys);
    }

    /// A query of a queue pair that nothing is on its way from or to.
    pub(super) fn ask_queue_pair(&mut self) {
        let Some(qp) = self.any(Kind::QueuePair) else {
            return;
        };
        // On Linux, rights that RTR makes whole are there again at once (`drawn-rights-after-reset`).
        if self.of_pair(qp, |pair| pair.again && pair.state == State::Init) || !self.settle(qp) {
            return;
        }
        let mask = self.one(&["QP_STATE", "QP_STATE", "1048575", "QP_STATE|QP_AV"]);
        self.say(format!("query_qp {} {mask}", self.name(qp)));
    }
}
