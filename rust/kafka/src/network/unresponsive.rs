//! Who owes an answer and sends nothing. It may stand still, or be cut off without anybody being told: its connections stay
//! open, and end only when `socket.timeout.ms` (60 s) is over. Long before that its cluster has given its work to others,
//! who can be asked; metadata that does not name it any more ends its connections ([`Network::set_brokers`]).

use std::time::{Duration, Instant};

use super::peer::Link;
use super::{Network, Peer};

/// Who owes an answer for so long, beyond the time for which it may hold one back, is silent.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// How long behind metadata it is asked for again while a broker is silent: the controller, too, notices after a while
/// (`broker.session.timeout.ms`, 9 s).
pub(crate) const SILENT_AGAIN: Duration = Duration::from_secs(2);

impl Network {
    /// Whether nothing has come of a peer for a while although something should; also over another connection to the
    /// same place: a bootstrap server is a broker as well.
    pub(crate) fn is_silent(&self, peer: Peer, now: Instant) -> bool {
        let Some(Link { endpoint, .. }) = self.links.get(&peer) else {
            return false;
        };
        let mut there = self.links.values().filter(|it| it.endpoint == *endpoint);
        there.any(|link| is_silent(link, now))
    }

    /// Whether a broker of the cluster's metadata is silent: others may lead its partitions by now.
    pub(crate) fn misses_broker(&self, now: Instant) -> bool {
        let mut links = self.links.iter();
        links.any(|(peer, link)| matches!(peer, Peer::Broker(_)) && is_silent(link, now))
    }

    /// Brokers of the cluster's metadata that are silent.
    pub(crate) fn silent_brokers(&self, now: Instant) -> Vec<i32> {
        let brokers = self.links.keys().filter_map(|peer| match peer {
            Peer::Broker(id) => Some(*id),
            Peer::Bootstrap(_) => None,
        });
        brokers
            .filter(|id| self.is_silent(Peer::Broker(*id), now))
            .collect()
    }

    /// When the next peer becomes silent, if nothing comes.
    pub(crate) fn silence_at(&self, now: Instant) -> Option<Instant> {
        let since = self.links.values().filter_map(Link::silent_since);
        since
            .map(|since| since + SILENCE)
            .filter(|at| *at > now)
            .min()
    }
}

fn is_silent(link: &Link, now: Instant) -> bool {
    link.silent_since()
        .is_some_and(|since| now.saturating_duration_since(since) >= SILENCE)
}
