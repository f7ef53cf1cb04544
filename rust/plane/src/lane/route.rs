//! The route of a source topic's records.

use eomirror_core::relay::{Target, TopicPolicy};

use eomirror_kafka::TopicId;

/// The treatment of a source topic's records, and its target.
#[derive(Debug, Clone)]
pub struct Route {
    /// Decides about records; has the names of both topics.
    pub policy: TopicPolicy,
    /// Limits of the target topic.
    pub target: Target,
    /// The intended target topic (rule 5); None when unknown.
    pub target_id: Option<TopicId>,
}
