//! Steps of which nobody hears what became of them.

use std::sync::Arc;

use forebay_types::Time;

use super::*;
use crate::about::{About, Checked};
use crate::name::Name;
use crate::recipe::{Form, Recipe};
use crate::sums::Sums;

const TOKEN: u64 = 7;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

#[test]
fn what_was_sent_while_it_is_held_is_not_sent_once_more_under_its_name() {
    let identity = PartIdentity { bytes: 3, modified_ns: 1, inode: 2 };
    let recipe = Recipe::of_files(Form::Concatenated, vec![Part { name: name("a"), identity, changed_ns: 1 }], None);
    let deliveries = vec![Delivery::new("/archive", What::File, true)];
    let mut file = Consignment::new(ConsignmentId(1), name("a"), recipe, 0, deliveries, None);
    let (now, policy, sums) = (Time(0), Policy::default(), Sums::of(b"abc"));
    let about = Arc::new(About::default());
    file.source_answer(SourceAnswer::Whole(Checked { sums, about }), now, &policy);
    let look = file.delivery_step(0, TOKEN).expect("it is looked for");
    assert_eq!(look, Step::Ask { name: name("a") });
    file.delivery_answer(0, &look, TOKEN, Answer::Told(None), now, &policy);
    let send = file.delivery_step(0, TOKEN).expect("it is sent");
    let Step::Send { temporary, .. } = send.clone() else { panic!("{send:?}") };
    file.hold(true, "a person");
    file.delivery_answer(0, &send, TOKEN, Answer::Sent(sums), now, &policy);
    assert_eq!(file.delivery_step(0, TOKEN), None);
    file.hold(false, "a person");
    // What is there goes first, and the next attempt has a name of its own.
    let clean = file.delivery_step(0, TOKEN).expect("it goes on");
    assert_eq!(clean, Step::Remove { name: temporary.clone() });
    file.delivery_answer(0, &clean, TOKEN, Answer::Done, now, &policy);
    let again = file.delivery_step(0, TOKEN).expect("it is sent");
    assert!(matches!(&again, Step::Send { temporary: other, .. } if *other != temporary), "{again:?}");
}
