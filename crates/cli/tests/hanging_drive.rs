//! A drive that hangs in its file system holds up none of the others, whether that file system lets whoever submits a request go on or not.

mod common;
#[path = "power_cut/mount.rs"]
mod mount;
#[path = "power_cut/volatile.rs"]
mod volatile;

use std::time::Duration;

use common::load::{payload, verify};
use common::{Drives, Server};
use forebay_client::{Client, ClientConfig};
use forebay_types::FragmentId;
use mount::{Mounted, Requests};
use serde_json::Value;

/// Far more than the server needs to take a drive out: whoever waits so long waits for ever.
const HANG: Duration = Duration::from_secs(60);

const VICTIM: usize = 2;

fn put(client: &mut Client, run: u32) -> Vec<FragmentId> {
    let ids: Vec<FragmentId> = (0..200).map(|source| FragmentId::new(run, 1, source)).collect();
    for id in &ids {
        client.put(*id, 200, &payload(*id)).expect("taken");
    }
    client.flush().expect("answered");
    let mut results = Vec::new();
    client.take_put_results(&mut results);
    assert!(results.iter().all(|result| result.outcome.is_acknowledged()), "{:?}", results.first());
    ids
}

fn serve_although_one_hangs(requests: Requests) {
    let drives = Drives::five();
    let Some(mounted) = Mounted::files(&drives.paths, 1, requests) else { return };
    let config = drives.directory.path().join("forebay.toml");
    std::fs::write(&config, "[store]\ncache-bytes = 0\n").expect("written");
    let options = ["--config", &config.display().to_string()];
    let mut server = Server::start_at("127.0.0.1:0", &options, &mounted.paths()).expect("it starts");
    server.collect_log();
    let config = ClientConfig::new(server.address.clone(), "test").deadline(Some(HANG));
    let mut client = Client::connect(config).expect("the server answers");
    let mut ids = put(&mut client, 1);
    mounted.hang(VICTIM);
    let after = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ids.extend(put(&mut client, 2));
        verify(&mut client, &ids);
        let status: Value = serde_json::from_str(&client.status().expect("answered")).expect("JSON");
        assert_eq!(status["drives"][VICTIM]["state"], "failed", "{status}");
    }));
    // A process ends when the last of what it asked for is answered.
    server.send_kill();
    mounted.hang_no_more();
    server.kill();
    after.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn a_drive_that_hangs_is_taken_out() {
    serve_although_one_hangs(Requests::Asynchronous);
}

#[test]
fn a_drive_whose_file_system_waits_for_it_is_taken_out() {
    serve_although_one_hangs(Requests::Synchronous);
}
