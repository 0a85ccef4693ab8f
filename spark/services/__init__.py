"""Table services: scheduled as plans on the timeline, carried out by any process."""
