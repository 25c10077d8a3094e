//! Draws of domains, memory, windows, queues of completions, shared receive queues, address handles, and questions.

use super::draw::{BUFFER, Draw, Kind};

const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 2;
const REMOTE_READ: u32 = 4;
const REMOTE_ATOMIC: u32 = 8;
const BIND: u32 = 16;
/// Everything that requests of any kind need.
pub(super) const WHOLE: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | BIND;

/// Returns `true` if a region may have these flags: what others may write has to be writable.
fn may_be(access: u32) -> bool {
    access & (REMOTE_WRITE | REMOTE_ATOMIC) == 0 || access & LOCAL_WRITE != 0
}

impl Draw {
    pub(super) fn domain(&mut self) {
        let pd = self.add(Kind::Domain, "pd", &[]);
        self.say(format!("{} = alloc_pd", self.name(pd)));
    }

    pub(super) fn memory(&mut self) {
        let buffer = self.add(Kind::Memory, "buf", &[]);
        self.say(format!(
            "{} = memory PROT_READ|PROT_WRITE",
            self.name(buffer)
        ));
    }

    /// A region of all memory, for everything.
    pub(super) fn whole_region(&mut self) {
        let (Some(pd), Some(buffer)) = (self.any(Kind::Domain), self.any(Kind::Memory)) else {
            return;
        };
        let region = self.add(Kind::Region, "mr", &[pd]);
        self.things[region].access = WHOLE;
        self.say(format!(
            "{} = reg_mr {} {} {BUFFER} {WHOLE}",
            self.name(region),
            self.name(pd),
            self.name(buffer)
        ));
    }

    pub(super) fn region(&mut self) {
        let (Some(pd), Some(buffer)) = (self.any(Kind::Domain), self.any(Kind::Memory)) else {
            return;
        };
        if self.rng.chance(200) {
            return self.whole_region();
        }
        let access = self.rng.below(32);
        let size = self.one(&[0, 1, 4095, 4096, 4097, 8192, 32768, BUFFER]);
        let at = self.one(&[0, 0, 0, 1, 4096, 30000]);
        // Linux warns of nothing that does not begin with a page.
        let at = if size == 0 { 0 } else { at.min(BUFFER - size) };
        let wrong = self.rng.chance(100);
        let more = self.one(&["0", "1073741824", "ACCESS_RELAXED_ORDERING", "8388608"]);
        let more = if wrong {
            format!("|{more}")
        } else {
            String::new()
        };
        let (pd_name, buffer) = (self.name(pd).to_string(), self.name(buffer).to_string());
        let (how, iova) = match self.rng.below(5) {
            0 => (
                "reg_mr_iova",
                format!(
                    " iova={}",
                    self.one(&[0, 4096, 8192, 1_048_576]) + at % 4096
                ),
            ),
            _ => ("reg_mr", String::new()),
        };
        let call = format!("{how} {pd_name} {buffer} {size} {access}{more} at={at}{iova}");
        if size == 0 || !may_be(access) || more == "|1073741824" {
            return self.vain("mr", &call);
        }
        let region = self.add(Kind::Region, "mr", &[pd]);
        if how == "reg_mr" && size == BUFFER && !wrong {
            self.things[region].access = access;
        }
        self.say(format!("{} = {call}", self.name(region)));
        if self.rng.chance(300) {
            self.say(format!("mr {}", self.name(region)));
        }
    }

