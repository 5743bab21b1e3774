//! What memory costs: indexes count what is taken for them, not what they asked for.

/// Memory that an allocation of `bytes` takes with the system's allocator: its own word, rounded up.
pub const fn allocated_bytes(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// Places in a node of the standard library's B-trees, and the fewest that are taken in a node that is not the root.
const NODE_PLACES: usize = 11;
const NODE_PLACES_MIN: usize = 5;

/// The most that a map of `len` entries of `entry_bytes` bytes, key and value, takes.
pub const fn tree_bytes(len: usize, entry_bytes: usize) -> usize {
    let leaf = (NODE_PLACES * entry_bytes + 12).next_multiple_of(8) + 8;
    let inner = leaf + (NODE_PLACES + 1) * size_of::<usize>();
    let nodes = len / NODE_PLACES_MIN + 1;
    let inner_nodes = if nodes > 1 { nodes / (NODE_PLACES_MIN + 1) + 1 } else { 0 };
    nodes * allocated_bytes(leaf) + inner_nodes * (allocated_bytes(inner) - allocated_bytes(leaf))
}
