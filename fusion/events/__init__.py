"""Events: one for each transition of a job. Their Python shape, their wording, and the protocol of those who take them."""
