//! Who owes an answer and sends nothing. It may stand still, or be cut off without anybody being told: its connections stay
//! open, and end only when `socket.timeout.ms` (60 s) is over. Long before that its cluster has given its work to others,
//! who can be asked; metadata that does not name it any more ends its connections ([`Network::set_brokers`]).

use std::time::{Duration, Instant};

use super::peer::PeerState;
use super::{Network, Peer};

/// Who owes an answer for so long, beyond the time for which it may hold one back, is silent.
pub(crate) const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(5);

/// How long behind metadata it is asked for again while a broker is silent: the controller, too, notices after a while
/// (`broker.session.timeout.ms`, 9 s).
pub(crate) const UNRESPONSIVE_RECHECK: Duration = Duration::from_secs(2);

impl Network {
    /// Whether nothing has come of a peer for a while although something should; also over another connection to the
    /// same place: a bootstrap server is a broker as well.
    pub(crate) fn is_unresponsive(&self, peer: Peer, now: Instant) -> bool {
        let Some(PeerState { endpoint, .. }) = self.peers.get(&peer) else {
            return false;
        };
        let mut there = self.peers.values().filter(|it| it.endpoint == *endpoint);
        there.any(|state| is_unresponsive(state, now))
    }

    /// Whether a broker of the cluster's metadata is silent: others may lead its partitions by now.
    pub(crate) fn has_unresponsive_broker(&self, now: Instant) -> bool {
        let mut peers = self.peers.iter();
        peers.any(|(peer, state)| matches!(peer, Peer::Broker(_)) && is_unresponsive(state, now))
    }

    /// Brokers of the cluster's metadata that are silent.
    pub(crate) fn unresponsive_brokers(&self, now: Instant) -> Vec<i32> {
        let brokers = self.peers.keys().filter_map(|peer| match peer {
            Peer::Broker(id) => Some(*id),
            Peer::Bootstrap(_) => None,
        });
        brokers
            .filter(|id| self.is_unresponsive(Peer::Broker(*id), now))
            .collect()
    }

    /// When the next peer becomes silent, if nothing comes.
    pub(crate) fn unresponsive_at(&self, now: Instant) -> Option<Instant> {
        let since = self.peers.values().filter_map(PeerState::unanswered_since);
        since
            .map(|since| since + UNRESPONSIVE_AFTER)
            .filter(|at| *at > now)
            .min()
    }
}

fn is_unresponsive(state: &PeerState, now: Instant) -> bool {
    state
        .unanswered_since()
        .is_some_and(|since| now.saturating_duration_since(since) >= UNRESPONSIVE_AFTER)
}
