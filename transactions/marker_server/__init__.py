"""The marker server: takes the markers of a write's tasks in the driver, and detects conflicts there."""