    /// Registers a region again that nothing waits with.
    pub(super) fn register_again(&mut self) {
        let regions = self.some(|it| it.kind == Kind::Region && it.posted == 0);
        let (Some(region), Some(pd), Some(buffer)) = (
            self.among(&regions),
            self.any(Kind::Domain),
            self.any(Kind::Memory),
        ) else {
            return;
        };
        // Nothing may be on its way from or to it.
        let settled = self
            .all(Kind::QueuePair)
            .into_iter()
            .all(|pair| self.settle(pair));
        if self.is_used(region) || !settled {
            return;
        }
        let flags: u32 = self.one(&[1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 0, 8]);
        let bits = ["TRANSLATION", "PD", "ACCESS"]
            .iter()
            .enumerate()
            .filter(|(bit, _)| flags & 1 << bit != 0);
        let bits: Vec<String> = bits
            .map(|(_, name)| format!("REREG_MR_CHANGE_{name}"))
            .collect();
        let words = if bits.is_empty() {
            flags.to_string()
        } else {
            bits.join("|")
        };
        let access = self.rng.below(32);
        let size = self.one(&[0, 4096, 8192, BUFFER, BUFFER]);
        let names = [region, pd, buffer].map(|it| self.name(it).to_string());
        self.say(format!(
            "rereg_mr {} {words} {} {} {size} {access}",
            names[0], names[1], names[2]
        ));
        let [wants_memory, wants_pd, wants_access] = [1, 2, 4].map(|flag| flags & flag != 0);
        // After a failure that comes late it may not be what it was.
        if wants_access && !may_be(access) || wants_memory && size == 0 {
            self.things[region].access = 0;
            return;
        }
        if flags == 0 || flags > 7 {
            return;
        }
        if wants_pd {
            self.things[region].of = vec![pd];
        }
        let whole = self.things[region].access != 0 || wants_memory && size == BUFFER;
        if wants_access {
            self.things[region].access = access;
        }
        if wants_memory && size != BUFFER || !whole {
            self.things[region].access = 0;
        }
        self.say(format!("mr {}", names[0]));
    }

    pub(super) fn window(&mut self) {
        let Some(pd) = self.any(Kind::Domain) else {
            return;
        };
        if self.rng.chance(150) {
            let kind = self.one(&[0, 3]);
            let call = format!("alloc_mw {} {kind}", self.name(pd));
            return self.vain("mw", &call);
        }
        self.window_in(pd);
    }

    pub(super) fn window_in(&mut self, pd: usize) -> usize {
        let kind = self.one(&[1, 2, 2]);
        let window = self.add(Kind::Window, "mw", &[pd]);
        self.things[window].second = kind == 2;
        self.say(format!(
            "{} = alloc_mw {} {kind}",
            self.name(window),
            self.name(pd)
        ));
        window
    }

    pub(super) fn channel(&mut self) {
        let channel = self.add(Kind::Channel, "ch", &[]);
        self.say(format!("{} = create_comp_channel", self.name(channel)));
    }

    pub(super) fn completions(&mut self) {
        let channel = self.any(Kind::Channel).filter(|_| self.rng.chance(500));
        let channel_name = channel.map_or("null", |it| self.name(it)).to_string();
        if self.rng.chance(120) {
            let wrong = self.one(&[
                "create_cq 0 null 0",
                "create_cq -1 null 0",
                "create_cq max.max_cqe+1 null 0",
                "create_cq 4 null vectors",
                "create_cq 4 null -1",
                "create_cq_ex cqe=0",
                "create_cq_ex mask=4",
                "create_cq_ex wc=1073741824",
                "create_cq_ex flags=4",
                "create_cq_ex vector=vectors",
            ]);
            return self.vain("cq", wrong);
        }
        let entries = self.one(&[1, 2, 4, 15, 16, 17, 63, 64, 100, 1000]);
        let extended = self.rng.chance(350);
        let call = if extended {
            let more = self.one(&[
                "",
                " wc=WC_STANDARD_FLAGS",
                " flags=CREATE_CQ_ATTR_SINGLE_THREADED",
                " wc=WC_EX_WITH_BYTE_LEN",
            ]);
            format!("create_cq_ex cqe={entries} channel={channel_name}{more}")
        } else {
            format!("create_cq {entries} {channel_name} 0")
        };
        let of: Vec<usize> = channel.into_iter().collect();
        let cq = self.add(Kind::Completions, "cq", &of);
        self.things[cq].entries = entries;
        self.say(format!("{} = {call}", self.name(cq)));
    }

