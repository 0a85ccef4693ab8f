"""The faults of a round: of processes, servers, disks and clocks."""
