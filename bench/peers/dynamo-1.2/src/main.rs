// Copyright (C) the nginx-kv-router authors
//
// ConcurrentRadixTree, which dynamo-kv-router 1.2.0 still has, and 1.6.1 not.

#[path = "../../common/mod.rs"]
mod common;

use common::Threaded;
use dynamo_kv_router::ConcurrentRadixTree;

fn main() {
    common::run(
        &[|| Threaded::open("ConcurrentRadixTree", ConcurrentRadixTree::new())],
        false,
    );
}
