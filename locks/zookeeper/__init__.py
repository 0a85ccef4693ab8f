"""Locks by ZooKeeper."""