    /// Asks for, or changes, something of a queue of completions.
    pub(super) fn ask_completions(&mut self) {
        let Some(cq) = self.any(Kind::Completions) else {
            return;
        };
        let name = self.name(cq).to_string();
        match self.rng.below(6) {
            // The event that an armed queue may have of it is left open.
            0 | 1 if self.things[cq].armed.is_none() => {
                let used = self.is_used(cq);
                let size = match used {
                    true => self.one(&["0", "-1", "max.max_cqe+1", "64", "100", "200"]),
                    false => self.one(&[
                        "0",
                        "-1",
                        "1",
                        "2",
                        "15",
                        "16",
                        "31",
                        "32",
                        "100",
                        "1000",
                        "max.max_cqe+1",
                    ]),
                };
                self.say(format!("resize_cq {name} {size}"));
                self.say(format!("cq {name}"));
            }
            2 => self.say(format!("cq {name}")),
            3 => {
                let (count, period) = (self.one(&[0, 1, 16, 65535]), self.one(&[0, 1, 8, 4095]));
                let mask = self.one(&["", "", " mask=0", " mask=2", " mask=3"]);
                self.say(format!(
                    "modify_cq {name} count={count} period={period}{mask}"
                ));
            }
            // An event would come at a time of its own.
            4 if !self.is_used(cq) => {
                let how = self.one(&[0, 1]);
                self.say(format!("req_notify_cq {name} {how}"));
            }
            _ if !self.is_used(cq) => self.say(format!("poll {name} 1 wait=20")),
            _ => {}
        }
    }

    pub(super) fn shared(&mut self) {
        let Some(pd) = self.any(Kind::Domain) else {
            return;
        };
        let pd_name = self.name(pd).to_string();
        if self.rng.chance(150) {
            let wrong = self.one(&[
                "wr=0",
                "wr=max.max_srq_wr+1",
                "wr=4294967295",
                "sge=max.max_srq_sge+1",
            ]);
            return self.vain("srq", &format!("create_srq {pd_name} {wrong}"));
        }
        let (wr, sge) = (self.one(&[1, 4, 10, 16, 100]), self.one(&[1, 1, 2, 3]));
        let (xrcd, cq) = (self.any(Kind::XrcDomain), self.any(Kind::Completions));
        if let (Some(xrcd), Some(cq), true) = (xrcd, cq, self.rng.chance(400)) {
            let names = [xrcd, cq].map(|it| self.name(it).to_string());
            let srq = self.add(Kind::Shared, "srq", &[pd, xrcd, cq]);
            self.things[srq].second = true;
            self.say(format!(
                "{} = create_srq_ex pd={pd_name} type=SRQT_XRC xrcd={} cq={} wr={wr} sge={sge}",
                self.name(srq),
                names[0],
                names[1]
            ));
            return;
        }
        let srq = self.add(Kind::Shared, "srq", &[pd]);
        self.things[srq].entries = wr;
        let call = match self.rng.below(3) {
            0 => format!("create_srq_ex pd={pd_name} type=SRQT_BASIC wr={wr} sge={sge}"),
            _ => format!("create_srq {pd_name} wr={wr} sge={sge}"),
        };
        self.say(format!("{} = {call}", self.name(srq)));
    }

    pub(super) fn ask_shared(&mut self) {
        let Some(srq) = self.any(Kind::Shared) else {
            return;
        };
        let name = self.name(srq).to_string();
        match self.rng.below(4) {
            0 => {
                let wrong = self.one(&[
                    "SRQ_LIMIT limit=1000000",
                    "SRQ_MAX_WR wr=20",
                    "SRQ_MAX_WR wr=1",
                    "SRQ_MAX_WR|SRQ_LIMIT wr=1 limit=1",
                    "0",
                    "4",
                    "8 wr=1 limit=1",
                ]);
                self.say(format!("modify_srq {name} {wrong}"));
            }
            1 => {
                self.things[srq].limit = 0;
                self.say(format!("modify_srq {name} SRQ_LIMIT limit=0"));
            }
            _ => self.say(format!("query_srq {name}")),
        }
    }

