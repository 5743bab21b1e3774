//! Of a store that stands on a cluster.

use super::*;

/// A store on a cluster that is well.
fn on_a_cluster() -> World {
    let mut world = World::new();
    world.seen.cluster = Some(SeenCluster {
        name: "rados:ec,meta/hlt1".to_owned(),
        health: Some("HEALTH_OK".to_owned()),
        available_bytes: Some(80 << 30),
        stored_bytes: Some(20 << 30),
        ..SeenCluster::default()
    });
    world
}

#[test]
fn a_cluster_that_is_less_safe_or_slow_is_told_and_what_is_its_own_business_is_not() {
    let mut world = on_a_cluster();
    assert_eq!(world.after(1), []);
    let with = |world: &mut World, health: &str, checks: &[&str]| {
        let cluster = world.seen.cluster.as_mut().expect("there is one");
        cluster.health = Some(health.to_owned());
        cluster.checks = checks.iter().map(|check| (*check).to_owned()).collect();
        world.after(1)
    };
    assert_eq!(with(&mut world, "HEALTH_WARN", &["POOL_NO_REDUNDANCY: 1 pool(s) have no replicas configured"]), []);
    let checks = ["MGR_DOWN: no active mgr", "OSD_DOWN: 2 osds down", "SLOW_OPS: 3 slow ops"];
    assert_eq!(with(&mut world, "HEALTH_WARN", &checks), [Alarm::ClusterUnwell]);
    let words = world.words(Alarm::ClusterUnwell);
    assert!(words.contains("OSD_DOWN: 2 osds down; SLOW_OPS: 3 slow ops") && !words.contains("mgr"), "{words}");
    assert_eq!(with(&mut world, "HEALTH_OK", &[]), []);
    assert_eq!(with(&mut world, "HEALTH_ERR", &["NEW_CHECK: of a later version"]), [Alarm::ClusterUnwell]);
    let many: Vec<String> = (0..30).map(|number| format!("OSD_DOWN: {number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(with(&mut world, "HEALTH_WARN", &many), [Alarm::ClusterUnwell]);
    assert!(world.words(Alarm::ClusterUnwell).contains("; and 26 more"), "{}", world.words(Alarm::ClusterUnwell));
}

#[test]
fn a_cluster_that_nobody_hears_of_is_told_and_nothing_else_of_it() {
    let mut world = on_a_cluster();
    let cluster = |world: &mut World| world.seen.cluster.take().expect("there is one");
    let with = |world: &mut World, silent_s| {
        let cluster = SeenCluster { silent: Duration::from_secs(silent_s), ..cluster(world) };
        world.seen.cluster = Some(cluster);
        world.after(1)
    };
    assert_eq!(with(&mut world, 29), []);
    world.seen.cluster.as_mut().expect("there is one").health = Some("HEALTH_ERR".to_owned());
    assert_eq!(with(&mut world, 30), [Alarm::ClusterSilent]);
    assert_eq!(with(&mut world, 0), [Alarm::ClusterUnwell]);
}

#[test]
fn a_pool_with_little_room_is_told_until_it_has_more() {
    let mut world = on_a_cluster();
    let mut with = |available_bytes, stored_bytes| {
        let cluster = world.seen.cluster.as_mut().expect("there is one");
        (cluster.available_bytes, cluster.stored_bytes) = (available_bytes, stored_bytes);
        world.after(1)
    };
    assert_eq!(with(Some(10), Some(90)), []);
    assert_eq!(with(Some(9), Some(91)), [Alarm::PoolFilling]);
    assert_eq!(with(Some(14), Some(86)), [Alarm::PoolFilling]);
    assert_eq!(with(Some(15), Some(85)), []);
    assert_eq!(with(Some(0), Some(u64::MAX)), [Alarm::PoolFilling]);
    assert_eq!(with(Some(0), Some(0)), []);
    assert_eq!(with(None, Some(1)), []);
}
