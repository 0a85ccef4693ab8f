"""What is done to a round: faults of processes, servers, disks and clocks."""
