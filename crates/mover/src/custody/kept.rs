//! How far files are, and what the journal keeps of them.

use crate::about::Checked;

/// How far a consignment is, besides its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its content is not what it should be, or changed on the way; nothing goes on until a person says so.
    Quarantined,
    /// It is planned; its content is to be checked.
    Found,
    /// Its content was checked, and it is on its way.
    Delivering,
    /// Every required destination has proven that it holds it.
    Proven,
    /// The source has let it go.
    Released,
    /// It changed before it was anywhere under its name: it is planned anew when it is complete.
    Withdrawn,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 6] =
        [Stage::Quarantined, Stage::Found, Stage::Delivering, Stage::Proven, Stage::Released, Stage::Withdrawn];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Quarantined => "quarantined",
            Stage::Found => "found",
            Stage::Delivering => "delivering",
            Stage::Proven => "proven",
            Stage::Released => "released",
            Stage::Withdrawn => "withdrawn",
        }
    }

    /// Whether the source keeps it no longer on behalf of this consignment.
    pub const fn is_over(self) -> bool {
        matches!(self, Stage::Released | Stage::Withdrawn)
    }
}

/// What the journal keeps of a consignment, besides what was planned and its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How far it is.
    pub stage: Stage,
    /// Whether a person holds it.
    pub held: bool,
    /// Whether a person answers for its release.
    pub let_go: bool,
    /// What its check found, once it was checked.
    pub content: Option<Checked>,
    /// Whether it was registered.
    pub registered: bool,
    /// How often its registration was refused, since a person last looked.
    pub refusals: u32,
    /// What was said last about it.
    pub words: String,
}

impl Default for Standing {
    fn default() -> Standing {
        Standing {
            stage: Stage::Found,
            held: false,
            let_go: false,
            content: None,
            registered: false,
            refusals: 0,
            words: String::new(),
        }
    }
}

/// What is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The file itself.
    File,
    /// The `.json` beside it.
    Sidecar,
}

impl What {
    /// All of them.
    pub const ALL: [What; 2] = [What::File, What::Sidecar];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            What::File => "file",
            What::Sidecar => "sidecar",
        }
    }
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryState {
    /// What was found there, sent or said is not what it should be; kept, and told to people.
    Quarantined,
    /// Nothing was sent.
    Found,
    /// Bytes stream there under a temporary name.
    Sending,
    /// All were sent, and what they came to is known.
    Arrived,
    /// The destination said, by the final name, that it holds them.
    Verified,
    /// It said so again after the wait, and is asked until the file is on tape there.
    Waiting,
    /// It said so again after the wait, and the file is on tape where that is wanted.
    Proven,
}

impl DeliveryState {
    /// How far the whole is by it: a sidecar begins when its file is verified.
    pub fn as_far_as(self, what: What) -> DeliveryState {
        match (what, self) {
            (What::File, state) => state,
            (What::Sidecar, DeliveryState::Quarantined) => DeliveryState::Quarantined,
            (What::Sidecar, state) => state.max(DeliveryState::Verified),
        }
    }

    /// All of them.
    pub const ALL: [DeliveryState; 7] = [
        DeliveryState::Quarantined,
        DeliveryState::Found,
        DeliveryState::Sending,
        DeliveryState::Arrived,
        DeliveryState::Verified,
        DeliveryState::Waiting,
        DeliveryState::Proven,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            DeliveryState::Quarantined => "quarantined",
            DeliveryState::Found => "found",
            DeliveryState::Sending => "sending",
            DeliveryState::Arrived => "arrived",
            DeliveryState::Verified => "verified",
            DeliveryState::Waiting => "waiting",
            DeliveryState::Proven => "proven",
        }
    }
}

/// What the journal keeps of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// How far it is.
    pub state: DeliveryState,
    /// The number of the newest attempt; its temporary name has it.
    pub attempts: u32,
    /// How often something was other than it should be, or refused, since a person last looked.
    pub strikes: u32,
    /// Whether the file under the final name was put there by an attempt.
    pub ours: bool,
    /// The attempt whose temporary name may have bytes that are not known to be wrong.
    pub partial: Option<u32>,
    /// Attempts whose temporary names hold what is not needed; taken away once the file is proven.
    pub left: Vec<u32>,
    /// What was said last, by the destination or about it.
    pub words: String,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            state: DeliveryState::Found,
            attempts: 0,
            strikes: 0,
            ours: false,
            partial: None,
            left: Vec::new(),
            words: String::new(),
        }
    }
}