    pub(super) fn xrc_domain(&mut self) {
        if self.rng.chance(250) {
            let wrong = self.one(&[
                "fd=1000",
                "fd=2147483647",
                "oflags=0",
                "mask=0",
                "mask=1",
                "mask=2",
                "mask=4",
            ]);
            return self.vain("xrcd", &format!("open_xrcd {wrong}"));
        }
        let xrcd = self.add(Kind::XrcDomain, "xrcd", &[]);
        self.say(format!("{} = open_xrcd", self.name(xrcd)));
    }

    pub(super) fn address(&mut self) {
        let Some(pd) = self.any(Kind::Domain) else {
            return;
        };
        let name = self.name(pd).to_string();
        if self.rng.chance(250) {
            let wrong = self.one(&[
                "ah_port=0",
                "ah_port=2",
                "global=0",
                "no_gid=1",
                "sgid=255",
                "sgid=1000",
            ]);
            return self.vain("ah", &format!("create_ah {name} {wrong}"));
        }
        let how = self.one(&[
            "",
            "",
            " sl=1",
            " sl=7",
            " hops=255",
            " hops=1 class=255",
            " class=8 label=1048575",
        ]);
        let ah = self.add(Kind::Address, "ah", &[pd]);
        self.say(format!("{} = create_ah {name}{how}", self.name(ah)));
    }

    pub(super) fn multicast(&mut self) {
        let Some(pair) = self.any(Kind::QueuePair) else {
            return;
        };
        let (how, group) = (
            self.one(&["attach", "attach", "detach"]),
            self.one(&[1, 2, 3]),
        );
        let prefix = self.one(&["", "", "", "", " prefix=254"]);
        self.say(format!(
            "{how}_mcast {} group={group}{prefix}",
            self.name(pair)
        ));
    }

    /// Destroys an object, or tries to.
    pub(super) fn destroy(&mut self) {
        let all = self.some(|it| it.kind != Kind::Memory);
        let Some(thing) = self.among(&all) else {
            return;
        };
        // The first objects are those that most calls need, and a region with receives is needed as well.
        if thing < 3 && !self.rng.chance(200) || self.things[thing].posted > 0 {
            return;
        }
        let used = self.is_used(thing);
        // A bound window's region, and what a receive waits in.
        if used && (self.things[thing].kind == Kind::Region || self.rng.chance(400)) {
            return;
        }
        let kind = self.things[thing].kind;
        let mut pairs = match kind {
            Kind::QueuePair => vec![thing],
            Kind::Region => self.all(Kind::QueuePair),
            _ => Vec::new(),
        }
        .into_iter();
        if !pairs.all(|pair| self.settle(pair)) {
            return;
        }
        if kind == Kind::QueuePair {
            if self.of_pair(thing, |pair| !pair.groups.is_empty()) {
                // It is refused.
                return self.say(format!("destroy_qp {}", self.name(thing)));
            }
            self.part(thing);
            self.forget(thing);
        }
        self.acknowledge(thing);
        let call = match kind {
            Kind::Domain => "dealloc_pd",
            Kind::Memory => return,
            Kind::Region => "dereg_mr",
            Kind::Window => "dealloc_mw",
            Kind::Channel => "destroy_comp_channel",
            Kind::Completions => "destroy_cq",
            Kind::Shared => "destroy_srq",
            Kind::XrcDomain => "close_xrcd",
            Kind::Address => "destroy_ah",
            Kind::QueuePair => "destroy_qp",
        };
        self.say(format!("{call} {}", self.name(thing)));
        self.things[thing].gone = !used;
    }

    pub(super) fn ask_device(&mut self) {
        let question = self.one(&[
            "query_port 1",
            "query_port 2",
            "query_gid 1 0",
            "query_gid 1 1000",
            "query_pkey 1 0",
            "query_pkey 1 1000",
            "get_pkey_index 1 65535",
            "query_rt_values",
            "resolve_eth",
        ]);
        self.say(question);
    }
}
