//! Why a ticket is refused, and at which stage.
//!
//! Called by both forms; core turns it into UNAUTHENTICATED, TOKEN_INVALID or TOKEN_EXPIRED and counts it by stage.

/// The stages of a check in their order (requirement B4). A later stage is never reached by what an earlier one refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TicketStage {
    /// Is there a ticket, and is it at most 4096 bytes long?
    Size,
    /// Are its parts those of one of the two forms?
    Shape,
    /// Are the parts strict base64url?
    Base64,
    /// Is the JOSE header one small strict object with only what we know?
    Header,
    /// Is the algorithm HS256?
    Alg,
    /// Is the key id one of a live key?
    Kid,
    /// Does the MAC fit?
    Signature,
    /// Are the claims complete, well formed and in range?
    Claims,
    /// Is it valid now?
    Time,
    /// Was it minted for this activity, SKU, user, version and path?
    Binding,
    /// Does this device hold it?
    Device,
}

/// What a ticket was minted for and does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Another activity.
    Activity,
    /// Another SKU.
    Sku,
    /// Another user.
    User,
    /// Another version of the activity.
    ActivityVersion,
    /// Another path.
    PathId,
}

/// Why a ticket is refused. Holds nothing of the ticket, so it may be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketReject {
    /// There is none: UNAUTHENTICATED.
    Missing,
    /// Longer than 4096 bytes.
    Size,
    /// Neither a JWS nor a compact ticket.
    Shape,
    /// Not strict base64url.
    Base64,
    /// The JOSE header is not acceptable.
    Header,
    /// Another algorithm than HS256.
    Alg,
    /// No live key has this id.
    Kid,
    /// The MAC is wrong.
    Signature,
    /// The claims are not acceptable, though signed: the minter is at fault.
    Claims,
    /// Not valid yet.
    NotYet,
    /// No longer valid: TOKEN_EXPIRED.
    Expired,
    /// Minted for something else.
    Binding(Binding),
    /// Bound to another device, or the device header is missing.
    Device,
}

impl TicketReject {
    /// The stage that refused it.
    pub fn stage(self) -> TicketStage {
        match self {
            Self::Missing | Self::Size => TicketStage::Size,
            Self::Shape => TicketStage::Shape,
            Self::Base64 => TicketStage::Base64,
            Self::Header => TicketStage::Header,
            Self::Alg => TicketStage::Alg,
            Self::Kid => TicketStage::Kid,
            Self::Signature => TicketStage::Signature,
            Self::Claims => TicketStage::Claims,
            Self::NotYet | Self::Expired => TicketStage::Time,
            Self::Binding(_) => TicketStage::Binding,
            Self::Device => TicketStage::Device,
        }
    }
}
