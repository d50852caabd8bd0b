//! Counters of a provider's own: what the engine counts, and where all of them show.

use acm_prov_api::abi::Be16;
use acm_prov_api::cache::engine::RenewalSetting;
use acm_prov_api::policy::{AddressRequest, Policy, PolicyProvider, PolicySettings};
use acm_prov_api::prelude::*;
use acm_prov_api::testing::{Request, TestCore};
use acm_prov_api::{Counter, cache};

static NAMES: Counter = Counter::new("counted_names", "names that clients asked for");

struct Counted;

impl Policy for Counted {
    const NAME: &CStr = c"counted";

    fn read(_: &Options) -> Self {
        Self
    }

    fn settings(options: &Options) -> PolicySettings {
        let mut settings = PolicySettings::read(options);
        settings.cache.store.capacity = 1;
        settings.cache.store.negative_ttl = std::time::Duration::from_secs(3600);
        settings.cache.renewal = RenewalSetting {
            per_second: 1_000,
            delay: std::time::Duration::ZERO,
        };
        settings
    }

    fn counters() -> Vec<&'static Counter> {
        vec![&NAMES]
    }

    fn address(&self, request: AddressRequest<'_>) {
        NAMES.increment();
        request.unknown();
    }
}

acm_prov_api::policy_table!(Counted);

fn lid(lid: u16) -> Request {
    Request::destination(&Address::Lid(Lid(lid)))
}

fn named() -> Request {
    Request::destination(&Address::Name(Name::new("somebody").unwrap()))
}

fn opened() -> TestCore {
    let mut core = TestCore::load::<PolicyProvider<Counted>>("");
    core.open();
    core
}

/// How the engine's counters grow while something is done: evictions, negative hits, stale answers, renewals.
fn growth(what: impl FnOnce()) -> [u64; 4] {
    let values = || -> Vec<_> { cache::counters().iter().map(|own| own.get()).collect() };
    let before = values();
    what();
    std::array::from_fn(|index| values()[index] - before[index])
}

fn learn(core: &mut TestCore, destination: u16) {
    let id = core.resolve(&lid(destination));
    core.wait_for_sa_mads(1);
    core.sa_answers_with(|_| ());
    assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
}

#[test]
fn the_engine_counts_what_acm_h_has_no_counter_for() {
    let mut core = opened();
    assert_eq!(growth(|| learn(&mut core, 7)), [0, 0, 0, 0]);
    let hit = growth(|| {
        core.resolve(&lid(7));
    });
    assert_eq!(hit, [0, 0, 0, 0], "a hit touches no counter of these");
    assert_eq!(growth(|| learn(&mut core, 8)), [1, 0, 0, 0]);
    core.resolve(&lid(9));
    core.sa_answers(|packet| packet.mad_hdr.status = Be16::from_host(0x0300));
    let negative = growth(|| {
        let id = core.resolve(&lid(9));
        assert_eq!(core.answers(id)[0].status, Status::ENODATA);
    });
    assert_eq!(negative, [0, 1, 0, 0]);
    let stale = growth(|| {
        core.reregister();
        let id = core.resolve(&lid(8));
        assert_eq!(core.wait_for_answer(id).status, Status::SUCCESS);
        core.wait_for_sa_mads(1);
    });
    assert_eq!(stale, [0, 0, 1, 1]);
}

#[test]
fn who_asks_for_an_endpoints_counters_gets_the_providers_own_in_the_log() {
    let mut core = opened();
    let lines = |core: &TestCore| {
        let is_line = |line: &String| line.contains("counters:");
        core.log().into_iter().filter(is_line).collect::<Vec<_>>()
    };
    let names = NAMES.get();
    core.resolve(&named());
    assert!(lines(&core).is_empty());
    core.endpoint_counters();
    core.endpoint_counters();
    let lines = lines(&core);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let shown = format!("counted_names {}", names + 1);
    assert!(lines[0].contains(&shown), "{lines:?}");
    assert!(lines[0].contains("cache_evictions "), "{lines:?}");
    assert!(lines[0].contains("dropped_requests "), "{lines:?}");
}
