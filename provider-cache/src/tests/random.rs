//! Long random histories of one port: requests; responses that are right, wrong, late or missing;
//! reregistrations and reopenings. Invariants are checked after each step.

use std::collections::HashMap;

use acm_prov_api::abi::umad_sa_packet;

use super::*;

/// Number of histories of a kind, and of steps in each.
const HISTORIES: u64 = 60;
const STEPS: usize = 150;

/// SplitMix64, so that a failing history can be repeated by its number.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

struct History {
    core: ByHand,
    random: Random,
    /// The port's LID in its current opening; each opening has another LID.
    opening: u16,
    /// The opening in which each MAD was sent, by transaction id.
    sent_in: HashMap<u64, u16>,
    /// The requests, with their openings.
    asked: Vec<(u64, u16)>,
}

impl History {
    fn new(number: u64, options: &str) -> Self {
        Self {
            core: opened(options),
            random: Random(number),
            opening: 1,
            sent_in: HashMap::new(),
            asked: Vec::new(),
        }
    }

    /// Assigns new MADs to the current opening.
    fn note_sent(&mut self) -> Vec<umad_sa_packet> {
        let questions = self.core.sa_queries();
        for question in &questions {
            let tid = question.mad_hdr.tid.to_host();
            self.sent_in.entry(tid).or_insert(self.opening);
        }
        questions
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=8 => self.ask(),
            9..=16 => self.sa_reacts(),
            17 => self.core.reregister(),
            18 => {
                let refuses = self.random.chance(30);
                self.core.refuse_mads(refuses);
            }
            _ => self.reopen(),
        }
    }

    fn ask(&mut self) {
        let destination = Lid(100 + self.random.below(8) as u16);
        let by_gid = self.random.chance(50);
        let demands = self.random.chance(20);
        let request = path(|wanted| {
            if by_gid {
                wanted.set_dgid(peer(destination.0));
            } else {
                wanted.set_dlid(destination);
            }
            if demands {
                wanted.set_service_id(7);
            }
        });
        let id = match self.random.below(5) {
            0 => self.core.query(&request),
            1 => self.core.resolve(&request.nodelay()),
            _ => self.core.resolve(&request),
        };
        self.asked.push((id, self.opening));
    }

    fn sa_reacts(&mut self) {
        let questions = self.note_sent();
        let Some(question) = questions.first() else {
            return;
        };
        let slid = Lid(self.sent_in[&question.mad_hdr.tid.to_host()]);
        match self.random.below(8) {
            0 => self.core.sa_times_out(),
            1 => self.fails(0x0001),
            2 => self.fails(0x0300),
            3 => self.core.sa_answers_with(|path| {
                path.set_slid(slid).set_dgid(peer(1)).set_dlid(Lid(1));
            }),
            4 => self.core.sa_answers(|packet| packet.mad_hdr.method = 0x33),
            _ => self.core.sa_answers_with(|path| {
                let lid = path
                    .dlid()
                    .0
                    .max(path.dgid().interface_id() as u16 - 0x2000);
                path.set_slid(slid).set_dlid(Lid(lid)).set_dgid(peer(lid));
            }),
        }
    }

    fn fails(&self, status: u16) {
        self.core
            .sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(status));
    }

    fn reopen(&mut self) {
        self.core.close_port();
        self.all_are_answered();
        self.note_sent();
        self.opening += 1;
        let lid = self.opening;
        self.core.change_port(|port| port.lid = lid);
        self.core.open();
    }

    /// Checks that every request has one answer, and no answer has a path of an earlier opening.
    fn all_are_answered(&mut self) {
        for (id, opening) in self.asked.drain(..) {
            // A thread of the SDK may be about to answer.
            self.core.wait_for_answer(id);
            let answers = self.core.answers(id);
            assert_eq!(answers.len(), 1, "{answers:?}");
            if answers[0].status == Status::SUCCESS {
                let path = answers[0].path.expect("a success has a path");
                assert_eq!(path.slid(), Lid(opening), "{path:?}");
            }
        }
    }

    fn end(mut self) {
        self.core.close();
        self.all_are_answered();
        while !self.core.sa_queries().is_empty() {
            self.core.sa_times_out();
        }
        assert_eq!(self.core.mads(), 0, "every MAD is freed");
    }
}

/// Prints the number of the history that failed.
struct Number(u64);

impl Drop for Number {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("history {}", self.0);
        }
    }
}

#[test]
fn one_answer_each_and_no_more_mads_than_the_core_wants_over_all_openings() {
    for number in 0..HISTORIES {
        let _number = Number(number);
        // No deadline passes within the history, and no MAD counts as lost.
        let mut history = History::new(
            number,
            "timeout 600000\npath_cache_capacity 3\npath_cache_negative_ttl 5\npath_cache_stale_ttl 20\n",
        );
        for _ in 0..STEPS {
            history.step();
            let out = history.note_sent().len();
            assert!(out <= 2, "{out} MADs are with the core");
            for (id, _) in &history.asked {
                assert!(history.core.answers(*id).len() <= 1);
            }
        }
        history.end();
    }
}

#[test]
fn everybody_is_answered_in_time_whatever_the_sa_does() {
    for number in 0..HISTORIES {
        let _number = Number(number);
        let mut history = History::new(
            number,
            "timeout 1\nretries 0\naddr_timeout 0\npath_cache_capacity 1\npath_cache_negative_ttl 0\n\
             path_cache_stale_ttl 0\nsa_depth 3\n",
        );
        for _ in 0..STEPS {
            history.step();
        }
        // The port stays open: only the deadline ends requests that still wait.
        for (id, _) in &history.asked {
            history.core.wait_for_answer(*id);
        }
        history.end();
    }
}
