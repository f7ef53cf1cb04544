//! Where the records of a source topic go.

use eomirror_core::relay::{Target, TopicPolicy};

use eomirror_kafka::TopicId;

/// What is done with the records of a source topic, and what is known of its target.
#[derive(Debug, Clone)]
pub struct Route {
    /// Decides about records; names both topics.
    pub treatment: TopicPolicy,
    /// Limits of the target topic.
    pub target: Target,
    /// The target topic that is meant (rule 5); None where that is not known.
    pub target_id: Option<TopicId>,
}
