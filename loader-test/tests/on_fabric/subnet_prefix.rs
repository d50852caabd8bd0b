//! A subnet with its own prefix, and GIDs that have the default prefix anyway: in hosts files, and from clients that read
//! them there.

use loader_test::client::{Entry, Status, entries, flag};
use loader_test::kernel::{Kernel, Request};
use loader_test::record::{DEFAULT_SUBNET_PREFIX, Gid, PathRecord};
use loader_test::{client, sa};

use super::{
    ASKING, ASKING_NAME, HOSTS_FILE, PEER, PEER_NAME, WHOLE_PKEY, ask, asking, assert_equal,
    beside, rig, start,
};

const PREFIX: u64 = 0xfec0_0000_0000_0001;

#[test]
fn the_default_prefix_stands_for_the_subnets_own() {
    let rig = start(
        rig()
            .opensm_option("subnet_prefix", format!("{PREFIX:#x}"))
            .netlink(),
        ASKING,
    );
    let host = asking(&rig);
    let peer = rig.gid(PEER).unwrap();
    assert_eq!(peer, Gid::new(PREFIX, peer.interface_id()));
    let written = Gid::new(DEFAULT_SUBNET_PREFIX, peer.interface_id());
    assert!(HOSTS_FILE.contains(&format!("{PEER_NAME} {written}\n")));
    let truth = rig.sa_path(host.gid(), sa::Destination::Gid(peer)).unwrap();

    let mut by_gid = PathRecord::EMPTY;
    by_gid.set_sgid(host.gid()).set_dgid(written);
    let named = client::Destination::Address {
        destination: PEER_NAME.to_owned(),
        source: Some(ASKING_NAME.to_owned()),
    };
    let mut client = host.connect().unwrap();
    for entries in [
        entries(&named, 0).unwrap(),
        vec![Entry::path(0, &by_gid)],
        vec![Entry::path(flag::QUERY_SA, &by_gid)],
        beside(&by_gid),
    ] {
        let answer = ask(&mut client, &entries);
        assert_eq!(answer.status, Status::SUCCESS, "{entries:?}");
        assert_equal(&answer.path().unwrap(), &truth);
    }

    let mut kernel = Kernel::of(host).unwrap();
    let request = Request::path(host.gid(), written, WHOLE_PKEY);
    let answer = kernel.resolve(&request).unwrap();
    assert_equal(&answer.expect("a path"), &truth);

    // Without a source the core takes the destination for one of another subnet, and asks no provider.
    let mut alone = PathRecord::EMPTY;
    alone.set_dgid(written);
    let answer = ask(&mut client, &[Entry::path(0, &alone)]);
    assert_eq!(answer.status, Status::ESRCADDR);
}
