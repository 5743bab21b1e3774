//! Records of runs and streams: pieces of the input are keys and values, as they come, and with the kind and the layout put right.
#![no_main]

use forebay_fuzz::{Parts, bounded};
use forebay_runs::Books;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    bounded(64 * input.len() + (1 << 20), || {
        let mut books = Books::default();
        let mut parts = Parts::of(input);
        while !parts.is_empty() {
            let kind = parts.byte() % 2 + 1;
            let (key, value) = (parts.piece().to_vec(), parts.piece().to_vec());
            let _ = books.load(&key, &value);
            let key: Vec<u8> = [kind].into_iter().chain(key).collect();
            let value: Vec<u8> = [1].into_iter().chain(value).collect();
            let _ = books.load(&key, &value);
        }
        // What was read answers, whatever it is.
        let runs: Vec<_> = books.runs_behind(None).map(|run| run.run).collect();
        assert_eq!(runs.len(), books.counts().0);
        for run in runs {
            let record = books.run(run).expect("it is listed");
            assert!(!record.is_held() || books.rule(run).is_held);
        }
        let streams: Vec<_> = books.streams().map(|stream| (stream.name.clone(), stream.version)).collect();
        for (name, version) in streams {
            assert_eq!(books.versions(&name).count(), version as usize, "versions are counted from 1 on");
        }
        let _ = books.rules();
    });
});
