//! The way along a path, and how names are shown.

use std::collections::BTreeMap;

use forebay_client::files::{LINKS_MAX, Walk, WalkError, WalkStep};
use forebay_protocol::Node;
use forebay_types::{Attributes, FileNumber, NameOutcome, NodeKind, NodeView};
use proptest::prelude::*;

/// A name space: what each number is, and what names there are in it.
#[derive(Default)]
struct Names {
    nodes: BTreeMap<u64, Node>,
    entries: BTreeMap<(u64, Vec<u8>), u64>,
}

const ROOT: u64 = 1;

impl Names {
    fn new() -> Names {
        let mut names = Names::default();
        names.add(ROOT, b"", ROOT, NodeKind::Directory, b"");
        names
    }

    fn add(&mut self, parent: u64, name: &[u8], number: u64, kind: NodeKind, target: &[u8]) {
        let view = NodeView { kind, attributes: Attributes::default(), links: 1, device: 0, target: target.to_vec() };
        self.nodes.insert(number, Node { number: FileNumber(number), parent: FileNumber(parent), view });
        self.entries.insert((parent, name.to_vec()), number);
    }

    /// Walks; what is found, and with how many questions.
    fn walk(&self, path: &[u8], follows_last: bool) -> (Result<u64, WalkError>, usize) {
        let (mut walk, mut questions) = (Walk::new(path, follows_last), 0);
        loop {
            match walk.next_step() {
                WalkStep::Found(node) => return (Ok(node.number.0), questions),
                WalkStep::Failed(error) => return (Err(error), questions),
                WalkStep::Ask(lookup) => {
                    questions += 1;
                    let directory = lookup.directory.map_or(ROOT, |directory| directory.0);
                    let number = match &lookup.name[..] {
                        b"" => Some(directory),
                        name => self.entries.get(&(directory, name.to_vec())).copied(),
                    };
                    walk.answered(
                        number.and_then(|number| self.nodes.get(&number).cloned()).ok_or(NameOutcome::NotFound),
                    );
                }
            }
        }
    }
}

fn tree() -> Names {
    let mut names = Names::new();
    names.add(ROOT, b"a", 2, NodeKind::Directory, b"");
    names.add(2, b"b", 3, NodeKind::Directory, b"");
    names.add(3, b"file", 4, NodeKind::File, b"");
    names.add(ROOT, b"to-b", 5, NodeKind::Link, b"a/b");
    names.add(3, b"up", 6, NodeKind::Link, b"../../to-b/file");
    names.add(3, b"from-root", 7, NodeKind::Link, b"/a/b//.");
    names.add(ROOT, b"me", 8, NodeKind::Link, b"me");
    names.add(ROOT, b"nowhere", 9, NodeKind::Link, b"gone/x");
    names.add(ROOT, b"empty", 10, NodeKind::Link, b"");
    names.add(ROOT, b"top", 11, NodeKind::Link, b"///");
    names
}

#[test]
fn paths_lead_where_they_lead_in_posix() {
    let names = tree();
    let ways: [(&[u8], u64); 20] = [
        (b"/", ROOT),
        (b"//./..", ROOT),
        (b"a", 2),
        (b"/a/", 2),
        (b"/a/b/file", 4),
        (b"//a///b/./file", 4),
        (b"/a/b/..", 2),
        (b"/a/b/../..", ROOT),
        (b"/a/../../../a/b", 3),
        (b"/to-b", 3),
        (b"/to-b/", 3),
        // The directory above is that of where the link leads.
        (b"/to-b/..", 2),
        (b"/to-b/file", 4),
        (b"/a/b/up", 4),
        (b"/a/b/from-root", 3),
        (b"/a/b/from-root/from-root/file", 4),
        (b"/top", ROOT),
        (b"/top/a", 2),
        (b"/to-b/up", 4),
        (b"/top/..", ROOT),
    ];
    for (path, number) in ways {
        assert_eq!(names.walk(path, true).0, Ok(number), "{}", path.escape_ascii());
    }
    // A link that is meant itself.
    for (path, number) in [(&b"/to-b"[..], 5), (b"/to-b/", 3), (b"/to-b/up", 6), (b"/me", 8), (b"/empty", 10)] {
        assert_eq!(names.walk(path, false).0, Ok(number), "{}", path.escape_ascii());
    }
    let failures: [(&[u8], NameOutcome); 11] = [
        (b"", NameOutcome::NotFound),
        (b"/c", NameOutcome::NotFound),
        (b"/c/d", NameOutcome::NotFound),
        (b"/a/b/file/", NameOutcome::NotDirectory),
        (b"/a/b/file/x", NameOutcome::NotDirectory),
        (b"/a/b/file/.", NameOutcome::NotDirectory),
        (b"/a/b/file/..", NameOutcome::NotDirectory),
        (b"/a/b/up/x", NameOutcome::NotDirectory),
        (b"/nowhere", NameOutcome::NotFound),
        (b"/empty", NameOutcome::NotFound),
        (b"/a/b\0", NameOutcome::BadName),
    ];
    for (path, outcome) in failures {
        assert_eq!(names.walk(path, true).0, Err(WalkError::Name(outcome)), "{}", path.escape_ascii());
    }
    assert_eq!(names.walk(b"/a/b/file", true).1, 3, "a question for each name");
}

#[test]
fn links_in_a_circle_end_and_names_that_are_none_are_not_asked_for() {
    let mut names = tree();
    let (end, questions) = names.walk(b"/me", true);
    assert_eq!((end, questions), (Err(WalkError::LinkLoop), LINKS_MAX as usize + 1));
    names.add(ROOT, b"one", 20, NodeKind::Link, b"other/x/y");
    names.add(ROOT, b"other", 21, NodeKind::Link, b"one/z/../w");
    assert_eq!(names.walk(b"/one", true).0, Err(WalkError::LinkLoop));
    // As many as are followed, and one more.
    for number in 0..=u64::from(LINKS_MAX) {
        let target = if number == 0 { b"a".to_vec() } else { format!("l{}", number - 1).into_bytes() };
        names.add(ROOT, format!("l{number}").as_bytes(), 100 + number, NodeKind::Link, &target);
    }
    assert_eq!(names.walk(format!("/l{}", LINKS_MAX - 1).as_bytes(), true).0, Ok(2));
    assert_eq!(names.walk(format!("/l{LINKS_MAX}").as_bytes(), true).0, Err(WalkError::LinkLoop));

    let long = [b"/a/", &[b'n'; 256][..]].concat();
    assert_eq!(names.walk(&long, true), (Err(WalkError::Name(NameOutcome::TooLong)), 1));
    assert_eq!(names.walk(b"/a\0b", true), (Err(WalkError::Name(NameOutcome::BadName)), 0));
    assert_eq!(names.walk(&long[..long.len() - 1], true), (Err(WalkError::Name(NameOutcome::NotFound)), 2));
}

proptest! {
    #[test]
    fn any_path_ends_somewhere(path in prop::collection::vec(proptest::sample::select(vec![b'/', b'.', b'a', b'b', 0, 255]), 0..40), follows: bool) {
        let (_, questions) = tree().walk(&path, follows);
        prop_assert!(questions <= path.len() + 1);
    }

    #[test]
    fn names_are_shown_each_in_its_own_way(one in prop::collection::vec(any::<u8>(), 0..12), other in prop::collection::vec(any::<u8>(), 0..12)) {
        let (one_shown, other_shown) = (forebay_client::files::escape(&one), forebay_client::files::escape(&other));
        prop_assert_eq!(one == other, one_shown == other_shown);
        prop_assert!(!one_shown.chars().any(char::is_control));
    }
}
